package bench

import (
	"slices"
	"testing"
	"time"
)

func TestCurve_a_point_of_nothing_is_a_failure(t *testing.T) {
	good := CurvePoint{Value: 1, Operations: 5, CPU: 3, P50: 1}
	for name, tc := range map[string]struct {
		change func(*CurvePoint)
		want   int
	}{
		"whole":          {func(*CurvePoint) {}, 0},
		"no operations":  {func(p *CurvePoint) { p.Operations = 0 }, 1},
		"no CPU":         {func(p *CurvePoint) { p.CPU = 0 }, 1},
		"nothing timely": {func(p *CurvePoint) { p.P50 = 0 }, 1},
	} {
		p := good
		tc.change(&p)
		c := CurveReport{Points: []CurvePoint{good, p}}
		c.judge()
		if got := len(c.Problems); got != tc.want || c.OK() != (tc.want == 0) {
			t.Errorf("%s: problems %q, want %d", name, c.Problems, tc.want)
		}
	}
	var none CurveReport
	if none.judge(); none.OK() {
		t.Error("a curve without points is good")
	}
}

func TestCurve_multiples_are_of_one_unit(t *testing.T) {
	c := CurveReport{Points: []CurvePoint{{CPU: 20, Socket: 8}, {CPU: 40, Socket: 13}, {CPU: 50}}}
	c.Yardstick.Start.Socket.Median, c.Yardstick.End.Socket.Median = 10, 11
	c.compare()
	got := []float64{c.Socket, c.Points[0].Multiple, c.Points[1].Multiple}
	if want := []float64{11, 20. / 11, 40. / 11}; !slices.Equal(got, want) {
		t.Errorf("unit and multiples %v, want %v", got, want)
	}
}

func TestCurve_plans_fit_into_the_limit(t *testing.T) {
	load := Load{PIDs: []int{1}, Transport: "websocket", Duration: 10 * time.Second}
	for name, s := range sweeps() {
		c := Curve{Name: name, Limit: 2 * time.Minute}
		p, err := c.plan(load)
		if err != nil {
			t.Fatal(err)
		}
		if all := (p.point + p.warm) * time.Duration(len(p.values)); all > c.Limit*2/3 {
			t.Errorf("%s: the points take %v of %v", name, all, c.Limit)
		}
		if title := "CPU of one " + s.operation + ": " + s.title; len(title) > 65 {
			t.Errorf("%s: the title %q is too wide for a plot", name, title)
		}
		if !slices.IsSortedFunc(s.usual, s.compare) || !slices.IsSortedFunc(s.short, s.compare) {
			t.Errorf("%s: the values are not ascending", name)
		}
	}
	c := Curve{Name: "rate", Limit: time.Minute, Values: []int{0, 20, 10}}
	if p, err := c.plan(load); err != nil || !slices.Equal(p.values, []int{10, 20, 0}) {
		t.Errorf("the values are %v, %v, want 10, 20 and then as many as possible", p.values, err)
	}
}
