package server

import "sync/atomic"

// counters are what the core counts about itself. They only grow, except sessions and connections.
type counters struct {
	sessions, connections                                          atomic.Int64
	sends, duplicates, deliveries, wakes                           atomic.Int64
	tailReads, rangeReads, rangeMessages, listings, compares       atomic.Int64
	acks, acksRefused, acksDropped, advances, advancesMoved        atomic.Int64
	marks, marksWritten, clears, clearsTouched                     atomic.Int64
	statuses, resumes, resets, rewinds, replaced                   atomic.Int64
	graceExpired, sessionsExpired, leasesLost, epochs, typing      atomic.Int64
	storageErrors, registryErrors, busErrors, shortReads, overflow atomic.Int64
}

// Counters returns the core's counters by name. Names that end in _total only grow; the others are gauges.
func (s *Server) Counters() map[string]int64 {
	c := &s.count
	return map[string]int64{
		"sessions":               c.sessions.Load(),
		"connections":            c.connections.Load(),
		"tail_bytes":             s.hot.bytes.Load(),
		"sends_total":            c.sends.Load(),
		"sends_duplicate_total":  c.duplicates.Load(),
		"deliveries_total":       c.deliveries.Load(),
		"wakes_total":            c.wakes.Load(),
		"tail_reads_total":       c.tailReads.Load(),
		"range_reads_total":      c.rangeReads.Load(),
		"range_messages_total":   c.rangeMessages.Load(),
		"pending_listings_total": c.listings.Load(),
		"compares_total":         c.compares.Load(),
		"acks_total":             c.acks.Load(),
		"acks_refused_total":     c.acksRefused.Load(),
		"acks_dropped_total":     c.acksDropped.Load(),
		"advances_total":         c.advances.Load(),
		"advances_moved_total":   c.advancesMoved.Load(),
		"marks_total":            c.marks.Load(),
		"marks_written_total":    c.marksWritten.Load(),
		"clears_total":           c.clears.Load(),
		"clears_touched_total":   c.clearsTouched.Load(),
		"status_updates_total":   c.statuses.Load(),
		"resumes_total":          c.resumes.Load(),
		"resets_total":           c.resets.Load(),
		"rewinds_total":          c.rewinds.Load(),
		"replaced_total":         c.replaced.Load(),
		"grace_expired_total":    c.graceExpired.Load(),
		"sessions_expired_total": c.sessionsExpired.Load(),
		"leases_lost_total":      c.leasesLost.Load(),
		"epochs_total":           c.epochs.Load(),
		"typing_total":           c.typing.Load(),
		"storage_errors_total":   c.storageErrors.Load(),
		"registry_errors_total":  c.registryErrors.Load(),
		"bus_errors_total":       c.busErrors.Load(),
		"short_reads_total":      c.shortReads.Load(),
		"wake_sets_full_total":   c.overflow.Load(),
	}
}
