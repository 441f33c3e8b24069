package bench

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/bench/internal/yardstick"
)

func TestYardstick_each_figure_has_a_multiple(t *testing.T) {
	figure := func(median float64) yardstick.Figure {
		return yardstick.Figure{Median: median, Least: median, Greatest: median, Rounds: 1}
	}
	row, after := figure(10), figure(20)
	y := &Yardstick{
		Start: yardstick.Reading{Socket: figure(4), Sync: figure(1), Row: &row},
		End:   yardstick.Reading{Socket: figure(6), Sync: figure(1), Row: &after},
	}
	r := &Report{
		Figures: []Figure{
			{Name: "CPU per message", Value: 50, Unit: "µs"}, {Name: "delivered", Value: 50},
		},
		Latencies: []Latency{{Name: "send → tick", Count: 1, P50: 3, P99: 7}},
		Processes: []ProcessUse{
			{Name: "tidemark", PID: 1, Each: 35}, {Name: "postgres", PID: 2, Each: 15},
		},
	}
	r.compare(y)
	want := []string{"10 × socket", "", "7 × socket", "1 × row", "3 × fdatasync", "7 × fdatasync"}
	l := r.Latencies[0]
	got := []string{
		times(r.Figures[0].Multiple, r.Figures[0].Of),
		times(r.Figures[1].Multiple, r.Figures[1].Of),
		times(r.Processes[0].Multiple, r.Processes[0].Of),
		times(r.Processes[1].Multiple, r.Processes[1].Of),
		times(l.P50Multiple, ofSync), times(l.P99Multiple, ofSync),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"10 × socket", "1 × row", "3 × fdatasync", "CPU µs", "socket took 1.50 times as long",
		"row took 2.00 times as long",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "fdatasync took") {
		t.Errorf("the report says that the disk changed:\n%s", b.String())
	}
}

func TestYardstick_what_was_asked_for_must_be_measured(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := (Load{YardstickDir: missing}).reading(t.Context()); err == nil {
		t.Error("a directory that does not exist is no error")
	}
	if _, err := (Load{Postgres: "postgres://127.0.0.1:1/d"}).reading(t.Context()); err == nil {
		t.Error("a Postgres that does not answer is no error")
	}
	t.Chdir(t.TempDir())
	reading, err := Load{}.reading(t.Context())
	if err != nil || reading.Sync.Median <= 0 || reading.Socket.Median <= 0 || reading.Row != nil {
		t.Errorf("got %+v, %v; want a socket and a disk", reading, err)
	}
	y := &Yardstick{Start: reading, End: reading}
	y.End.Socket = yardstick.Figure{Missing: "no ports"}
	if got := y.multiple(1, ofSocket); got != 0 {
		t.Errorf("a multiple of what was measured only once is %v, want 0", got)
	}
}
