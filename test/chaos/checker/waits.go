package checker

import (
	"fmt"
	"math"
	"time"
)

// Wait is how long one message waited for one device, from its confirmation, or from when its
// sender gave up. Only time in which the device was connected and could be served counts.
type Wait struct {
	Device, Over, Chat string
	Sequence           int64
	Took               time.Duration
	Since, Now         time.Time
}

func (w Wait) String() string {
	return fmt.Sprintf("%v: %d of %s at %s over %s, from %s to %s", w.Took.Round(time.Millisecond),
		w.Sequence, w.Chat, w.Device, w.Over, w.Since.Format("15:04:05.000"),
		w.Now.Format("15:04:05.000"))
}

// Waits is a histogram. The zero value is empty.
type Waits struct {
	// counts are by the logarithm: 8 for each doubling, from a millisecond.
	counts [160]int
	total  int
	// Worst is the longest wait.
	Worst Wait
}

// Add adds a duration that belongs to no message.
func (w *Waits) Add(took time.Duration) { w.add(took, Wait{}) }

func (w *Waits) add(took time.Duration, about Wait) {
	w.counts[bucket(took)]++
	w.total++
	if about.Took = took; took >= w.Worst.Took {
		w.Worst = about
	}
}

// Merge adds the waits of another histogram.
func (w *Waits) Merge(o Waits) {
	for i, n := range o.counts {
		w.counts[i] += n
	}
	w.total += o.total
	if o.total > 0 && o.Worst.Took >= w.Worst.Took {
		w.Worst = o.Worst
	}
}

// Count returns the number of waits.
func (w *Waits) Count() int { return w.total }

// Quantile returns a duration that this share of the waits did not exceed, at most 10 % too long.
func (w *Waits) Quantile(share float64) time.Duration {
	left := int(math.Ceil(share * float64(w.total)))
	for i, n := range w.counts {
		if left -= n; left <= 0 {
			return min(time.Duration(math.Exp2(float64(i)/8)*float64(time.Millisecond)),
				w.Worst.Took)
		}
	}
	return w.Worst.Took
}

func (w *Waits) String() string {
	if w.total == 0 {
		return "none"
	}
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%d: half within %v, 99 %% within %v, all within %v",
		w.total, round(w.Quantile(0.5)), round(w.Quantile(0.99)), round(w.Worst.Took))
}

func bucket(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	return min(int(math.Ceil(8*math.Log2(float64(d)/float64(time.Millisecond)))), 159)
}
