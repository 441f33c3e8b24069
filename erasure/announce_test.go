package erasure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func (c *core) AnnounceErased(
	ctx context.Context, chat tidemark.ChatID, alias tidemark.UserID, key string,
	erased []tidemark.Sequence,
) error {
	if c.announce != nil {
		if err := c.announce(); err != nil {
			return err
		}
	}
	_, err := storage.AppendOne(ctx, c.store, tidemark.Draft{
		ChatID: chat, SenderID: alias, ClientMessageID: key, ByServer: true,
		Kind: tidemark.KindRedact, Relation: &tidemark.Relation{Sequences: erased},
		ContentType: tidemark.DefaultContentType,
		MessageID:   tidemark.MessageID("announced " + key), CreatedAt: time.Now(),
	})
	return err
}

// announced returns the announcements in a chat, after it has checked them: they name each message
// of the alias that was wiped, once.
func (w *world) announced(chat tidemark.ChatID) (found []tidemark.Message) {
	w.t.Helper()
	pages, err := w.store.Ranges(w.ctx, []storage.Range{{Chat: chat, Limit: 10_000, Bare: true}})
	w.ok(err)
	named := map[tidemark.Sequence]int{}
	for _, m := range pages[0] {
		if m.Kind != tidemark.KindRedact {
			continue
		}
		found = append(found, m)
		for _, n := range m.Relation.Sequences {
			named[n]++
		}
	}
	for _, m := range pages[0] {
		want := 0
		if m.SenderID != "bob" && m.Kind == tidemark.KindMessage {
			want = 1
		}
		if named[m.Sequence] != want {
			w.t.Errorf("%s: message %d is named %d times, want %d", chat, m.Sequence,
				named[m.Sequence], want)
		}
	}
	return found
}

// TestWorker_erasure_is_announced_once: a process ends before each announcement of a chat. The next
// one announces the rest, and nothing twice. No announcement names the user.
func TestWorker_erasure_is_announced_once(t *testing.T) {
	for fails := range 3 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			group := w.chat("group", tidemark.Group, 120)
			n := 0
			w.core.announce = func() error {
				if n++; n == fails {
					return tidemark.Errorf(tidemark.Unavailable, "the process has ended")
				}
				return nil
			}
			r := w.register(nil)
			w.work(w.worker(r, w.store))
			_, err := r.Begin(w.ctx, zoe)
			w.ok(err)
			later(20 * time.Minute)
			w.nothingLeft("at the end")
			found := w.announced(group)
			if len(found) != 2 {
				t.Fatalf("%d announcements, want 2", len(found))
			}
			for i, want := range []int{100, 20} {
				if got := len(found[i].Relation.Sequences); got != want {
					t.Errorf("announcement %d names %d messages, want %d", i+1, got, want)
				}
			}
		})
	}
}

// TestWorker_erasure_is_announced_before_the_chat_is_done: as long as an announcement fails, the
// chat still names the user, so that the next pass finds it.
func TestWorker_erasure_is_announced_before_the_chat_is_done(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		group := w.chat("group", tidemark.Group, 1)
		w.core.announce = func() error {
			return tidemark.Errorf(tidemark.Unavailable, "nobody can be told")
		}
		r := w.register(nil)
		w.work(w.worker(r, w.store))
		_, err := r.Begin(w.ctx, zoe)
		w.ok(err)
		later(20 * time.Minute)
		chats, _, _, err := w.store.ChatsNaming(w.ctx, zoe, "", 10)
		if w.ok(err); len(chats) != 1 || chats[0] != group {
			t.Errorf("%v name zoe, want the chat that was not told", chats)
		}
	})
}
