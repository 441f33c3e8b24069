package reach

// Counters returns the figures of this process, by the names of their metrics. A name that ends in
// _total only grows.
func (e *Engine) Counters() map[string]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	failing := int64(0)
	for _, r := range e.receivers {
		if down, _ := r.health.waiting(); down {
			failing++
		}
	}
	c := map[string]int64{
		"outlets":                    int64(len(e.receivers)),
		"outlets_failing":            failing,
		"outlet_chats":               int64(len(e.chats)),
		"outlet_hints_dropped_total": int64(e.total[countHintsDropped].Load()),
	}
	for f, name := range []string{"accepted", "refused", "deferred", "parked"} {
		c["outlet_events_total{"+name+"}"] = int64(e.total[f].Load())
	}
	return c
}
