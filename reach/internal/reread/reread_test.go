package reread

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// broken is a store that cannot read one chat, and has lost the messages of another one.
type broken struct {
	*memory.Store
	chat, lost tidemark.ChatID
	code       tidemark.Code
	away       bool
	calls      int
}

func (b *broken) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	b.calls++
	for _, r := range ranges {
		if b.away || r.Chat == b.chat {
			return nil, tidemark.Errorf(b.code, "the chat is damaged")
		}
	}
	pages, err := b.Store.Ranges(ctx, ranges)
	for i, r := range ranges {
		if r.Chat == b.lost {
			pages[i] = nil
		}
	}
	return pages, err
}

// TestMessages: each key gets its message, or its own error. One damaged chat does not hide the
// others, and keys that follow one another are one range.
func TestMessages(t *testing.T) {
	store := &broken{Store: memory.New(), chat: "damaged", code: tidemark.Unavailable, lost: "lost"}
	for _, chat := range []tidemark.ChatID{"a", "b", "damaged", "lost"} {
		_, _, err := store.CreateChat(t.Context(), storage.NewChat{
			ID: chat, Type: tidemark.Group, Members: []tidemark.UserID{"alice"}, Creator: "alice",
			CreatedAt: time.Now(), History: tidemark.HistorySinceJoin,
		})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			key := fmt.Sprint(chat, n)
			done, err := store.Append(t.Context(), []tidemark.Draft{{
				ChatID: chat, SenderID: "alice", ClientMessageID: key, Content: key,
				MessageID: tidemark.MessageID(key), ContentType: tidemark.DefaultContentType,
				Kind: tidemark.KindMessage, CreatedAt: time.Now(),
			}})
			if err != nil || done[0].Err != nil {
				t.Fatal(err, done)
			}
		}
	}
	keys := []storage.MessageKey{
		{Chat: "a", Sequence: 1}, {Chat: "a", Sequence: 2}, {Chat: "b", Sequence: 3},
		{Chat: "b", Sequence: 4}, {Chat: "damaged", Sequence: 1}, {Chat: "a", Sequence: 2},
		{Chat: "lost", Sequence: 3}, {Chat: "none", Sequence: 1},
	}
	want := []any{
		"a0", "a1", "b2", tidemark.NotFound, tidemark.Unavailable, "a1", tidemark.Unavailable,
		tidemark.NotFound,
	}
	check := func(want []any) {
		t.Helper()
		for i, got := range Messages(t.Context(), store, keys) {
			is := any(got.Message.Content)
			if got.Err != nil {
				is = tidemark.CodeOf(got.Err)
			}
			if is != want[i] {
				t.Errorf("%v: got %v (%v), want %v", keys[i], is, got.Err, want[i])
			}
		}
	}
	check(want)
	store.away, store.calls = true, 0
	for i := range want {
		want[i] = tidemark.Unavailable
	}
	check(want)
	if store.calls > mostFailed {
		t.Errorf("a store that is away is asked %d times, want at most %d", store.calls, mostFailed)
	}
}

// TestMessages_that_have_expired are not found. What is kept is, also beside them.
func TestMessages_that_have_expired(t *testing.T) {
	store, old := memory.New(), time.Now().Add(-20*24*time.Hour)
	for chat, n := range map[tidemark.ChatID]int{"some": 4, "all": 2} {
		_, _, err := store.CreateChat(t.Context(), storage.NewChat{
			ID: chat, Type: tidemark.Group, Members: []tidemark.UserID{"alice"}, Creator: "alice",
			CreatedAt: old, History: tidemark.HistoryFull,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			_, err := storage.AppendOne(t.Context(), store, tidemark.Draft{
				ChatID: chat, SenderID: "alice", ClientMessageID: fmt.Sprint(i),
				MessageID: tidemark.MessageID(fmt.Sprint(chat, i)), Content: fmt.Sprint(chat, i+1),
				CreatedAt: old, Kind: tidemark.KindMessage,
				ContentType: tidemark.DefaultContentType,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := store.Expire(t.Context(), chat, old.Add(time.Hour), 2); err != nil {
			t.Fatal(err)
		}
	}
	found := Messages(t.Context(), store, []storage.MessageKey{
		{Chat: "some", Sequence: 1}, {Chat: "some", Sequence: 2}, {Chat: "some", Sequence: 3},
		{Chat: "some", Sequence: 1}, {Chat: "all", Sequence: 2},
	})
	for i, want := range []any{
		tidemark.NotFound, tidemark.NotFound, "some3", tidemark.NotFound, tidemark.NotFound,
	} {
		got := any(found[i].Message.Content)
		if found[i].Err != nil {
			got = tidemark.CodeOf(found[i].Err)
		}
		if got != want {
			t.Errorf("%d: got %v, want %v", i, got, want)
		}
	}
}
