package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// redactAll redacts a list of messages.
func (c *core) redactAll(
	user tidemark.UserID, chat tidemark.ChatID, key string, targets ...tidemark.Sequence,
) (server.Sent, error) {
	return c.Send(c.ctx, user, tidemark.Draft{
		ChatID: chat, ClientMessageID: key, Kind: tidemark.KindRedact,
		Relation: &tidemark.Relation{Sequences: targets},
	})
}

// TestR_WIPE_no_node_has_what_a_list_names: both nodes have the canaries in memory.
func TestR_WIPE_no_node_has_what_a_list_names(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiped(t)
		w.a.send("alice", w.chat)
		settle()
		if _, err := w.a.redactAll("alice", w.chat, "list", 1, 2); err != nil {
			t.Fatal(err)
		}
		bob := w.b.open("bob", resuming(w.bob.Session(), w.bob.last))
		lines := bob.said()
		wantNo(t, "bob at b", lines)
		want(t, "bob at b", lines, "1:  (redact by alice in 3)", "2:  (redact by alice in 3)",
			"3 redact of [1 2]")
	})
}

// TestSend_redacted_stays_of_a_list: an error names the message that may not be redacted, and a
// repeated send changes nothing.
func TestSend_redacted_stays_of_a_list(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		for _, user := range []tidemark.UserID{"bob", "bob", "carol"} {
			a.send(user, chat)
		}
		for _, test := range []struct {
			user    tidemark.UserID
			targets []tidemark.Sequence
			code    tidemark.Code
			param   string
		}{
			{"bob", []tidemark.Sequence{1, 3}, tidemark.Denied, "relation.sequences[1]"},
			{"bob", []tidemark.Sequence{2, 9}, tidemark.NotFound, "relation.sequences[1]"},
			{"bob", []tidemark.Sequence{2, 1}, tidemark.Invalid, "relation.sequences[1]"},
			{"bob", []tidemark.Sequence{}, tidemark.Invalid, "relation.sequences"},
			{"bob", make([]tidemark.Sequence, 101), tidemark.Invalid, "relation.sequences"},
		} {
			_, err := a.redactAll(test.user, chat, "refused", test.targets...)
			if code, param := tidemark.CodeOf(err), tidemark.ParamOf(err); code != test.code ||
				param != test.param {
				t.Errorf("%v by %s: got %v of %q, want %s of %q", test.targets, test.user, err,
					param, test.code, test.param)
			}
		}
		for n := range 2 {
			sent, err := a.redactAll("bob", chat, "list", 1, 2)
			if err != nil || sent.Message.Sequence != 4 || sent.Duplicate != (n == 1) {
				t.Errorf("send %d: got %+v, %v, want message 4", n+1, sent, err)
			}
		}
	})
}

// TestAnnounceErased_erasure_is_announced_to_sessions: members on all nodes get it once, and it
// makes nothing unread.
func TestAnnounceErased_erasure_is_announced_to_sessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat := a.chat("zbc", "zoe", "bob", "carol")
		a.send("zoe", chat)
		bob := b.open("bob")
		bob.said()
		if err := a.LeaveForGood(a.ctx, chat, "zoe"); err != nil {
			t.Fatal(err)
		}
		for range 2 { // A repetition tells nobody again.
			err := a.AnnounceErased(a.ctx, chat, tidemark.ErasedID("1"), "key",
				[]tidemark.Sequence{1})
			if err != nil {
				t.Fatal(err)
			}
		}
		want(t, "bob at b", bob.said(), "2 redact of [1]")
		err := a.AnnounceErased(a.ctx, "none", tidemark.ErasedID("1"), "key",
			[]tidemark.Sequence{1})
		wantCode(t, "no chat", err, tidemark.NotFound)
	})
}
