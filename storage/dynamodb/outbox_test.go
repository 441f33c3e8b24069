package dynamodb

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

// backlogOf returns the backlog of a chat for an outlet, nil if there is none.
func backlogOf(
	t *testing.T, s *Store, outlet storage.OutletID, chat tidemark.ChatID,
) *storage.Backlog {
	t.Helper()
	found, _, err := s.Backlogs(t.Context(),
		storage.BacklogQuery{Outlet: outlet, Chats: []tidemark.ChatID{chat}})
	must(t, err)
	if len(found) == 0 {
		return nil
	}
	return &found[0]
}

// end returns the position of all news of a chat.
func end(t *testing.T, s *Store, chat tidemark.ChatID) storage.Position {
	t.Helper()
	c, err := s.Chat(t.Context(), chat)
	must(t, err)
	return storage.PositionOf(&c)
}

// settle settles a backlog, and demands whether it was the one that was read.
func settle(t *testing.T, s *Store, item storage.Settlement, want bool) {
	t.Helper()
	settled, err := s.Settle(t.Context(), []storage.Settlement{item})
	must(t, err)
	if settled[0] != want {
		t.Errorf("settled: %v, want %v", settled[0], want)
	}
}

func rewind(t *testing.T, s *Store, chat tidemark.ChatID, from storage.Position) {
	t.Helper()
	must(t, s.Rewind(t.Context(), []storage.Backlog{{Outlet: "hook", Chat: chat, From: from}}))
}

// wantBacklog demands where a backlog begins.
func wantBacklog(
	t *testing.T, s *Store, outlet storage.OutletID, chat tidemark.ChatID, from storage.Position,
) {
	t.Helper()
	got := backlogOf(t, s, outlet, chat)
	if got == nil || got.From != from {
		t.Errorf("the backlog of %s for %q is %+v, want one from %+v", chat, outlet, got, from)
	}
}

// News that come between the reads and the write of Settle keep the backlog open (R_CLEAR). So does
// another worker's part, which also keeps its split.
func TestOutbox_told_or_owed_beside_another_process(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	for i, outlet := range []storage.OutletID{storage.AllOutlets, "hook"} {
		for name, step := range map[string]func(chat tidemark.ChatID){
			"a message": func(c tidemark.ChatID) { send(t, other, c, "anna", "late", 3) },
			"a member":  func(c tidemark.ChatID) { add(t, other, c, "carl") },
			"a name": func(c tidemark.ChatID) {
				name := "new"
				_, err := other.UpdateChat(t.Context(), c, storage.ChatChange{Name: &name})
				must(t, err)
			},
		} {
			chat := tidemark.ChatID(fmt.Sprint("c", i, "-", strings.ReplaceAll(name, " ", "-")))
			createGroup(t, other, chat, "anna")
			send(t, other, chat, "anna", "a", 1)
			send(t, other, chat, "anna", "b", 2)
			rewind(t, other, chat, storage.Position{})
			at := trap{operation: "UpdateItem", has: "REMOVE outbox_shard"}
			if outlet != storage.AllOutlets {
				at = trap{operation: "TransactWriteItems", has: "outlet_backlogs"}
			}
			at.before = func() { step(chat) }
			w.set(t, at)
			to := end(t, other, chat)
			settle(t, one,
				storage.Settlement{Backlog: *backlogOf(t, other, outlet, chat), To: to}, true)
			wantBacklog(t, other, outlet, chat, to)
		}
	}

	createGroup(t, other, "d", "anna")
	send(t, other, "d", "anna", "a", 1)
	send(t, other, "d", "anna", "b", 2)
	for n := range tidemark.Sequence(2) {
		read := *backlogOf(t, other, storage.AllOutlets, "d")
		part := storage.Position{Sequence: n, Members: 1, Version: 1}
		w.set(t, trap{operation: "UpdateItem", has: "REMOVE outbox_shard", before: func() {
			settle(t, other, storage.Settlement{Backlog: read, To: part, NowSplit: true}, true)
		}})
		settle(t, one, storage.Settlement{Backlog: read, To: end(t, other, "d")}, false)
		wantBacklog(t, other, storage.AllOutlets, "d", part)
		if !backlogOf(t, other, storage.AllOutlets, "d").Split {
			t.Error("the other worker's split is gone")
		}
	}
}

// Rewind beside another Rewind, and beside a Settle that closes the backlog.
func TestOutbox_rewind_beside_another_process(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	for n := range 5 {
		send(t, other, "c", "anna", fmt.Sprint("k", n), tidemark.Sequence(n+1))
	}
	at := func(n tidemark.Sequence) storage.Position {
		return storage.Position{Sequence: n, Members: 1, Version: 1}
	}
	rewind(t, other, "c", at(4))
	now := trap{operation: "UpdateItem", has: "outlet_backlogs"}
	now.before = func() { rewind(t, other, "c", at(2)) }
	w.set(t, now)
	rewind(t, one, "c", at(3))
	wantBacklog(t, other, "hook", "c", at(2))
	now.before = func() {
		settle(t, other, storage.Settlement{
			Backlog: *backlogOf(t, other, "hook", "c"), To: end(t, other, "c"),
		}, true)
	}
	w.set(t, now)
	rewind(t, one, "c", at(3))
	wantBacklog(t, other, "hook", "c", at(3))
}

// What a method does without an answer is done once, and a result never says more than is true.
func TestOutbox_whose_answers_are_lost(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	send(t, other, "c", "anna", "a", 1)
	w.set(t, trap{operation: "UpdateItem", has: "outlet_backlogs", lose: true})
	rewind(t, one, "c", storage.Position{})
	wantBacklog(t, other, "hook", "c", storage.Position{})
	for outlet, at := range map[storage.OutletID]trap{
		storage.AllOutlets: {operation: "UpdateItem", has: "REMOVE outbox_shard", lose: true},
		"hook":             {operation: "TransactWriteItems", has: "outlet_backlogs", lose: true},
	} {
		item := storage.Settlement{
			Backlog: *backlogOf(t, other, outlet, "c"), To: end(t, other, "c"),
		}
		w.set(t, at)
		settle(t, one, item, false)
		if left := backlogOf(t, other, outlet, "c"); left != nil {
			t.Errorf("the backlog for %q is %+v, want it settled", outlet, left)
		}
	}

	d := storage.Document{Kind: "k", Name: "n", Value: []byte(`1`)}
	w.set(t, trap{operation: "UpdateItem", has: "documents", lose: true})
	if _, err := one.PutDocument(t.Context(), d); tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("PutDocument: %v, want Conflict", err)
	}
	d.Version = 1
	want := []storage.Document{d}
	if got, _, err := other.Documents(t.Context(), "k", "", 9); err != nil ||
		!cmp.Equal(want, got) {
		t.Errorf("the documents are %+v, %v, want %+v", got, err, want)
	}
}

// The index follows the table late. A backlog that was settled is left out, and a page is full all
// the same.
func TestBacklogs_of_an_index_that_is_late(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	shard := storage.ShardOf("c0")
	var open []tidemark.ChatID
	for n := 0; len(open) < 3; n++ {
		if c := tidemark.ChatID(fmt.Sprint("c", n)); storage.ShardOf(c) == shard {
			createGroup(t, other, c, "anna")
			open = append(open, c)
		}
	}
	slices.Sort(open)
	gone := open[0]
	settle(t, other, storage.Settlement{
		Backlog: *backlogOf(t, other, "", gone), To: end(t, other, gone),
	}, true)
	w.set(t, trap{operation: "Query", has: "outbox_shard", edit: func(items []any) []any {
		text := func(s string) any { return map[string]any{"S": s} }
		old := map[string]any{
			"chat_id": text(string(gone)), "outbox_shard": text(record.Shard(shard)),
		}
		return append([]any{old}, items[:len(items)-1]...)
	}})
	q := storage.BacklogQuery{Shards: []int{shard}, Limit: 1}
	found, more, err := one.Backlogs(t.Context(), q)
	if err != nil || len(found) != 1 || found[0].Chat != open[1] || !more {
		t.Errorf("the first page is %+v, %v, %v, want %s and more", found, more, err, open[1])
	}
	w.set(t, trap{operation: "Query", has: "outbox_shard", edit: func([]any) []any { return nil }})
	if found, more, err = one.Backlogs(t.Context(), q); err != nil || len(found) > 0 || more {
		t.Errorf("of an empty index: %+v, %v, %v", found, more, err)
	}
}

// A large change makes news when it takes effect, whether or not it is settled. One that is only
// prepared makes none.
func TestOutbox_of_a_large_change(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	users := usersFrom(crowd, "u")
	for i, tc := range deaths {
		t.Run(tc.name, func(t *testing.T) {
			chat := tidemark.ChatID(fmt.Sprint("c", i))
			createGroup(t, other, chat, "anna", users[0])
			remove(t, other, chat, users[0])
			before := end(t, other, chat)
			settle(t, other,
				storage.Settlement{Backlog: *backlogOf(t, other, "", chat), To: before}, true)
			ctx := die(t, w, tc.at)
			_, err := author.AddMembers(ctx, chat, users, tidemark.Ordinary, time.UnixMilli(5))
			if tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Fatalf("the author did not die: %v", err)
			}
			if !tc.effect {
				if left := backlogOf(t, other, "", chat); left != nil {
					t.Errorf("the backlog is %+v, want none", left)
				}
			} else {
				wantBacklog(t, other, "", chat, before)
			}
			for since, want := range map[uint64]int{
				0: map[bool]int{false: 2, true: crowd + 1}[tc.effect],
				2: map[bool]int{false: 0, true: crowd}[tc.effect],
				3: 0,
			} {
				changed, more, err := other.MembersSince(t.Context(),
					storage.MembersQuery{Chat: chat, Since: since, Limit: 2 * crowd})
				if err != nil || more || len(changed) != want {
					t.Errorf("%d members have changed since %d, %v, %v, want %d",
						len(changed), since, more, err, want)
				}
				for _, m := range changed {
					if since == 2 && (m.Version != 3 || !m.Intervals.Open()) {
						t.Errorf("%s changed at %d: %+v, want a member at 3",
							m.UserID, m.Version, m.Member)
					}
				}
			}
		})
	}
}

// The first step of a chat of an older program opens its backlog from the beginning. Until then the
// chat has none.
func TestOutbox_of_a_chat_of_an_older_program(t *testing.T) {
	t.Parallel()
	s := openTest(t, newTables(t))
	createGroup(t, s, "c", "anna")
	send(t, s, "c", "anna", "a", 1)
	change(t, s, call.Update{
		Table: record.Counters, Key: record.ChatKey("c"), Change: "REMOVE outbox_shard",
	})
	if b := backlogOf(t, s, "", "c"); b != nil {
		t.Errorf("the backlog is %+v, want none", b)
	}
	send(t, s, "c", "anna", "b", 2)
	wantBacklog(t, s, "", "c", storage.Position{})
}

// TestFrozen_v1_has_no_backlogs: the chats of version 1 are there, and have a backlog after their
// next step.
func TestFrozen_v1_has_no_backlogs(t *testing.T) {
	url := service.Shared(t).Store(t)
	loadFrozen(t, url)
	s := openTest(t, url)
	found, more, err := s.Backlogs(t.Context(), all("", 100))
	if err != nil || len(found) > 0 || more {
		t.Errorf("the backlogs are %+v, %v, %v, want none", found, more, err)
	}
	chats, _, more, err := s.EachChat(t.Context(), "", 1_000)
	if err != nil || more || len(chats) < 5 || !slices.Contains(chats, "group") {
		t.Fatalf("the chats are %q, %v, %v", chats, more, err)
	}
	for _, chat := range chats {
		before := end(t, s, chat)
		name := "renamed"
		_, err := s.UpdateChat(t.Context(), chat, storage.ChatChange{Name: &name})
		must(t, err)
		wantBacklog(t, s, "", chat, storage.Position{})
		settle(t, s,
			storage.Settlement{Backlog: *backlogOf(t, s, "", chat), To: before}, true)
		wantBacklog(t, s, "", chat, before)
		changed, _, err := s.MembersSince(t.Context(),
			storage.MembersQuery{Chat: chat, Limit: 10})
		if err != nil || len(changed) == 0 || changed[0].Version == 0 {
			t.Errorf("the members of %s are %+v, %v", chat, changed, err)
		}
	}
}

// Documents of 256 KiB each are more than a page of DynamoDB.
func TestDocuments_more_than_a_page(t *testing.T) {
	t.Parallel()
	s := openTest(t, newTables(t))
	const n = 9
	value := []byte(`"` + strings.Repeat("x", storage.MaxDocument-2) + `"`)
	for i := range n {
		_, err := s.PutDocument(t.Context(),
			storage.Document{Kind: "k", Name: fmt.Sprint("d", i), Value: value})
		must(t, err)
	}
	found, more, err := s.Documents(t.Context(), "k", "", n)
	if err != nil || more || len(found) != n {
		t.Errorf("there are %d documents, %v, %v, want %d", len(found), more, err, n)
	}
}

// EachChat leaves out items that are no chats: a direct chat's pair, metadata, the schema, and a
// chat that is only prepared.
func TestEachChat_returns_only_chats(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	_, _, err := other.CreateChat(t.Context(), storage.NewChat{
		ID: "direct", Type: tidemark.Direct, Members: []tidemark.UserID{"anna", "bob"},
		Metadata: []byte(`{"a":1}`),
	})
	must(t, err)
	ctx := die(t, w, trap{operation: "PutItem", has: "chat_counters"})
	_, _, err = author.CreateChat(ctx, storage.NewChat{
		ID: "prepared", Type: tidemark.Group, History: tidemark.HistoryFull, Creator: "u00000",
		Members: usersFrom(crowd, "u"), CreatedAt: time.UnixMilli(1),
	})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Fatalf("the author did not die: %v", err)
	}
	var chats []tidemark.ChatID
	for after, more := tidemark.ChatID(""), true; more; {
		var page []tidemark.ChatID
		page, after, more, err = other.EachChat(t.Context(), after, 1)
		must(t, err)
		chats = append(chats, page...)
	}
	if !slices.Equal(chats, []tidemark.ChatID{"direct"}) {
		t.Errorf("the chats are %q, want the direct one", chats)
	}
}
