package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/device"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

// Report holds the result of a run. A duration in JSON has the unit that its name says.
type Report struct {
	Mode      string           `json:"mode"`
	Settings  string           `json:"settings"`
	Transport client.Transport `json:"transport"`
	Seconds   float64          `json:"seconds"`
	// Sent counts confirmed messages. Delivered counts what devices received, without re-sends.
	Sent      int64 `json:"sent"`
	Delivered int64 `json:"delivered"`
	// Reconnects counts the connections that were lost and replaced.
	Reconnects int64         `json:"reconnects"`
	Figures    []Figure      `json:"figures"`
	Latencies  []Latency     `json:"latencies"`
	Processes  []ProcessUse  `json:"processes"`
	OwnCPU     float64       `json:"load_generator_cpu_seconds"`
	Counters   []CounterMove `json:"counters"`
	// Units are the request units that the storage used, if it bills by them.
	Units []measure.UnitUse `json:"request_units,omitempty"`
	// Yardstick is what the machine did before and after for a fixed piece of work.
	Yardstick *Yardstick `json:"yardstick"`
	// Problems say what was lost, doubled, out of order or refused. A good run has none.
	Problems []string `json:"problems"`

	before, after snapshot
}

// Figure is one number with its unit. Multiple is the same as a multiple of a part of the
// yardstick, Of. It is 0 for what does not depend on the machine's speed.
type Figure struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Multiple float64 `json:"multiple,omitempty"`
	Of       string  `json:"multiple_of,omitempty"`
}

// Latency is the distribution of one duration, in milliseconds, and as multiples of the yardstick's
// fdatasync.
type Latency struct {
	Name  string  `json:"name"`
	Count uint64  `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p99_9_ms"`
	Max   float64 `json:"max_ms"`

	P50Multiple float64 `json:"p50_fdatasyncs,omitempty"`
	P99Multiple float64 `json:"p99_fdatasyncs,omitempty"`
}

// ProcessUse is the CPU and memory that one process used between the two snapshots.
type ProcessUse struct {
	PID         int     `json:"pid"`
	Name        string  `json:"name"`
	User        float64 `json:"user_seconds"`
	System      float64 `json:"system_seconds"`
	ResidentMiB float64 `json:"resident_mib"`
	GrownMiB    float64 `json:"grown_mib"`
	// Each is the CPU time in µs per item of the report's first "CPU per …" figure, 0 without one.
	Each float64 `json:"each_microseconds,omitempty"`
	// Multiple is Each as a multiple of a part of the yardstick, Of.
	Multiple float64 `json:"multiple,omitempty"`
	Of       string  `json:"multiple_of,omitempty"`

	cpu time.Duration // exact, where the system tells it
}

// CounterMove is a counter of the server that moved.
type CounterMove struct {
	Name string  `json:"name"`
	By   float64 `json:"by"`
}

// maxShown is the greatest number of problems that are printed.
const maxShown = 20

func newReport(r *run, mode Mode, before, after snapshot) *Report {
	name, settings := mode.describe()
	report := &Report{
		Mode:       name,
		Settings:   settings,
		Transport:  r.load.Transport,
		Reconnects: r.reconnects.Load(),
		Seconds:    (after.at - before.at - settle).Seconds(),
		OwnCPU:     (after.own - before.own).Seconds(),
		Problems:   []string{},
		before:     before,
		after:      after,
	}
	if name != "idle" {
		report.Settings += fmt.Sprintf(", %d bytes, ack every %d or %v",
			r.load.Size, r.load.AckEvery, r.load.AckInterval)
	}
	for i, p := range after.processes {
		was := before.processes[i]
		report.Processes = append(report.Processes, ProcessUse{
			PID:         p.PID,
			Name:        p.Name,
			User:        (p.User - was.User).Seconds(),
			System:      (p.System - was.System).Seconds(),
			ResidentMiB: mib(p.Resident),
			GrownMiB:    mib(p.Resident - was.Resident),
			cpu:         p.CPU() - was.CPU(),
		})
	}
	moved := measure.Difference(before.metrics, after.metrics)
	report.Units = measure.UnitsOf(moved)
	for name, by := range moved {
		report.Counters = append(report.Counters, CounterMove{Name: name, By: by})
	}
	slices.SortFunc(report.Counters,
		func(a, b CounterMove) int { return strings.Compare(a.Name, b.Name) })
	return report
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (r *Report) add(name string, value float64, unit string) {
	r.Figures = append(r.Figures, Figure{Name: name, Value: value, Unit: unit})
}

// rates adds the numbers of messages sent and delivered, and, if took is not 0, those per second.
func (r *Report) rates(sent, delivered int64, took time.Duration) {
	r.Sent, r.Delivered = sent, delivered
	r.add("sent and confirmed", float64(sent), "messages")
	r.add("delivered", float64(delivered), "messages")
	if took > 0 {
		r.add("sent per second", float64(sent)/took.Seconds(), "/s")
		r.add("delivered per second", float64(delivered)/took.Seconds(), "/s")
	}
}

// perOperation adds the CPU of all processes, and the stream bytes received, each divided by n.
func (r *Report) perOperation(what string, n int64) {
	if n == 0 {
		return
	}
	if len(r.Processes) > 0 {
		r.add("CPU per "+what, float64(r.before.cpu(r.after).Nanoseconds())/float64(n)/1e3, "µs")
	}
	for i := range r.Processes {
		if p := &r.Processes[i]; p.Each == 0 {
			p.Each = float64(p.cpu.Nanoseconds()) / float64(n) / 1e3
		}
	}
	r.add("stream bytes received per "+what,
		float64(r.after.streamBytes-r.before.streamBytes)/float64(n), "bytes")
}

func (r *Report) latency(name string, h *measure.Histogram) {
	if h.Count() == 0 {
		return
	}
	r.Latencies = append(r.Latencies, Latency{
		Name: name, Count: h.Count(), P50: ms(h.Quantile(0.5)), P99: ms(h.Quantile(0.99)),
		P999: ms(h.Quantile(0.999)), Max: ms(h.Max()),
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// take adds the problems of a checker.
func (r *Report) take(c *device.Checker) {
	r.Problems = append(r.Problems, c.Problems()...)
}

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// OK reports whether everything expected arrived, exactly once and in order.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteTable writes the report as Markdown tables, which are also readable in a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s over %s: %s\n\n", r.Mode, r.Transport, r.Settings)
	r.writeFigures(&b)
	if r.Yardstick != nil {
		r.Yardstick.write(&b)
	}
	if len(r.Units) > 0 {
		measure.WriteUnits(&b, r.Units)
	}
	if len(r.Counters) > 0 {
		rows := [][]string{{"counter of the server", "moved by"}}
		for _, c := range r.Counters {
			rows = append(rows, []string{c.Name, measure.Amount(c.By)})
		}
		measure.Table(&b, rows)
	}
	if r.OK() {
		b.WriteString(r.verdict())
		return writeAll(w, b.String())
	}
	fmt.Fprintf(&b, "FAILED, %d problems:\n\n", len(r.Problems))
	for _, p := range r.Problems[:min(len(r.Problems), maxShown)] {
		fmt.Fprintf(&b, "- %s\n", p)
	}
	if more := len(r.Problems) - maxShown; more > 0 {
		fmt.Fprintf(&b, "- and %d more\n", more)
	}
	return writeAll(w, b.String())
}

// writeFigures appends the tables of figures, latencies and processes.
func (r *Report) writeFigures(b *strings.Builder) {
	rows := [][]string{{"figure", "value", "yardsticks"}}
	for _, f := range r.Figures {
		rows = append(rows, []string{
			f.Name, strings.TrimSpace(measure.Amount(f.Value) + " " + f.Unit),
			times(f.Multiple, f.Of),
		})
	}
	rows = append(rows, []string{
		"CPU of the load generator itself", measure.Amount(r.OwnCPU) + " s", "",
	})
	if r.Reconnects > 0 {
		rows = append(rows, []string{
			"connections lost and resumed", measure.Amount(float64(r.Reconnects)), "",
		})
	}
	measure.Table(b, rows)
	if len(r.Latencies) > 0 {
		rows = [][]string{{"latency, ms", "count", "p50", "p99", "p99.9", "max",
			"p50, yardsticks", "p99, yardsticks"}}
		for _, l := range r.Latencies {
			rows = append(rows, []string{
				l.Name, measure.Amount(float64(l.Count)), measure.Amount(l.P50),
				measure.Amount(l.P99), measure.Amount(l.P999), measure.Amount(l.Max),
				times(l.P50Multiple, ofSync), times(l.P99Multiple, ofSync),
			})
		}
		measure.Table(b, rows)
	}
	if len(r.Processes) == 0 {
		return
	}
	rows = [][]string{{"process", "user s", "system s", "each µs", "yardsticks", "resident MiB",
		"grown MiB"}}
	for _, p := range r.Processes {
		rows = append(rows, []string{
			fmt.Sprintf("%s (%d)", p.Name, p.PID), measure.Amount(p.User),
			measure.Amount(p.System), measure.Amount(p.Each), times(p.Multiple, p.Of),
			measure.Amount(p.ResidentMiB), measure.Amount(p.GrownMiB),
		})
	}
	measure.Table(b, rows)
}

// verdict returns the sentence for a run without problems.
func (r *Report) verdict() string {
	if r.Mode == "idle" {
		return "Every connection was opened and stayed.\n"
	}
	return "Every message arrived exactly once and in order.\n"
}

func writeAll(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}
