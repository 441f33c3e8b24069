package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/measure"
	"github.com/tidemark-im/tidemark/bench/internal/postgres"
	"github.com/tidemark-im/tidemark/bench/internal/yardstick"
)

// Yardstick is what the machine did at the start and at the end of a run, for a fixed piece of
// work. Figures of different days compare as multiples of it.
type Yardstick struct {
	Start yardstick.Reading `json:"start"`
	End   yardstick.Reading `json:"end"`
}

// The names of the parts of the yardstick, as a report has them.
const (
	ofSocket = "socket"
	ofSync   = "fdatasync"
	ofRow    = "row"
)

// How long each part may take, at the start and again at the end. Together it is below 2 s.
const (
	socketWithin = 100 * time.Millisecond
	syncWithin   = 300 * time.Millisecond
	rowsWithin   = 400 * time.Millisecond
)

// driftShown is how far the yardstick may change during a run before the report says so.
const driftShown = 1.25

// reading reads the yardstick. It fails if a part fails that the caller asked for.
func (l Load) reading(ctx context.Context) (yardstick.Reading, error) {
	dir := l.YardstickDir
	if dir == "" {
		dir = "."
	}
	reading := yardstick.Reading{
		Socket: yardstick.Socket(socketWithin),
		Sync:   yardstick.Sync(dir, syncWithin),
	}
	var problems []error
	if l.YardstickDir != "" && reading.Sync.Missing != "" {
		problems = append(problems, fmt.Errorf("the yardstick: %s", reading.Sync.Missing))
	}
	if l.Postgres != "" {
		rows := postgres.Rows(ctx, l.Postgres, rowsWithin)
		if rows.Missing != "" {
			problems = append(problems, fmt.Errorf("the yardstick of Postgres: %s", rows.Missing))
		}
		reading.Row = &rows
	}
	return reading, errors.Join(problems...)
}

// unit returns the mean of both readings of a part, or 0 if it was not measured twice.
func (y *Yardstick) unit(part string) float64 {
	if y == nil {
		return 0
	}
	start, end := partOf(y.Start, part), partOf(y.End, part)
	if start.Median <= 0 || end.Median <= 0 {
		return 0
	}
	return (start.Median + end.Median) / 2
}

func partOf(r yardstick.Reading, part string) yardstick.Figure {
	switch {
	case part == ofSocket:
		return r.Socket
	case part == ofSync:
		return r.Sync
	case r.Row != nil:
		return *r.Row
	}
	return yardstick.Figure{}
}

// multiple returns value as a multiple of a part, or 0 if that was not measured.
func (y *Yardstick) multiple(value float64, part string) float64 {
	if unit := y.unit(part); unit > 0 {
		return value / unit
	}
	return 0
}

// compare adds the yardstick to the report, and each figure as a multiple of the part that fits.
func (r *Report) compare(y *Yardstick) {
	r.Yardstick = y
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Unit == "µs" {
			f.Multiple, f.Of = y.multiple(f.Value, ofSocket), ofSocket
		}
	}
	for i := range r.Latencies {
		l := &r.Latencies[i]
		l.P50Multiple, l.P99Multiple = y.multiple(l.P50, ofSync), y.multiple(l.P99, ofSync)
	}
	for i := range r.Processes {
		p := &r.Processes[i]
		p.Multiple, p.Of = y.multiple(p.Each, ofSocket), ofSocket
		if p.Name == "postgres" && y.unit(ofRow) > 0 {
			p.Multiple, p.Of = y.multiple(p.Each, ofRow), ofRow
		}
	}
}

// times formats a multiple of a part of the yardstick, or "" for none.
func times(multiple float64, part string) string {
	if multiple == 0 {
		return ""
	}
	return measure.Amount(multiple) + " × " + part
}

// write appends the table of the yardstick, and says whether the machine changed its speed.
func (y *Yardstick) write(b *strings.Builder) {
	rows := [][]string{{"yardstick", "at the start", "least–greatest", "at the end",
		"least–greatest"}}
	var drift []string
	for _, part := range []struct{ name, text string }{
		{ofSocket, "socket: 200 bytes written and read, CPU µs"},
		{ofSync, "fdatasync: of 4 KiB, ms"},
		{ofRow, "row: of a 64-row insert in Postgres, CPU µs"},
	} {
		if part.name == ofRow && y.Start.Row == nil {
			continue
		}
		start, end := partOf(y.Start, part.name), partOf(y.End, part.name)
		rows = append(rows, append(append([]string{part.text}, cells(start)...), cells(end)...))
		if start.Median > 0 && end.Median > 0 {
			if by := end.Median / start.Median; by > driftShown || by < 1/driftShown {
				drift = append(drift, fmt.Sprintf("%s took %.2f times as long at the end",
					part.name, by))
			}
		}
	}
	measure.Table(b, rows)
	if drift != nil {
		fmt.Fprintf(b, "The machine changed its speed: %s.\n\n", strings.Join(drift, ", "))
	}
}

// cells returns the median of a figure and its spread, or why there is none.
func cells(f yardstick.Figure) []string {
	if f.Missing != "" {
		return []string{"not measured", f.Missing}
	}
	return []string{
		measure.Amount(f.Median), measure.Amount(f.Least) + "–" + measure.Amount(f.Greatest),
	}
}
