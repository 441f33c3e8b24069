package dynamodb

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A message that must exist and is not returned ends the page before it, in both directions. If the
// next look finds it, the page continues.
func TestRanges_hole(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	_, err := other.Append(t.Context(), drafts("c", "anna", 6, "text"))
	must(t, err)
	for _, tc := range []struct {
		name   string
		r      storage.Range
		at     int // the missing message of the answer
		always bool
		want   []tidemark.Sequence
	}{
		{
			"seen at the second look",
			storage.Range{After: 1, Limit: 4}, 1, false, []tidemark.Sequence{2, 3, 4, 5},
		},
		{
			"first one, seen at the second look",
			storage.Range{After: 1, Limit: 4}, 0, false, []tidemark.Sequence{2, 3, 4, 5},
		},
		{
			"backwards, seen at the second look",
			storage.Range{Before: 7, Limit: 4}, 1, false, []tidemark.Sequence{3, 4, 5, 6},
		},
		{"never seen", storage.Range{After: 1, Limit: 4}, 2, true, []tidemark.Sequence{2, 3}},
		{"first one, never seen", storage.Range{After: 1, Limit: 4}, 0, true, nil},
		{
			"backwards, never seen",
			storage.Range{Before: 7, Limit: 4}, 2, true, []tidemark.Sequence{5, 6},
		},
	} {
		without := func(missing int) func([]any) []any {
			return func(items []any) []any { return slices.Delete(items, missing, missing+1) }
		}
		w.set(t, trap{operation: "Query", edit: without(tc.at)})
		for range looks {
			if tc.always { // The next read begins at the hole.
				w.set(t, trap{operation: "Query", edit: without(0)})
			}
		}
		tc.r.Chat = "c"
		pages, err := one.Ranges(t.Context(), []storage.Range{tc.r})
		if tc.want == nil {
			if tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Errorf("%s: %v, %v; want Unavailable", tc.name, pages, err)
			}
			continue
		}
		must(t, err)
		var got []tidemark.Sequence
		for _, m := range pages[0] {
			got = append(got, m.Sequence)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// The emulator has no stale reads. So this test checks which reads ask for strong consistency.
func TestReads_strong_where_the_contract_demands_it(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	createGroup(t, other, "d", usersFrom(3, "u")...)
	send(t, other, "c", "bob", "b", 1)
	for name, do := range map[string]func() error{
		"Chat": func() error { _, err := one.Chat(t.Context(), "c"); return err },
		"Heads": func() error {
			_, err := one.Heads(t.Context(), []tidemark.ChatID{"c", "d"})
			return err
		},
		"Rosters": func() error {
			_, err := one.Rosters(t.Context(), []tidemark.ChatID{"c"})
			return err
		},
		"Ranges": func() error {
			_, err := one.Ranges(t.Context(), []storage.Range{{Chat: "c", Limit: 9}})
			return err
		},
		"Append": func() error {
			_, err := one.Append(t.Context(), drafts("c", "stranger", 1, "x"))
			return err
		},
		"Advance": func() error {
			_, err := one.Advance(t.Context(), []storage.Advance{
				{User: "anna", Chat: "c", Raise: tidemark.Raise{Acked: 9}, Now: time.UnixMilli(7)},
			})
			return err
		},
		"States": func() error {
			_, err := one.States(t.Context(), []storage.StateKey{{User: "anna", Chat: "c"}})
			return err
		},
		"Mark": func() error {
			_, err := one.Mark(t.Context(), []tidemark.PendingDelivery{
				{UserID: "anna", ChatID: "c", FirstUndelivered: 1},
			})
			return err
		},
		"Clear": func() error {
			_, err := one.Clear(t.Context(), []storage.Clear{{User: "anna", Chat: "d", Through: 1}})
			return err
		},
		"PendingOf": func() error {
			_, _, err := one.PendingOf(t.Context(), "anna", "", 9)
			return err
		},
		"Behind": func() error {
			_, _, _, err := one.Behind(t.Context(), "anna", storage.BehindQuery{Limit: 9})
			return err
		},
		"Sent": func() error {
			_, found, err := one.Sent(t.Context(), storage.SendKey{
				Chat: "c", Sender: "bob", ClientMessageID: "b",
			})
			if err == nil && !found {
				t.Error("Sent found nothing")
			}
			return err
		},
		"AddMembers": func() error {
			_, err := one.AddMembers(t.Context(), "c", usersFrom(1, "n"), tidemark.Ordinary,
				time.UnixMilli(7))
			return err
		},
		"RemoveMember": func() error {
			_, err := one.RemoveMember(t.Context(), "d", "u00001", time.UnixMilli(7))
			return err
		},
		"UpdateMember": func() error {
			_, err := one.UpdateMember(t.Context(), "d", "u00002",
				storage.MemberChange{Role: tidemark.Owner})
			if err == nil {
				_, err = one.UpdateMember(t.Context(), "d", "u00002",
					storage.MemberChange{Role: tidemark.Reader})
			}
			return err
		},
		"Backlogs": func() error {
			_, _, err := one.Backlogs(t.Context(), all("hook", 9))
			return err
		},
		"Backlogs of one chat": func() error {
			_, _, err := one.Backlogs(t.Context(),
				storage.BacklogQuery{Chats: []tidemark.ChatID{"c"}})
			return err
		},
		"Rewind": func() error {
			return one.Rewind(t.Context(), []storage.Backlog{{Outlet: "hook", Chat: "c"}})
		},
		"Settle": func() error {
			_, err := one.Settle(t.Context(), []storage.Settlement{
				{Backlog: storage.Backlog{Chat: "c"}},
				{Backlog: storage.Backlog{Outlet: "hook", Chat: "c"}},
			})
			return err
		},
		"EachChat": func() error {
			_, _, _, err := one.EachChat(t.Context(), "", 9)
			return err
		},
		"UsersNamed": func() error {
			for table := range traces {
				_, _, _, err := one.UsersNamed(t.Context(), tracePlace{Table: table}.text(), 9)
				if err != nil {
					return err
				}
			}
			return nil
		},
		"MembersSince": func() error {
			_, _, err := one.MembersSince(t.Context(), storage.MembersQuery{Chat: "c", Limit: 9})
			return err
		},
		"Documents": func() error {
			_, _, err := one.Documents(t.Context(), "kind", "", 9)
			return err
		},
	} {
		must(t, do())
		w.mu.Lock()
		for _, weak := range w.weak {
			t.Errorf("%s has read %s", name, weak)
		}
		w.weak = nil
		w.mu.Unlock()
	}
}

func TestRanges_end_with_their_bytes(t *testing.T) {
	t.Parallel()
	s := openTest(t, newTables(t))
	createGroup(t, s, "c", "anna")
	_, err := s.Append(t.Context(), drafts("c", "anna", 4, "text"))
	must(t, err)
	pages, err := s.Ranges(t.Context(), []storage.Range{
		{Chat: "c", Limit: 9, MaxBytes: 1}, {Chat: "c", Limit: 9, MaxBytes: 8},
	})
	must(t, err)
	if len(pages[0]) != 1 || len(pages[1]) != 2 {
		t.Errorf("%d and %d messages, want 1 and 2", len(pages[0]), len(pages[1]))
	}
}
