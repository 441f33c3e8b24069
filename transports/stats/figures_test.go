package stats

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// said returns what a node says that has sent n messages, each with a commit of a duration.
func said(t *testing.T, id tidemark.NodeID, boot string, n int64, took time.Duration,
) server.NodeFigures {
	t.Helper()
	commits := Histogram{Bounds: []float64{.001, .01, .1}, Counts: make([]uint64, 4)}
	for i, bound := range append(commits.Bounds, 1e9) {
		if took.Seconds() <= bound {
			commits.Counts[i] = uint64(n)
			break
		}
	}
	text, err := json.Marshal(figures{
		Totals: totalsOf(map[string]int64{"sends_total": n, "acks_total": 2 * n}, commits),
	})
	if err != nil {
		t.Fatal(err)
	}
	return server.NodeFigures{ID: id, Boot: boot, Figures: text}
}

// shown returns a percentile as text.
func shown(p *int64) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprint(*p)
}

// The percentiles of a sum are those of all commits, and not a mean of percentiles.
func TestSum_stats_of_all_nodes_have_honest_percentiles(t *testing.T) {
	for _, tt := range []struct {
		name     string
		of       []server.NodeFigures
		p50, p99 string
		count    uint64
	}{
		{"no commit", nil, "none", "none", 0},
		{"one node", []server.NodeFigures{said(t, "a", "1", 5, time.Millisecond)}, "1000", "1000",
			5},
		{"a slow node with one commit of 101", []server.NodeFigures{
			said(t, "a", "1", 100, time.Millisecond), said(t, "b", "1", 1, 50*time.Millisecond),
		}, "1000", "1000", 101},
		{"a slow node with two commits of 102", []server.NodeFigures{
			said(t, "a", "1", 100, time.Millisecond), said(t, "b", "1", 2, 50*time.Millisecond),
		}, "1000", "100000", 102},
		{"a slow node with most commits", []server.NodeFigures{
			said(t, "a", "1", 1, time.Millisecond), said(t, "b", "1", 2, 50*time.Millisecond),
		}, "100000", "100000", 3},
		{"above the last bound", []server.NodeFigures{said(t, "a", "1", 1, time.Second)}, "none",
			"none", 1},
	} {
		got := sum(tt.of, time.Now()).Totals.Commits
		if shown(got.P50) != tt.p50 || shown(got.P99) != tt.p99 || got.Count != tt.count {
			t.Errorf("%s: p50 %s, p99 %s of %d, want %s, %s of %d", tt.name, shown(got.P50),
				shown(got.P99), got.Count, tt.p50, tt.p99, tt.count)
		}
	}
}

// Nodes of two versions may have other buckets.
func TestHistogram_sum_of_other_buckets(t *testing.T) {
	a := newHistogram(Histogram{Bounds: []float64{.001, .01}, Counts: []uint64{1, 2, 3}})
	b := newHistogram(Histogram{Bounds: []float64{.005, .01}, Counts: []uint64{10, 20, 30}})
	got, err := json.Marshal(a.plus(b, 1))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"count":66,"buckets":[{"up_to_microseconds":1000,"count":1},` +
		`{"up_to_microseconds":5000,"count":10},{"up_to_microseconds":10000,"count":22},` +
		`{"up_to_microseconds":null,"count":33}],"p50_microseconds":10000,"p99_microseconds":null}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(a.Buckets) != 3 || a.Buckets[1].Count != 2 {
		t.Errorf("a has become %+v", a)
	}
}

// What cannot be read is reported, as is what did not come.
func TestSum_stats_of_all_nodes_name_silent_ones(t *testing.T) {
	got := sum([]server.NodeFigures{
		said(t, "a", "1", 5, time.Millisecond),
		{ID: "b", Err: tidemark.Errorf(tidemark.NotFound, "node b is not subscribed")},
		{ID: "c", Figures: []byte("?")},
	}, time.Now())
	if len(got.Nodes) != 3 || got.Totals.Sends != 5 || got.Nodes[0].Status != "ok" ||
		got.Nodes[0].Totals.Sends != 5 {
		t.Fatalf("%+v", got)
	}
	for i, want := range map[int]string{1: "node b is not subscribed", 2: ""} {
		n := got.Nodes[i]
		if n.Status != "unavailable" || n.Totals != nil || n.Detail == nil ||
			want != "" && *n.Detail != want {
			t.Errorf("%s: %s, %v", n.NodeID, n.Status, n.Detail)
		}
	}
}

func TestSlowest_of_all_nodes(t *testing.T) {
	var all []slowSession
	for i := range 2 * MaxSlowest {
		all = append(all, slowSession{SessionID: fmt.Sprint(i), Seconds: int64(i)})
	}
	got := slowestOf(all)
	if len(got) != MaxSlowest || got[0].Seconds != 2*MaxSlowest-1 {
		t.Errorf("%d sessions, the first of %d s", len(got), got[0].Seconds)
	}
}

// Rates count what a node did while it was seen. A restart, a silence and an end are no bursts.
func TestHistory_rates_of_one_life(t *testing.T) {
	began := time.Now()
	node := func(id, boot string, n int64) server.NodeFigures {
		return said(t, tidemark.NodeID(id), boot, n, time.Millisecond)
	}
	silent := server.NodeFigures{ID: "b", Boot: "1", Err: tidemark.Errorf(tidemark.NotFound, "x")}
	var h history
	for i, step := range []struct {
		says       []server.NodeFigures
		short, ten float64 // sends a second
	}{
		{[]server.NodeFigures{node("a", "1", 100), node("b", "1", 50)}, -1, -1},
		{[]server.NodeFigures{node("a", "1", 110), node("b", "1", 50)}, 10, 10},
		{[]server.NodeFigures{node("a", "1", 110), node("b", "1", 54)}, 4, 7},
		{[]server.NodeFigures{node("a", "1", 110), silent}, 0, 10. / 3},
		{[]server.NodeFigures{node("a", "1", 110), node("b", "1", 58)}, 0, 2.5 + 2},
		{[]server.NodeFigures{node("a", "2", 30), node("b", "1", 58)}, 0, 8. / 5},
		{[]server.NodeFigures{node("a", "2", 31)}, 1, 1},
	} {
		a := sum(step.says, began)
		h.add(&a, began.Add(time.Duration(i)*time.Second))
		for name, of := range map[string]struct {
			got  *rates
			want float64
		}{"1 s": {a.Second, step.short}, "10 s": {a.TenSeconds, step.ten}} {
			switch {
			case (of.got == nil) != (of.want < 0):
				t.Errorf("step %d, %s: %+v, want %v", i, name, of.got, of.want)
			case of.got != nil && (of.got.Sends-of.want > 1e-9 || of.want-of.got.Sends > 1e-9 ||
				of.got.Acks-2*of.want > 1e-9 || of.got.Commits-of.want > 1e-9):
				t.Errorf("step %d, %s: %+v, want %v", i, name, of.got, of.want)
			}
		}
	}
}

// The long window is ten seconds, however long the stream is.
func TestHistory_bounded_use_of_a_long_stream(t *testing.T) {
	began := time.Now()
	var h history
	var last answer
	for i := range 100 {
		n := int64(0)
		if i >= 50 {
			n = 1000
		}
		last = sum([]server.NodeFigures{said(t, "a", "1", n, time.Millisecond)}, began)
		h.add(&last, began.Add(time.Duration(i)*time.Second))
	}
	if len(h.samples) > 10 || last.TenSeconds.Sends != 0 {
		t.Errorf("%d samples, %v sends a second", len(h.samples), last.TenSeconds.Sends)
	}
}
