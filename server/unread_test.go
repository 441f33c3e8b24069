package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

func TestSend_caller_does_only_what_they_may(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		group := a.chat("abc", "alice", "bob", "carol")
		direct := a.chat("ab", "alice", "bob")
		system := tidemark.Draft{Kind: tidemark.KindSystem, Content: "bob has joined"}
		all := tidemark.Draft{Mentions: tidemark.Mentions{All: true}, Content: "@all"}
		one := tidemark.Draft{
			Mentions: tidemark.NewMentions(false, []tidemark.UserID{"alice"}), Content: "@alice",
		}
		for i, test := range []struct {
			name    string
			user    tidemark.UserID
			chat    tidemark.ChatID
			draft   tidemark.Draft
			backend bool
			want    tidemark.Code
		}{
			{"a user's line of the system", "alice", group, system, false, tidemark.Denied},
			{"a backend's line of the system", "alice", group, system, true, ""},
			{"all, by an owner", "alice", group, all, false, ""},
			{"all, by a member", "bob", group, all, false, tidemark.Denied},
			{"all, by a member's backend", "bob", group, all, true, ""},
			{"both of a direct chat", "bob", direct, all, false, ""},
			{"all, by a stranger", "dave", group, all, false, tidemark.NotMember},
			{"one, by a member", "bob", group, one, false, ""},
		} {
			d := test.draft
			d.ChatID, d.ClientMessageID, d.ByBackend = test.chat, string(rune('a'+i)), test.backend
			_, err := a.Send(a.ctx, test.user, d)
			wantCode(t, test.name, err, test.want)
		}
		settle()
		want := storage.UnreadTotal{
			Unread: storage.Unread{Messages: 3, Mentions: 3}, Chats: 2,
		}
		if got, err := a.Unread(a.ctx, "alice"); err != nil || got != want {
			t.Errorf("got %+v, %v unread for alice, want %+v", got, err, want)
		}
	})
}

// TestUnread_unread_exact_with_marks: a user marks messages as unread, reads on, and takes a mark
// back. Only members may.
func TestUnread_unread_exact_with_marks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		for _, sender := range []tidemark.UserID{"bob", "bob", "alice", "alice", "alice", "alice"} {
			a.send(sender, chat)
		}
		a.ack("bob", chat, 6, 4)
		settle()
		check := func(what string, from tidemark.Sequence, mark tidemark.Sequence, unread int64) {
			t.Helper()
			got, err := a.MarkUnread(a.ctx, "bob", chat, from)
			if err != nil || got.State.UnreadFrom != mark || got.Unread.Messages != unread ||
				got.State.Read != 4 {
				t.Errorf("%s: got %+v, %v, want the mark %d and %d unread", what, got, err, mark,
					unread)
			}
		}
		check("no mark", 0, 0, 2)
		check("one", 4, 4, 3)
		check("all, own ones too", 1, 1, 4)
		check("what is not read", 5, 0, 2)
		check("again", 2, 2, 4)
		a.ack("bob", chat, 6, 6)
		settle()
		if got, err := a.Unread(a.ctx, "bob"); err != nil || got != (storage.UnreadTotal{}) {
			t.Errorf("after reading on: got %+v, %v unread, want nothing", got, err)
		}
		_, err := a.MarkUnread(a.ctx, "bob", chat, 7)
		wantCode(t, "above the head", err, tidemark.InvalidSequence)
		_, err = a.MarkUnread(a.ctx, "dave", chat, 1)
		wantCode(t, "a stranger", err, tidemark.NotMember)
		_, err = a.MarkUnread(a.ctx, "bob", "none", 1)
		wantCode(t, "no chat", err, tidemark.NotFound)
	})
}

// TestUnread_unread_exact_after_a_read_of_a_moment_ago: a stream's acknowledgements wait in memory
// for a moment. A mark that the user sets after reading holds all the same.
func TestUnread_unread_exact_after_a_read_of_a_moment_ago(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		for range 5 {
			a.send("alice", chat)
		}
		settle()
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 5, Read: 5})
		got, err := a.MarkUnread(a.ctx, "bob", chat, 4)
		if err != nil || got.State.UnreadFrom != 4 || got.Unread.Messages != 2 {
			t.Errorf("got %+v, %v, want a mark at 4 and 2 unread", got, err)
		}
		settle()
		if total, err := a.Unread(a.ctx, "bob"); err != nil || total.Messages != 2 {
			t.Errorf("got %+v, %v, want 2 unread", total, err)
		}
	})
}
