package storagetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// frozenChats and frozenUsers are the chats and users that askFrozen asks about. The chats
// frozenBig and frozenCrowd have more users.
var (
	frozenChats = []tidemark.ChatID{
		"direct", "group", "joined", frozenCrowd, frozenBig, "empty", "left", "none",
	}
	frozenUsers = []tidemark.UserID{
		"anna", "ben", "cleo", "dora", "emil", "u00001", "u00500", "nobody",
	}
)

const (
	// frozenBig is a Large chat. frozenCrowd has more senders than DynamoDB keeps in one item.
	frozenBig   = "big"
	frozenCrowd = "crowd"
)

// WriteFrozen writes a small data set that uses every feature into an empty store. It writes the
// second part into the store that restore returns, where another life of the data has begun. It
// returns that store and both lives.
func WriteFrozen(
	t *testing.T, s storage.Store, restore func(*testing.T, storage.Store) storage.Store,
) (storage.Store, []tidemark.Incarnation) {
	t.Helper()
	f := &fixture{tb: t, ctx: t.Context(), store: s}
	first := s.Incarnation()
	f.freezeDirect()
	f.freezeGroup()
	f.freezeOthers()
	f.freezeMarks()
	f.store = restore(t, s)
	for _, chat := range []tidemark.ChatID{"direct", "group"} {
		f.send(chat, "ben", 2)
	}
	f.raise("anna", "direct", tidemark.Raise{Acked: 5, Read: 4}, at(60))
	return f.store, []tidemark.Incarnation{first, f.store.Incarnation()}
}

// freezeDirect makes a direct chat whose messages have all that a message may have.
func (f *fixture) freezeDirect() {
	f.create(storage.NewChat{
		ID:       "direct",
		Type:     tidemark.Direct,
		History:  tidemark.HistoryFull,
		Members:  []tidemark.UserID{"anna", "ben"},
		Metadata: json.RawMessage(`{"topic": "fish",  "n":1.0}`),
		Creation: "anna made it",
	})
	d := f.draft("direct", "anna", "It's \"new\":\n\t\\ ☃ 🌊 %s $1 ;--")
	d.Metadata = json.RawMessage(`{"a":[1, 2],"b":null}`)
	d.Attachments = json.RawMessage(`[{"name":"fish.png","size":12}, {"x":"y"}]`)
	d.ContentType = "text/markdown"
	f.append(d)
	d = f.draft("direct", "ben", "")
	d.Attachments = json.RawMessage(`[{"name":"alone"}]`)
	f.append(d)
	f.append(f.draft("direct", "anna", strings.Repeat("long ", 900)))
	f.raise("ben", "direct", tidemark.Raise{Acked: 3, Read: 1}, at(50))
	f.raise("anna", "direct", tidemark.Raise{Acked: 2}, at(51))
	f.raise("anna", "direct", tidemark.Raise{Acked: 3, AckedFrom: 3}, at(52))
}

// freezeGroup makes a group with every role, mentions, messages of the system, and members who left
// and returned.
func (f *fixture) freezeGroup() {
	f.create(storage.NewChat{
		ID:       "group",
		Type:     tidemark.Group,
		Name:     "first name",
		History:  tidemark.HistoryFull,
		Members:  []tidemark.UserID{"anna", "ben", "cleo", "dora", "emil"},
		Metadata: json.RawMessage(`{"old":true}`),
		Creation: "anna made this, too",
	})
	name := "Fish & Chips"
	_, err := f.store.UpdateChat(f.ctx, "group", storage.ChatChange{
		Name: &name, Metadata: json.RawMessage(`{"colour": "blue"}`),
	})
	f.ok(err)
	for _, change := range []struct {
		user tidemark.UserID
		storage.MemberChange
	}{
		{"ben", storage.MemberChange{
			Role: tidemark.Admin, Metadata: json.RawMessage(`{"nick": "Benny"}`),
		}},
		{"cleo", storage.MemberChange{Role: tidemark.Reader}},
		{"emil", storage.MemberChange{Metadata: json.RawMessage(`{"gone":1}`)}},
	} {
		_, err := f.store.UpdateMember(f.ctx, "group", change.user, change.MemberChange)
		f.ok(err)
	}
	f.send("group", "anna", 2)
	f.remove("group", "dora")
	d := f.draft("group", "ben", "hello cleo and dora")
	d.Mentions = tidemark.Mentions{Users: []tidemark.UserID{"cleo", "dora"}}
	f.append(d)
	d = f.draft("group", "anna", "emil has left")
	d.Kind = tidemark.KindSystem
	f.append(d)
	f.remove("group", "emil")
	f.add("group", "dora")
	d = f.draft("group", "dora", "I am back")
	d.Mentions = tidemark.Mentions{All: true}
	f.append(d)
	f.send("group", "anna", 1)
	f.raise("ben", "group", tidemark.Raise{Acked: 6, Read: 6}, at(53))
	f.raise("cleo", "group", tidemark.Raise{Acked: 4, Read: 2}, at(54))
	f.raise("emil", "group", tidemark.Raise{Acked: 1}, at(55))
}

// freezeOthers makes a group that hides its history, one with many senders, a large one, an empty
// one, and one whose owner left.
func (f *fixture) freezeOthers() {
	f.create(storage.NewChat{
		ID:      "joined",
		Type:    tidemark.Group,
		Name:    "since the join",
		History: tidemark.HistorySinceJoin,
		Members: []tidemark.UserID{"ben", "anna"},
	})
	f.send("joined", "ben", 3)
	f.add("joined", "cleo")
	f.send("joined", "cleo", 1)
	f.remove("joined", "cleo")
	f.send("joined", "anna", 1)
	f.add("joined", "cleo")
	f.send("joined", "ben", 1)

	many := f.many(tidemark.PendingFanoutLimit + 1)
	f.create(storage.NewChat{
		ID:      frozenCrowd,
		Type:    tidemark.Group,
		Name:    "many senders",
		History: tidemark.HistoryFull,
		Members: many[:20],
	})
	for _, user := range append(many[:15:15], many[3:6]...) {
		f.send(frozenCrowd, user, 1)
	}
	f.create(storage.NewChat{
		ID:      frozenBig,
		Type:    tidemark.Group,
		Name:    "large",
		History: tidemark.HistoryFull,
		Members: append(many, "anna"),
	})
	f.send(frozenBig, many[0], 3)
	f.raise(many[1], frozenBig, tidemark.Raise{Acked: 3, Read: 2}, at(56))
	f.group("empty", "ben")
	f.group("left", "dora", "anna", "cleo")
	f.send("left", "dora", 1)
	f.remove("left", "dora")
}

// freezeMarks writes marks of unread messages, and pending rows.
func (f *fixture) freezeMarks() {
	for _, mark := range []struct {
		user tidemark.UserID
		chat tidemark.ChatID
		from tidemark.Sequence
	}{
		{"ben", "group", 3}, {"cleo", "group", 2}, {"ben", "direct", 1},
	} {
		_, err := f.store.MarkUnread(f.ctx, mark.user, mark.chat, mark.from)
		f.ok(err)
	}
	f.raise("ben", "direct", tidemark.Raise{Read: 3}, at(57)) // ends the mark
	f.mark("anna", "direct", 2)
	f.mark("cleo", "group", 3)
	f.mark("dora", "group", 5)
	f.mark("ben", "joined", 4)
	f.clear("cleo", "group", 4)
	f.clear("anna", "direct", 3)
}

// frozenKey is the key of the n-th message of WriteFrozen, counted over all chats.
func frozenKey(n int) string { return fmt.Sprintf("key-%d", n) }

// useFrozen works with the data as clients do, and returns what the calls returned.
func (f *fixture) useFrozen() (said answers) {
	again := f.draft("group", "ben", "hello cleo and dora")
	again.ClientMessageID = frozenKey(6)
	again.Mentions = tidemark.Mentions{Users: []tidemark.UserID{"cleo", "dora"}}
	other := again
	other.Content = "another text"
	news := []tidemark.Draft{again, other}
	f.sent.Store(100)
	for _, d := range []struct {
		chat tidemark.ChatID
		from tidemark.UserID
	}{
		{"direct", "ben"}, {"group", "anna"}, {"group", "cleo"}, {"group", "emil"},
		{"joined", "cleo"}, {frozenCrowd, "u00014"}, {frozenCrowd, "u00016"}, {frozenBig, "anna"},
		{"left", "anna"}, {"empty", "ben"}, {"none", "anna"},
	} {
		news = append(news, f.draft(d.chat, d.from, "new"))
	}
	for _, d := range news {
		appended, err := storage.AppendOne(f.ctx, f.store, d)
		appended.RowsVersion = 0 // It is the process's.
		said.add("append "+string(d.ChatID)+" "+string(d.SenderID), appended, err)
	}
	advanced, err := f.store.Advance(f.ctx, []storage.Advance{
		{User: "anna", Chat: "direct", Raise: tidemark.Raise{Acked: 6, Read: 1}, Now: at(70)},
		{User: "ben", Chat: "group", Raise: tidemark.Raise{Acked: 9, Read: 9}, Now: at(71)},
		{User: "ben", Chat: "joined", Raise: tidemark.Raise{Acked: 99}, Now: at(72)},
		{User: "dora", Chat: "group", Raise: tidemark.Raise{Acked: 7, Read: 7}, Now: at(73)},
	})
	said.add("advance", advanced, err)
	cleared, err := f.store.Clear(f.ctx, []storage.Clear{
		{User: "cleo", Chat: "group", Through: 6}, {User: "dora", Chat: "group", Through: 99},
		{User: "anna", Chat: frozenBig, Through: 99},
	})
	said.add("clear", cleared, err)
	state, err := f.store.MarkUnread(f.ctx, "dora", "group", 6)
	said.add("mark unread", state, err)
	added, err := f.store.AddMembers(f.ctx, "group", []tidemark.UserID{"emil", "nobody"},
		tidemark.Ordinary, at(74))
	said.add("add", added, err)
	added, err = f.store.AddMembers(f.ctx, "joined", []tidemark.UserID{"emil"},
		tidemark.Ordinary, at(75))
	said.add("add since join", added, err)
	removed, err := f.store.RemoveMember(f.ctx, "group", "anna", at(76))
	said.add("remove the owner", removed, err)
	changed, err := f.store.UpdateMember(f.ctx, "left", "cleo",
		storage.MemberChange{Role: tidemark.Admin})
	said.add("change", changed, err)
	name := "new name"
	chat, err := f.store.UpdateChat(f.ctx, "group", storage.ChatChange{Name: &name})
	said.add("rename", chat, err)
	for _, id := range []tidemark.ChatID{"direct again", "group"} {
		kind := tidemark.Direct
		if id == "group" {
			kind = tidemark.Group
		}
		chat, created, err := f.store.CreateChat(f.ctx, storage.NewChat{
			ID:        id,
			Type:      kind,
			History:   tidemark.HistoryFull,
			CreatedAt: time.UnixMilli(1),
			Creator:   "ben",
			Members:   []tidemark.UserID{"ben", "anna"},
		})
		said.add(fmt.Sprintf("create %s: %v", id, created), chat, err)
	}
	return said
}
