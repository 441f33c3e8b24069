package checker

import (
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"time"
)

// maxSpans bounds how many connections a log keeps. They show how long a message has waited.
const maxSpans = 64

// Log records one device: what it has stored, and whether what it receives keeps the rules. A
// device gives its cursors to every session that does not know its position. Log is safe for
// concurrent use.
type Log struct {
	Name, User string
	// Only reports that the user has no other device.
	Only bool
	// Others reports that the device is told only what others wrote (handled.go).
	Others bool
	ledger *Ledger

	mu sync.Mutex // guards the fields below
	// session is the device's session, position the number of the last event from it.
	session  string
	position int64
	// needsCursors reports that the session does not know the device's position.
	needsCursors bool
	// over is the transport of the present connection.
	over  string
	chats map[string]*chat
	ticks map[key]Boundary
	spans []span
	goals []*goal
	// connected reports that `session` came on the present connection. caughtUp reports that the
	// `caught_up` event came.
	connected, caughtUp bool
	counts              Counts
	waits               Waits
}

// Counts counts what happened to a device.
type Counts struct {
	Opens, Resumed, Resets, Messages, Again, Late, Back int
	Gaps, Statuses, Stale, Memberships                  int
}

// chat is what a device has stored of a chat.
type chat struct {
	// digests are the digests of the stored messages, from the first one without a gap. 0 stands
	// for a message that the user may not see.
	digests []uint32
	// next is the next sequence that the present connection must send, 0 before its first message.
	// rewinds is how often the connection may jump elsewhere.
	next    int64
	rewinds int
	// displaced reports that the session starts elsewhere than the device's position.
	displaced bool
}

func (c *chat) stored() int64 { return int64(len(c.digests)) }

// NewLog returns the log of a device that has stored nothing.
func (l *Ledger) NewLog(name, user string) *Log {
	return &Log{
		Name: name, User: user, ledger: l, chats: map[string]*chat{}, ticks: map[key]Boundary{},
	}
}

// Assume notes that the device has stored what its user has acknowledged.
func (d *Log) Assume(stored map[string]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, n := range stored {
		d.chatLocked(name).digests = make([]uint32, n)
	}
}

// Place returns where to resume. An empty session means a new one.
func (d *Log) Place() (session string, position int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session, d.position
}

// Connect begins a connection, which resumes at a place.
func (d *Log) Connect(over string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = over
	d.connected, d.caughtUp = false, false
	for _, c := range d.chats {
		c.next = 0
	}
}

// Continue begins another answer of long-poll. It goes on behind the position, and repeats events
// that the device did not receive.
func (d *Log) Continue() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.chats {
		c.next = 0
	}
}

// Disconnect ends the connection.
func (d *Log) Disconnect() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connected {
		d.spans[len(d.spans)-1].to = time.Now()
	}
	d.connected = false
}

// Open takes the first event of a connection. It reports whether the device must give its cursors.
// If the session is unknown, a reset follows that requests them, and Open returns false. A resumed
// session on long-poll has no such event; use Resumed for it.
func (d *Log) Open(session string, resumed bool, id int64) (giveCursors bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	unknown := false
	switch {
	case resumed && session != d.session:
		d.ledger.Complain(Order, "%s resumed %q and is in %q", d.Name, d.session, session)
	case resumed:
		d.counts.Resumed++
	default:
		if unknown = d.session != ""; unknown {
			d.displaceLocked()
		}
		d.session, d.position = session, 0
	}
	d.counts.Opens++
	d.numberLocked(id)
	d.connectedLocked()
	return d.needsCursors && !unknown
}

// Resumed stands for Open on long-poll, where a resumed session sends no `session`.
func (d *Log) Resumed() (giveCursors bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.connected {
		d.counts.Opens++
		d.counts.Resumed++
		d.connectedLocked()
	}
	return d.needsCursors
}

func (d *Log) connectedLocked() {
	if d.connected {
		return
	}
	d.connected = true
	if len(d.spans) == maxSpans {
		d.spans = append(d.spans[:0], d.spans[1:]...)
	}
	d.spans = append(d.spans, span{from: time.Now()})
}

// displaceLocked notes that the session does not know the device's position.
func (d *Log) displaceLocked() {
	d.needsCursors = true
	for _, c := range d.chats {
		c.displaced, c.next = true, 0
	}
}

// Leave notes that the device has ended the session. It has acknowledged what it stored, or
// acknowledges nothing. The next session begins at the user's watermark, which is not beyond the
// device if the user has no other one.
func (d *Log) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session, d.position = "", 0
	if !d.Only {
		d.displaceLocked()
	}
}

// Gone notes that the session has ended.
func (d *Log) Gone() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session, d.position = "", 0
	d.displaceLocked()
}

// Reset notes that the session does not know the position.
func (d *Log) Reset(reason, chat string, id int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numberLocked(id)
	d.counts.Resets++
	if reason == "ahead" {
		d.ledger.Complain(Lost, "%s has %d of %s, and the server says that it is ahead",
			d.Name, d.chatLocked(chat).stored(), chat)
		return
	}
	d.displaceLocked()
}

// Cursors returns what the device has stored of each of the user's chats. Once the device gives
// them, the session may go back to them at any moment.
func (d *Log) Cursors() map[string]int64 {
	cursors := map[string]int64{}
	chats := d.ledger.Chats(d.User)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, chat := range chats {
		c := d.chatLocked(chat)
		cursors[chat] = c.stored()
		c.rewinds++
	}
	return cursors
}

// Given notes that a session has taken the cursors. Messages sent before may still arrive.
func (d *Log) Given(session string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.needsCursors = d.needsCursors && session != d.session
}

// Message takes a message. It reports whether the message is new and must be acknowledged.
func (d *Log) Message(chat string, sequence int64, sender, id string, number int64) (fresh bool) {
	since, known := d.ledger.since(chat, sender, id, d.User)
	if !known {
		d.ledger.Complain(Foreign, "%s got %d of %s: %s of %s, which nobody has sent",
			d.Name, sequence, chat, id, sender)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numberLocked(number)
	c := d.chatLocked(chat)
	if !d.inOrderLocked(chat, c, sequence, sequence) {
		return false
	}
	digest := digestOf(sender, id)
	if sequence <= c.stored() {
		d.counts.Again++
		if was := c.digests[sequence-1]; was != digest && was != 0 {
			d.ledger.Complain(Foreign, "%s: message %d of %s is %s of %s, and was another one",
				d.Name, sequence, chat, id, sender)
		}
		return false
	}
	c.digests = append(c.digests, digest)
	d.counts.Messages++
	if now := time.Now(); !since.IsZero() {
		d.waits.add(d.ledger.served(since, now, d.spans), Wait{
			Device: d.Name, Over: d.over, Chat: chat, Sequence: sequence, Since: since, Now: now,
		})
	}
	d.reachLocked(chat, c.stored())
	return true
}

// Gap takes a range that the user may not see.
func (d *Log) Gap(chat string, from, to, number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numberLocked(number)
	c := d.chatLocked(chat)
	if from < 1 || to < from {
		d.ledger.Complain(Gap, "%s got a gap %d–%d of %s", d.Name, from, to, chat)
		return
	}
	if !d.inOrderLocked(chat, c, from, to) {
		return
	}
	d.counts.Gaps++
	for c.stored() < to {
		c.digests = append(c.digests, 0)
	}
	d.reachLocked(chat, c.stored())
}

// inOrderLocked checks that the range follows what came before on this connection. It reports
// whether the range can be stored.
//
// A connection may begin a chat too late. Then another device, or a message of the user, has moved
// the watermark beyond messages that this session was not notified of. The session must go back
// once it notices, as every device is complete in the end. Before the first fault that is a late
// notification: the node of message 1 stands still before it notifies, and that of message 2 does
// not. The session must go back before the first fault, unless the machine itself has disturbed the
// nodes (Ledger.Excuse).
//
// A session may also go back by itself, as it compares with what the user has acknowledged (R_MIN).
// Then messages that the device has come again.
func (d *Log) inOrderLocked(name string, c *chat, from, to int64) bool {
	late := from > c.stored()+1
	switch {
	case late && c.displaced:
		return false // before the cursors have taken effect
	case late && c.next == 0 && !d.ledger.Undisturbed():
		d.counts.Late++
		c.displaced = true
		return false
	case late && c.next == 0:
		text := fmt.Sprintf("%s began %s at %d, and has the first %d",
			d.Name, name, from, c.stored())
		d.ledger.complainEarly(earlyFault{Fault{Gap, text}, d.Name, name, from})
		c.displaced = true
		return false
	case late:
		d.ledger.Complain(Gap, "%s got %d of %s, and has the first %d",
			d.Name, from, name, c.stored())
		return false
	case c.next != 0 && from != c.next && c.rewinds > 0:
		c.rewinds--
	case c.next != 0 && from != c.next && !c.displaced && d.ledger.Undisturbed():
		text := fmt.Sprintf("%s got %d of %s where %d was due", d.Name, from, name, c.next)
		d.ledger.complainEarly(earlyFault{Fault: Fault{Order, text}})
	case c.next != 0 && from != c.next:
		d.counts.Back++
	}
	if d.ledger.Undisturbed() {
		d.ledger.wentBack(d.Name, name, max(c.stored(), to))
	}
	c.displaced, c.next = false, to+1
	return true
}

// numberLocked takes the number of an event, 0 if it has none.
func (d *Log) numberLocked(number int64) {
	if number == 0 {
		return
	}
	if number <= d.position {
		d.ledger.Complain(Order, "%s got event %d of %s after %d",
			d.Name, number, d.session, d.position)
	}
	d.position = max(d.position, number)
}

// Status takes the boundary of a member, and merges it by maximum, as every client does
// (delivery.md §5, tick_monotone). A boundary below an earlier one is still a fault.
func (d *Log) Status(chat, user string, b Boundary, number int64) {
	d.mu.Lock()
	d.numberLocked(number)
	d.counts.Statuses++
	k := key{chat: chat, user: user}
	was := d.ticks[k]
	d.ticks[k] = was.merge(b)
	stale := was.merge(b) != b
	if stale {
		d.counts.Stale++
	}
	d.mu.Unlock()
	if stale {
		d.ledger.Complain(Back, "%s received that %s has %v of %s, after %v",
			d.Name, user, b, chat, was)
	}
	d.ledger.Report(chat, user, b)
}

// Membership takes a change of members. Users who are added again receive again what they have not
// acknowledged. Their devices must give their cursors again, because the server refused that of the
// chat in the meantime.
func (d *Log) Membership(chat, user string, number int64) (giveCursors bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numberLocked(number)
	d.counts.Memberships++
	if user != d.User {
		return false
	}
	c := d.chatLocked(chat)
	c.rewinds++
	return c.displaced
}

// Other takes an event that changes nothing here. caughtUp reports that it was `caught_up`.
func (d *Log) Other(number int64, caughtUp bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numberLocked(number)
	d.caughtUp = d.caughtUp || caughtUp
}

// CaughtUp reports whether the present connection sent `caught_up`.
func (d *Log) CaughtUp() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.connected && d.caughtUp
}

// goal is what a device has to reach, and since when.
type goal struct {
	missing map[string]int64
	since   time.Time
	reached func(took time.Duration)
}

// Await calls reached once, when the device has every message that is confirmed now.
func (d *Log) Await(reached func(took time.Duration)) {
	expected := d.ledger.Expected(d.User)
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(expected, func(chat string, head int64) bool {
		return d.chatLocked(chat).stored() >= head
	})
	if len(expected) == 0 {
		reached(0)
		return
	}
	d.goals = append(d.goals, &goal{missing: expected, since: time.Now(), reached: reached})
}

func (d *Log) reachLocked(chat string, stored int64) {
	left := d.goals[:0]
	for _, g := range d.goals {
		if head, waits := g.missing[chat]; waits && stored >= head {
			delete(g.missing, chat)
		}
		if len(g.missing) == 0 {
			g.reached(time.Since(g.since))
		} else {
			left = append(left, g)
		}
	}
	d.goals = left
}

// Missing describes the first chat of which the device has less than expected, "" if there is none.
func (d *Log) Missing(expected map[string]int64) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for chat, head := range expected {
		if c := d.chatLocked(chat); c.stored() < head {
			return fmt.Sprintf("%s has %d of %d of %s (session %s at %d, connected %v, "+
				"needs cursors %v, displaced %v)", d.Name, c.stored(), head, chat,
				d.session, d.position, d.connected, d.needsCursors, c.displaced)
		}
	}
	return ""
}

// Counts returns the counts so far.
func (d *Log) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// Waits returns how long messages have waited.
func (d *Log) Waits() Waits {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waits
}

func (d *Log) chatLocked(name string) *chat {
	c := d.chats[name]
	if c == nil {
		c = &chat{displaced: d.needsCursors}
		d.chats[name] = c
	}
	return c
}

// digestOf returns a digest of a message. It is never 0.
func digestOf(sender, id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(sender + "/" + id))
	return max(1, h.Sum32())
}

// NeedsCursors reports whether the device is connected to a session that does not know its
// position.
func (d *Log) NeedsCursors() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.connected && d.needsCursors && d.session != ""
}
