package storagetest

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Purged creates a chat with all that a chat may have, deletes it, and removes what is left of it
// with PurgeChat, a few rows at a time. A backend looks itself whether anything but the chat's own
// row is left.
func Purged(t *testing.T, s storage.Store, id tidemark.ChatID) {
	t.Helper()
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.CreateChat(ctx, storage.NewChat{
		ID: id, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: at(1),
		Metadata: []byte(`{"a":1}`), Creator: "alice",
		Members: []tidemark.UserID{"alice", "bob", "carol"},
	})
	ok(err)
	send := func(sender tidemark.UserID, key string, edit func(*tidemark.Draft)) {
		t.Helper()
		d := tidemark.Draft{
			ChatID: id, SenderID: sender, ClientMessageID: key, Content: key,
			ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
			MessageID: tidemark.MessageID(key), CreatedAt: at(2),
		}
		edit(&d)
		_, err := storage.AppendOne(ctx, s, d)
		ok(err)
	}
	type change = func(*tidemark.Draft)
	about := func(kind tidemark.Kind, target tidemark.Sequence, emoji string) change {
		return func(d *tidemark.Draft) {
			d.Kind, d.Relation = kind, &tidemark.Relation{Sequence: target, Emoji: emoji}
			if kind != tidemark.KindEdit {
				d.Content = ""
			}
		}
	}
	for _, key := range []string{"1", "2", "3"} {
		send("alice", key, func(d *tidemark.Draft) {
			d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{"bob", "carol"})
		})
	}
	send("bob", "all", func(d *tidemark.Draft) { d.Mentions.All = true })
	send("alice", "line", func(d *tidemark.Draft) { d.Kind = tidemark.KindSystem })
	send("alice", "edit", about(tidemark.KindEdit, 1, ""))
	for _, emoji := range []string{"a", "b", "c"} {
		send("bob", "to 2 "+emoji, about(tidemark.KindReact, 2, emoji))
		send("bob", "to 3 "+emoji, about(tidemark.KindReact, 3, emoji))
	}
	send("alice", "pin 2", about(tidemark.KindPin, 2, ""))
	send("alice", "pin 3", about(tidemark.KindPin, 3, ""))
	_, err = s.RemoveMember(ctx, id, "carol", at(3))
	ok(err)
	_, err = s.Advance(ctx, []storage.Advance{
		{User: "alice", Chat: id, Raise: tidemark.Raise{Acked: 3, Read: 2}, Now: at(3)},
		{User: "bob", Chat: id, Raise: tidemark.Raise{Acked: 1}, Now: at(3)},
	})
	ok(err)
	_, err = s.Mark(ctx, []tidemark.PendingDelivery{
		{UserID: "bob", ChatID: id, FirstUndelivered: 2},
	})
	ok(err)
	_, err = s.DeleteChat(ctx, id, at(4))
	ok(err)
	for range mostPurges {
		_, done, err := s.PurgeChat(ctx, id, 2, true)
		ok(err)
		if done {
			return
		}
	}
	t.Fatal("the purge does not end")
}

// Annotated creates a chat with two old messages, each with a reaction and a pin.
func Annotated(t *testing.T, s storage.Store, id tidemark.ChatID) {
	t.Helper()
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID: id, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: at(1),
		Creator: "alice", Members: []tidemark.UserID{"alice"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for n, d := range []tidemark.Draft{
		{Kind: tidemark.KindMessage, Content: "first"},
		{Kind: tidemark.KindMessage, Content: "second"},
		{Kind: tidemark.KindReact, Relation: &tidemark.Relation{Sequence: 1, Emoji: "a"}},
		{Kind: tidemark.KindReact, Relation: &tidemark.Relation{Sequence: 2, Emoji: "a"}},
		{Kind: tidemark.KindPin, Relation: &tidemark.Relation{Sequence: 1}},
		{Kind: tidemark.KindPin, Relation: &tidemark.Relation{Sequence: 2}},
	} {
		d.ChatID, d.SenderID, d.CreatedAt = id, "alice", at(2)
		d.ContentType, d.ClientMessageID = tidemark.DefaultContentType, fmt.Sprint(n)
		d.MessageID = tidemark.MessageID(d.ClientMessageID)
		if _, err := storage.AppendOne(t.Context(), s, d); err != nil {
			t.Fatal(err)
		}
	}
}
