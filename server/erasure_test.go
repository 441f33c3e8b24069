package server_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

var errGone = tidemark.Errorf(tidemark.Denied, "the user was erased")

// gone are users who were erased.
type gone map[tidemark.UserID]bool

func (g gone) Erased(user tidemark.UserID) error {
	if g[user] {
		return errGone
	}
	return nil
}

// TestErasures_erased_nowhere_in_calls: nobody names who was erased, and they open no session.
func TestErasures_erased_nowhere_in_calls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		erased := gone{}
		a := w.node("a", func(cfg *server.Config) { cfg.Erasures = erased })
		chat := a.chat("ab", "alice", "bob", "zoe")
		erased["zoe"] = true
		errs := map[string]error{}
		_, errs["Open"] = a.Server.Open(a.ctx, server.OpenRequest{User: "zoe"})
		_, errs["Resume"] = a.Server.Resume(a.ctx, server.ResumeRequest{User: "zoe"})
		_, errs["AddMembers"] = a.AddMembers(a.ctx, backend, chat, []tidemark.UserID{"zoe"}, "")
		_, _, errs["CreateChat"] = a.CreateChat(a.ctx, backend, server.CreateChatRequest{
			Type: tidemark.Group, MemberIDs: []tidemark.UserID{"zoe"},
		})
		d := tidemark.Draft{ChatID: chat, ClientMessageID: "1", Content: "late"}
		_, errs["Send by them"] = a.Send(a.ctx, "zoe", d)
		d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{"zoe"})
		_, errs["Send that names them"] = a.Send(a.ctx, "alice", d)
		errs["Block"] = a.Block(a.ctx, "alice", "zoe")
		errs["Ban"] = a.Ban(a.ctx, backend, chat, "zoe")
		_, errs["Suspend"] = a.Suspend(a.ctx, "zoe", time.Time{}, "")
		_, errs["SignOut"] = a.SignOut(a.ctx, "zoe")
		for call, err := range errs {
			if !errors.Is(err, errGone) {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
}

// TestLeaveForGood_erased_nowhere_in_chats: a group gets another owner, a direct chat is closed.
func TestLeaveForGood_erased_nowhere_in_chats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		group := a.chat("zbc", "zoe", "bob", "carol")
		direct, _, err := a.CreateChat(a.ctx, server.Caller{User: "zoe"}, server.CreateChatRequest{
			Type: tidemark.Direct, MemberIDs: []tidemark.UserID{"bob"},
		})
		if err != nil {
			t.Fatal(err)
		}
		bob := b.open("bob")
		bob.drain()
		for range 2 { // A repetition changes nothing.
			for _, id := range []tidemark.ChatID{group, direct.ID} {
				if err := a.LeaveForGood(a.ctx, id, "zoe"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := len(bob.drain()); got != 4 {
			t.Errorf("bob got %d events, want a removal and a change of role in each chat", got)
		}
		for _, node := range []*core{a, b} {
			_, err := node.Send(node.ctx, "bob",
				tidemark.Draft{ChatID: direct.ID, ClientMessageID: "1", Content: "x"})
			wantCode(t, "a message to nobody", err, tidemark.Denied)
			view, err := node.Chat(node.ctx, server.Caller{User: "bob"}, direct.ID)
			if err != nil || view.Peer != nil || view.MemberCount != 1 {
				t.Errorf("the direct chat is %+v, %v", view, err)
			}
			view, err = node.Chat(node.ctx, server.Caller{User: "bob"}, group)
			if err != nil || view.Role != tidemark.Owner {
				t.Errorf("the group is %+v, %v", view, err)
			}
			_, err = node.Chats(node.ctx, "bob", 10, "")
			wantCode(t, "the list", err, "")
		}
		wantCode(t, "no chat", a.LeaveForGood(a.ctx, "none", "zoe"), tidemark.NotFound)
	})
}

// TestLeaveForGood_erased_nowhere_in_a_closed_chat: a block has closed the direct chat before. The
// other member still reads it, and their unblocking changes nothing.
func TestLeaveForGood_erased_nowhere_in_a_closed_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		direct, _, err := a.CreateChat(a.ctx, server.Caller{User: "zoe"}, server.CreateChatRequest{
			Type: tidemark.Direct, MemberIDs: []tidemark.UserID{"bob"},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Send(a.ctx, "bob",
			tidemark.Draft{ChatID: direct.ID, ClientMessageID: "1", Content: "x"})
		if err == nil {
			err = b.Block(b.ctx, "bob", "zoe")
		}
		if err == nil {
			err = a.LeaveForGood(a.ctx, direct.ID, "zoe")
		}
		for done := false; err == nil && !done; {
			done, err = w.raw.EraseUser(a.ctx, "zoe", storage.MaxErased)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range []*core{a, b} {
			if err := node.Unblock(node.ctx, "bob", "zoe"); err != nil {
				t.Error(err)
			}
			_, err := node.Send(node.ctx, "bob",
				tidemark.Draft{ChatID: direct.ID, ClientMessageID: "2", Content: "x"})
			wantCode(t, "a message to nobody", err, tidemark.Denied)
			view, err := node.Chat(node.ctx, server.Caller{User: "bob"}, direct.ID)
			if err != nil || view.Peer != nil || view.MemberCount != 1 {
				t.Errorf("the direct chat is %+v, %v", view, err)
			}
			page, err := node.Chats(node.ctx, "bob", 10, "")
			if err != nil || len(page.Chats) != 1 {
				t.Errorf("the list is %+v, %v", page, err)
			}
			status, err := node.DeliveryStatus(node.ctx, server.Caller{User: "bob"},
				server.DeliveryStatusRequest{Chat: direct.ID, Limit: 10})
			if err != nil {
				t.Errorf("the status is %+v, %v", status, err)
			}
		}
	})
}

// TestForget_erased_nowhere_in_records: nothing says any more that a user was suspended.
func TestForget_erased_nowhere_in_records(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a := w.node("a", func(cfg *server.Config) { cfg.Documents = w.raw })
		if _, err := a.Suspend(a.ctx, "zoe", time.Time{}, "spam"); err != nil {
			t.Fatal(err)
		}
		count := func() (found int) {
			for _, kind := range a.Kinds() {
				documents, _, err := w.raw.Documents(a.ctx, kind, "", 100)
				if err != nil {
					t.Fatal(err)
				}
				found += len(documents)
			}
			return found
		}
		if got := count(); got != 1 {
			t.Errorf("%d documents name the user, want 1", got)
		}
		for range 2 {
			if err := a.Forget(a.ctx, "zoe"); err != nil {
				t.Fatal(err)
			}
		}
		if got := count(); got != 0 {
			t.Errorf("%d documents name the user after the erasure", got)
		}
		now, err := a.SuspensionOf(a.ctx, "zoe")
		if err != nil || now.Suspended {
			t.Errorf("the suspension is %+v, %v", now, err)
		}
	})
}

// TestExportAccess_has_suspension_and_sign_out: an export says what is kept of them.
func TestExportAccess_has_suspension_and_sign_out(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a := w.node("a", func(cfg *server.Config) { cfg.Documents = w.raw })
		export := func() string {
			t.Helper()
			kept, err := a.ExportAccess(a.ctx, "zoe")
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(kept)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		if got, want := export(), `{"suspension":null,"signed_out_at":null}`; got != want {
			t.Errorf("of nothing: got %s, want %s", got, want)
		}
		until := time.Now().Add(time.Hour)
		if _, err := a.Suspend(a.ctx, "zoe", until, "canary"); err != nil {
			t.Fatal(err)
		}
		at, err := a.SignOut(a.ctx, "zoe")
		if err != nil {
			t.Fatal(err)
		}
		got := export()
		for _, want := range []string{
			"canary", until.UTC().Format(time.RFC3339), at.Format(time.RFC3339),
		} {
			if want = strings.TrimSuffix(want, "Z"); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s in it", got, want)
			}
		}
	})
}
