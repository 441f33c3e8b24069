package stats

import "time"

// The windows of the rates, in samples: one sample is taken a second.
const (
	shortWindow = 1
	longWindow  = 10
)

// rates are what all nodes did in a window, for each second of it.
type rates struct {
	Sends      float64 `json:"sends_per_second"`
	Deliveries float64 `json:"deliveries_per_second"`
	Acks       float64 `json:"acks_per_second"`
	Commits    float64 `json:"commits_per_second"`
	P50        *int64  `json:"commit_p50_microseconds"`
	P99        *int64  `json:"commit_p99_microseconds"`
}

// history has what one stream saw lately, the latest sample last. It needs nothing of the nodes,
// which count the same whether anybody watches or not.
type history struct{ samples []sample }

// sample is the totals of all nodes that answered, by their life.
type sample struct {
	at     time.Time
	totals map[string]*totals
}

// add adds an answer, and sets the rates in it.
func (h *history) add(a *answer, now time.Time) {
	s := sample{at: now, totals: make(map[string]*totals, len(a.Nodes))}
	for i := range a.Nodes {
		if n := &a.Nodes[i]; n.Totals != nil {
			s.totals[n.life] = n.Totals
		}
	}
	a.Second, a.TenSeconds = h.rates(s, shortWindow), h.rates(s, longWindow)
	h.samples = append(h.samples, s)
	if len(h.samples) > longWindow {
		h.samples = h.samples[1:]
	}
}

// rates returns the rates since the sample that is window samples old, or the oldest one. It
// returns nil if there is none. A node counts from the first of these samples that has it: one that
// did not answer for a while is no burst, and a node that has gone counts no more.
func (h *history) rates(now sample, window int) *rates {
	before := h.samples[max(0, len(h.samples)-window):]
	if len(before) == 0 {
		return nil
	}
	var sum rates
	var commits histogram
	for life, t := range now.totals {
		for _, old := range before {
			was, seconds := old.totals[life], now.at.Sub(old.at).Seconds()
			//rule:stats_of_all_nodes.rates-of-one-life
			if was == nil || seconds <= 0 {
				continue
			}
			sum.Sends += float64(t.Sends-was.Sends) / seconds
			sum.Deliveries += float64(t.Deliveries-was.Deliveries) / seconds
			sum.Acks += float64(t.Acks-was.Acks) / seconds
			took := t.Commits.plus(was.Commits, -1)
			sum.Commits += float64(took.Count) / seconds
			commits = commits.plus(took, 1)
			break
		}
	}
	sum.P50, sum.P99 = commits.P50, commits.P99
	return &sum
}
