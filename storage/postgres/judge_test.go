package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// The other node changes the members of a chat whose sender this node has cached.
func TestAppend_nothing_outside_membership_of_cached_senders(t *testing.T) {
	one, other := openTwo(t)
	_, _, err := one.CreateChat(t.Context(), storage.NewChat{
		ID:        "c",
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: time.UnixMilli(1),
		Creator:   "anna",
		Members:   []tidemark.UserID{"anna", "ben"},
	})
	if err != nil {
		t.Fatal(err)
	}
	becomes := func(role tidemark.Role) error {
		_, err := other.UpdateMember(t.Context(), "c", "ben", storage.MemberChange{Role: role})
		return err
	}
	for i, step := range []struct {
		name    string
		change  func() error
		want    tidemark.Code
		version uint64
	}{
		{"at first", func() error { return nil }, "", 1},
		{"cached", func() error { return nil }, "", 1},
		{"removed", func() error {
			_, err := other.RemoveMember(t.Context(), "c", "ben", time.UnixMilli(3))
			return err
		}, tidemark.NotMember, 0},
		{"added", func() error {
			_, err := other.AddMembers(t.Context(), "c", []tidemark.UserID{"ben"},
				tidemark.Ordinary, time.UnixMilli(4))
			return err
		}, "", 3},
		{"a reader", func() error { return becomes(tidemark.Reader) }, tidemark.Denied, 0},
		{"a member", func() error { return becomes(tidemark.Ordinary) }, "", 5},
	} {
		if err := step.change(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		got, err := storage.AppendOne(t.Context(), one, message("c", "ben", fmt.Sprint(i), "hello"))
		if tidemark.CodeOf(err) != step.want || got.Version != step.version {
			t.Errorf("%s: got version %d and error %v, want version %d and code %q", step.name,
				got.Version, err, step.version, step.want)
		}
	}
}

func TestSenders_are_bounded(t *testing.T) {
	var s senders
	for i := range maxSenders + 10 {
		chat, user := tidemark.ChatID(fmt.Sprint("c", i%100)), tidemark.UserID(fmt.Sprint(i))
		d := &tidemark.Draft{ChatID: chat, SenderID: user}
		s.learn(d, &verdict{chat: 1, version: 1}, tidemark.ChatLive)
	}
	for i := range 5 {
		s.forget(tidemark.ChatID(fmt.Sprint("c", i)))
	}
	cached := 0
	for _, c := range s.chats {
		cached += len(c.seats)
	}
	if cached != 5 || s.users != 5 {
		t.Errorf("%d senders are cached, and %d are counted, want 5", cached, s.users)
	}
}
