package batch

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ran is a batch that was run.
type ran struct {
	Items  []int
	Rested bool
	At     time.Duration
}

func TestKeyed_one_key_in_order_what_queued_together_and_keys_side_by_side(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		got := map[string][]ran{}
		began := time.Now()
		k := NewKeyed(100, func(key string, items []int, rested bool) {
			at := time.Since(began)
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			got[key] = append(got[key], ran{items, rested, at})
		})
		for i := range 6 {
			k.Add("a", 1, i)
			k.Add("b", 1, 10*i)
			synctest.Wait() // both keys have a batch under way
		}
		time.Sleep(1500 * time.Millisecond)
		k.Add("b", 1, 60)
		k.Wait()
		k.Add("a", 1, 6)
		k.Wait()
		want := map[string][]ran{
			"a": {{[]int{0}, true, 0}, {[]int{1, 2, 3, 4, 5}, false, time.Second},
				{[]int{6}, true, 3 * time.Second}},
			"b": {{[]int{0}, true, 0}, {[]int{10, 20, 30, 40, 50}, false, time.Second},
				{[]int{60}, false, 2 * time.Second}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
		if k.queues != nil || k.used != 0 {
			t.Errorf("without items it keeps the queues %v and the weight %d", k.queues, k.used)
		}
	})
}

// TestKeyed_what_came_together_is_one_batch: a batch begins when its goroutine runs, not when its
// first item is added.
func TestKeyed_what_came_together_is_one_batch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // its goroutine runs when this one waits
	var got []ran
	k := NewKeyed(100, func(_ string, items []int, rested bool) {
		got = append(got, ran{Items: items, Rested: rested})
	})
	for i := range 6 {
		k.Add("a", 1, i)
	}
	k.Wait()
	want := []ran{{Items: []int{0, 1, 2, 3, 4, 5}, Rested: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

func TestKeyed_bounds_the_weight_of_what_is_not_done(t *testing.T) {
	for _, tt := range []struct{ weight, want int }{{0, 100}, {1, 64}, {2, 32}, {9, 7}, {100, 1}} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			k := NewKeyed(64, func(int, []int, bool) { <-release })
			got, added := 0, make(chan struct{})
			go func() {
				defer close(added)
				for i := range 100 {
					k.Add(i%3, tt.weight, i)
					got++
				}
			}()
			synctest.Wait()
			if got != tt.want {
				t.Errorf("%d items of weight %d were taken at once, want %d",
					got, tt.weight, tt.want)
			}
			close(release)
			<-added
			k.Wait()
			if got != 100 || k.used != 0 {
				t.Errorf("%d items were taken, want 100, and the weight %d is left", got, k.used)
			}
		})
	}
}

// A caller that waits for little room does not wait for one that needs much.
func TestKeyed_room_is_given_to_all_callers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeyed(10, func(_ string, seconds []int, _ bool) {
			time.Sleep(time.Duration(seconds[0]) * time.Second)
		})
		k.Add("a", 6, 1)
		k.Add("b", 4, 2)
		began := time.Now()
		var group sync.WaitGroup
		for _, weight := range []int{10, 3, 3} {
			group.Go(func() {
				k.Add("c", weight, 0)
				if took := time.Since(began); weight == 3 && took > time.Second {
					t.Errorf("an item of weight 3 waited for %v, want 1s", took)
				}
			})
			synctest.Wait()
		}
		group.Wait()
		k.Wait()
	})
}

func TestKeyed_items_without_weight_wait_for_no_room(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeyed(10, func(string, []int, bool) { time.Sleep(time.Second) })
		began := time.Now()
		k.Add("a", 100, 0)
		k.Add("b", 0, 0)
		k.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v, want 1s", took)
		}
	})
}
