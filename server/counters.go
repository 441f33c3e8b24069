package server

// Counters returns the core's counters by name. Names that end in _total only grow; the others are
// gauges. A counter with a label is named name{value}. An adapter that shows a counter needs a row
// for it in transports.CounterFunc.
func (s *Server) Counters() map[string]int64 {
	d, h, c := &s.delivery.Count, &s.host.Count, &s.chats.Count
	r, l, o := &s.receipts.Count, &s.leases.Count, &s.sessions.Count
	p := &s.presence.Count
	storageFailures := d.StorageErrors.Load() + r.StorageErrors.Load() + h.ReadErrors.Load()
	followed, unfollowed := s.delivery.Traces.Counts()
	degraded := int64(0)
	if s.Degraded() != nil {
		degraded = 1
	}
	//rule:metrics_documented.retry-gauge-name
	return map[string]int64{
		"sessions":                         int64(s.table.Count()),
		"sessions_connected":               h.Connections.Load(),
		"cache_bytes":                      s.chats.Bytes(),
		"cache_roster_bytes":               s.chats.RosterBytes(),
		"sends_total":                      d.Sends.Load(),
		"sends_duplicate_total":            d.Duplicates.Load(),
		"deliveries_total":                 h.Deliveries.Load(),
		"notifications_total":              d.Notifications.Load(),
		"cache_reads_total":                c.TailReads.Load(),
		"range_reads_total":                c.RangeReads.Load(),
		"range_messages_total":             c.RangeMessages.Load(),
		"short_reads_total":                c.ShortReads.Load(),
		"pending_listings_total":           h.Listings.Load(),
		"comparisons_total":                h.Compares.Load(),
		"latest_chats_known_total":         h.LatestKnown.Load(),
		"acks_total":                       r.Acks.Load(),
		"acks_refused_total{malformed}":    r.Malformed.Load(),
		"acks_refused_total{not_a_member}": r.Strangers.Load(),
		"acks_refused_total{beyond_head}":  r.Beyond.Load(),
		"acks_dropped_total":               r.Dropped.Load(),
		"advances_total":                   r.Advances.Load(),
		"advances_moved_total":             r.Moved.Load(),
		"marks_total":                      d.Marks.Load(),
		"pending_rows_written_total":       d.MarksWritten.Load(),
		"pending_rows_known_total":         d.MarksKnown.Load(),
		"clears_total":                     r.Clears.Load(),
		"pending_rows_cleared_total":       r.Cleared.Load(),
		"status_updates_total":             r.Updates.Load(),
		"own_states_published_total":       r.Own.Load(),
		"status_updates_dropped_total":     r.UpdatesDropped.Load(),
		"opens_total":                      o.Opens.Load(),
		"resumes_total":                    h.Resumes.Load(),
		"resets_total":                     h.Resets.Load(),
		"rewinds_total":                    h.Rewinds.Load(),
		"replaced_total":                   h.Replaced.Load(),
		"sessions_full_total":              h.Overflows.Load(),
		"grace_expired_total":              o.GraceExpired.Load(),
		"sessions_expired_total":           o.Expired.Load(),
		"leases_lost_total":                l.Lost.Load(),
		"epochs_total":                     l.Epochs.Load(),
		"presence_chats":                   int64(s.presence.Looks()),
		"presence_batches_total":           p.Batches.Load(),
		"presence_entries_total":           p.Entries.Load(),
		"presence_checks_total":            p.Checks.Load(),
		"presence_events_total":            p.Events.Load(),
		"presence_refused_total":           p.Refused.Load(),
		"last_seen_written_total":          p.Seen.Load(),
		"last_seen_lost_total":             p.Unseen.Load(),
		"typing_total":                     s.typists.sent.Load(),
		"typing_dropped_total":             h.TypingDropped.Load(),
		"retries_queued_total":             s.delivery.Retry.Count.Load(),
		"retry_queue":                      int64(s.delivery.Retry.Len()),
		"storage_failures_total":           storageFailures,
		"transfers_total{asked}":           o.Asked.Load(),
		"transfers_total{taken}":           h.Landed.Load(),
		"transfers_total{failed}":          h.Unlanded.Load(),
		"transfers_total{given}":           o.Given.Load(),
		"transfer_microseconds_total":      o.TransferTime.Load(),
		"publications_missed_total":        l.Missed.Load(),
		"nodes":                            int64(len(s.leases.Nodes())),
		"degraded":                         degraded,
		"registry_errors_total":            l.Failed.Load(),
		"bus_errors_total":                 d.BusErrors.Load(),
		"trace_messages":                   followed,
		"trace_unfollowed_total":           unfollowed,
	}
}
