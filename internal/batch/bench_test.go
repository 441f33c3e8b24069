package batch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/internal/batch"
)

// BenchmarkBatcher measures a call without the work of its batch.
func BenchmarkBatcher(b *testing.B) {
	for _, pause := range []time.Duration{0, time.Second} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("pause=%v/callers=%d", pause, callers), func(b *testing.B) {
				cfg := batch.Config{Most: 512, Pause: pause}
				answer := func(_ context.Context, collect func() []int) ([]int, error) {
					return make([]int, len(collect())), nil
				}
				batches := batch.New(cfg, answer)
				batches.Start()
				defer batches.Stop()
				b.ReportAllocs()
				b.SetParallelism(callers)
				if callers == 1 {
					for b.Loop() {
						_, _ = batches.Do(b.Context(), []int{1})
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						_, _ = batches.Do(b.Context(), []int{1})
					}
				})
			})
		}
	}
}

// BenchmarkKeyed measures an item whose key is busy now and then.
func BenchmarkKeyed(b *testing.B) {
	for _, keys := range []int{1, 64} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			k := batch.NewKeyed(64, func(int, []int, bool) {})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k.Add(i%keys, 1, i)
			}
			k.Wait()
		})
	}
}
