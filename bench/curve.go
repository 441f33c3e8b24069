package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
	"github.com/tidemark-im/tidemark/bench/internal/yardstick"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// Curve is the mode curve: what a message or an open costs, while one thing grows.
type Curve struct {
	// Name is one of the sweeps in sweeps.go.
	Name string `arg:"" enum:"offline,online,history,chats,rate,silent,members" help:"Cost of a message against members offline (${enum}) or online, stored messages, chats in use, or messages a second; or of an open against silent chats, or members of one group."`
	// Values, if not empty, replace the usual ones. They are made ascending.
	Values []int `placeholder:"N,..." help:"Measure at these values instead of the usual ones."`
	Short  bool  `help:"Measure at fewer and smaller values."`
	// Limit bounds the whole curve. Values that do not fit into it are left out.
	Limit time.Duration `default:"2m" help:"Longest time of a curve; values that do not fit are left out, and named."`
}

// errLimit ends a curve at its limit.
var errLimit = errors.New("the limit of the curve is reached")

// The parts of Curve.Limit that all points together, and one warm-up, may take.
const (
	measured = 0.5
	warmUp   = 0.25 // of the time of a point
	maxWarm  = time.Second
	atRest   = 2 * time.Second
	// besideWithin is how long the socket is measured before and after a point.
	besideWithin = 20 * time.Millisecond
)

// plan is a curve about to be measured.
type plan struct {
	sweep
	values []int
	// point is how long a point is measured. The load before it, which does not count, takes warm.
	point, warm time.Duration
}

func (c *Curve) plan(load Load) (plan, error) {
	p := plan{sweep: sweeps()[c.Name], values: slices.Clone(c.Values)}
	if p.begin == nil {
		return p, fmt.Errorf("there is no curve %q", c.Name)
	}
	if len(load.PIDs) == 0 {
		return p, errors.New("a curve shows CPU time; name the server's process by --pid")
	}
	if load.Transport == client.REST || p.opens && load.Transport != client.WebSocket {
		return p, fmt.Errorf("the curve %s cannot be measured over %s; use --transport websocket",
			c.Name, load.Transport)
	}
	if len(p.values) == 0 {
		p.values = p.usual
		if c.Short {
			p.values = p.short
		}
	}
	slices.SortFunc(p.values, p.compare)
	if low := slices.Min(p.values); low < p.least || c.Limit <= 0 {
		return p, fmt.Errorf("--values must be at least %d, and --limit above 0", p.least)
	}
	share := float64(c.Limit) * measured / float64(len(p.values))
	p.point = min(load.Duration, time.Duration(share))
	p.warm = min(time.Duration(float64(p.point)*warmUp), maxWarm)
	return p, nil
}

// RunCurve measures a curve. The error says why nothing could be measured.
// CurveReport.Problems says what went wrong meanwhile.
func RunCurve(ctx context.Context, load Load, c *Curve) (*CurveReport, error) {
	p, err := c.plan(load)
	if err != nil {
		return nil, err
	}
	report := &CurveReport{Curve: c.Name, plan: p, Problems: []string{},
		Transport: load.Transport, Axis: p.axis, Operation: p.operation}
	if report.Yardstick.Start, err = load.reading(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithDeadlineCause(ctx, time.Now().Add(c.Limit), errLimit)
	defer cancel()
	if err := report.measure(limited, load); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errors.New("the curve was interrupted")
	}
	if report.Yardstick.End, err = load.reading(ctx); err != nil {
		return nil, err
	}
	report.compare()
	report.judge()
	return report, nil
}

// measure measures the points, until the limit ends ctx.
func (c *CurveReport) measure(ctx context.Context, load Load) error {
	var r *run
	var s stepper
	end := func() {
		if r == nil {
			return
		}
		whole := r.ctx.Err() == nil // it was not ended at the limit, or by a problem
		r.stop()
		verified := &Report{}
		if whole {
			s.verify(r, verified)
		}
		c.Problems = append(append(c.Problems, r.problems...), verified.Problems...)
	}
	defer func() { end() }()
	for i, value := range c.plan.values {
		deadline, _ := ctx.Deadline()
		if time.Until(deadline) < c.plan.point+c.plan.warm || len(c.Problems) > 0 {
			c.LeftOut = c.plan.values[i:]
			return nil
		}
		if r == nil || c.plan.anew {
			end()
			var err error
			if r, err = newRun(ctx, load); err != nil {
				return err
			}
			s = c.plan.begin()
		}
		point, err := c.point(r, s, value)
		switch {
		case ctx.Err() != nil:
			c.LeftOut = c.plan.values[i:]
			return nil
		case err != nil:
			err = fmt.Errorf("at %d %s: %w", value, c.Axis, r.explain(err))
			if len(c.Points) == 0 {
				return err
			}
			r.fail(err)
			c.LeftOut = c.plan.values[i:]
			return nil
		}
		c.Points = append(c.Points, point)
	}
	return nil
}

// point measures one point.
func (c *CurveReport) point(r *run, s stepper, value int) (CurvePoint, error) {
	none := CurvePoint{}
	if err := s.step(r, value); err != nil {
		return none, err
	}
	if len(c.Points) == 0 {
		if err := c.rest(r); err != nil {
			return none, err
		}
	}
	r.load.Duration = c.plan.warm
	if err := s.apply(r); err != nil {
		return none, err
	}
	r.delivered.Reset()
	beside := yardstick.Socket(besideWithin)
	before, err := r.snapshot()
	if err != nil {
		return none, err
	}
	operations := s.operations()
	r.load.Duration = c.plan.point
	start := r.now()
	if err := s.apply(r); err != nil {
		return none, err
	}
	took := r.now() - start
	if !signal.Pause(r.ctx, settle) {
		return none, context.Cause(r.ctx)
	}
	after, err := r.snapshot()
	if err != nil {
		return none, err
	}
	operations = s.operations() - operations
	p := CurvePoint{Value: value, Operations: operations, Seconds: took.Seconds()}
	p.P50, p.P99 = ms(r.delivered.Quantile(0.5)), ms(r.delivered.Quantile(0.99))
	if socket := yardstick.Socket(besideWithin); socket.Missing == "" && beside.Missing == "" {
		p.Socket = (beside.Median + socket.Median) / 2
	}
	if operations > 0 {
		p.divide(before, after)
		p.Above = p.CPU - c.Rest*1e3*(after.at-before.at).Seconds()/float64(operations)
	}
	return p, nil
}

// rest measures what the processes use while the connections of the first point do nothing.
func (c *CurveReport) rest(r *run) error {
	if !signal.Pause(r.ctx, settle) {
		return context.Cause(r.ctx)
	}
	before, err := r.snapshot()
	if err != nil {
		return err
	}
	if !signal.Pause(r.ctx, min(atRest, c.plan.point)) {
		return context.Cause(r.ctx)
	}
	after, err := r.snapshot()
	if err != nil {
		return err
	}
	for _, p := range after.processes {
		c.Processes = append(c.Processes, p.Name)
	}
	c.Rest = before.cpu(after).Seconds() * 1e3 / (after.at - before.at).Seconds()
	return nil
}

// divide sets what an operation cost on average.
func (p *CurvePoint) divide(before, after snapshot) {
	n := float64(p.Operations)
	p.CPU = float64(before.cpu(after).Nanoseconds()) / 1e3 / n
	for i, process := range after.processes {
		used := process.CPU() - before.processes[i].CPU()
		p.Processes = append(p.Processes, float64(used.Nanoseconds())/1e3/n)
	}
	for name, by := range measure.Difference(before.metrics, after.metrics) {
		switch {
		case strings.HasPrefix(name, "tidemark_storage_seconds_count"):
			p.Calls += by / n
		case name == "tidemark_commit_seconds_count":
			p.Commits += by / n
		}
	}
}
