package simulationtest

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// heal ends all faults and lets time pass. It then checks the live sessions, users who open a
// session now, users who come and go, and users who open one after all nodes were stopped.
func (w *simulation) heal() {
	w.calm = true
	w.transcribe("nothing goes wrong any more")
	for _, n := range w.nodes {
		n.noRegistry, n.noStorage = false, false
	}
	w.settle()
	if len(w.up()) == 0 {
		w.boot("y")
		w.settle()
	}
	w.resumeAll()
	w.outlast()
	w.bury()
	w.quiet = true
	w.drain(w.devices)
	for _, d := range w.devices {
		if d.conn != nil && !w.failed() {
			d.missing()
			d.marked()
		}
	}
	w.truth.stored()
	w.comeBack(w.up(), true)
	w.inspect()
	w.converse(w.up())
	w.visits()
	if w.roll(2) == 0 {
		w.acknowledgeAll()
	}
	for _, n := range w.up() {
		w.halt(n)
		w.settle()
	}
	w.pass(5 * time.Second)
	if w.failed() {
		return
	}
	w.boot("z")
	w.settle()
	w.comeBack(w.up(), false)
	w.truth.stored()
	w.inspect()
}

// resumeAll makes devices resume that were cut off, or whose node has died.
func (w *simulation) resumeAll() {
	for _, d := range w.devices {
		if d.busy && d.busyAt.dead.Load() || d.conn != nil && d.at.dead.Load() {
			d.leave()
			d.sess = ""
		}
		if d.conn == nil && d.sess != "" && d.at.up {
			d.open(d.at, d.sess, d.current.last, false, false)
			w.settle()
		}
	}
}

// drain makes devices read until no more events come.
func (w *simulation) drain(devices []*device) {
	for _, d := range devices {
		for range 200 {
			if d.conn == nil || w.failed() {
				break
			}
			if d.current.lost {
				d.place()
			} else {
				d.read(-1)
			}
			w.settle()
			// It waits: a read that failed is repeated after a pause.
			if d.conn != nil && d.busy {
				w.pass(time.Second)
			}
			if d.idle && !d.current.lost {
				break
			}
		}
		if d.conn != nil && !d.idle {
			w.failf("%s reads and reads", d.name())
		}
	}
}

// probe is the id of a device that checks the end state. Meanwhile there are no faults and no other
// acts.
const probe = "probe"

// comeBack opens a session for each user. It checks that everything unacknowledged is sent, and
// with ticks, that the ticks are the stored state.
func (w *simulation) comeBack(up []*node, ticks bool) {
	for _, user := range w.users {
		if w.failed() {
			return
		}
		d := w.device(user, probe)
		d.cursors = false
		d.open(pick(w, up), "", 0, false, ticks)
		w.settle()
		if d.conn == nil {
			w.failf("%s cannot open a session", d.name())
			return
		}
		w.drain([]*device{d})
		if d.missing(); d.conn == nil || !d.current.caught {
			w.failf("%s never catches up", d.name())
		}
		if ticks && w.crowd.fanout > 0 {
			w.pass(3 * aggregateInterval)
			w.drain([]*device{d})
		}
		if ticks {
			d.knows()
		}
		if w.failed() {
			return
		}
		if w.roll(2) == 0 {
			d.close()
			w.settle()
		} else {
			d.hangUp()
		}
	}
}

// marked checks that there is a row for what the session sent and the user has not acknowledged.
// The grace period is over.
func (d *device) marked() {
	if d.current.epoch != d.w.epoch() || d.current.unanswered != d.w.unanswered.Load() {
		return
	}
	first := map[tidemark.ChatID]tidemark.Sequence{}
	for _, row := range d.w.rows(d.user) {
		first[row.ChatID] = row.FirstUndelivered
	}
	for _, chat := range d.w.chats {
		key := storage.StateKey{User: d.user, Chat: chat}
		if chat == "large" || !d.w.truth.member(d.user, chat) ||
			d.current.changes[chat] != d.w.truth.changes[key] {
			continue
		}
		// What expires before it is handed over needs no row.
		n := max(d.w.state(d.user, chat).Acked, d.current.opened[chat],
			d.w.truth.floor(chat)-1) + 1
		if n <= d.w.head(chat) && (first[chat] == 0 || first[chat] > n) {
			d.w.failf("pending_or_delivered: %s has not acknowledged %s %d in time, and no row "+
				"says so: %v", d.name(), chat, n, d.w.rows(d.user))
		}
	}
}

// knows checks that a device's ticks are the stored state, after a snapshot was sent.
func (d *device) knows() {
	for _, chat := range d.w.chats {
		if chat == "large" || !d.w.truth.member(d.user, chat) {
			continue
		}
		if d.w.crowded(chat) {
			d.knowsAggregate(chat)
			continue
		}
		for _, user := range d.w.users {
			key := storage.StateKey{User: user, Chat: chat}
			if !d.w.truth.member(user, chat) {
				continue
			}
			// Who read before they acknowledged was exposed with either time.
			want, got := d.w.state(user, chat).Exposed(), d.ticks[key]
			if got.AckedAt == want.ReadAt {
				got.AckedAt = want.AckedAt
			}
			if got != want {
				d.w.failf("tick_monotone: %s knows %v of %s in %s, and the truth is %v",
					d.name(), d.ticks[key], user, chat, want)
			}
		}
	}
}

// acknowledgeAll makes all users acknowledge everything, and checks that no row is left.
func (w *simulation) acknowledgeAll() {
	n := w.up()[0]
	for _, user := range w.users {
		for _, chat := range w.chats {
			head := w.head(chat)
			if head == 0 || !w.truth.member(user, chat) {
				continue
			}
			w.act(n, fmt.Sprintf("%s acknowledges all of %s", user, chat),
				func(ctx context.Context) func() {
					results, err := n.server.Acknowledge(ctx, user,
						[]server.Ack{{Chat: chat, Acked: head}})
					return func() {
						if err != nil || results[0].Err != nil {
							w.failf("%s cannot acknowledge %s %d: %v", user, chat, head, err)
						}
					}
				})
			w.settle()
		}
	}
	w.pass(time.Second)
	for _, user := range w.users {
		for _, row := range w.rows(user) {
			if row.FirstUndelivered > 0 && row.FirstUndelivered <= w.head(row.ChatID)+w.above &&
				w.truth.member(user, row.ChatID) {
				w.failf("pending_or_delivered: %v stands, and everything is acknowledged", row)
			}
		}
	}
}
