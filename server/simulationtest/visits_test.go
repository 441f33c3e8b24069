package simulationtest

import (
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// visitor is the id of a device that comes for a moment.
const visitor = "visitor"

// visits makes users come for a moment, acknowledge what they got and go, while others write, and
// members come and go, through any node. Nothing goes wrong. So no session compares its chats:
// users learn only from pending rows what was sent while they were away (R_STANDS), and a node
// alone knows from what it remembers which ticks they need.
func (w *simulation) visits() {
	for _, d := range w.devices {
		if d.conn != nil {
			d.close()
			w.settle()
		}
	}
	w.pass(resumeWindow + grace)
	for round := range 8 {
		if w.failed() {
			return
		}
		if w.roll(4) == 0 {
			w.members()
			w.settle()
		}
		if w.life.dice != nil {
			w.age()
			w.settle()
		}
		w.visit(round)
	}
	w.pass(6 * time.Second) // What was sent last is written.
}

// visit lets a user come and go.
func (w *simulation) visit(round int) {
	d, ticks := w.device(pick(w, w.users), visitor), w.roll(3) == 0
	d.cursors = false
	// What users have sent counts as acknowledged by them, and is written a moment later.
	wait := time.Second
	if ticks {
		wait = 6 * time.Second // ticks may be that late
	}
	w.pass(wait)
	d.open(pick(w, w.up()), "", 0, false, ticks)
	w.settle()
	if d.conn == nil {
		w.failf("%s cannot open a session", d.name())
		return
	}
	w.drain([]*device{d})
	d.missing()
	if ticks {
		d.knows()
	}
	if w.failed() {
		return
	}
	// What follows happens side by side.
	w.chatter(fmt.Sprint(round, "-beside"))
	d.ack()
	w.mix()
	d.close()
	w.chatter(fmt.Sprint(round, "-after"))
	w.settle()
}

// chatter makes members write and acknowledge, and lets some of that happen.
func (w *simulation) chatter(name string) {
	for i := range w.roll(3) {
		chat, user, n := pick(w, w.chats), pick(w, w.users), pick(w, w.up())
		switch {
		case !w.truth.member(user, chat):
		case w.roll(4) == 0:
			w.hears(n, user, server.Ack{Chat: chat, Acked: w.head(chat)})
		default:
			w.says(n, user, tidemark.Draft{
				ChatID: chat, ClientMessageID: fmt.Sprint("visit", name, i), Content: "talk",
			})
		}
	}
	w.mix()
}

// mix releases some of the calls, in any order.
func (w *simulation) mix() {
	for range w.roll(25) {
		w.now++
		w.wait()
		if w.failed() {
			return
		}
		if all, _ := w.gate.waiting(); len(all) > 0 && w.roll(4) > 0 {
			w.letGo(pick(w, all))
		} else {
			w.deliverOne(w.roll(64))
		}
	}
}
