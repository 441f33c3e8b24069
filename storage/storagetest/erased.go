package storagetest

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Canary is a text in all that Erased stores of a user, and in nothing else.
const Canary = "canary7f3a"

// Erased stores all that a store may have of a user: in a group, in a direct chat and outside of
// chats. Then it erases the user with the steps of a job. The backend's own test looks whether any
// table still has the Canary.
func Erased(t *testing.T, s storage.Store) {
	t.Helper()
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const user tidemark.UserID = Canary
	for _, new := range []storage.NewChat{
		{ID: "c", Type: tidemark.Group, Members: []tidemark.UserID{user, "bob", "carol"}},
		{ID: "d", Type: tidemark.Direct, Members: []tidemark.UserID{user, "bob"}},
	} {
		new.History, new.CreatedAt, new.Creator = tidemark.HistoryFull, at(1), user
		_, _, err := s.CreateChat(ctx, new)
		ok(err)
	}
	_, err := s.UpdateMember(ctx, "c", user,
		storage.MemberChange{Metadata: []byte(`{"a":"` + Canary + `"}`)})
	ok(err)
	n := 0
	send := func(chat tidemark.ChatID, sender tidemark.UserID, edit func(*tidemark.Draft)) {
		t.Helper()
		n++
		d := tidemark.Draft{
			ChatID: chat, SenderID: sender, ClientMessageID: fmt.Sprint("k", n), Content: "x",
			ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
			MessageID: tidemark.MessageID(fmt.Sprint("m", n)), CreatedAt: at(2),
		}
		if sender == user {
			d.ClientMessageID += Canary
		}
		edit(&d)
		_, err := storage.AppendOne(ctx, s, d)
		ok(err)
	}
	says := func(d *tidemark.Draft) {
		d.Content, d.ContentType = Canary, "text/"+Canary
		d.Attachments = []byte(`[{"a":"` + Canary + `"}]`)
		d.Metadata = []byte(`{"a":"` + Canary + `"}`)
	}
	about := func(kind tidemark.Kind, target tidemark.Sequence) func(*tidemark.Draft) {
		return func(d *tidemark.Draft) {
			d.Kind, d.Relation = kind, &tidemark.Relation{Sequence: target}
			d.Content = ""
			if kind == tidemark.KindReact {
				d.Relation.Emoji = Canary
			}
			if kind == tidemark.KindEdit {
				d.Content = Canary
			}
		}
	}
	names := func(users ...tidemark.UserID) func(*tidemark.Draft) {
		return func(d *tidemark.Draft) { d.Mentions = tidemark.NewMentions(false, users) }
	}
	for _, chat := range []tidemark.ChatID{"c", "d"} {
		send(chat, user, says)
		send(chat, "bob", names(user, "bob"))
		send(chat, user, names("bob"))
		send(chat, user, about(tidemark.KindEdit, 3))
		send(chat, user, func(d *tidemark.Draft) { d.Mentions.All = true })
		send(chat, user, about(tidemark.KindReact, 2))
		send(chat, user, about(tidemark.KindReact, 1))
		send(chat, user, about(tidemark.KindRedact, 7))
		send(chat, user, about(tidemark.KindPin, 2))
		send(chat, "bob", func(d *tidemark.Draft) {})
		send(chat, user, func(d *tidemark.Draft) {
			says(d)
			d.Kind = tidemark.KindControl
		})
		send(chat, "bob", func(d *tidemark.Draft) {
			d.Kind, d.Content = tidemark.KindSystem, Canary+" was here"
		})
	}
	send("c", user, about(tidemark.KindRedact, 10))
	for _, chat := range []tidemark.ChatID{"c", "d"} {
		raise := tidemark.Raise{Acked: 3, Read: 2}
		_, err := s.Advance(ctx, []storage.Advance{
			{User: user, Chat: chat, Raise: raise, Now: at(3)},
		})
		ok(err)
		_, err = s.MarkUnread(ctx, user, chat, 1)
		ok(err)
	}
	_, err = s.Mark(ctx, []tidemark.PendingDelivery{
		{UserID: user, ChatID: "c", FirstUndelivered: 2},
		{UserID: user, ChatID: "d", FirstUndelivered: 2},
		{UserID: user, ChatID: "none", FirstUndelivered: 2},
	})
	ok(err)
	_, err = s.RemoveMember(ctx, "c", user, at(4))
	ok(err)
	bannedAndBlocked(t, s, user)
	_, err = s.CloseDirect(ctx, "d", user, at(4))
	ok(err)
	entry := storage.AuditEntry{
		ID: storage.NewAuditID(at(4)), Actor: user, State: storage.AuditBegun,
		Target: storage.AuditTarget{User: user},
	}
	ok(s.RecordAudit(ctx, entry))
	chats, _, _, err := s.ChatsNaming(ctx, user, "", storage.MaxErased)
	ok(err)
	if len(chats) != 3 {
		t.Fatalf("the chats %q name the user, want 3", chats)
	}
	for i, chat := range chats {
		e := erasureOf(user, i)
		for p := (storage.ErasePage{Limit: 5}); ; {
			done, err := s.EraseMessages(ctx, chat, e, p)
			if ok(err); done.Done {
				break
			}
			p.After = done.Through
		}
		for done := false; !done; {
			done, err = s.EraseMember(ctx, chat, e, 1)
			ok(err)
		}
	}
	for done := false; !done; {
		done, err = s.EraseUser(ctx, user, 1)
		ok(err)
	}
	ok(s.RenameAudit(ctx, entry.ID, user, tidemark.ErasedID("9")))
}

// bannedAndBlocked bans the user from a group that they have left, and from one in which they never
// were. They block others, others block them, and they hide what they read.
func bannedAndBlocked(t *testing.T, s storage.Store, user tidemark.UserID) {
	t.Helper()
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.CreateChat(ctx, storage.NewChat{
		ID: "g", Type: tidemark.Group, Members: []tidemark.UserID{"bob"}, Creator: "bob",
		History: tidemark.HistoryFull, CreatedAt: at(1),
	})
	ok(err)
	for _, chat := range []tidemark.ChatID{"c", "g"} {
		_, err := s.Ban(ctx, chat, user, at(4))
		ok(err)
	}
	for _, pair := range [][2]tidemark.UserID{
		{user, "bob"}, {"bob", user}, {user, "dave"}, {"eve", user}, {"erin", user},
	} {
		_, err := s.PutBlock(ctx, pair[0], pair[1], at(4))
		ok(err)
	}
	for _, chat := range []tidemark.ChatID{"", "c", "d"} {
		ok(s.SetReceipts(ctx, user, chat, tidemark.ReceiptsOff))
	}
}
