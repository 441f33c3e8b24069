// Package tally counts rare events by a label, such as a close code or an error code.
package tally

import (
	"fmt"
	"sync"
)

// Tally counts by a key. Keys must come from a small set that no caller can widen, because each one
// becomes a metric. The zero value is ready to use. It is safe for concurrent use.
type Tally[K comparable] struct {
	mu     sync.Mutex
	counts map[K]int64
}

// Add adds 1 to the count of key.
func (t *Tally[K]) Add(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[K]int64)
	}
	t.counts[key]++
}

// Read writes each count to the map under the name `name{key}`. transports.Config.Counters takes
// counters in this form.
func (t *Tally[K]) Read(to map[string]int64, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, n := range t.counts {
		to[fmt.Sprintf("%s{%v}", name, key)] = n
	}
}
