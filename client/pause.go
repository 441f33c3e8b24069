package client

import (
	"math/rand/v2"
	"time"
)

// Pauses grow from firstPause, and double until mostPause.
const (
	firstPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
)

// pauseBound returns the bound of the nth pause, from 0.
func pauseBound(n int) time.Duration {
	return min(firstPause<<min(n, 10), mostPause)
}

// pause returns the nth pause: a random time up to its bound, so that clients which failed together
// come back apart. If the server named a time, it is exactly that.
func pause(n int, hint time.Duration) time.Duration {
	if hint > 0 {
		return hint
	}
	return rand.N(pauseBound(n) + 1)
}
