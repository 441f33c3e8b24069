package device

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAcknowledger_writes_after_count_or_interval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		written := make(chan string, 8)
		a := NewAcknowledger(3, 50*time.Millisecond, func(body []byte) error {
			written <- string(body)
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()

		// after returns what is written while the bubble's clock advances by d.
		after := func(d time.Duration) string {
			<-time.After(d)
			synctest.Wait()
			select {
			case body := <-written:
				return body
			default:
				return ""
			}
		}
		a.Received([]byte("c"), 1)
		if got := after(49 * time.Millisecond); got != "" {
			t.Errorf("written before the interval has passed: %s", got)
		}
		want := `{"chats":[{"chat_id":"c","last_acked_sequence":1}]}`
		if got := after(time.Millisecond); got != want {
			t.Errorf("after the interval: written %q, want %q", got, want)
		}
		for n := range uint64(3) {
			a.Received([]byte("c"), 2+n)
		}
		want = `{"chats":[{"chat_id":"c","last_acked_sequence":4}]}`
		if got := after(0); got != want {
			t.Errorf("after the third message: written %q, want %q", got, want)
		}
		if !a.Idle() {
			t.Error("everything is written, but it is not idle")
		}
		if got := after(time.Second); got != "" {
			t.Errorf("written without a message: %s", got)
		}
		a.Received([]byte("c"), 5)
		a.Hurry()
		want = `{"chats":[{"chat_id":"c","last_acked_sequence":5}]}`
		if got := after(0); got != want {
			t.Errorf("when hurried: written %q, want %q", got, want)
		}
		a.Again()
		if got := after(50 * time.Millisecond); got != want {
			t.Errorf("again after a lost connection: written %q, want %q", got, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
