package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
	"github.com/tidemark-im/tidemark/bench/internal/plot"
)

// CurveReport is a measured curve.
type CurveReport struct {
	Curve     string           `json:"curve"`
	Transport client.Transport `json:"transport"`
	// Axis is what grows, and Operation is what costs are divided by.
	Axis      string       `json:"axis"`
	Operation string       `json:"operation"`
	Points    []CurvePoint `json:"points"`
	// LeftOut are the values that did not fit into the limit.
	LeftOut []int `json:"left_out,omitempty"`
	// Processes are the names of the processes, in the order of CurvePoint.Processes.
	Processes []string `json:"processes"`
	// Rest is what all of them use in a second without load, with the connections of the first
	// point.
	Rest      float64   `json:"rest_milliseconds_a_second"`
	Yardstick Yardstick `json:"yardstick"`
	// Socket is the median of all readings of that part of the yardstick during the curve.
	Socket float64 `json:"socket_microseconds"`
	// Problems say what was lost, refused or not measured. A good curve has none.
	Problems []string `json:"problems"`

	plan plan
}

// CurvePoint is what an operation costs at one value.
type CurvePoint struct {
	Value int `json:"value"` // 0 messages a second are as many as possible
	// Operations were made in Seconds.
	Operations int64   `json:"operations"`
	Seconds    float64 `json:"seconds"`
	// CPU is the time of all processes, in µs. Socket is that part of the yardstick beside it.
	CPU      float64 `json:"cpu_microseconds"`
	Socket   float64 `json:"socket_microseconds"`
	Multiple float64 `json:"multiple_of_socket"`
	// Above is CPU without what the processes use in that time at rest.
	Above     float64   `json:"above_rest_microseconds"`
	Processes []float64 `json:"process_microseconds"`
	// Calls are those of the storage, Commits its commits, or with Postgres its round trips.
	Calls   float64 `json:"storage_calls"`
	Commits float64 `json:"commits"`
	// P50 and P99 are the times from a send to a recipient, or from an open to caught_up.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// compare sets the multiples. They are of one unit for the whole curve, since single short readings
// differ by more than neighbouring points.
func (c *CurveReport) compare() {
	var units []float64
	for _, p := range c.Points {
		units = append(units, p.Socket)
	}
	units = append(units, c.Yardstick.Start.Socket.Median, c.Yardstick.End.Socket.Median)
	units = slices.DeleteFunc(units, func(unit float64) bool { return unit <= 0 })
	if len(units) == 0 {
		return
	}
	slices.Sort(units)
	c.Socket = units[len(units)/2]
	for i := range c.Points {
		c.Points[i].Multiple = c.Points[i].CPU / c.Socket
	}
}

// judge reports what was not measured.
func (c *CurveReport) judge() {
	if len(c.Points) == 0 {
		c.Problems = append(c.Problems, "nothing was measured within the limit; raise --limit")
	}
	for _, p := range c.Points {
		if p.Operations == 0 || p.CPU <= 0 || p.P50 <= 0 {
			c.Problems = append(c.Problems, fmt.Sprintf(
				"at %s %s, %d operations were measured, with %.1f µs of CPU each and p50 %.3f ms",
				c.label(p), c.Axis, p.Operations, p.CPU, p.P50))
		}
	}
}

// OK reports whether everything was measured, and everything expected arrived.
func (c *CurveReport) OK() bool { return len(c.Problems) == 0 }

func (c *CurveReport) label(p CurvePoint) string {
	if c.plan.fastest(p.Value) {
		return "all it can"
	}
	return measure.Amount(float64(p.Value))
}

// WriteJSON writes the curve as one JSON object.
func (c *CurveReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// WriteTable writes the curve as Markdown tables.
func (c *CurveReport) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### curve %s over %s: %s\n\n", c.Curve, c.Transport, c.plan.title)
	head := []string{c.Axis, c.Operation + "s", "CPU µs", "above rest", "yardsticks"}
	if len(c.Processes) > 1 {
		for _, name := range c.Processes {
			head = append(head, name+" µs")
		}
	}
	rows := [][]string{append(head, "storage calls", "commits", "p50 ms", "p99 ms", "a second")}
	for _, p := range c.Points {
		row := []string{
			c.label(p), measure.Amount(float64(p.Operations)), measure.Amount(p.CPU),
			measure.Amount(p.Above), times(p.Multiple, ofSocket),
		}
		if len(c.Processes) > 1 {
			for _, each := range p.Processes {
				row = append(row, measure.Amount(each))
			}
		}
		rows = append(rows, append(row, measure.Amount(p.Calls), measure.Amount(p.Commits),
			measure.Amount(p.P50), measure.Amount(p.P99),
			measure.Amount(float64(p.Operations)/p.Seconds)))
	}
	measure.Table(&b, rows)
	fmt.Fprintf(&b, "CPU, calls and commits are of one %s. Without load, the processes took %s ms "+
		"of CPU a second.\n\n", c.Operation, measure.Amount(c.Rest))
	if c.LeftOut != nil {
		fmt.Fprintf(&b, "Not measured, because of --limit or a problem: %v %s.\n\n",
			c.LeftOut, c.Axis)
	}
	c.Yardstick.write(&b)
	for _, problem := range c.Problems {
		fmt.Fprintf(&b, "- FAILED: %s\n", problem)
	}
	return writeAll(w, b.String())
}

// WritePlot writes the curve as an SVG picture.
func (c *CurveReport) WritePlot(w io.Writer) error {
	chart := plot.Chart{
		Title: fmt.Sprintf("CPU of one %s: %s", c.Operation, c.plan.title),
		Note: fmt.Sprintf("of %s; the yardstick, a write and a read over loopback, took %s µs",
			strings.Join(c.Processes, " and "), measure.Amount(c.Socket)),
		X: c.Axis, Y: "µs",
	}
	for _, p := range c.Points {
		x := float64(p.Value)
		if n := len(chart.Points); c.plan.fastest(p.Value) && n > 0 {
			// To the right of the others, even if a busy machine can less than was asked before.
			x = max(float64(p.Operations)/p.Seconds, 3*chart.Points[n-1].X)
		}
		chart.Points = append(chart.Points, plot.Point{X: x, Y: p.CPU, Label: c.label(p)})
	}
	return plot.Write(w, chart)
}
