// Package tally counts by a label, for what is too rare or too varied for a field of its own: close codes, error codes.
package tally

import (
	"fmt"
	"sync"
)

// Tally counts by a key. The keys must come from a small set that no caller can widen. The zero value is ready; it is safe for concurrent use.
type Tally[K comparable] struct {
	mu     sync.Mutex
	counts map[K]int64
}

// Add counts one of key.
func (t *Tally[K]) Add(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[K]int64)
	}
	t.counts[key]++
}

// Read puts the counts into a map of counters, as name{key}: the form in which counters become metrics (transports.Config.Counters).
func (t *Tally[K]) Read(to map[string]int64, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, n := range t.counts {
		to[fmt.Sprintf("%s{%v}", name, key)] = n
	}
}
