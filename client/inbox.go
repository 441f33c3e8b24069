package client

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// Bounds of what is queued. What has no room is left out, and comes from the history later.
const (
	mostQueued      = 1_000
	mostQueuedBytes = 8 << 20
	mostOfChat      = 64
)

// pageSize is how many messages of the history are asked for at a time.
const pageSize = 50

// inbox has the chats of a Run, and gives their messages to the handler. It is safe for concurrent
// use.
type inbox struct {
	surroundings

	wake signal.Flag // work may have become due
	acks signal.Flag // there is something to acknowledge
	sync signal.Flag // cursors have to be sent

	mu          sync.Mutex // guards the fields below
	incarnation tidemark.Incarnation
	chats       map[tidemark.ChatID]*chat
	// turns are the chats that are ready, in the order of their turns. paused are those that wait
	// for a time.
	turns  []*chat
	paused map[*chat]time.Time
	// dirty are the chats of which something was not acknowledged by a call.
	dirty map[*chat]struct{}
	// running counts chats that are handled now. queued and bytes measure all queues.
	running, queued, bytes int
	// oldest is when the first thing happened that is not acknowledged, zero if nothing did. unsaid
	// counts the messages of others since then.
	oldest time.Time
	unsaid int
}

// surroundings are what an inbox works with.
type surroundings struct {
	user   tidemark.UserID
	store  CursorStore // may be nil
	log    *slog.Logger
	handle func(context.Context, tidemark.Message) error
	// fetch gets a page of a chat's history after a sequence.
	fetch func(context.Context, tidemark.ChatID, tidemark.Sequence, int) (page, error)
	most  int // chats that are handled at a time
}

// step says what happens to a chat.
type step int

// The steps.
//
//	step     on                            then
//	idle     work                          ready
//	ready    a turn                        running
//	running  done, and there is more work  ready
//	running  done                          idle
//	running  failed                        pausing
//	pausing  the pause is over             ready
//
// A chat of another incarnation than the session's gets no turn: what the stream brings of it may
// be foreign. It waits, idle, until the server has judged its cursor.
const (
	idle step = iota
	ready
	running
	pausing
)

// chat is one chat of an inbox.
type chat struct {
	id       tidemark.ChatID
	progress progress
	// incarnation is that of what was handled.
	incarnation tidemark.Incarnation
	step        step
	queue       []entry
	failures    int // in a row
	// changed holds the targets of relations that arrive while a page is being fetched, by their
	// sequences. A redaction that names a list stands for each of its targets. It is nil while no
	// page is being fetched.
	changed map[tidemark.Sequence]*tidemark.Message
}

// entry is a part of a queue: a message for the handler, or a range that only passes.
type entry struct {
	to tidemark.Sequence
	// message is nil if nothing has to be handled, or only saving is left. size is its size.
	message *tidemark.Message
	size    int
	// others counts messages of others, which have to be acknowledged soon.
	others int
}

// session notes that the stream has opened a session. Chats of another incarnation lose what is
// queued, because the server may have given out its sequences again. fresh says that the session is
// new: cursors have to be sent, and frames may be lost.
func (b *inbox) session(incarnation tidemark.Incarnation, fresh bool) {
	b.mu.Lock()
	b.incarnation = incarnation
	for _, c := range b.chats {
		if c.incarnation != incarnation {
			b.clear(c, 0)
			c.progress.drop()
			c.progress.seen = c.progress.received
		} else {
			b.schedule(c)
		}
	}
	send := fresh && len(b.chats) > 0
	b.mu.Unlock()
	if send {
		b.sync.Set()
	}
}

// unsay notes that a connection ended, with which acknowledgements by frames may be lost.
func (b *inbox) unsay() {
	b.mu.Lock()
	for c := range b.dirty {
		c.progress.unsay()
		if _, some := c.progress.due(false); some {
			b.count(0)
		}
	}
	b.mu.Unlock()
	b.acks.Set()
}

// message takes a message of the stream.
func (b *inbox) message(m tidemark.Message) {
	b.take(m.ChatID, m.Sequence, m.Sequence, &m)
}

// take takes a range of the stream, with its message if it has one.
func (b *inbox) take(id tidemark.ChatID, from, to tidemark.Sequence, m *tidemark.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.chats[id]
	if c == nil {
		// The session begins a chat after what the user has acknowledged.
		c = &chat{id: id, progress: begin(from - 1), incarnation: b.incarnation}
		c.progress.confirmed, c.progress.said = c.progress.done, c.progress.done
		b.chats[id] = c
	}
	if c.incarnation != b.incarnation {
		c.progress.see(to)
		return
	}
	//rule:redacted_stays.revise-before-its-place
	if m != nil && m.Relation != nil && m.Relation.Target != nil {
		b.revise(c, m.Relation.Target)
		if c.changed != nil && len(c.changed) < mostOfChat {
			c.changed[m.Relation.Sequence] = m.Relation.Target
		}
	}
	if m != nil && m.Relation != nil {
		for _, n := range m.Relation.Sequences {
			//rule:redacted_stays.wipe-a-list-before-its-place
			b.wipe(c, n, m)
			if c.changed != nil && len(c.changed) < mostOfChat {
				c.changed[n] = m
			}
		}
	}
	switch c.progress.place(from, to) {
	case again:
		return
	case beyond:
		c.progress.see(to)
	case due:
		//rule:client_memory_is_bounded.full-queue-takes-nothing
		if b.queued >= mostQueued || b.bytes >= mostQueuedBytes || len(c.queue) >= mostOfChat {
			c.progress.see(to)
			break
		}
		b.push(c, to, m)
	}
	b.schedule(c)
}

// push queues a range that is due. The caller holds mu.
func (b *inbox) push(c *chat, to tidemark.Sequence, m *tidemark.Message) {
	c.progress.receive(to)
	if m != nil && m.Relation != nil {
		if m.Relation.Target != nil {
			b.revise(c, m.Relation.Target)
		}
		for _, n := range m.Relation.Sequences {
			b.wipe(c, n, m)
		}
	}
	//rule:client_acks_handled.own-messages-only-pass
	if m != nil && (m.SenderID == b.user || !known(m.Kind)) {
		m = nil
	}
	if last := len(c.queue) - 1; m == nil && last >= 0 && c.queue[last].message == nil &&
		(last > 0 || c.step != running) {
		c.queue[last].to = to
		return
	}
	e := entry{to: to, message: m}
	if m != nil {
		e.size, e.others = m.Size(), 1
		b.queued, b.bytes = b.queued+1, b.bytes+e.size
	}
	c.queue = append(c.queue, e)
}

// revise lets what waits for its handler say what became of a message: the message itself, and
// earlier relations that have it as their target. The caller holds mu.
func (b *inbox) revise(c *chat, target *tidemark.Message) {
	for i := range c.queue {
		e := &c.queue[i]
		if e.message == nil {
			continue
		}
		m := *e.message
		switch r := m.Relation; {
		//rule:redacted_stays.queued-message-is-revised
		case m.Sequence == target.Sequence && newer(target, &m):
			m = *target
		//rule:redacted_stays.queued-relation-is-revised
		case r != nil && r.Target != nil && r.Sequence == target.Sequence &&
			newer(target, r.Target):
			m.Relation = &tidemark.Relation{Sequence: r.Sequence, Target: target}
		default:
			continue
		}
		b.bytes += m.Size() - e.size
		e.message, e.size = &m, m.Size()
	}
}

// wipe is revise for message n, which a redaction names in a list. Such a redaction comes without
// its targets. The caller holds mu.
func (b *inbox) wipe(c *chat, n tidemark.Sequence, by *tidemark.Message) {
	d := tidemark.Draft{Kind: by.Kind, SenderID: by.SenderID, CreatedAt: by.CreatedAt}
	for i := range c.queue {
		m := c.queue[i].message
		if m != nil && m.Relation != nil && m.Relation.Target != nil {
			m = m.Relation.Target
		}
		if m != nil && m.Sequence == n && !m.Redacted() {
			revised := m.Revise(&d, by.Sequence)
			b.revise(c, &revised)
			return
		}
	}
}

// newer reports whether a is a newer form of the message b.
func newer(a, b *tidemark.Message) bool {
	return a.Revision != nil && (b.Revision == nil || a.Revision.Sequence > b.Revision.Sequence)
}

// known reports whether a handler can know what a message of a kind is.
func known(k tidemark.Kind) bool {
	return k.Shown() || k.Relates() || k == tidemark.KindControl
}

// clear drops the queue of a chat behind its first n entries. The caller holds mu.
func (b *inbox) clear(c *chat, n int) {
	for i := range c.queue[min(n, len(c.queue)):] {
		b.release(c.queue[i+n])
	}
	c.queue = c.queue[:min(n, len(c.queue))]
}

// release takes an entry out of the measures. The caller holds mu.
func (b *inbox) release(e entry) {
	if e.message != nil {
		b.queued, b.bytes = b.queued-1, b.bytes-e.size
	}
}

// schedule lets a chat with work wait for its turn. The caller holds mu.
func (b *inbox) schedule(c *chat) {
	if c.step != idle || c.incarnation != b.incarnation ||
		len(c.queue) == 0 && !c.progress.behind() {
		return
	}
	c.step = ready
	b.turns = append(b.turns, c)
	b.wake.Set()
}

// dispatch gives chats their turns until ctx ends, and waits for those that are handled then.
func (b *inbox) dispatch(ctx context.Context) {
	var turns sync.WaitGroup
	defer turns.Wait()
	for {
		c, at := b.next(time.Now())
		if c != nil {
			turns.Go(func() {
				b.turn(ctx, c)
				b.wake.Set()
			})
			continue
		}
		if _, ok := b.wake.WaitUntil(ctx, at); !ok {
			return
		}
	}
}

// next returns a chat whose turn it is, or when to look again. A zero time means: when woken.
func (b *inbox) next(now time.Time) (c *chat, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, until := range b.paused {
		if !now.Before(until) {
			delete(b.paused, c)
			c.step = idle
			b.schedule(c)
		} else if at.IsZero() || until.Before(at) {
			at = until
		}
	}
	for b.running < b.most && len(b.turns) > 0 {
		c, b.turns = b.turns[0], b.turns[1:]
		c.step = idle
		if c.incarnation != b.incarnation || len(c.queue) == 0 && !c.progress.behind() {
			continue
		}
		c.step = running
		b.running++
		return c, time.Time{}
	}
	return nil, at
}

// turn does one thing for a chat: it handles the first entry of the queue, or gets a page.
func (b *inbox) turn(ctx context.Context, c *chat) {
	b.mu.Lock()
	work := append([]entry(nil), c.queue[:min(1, len(c.queue))]...)
	after, limit := c.progress.received, pageSize
	if b.queued >= mostQueued || b.bytes >= mostQueuedBytes {
		limit = 1
	}
	b.mu.Unlock()
	if len(work) == 0 {
		b.fill(ctx, c, after, limit)
		return
	}
	if m := work[0].message; m != nil {
		//rule:client_acks_handled.failed-comes-again
		if err := b.handle(ctx, *m); err != nil {
			b.log.Warn("a message was not handled; it comes again", "chat", c.id,
				"sequence", m.Sequence, "error", err)
			b.failed(c, 0)
			return
		}
		b.mu.Lock()
		// Only saving is left, whatever happens now.
		if len(c.queue) > 0 {
			b.release(c.queue[0])
			c.queue[0].message, c.queue[0].size = nil, 0
		}
		b.mu.Unlock()
	}
	b.finish(ctx, c, work[0])
}

// finish saves that an entry is handled.
func (b *inbox) finish(ctx context.Context, c *chat, e entry) {
	cursor := Cursor{Sequence: e.to, Incarnation: c.incarnation}
	//rule:client_acks_handled.saved-before-acknowledged
	if !b.save(ctx, c.id, cursor) {
		b.failed(c, 0)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.failures = 0
	c.progress.finish(e.to)
	b.dirty[c] = struct{}{}
	if len(c.queue) > 0 && c.queue[0].to <= e.to {
		b.release(c.queue[0])
		c.queue = c.queue[1:]
	}
	b.count(e.others)
	b.acks.Set()
	b.rest(c, idle)
	b.schedule(c)
}

// saveWithin bounds a Save that is under way when Run stops.
const saveWithin = 5 * time.Second

// save stores a cursor. It goes on for a while if ctx ends, since the message is handled already.
func (b *inbox) save(ctx context.Context, id tidemark.ChatID, cursor Cursor) bool {
	if b.store == nil {
		return true
	}
	saving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(saveWithin, cancel) })()
	if err := b.store.Save(saving, id, cursor); err != nil {
		b.log.Error("a cursor was not saved", "chat", id, "sequence", cursor.Sequence, "error", err)
		return false
	}
	return true
}

// failed lets a chat pause: until the time that the server named, or for a time that grows. So that
// many such chats leave room for others, only the head of the queue stays, and not even that if
// there is no room.
func (b *inbox) failed(c *chat, hint time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	until := time.Now().Add(pause(c.failures, hint))
	c.failures++
	keep := 1
	if full := b.queued >= mostQueued || b.bytes >= mostQueuedBytes; full &&
		len(c.queue) > 0 && c.queue[0].message != nil {
		keep = 0
	}
	b.clear(c, keep)
	c.progress.drop()
	for _, e := range c.queue {
		c.progress.receive(e.to)
	}
	b.rest(c, pausing)
	b.paused[c] = until
	b.wake.Set()
}

// rest ends a turn. If the chat is of another incarnation by now, its cursor has to be judged. The
// caller holds mu.
func (b *inbox) rest(c *chat, to step) {
	b.running--
	c.step = to
	if c.incarnation != b.incarnation {
		b.clear(c, 0)
		c.progress.received = c.progress.done
		b.sync.Set()
	}
}

// count notes that something has to be acknowledged, with messages of others in it. The caller
// holds mu.
func (b *inbox) count(others int) {
	if b.oldest.IsZero() {
		b.oldest = time.Now()
	}
	b.unsaid += others
}

// fill gets a page of the history, and queues it.
func (b *inbox) fill(ctx context.Context, c *chat, after tidemark.Sequence, limit int) {
	b.mu.Lock()
	c.changed = map[tidemark.Sequence]*tidemark.Message{}
	b.mu.Unlock()
	p, err := b.fetch(ctx, c.id, after, limit)
	b.mu.Lock()
	changed := c.changed
	c.changed = nil
	switch {
	case err != nil && asFailure(err).ending == refused:
		// The user has left the chat. If they return, the stream says so.
		c.progress.seen = c.progress.received
	case err == nil && c.incarnation != b.incarnation:
		// The page may be of either. It comes again.
	//rule:client_memory_is_bounded.few-changes-of-a-page
	case err == nil && len(changed) >= mostOfChat:
		// The page comes again.
	case err == nil && b.queuePage(c, p):
		c.failures = 0
		//rule:redacted_stays.page-from-before-a-change
		for n, target := range changed {
			if target.Sequence == n {
				b.revise(c, target)
			} else {
				b.wipe(c, n, target)
			}
		}
	default:
		b.mu.Unlock()
		hint := time.Duration(0)
		if err != nil {
			hint = asFailure(err).after
		}
		b.failed(c, hint)
		return
	}
	b.rest(c, idle)
	b.schedule(c)
	b.mu.Unlock()
}

// queuePage queues a page in the order of its sequences. It reports whether that was anything. The
// caller holds mu.
func (b *inbox) queuePage(c *chat, p page) bool {
	before := c.progress.received
	for len(p.Messages)+len(p.Gaps) > 0 {
		if len(p.Messages) == 0 ||
			len(p.Gaps) > 0 && p.Gaps[0].From < p.Messages[0].Sequence {
			if g := p.Gaps[0]; c.progress.place(g.From, g.To) == due {
				b.push(c, g.To, nil)
			}
			p.Gaps = p.Gaps[1:]
			continue
		}
		if m := &p.Messages[0]; c.progress.place(m.Sequence, m.Sequence) == due {
			b.push(c, m.Sequence, m)
		}
		p.Messages = p.Messages[1:]
	}
	return c.progress.received > before
}
