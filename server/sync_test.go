package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// linesOf returns an answer in short form: a line for each chat.
func linesOf(r server.SyncResponse) []string {
	var lines []string
	for _, c := range r.Chats {
		l := fmt.Sprintf("%s:", c.Chat)
		for _, m := range c.Messages {
			l += fmt.Sprintf(" %d", m.Sequence)
		}
		for _, g := range c.Gaps {
			l += fmt.Sprintf(" gap %d-%d", g.From, g.To)
		}
		if c.HasMore {
			l += " more"
		}
		if c.Reset != "" {
			l += " reset " + string(c.Reset)
		}
		if c.Reset == tidemark.ResetRestored {
			l += fmt.Sprintf(" %d", c.Through)
		}
		if c.Err != nil {
			l += " " + string(tidemark.CodeOf(c.Err))
		}
		lines = append(lines, l)
	}
	if r.HasMore {
		lines = append(lines, "more")
	}
	return lines
}

func TestSync_position_from_watermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		named, unnamed := a.chat("named", "alice", "bob"), a.chat("unnamed", "bob", "carol")
		done, foreign := a.chat("done", "bob", "dave"), a.chat("foreign", "alice", "carol")
		for range 5 {
			a.send("alice", named)
			a.send("carol", unnamed)
			a.send("dave", done)
			a.send("alice", foreign)
		}
		a.ack("bob", unnamed, 2, 0)
		a.ack("bob", done, 5, 0)
		got, err := a.Sync(a.ctx, "bob", server.SyncRequest{
			Limit:   2,
			Cursors: []server.Cursor{{Chat: named, Acked: 1}, {Chat: foreign, Acked: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "answer", linesOf(got),
			"named: 2 3 more", "foreign: NOT_A_MEMBER", "unnamed: 3 4 more", "more")
		w.wantState("a cursor is an acknowledgement", "bob", named, 1, 0)
		w.wantState("but only a member's", "bob", foreign, 0, 0)
		got, err = a.Sync(a.ctx, "bob", server.SyncRequest{
			Limit:   10,
			Cursors: []server.Cursor{{Chat: named, Acked: 3}, {Chat: unnamed, Acked: 4}},
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the rest", linesOf(got), "named: 4 5", "unnamed: 5")
		settle()
	})
}

// A device gives its cursors while its user is no member. When they return, it also gets what
// another device of theirs had acknowledged before.
func TestSync_resume_lossless_cursor_of_a_former_member(t *testing.T) {
	for _, tt := range []struct {
		cursor tidemark.Sequence
		want   []string
	}{
		{1, []string{"message abc 2", "message abc 3", "gap abc 4-4", "message abc 5"}},
		{3, []string{"gap abc 4-4", "message abc 5"}},
		{5, []string{"gap abc 4-4", "message abc 5"}}, // above the head: it counts for nothing
	} {
		for _, at := range []string{
			"the node of the session", "another node", "the node of a session that had them",
		} {
			if tt.cursor == 5 && at == "the node of a session that had them" {
				continue // it sends again what it does not know to be acknowledged
			}
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a, b := w.node("a"), w.node("b")
				asked := map[bool]*core{true: a, false: b}[at == "another node"]
				var bob *client
				chat := a.chat("abc", "alice", "bob", "carol")
				for range 3 {
					a.send("alice", chat)
				}
				if at == "the node of a session that had them" {
					bob = b.open("bob")
					bob.drain()
				}
				a.ack("bob", chat, 3, 0)
				a.remove(chat, "bob")
				a.send("alice", chat)
				if bob == nil {
					bob = b.open("bob")
				}
				bob.drain()
				got, err := asked.Sync(a.ctx, "bob", server.SyncRequest{
					Session: bob.Session(),
					Cursors: []server.Cursor{{Chat: chat, Acked: tt.cursor}},
				})
				if err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("cursor %d at %s", tt.cursor, at)
				want(t, what, linesOf(got), "abc: NOT_A_MEMBER")
				want(t, what, messagesOf(bob.drain()))
				w.wantState(what, "bob", chat, 3, 0)
				a.add(chat, "bob")
				returned := bob.drain()
				a.send("alice", chat)
				want(t, what, messagesOf(append(returned, bob.drain()...)), tt.want...)
				settle()
			})
		}
	}
}

func TestSync_cursor_ahead_is_reset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, other := a.chat("ab", "alice", "bob"), a.chat("bc", "bob", "carol")
		a.send("alice", chat)
		a.send("carol", other)
		r := server.SyncRequest{
			Limit:   10,
			Cursors: []server.Cursor{{Chat: chat, Acked: 9}, {Chat: other}},
		}
		got, err := a.Sync(a.ctx, "bob", r)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "answer", linesOf(got), "ab: reset ahead", "bc: 1")
		w.wantState("a cursor ahead acknowledges nothing", "bob", chat, 0, 0)
		bob := a.open("bob")
		bob.drain()
		r.Session = bob.Session()
		if got, err = a.Sync(a.ctx, "bob", r); err != nil {
			t.Fatal(err)
		}
		want(t, "answer with a session", linesOf(got), "ab: reset ahead")
		lines := bob.drain()
		if len(lines) == 0 || lines[0] != "reset ahead" || lines[len(lines)-1] != "caught_up" {
			t.Errorf("stream: got %v, want a reset first and caught_up last", lines)
		}
		_, err = a.Sync(a.ctx, "alice", r)
		wantCode(t, "another user's session", err, tidemark.Gone)
		r.Session = "AAAAAAAAAAAAAAAAAAAAAA"
		_, err = a.Sync(a.ctx, "bob", r)
		wantCode(t, "no such session", err, tidemark.Gone)
		settle()
	})
}

// TestSync_with_a_session_sets_its_positions: a device that lost its data gets messages again. A
// device that has more skips them.
func TestSync_with_a_session_sets_its_positions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		back, on := a.chat("back", "alice", "bob"), a.chat("on", "bob", "carol")
		unnamed := a.chat("unnamed", "bob", "dave")
		for range 4 {
			a.send("alice", back)
			a.send("carol", on)
			a.send("dave", unnamed)
		}
		a.ack("bob", back, 4, 0)
		a.ack("bob", unnamed, 2, 0)
		bob := a.open("bob")
		events, err := bob.Next(a.ctx, nil, false)
		if err != nil || len(events) != 1 {
			t.Fatalf("got %v, %v, want `open` alone", events, err)
		}
		got, err := a.Sync(a.ctx, "bob", server.SyncRequest{
			Session: bob.Session(),
			Limit:   10,
			Cursors: []server.Cursor{{Chat: back, Acked: 2}, {Chat: on, Acked: 3}},
		})
		if err != nil || len(got.Chats) != 0 {
			t.Fatalf("got %+v, %v, want no chats", got, err)
		}
		lines := bob.drain()
		byChat := map[string][]string{}
		for _, l := range messagesOf(lines) {
			chat := strings.Fields(l)[1]
			byChat[chat] = append(byChat[chat], l)
		}
		wantByChat := map[string][]string{
			"back": {"message back 3", "message back 4"}, "on": {"message on 4"},
			"unnamed": {"message unnamed 3", "message unnamed 4"},
		}
		if diff := cmp.Diff(wantByChat, byChat); diff != "" {
			t.Errorf("stream (-want +got):\n%s", diff)
		}
		w.wantState("a cursor is an acknowledgement", "bob", on, 3, 0)
		settle()
	})
}

// TestSync_resume_lossless_after_a_reset_in_chats_that_are_not_named: a client lost its position
// and what its session had sent. After a sync it gets all of that again, also in a chat that it
// does not know and cannot name.
func TestSync_resume_lossless_after_a_reset_in_chats_that_are_not_named(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		named, unnamed := a.chat("named", "alice", "bob"), a.chat("unnamed", "bob", "carol")
		a.send("alice", named)
		bob := a.open("bob")
		bob.drain()
		bob.Ack(server.Ack{Chat: named, Acked: 1})
		settle()
		a.send("carol", unnamed)
		bob.drain() // sent, and lost with the connection
		bob.Detach()
		again := a.open("bob", resuming(bob.Session(), bob.last+1000))
		again.last = bob.last
		want(t, "again", again.drain()[:2], "open resumed=false", "reset unknown_position")
		r := server.SyncRequest{
			Session: again.Session(),
			Limit:   10,
			Cursors: []server.Cursor{{Chat: named, Acked: 1}},
		}
		if _, err := a.Sync(a.ctx, "bob", r); err != nil {
			t.Fatal(err)
		}
		settle()
		want(t, "after the sync", messagesOf(again.drain()), "message unnamed 1")
	})
}

// TestSync_with_a_session_reconciles_the_chats_that_are_not_named: a sync finds messages of which a
// live session was never notified.
func TestSync_with_a_session_reconciles_the_chats_that_are_not_named(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		w.appendDead("alice", chat, "k")
		r := server.SyncRequest{Session: bob.Session(), Limit: 10}
		if _, err := a.Sync(a.ctx, "bob", r); err != nil {
			t.Fatal(err)
		}
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
	})
}

func TestSync_statuses_and_refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		settle()
		got, err := a.Sync(a.ctx, "bob", server.SyncRequest{Limit: 10, Statuses: true})
		if err != nil || len(got.Statuses) != 1 || got.Statuses[0].UserID != "alice" ||
			got.Statuses[0].Acked != 1 {
			t.Errorf("got statuses %+v, %v, want alice's", got.Statuses, err)
		}
		_, err = a.Sync(a.ctx, "bob", server.SyncRequest{
			Limit:   10,
			Cursors: []server.Cursor{{Chat: chat}, {Chat: chat}},
		})
		wantCode(t, "a chat named twice", err, tidemark.Invalid)
		_, err = a.Sync(a.ctx, "bob", server.SyncRequest{
			Limit:   10,
			Cursors: []server.Cursor{{Chat: "no id"}},
		})
		wantCode(t, "a bad id", err, tidemark.Invalid)
	})
}

func TestHistory_pages_with_gaps_both_ways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		send := func(n int) {
			for range n {
				a.send("alice", chat)
			}
		}
		send(3) // bob sees 1-3, 6-7 and 11-12
		a.remove(chat, "bob")
		send(2)
		a.add(chat, "bob")
		send(2)
		a.remove(chat, "bob")
		send(3)
		a.add(chat, "bob")
		send(2)
		page := func(h server.History) string {
			var b strings.Builder
			for _, m := range h.Messages {
				fmt.Fprintf(&b, "%d ", m.Sequence)
			}
			for _, g := range h.Gaps {
				fmt.Fprintf(&b, "(%d-%d) ", g.From, g.To)
			}
			if h.HasMore {
				fmt.Fprintf(&b, "more %d", h.Next)
			}
			return strings.TrimSpace(b.String())
		}
		type direction func(r *server.HistoryRequest, at tidemark.Sequence)
		all := func(
			limit int, next direction, begin *tidemark.Sequence,
		) (pages []string, seen map[tidemark.Sequence]int) {
			seen = map[tidemark.Sequence]int{}
			r := server.HistoryRequest{Chat: chat, Limit: limit}
			if begin != nil {
				next(&r, *begin)
			}
			for range 20 {
				h, err := a.History(a.ctx, "bob", r)
				if err != nil {
					t.Fatal(err)
				}
				pages = append(pages, page(h))
				for _, m := range h.Messages {
					seen[m.Sequence]++
				}
				for _, g := range h.Gaps {
					for n := g.From; n <= g.To; n++ {
						seen[n]++
					}
				}
				if !h.HasMore {
					return pages, seen
				}
				next(&r, h.Next)
			}
			t.Errorf("history does not end: %v", pages)
			return pages, seen
		}
		zero := tidemark.Sequence(0)
		for limit := 1; limit <= 13; limit++ {
			forth, seenForth := all(limit,
				func(r *server.HistoryRequest, at tidemark.Sequence) { r.After = &at }, &zero)
			back, seenBack := all(limit,
				func(r *server.HistoryRequest, at tidemark.Sequence) { r.Before = &at }, nil)
			for n := tidemark.Sequence(1); n <= 12; n++ {
				if seenForth[n] != 1 || seenBack[n] != 1 {
					t.Errorf("limit %d: %d is covered %d times forth and %d times back, "+
						"want once each: %v, %v", limit, n, seenForth[n], seenBack[n], forth, back)
				}
			}
			if limit == 5 {
				want(t, "forth", forth, "1 2 3 6 7 (4-5) more 7", "11 12 (8-10)")
			}
			if limit == 12 {
				want(t, "back", back, "1 2 3 6 7 11 12 (4-5) (8-10)")
			}
		}
		_, err := a.History(a.ctx, "bob", server.HistoryRequest{
			Chat:   chat,
			After:  &zero,
			Before: &zero,
			Limit:  1,
		})
		wantCode(t, "After and Before", err, tidemark.Invalid)
		_, err = a.History(a.ctx, "eve", server.HistoryRequest{Chat: chat, Limit: 1})
		wantCode(t, "a user who is no member", err, tidemark.NotMember)
	})
}

func TestCursor_of_one_list_is_refused_by_another(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		for i := range 3 {
			chat := a.chat(tidemark.ChatID(fmt.Sprintf("c%d", i)), "alice", "bob", "carol")
			a.send("alice", chat)
			a.ack("bob", chat, 1, 0)
		}
		lists := map[string]func(cursor string) (next string, err error){
			"chats": func(cursor string) (string, error) {
				p, err := a.Chats(a.ctx, "bob", 1, cursor)
				return p.NextCursor, err
			},
			"members": func(cursor string) (string, error) {
				p, err := a.Members(a.ctx, server.Caller{User: "bob"}, "c0", 1, cursor)
				return p.NextCursor, err
			},
			"states": func(cursor string) (string, error) {
				p, err := a.DeliveryStates(a.ctx, "bob", 1, cursor)
				return p.NextCursor, err
			},
		}
		for from, list := range lists {
			cursor, err := list("")
			if err != nil || cursor == "" {
				t.Fatalf("%s: got the cursor %q, %v", from, cursor, err)
			}
			for to, other := range lists {
				_, err := other(cursor)
				if from == to && err != nil {
					t.Errorf("%s refuses its own cursor: %v", to, err)
				}
				if from != to {
					wantCode(t, "a cursor of "+from+" given to "+to, err, tidemark.Invalid)
				}
			}
			_, err = list("rubbish!")
			wantCode(t, from+" given rubbish", err, tidemark.Invalid)
		}
		settle()
	})
}

func TestChats_are_paged_to_the_end(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		for i := range 7 {
			chat := a.chat(tidemark.ChatID(fmt.Sprintf("c%d", i)), "alice", "bob", "carol")
			a.send("alice", chat)
		}
		seen := map[tidemark.ChatID]int{}
		cursor := ""
		for range 10 {
			page, err := a.Chats(a.ctx, "bob", 2, cursor)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Chats {
				seen[c.ID]++
				if c.Unread.Messages != 1 || c.Last == nil || c.Last.Sequence != 1 {
					t.Errorf("%s: got unread %v, last %v, want 1 and the message",
						c.ID, c.Unread, c.Last)
				}
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if len(seen) != 7 {
			t.Errorf("got %v, want 7 chats", seen)
		}
		settle()
	})
}

func TestSync_cursor_clears_the_row(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		a.send("alice", chat)
		for acked, rows := range []int{1, 1, 0} {
			_, err := a.Sync(a.ctx, "bob", server.SyncRequest{
				Cursors: []server.Cursor{{Chat: chat, Acked: tidemark.Sequence(acked)}},
				Limit:   10,
			})
			if got := len(w.rows("bob")); err != nil || got != rows {
				t.Errorf("cursor %d: got %d rows, %v, want %d", acked, got, err, rows)
			}
		}
	})
}

// TestSync_cursors_are_not_overtaken_by_an_older_reconciliation: a comparison that read before the
// cursors were set does not move the session back.
func TestSync_cursors_are_not_overtaken_by_an_older_reconciliation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 3 {
			a.send("alice", chat)
		}
		settle()
		bob := a.open("bob")
		w.after.set(once("Behind", nil, func() {
			_, err := a.Sync(w.ctx, "bob", server.SyncRequest{
				Session: bob.Session(),
				Cursors: []server.Cursor{{Chat: chat, Acked: 2}},
				Limit:   10,
			})
			if err != nil {
				t.Error(err)
			}
		}))
		want(t, "after the cursor", messagesOf(bob.drain()), "message ab 3")
	})
}
