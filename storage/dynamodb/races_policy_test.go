package dynamodb

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// A policy that changes between the read of it and the step that adds members holds for them, too:
// for few, and for more than fit into a transaction.
func TestRace_shown_within_real_policy_while_users_join(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	for name, tc := range map[string]struct {
		n    int
		trap trap
	}{
		"few": {1, trap{operation: "TransactWriteItems", has: "chat_memberships"}},
		// The membership is prepared, and the state is not there yet.
		"many":      {60, trap{operation: "UpdateItem", has: "member_change"}},
		"many last": {60, trap{operation: "UpdateItem", has: "change_version"}},
	} {
		chat := tidemark.ChatID(strings.ReplaceAll(name, " ", "-"))
		createGroup(t, other, chat, "anna")
		change := func(policy tidemark.ReceiptsPolicy) {
			_, err := other.UpdateChat(t.Context(), chat, storage.ChatChange{Receipts: &policy})
			must(t, err)
		}
		change(tidemark.ReceiptsRequired)
		users := make([]tidemark.UserID, tc.n)
		keys := make([]storage.StateKey, tc.n)
		for i := range users {
			users[i] = tidemark.UserID(fmt.Sprintf("u%02d", i))
			keys[i] = storage.StateKey{User: users[i], Chat: chat}
		}
		tc.trap.before = func() { change(tidemark.ReceiptsNever) }
		w.set(t, tc.trap)
		add(t, one, chat, users...)
		states, err := one.States(t.Context(), keys)
		must(t, err)
		for _, st := range states {
			if !st.Hides {
				t.Errorf("%s: what %s reads is shown", name, st.UserID)
			}
		}
	}
}

// A raise that starts from an older policy is written under the one that holds.
func TestRace_shown_within_real_raise_beside_a_policy(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	send(t, other, "c", "anna", "a", 1)
	w.set(t, trap{operation: "UpdateItem", has: "last_read_sequence", before: func() {
		policy := tidemark.ReceiptsNever
		_, err := other.UpdateChat(t.Context(), "c", storage.ChatChange{Receipts: &policy})
		must(t, err)
	}})
	advanced, err := one.Advance(t.Context(), []storage.Advance{{
		User: "bob", Chat: "c", Raise: tidemark.Raise{Read: 1}, Now: time.UnixMilli(9),
	}})
	must(t, err)
	if st := advanced[0].State; st.Read != 1 || st.ShownRead() != 0 {
		t.Errorf("bob read %d and shows %d, want 1 and 0", st.Read, st.ShownRead())
	}
}

// A call that adds members may die when it has written the state of one of them, with the policy of
// that time. Another call that adds them finds the state, also if it is written late.
func TestRace_shown_within_real_policy_in_a_state_that_was_left(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	for name, tc := range map[string]struct {
		n    int
		trap trap
	}{
		"few":      {1, trap{}},
		"few late": {1, trap{operation: "TransactWriteItems", has: "chat_memberships"}},
		"many":     {60, trap{}},
		// The call has read the states that there are.
		"many late": {60, trap{operation: "UpdateItem", has: "next_change"}},
	} {
		chat := tidemark.ChatID(strings.ReplaceAll(name, " ", "-"))
		createGroup(t, other, chat, "anna")
		for _, policy := range []tidemark.ReceiptsPolicy{
			tidemark.ReceiptsRequired, tidemark.ReceiptsNever,
		} {
			_, err := other.UpdateChat(t.Context(), chat, storage.ChatChange{Receipts: &policy})
			must(t, err)
		}
		users := make([]tidemark.UserID, tc.n)
		for i := range users {
			users[i] = tidemark.UserID(fmt.Sprintf("u%02d", i))
		}
		last := users[len(users)-1]
		leave := func() {
			c, ctx, left, err := other.enter(t.Context(), "test", 0)
			must(t, err)
			defer left()
			_, _, _, err = c.Update(ctx, call.Update{
				Table: record.States, Key: record.StateKey(last, chat),
				Change: "SET receipts_policy = :number",
				Values: call.Item{":number": call.Number(1)},
			})
			must(t, err)
		}
		if tc.trap.before = leave; tc.trap.operation == "" {
			leave()
		} else {
			w.set(t, tc.trap)
		}
		add(t, one, chat, users...)
		states, err := one.States(t.Context(), []storage.StateKey{{User: last, Chat: chat}})
		must(t, err)
		if !states[0].Hides {
			t.Errorf("%s: what %s reads is shown", name, last)
		}
	}
}
