package measure

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat_name_may_hold_anything(t *testing.T) {
	stat := "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 150 25 30 5 20 0 8 0 100 1000 10 " +
		"18446744073709551615"
	got, ended, err := parseStat([]byte(stat))
	if err != nil {
		t.Fatal(err)
	}
	want := Process{Name: "a) b (c", User: 1800 * time.Millisecond, System: 300 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.CPU() != 2100*time.Millisecond {
		t.Errorf("CPU = %v, want 2.1s", got.CPU())
	}
	if ended != 350*time.Millisecond {
		t.Errorf("ended children took %v, want 350ms", ended)
	}
}

func TestParseStat_refuses_what_is_short(t *testing.T) {
	for _, stat := range []string{
		"", "42", "42 (a)", "42 (a) S 1 2 3", "42 (a) S 1 42 42 0 -1 4194560 100 0 0 0 x y",
	} {
		if _, _, err := parseStat([]byte(stat)); err == nil {
			t.Errorf("parseStat(%q) succeeds", stat)
		}
	}
}

func TestReadProcess_reads_this_one(t *testing.T) {
	p, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != os.Getpid() || p.Resident < 1<<20 {
		t.Errorf("pid %d with %d bytes resident, want pid %d with more than a MiB",
			p.PID, p.Resident, os.Getpid())
	}
	// The clock of /proc has steps of 10 ms. This loop takes less, and is seen.
	for range 1000 {
		_, _ = strconv.Atoi("1")
	}
	after, err := ReadProcess(os.Getpid())
	if err != nil || after.CPU() <= p.CPU() || after.CPU() != after.Exact {
		t.Errorf("CPU %v after %v (exact %v), %v; want a little more", after.CPU(), p.CPU(),
			after.Exact, err)
	}
	if _, err := ReadProcess(1 << 30); err == nil {
		t.Error("a process that does not exist can be read")
	}
}

func TestParseMetrics_and_difference(t *testing.T) {
	before := ParseMetrics("# HELP x y\n# TYPE x counter\nsends_total 10\nsame_total 4\n" +
		"go_goroutines 7\n")
	after := ParseMetrics("sends_total 12\nsame_total 4\nlabelled_total{code=\"a b\"} 3\n" +
		"latency_bucket{le=\"1\"} 9\nlatency_sum 1.5e1\n")
	want := map[string]float64{"sends_total": 2, `labelled_total{code="a b"}`: 3, "latency_sum": 15}
	if diff := cmp.Diff(want, Difference(before, after)); diff != "" {
		t.Error(diff)
	}
}

func TestAmount(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 7: "7", 0.1234: "0.123", 1.239: "1.24", 12.34: "12.3", 123.4: "123",
		1234567: "1,234,567", 1234.6: "1,235", -4096: "-4,096", -0.5: "-0.500",
	} {
		if got := Amount(v); got != want {
			t.Errorf("Amount(%v) = %q, want %q", v, got, want)
		}
	}
}
