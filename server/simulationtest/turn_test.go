package simulationtest

import (
	"context"
	"slices"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// turn makes a device do its next thing.
func (w *simulation) turn(d *device) {
	switch {
	case d.busy && d.busyAt.dead.Load(), d.conn != nil && d.at.dead.Load():
		d.leave()
		d.sess = ""
	case d.busy:
		if d.conn != nil && w.chance(cuts, 12) {
			w.count(string(cuts))
			w.transcribe("%s is cut off", d.name())
			d.hangUp()
		}
		if d.conn == nil && d.sess != "" && w.chance(impatience, 2) {
			w.count(string(impatience))
			w.transcribe("%s does not wait", d.name())
			d.leave()
		}
	case d.conn == nil:
		d.comeBack()
	default:
		d.use()
	}
}

// comeBack opens a session, or resumes the previous one.
func (d *device) comeBack() {
	w := d.w
	up := w.up()
	if w.now < d.until || len(up) == 0 {
		return
	}
	statuses := w.roll(2) == 0
	if d.sess == "" {
		d.open(pick(w, up), "", 0, false, statuses)
		return
	}
	n, after, poll := d.at, d.current.last, w.roll(3) == 0
	if w.chance(elsewhere, 2) || !n.up && w.enabled[elsewhere] {
		w.count(string(elsewhere))
		if others := slices.DeleteFunc(slices.Clone(up), func(o *node) bool {
			return o == n
		}); len(others) > 0 {
			n = pick(w, others)
		}
	}
	if !n.up {
		d.sess = ""
		return
	}
	if w.chance(oldPositions, 3) && len(d.current.earlier) > 0 {
		w.count(string(oldPositions))
		after = pick(w, d.current.earlier)
		if len(d.current.rests) > 0 {
			after = pick(w, d.current.rests)
		}
		d.current.forgiven = true
		if w.roll(2) == 0 {
			after = d.current.last + 1000
		}
	}
	d.open(n, d.sess, after, poll, statuses)
}

// use does something on the connection.
func (d *device) use() {
	w := d.w
	switch {
	case w.chance(cuts, 10):
		w.count(string(cuts))
		if w.trace == nil && w.roll(2) == 0 {
			d.read(w.roll(4))
			return
		}
		w.transcribe("%s is cut off", d.name())
		d.hangUp()
		d.until = w.now + w.roll(60)
	case w.chance(vanishing, 20):
		w.count(string(vanishing))
		w.transcribe("%s vanishes", d.name())
		w.trace.asks(d.name(), frame{"type": "vanish"})
		d.leave()
		d.sess, d.until = "", w.now+w.roll(100)
	case w.chance(closes, w.hurry):
		w.count(string(closes))
		d.close()
		d.until = w.now + w.roll(10*w.hurry)
	case d.current.lost, d.cursors && w.roll(30) == 0:
		d.place()
	case w.roll(4) == 0:
		d.ack()
	case w.roll(100) >= d.lazy:
		d.read(-1)
	}
}

func (d *device) close() {
	conn := d.conn
	d.w.trace.asks(d.name(), frame{"type": "close"})
	d.act(d.at, "says goodbye", func(ctx context.Context) func() {
		err := conn.Close(ctx)
		return func() {
			d.w.transcribe("%s: closed: %v", d.name(), tidemark.CodeOf(err))
			d.leave()
			d.sess = ""
		}
	})
}

// ack acknowledges on the stream a prefix of what the device has received without a hole. With bad
// acknowledgements, it sends any sequence.
func (d *device) ack() {
	w := d.w
	if d.current.lost {
		return
	}
	for _, chat := range w.chats {
		a := server.Ack{Chat: chat, Acked: d.current.top[chat]}
		if a.Acked == 0 {
			continue
		}
		switch w.roll(4) {
		case 0:
			a.Acked = 1 + tidemark.Sequence(w.roll(int(a.Acked)))
		case 1:
			a.Read = 1 + tidemark.Sequence(w.roll(int(a.Acked)))
		}
		if w.chance(badAcks, 6) {
			w.count(string(badAcks))
			a.Acked = tidemark.Sequence(w.roll(int(w.head(chat)) + 4))
			a.Read = tidemark.Sequence(w.roll(int(w.head(chat)) + 4))
			d.current.forgiven = true
		}
		w.transcribe("%s acknowledges %s %d/%d", d.name(), chat, a.Acked, a.Read)
		w.trace.asks(d.name(), frame{
			"type": "ack", "chat": chat, "acked": a.Acked, "read": a.Read,
		})
		d.conn.Ack(a)
		// Let its effects happen before the next acknowledgement; otherwise a run is not
		// repeatable.
		synctest.Wait()
	}
}
