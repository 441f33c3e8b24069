package storagetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// The wrappers must keep the contract, too.
func TestCount_changes_nothing(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Store { return storagetest.Count(memory.New()) })
}

func TestFault_without_hooks_changes_nothing(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Store { return storagetest.Fault(memory.New()) })
}

// One store is used as two, each of which sees the other's writes at once.
func TestShared_of_one_store(t *testing.T) {
	storagetest.RunShared(t, func(*testing.T) (storage.Store, storage.Store) {
		s := memory.New()
		return s, s
	})
}

func group(t *testing.T, s storage.Store) {
	t.Helper()
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID:        "c",
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: time.UnixMilli(1),
		Creator:   "alice",
		Members:   []tidemark.UserID{"alice", "bob"},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func draft(key string) tidemark.Draft {
	return tidemark.Draft{
		Kind:            tidemark.KindMessage,
		ChatID:          "c",
		SenderID:        "alice",
		ClientMessageID: key,
		Content:         "hello",
		ContentType:     "text/plain",
		MessageID:       "m",
		CreatedAt:       time.UnixMilli(2),
	}
}

func TestCounting_counts_what_was_written(t *testing.T) {
	ctx, s := t.Context(), storagetest.Count(memory.New())
	group(t, s)
	for _, key := range []string{"k1", "k2", "k3", "k1"} {
		if _, err := storage.AppendOne(ctx, s, draft(key)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Mark(ctx, []tidemark.PendingDelivery{
			{UserID: "bob", ChatID: "c", FirstUndelivered: 1},
			{UserID: "alice", ChatID: "c", FirstUndelivered: 2},
		}); err != nil {
			t.Fatal(err)
		}
	}
	advances := []storage.Advance{
		{User: "bob", Chat: "c", Raise: tidemark.Raise{Acked: 2}},
		{User: "bob", Chat: "c", Raise: tidemark.Raise{Acked: 1}},
		{User: "bob", Chat: "c", Raise: tidemark.Raise{Acked: 4}},
	}
	for i := range advances {
		if _, err := s.Advance(ctx, advances[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		items := []storage.Clear{{User: "bob", Chat: "c", Through: 2}}
		if _, err := s.Clear(ctx, items); err != nil {
			t.Fatal(err)
		}
	}
	want := storagetest.Counts{
		Calls:    map[string]int{"CreateChat": 1, "Append": 4, "Mark": 4, "Advance": 3, "Clear": 2},
		Items:    map[string]int{"CreateChat": 1, "Append": 4, "Mark": 8, "Advance": 3, "Clear": 2},
		Appended: 3, Marked: 2, Cleared: 1, Moved: 1,
	}
	got := s.Snapshot()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if _, err := storage.AppendOne(ctx, s, draft("k4")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the snapshot has changed (-want +got):\n%s", diff)
	}
}

func TestFaulty_Before_keeps_the_call_from_being_made(t *testing.T) {
	inner := memory.New()
	s := storagetest.Fault(inner)
	group(t, s)
	s.Before = func(method string) error {
		if method == "Append" {
			return tidemark.Errorf(tidemark.Unavailable, "unplugged")
		}
		return nil
	}
	got, err := storage.AppendOne(t.Context(), s, draft("k"))
	if tidemark.CodeOf(err) != tidemark.Unavailable || got.Message.Sequence != 0 {
		t.Errorf("got %+v and error %v, want Unavailable", got, err)
	}
	checkHead(t, inner, 0)
	if _, err := s.Chat(t.Context(), "c"); err != nil {
		t.Errorf("another method fails: %v", err)
	}
}

func TestFaulty_After_loses_the_reply_of_a_call_that_was_made(t *testing.T) {
	inner := memory.New()
	s := storagetest.Fault(inner)
	group(t, s)
	lost := errors.New("lost")
	s.After = func(method string) error { return lost }
	got, err := storage.AppendOne(t.Context(), s, draft("k"))
	if !errors.Is(err, lost) || got.Message.Sequence != 0 {
		t.Errorf("got %+v and error %v, want no result and %v", got, err, lost)
	}
	checkHead(t, inner, 1)
	s.Before = func(string) error { return context.Canceled }
	if err := s.Check(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that of Before", err)
	}
}

func checkHead(t *testing.T, s storage.Store, want tidemark.Sequence) {
	t.Helper()
	chat, err := s.Chat(t.Context(), "c")
	if err != nil || chat.Head != want {
		t.Errorf("got head %d and error %v, want %d", chat.Head, err, want)
	}
}
