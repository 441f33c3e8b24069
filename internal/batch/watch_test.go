package batch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/internal/batch"
)

// TestWatch_calls_of_one_batch_know_of_each_other: three calls share a batch, and two are watched.
func TestWatch_calls_of_one_batch_know_of_each_other(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := batch.New(batch.Config{Name: "the test", Most: 10},
			func(_ context.Context, collect func() []int) ([]int, error) {
				items := collect()
				time.Sleep(time.Second)
				return items, nil
			})
		b.Start()
		defer b.Stop()
		var alone, first, second batch.Watcher
		alone.Tag, first.Tag, second.Tag = "alone", "first", "second"
		do := func(ctx context.Context) {
			if _, err := b.DoOne(ctx, 1); err != nil {
				t.Error(err)
			}
		}
		go do(batch.Watch(t.Context(), &alone))
		synctest.Wait() // the others queue up
		go do(batch.Watch(t.Context(), &first))
		go do(t.Context())
		go do(batch.Watch(t.Context(), &second))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if run := alone.Run; run == nil || run.Calls != 1 || len(run.Tags) != 1 {
			t.Fatalf("the first batch is %+v", run)
		}
		run := first.Run
		if run == nil || run != second.Run || run.Calls != 3 || len(run.Tags) != 2 ||
			!slices.Contains(run.Tags, any("first")) || !slices.Contains(run.Tags, any("second")) {
			t.Fatalf("the second batch is %+v and %+v", run, second.Run)
		}
		if took := run.Ended.Sub(run.Began); took != time.Second {
			t.Errorf("the second batch took %v, want a second", took)
		}
	})
}

// TestWatch_failed_batch_is_not_reported: a call that is repeated with the same Watcher reports its
// last attempt, and nothing if that failed.
func TestWatch_failed_batch_is_not_reported(t *testing.T) {
	down := errors.New("the store is down")
	var fails error
	b := batch.New(batch.Config{Name: "the test", Most: 10},
		func(_ context.Context, collect func() []int) ([]int, error) { return collect(), fails })
	b.Start()
	defer b.Stop()
	var watcher batch.Watcher
	ctx := batch.Watch(t.Context(), &watcher)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, step := range []struct {
		name     string
		ctx      context.Context
		fails    error
		reported bool
	}{
		{"it fails", ctx, down, false},
		{"it succeeds", ctx, nil, true},
		{"it fails again", ctx, down, false},
		{"it succeeds again", ctx, nil, true},
		{"it never ran", ended, nil, false},
	} {
		fails = step.fails
		_, err := b.DoOne(step.ctx, 1)
		if got := watcher.Run != nil; got != step.reported || (err == nil) != step.reported {
			t.Errorf("%s: %v, and the batch is %+v", step.name, err, watcher.Run)
		}
	}
}
