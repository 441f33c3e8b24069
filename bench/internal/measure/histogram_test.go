package measure

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogram_quantiles_are_within_a_64th_above(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	for _, scale := range []time.Duration{
		100 * time.Microsecond, 10 * time.Millisecond, 3 * time.Second,
	} {
		var h Histogram
		exact := make([]time.Duration, 10_000)
		for i := range exact {
			d := time.Duration(random.ExpFloat64() * float64(scale))
			exact[i] = d.Truncate(time.Microsecond)
			h.Add(exact[i])
		}
		slices.Sort(exact)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
			want := exact[max(int(q*float64(len(exact)))-1, 0)]
			got := h.Quantile(q)
			if got < want || float64(got) > float64(want)*(1+1.0/64)+float64(time.Microsecond) {
				t.Errorf("scale %v: quantile %v = %v, want %v up to a 64th more (seed %d)",
					scale, q, got, want, seed)
			}
		}
		if got, want := h.Max(), exact[len(exact)-1]; got != want {
			t.Errorf("max = %v, want %v", got, want)
		}
	}
}

func TestHistogram_empty(t *testing.T) {
	var h Histogram
	if h.Count() != 0 || h.Quantile(0.5) != 0 || h.Max() != 0 {
		t.Errorf("count %d, median %v, max %v of an empty histogram, want 0",
			h.Count(), h.Quantile(0.5), h.Max())
	}
}

func TestHistogram_extremes(t *testing.T) {
	var h Histogram
	h.Add(-time.Second)
	h.Add(100 * time.Hour)
	if got := h.Quantile(0.5); got > time.Microsecond {
		t.Errorf("a negative duration counts as %v, want 0", got)
	}
	if got := h.Max(); got != 100*time.Hour {
		t.Errorf("max = %v, want 100h", got)
	}
	if got := h.Count(); got != 2 {
		t.Errorf("count = %d, want 2", got)
	}
	h.Reset()
	if h.Count() != 0 || h.Quantile(1) != 0 || h.Max() != 0 {
		t.Errorf("after Reset: %d durations up to %v, want none", h.Count(), h.Max())
	}
}

func TestBuckets_ascend_without_a_hole(t *testing.T) {
	for us := range uint64(1 << 20) {
		b := bucketOf(us)
		if upper := upperOf(b); us >= upper {
			t.Fatalf("%d µs is in bucket %d, which ends before %d", us, b, upper)
		}
		if b > 0 && us < upperOf(b-1) {
			t.Fatalf("%d µs is in bucket %d, but below the end of the one before, %d",
				us, b, upperOf(b-1))
		}
	}
}
