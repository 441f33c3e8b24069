package batch_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
)

// database doubles numbers. Each batch takes a second.
type database struct {
	mu      sync.Mutex
	batches [][]int
	fail    error
}

func (d *database) run(ctx context.Context, collect func() []int) ([]int, error) {
	items := collect()
	d.mu.Lock()
	d.batches = append(d.batches, items)
	fail := d.fail
	d.mu.Unlock()
	select {
	case <-time.After(time.Second):
		return doubled(items), fail
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *database) want(t *testing.T, want ...[]int) {
	t.Helper()
	if diff := cmp.Diff(want, d.batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

func doubled(items []int) []int {
	answers := make([]int, len(items))
	for i, item := range items {
		answers[i] = 2 * item
	}
	return answers
}

// run runs test with a Batcher in front of a database.
func run(
	t *testing.T, cfg batch.Config, test func(*testing.T, *database, *batch.Batcher[int, int]),
) {
	t.Helper()
	cfg.Name = "the database"
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		b := batch.New(cfg, d.run)
		b.Start()
		test(t, d, b)
		b.Stop()
	})
}

// calls makes a call of each slice, in this order in the queue, and waits for the answers.
func calls(t *testing.T, b *batch.Batcher[int, int], items ...[]int) {
	t.Helper()
	var group sync.WaitGroup
	for _, own := range items {
		group.Go(func() {
			got, err := b.Do(t.Context(), own)
			if diff := cmp.Diff(doubled(own), got); err != nil || diff != "" {
				t.Errorf("Do(%v): %v (-want +got):\n%s", own, err, diff)
			}
		})
		synctest.Wait()
	}
	group.Wait()
}

// start starts a call of one item, which must succeed.
func start(t *testing.T, b *batch.Batcher[int, int], item int) {
	go func() {
		if _, err := b.DoOne(t.Context(), item); err != nil {
			t.Errorf("DoOne(%d): %v", item, err)
		}
	}()
}

// occupy starts a call, and returns when its batch is under way.
func occupy(t *testing.T, b *batch.Batcher[int, int], item int) {
	start(t, b, item)
	synctest.Wait()
}

// several makes n concurrent calls, and waits until all have returned want.
func several(t *testing.T, b *batch.Batcher[int, int], n int, want error) {
	t.Helper()
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if _, err := b.Do(t.Context(), []int{i, i}); !errors.Is(err, want) {
				t.Errorf("Do: got error %v, want %v", err, want)
			}
		})
	}
	group.Wait()
}

// late is the detail of the error of a call after the Batcher has stopped.
const late = "the server is stopping: the call was aborted before the database took it"

func wantUnavailable(t *testing.T, err error, detail string) {
	t.Helper()
	if tidemark.CodeOf(err) != tidemark.Unavailable || tidemark.DetailOf(err) != detail {
		t.Errorf("got error %v, want Unavailable: %s", err, detail)
	}
}

func TestBatcher_what_queues_during_a_batch_is_the_next_one(t *testing.T) {
	run(t, batch.Config{Most: 100}, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		calls(t, b, []int{1}, []int{2, 3}, []int{4}, []int{5, 6, 7})
		d.want(t, []int{1}, []int{2, 3, 4, 5, 6, 7})
	})
}

func TestBatcher_a_lone_call_runs_at_once(t *testing.T) {
	run(t, batch.Config{Most: 100}, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		began := time.Now()
		answer, err := b.DoOne(t.Context(), 1)
		if answer != 2 || err != nil {
			t.Errorf("DoOne(1) = %d, %v, want 2", answer, err)
		}
		calls(t, b, []int{2}, nil)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("three batches of a second, one after the other, took %v", took)
		}
		d.want(t, []int{1}, []int{2}, nil)
	})
}

func TestBatcher_a_batch_ends_with_the_call_that_fills_it(t *testing.T) {
	run(t, batch.Config{Most: 3}, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		calls(t, b, []int{1}, []int{2, 3}, []int{4, 5}, []int{6}, []int{7, 8, 9, 10}, []int{11})
		d.want(t, []int{1}, []int{2, 3, 4, 5}, []int{6, 7, 8, 9, 10}, []int{11})
	})
}

// A batch has everything that was queued until run calls collect.
func TestBatcher_what_queues_until_run_collects_comes_along(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [][]int
		collecting := func(_ context.Context, collect func() []int) ([]int, error) {
			time.Sleep(time.Second)
			got = append(got, collect())
			time.Sleep(time.Second)
			got = append(got, collect())
			return doubled(collect()), nil
		}
		b := batch.New(batch.Config{Most: 100}, collecting)
		b.Start()
		go func() {
			time.Sleep(1500 * time.Millisecond)
			calls(t, b, []int{4})
		}()
		calls(t, b, []int{1}, []int{2}, []int{3})
		b.Stop()
		// A repeated collect returns the same items.
		want := [][]int{{1, 2, 3}, {1, 2, 3}, {4}, {4}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("collected (-want +got):\n%s", diff)
		}
	})
}

// Otherwise the first caller that comes back would always be a batch of its own.
func TestBatcher_callers_that_were_answered_just_now_come_back_together(t *testing.T) {
	const callers, rounds = 8, 100
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	batches := 0
	counting := func(_ context.Context, collect func() []int) ([]int, error) {
		batches++
		return doubled(collect()), nil
	}
	b := batch.New(batch.Config{Most: 100}, counting)
	b.Start()
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for i := range rounds {
				if _, err := b.DoOne(t.Context(), i); err != nil {
					t.Errorf("DoOne: %v", err)
				}
			}
		})
	}
	group.Wait()
	b.Stop()
	if most := rounds + rounds/4; batches > most {
		t.Errorf("%d callers with %d calls each made %d batches, want at most %d",
			callers, rounds, batches, most)
	}
}

func TestBatcher_workers_run_batches_side_by_side(t *testing.T) {
	cfg := batch.Config{Most: 100, Workers: 3}
	run(t, cfg, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		began := time.Now()
		calls(t, b, []int{1}, []int{2}, []int{3}, []int{4}, []int{5})
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("five calls of three workers took %v, want 2s", took)
		}
		for _, items := range d.batches[:3] {
			if len(items) != 1 {
				t.Errorf("one of the first three batches is %v, want one call in each", items)
			}
		}
	})
}

func TestBatcher_an_error_is_that_of_all_who_share_the_batch(t *testing.T) {
	run(t, batch.Config{Most: 100}, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		occupy(t, b, 0)
		d.fail = errors.New("no disk")
		several(t, b, 3, d.fail)
		if got := len(d.batches); got != 2 {
			t.Errorf("three calls behind a batch made %d batches, want 1", got-1)
		}
		d.fail = nil
		calls(t, b, []int{1})
	})
}

// Calls that are queued while the database is unreachable do not wait for a second failure.
func TestBatcher_a_batch_that_collects_nothing_fails_those_who_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, batches := errors.New("the database is away"), 0
		b := batch.New(batch.Config{Most: 100}, func(context.Context, func() []int) ([]int, error) {
			batches++
			time.Sleep(time.Second)
			return nil, away
		})
		b.Start()
		several(t, b, 10, away)
		if batches != 1 {
			t.Errorf("%d batches failed one after the other, want 1", batches)
		}
		b.Stop()
	})
}

// While the database does not answer, a call waits for at most one timeout. For a short time after
// it, no call waits.
func TestBatcher_nobody_waits_for_more_than_one_batch_that_fails(t *testing.T) {
	const pause = 200 * time.Millisecond
	cfg := batch.Config{Most: 2, Pause: pause}
	run(t, cfg, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		d.fail = errors.New("no answer")
		began := time.Now()
		several(t, b, 50, d.fail)
		time.Sleep(pause - 1)
		several(t, b, 1, d.fail)
		if took := time.Since(began); took != time.Second+pause-1 || len(d.batches) != 1 {
			t.Errorf("it took %v and %d batches, want 1.2s and 1", took, len(d.batches))
		}
		d.fail = nil
		time.Sleep(time.Nanosecond)
		calls(t, b, []int{1})
		calls(t, b, []int{2})
	})
}

func TestBatcher_a_batch_that_succeeds_ends_the_pause(t *testing.T) {
	cfg := batch.Config{Most: 2, Workers: 2, Pause: time.Minute}
	run(t, cfg, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		d.fail = errors.New("no answer")
		var group sync.WaitGroup
		group.Go(func() { several(t, b, 1, d.fail) })
		synctest.Wait()
		time.Sleep(time.Millisecond)
		d.fail = nil
		occupy(t, b, 1)
		group.Wait()
		if _, err := b.DoOne(t.Context(), 2); err == nil {
			t.Error("after the failure a call succeeded, want its error")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		calls(t, b, []int{3})
	})
}

func TestBatcher_a_wrong_number_of_answers_is_an_error_of_all(t *testing.T) {
	for _, answers := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			cfg := batch.Config{Name: "the database", Most: 100}
			b := batch.New(cfg, func(_ context.Context, collect func() []int) ([]int, error) {
				time.Sleep(time.Second)
				collect()
				return make([]int, answers), nil
			})
			b.Start()
			var group sync.WaitGroup
			for range 2 {
				group.Go(func() {
					got, err := b.Do(t.Context(), []int{1})
					if tidemark.CodeOf(err) != tidemark.Internal || got != nil {
						t.Errorf("of %d answers to two calls, one got %v, %v, want Internal",
							answers, got, err)
					}
				})
			}
			group.Wait()
			b.Stop()
		})
	}
}

func TestBatcher_slices_of_callers_stay_their_own(t *testing.T) {
	run(t, batch.Config{Most: 100}, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		occupy(t, b, 0)
		spare := []int{1, -1, -1}
		var group sync.WaitGroup
		var first, second []int
		group.Go(func() { first, _ = b.Do(t.Context(), spare[:1]) })
		synctest.Wait()
		group.Go(func() { second, _ = b.Do(t.Context(), []int{2, 3}) })
		group.Wait()
		if diff := cmp.Diff([]int{1, -1, -1}, spare); diff != "" {
			t.Errorf("behind the first caller's items (-want +got):\n%s", diff)
		}
		_ = append(first, -1)
		if diff := cmp.Diff([]int{4, 6}, second); diff != "" {
			t.Errorf("answers after another caller has appended to its own (-want +got):\n%s", diff)
		}
		d.want(t, []int{0}, []int{1, 2, 3})
	})
}

func TestBatcher_a_caller_that_gives_up_is_told_that_it_may_still_be_done(t *testing.T) {
	run(t, batch.Config{Most: 100}, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		for _, item := range []int{1, 2} { // during its own batch, and in the queue
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := b.DoOne(ctx, item)
			wantUnavailable(t, err, "the call ran out of time; the database may still do it")
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want one that wraps %v", err, context.DeadlineExceeded)
			}
			cancel()
		}
		calls(t, b, []int{3})
		d.want(t, []int{1}, []int{2, 3})
	})
}

func TestBatcher_a_call_without_time_is_not_done(t *testing.T) {
	run(t, batch.Config{Most: 100}, func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.DoOne(ctx, 1)
		wantUnavailable(t, err, "the call ran out of time before the database took it")
		calls(t, b, []int{2})
		d.want(t, []int{2})
	})
}

func TestBatcher_the_queue_is_bounded(t *testing.T) {
	const queue = 4096
	run(t, batch.Config{Most: 1 << 20},
		func(t *testing.T, d *database, b *batch.Batcher[int, int]) {
			occupy(t, b, 0)
			for range queue {
				start(t, b, 1)
			}
			synctest.Wait()
			if got := b.Queued(); got != queue {
				t.Errorf("Queued = %d, want %d", got, queue)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := b.DoOne(ctx, 2)
			wantUnavailable(t, err, "the call ran out of time before the database took it")
			calls(t, b, []int{3}) // waits for a place, and gets it with the next batch
			d.want(t, []int{0}, append(slices.Repeat([]int{1}, queue), 3))
		})
}

func TestBatcher_Answered_is_called_between_the_answers_and_the_next_batch(t *testing.T) {
	const tidying = 100 * time.Millisecond
	cfg := batch.Config{Most: 100, Answered: func() { time.Sleep(tidying) }}
	run(t, cfg, func(t *testing.T, _ *database, b *batch.Batcher[int, int]) {
		for _, want := range []time.Duration{time.Second, tidying + time.Second} {
			began := time.Now()
			calls(t, b, []int{1})
			if took := time.Since(began); took != want {
				t.Errorf("a call took %v, want %v", took, want)
			}
		}
	})
}

func TestBatcher_Stop_runs_what_is_queued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		b := batch.New(batch.Config{Name: "the database", Most: 1, Workers: 2}, d.run)
		b.Start()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var group sync.WaitGroup
		for i := range 3 {
			group.Go(func() {
				if _, err := b.DoOne(ctx, i); tidemark.CodeOf(err) != tidemark.Unavailable {
					t.Errorf("a call of a second that had a millisecond: %v", err)
				}
			})
			synctest.Wait()
		}
		group.Wait()
		b.Stop()
		d.want(t, []int{0}, []int{1}, []int{2})
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("Stop returned %v after the first of two batches had begun, want 2s", took)
		}
		_, err := b.DoOne(t.Context(), 4)
		wantUnavailable(t, err, late)
	})
}

func TestBatcher_Abort_lets_nobody_wait(t *testing.T) {
	for range 10 { // the worker must not choose between the two
		synctest.Test(t, abortLetsNobodyWait)
	}
}

func abortLetsNobodyWait(t *testing.T) {
	d := &database{}
	b := batch.New(batch.Config{Name: "the database", Most: 1}, d.run)
	b.Start()
	began := time.Now()
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			_, err := b.DoOne(t.Context(), i)
			if i > 0 {
				wantUnavailable(t, err, "the server is stopping: the call was aborted;"+
					" the database may still do it")
			} else if err == nil {
				t.Error("the call that was under way succeeded")
			}
		})
		synctest.Wait()
	}
	b.Abort()
	group.Wait()
	_, err := b.DoOne(t.Context(), 4)
	wantUnavailable(t, err, late)
	if took := time.Since(began); took != 0 {
		t.Errorf("it took %v, want no time", took)
	}
	d.want(t, []int{0})
}

// Callers do not wait for a batch that ignores its context.
func TestBatcher_Abort_answers_before_the_batch_under_way_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := batch.New(batch.Config{Most: 1}, func(context.Context, func() []int) ([]int, error) {
			time.Sleep(time.Second)
			return []int{0}, nil
		})
		b.Start()
		began := time.Now()
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := b.DoOne(t.Context(), 1); tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Errorf("got error %v, want Unavailable", err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("the caller waited for %v, want no time", took)
			}
		})
		synctest.Wait()
		b.Abort()
		group.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("Abort took %v, want 1s: it waits for the worker", took)
		}
	})
}

func TestBatcher_Abort_before_Start(t *testing.T) {
	batch.New(batch.Config{}, new(database).run).Abort()
}
