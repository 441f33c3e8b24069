package redis

import "github.com/tidemark-im/tidemark"

// Age makes a node's lease one that has run out by Redis' clock, and not by that of the process.
func Age(r *Registry, node tidemark.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.lives[node]
	held.expires = 1
	r.lives[node] = held
}

// Held is how many leases a registry remembers.
func Held(r *Registry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}
