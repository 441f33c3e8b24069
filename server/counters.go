package server

import "sync/atomic"

// counters are what this package counts; the others are beside what they count. They only grow.
type counters struct {
	opens, sends, duplicates, wakes, marks, marksWritten, typing atomic.Int64
	graceExpired, sessionsExpired                                atomic.Int64
	storageErrors, busErrors                                     atomic.Int64
	claims, claimed, given, claimsFailed, claimTime              atomic.Int64 // claimTime in microseconds
}

// Counters returns the core's counters by name. Names that end in _total only grow; the others are gauges. What is counted by a label is name{value}. Adapters
// that show a counter need a row for it: see transports.CounterFunc.
func (s *Server) Counters() map[string]int64 {
	c, n, f, t, p := &s.count, &s.host.Count, &s.feed.Count, &s.ticks.Count, &s.pulse.Count
	degraded := int64(0)
	if s.Degraded() != nil {
		degraded = 1
	}
	//rule:metrics_documented.retry-gauge-name
	return map[string]int64{
		"sessions":                         int64(s.sessions.Count()),
		"sessions_connected":               n.Connections.Load(),
		"tail_bytes":                       s.feed.Bytes(),
		"sends_total":                      c.sends.Load(),
		"sends_duplicate_total":            c.duplicates.Load(),
		"deliveries_total":                 n.Deliveries.Load(),
		"wakes_total":                      c.wakes.Load(),
		"tail_reads_total":                 f.TailReads.Load(),
		"range_reads_total":                f.RangeReads.Load(),
		"range_messages_total":             f.RangeMessages.Load(),
		"short_reads_total":                f.ShortReads.Load(),
		"pending_listings_total":           n.Listings.Load(),
		"compares_total":                   n.Compares.Load(),
		"acks_total":                       t.Acks.Load(),
		"acks_refused_total{malformed}":    t.Malformed.Load(),
		"acks_refused_total{not_a_member}": t.Strangers.Load(),
		"acks_refused_total{beyond_head}":  t.Beyond.Load(),
		"acks_dropped_total":               t.Dropped.Load(),
		"advances_total":                   t.Advances.Load(),
		"advances_moved_total":             t.Moved.Load(),
		"marks_total":                      c.marks.Load(),
		"marks_written_total":              c.marksWritten.Load(),
		"clears_total":                     t.Clears.Load(),
		"clears_touched_total":             t.Cleared.Load(),
		"status_updates_total":             t.Updates.Load(),
		"status_updates_dropped_total":     t.UpdatesDropped.Load(),
		"opens_total":                      c.opens.Load(),
		"resumes_total":                    n.Resumes.Load(),
		"resets_total":                     n.Resets.Load(),
		"rewinds_total":                    n.Rewinds.Load(),
		"replaced_total":                   n.Replaced.Load(),
		"wake_sets_full_total":             n.Overflows.Load(),
		"grace_expired_total":              c.graceExpired.Load(),
		"sessions_expired_total":           c.sessionsExpired.Load(),
		"leases_lost_total":                p.LeasesLost.Load(),
		"epochs_total":                     p.Epochs.Load(),
		"typing_total":                     c.typing.Load(),
		"typing_dropped_total":             n.TypingDropped.Load(),
		"debts_total":                      s.debts.Taken.Load(),
		"debts_owed":                       int64(s.debts.Len()),
		"storage_failures_total":           c.storageErrors.Load() + t.StorageErrors.Load() + n.ReadErrors.Load(),
		"hand_overs_total{asked}":          c.claims.Load(),
		"hand_overs_total{taken}":          c.claimed.Load(),
		"hand_overs_total{failed}":         c.claimsFailed.Load(),
		"hand_overs_total{given}":          c.given.Load(),
		"hand_over_microseconds_total":     c.claimTime.Load(),
		"missed_total":                     p.Missed.Load(),
		"nodes":                            int64(len(s.pulse.Nodes())),
		"degraded":                         degraded,
		"registry_errors_total":            s.locate.Failures.Load() + p.Failed.Load(),
		"bus_errors_total":                 c.busErrors.Load(),
	}
}
