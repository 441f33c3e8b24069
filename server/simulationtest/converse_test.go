package simulationtest

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// listener is the id of a device that hears updates while others write.
const listener = "listener"

// converse makes users write and acknowledge, through any node, while a device of each listens. It
// checks that the updates tell these devices all that changes a tick.
func (w *simulation) converse(up []*node) {
	var all []*device
	for _, user := range w.users {
		d := w.device(user, listener)
		d.cursors = false
		d.open(pick(w, up), "", 0, false, true)
		w.settle()
		all = append(all, d)
	}
	w.drain(all)
	for i := range 12 {
		chat, user, n := pick(w, w.chats), pick(w, w.users), pick(w, up)
		if w.failed() || !w.truth.member(user, chat) {
			continue
		}
		if w.roll(2) == 0 {
			w.says(n, user, tidemark.Draft{
				ChatID: chat, ClientMessageID: fmt.Sprintf("talk%d", i), Content: "talk",
			})
		} else {
			w.hears(n, user, server.Ack{
				Chat: chat, Acked: w.head(chat), Read: w.head(chat) * tidemark.Sequence(w.roll(2)),
			})
		}
		if w.roll(2) == 0 {
			w.settle()
		}
	}
	w.settle()
	w.pass(6 * time.Second)
	w.drain(all)
	for _, d := range all {
		if w.failed() {
			return
		}
		d.knowsTicks()
		d.close()
		w.settle()
	}
}

func (w *simulation) says(n *node, user tidemark.UserID, r tidemark.Draft) {
	w.act(n, fmt.Sprintf("%s says %s", user, r.ClientMessageID), func(ctx context.Context) func() {
		_, err := n.server.Send(ctx, user, r)
		return func() { w.expect(err) }
	})
}

func (w *simulation) hears(n *node, user tidemark.UserID, ack server.Ack) {
	if ack.Acked == 0 {
		return
	}
	w.act(n, fmt.Sprintf("%s hears %v", user, ack), func(ctx context.Context) func() {
		_, err := n.server.Acknowledge(ctx, user, []server.Ack{ack})
		return func() { w.expect(err) }
	})
}

// knowsTicks checks that what a device knows of each other member is right for each message that
// another than this member sent (published_if_a_tick_changes).
func (d *device) knowsTicks() {
	for _, m := range d.w.truth.sent {
		if m.ChatID == "large" || !d.w.truth.member(d.user, m.ChatID) {
			continue
		}
		if d.w.crowded(m.ChatID) {
			d.knowsAggregate(m.ChatID)
			continue
		}
		for _, user := range d.w.users {
			if user == m.SenderID || user == d.user || !d.w.truth.member(user, m.ChatID) {
				continue
			}
			want := d.w.state(user, m.ChatID).Exposed()
			got := d.ticks[storage.StateKey{User: user, Chat: m.ChatID}]
			if tidemark.TickOf(m.Sequence, want) != tidemark.TickOf(m.Sequence, got) {
				d.w.failf("published_if_a_tick_changes: %s knows %v of %s in %s, the truth is %v, "+
					"and %d is of %s", d.name(), got, user, m.ChatID, want, m.Sequence, m.SenderID)
			}
		}
	}
}
