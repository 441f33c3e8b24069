package batch_test

import (
	"context"
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
