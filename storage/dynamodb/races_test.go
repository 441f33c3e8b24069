package dynamodb

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// These tests make another process write at the worst moment: between a read and the write that
// relies on it.

const appendsOne = "idempotency_keys" // only in a transaction that appends

func add(t *testing.T, s *Store, chat tidemark.ChatID, users ...tidemark.UserID) storage.Added {
	t.Helper()
	added, err := s.AddMembers(t.Context(), chat, users, tidemark.Ordinary, time.UnixMilli(5))
	if err != nil {
		t.Errorf("AddMembers of %v: %v", users, err)
	}
	return added
}

func remove(t *testing.T, s *Store, chat tidemark.ChatID, user tidemark.UserID) {
	t.Helper()
	if _, err := s.RemoveMember(t.Context(), chat, user, time.UnixMilli(6)); err != nil {
		t.Errorf("RemoveMember of %s: %v", user, err)
	}
}

// contents returns the client message ids of a chat, in its order.
func contents(t *testing.T, s *Store, chat tidemark.ChatID) (keys []string) {
	t.Helper()
	pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: chat, Limit: 200}})
	must(t, err)
	for i, m := range pages[0] {
		if m.Sequence != tidemark.Sequence(i+1) {
			t.Errorf("message %d is in place %d", m.Sequence, i+1)
		}
		keys = append(keys, m.ClientMessageID)
	}
	return keys
}

func TestRace_append_beside_another_process(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	for i, tc := range []struct {
		name    string
		senders []tidemark.UserID
		before  func(chat tidemark.ChatID)
		codes   []tidemark.Code // "" is stored
		want    []string
	}{
		{
			"appends another message",
			[]tidemark.UserID{"anna"},
			func(chat tidemark.ChatID) { send(t, other, chat, "bob", "b1", 2) },
			[]tidemark.Code{""}, []string{"first", "b1", "k0"},
		},
		{
			"appends the same message",
			[]tidemark.UserID{"anna"},
			func(chat tidemark.ChatID) { send(t, other, chat, "anna", "k0", 2) },
			[]tidemark.Code{""}, []string{"first", "k0"},
		},
		{
			"removes the sender",
			[]tidemark.UserID{"anna", "bob"},
			func(chat tidemark.ChatID) { remove(t, other, chat, "anna") },
			[]tidemark.Code{tidemark.NotMember, ""}, []string{"first", "k1"},
		},
		{
			"adds one who was refused",
			[]tidemark.UserID{"carl", "anna"},
			func(chat tidemark.ChatID) { add(t, other, chat, "carl") }, []tidemark.Code{"", ""},
			[]string{"first", "k0", "k1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chat := tidemark.ChatID(fmt.Sprint("c", i))
			createGroup(t, other, chat, "anna", "bob")
			send(t, one, chat, "anna", "first", 1)
			w.set(t, trap{
				operation: "TransactWriteItems",
				has:       appendsOne,
				before:    func() { tc.before(chat) },
			})
			var all []tidemark.Draft
			for n, sender := range tc.senders {
				all = append(all, draft(chat, sender, fmt.Sprint("k", n)))
			}
			got, err := one.Append(t.Context(), all)
			must(t, err)
			for n := range got {
				if code := tidemark.CodeOf(got[n].Err); got[n].Err != nil && code != tc.codes[n] ||
					got[n].Err == nil && tc.codes[n] != "" {
					t.Errorf("draft %d: error %v, want %q", n, got[n].Err, tc.codes[n])
				}
			}
			if diff := cmp.Diff(tc.want, contents(t, other, chat)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A process's remembered view of a chat decides nothing alone, neither a refusal nor an admission.
func TestRace_append_with_an_old_view(t *testing.T) {
	t.Parallel()
	one, _, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	send(t, one, "c", "anna", "a1", 1)
	send(t, one, "c", "bob", "b1", 2)
	remove(t, other, "c", "bob")
	add(t, other, "c", "carl")
	got, err := storage.AppendOne(t.Context(), one, draft("c", "bob", "b2"))
	if tidemark.CodeOf(err) != tidemark.NotMember {
		t.Errorf("the one who was removed: %+v, %v", got, err)
	}
	send(t, one, "c", "carl", "c1", 3)
	if got, err := storage.AppendOne(t.Context(), one, draft("c", "bob", "b1")); err != nil ||
		!got.Duplicate || got.Message.Sequence != 2 {
		t.Errorf("the repeated earlier message: %+v, %v", got, err)
	}
}

// If the answer to a transaction is lost, the repeated call finds its own messages. They are no
// duplicates.
func TestRace_append_whose_answer_is_lost(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	w.set(t, trap{operation: "TransactWriteItems", has: appendsOne, lose: true})
	all := []tidemark.Draft{
		draft("c", "anna", "k1"), draft("c", "anna", "k2"), draft("c", "anna", "k1"),
	}
	got, err := one.Append(t.Context(), all)
	must(t, err)
	for i, want := range []struct {
		sequence  tidemark.Sequence
		duplicate bool
	}{{1, false}, {2, false}, {1, true}} {
		if got[i].Err != nil || got[i].Message.Sequence != want.sequence ||
			got[i].Duplicate != want.duplicate {
			t.Errorf("draft %d: %+v, want %+v", i, got[i], want)
		}
	}
	if diff := cmp.Diff([]string{"k1", "k2"}, contents(t, other, "c")); diff != "" {
		t.Error(diff)
	}
	w.set(t, trap{operation: "TransactWriteItems", has: appendsOne, before: func() {
		send(t, other, "c", "anna", "k3", 3)
	}})
	if again, err := storage.AppendOne(t.Context(), one, draft("c", "anna", "k3")); err != nil ||
		!again.Duplicate {
		t.Errorf("the message that another call stored: %+v, %v; want a duplicate", again, err)
	}
}

// An idempotency key counts until it expires, whether or not DynamoDB has removed the item by then.
// It is kept for a week.
func TestAppend_send_idempotent_until_the_key_expires(t *testing.T) {
	t.Parallel()
	one, _, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	send(t, one, "c", "anna", "k", 1)
	d := draft("c", "anna", "k")
	key := call.Item{"id": call.Text("c|anna|k")}
	it, err := one.caller("test").Get(t.Context(), record.Keys, key)
	must(t, err)
	r := call.Reader{Item: it}
	week := time.Now().Add(7 * 24 * time.Hour).Unix()
	if kept := int64(r.Number("expires_at")); kept < week || kept > week+3*24*3600 {
		t.Errorf("the key is kept until %d, a week is %d", kept, week)
	}
	expire := func(in time.Duration) {
		change(t, other, call.Update{
			Table:  record.Keys,
			Key:    key,
			Change: "SET expires_at = :at",
			Values: call.Item{":at": call.Number(time.Now().Add(in).Unix())},
		})
	}
	expire(time.Minute)
	for _, s := range []*Store{one, other} {
		if got, err := storage.AppendOne(t.Context(), s, d); err != nil || !got.Duplicate {
			t.Errorf("within its time: %+v, %v; want a duplicate", got, err)
		}
	}
	expire(-time.Minute)
	if got, err := storage.AppendOne(t.Context(), one, d); err != nil || got.Duplicate ||
		got.Message.Sequence != 2 {
		t.Errorf("after its time: %+v, %v; want another message", got, err)
	}
	remove(t, other, "c", "anna")
	expire(time.Minute)
	if got, err := storage.AppendOne(t.Context(), one, d); err != nil || !got.Duplicate ||
		got.Message.Sequence != 2 {
		t.Errorf("of one who was removed, within its time: %+v, %v; want a duplicate", got, err)
	}
	expire(-time.Minute)
	got, err := storage.AppendOne(t.Context(), one, d)
	if tidemark.CodeOf(err) != tidemark.NotMember {
		t.Errorf("of one who was removed, after its time: %+v, %v", got, err)
	}
}

func TestRace_advance_watermark_monotonic(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	_, err := other.Append(t.Context(), drafts("c", "bob", 9, "text"))
	must(t, err)
	advance := func(s *Store, raise tidemark.Raise) storage.Advanced {
		got, err := s.Advance(context.WithoutCancel(t.Context()), []storage.Advance{
			{User: "anna", Chat: "c", Raise: raise, Now: time.UnixMilli(7)},
		})
		if err != nil || got[0].Err != nil {
			t.Errorf("Advance to %+v: %v, %v", raise, got, err)
			return storage.Advanced{}
		}
		return got[0]
	}
	for _, tc := range []struct {
		name             string
		raise, meanwhile tidemark.Raise
		acked, read      tidemark.Sequence
		moved            bool
	}{
		{"behind the other", tidemark.Raise{Acked: 2}, tidemark.Raise{Acked: 3}, 3, 0, false},
		{
			"both, behind the other",
			tidemark.Raise{Acked: 4, Read: 2}, tidemark.Raise{Acked: 5, Read: 3}, 5, 3, false,
		},
		{
			"one of two behind the other",
			tidemark.Raise{Acked: 6, Read: 4}, tidemark.Raise{Acked: 5, Read: 5}, 6, 5, true,
		},
		{
			"as far as the other",
			tidemark.Raise{Acked: 7, Read: 6}, tidemark.Raise{Acked: 7, Read: 6}, 7, 6, false,
		},
		{
			"a run behind the other",
			tidemark.Raise{Acked: 8, AckedFrom: 8}, tidemark.Raise{Acked: 9}, 9, 6, false,
		},
		{
			"read within what was acknowledged",
			tidemark.Raise{Read: 8, ReadWithinAcked: true}, tidemark.Raise{Read: 7}, 9, 8, true,
		},
	} {
		w.set(t, trap{
			operation: "UpdateItem",
			has:       "delivery_state",
			before:    func() { advance(other, tc.meanwhile) },
		})
		got := advance(one, tc.raise)
		stored, err := other.States(t.Context(), []storage.StateKey{{User: "anna", Chat: "c"}})
		must(t, err)
		if got.State != stored[0] || got.State.Acked != tc.acked || got.State.Read != tc.read ||
			got.Moved != tc.moved {
			t.Errorf("%s: %+v, stored %+v; want %d and %d, moved %v",
				tc.name, got, stored[0], tc.acked, tc.read, tc.moved)
		}
	}
	// The answer does not come from a process's memory.
	_, err = other.Append(t.Context(), drafts("c", "bob", 12, "text")[9:])
	must(t, err)
	advance(other, tidemark.Raise{Acked: 12})
	if got := advance(one, tidemark.Raise{Acked: 4}); got.State.Acked != 12 || got.Moved {
		t.Errorf("a stale raise: %+v, want the stored 12", got)
	}
	// The remembered head does not refuse anything either.
	_, err = other.Append(t.Context(), drafts("c", "bob", 13, "text")[12:])
	must(t, err)
	if got := advance(one, tidemark.Raise{Acked: 13}); got.State.Acked != 13 {
		t.Errorf("to a head that another process has moved: %+v", got)
	}
	beyond, err := one.Advance(t.Context(), []storage.Advance{
		{User: "anna", Chat: "c", Raise: tidemark.Raise{Read: 14}, Now: time.UnixMilli(7)},
	})
	if err != nil || tidemark.CodeOf(beyond[0].Err) != tidemark.InvalidSequence {
		t.Errorf("beyond the head: %+v, %v", beyond, err)
	}
}

func TestRace_pending_rows(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	key := func(chat tidemark.ChatID) call.Item { return record.PendingKey("anna", chat) }
	put := func(chat tidemark.ChatID, first tidemark.Sequence) {
		change(t, other, call.Update{
			Table:  record.Pendings,
			Key:    key(chat),
			Change: "SET first_undelivered_seq = :f",
			Values: call.Item{":f": call.Number(first)},
		})
	}
	const none = 99
	clear := func(through tidemark.Sequence) func(chat tidemark.ChatID) (bool, error) {
		return func(chat tidemark.ChatID) (bool, error) {
			got, err := one.Clear(t.Context(), []storage.Clear{
				{User: "anna", Chat: chat, Through: through},
			})
			return len(got) == 1 && got[0], err
		}
	}
	mark := func(first tidemark.Sequence) func(chat tidemark.ChatID) (bool, error) {
		return func(chat tidemark.ChatID) (bool, error) {
			got, err := one.Mark(t.Context(), []tidemark.PendingDelivery{
				{UserID: "anna", ChatID: chat, FirstUndelivered: first},
			})
			return len(got) == 1 && got[0], err
		}
	}
	for i, tc := range []struct {
		name      string
		row, head tidemark.Sequence // before; if known, the head is 1 higher
		known     bool              // the store knows the head
		do        func(chat tidemark.ChatID) (bool, error)
		operation string
		meanwhile func(chat tidemark.ChatID)
		want      tidemark.Sequence
		written   bool
	}{
		{
			"R_CLEAR: a message comes",
			2, 3, false, clear(3), "TransactWriteItems",
			func(chat tidemark.ChatID) { send(t, other, chat, "anna", "new", 4) }, 4, true,
		},
		{
			"the row begins later",
			2, 3, false, clear(3), "TransactWriteItems",
			func(chat tidemark.ChatID) { put(chat, 4) }, 4, false,
		},
		{
			"the row stands for a Large chat",
			2, 3, false, clear(3), "TransactWriteItems",
			func(chat tidemark.ChatID) { put(chat, 0) }, 0, false,
		},
		{"the row goes", 2, 3, false, clear(3), "TransactWriteItems", func(chat tidemark.ChatID) {
			_, err := other.Clear(t.Context(),
				[]storage.Clear{{User: "anna", Chat: chat, Through: 3}})
			if err != nil {
				t.Error(err)
			}
		}, none, false},
		{
			"below the head, the row begins later",
			1, 3, true, clear(2), "UpdateItem", func(chat tidemark.ChatID) { put(chat, 3) }, 3,
			false,
		},
		{
			"below the head, the row stands",
			1, 3, true, clear(2), "UpdateItem", func(chat tidemark.ChatID) { put(chat, 0) }, 0,
			false,
		},
		{
			"a lower mark",
			none, 3, false, mark(3), "UpdateItem", func(chat tidemark.ChatID) { put(chat, 2) }, 2,
			false,
		},
		{
			"a higher mark",
			none, 3, false, mark(2), "UpdateItem", func(chat tidemark.ChatID) { put(chat, 3) }, 2,
			true,
		},
		{
			"a mark, and the row stands",
			none, 3, false, mark(2), "UpdateItem", func(chat tidemark.ChatID) { put(chat, 0) }, 0,
			false,
		},
	} {
		chat := tidemark.ChatID(fmt.Sprint("c", i))
		createGroup(t, other, chat, "anna")
		_, err := other.Append(t.Context(), drafts(chat, "anna", int(tc.head), "text"))
		must(t, err)
		if tc.row != none {
			put(chat, tc.row)
		}
		if tc.known {
			_, err := one.Heads(t.Context(), []tidemark.ChatID{chat})
			must(t, err)
		}
		w.set(t, trap{
			operation: tc.operation,
			has:       "pending_deliveries",
			before:    func() { tc.meanwhile(chat) },
		})
		written, err := tc.do(chat)
		it, readErr := other.caller("test").Get(t.Context(), record.Pendings, key(chat))
		must(t, readErr)
		got := tidemark.Sequence(none)
		if found, err := rowOf(it); err == nil && found.stands {
			got = found.first
		}
		if err != nil || got != tc.want || written != tc.written {
			t.Errorf("%s: row %d, written %v, error %v; want %d, %v",
				tc.name, got, written, err, tc.want, tc.written)
		}
	}
}

// Members and their version belong together, although the query and the read of the counter are two
// steps.
func TestRace_members_and_their_version(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	w.set(t, trap{operation: "Query", has: "chat_memberships", before: func() {
		remove(t, other, "c", "anna")
		add(t, other, "c", "carl")
	}})
	rosters, err := one.Rosters(t.Context(), []tidemark.ChatID{"c"})
	must(t, err)
	var users []tidemark.UserID
	for _, m := range rosters[0].Members {
		users = append(users, m.UserID)
	}
	if rosters[0].Version != 3 || !slices.Equal(users, []tidemark.UserID{"bob", "carl"}) {
		t.Errorf("version %d of %v, want 3 of bob and carl", rosters[0].Version, users)
	}
	w.set(t, trap{
		operation: "BatchGetItem",
		has:       "chat_memberships",
		before:    func() { add(t, other, "c", "dora") },
	})
	if added := add(t, one, "c", "dora"); added.Version != 4 || len(added.New) != 0 {
		t.Errorf("a user who was added meanwhile: %+v, want version 4, no new member", added)
	}
	w.set(t, trap{
		operation: "TransactWriteItems",
		has:       "chat_memberships",
		before:    func() { send(t, other, "c", "bob", "b", 1) },
	})
	if added := add(t, one, "c", "emil"); added.Head != 1 || added.Version != 5 {
		t.Errorf("a message came before the step: %+v, want head 1, version 5", added)
	}
	w.set(t, trap{operation: "TransactWriteItems", has: "chat_memberships", lose: true})
	if added := add(t, one, "c", "fritz"); added.Version != 6 ||
		!slices.Equal(added.New, []tidemark.UserID{"fritz"}) {
		t.Errorf("the answer was lost: %+v, want fritz to be new at version 6", added)
	}
	w.set(t, trap{operation: "TransactWriteItems", has: "chat_memberships", lose: true})
	if removed, err := one.RemoveMember(t.Context(), "c", "fritz", time.UnixMilli(8)); err != nil ||
		removed.Version != 7 {
		t.Errorf("the answer was lost: %+v, %v; want version 7", removed, err)
	}
}

// If a caller leaves, the store still appends the caller's messages, and Close waits for that.
func TestClose_waits_for_what_nobody_waits_for(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan struct{})
	w.set(t, trap{operation: "TransactWriteItems", has: appendsOne, before: func() {
		cancel()
		<-held
	}})
	_, err := storage.AppendOne(ctx, one, draft("c", "anna", "k"))
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("the caller who left: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- one.Close() }()
	select {
	case err := <-closed:
		t.Errorf("closed while an append was under way: %v", err)
		closed <- err
	case <-time.After(50 * time.Millisecond):
	}
	close(held)
	must(t, <-closed)
	if diff := cmp.Diff([]string{"k"}, contents(t, other, "c")); diff != "" {
		t.Error(diff)
	}
}
