package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// TestClock_jumps_change_nothing_but_the_times_shown: between the steps, the time of day jumps
// forward by a year, back by three days and back by years. Sends stay idempotent, sequences and
// watermarks grow, streams continue, and absent users get their row. Only the stored times follow
// the clock.
func TestClock_jumps_change_nothing_but_the_times_shown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		offset := time.Duration(0)
		began := time.Now()
		c := start(t, func(cfg *server.Config) {
			cfg.Clock = func() time.Time { return time.Now().Add(offset) }
		})
		chat := c.chat("abc", "alice", "bob", "carol")
		bob := c.open("bob")
		bob.drain()
		send := func(key string) server.Sent {
			t.Helper()
			sent, err := c.Send(c.ctx, "alice", tidemark.Draft{
				ChatID:          chat,
				ClientMessageID: key,
				Content:         key,
			})
			if err != nil {
				t.Fatal(err)
			}
			return sent
		}
		jumps := []time.Duration{0, 365 * day, -3 * day, -10_000 * day, time.Hour}
		for i, jump := range jumps {
			offset = jump
			key := string(rune('a' + i))
			sent := send(key)
			if want := tidemark.Sequence(i + 1); sent.Message.Sequence != want || sent.Duplicate {
				t.Errorf("after a jump to %v: got %+v, want a new message at %d", jump, sent, want)
			}
			if shown := sent.Message.CreatedAt.Sub(began); shown < jump || shown > jump+day {
				t.Errorf("after a jump to %v: the message was created at %v", jump, shown)
			}
			bob.Ack(server.Ack{Chat: chat, Acked: sent.Message.Sequence})
			settle()
			// Under this clock, send again what was sent before.
			for j := range i + 1 {
				sent := send(string(rune('a' + j)))
				if !sent.Duplicate || sent.Message.Sequence != tidemark.Sequence(j+1) {
					t.Errorf("after a jump to %v, sent again: got %+v, want a duplicate of %d",
						jump, sent, j+1)
				}
			}
			states, err := c.store.States(c.ctx, []storage.StateKey{{User: "bob", Chat: chat}})
			if err != nil || states[0].Acked != tidemark.Sequence(i+1) {
				t.Errorf("after a jump to %v: bob has acknowledged %+v, %v, want %d",
					jump, states, err, i+1)
			}
		}
		if err := c.Ready(context.Background()); err != nil {
			t.Errorf("Ready: %v", err)
		}
		if got := len(bob.drain()); got < len(jumps) {
			t.Errorf("bob got %d events, want at least %d messages", got, len(jumps))
		}
		// carol was offline: she has one row from the first message on.
		carol := c.open("carol")
		want := []string{
			"message abc 1", "message abc 2", "message abc 3", "message abc 4", "message abc 5",
		}
		got := carol.drain()
		if len(got) < 6 {
			t.Fatalf("carol got %v, want at least 6 events", got)
		}
		for i, line := range want {
			if got[i+1] != line {
				t.Errorf("carol's event %d: got %q, want %q", i+1, got[i+1], line)
			}
		}
	})
}
