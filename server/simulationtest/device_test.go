package simulationtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// device is one client. It does one thing at a time on its connection, as the scheduler decides.
type device struct {
	w    *simulation
	user tidemark.UserID
	id   tidemark.DeviceID
	// cursors says that the device keeps what it receives, and gives cursors in each session. Other
	// devices keep nothing.
	cursors bool
	// lazy is the share of its turns in which it does not read, in percent.
	lazy int
	// until is the step before which it stays offline.
	until int

	at   *node
	conn *server.Connection
	// busy says that an act is under way at a node. idle says that the last page was empty. cut
	// counts the connections that ended; the result of an act on an earlier one is dropped.
	busy   bool
	busyAt *node
	idle   bool
	cut    int
	// sess is the session to resume while conn is nil, or "".
	sess    tidemark.SessionID
	current *clientSession
	// has has the messages that the device has stored, from all sessions.
	has map[tidemark.ChatID]map[tidemark.Sequence]bool
	// floors has the sequences below which the last read must give nothing (truth.strict).
	// gone has the chats that were deleted before it, as far as nodes must know.
	floors map[tidemark.ChatID]tidemark.Sequence
	gone   map[tidemark.ChatID]bool
	// ticks has the boundaries of others, merged by maximum.
	ticks map[storage.StateKey]tidemark.Boundary
}

// clientSession is a session as its client knows it.
type clientSession struct {
	last uint64
	// earlier has numbers of earlier events, from which an old position is chosen.
	earlier []uint64
	// rests has the numbers of the events after which nothing more came, in a straight run.
	rests []uint64
	// epoch and unanswered are the values before the session was opened. opened and changes are the
	// heads and membership changes at that time, or when a position in the session was given up.
	epoch      registry.Epoch
	unanswered int64
	opened     map[tidemark.ChatID]tidemark.Sequence
	changes    map[tidemark.ChatID]int
	got        map[tidemark.ChatID]map[tidemark.Sequence]bool
	// top is the highest message of a chat that was received. Everything below it was received or
	// acknowledged.
	top map[tidemark.ChatID]tidemark.Sequence
	// placed has the cursors that were given in this session, and heads the heads at that time.
	placed, heads map[tidemark.ChatID]tidemark.Sequence
	// kept has the cursors that were given while the user was no member. If they return, the
	// session goes on from there, and what the device had is not sent again.
	kept map[tidemark.ChatID]tidemark.Sequence
	// forgiven says that the server may have forgotten a position, so that a reset is correct.
	forgiven bool
	// caught says that `caught_up` was received.
	caught bool
	// lost says that a reset was received, and that the device has not synced since.
	lost bool
}

func (d *device) name() string { return string(d.user) + "." + string(d.id) }

func (d *device) beginSession(epoch registry.Epoch, unanswered int64) {
	s := &clientSession{
		epoch:      epoch,
		unanswered: unanswered,
		opened:     map[tidemark.ChatID]tidemark.Sequence{},
		changes:    map[tidemark.ChatID]int{},
		got:        map[tidemark.ChatID]map[tidemark.Sequence]bool{},
		top:        map[tidemark.ChatID]tidemark.Sequence{},
		placed:     map[tidemark.ChatID]tidemark.Sequence{},
		kept:       map[tidemark.ChatID]tidemark.Sequence{},
		heads:      map[tidemark.ChatID]tidemark.Sequence{},
	}
	d.current = s
	s.lost = d.cursors // the device gives its cursors first
	for _, chat := range d.w.chats {
		s.got[chat] = map[tidemark.Sequence]bool{}
	}
	d.anew()
}

// anew records the present state: the session must send what comes from here on.
func (d *device) anew() {
	for _, chat := range d.w.chats {
		d.current.opened[chat] = d.w.head(chat)
		d.current.changes[chat] = d.w.truth.changes[storage.StateKey{User: d.user, Chat: chat}]
	}
}

// act runs f as the device's act. The scheduler calls what f returns, unless the connection has
// ended.
func (d *device) act(n *node, what string, f func(ctx context.Context) func()) {
	d.actOr(n, what, func(ctx context.Context) (done, orphaned func()) { return f(ctx), func() {} })
}

// actOr is act, and calls orphaned if the connection has ended.
func (d *device) actOr(n *node, what string, f func(ctx context.Context) (done, orphaned func())) {
	d.busy, d.busyAt, d.idle = true, n, false
	cut := d.cut
	d.w.act(n, d.name()+" "+what, func(ctx context.Context) func() {
		done, orphaned := f(ctx)
		return func() {
			if d.cut != cut {
				orphaned()
				return
			}
			d.busy = false
			done()
		}
	})
}

// open opens a session, or resumes one at a node, possibly another node than before.
func (d *device) open(n *node, session tidemark.SessionID, after uint64, poll, statuses bool) {
	what := fmt.Sprintf("opens at %s", n.id)
	if session != "" {
		what = fmt.Sprintf("resumes at %s after %d, poll=%v", n.id, after, poll)
	}
	connect := func(ctx context.Context) (*server.Connection, error) {
		open := server.OpenRequest{User: d.user, Device: d.id, Statuses: statuses}
		if session == "" {
			return n.server.Open(ctx, open)
		}
		conn, err := n.server.Resume(ctx, server.ResumeRequest{
			User: d.user, Session: session, After: after, Announce: !poll,
		})
		if poll || tidemark.CodeOf(err) != tidemark.Gone && !errors.Is(err, server.ErrUncertain) {
			return conn, err
		}
		open.Reset = tidemark.ResetUnknownSession
		return n.server.Open(ctx, open)
	}
	epoch, unanswered := d.w.epoch(), d.w.unanswered.Load()
	d.w.trace.asks(d.name(), frame{
		"type": "open", "resume": session != "", "after": after, "poll": poll, "statuses": statuses,
	})
	d.actOr(n, what, func(ctx context.Context) (done, orphaned func()) {
		conn, err := connect(ctx)
		orphaned = func() {
			if err == nil && !n.dead.Load() {
				conn.Detach()
			}
		}
		done = func() {
			if err != nil {
				d.w.trace.answer(d.name(), nil, err)
				d.w.transcribe("%s: %v", d.name(), tidemark.CodeOf(err))
				d.sess = ""
				return
			}
			d.w.trace.answer(d.name(), frame{"resumed": conn.Session() == session}, nil)
			if session == "" || conn.Session() != session {
				d.beginSession(epoch, unanswered)
			} else {
				d.w.count("resumed")
				if n != d.at {
					d.w.count("session moved")
				}
			}
			d.conn, d.at, d.sess = conn, n, conn.Session()
		}
		return done, orphaned
	})
}

// hangUp cuts the connection. The server notices.
func (d *device) hangUp() {
	conn := d.conn
	d.leave()
	if conn != nil && !d.at.dead.Load() {
		d.w.trace.asks(d.name(), frame{"type": "cut"})
		conn.Detach()
	}
}

// leave drops the connection and the results of acts on it.
func (d *device) leave() {
	d.conn, d.busy = nil, false
	d.cut++
}

// read reads a page. If keep is not negative, only the first keep events reach the device, and the
// connection is cut.
func (d *device) read(keep int) {
	conn := d.conn
	d.w.trace.asks(d.name(), frame{"type": "read"})
	d.floors, d.gone = d.w.truth.stricts()
	d.act(d.at, "reads", func(ctx context.Context) func() {
		events, err := conn.Next(ctx, nil, false)
		return func() {
			d.w.trace.events(d.name(), events)
			if err != nil {
				d.w.trace.answer(d.name(), nil, err)
				d.w.transcribe("%s: %v", d.name(), tidemark.CodeOf(err))
				d.hangUp()
				if code := tidemark.CodeOf(err); code == tidemark.Gone ||
					code == tidemark.Replaced {
					d.sess = ""
				}
				return
			}
			if keep >= 0 && len(events) > 0 {
				events = events[:min(keep, len(events))]
			}
			for _, e := range events {
				d.take(e)
			}
			if keep >= 0 && d.conn != nil {
				d.w.count("cut between events")
				d.hangUp()
			}
			d.idle = len(events) == 0
		}
	})
}

// confirmed returns a function that sends a draft over the device's connection, and wants the
// confirmation in place of the event.
func (d *device) confirmed(r tidemark.Draft) func(context.Context) (server.Sent, error) {
	conn := d.conn
	return func(ctx context.Context) (server.Sent, error) {
		sent, _ := conn.SendConfirmed(ctx, []tidemark.Draft{r}, []string{""})
		return sent[0], sent[0].Err
	}
}

// payload has the fields of the payloads of all events.
type payload struct {
	ChatID   tidemark.ChatID
	UserID   tidemark.UserID
	Sequence tidemark.Sequence
	From, To tidemark.Sequence
	Acked    tidemark.Sequence
	Read     tidemark.Sequence
	AckedAt  *time.Time
	ReadAt   *time.Time
	Reason   tidemark.ResetReason
	Content  string
	SenderID tidemark.UserID
	Key      string
	Change   tidemark.Change
	Relation *related
}

// key names a message as truth.sent does.
func (p *payload) key() string { return fmt.Sprintf("%s %s %s", p.ChatID, p.SenderID, p.Key) }

// related is a relation in a payload.
type related struct {
	Sequence tidemark.Sequence `json:"sequence"`
	Target   *struct {
		Content string `json:"content"`
	} `json:"target"`
}

func decode(raw []byte) (payload, error) {
	var p struct {
		ChatID   tidemark.ChatID      `json:"chat_id"`
		UserID   tidemark.UserID      `json:"user_id"`
		Sequence tidemark.Sequence    `json:"sequence"`
		From     tidemark.Sequence    `json:"from_sequence"`
		To       tidemark.Sequence    `json:"to_sequence"`
		Acked    tidemark.Sequence    `json:"last_acked_sequence"`
		Read     tidemark.Sequence    `json:"last_read_sequence"`
		AckedAt  *time.Time           `json:"acked_at"`
		ReadAt   *time.Time           `json:"read_at"`
		Reason   tidemark.ResetReason `json:"reason"`
		Content  string               `json:"content"`
		SenderID tidemark.UserID      `json:"sender_id"`
		Key      string               `json:"client_message_id"`
		Change   tidemark.Change      `json:"change"`
		Relation *related             `json:"relation"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return payload{}, err
	}
	var all struct {
		Acked tidemark.Sequence `json:"all_acked_sequence"`
		Read  tidemark.Sequence `json:"all_read_sequence"`
	}
	err := json.Unmarshal(raw, &all)
	p.Acked, p.Read = max(p.Acked, all.Acked), max(p.Read, all.Read)
	return payload(p), err
}

// take applies an event, and checks it.
func (d *device) take(e tidemark.Event) {
	p, err := decode(e.Payload)
	if err != nil {
		d.w.failf("%s: %s: %v", d.name(), e.Payload, err)
		return
	}
	s := d.current
	if e.ID != 0 {
		if e.ID <= s.last {
			d.w.failf("%s: event %d after %d", d.name(), e.ID, s.last)
		}
		s.earlier = append(s.earlier, s.last)
		s.last = e.ID
	}
	// The answer to a send, without a number, may come later. So may the news of a removal.
	late := e.Type == tidemark.EventMembership || e.Type == tidemark.EventConfirmation && e.ID == 0
	if d.gone[p.ChatID] && !late {
		d.w.failf("deleted_is_gone: %s gets %s of %s", d.name(), e.Type, p.ChatID)
	}
	switch e.Type {
	case tidemark.EventMessage:
		d.w.transcribe("%s < %d message %s %d", d.name(), e.ID, p.ChatID, p.Sequence)
		d.kept(p)
		d.takeMessage(p)
		d.says(p)
	case tidemark.EventConfirmation:
		d.w.transcribe("%s < %d confirmation %s %d", d.name(), e.ID, p.ChatID, p.Sequence)
		if e.ID == 0 {
			d.w.count("confirmation beside an event")
			return
		}
		d.w.count("confirmation in place of an event")
		// It has no content, because the client has it. So it may also come for a message that has
		// expired. A relation has its own event.
		p.SenderID = d.user
		if m := d.w.truth.message(p.ChatID, p.Sequence); m != nil && m.Relation != nil {
			d.w.failf("own_confirmation: %s gets relation %d of %s as a confirmation",
				d.name(), p.Sequence, p.ChatID)
		}
		d.takeMessage(p)
	case tidemark.EventGap:
		d.w.transcribe("%s < %d gap %s %d-%d", d.name(), e.ID, p.ChatID, p.From, p.To)
		d.w.count("gap told")
		d.w.truth.gap(d.user, tidemark.Gap{
			ChatID: p.ChatID, From: p.From, To: p.To, Reason: tidemark.GapReason(p.Reason),
		})
		for n := p.From; n <= p.To && tidemark.GapReason(p.Reason) == tidemark.GapExpired; n++ {
			s.got[p.ChatID][n] = true
		}
		d.follows(p.ChatID, p.From, p.To)
	case tidemark.EventStatus:
		d.w.transcribe("%s < %d status %s %s %d/%d",
			d.name(), e.ID, p.ChatID, p.UserID, p.Acked, p.Read)
		d.takeStatus(p)
	case tidemark.EventReset:
		d.w.transcribe("%s < %d reset %s", d.name(), e.ID, p.Reason)
		d.w.count("reset " + string(p.Reason))
		if p.Reason == tidemark.ResetUnknownPosition && !s.forgiven {
			d.w.failf("%s: reset of a position that it was sent", d.name())
		}
		s.lost = s.lost || p.Reason != tidemark.ResetAhead
	default:
		d.w.transcribe("%s < %d %s %s %s %s", d.name(), e.ID, e.Type, p.ChatID, p.UserID, p.Change)
		s.caught = s.caught || e.Type == tidemark.EventCaughtUp
		if e.Type == tidemark.EventCaughtUp && d.id == probe {
			d.missing()
		}
		if p.UserID == d.user && p.Change == tidemark.Removed {
			// The event may be late, and the user may have rejoined. The session then begins at the
			// watermark.
			delete(s.placed, p.ChatID)
			s.opened[p.ChatID] = d.w.head(p.ChatID)
		}
	}
}

// kept checks that a message was not gone before the read began.
func (d *device) kept(p payload) {
	if floor := d.floors[p.ChatID]; p.Sequence < floor {
		d.w.failf("%s: %s gets %d of %s, which begins at %d",
			d.w.truth.rule(p.ChatID), d.name(), p.Sequence, p.ChatID, floor)
	}
}

func (d *device) takeMessage(p payload) {
	if !d.w.truth.may(d.user, p.ChatID, p.Sequence) {
		d.w.failf("nothing_outside_membership: %s gets %s %d", d.name(), p.ChatID, p.Sequence)
	}
	m := d.w.truth.message(p.ChatID, p.Sequence)
	if m == nil || d.w.truth.keyOf(m) != p.key() {
		d.w.failf("delivered_implies_persisted: %s gets %+v, and %v is stored", d.name(), p, m)
	}
	d.follows(p.ChatID, p.Sequence, p.Sequence)
	d.current.got[p.ChatID][p.Sequence] = true
	if d.has[p.ChatID] == nil {
		d.has[p.ChatID] = map[tidemark.Sequence]bool{}
	}
	d.has[p.ChatID][p.Sequence] = true
}

// says checks what a message says that the device gets. When nothing has gone wrong for long
// enough, it must say what it says now (R_WIPE).
func (d *device) says(p payload) {
	stored := d.w.truth.message(p.ChatID, p.Sequence)
	if stored == nil {
		return // takeMessage has said so
	}
	m := tidemark.Message{ChatID: p.ChatID, Sequence: p.Sequence, Content: p.Content}
	if stored.Relation != nil {
		m.Relation = &tidemark.Relation{Sequence: stored.Relation.Sequence}
		if p.Relation != nil && p.Relation.Target != nil {
			m.Relation.Target = &tidemark.Message{
				ChatID: p.ChatID, Sequence: p.Relation.Sequence, Content: p.Relation.Target.Content,
			}
		}
		target := stored.Relation.Sequence
		sees := d.w.truth.may(d.user, p.ChatID, target) && target >= d.floors[p.ChatID]
		expired := target < d.w.truth.floor(p.ChatID) // It may have expired during the read.
		if has := m.Relation.Target != nil; has && !sees ||
			d.w.quiet && has != sees && !expired {
			d.w.failf("nothing_outside_membership: %s gets relation %d of %s with its target: %v",
				d.name(), p.Sequence, p.ChatID, has)
		}
	}
	d.w.truth.right(&m, d.w.quiet)
}

// follows checks session_in_order: a session may rewind, but must not skip a message. What follows
// is at most one above what it sent or what is acknowledged.
func (d *device) follows(chat tidemark.ChatID, from, to tidemark.Sequence) {
	s := d.current
	if s.lost {
		return // until it syncs, what it has is unknown
	}
	top, moved := s.top[chat], false
	key := storage.StateKey{User: d.user, Chat: chat}
	if d.w.truth.changes[key] != s.changes[chat] {
		// The user left and rejoined, so the session may begin at the watermark.
		s.changes[chat], moved = d.w.truth.changes[key], true
		s.opened[chat] = d.w.head(chat)
		delete(s.placed, chat)
	}
	if from > top+1 && (top != 0 && !moved || from > d.w.state(d.user, chat).Acked+1) {
		d.w.failf("session_in_order: %s gets %s %d after %d, and %d is acknowledged",
			d.name(), chat, from, top, d.w.state(d.user, chat).Acked)
	}
	s.top[chat] = to
}

// takeStatus checks that no tick is above the stored state (tick_monotone, read_implies_delivered).
func (d *device) takeStatus(p payload) {
	if p.UserID == "" {
		d.takeAggregate(p)
		return
	}
	b := tidemark.Boundary{
		Acked: p.Acked, Read: p.Read, AckedAt: millis(p.AckedAt), ReadAt: millis(p.ReadAt),
	}
	st := d.w.state(p.UserID, p.ChatID)
	if b.Read > st.Read || b.Acked > max(st.Acked, st.Read) || b.Acked < b.Read {
		d.w.failf("a tick above the truth: %s is told that %s has %d/%d of %s, the truth is %d/%d",
			d.name(), p.UserID, b.Acked, b.Read, p.ChatID, st.Acked, st.Read)
	}
	key := storage.StateKey{User: p.UserID, Chat: p.ChatID}
	d.ticks[key] = d.ticks[key].Merge(b)
}

func millis(t *time.Time) tidemark.Millis {
	if t == nil {
		return 0
	}
	return tidemark.Millis(t.UnixMilli())
}

// stored returns the highest sequence up to which the device has everything that its user may see.
// It gives that as its cursor.
func (d *device) stored(chat tidemark.ChatID) tidemark.Sequence {
	n := tidemark.Sequence(0)
	for n < d.w.truth.heads[chat] && (d.has[chat][n+1] || !d.w.truth.may(d.user, chat, n+1) ||
		n+1 < d.w.truth.floor(chat)) {
		n++
	}
	for n > 0 && !d.has[chat][n] {
		n-- // the device does not know of a gap at the end
	}
	return n
}

// place gives the device's cursors to its session. A device that keeps nothing gives none.
func (d *device) place() {
	r := server.SyncRequest{Session: d.sess, Limit: 100}
	if d.cursors {
		for _, chat := range d.w.chats {
			if d.w.truth.member(d.user, chat) {
				r.Cursors = append(r.Cursors, server.Cursor{Chat: chat, Acked: d.stored(chat)})
			}
		}
	}
	conn, heads := d.conn, map[tidemark.ChatID]tidemark.Sequence{}
	for _, chat := range d.w.chats {
		heads[chat] = d.w.head(chat)
	}
	d.w.trace.asks(d.name(), frame{"type": "sync", "cursors": traceCursors(r.Cursors)})
	d.act(d.at, "syncs", func(ctx context.Context) func() {
		refused, err := conn.Sync(ctx, r)
		return func() {
			d.w.trace.answer(d.name(), frame{"refused": traceRefused(refused)}, err)
			d.w.transcribe("%s: synced %v: %v", d.name(), r.Cursors, tidemark.CodeOf(err))
			if err != nil {
				d.hangUp()
				d.sess = ""
				return
			}
			d.w.count("synced")
			d.placed(r, refused, heads)
		}
	})
}

// placed records what the session must send after a sync.
func (d *device) placed(
	r server.SyncRequest, refused server.SyncResponse, heads map[tidemark.ChatID]tidemark.Sequence,
) {
	s := d.current
	wrong := map[tidemark.ChatID]bool{}
	for _, chat := range refused.Chats {
		wrong[chat.Chat] = true
	}
	if s.lost {
		s.lost = false
		// What was sent after the lost position may not come again, if another device has
		// acknowledged it.
		d.anew()
		clear(s.placed)
		clear(s.kept)
		clear(s.top)
	}
	for _, c := range r.Cursors {
		if wrong[c.Chat] {
			s.kept[c.Chat] = c.Acked
		} else {
			s.placed[c.Chat], s.heads[c.Chat], s.top[c.Chat] = c.Acked, heads[c.Chat], c.Acked
			s.changes[c.Chat] = d.w.truth.changes[storage.StateKey{User: d.user, Chat: c.Chat}]
		}
	}
}

// missing reports what the session had to send and the device has not received (resume_lossless,
// delivery.md §3).
func (d *device) missing() {
	s := d.current
	// If a node died or the registry did not answer, the session may have missed notifications
	// until it reconciled. It then does not get what another device has acknowledged.
	weak := s.epoch != d.w.epoch() || s.unanswered != d.w.unanswered.Load()
	for _, chat := range d.w.chats {
		key := storage.StateKey{User: d.user, Chat: chat}
		if !d.w.truth.member(d.user, chat) {
			continue
		}
		moved := s.changes[chat] != d.w.truth.changes[key]
		acked := d.w.state(d.user, chat).Acked
		cursor, given := s.placed[chat]
		for n := tidemark.Sequence(1); n <= d.w.head(chat); n++ {
			switch {
			case s.got[chat][n], !d.w.truth.may(d.user, chat, n):
				continue
			case n < d.w.truth.floor(chat) && d.w.truth.floor(chat) > d.w.head(chat):
				continue // if all has expired, the gap may come before the next message
			case n < d.w.truth.floor(chat) && n <= acked && d.w.life.lag > 0:
				continue // it may have expired before it was handed over
			case n > acked && (n > s.kept[chat] || !d.has[chat][n]):
			case !weak && !moved && n > s.opened[chat]:
			case !moved && given && n > cursor && (n <= s.heads[chat] || !weak) && !d.has[chat][n]:
			default:
				continue
			}
			d.w.failf("not received: %s at %s has not got %s %d: head %d, acknowledged "+
				"%d, head at its open %d, cursor %d (%v), weak %v, rows %v, last %d",
				d.name(), d.at.id, chat, n, d.w.head(chat), acked, s.opened[chat], cursor, given,
				weak, d.w.rows(d.user), s.top[chat])
		}
	}
}
