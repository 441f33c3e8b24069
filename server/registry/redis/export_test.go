package redis

import "github.com/tidemark-im/tidemark"

// Age makes a node's lease expire by Redis' clock, but not by that of the process.
func Age(r *Registry, node tidemark.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.lives[node]
	held.expires = 1
	r.lives[node] = held
}

// Held returns how many leases a registry holds.
func Held(r *Registry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}
