package stats

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

// Histogram is a histogram of durations. Counts has the number of durations up to each of Bounds,
// which are in seconds and ascending, and not up to the one before. Its last element counts those
// above all bounds.
type Histogram struct {
	Bounds []float64
	Counts []uint64
}

// histogram is a Histogram on the wire. The percentiles are the upper bounds of their buckets, so
// they are never too good.
type histogram struct {
	Count   uint64   `json:"count"`
	Buckets []bucket `json:"buckets"`
	P50     *int64   `json:"p50_microseconds"`
	P99     *int64   `json:"p99_microseconds"`
}

// bucket counts the durations up to a bound, which is nil in the last bucket.
type bucket struct {
	UpTo  *int64 `json:"up_to_microseconds"`
	Count uint64 `json:"count"`
}

func newHistogram(h Histogram) histogram {
	w := histogram{Buckets: make([]bucket, len(h.Counts))}
	for i, n := range h.Counts {
		w.Buckets[i].Count = n
		w.Count += n
		if i < len(h.Bounds) {
			bound := int64(math.Round(h.Bounds[i] * 1e6))
			w.Buckets[i].UpTo = &bound
		}
	}
	w.measure()
	return w
}

// bound returns the bound of a bucket as a number.
func (b bucket) bound() int64 {
	if b.UpTo == nil {
		return math.MaxInt64
	}
	return *b.UpTo
}

// plus returns the sum of two histograms, whose bounds may differ. With sign -1 it returns the
// difference, of which no bucket is negative.
func (h histogram) plus(other histogram, sign int) histogram {
	all := slices.Clone(h.Buckets)
	for _, b := range other.Buckets {
		i, there := slices.BinarySearchFunc(all, b,
			func(a, b bucket) int { return cmp.Compare(a.bound(), b.bound()) })
		if !there {
			all = slices.Insert(all, i, bucket{UpTo: b.UpTo})
		}
		if sign > 0 {
			all[i].Count += b.Count
		} else {
			all[i].Count -= min(all[i].Count, b.Count)
		}
	}
	sum := histogram{Buckets: all}
	for _, b := range all {
		sum.Count += b.Count
	}
	sum.measure()
	return sum
}

// measure sets the percentiles.
func (h *histogram) measure() {
	h.P50, h.P99 = h.percentile(50), h.percentile(99)
}

// percentile returns the upper bound of the bucket that has the percentile. It returns nil if
// nothing was counted, or if the bucket has no upper bound.
func (h *histogram) percentile(p uint64) *int64 {
	// The rank of the percentile, rounded up.
	rank, below := (h.Count*p+99)/100, uint64(0)
	for _, b := range h.Buckets {
		below += b.Count
		if h.Count > 0 && below >= rank {
			return b.UpTo
		}
	}
	return nil
}

// MarshalJSON implements json.Marshaler. The buckets are a list also if there are none.
func (h histogram) MarshalJSON() ([]byte, error) {
	type plain histogram
	if h.Buckets == nil {
		h.Buckets = []bucket{}
	}
	return json.Marshal(plain(h))
}
