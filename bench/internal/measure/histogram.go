// Package measure contains what the load generator measures with.
// It measures latencies, CPU and memory of processes, and the counters of a server and a Redis.
// It also formats numbers and tables.
package measure

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram counts durations from 1 µs to over an hour.
// The width of a bucket is at most 1/64 of its value. Memory is fixed.
// Its methods are safe for concurrent use.
type Histogram struct {
	buckets [buckets]atomic.Uint64
	max     atomic.Int64
}

const (
	subBits = 6
	// buckets covers microseconds up to 2^32.
	buckets = (33 - subBits) << subBits
)

// Add counts one duration. A negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	us := max(d.Microseconds(), 0)
	h.buckets[bucketOf(uint64(us))].Add(1)
	for {
		old := h.max.Load()
		if int64(d) <= old || h.max.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// Reset forgets all durations. Those that are added meanwhile may stay or go.
func (h *Histogram) Reset() {
	for i := range h.buckets {
		h.buckets[i].Store(0)
	}
	h.max.Store(0)
}

// Count returns how many durations were added.
func (h *Histogram) Count() uint64 {
	var n uint64
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	return n
}

// Quantile returns the duration below which the fraction q of all durations lies, or 0 if there are
// none. It returns the upper end of a bucket, so it is at most 1/64 too high and never too low.
func (h *Histogram) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank := uint64(q * float64(total))
	if float64(rank) < q*float64(total) {
		rank++
	}
	rank = max(rank, 1)
	var seen uint64
	for i := range h.buckets {
		seen += h.buckets[i].Load()
		if seen >= rank {
			return min(time.Duration(upperOf(i))*time.Microsecond, h.Max())
		}
	}
	return h.Max()
}

// Max returns the longest duration, or 0 if there are none.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max.Load()) }

func bucketOf(us uint64) int {
	if us < 1<<subBits {
		return int(us)
	}
	exponent := bits.Len64(us) - 1 - subBits
	return min((exponent<<subBits)+int(us>>exponent), buckets-1)
}

// upperOf returns the first microsecond above the bucket.
func upperOf(bucket int) uint64 {
	if bucket < 1<<(subBits+1) {
		return uint64(bucket) + 1
	}
	exponent := bucket>>subBits - 1
	return (uint64(bucket) - uint64(exponent)<<subBits + 1) << exponent
}
