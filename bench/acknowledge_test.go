package bench

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAcknowledger_writes_after_count_or_interval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		a := newAcknowledger(3, 50*time.Millisecond, func(body []byte) error {
			got = append(got, string(body))
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- a.run(ctx) }()

		wait := func(d time.Duration) { <-time.After(d) } // on the bubble's clock
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if len(got) != len(want) {
				t.Fatalf("written %q, want %q", got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("written %q, want %q", got, want)
				}
			}
		}
		a.received([]byte("c"), 1)
		wait(49 * time.Millisecond)
		expect()
		wait(time.Millisecond)
		first := `{"chats":[{"chat_id":"c","last_acked_sequence":1}]}`
		expect(first)
		for n := range uint64(3) {
			a.received([]byte("c"), 2+n)
		}
		second := `{"chats":[{"chat_id":"c","last_acked_sequence":4}]}`
		expect(first, second)
		if !a.idle() {
			t.Error("everything is written, but it is not idle")
		}
		wait(time.Second)
		expect(first, second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
