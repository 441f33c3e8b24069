package dynamodb

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// importing creates a group that is being imported, with one message.
func importing(t *testing.T, s *Store, id tidemark.ChatID, member tidemark.UserID) {
	t.Helper()
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID: id, State: tidemark.ChatImporting, Type: tidemark.Group,
		History: tidemark.HistoryFull, CreatedAt: time.UnixMilli(1),
		Members: []tidemark.UserID{member},
	})
	if err != nil {
		t.Fatal(err)
	}
	moved := draft(id, member, "moved")
	moved.Importing = true
	if _, err := storage.AppendOne(t.Context(), s, moved); err != nil {
		t.Fatal(err)
	}
}

// The importer ends, and a process that has seen the chat before takes the messages of its users.
func TestAppend_after_an_import_that_another_process_ended(t *testing.T) {
	url := newTables(t)
	s, other := openTest(t, url), openTest(t, url)
	importing(t, s, "c", "anna")
	if err := other.FinishImport(t.Context(), "c", time.UnixMilli(2)); err != nil {
		t.Fatal(err)
	}
	send(t, s, "c", "anna", "first", 2)
	moved := draft("c", "anna", "too late")
	moved.Importing = true
	_, err := storage.AppendOne(t.Context(), s, moved)
	if tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("a message of an importer: %v", err)
	}
}

func TestAppend_after_an_unblock_by_another_process(t *testing.T) {
	url := newTables(t)
	s, other := openTest(t, url), openTest(t, url)
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID: "c", Type: tidemark.Direct, History: tidemark.HistoryFull,
		CreatedAt: time.UnixMilli(1), Members: []tidemark.UserID{"anna", "bert"},
	})
	must(t, err)
	_, err = s.PutBlock(t.Context(), "bert", "anna", time.UnixMilli(2))
	must(t, err)
	_, err = storage.AppendOne(t.Context(), s, draft("c", "anna", "too late"))
	if tidemark.CodeOf(err) != tidemark.Denied {
		t.Errorf("a message in a closed chat: %v", err)
	}
	_, err = other.RemoveBlock(t.Context(), "bert", "anna")
	must(t, err)
	send(t, s, "c", "anna", "first", 1)
}

// deleteChat deletes a chat, and demands the result.
func deleteChat(t *testing.T, s *Store, chat tidemark.ChatID, want storage.Deleted) {
	t.Helper()
	got, err := s.DeleteChat(context.WithoutCancel(t.Context()), chat, want.At)
	want.At = want.At.UTC()
	if err != nil || got != want {
		t.Errorf("DeleteChat: %+v, %v; want %+v", got, err, want)
	}
}

// purge removes what is left of a chat and its members, a few items in each call.
func purge(t *testing.T, s *Store, chat tidemark.ChatID) {
	t.Helper()
	for range 500 {
		_, done, err := s.PurgeChat(t.Context(), chat, 3, true)
		must(t, err)
		if done {
			return
		}
	}
	t.Fatal("the purge does not end")
}

// wantNothing checks that the tables have nothing of a chat with these members but its counter.
func wantNothing(t *testing.T, s *Store, chat tidemark.ChatID, members ...tidemark.UserID) {
	t.Helper()
	c := s.caller("test")
	partitions := map[string]string{
		string(chat):                             record.Messages,
		record.UncountedKey(chat):                record.Messages,
		record.ReactionsKey(chat):                record.Messages,
		record.PinsKey(chat):                     record.Messages,
		record.MentionKey(chat, unread.Everyone): record.Messages,
	}
	for _, user := range members {
		partitions[record.MentionKey(chat, user)] = record.Messages
		for table, key := range map[string]call.Item{
			record.Memberships: record.MemberKey(chat, user),
			record.States:      record.StateKey(user, chat),
			record.Pendings:    record.PendingKey(user, chat),
		} {
			it, err := c.Get(t.Context(), table, key)
			must(t, err)
			if it != nil {
				t.Errorf("the table %s has %v", table, it)
			}
		}
	}
	for partition, table := range partitions {
		q := call.Query{
			Read: call.Read{Table: table}, Partition: "chat_id", Of: call.Text(partition),
		}
		must(t, c.Each(t.Context(), q, func(it call.Item) (bool, error) {
			t.Errorf("the table %s has %v", table, it)
			return true, nil
		}))
	}
}

// TestPurgeChat_may_end_anywhere: a call dies before one of its writes. Later calls of another
// process remove what is left, with a smaller limit.
func TestPurgeChat_may_end_anywhere(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	for i, death := range []struct{ name, has string }{
		{"before the mentions go", "mention|"},
		{"before the messages go", `{"S":"c1"}`},
		{"before the states go", record.States},
		{"before the pending rows go", record.Pendings},
		{"before the members go", record.Memberships},
	} {
		t.Run(death.name, func(t *testing.T) {
			chat := tidemark.ChatID(fmt.Sprint("c", i))
			agedChat(t, other, chat, 12)
			line := draft(chat, "alice", "line")
			line.Kind = tidemark.KindSystem
			react, pin := draft(chat, "bob", "react"), draft(chat, "alice", "pin")
			react.Kind, react.Content = tidemark.KindReact, ""
			react.Relation = &tidemark.Relation{Sequence: 12, Emoji: "a"}
			pin.Kind, pin.Content, pin.ByBackend = tidemark.KindPin, "", true
			pin.Relation = &tidemark.Relation{Sequence: 12}
			must(t, appendAll(t, other, []tidemark.Draft{line, react, pin}))
			_, err := other.Advance(t.Context(), []storage.Advance{
				{User: "alice", Chat: chat, Raise: tidemark.Raise{Acked: 9}, Now: longAgo},
			})
			must(t, err)
			_, err = other.Mark(t.Context(), []tidemark.PendingDelivery{
				{UserID: "bob", ChatID: chat, FirstUndelivered: 1},
			})
			must(t, err)
			deleteChat(t, other, chat,
				storage.Deleted{Head: 15, Version: 2, At: time.UnixMilli(9)})
			ctx := die(t, w, trap{operation: "BatchWriteItem", has: death.has})
			if _, _, err := author.PurgeChat(ctx, chat, 500, true); err == nil {
				t.Fatal("the call did not die")
			}
			purge(t, other, chat)
			wantNothing(t, other, chat, "alice", "bob")
		})
	}
}

// If the answer of the step is lost, the chat is deleted once.
func TestDeleteChat_whose_answer_is_lost(t *testing.T) {
	t.Parallel()
	s, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	send(t, other, "c", "anna", "k", 1)
	w.set(t, trap{operation: "TransactWriteItems", has: "deleted_at", lose: true})
	want := storage.Deleted{Head: 1, Version: 2, At: time.UnixMilli(9)}
	deleteChat(t, s, "c", want)
	deleteChat(t, other, "c", want)
}

// A message that another process stores first is below the floor.
func TestDeleteChat_beside_a_message(t *testing.T) {
	t.Parallel()
	s, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	send(t, other, "c", "anna", "first", 1)
	w.set(t, trap{
		operation: "TransactWriteItems", has: "deleted_at",
		before: func() { send(t, other, "c", "anna", "second", 2) },
	})
	deleteChat(t, s, "c", storage.Deleted{Head: 2, Version: 2, At: time.UnixMilli(9)})
	_, err := storage.AppendOne(t.Context(), other, draft("c", "anna", "third"))
	if !storage.IsDeletion(err) {
		t.Errorf("a message that is too late: %v", err)
	}
	wantKept(t, s, "c", 3, 2)
}

// A process that does not know of the deletion repeats a send. The message is young and still
// stored, so nothing but the state of the chat says that it is gone.
func TestAppend_of_a_process_that_does_not_know_of_the_deletion(t *testing.T) {
	url := newTables(t)
	s, other := openTest(t, url), openTest(t, url)
	createGroup(t, s, "c", "anna")
	sent := draft("c", "anna", "k")
	sent.CreatedAt = time.Now()
	_, err := storage.AppendOne(t.Context(), s, sent)
	must(t, err)
	deleteChat(t, other, "c", storage.Deleted{Head: 1, Version: 2, At: time.UnixMilli(9)})
	got, err := storage.AppendOne(t.Context(), s, sent)
	if !storage.IsDeletion(err) {
		t.Errorf("the repeated send: %+v, %v, want that the chat was deleted", got, err)
	}
}

// A hold of the last moment keeps the chat.
func TestDeleteChat_beside_a_hold(t *testing.T) {
	t.Parallel()
	s, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	on := true
	w.set(t, trap{
		operation: "TransactWriteItems", has: "deleted_at",
		before: func() {
			_, err := other.UpdateChat(context.WithoutCancel(t.Context()), "c",
				storage.ChatChange{Hold: &on})
			if err != nil {
				t.Error(err)
			}
		},
	})
	_, err := s.DeleteChat(t.Context(), "c", time.UnixMilli(9))
	if tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("DeleteChat: %v, want Conflict", err)
	}
	send(t, s, "c", "anna", "first", 1)
}

// While many members are added, another process deletes the chat. Nobody is a member then, and the
// purge finds what was written for them.
func TestDeleteChat_beside_a_change_of_many_members(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	users := usersFrom(crowd, "u")
	for i, tc := range []struct {
		at      trap
		version uint64 // of the chat that was deleted
	}{
		{trap{operation: "UpdateItem", has: "next_role"}, 2},
		{trap{operation: "UpdateItem", has: "change_head = head"}, 2},
		{trap{operation: "TransactWriteItems", has: "chat_memberships"}, 3},
	} {
		chat := tidemark.ChatID(fmt.Sprint("c", i))
		createGroup(t, other, chat, "anna")
		tc.at.before = func() {
			deleteChat(t, other, chat,
				storage.Deleted{Version: tc.version, At: time.UnixMilli(9)})
		}
		w.set(t, tc.at)
		_, err := author.AddMembers(t.Context(), chat, users, tidemark.Ordinary, time.UnixMilli(2))
		if code := tidemark.CodeOf(err); code != "" && code != tidemark.NotFound {
			t.Errorf("%s: the members were added with the error %v", tc.at.has, err)
		}
		rosters, err := other.Rosters(t.Context(), []tidemark.ChatID{chat})
		must(t, err)
		if r := rosters[0]; r.Version != tc.version || len(r.Members) > 0 {
			t.Errorf("%s: a roster of version %d has %d members, want %d and none",
				tc.at.has, r.Version, len(r.Members), tc.version)
		}
		list, _, err := other.ChatsOf(t.Context(), users[1], storage.ChatsPage{Limit: 5})
		must(t, err)
		if len(list) > 0 {
			t.Errorf("%s: a user has the chats %+v", tc.at.has, list)
		}
		purge(t, other, chat)
		wantNothing(t, other, chat, append(users, "anna")...)
	}
}

// A process goes by the head that it knows, and so it may take an acknowledgement after the
// deletion. The purge removes it. From the read of the chat on, the process knows better. A late
// message of the chat changes nothing then.
func TestAdvance_of_a_process_that_does_not_know_of_the_deletion(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	s, other := openTest(t, url), openTest(t, url)
	createGroup(t, s, "c", "anna", "bert")
	send(t, s, "c", "anna", "k", 1)
	messages, err := s.Ranges(t.Context(), []storage.Range{{Chat: "c", Limit: 1}})
	must(t, err)
	advance := []storage.Advance{
		{User: "bert", Chat: "c", Raise: tidemark.Raise{Acked: 1}, Now: time.UnixMilli(5)},
	}
	deleteChat(t, other, "c", storage.Deleted{Head: 1, Version: 2, At: time.UnixMilli(9)})
	_, err = s.Advance(t.Context(), advance)
	must(t, err)
	purge(t, other, "c")
	wantNothing(t, other, "c", "anna", "bert")
	_, err = s.Chat(t.Context(), "c")
	must(t, err)
	s.Observe(&messages[0][0])
	advanced, err := s.Advance(t.Context(), advance)
	must(t, err)
	if !storage.IsDeletion(advanced[0].Err) {
		t.Errorf("Advance: %v, want that the chat was deleted", advanced[0].Err)
	}
	wantNothing(t, other, "c", "bert")
}
