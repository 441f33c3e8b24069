package pusher_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/storage"
)

// relation changes a draft to an edit or a redaction of a message.
func relation(kind tidemark.Kind, target tidemark.Sequence) func(*tidemark.Draft) {
	return func(d *tidemark.Draft) {
		d.Kind, d.Relation = kind, &tidemark.Relation{Sequence: target}
	}
}

// TestPusher_redacted_stays: whatever a notification waits for, it says what its message says when
// it is sent. Of a message that was redacted before, it says nothing, and a relation makes none.
func TestPusher_redacted_stays(t *testing.T) {
	old, text := rand.Text(), rand.Text()
	edit := func(w *world, c tidemark.ChatID) {
		w.send(c, "alice", text, relation(tidemark.KindEdit, 2))
	}
	redact := func(w *world, c tidemark.ChatID) {
		w.send(c, "alice", "", relation(tidemark.KindRedact, 2))
	}
	alias := func(w *world, _ tidemark.ChatID) {
		w.settings("alice", devices.Settings{DisplayName: "Alice"})
	}
	for name, tc := range map[string]struct {
		change func(w *world, c tidemark.ChatID)
		// waiting says that the notification waits for its provider when the change comes.
		waiting bool
		// preview is that of the user.
		preview push.Preview
		want    []string
	}{
		"edited before":   {edit, false, "", []string{`Team: "alice: ` + text + `", 2 unread`}},
		"redacted before": {redact, false, "", []string{`Team: "alice: first", 2 unread`}},
		"edited while it waits": {
			edit, true, "", []string{`Team: "alice: ` + text + `", 2 unread`},
		},
		"edited while it waits, without preview": {
			edit, true, push.PreviewSender, []string{`Team: "alice: New message", 2 unread`},
		},
		"edited by somebody with a name": {
			func(w *world, c tidemark.ChatID) {
				alias(w, c)
				edit(w, c)
			}, true, "", []string{`Team: "Alice: ` + text + `", 2 unread`},
		},
		"redacted while it waits": {
			redact, true, "", []string{`Team: "alice: New message", 2 unread`},
		},
		"edited and redacted while it waits": {
			func(w *world, c tidemark.ChatID) {
				edit(w, c)
				redact(w, c)
			}, true, "", []string{`Team: "alice: New message", 2 unread`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				c := w.chat(tidemark.Group, "Team", "alice", "bob")
				w.phone("bob", "phone")
				w.settings("bob", devices.Settings{Preview: tc.preview})
				w.send(c, "alice", "first")
				w.send(c, "alice", old)
				if tc.waiting {
					w.provider(away)
					w.pass(time.Minute)
				} else {
					w.pass(time.Second)
				}
				tc.change(w, c)
				w.provider(nil)
				w.pass(10 * time.Minute)
				var got []string
				for _, g := range w.told() {
					if said := fmt.Sprintf("%+v", g.N); strings.Contains(said, old) ||
						!strings.Contains(g.N.Body, text) && strings.Contains(said, text) {
						t.Errorf("what is gone is sent: %s", said)
					}
					got = append(got, g.String())
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("sent %q, want %q", got, tc.want)
				}
				if n := w.owed(); n != 0 {
					t.Errorf("%d chats are owed", n)
				}
			})
		})
	}
}

// TestPusher_redacted_stays_whole: a token acknowledges an edited message only if the notification
// has all of it, and nothing of a redacted one.
func TestPusher_redacted_stays_whole(t *testing.T) {
	for kind, whole := range map[tidemark.Kind]bool{
		tidemark.KindEdit: true, tidemark.KindRedact: false,
	} {
		in(t, func(w *world) {
			c := w.chat(tidemark.Direct, "d", "alice", "bob")
			w.phone("bob", "phone")
			w.provider(away)
			w.send(c, "alice", "old")
			w.pass(time.Minute)
			text := map[bool]string{true: "new"}[whole]
			w.send(c, "alice", text, relation(kind, 1))
			w.provider(nil)
			w.pass(10 * time.Minute)
			told := w.told()
			if len(told) != 1 || (told[0].N.Token != "") != whole {
				w.Fatalf("%s: sent %+v", kind, told)
			}
			if !whole {
				return
			}
			ack, err := w.pusher.Acknowledged(w.Context(), told[0].N.Token)
			if err != nil || ack.Through != 1 {
				t.Errorf("the token acknowledges %+v, %v", ack, err)
			}
		})
	}
}

// TestPusher_redacted_stays_after_a_slow_delivery: a message that was read long before it came to
// the pusher is read again before its notification is sent.
func TestPusher_redacted_stays_after_a_slow_delivery(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		text := rand.Text()
		w.send(c, "alice", text, func(d *tidemark.Draft) {
			d.CreatedAt = time.Now().Add(-time.Minute)
		})
		w.pass(time.Minute)
		w.phone("bob", "phone") // So the message is told by the call below only.
		pages, err := w.store.Ranges(w.Context(), []storage.Range{{Chat: c, Limit: 1}})
		w.ok(err)
		read := time.Now()
		w.pass(3 * time.Second)
		w.send(c, "alice", "", relation(tidemark.KindRedact, 1))
		w.pusher.Deliver(w.Context(), []outlet.Event{{
			Type: outlet.MessagePersisted, Chat: c, Sequence: 1, AsOf: read,
			Data: pages[0][0].AppendJSON(nil),
		}})
		w.pass(time.Minute)
		w.says(`alice: "New message", 1 unread`)
	})
}
