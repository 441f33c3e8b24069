package server_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

// album is a core with files. It notes how many messages the chat had at each pin.
type album struct {
	*core
	kept  *attachments.Attachments
	dir   *dir.Dir
	store storage.Store
	heads []tidemark.Sequence
}

// Pin implements server.Attachments.
func (a *album) Pin(ctx context.Context, send storage.SendKey, files, seen []string) error {
	heads, err := a.store.Heads(ctx, []tidemark.ChatID{"pictures"})
	if err != nil {
		return err
	}
	a.heads = append(a.heads, heads[0])
	return a.kept.Pin(ctx, send, files, seen)
}

func startAlbum(t *testing.T) *album {
	t.Helper()
	a := &album{store: stores.Open(t)}
	a.kept, a.dir = attachmentstest.Kept(t, a.store)
	a.core = startOn(t, a.store, registrymemory.New(), local.New(), func(c *server.Config) {
		c.Attachments = a
	})
	return a
}

func (a *album) upload(user tidemark.UserID) string {
	a.t.Helper()
	return attachmentstest.Put(a.t, a.kept, a.dir, user)
}

// post sends a message with a file.
func (a *album) post(
	user tidemark.UserID, chat tidemark.ChatID, key, file string, sources ...tidemark.MessageRef,
) (server.Sent, error) {
	return a.Send(a.ctx, user, tidemark.Draft{
		ChatID: chat, ClientMessageID: key, Sources: sources,
		Attachments: json.RawMessage(`[{"a":1},{"s3_ref":"` + file + `"}]`),
	})
}

// wants sends a message with a file, and compares the code of its error.
func (a *album) wants(
	want tidemark.Code, user tidemark.UserID, key, file string, sources ...tidemark.MessageRef,
) {
	a.t.Helper()
	if _, err := a.post(user, "pictures", key, file, sources...); tidemark.CodeOf(err) != want {
		a.t.Errorf("%s by %s: got %v, want %q", key, user, err, want)
	}
}

func TestSend_files_R_PIN_before_the_message_is_stored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAlbum(t)
		a.chat("pictures", "alice", "bob", "carol")
		file := a.upload("alice")
		a.wants("", "alice", "k1", file)
		a.wants("", "alice", "k2", file)
		a.wants("", "alice", "k1", file) // the first message again
		if want := []tidemark.Sequence{0, 1, 2}; !slices.Equal(a.heads, want) {
			t.Errorf("the chat had %v messages at the pins, want %v", a.heads, want)
		}
		if _, err := a.kept.Open(a.ctx, "bob", file); err != nil {
			t.Error(err)
		}
	})
}

func TestSend_files_without_a_place(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		c.chat("pictures", "alice", "bob", "carol")
		_, err := c.Send(c.ctx, "alice", tidemark.Draft{
			ChatID: "pictures", ClientMessageID: "k",
			Attachments: json.RawMessage(`[{"s3_ref":null},{"s3\u005fref":"x"}]`),
		})
		if tidemark.CodeOf(err) != tidemark.Invalid ||
			tidemark.ParamOf(err) != "attachments[1].s3_ref" {
			t.Errorf("got %v", err)
		}
	})
}

func TestSend_files_no_file_outside_membership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAlbum(t)
		a.chat("pictures", "alice", "bob", "carol")
		a.chat("private", "alice", "dan", "eve")
		mine, alices := a.upload("bob"), a.upload("alice")
		a.wants(tidemark.Denied, "bob", "k1", alices)
		a.wants(tidemark.Denied, "bob", "k2", attachmentstest.Picture)
		a.wants(tidemark.NotMember, "dan", "k3", alices)

		// Bob does not see the message in the other chat, and so may not forward its file.
		if _, err := a.post("alice", "private", "k", alices); err != nil {
			t.Fatal(err)
		}
		private := tidemark.MessageRef{ChatID: "private", Sequence: 1}
		a.wants(tidemark.NotMember, "bob", "k4", alices, private)
		a.wants(tidemark.NotFound, "alice", "k5", alices,
			tidemark.MessageRef{ChatID: "private", Sequence: 2})

		// Dan is no member here. Alice sees both chats.
		here := tidemark.MessageRef{ChatID: "pictures", Sequence: 1}
		a.wants("", "alice", "k6", alices, private)
		a.wants(tidemark.Denied, "bob", "k7", attachmentstest.Picture, here)
		a.wants("", "bob", "k8", alices, here)
		a.wants("", "bob", "k9", mine)
	})
}

// TestSend_files_send_idempotent_after_the_source_is_lost: the repetition of a stored message
// returns it, although its sender may not send it any more.
func TestSend_files_send_idempotent_after_the_source_is_lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAlbum(t)
		a.chat("pictures", "bob", "carol", "dan")
		a.chat("source", "alice", "bob", "carol")
		file := a.upload("alice")
		if _, err := a.post("alice", "source", "k", file); err != nil {
			t.Fatal(err)
		}
		source := tidemark.MessageRef{ChatID: "source", Sequence: 1}
		first, err := a.post("bob", "pictures", "k1", file, source)
		if err != nil {
			t.Fatal(err)
		}
		alice := server.Caller{User: "alice"}
		if err := a.RemoveMember(a.ctx, alice, "source", "bob"); err != nil {
			t.Fatal(err)
		}
		again, err := a.post("bob", "pictures", "k1", file, source)
		if err != nil || !again.Duplicate || again.Message.Sequence != first.Message.Sequence {
			t.Errorf("got %+v, %v", again, err)
		}
		a.wants(tidemark.NotMember, "bob", "k2", file, source)
		other := a.upload("alice")
		a.wants(tidemark.Denied, "bob", "k1", other)
	})
}

// TestSend_files_caller_does_only_what_they_may: who may not send pins nothing.
func TestSend_files_caller_does_only_what_they_may(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAlbum(t)
		a.chat("pictures", "alice", "bob", "carol")
		alice := server.Caller{User: "alice"}
		_, err := a.UpdateMember(a.ctx, alice, "pictures", "bob",
			server.MemberChange{Role: tidemark.Reader})
		if err != nil {
			t.Fatal(err)
		}
		a.wants(tidemark.Denied, "bob", "k1", a.upload("bob"))
		a.wants(tidemark.NotMember, "eve", "k2", a.upload("eve"))
		if len(a.heads) > 0 {
			t.Errorf("%d pins", len(a.heads))
		}
	})
}

func TestMessage_nothing_outside_membership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		c.chat("pictures", "alice", "bob", "carol")
		c.send("alice", "pictures")
		for _, tt := range []struct {
			user     tidemark.UserID
			chat     tidemark.ChatID
			sequence tidemark.Sequence
			want     tidemark.Code
		}{
			{"bob", "pictures", 1, ""},
			{"bob", "pictures", 2, tidemark.NotFound},
			{"bob", "pictures", 0, tidemark.NotFound},
			{"bob", "nowhere", 1, tidemark.NotFound},
			{"eve", "pictures", 1, tidemark.NotMember},
		} {
			m, err := c.Message(c.ctx, tt.user,
				tidemark.MessageRef{ChatID: tt.chat, Sequence: tt.sequence})
			if tidemark.CodeOf(err) != tt.want || err == nil && m.Sequence != tt.sequence {
				t.Errorf("%+v: got %+v, %v", tt, m, err)
			}
		}
	})
}
