package checker

import (
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"time"
)

// maxSpans is how many connections a log remembers, to tell for how long a message has waited.
const maxSpans = 64

// Log is one device: what it has stored, and whether what it is given keeps the rules. A device gives its cursors to every session that does not know it. Safe for concurrent use.
type Log struct {
	Name, User string
	// Only says that it is the only device of its user.
	Only   bool
	ledger *Ledger

	mu sync.Mutex // guards what follows
	// session is that of the device, position the number of the last event that it has of it.
	session  string
	position int64
	// lost says that the session does not know the device: it has to be given the cursors.
	lost bool
	// over is the transport of the present connection.
	over  string
	chats map[string]*chat
	ticks map[key]Boundary
	spans []span
	goals []*goal
	// connected says that an `open` came on the present connection, and caughtUp that it said so.
	connected, caughtUp bool
	counts              Counts
	waits               Waits
}

// Counts is what happened to a device.
type Counts struct{ Opens, Resumed, Resets, Messages, Again, Late, Back, Gaps, Statuses, Stale, Memberships int }

// chat is what a device has of a chat.
type chat struct {
	// digests are those of the messages that it has stored, from the first on: a contiguous prefix. 0 stands for one that it may not see.
	digests []uint32
	// next is what the present connection has to send next, 0 if it has sent nothing yet. rewinds is how often it may go elsewhere.
	next    int64
	rewinds int
	// astray says that the session does not start where the device stands, until it does.
	astray bool
}

func (c *chat) stored() int64 { return int64(len(c.digests)) }

// NewLog returns the log of a device that has nothing.
func (l *Ledger) NewLog(name, user string) *Log {
	return &Log{Name: name, User: user, ledger: l, chats: map[string]*chat{}, ticks: map[key]Boundary{}}
}

// Assume says that the device has what its user has acknowledged.
func (d *Log) Assume(stored map[string]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, n := range stored {
		d.chatLocked(name).digests = make([]uint32, n)
	}
}

// Place is where to resume: "" means a new session.
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

// Continue says that another answer of long-poll begins: it goes on behind the position, and repeats what the session has sent and the device has not got.
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

// Open takes the first event of a connection. It reports whether the cursors have to be given; if the session was asked for and is unknown, a reset follows and asks for them. On long-poll a resumed session has no such event: Resumed stands for it.
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
			d.strayLocked()
		}
		d.session, d.position = session, 0
	}
	d.counts.Opens++
	d.numberLocked(id)
	d.connectedLocked()
	return d.lost && !unknown
}

// Resumed is Open for an answer of long-poll without that event.
func (d *Log) Resumed() (giveCursors bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.connected {
		d.counts.Opens++
		d.counts.Resumed++
		d.connectedLocked()
	}
	return d.lost
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

// strayLocked: the session does not know where the device stands.
func (d *Log) strayLocked() {
	d.lost = true
	for _, c := range d.chats {
		c.astray, c.next = true, 0
	}
}

// Leave says that the device has ended the session in good order. It has acknowledged what it has or says nothing: the next session begins where its user
// is, which is not beyond it, as long as this is his only device.
func (d *Log) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session, d.position = "", 0
	if !d.Only {
		d.strayLocked()
	}
}

// Gone says that the session has ended.
func (d *Log) Gone() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session, d.position = "", 0
	d.strayLocked()
}

// Reset says that the session does not know the position.
func (d *Log) Reset(reason, chat string, id int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numberLocked(id)
	d.counts.Resets++
	if reason == "ahead" {
		d.ledger.Complain(Lost, "%s has %d of %s, and is told that it is ahead", d.Name, d.chatLocked(chat).stored(), chat)
		return
	}
	d.strayLocked()
}

// Cursors are what the device has of each chat of the user's, for him to give: his session may go back to them, now or when it is told.
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

// Given says that a session has taken the cursors; messages that were under way may still come.
func (d *Log) Given(session string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = d.lost && session != d.session
}

// Message takes a message. It reports whether it was new, and so has to be acknowledged.
func (d *Log) Message(chat string, sequence int64, sender, id string, number int64) (fresh bool) {
	since, known := d.ledger.since(chat, sender, id, d.User)
	if !known {
		d.ledger.Complain(Foreign, "%s got %d of %s: %s of %s, which nobody has sent", d.Name, sequence, chat, id, sender)
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
			d.ledger.Complain(Foreign, "%s: message %d of %s is %s of %s, and was another one", d.Name, sequence, chat, id, sender)
		}
		return false
	}
	c.digests = append(c.digests, digest)
	d.counts.Messages++
	if now := time.Now(); !since.IsZero() {
		d.waits.add(d.ledger.served(since, now, d.spans), Wait{Device: d.Name, Over: d.over, Chat: chat, Sequence: sequence, Since: since, Now: now})
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

// inOrderLocked checks that what comes joins what came before on this connection. It reports whether it can be stored. A connection may begin a chat too late: another device, or a message
// of the user's own, has moved his watermark beyond what this session was not woken for. Then it has to go back once it knows, as every device is whole in the end; while nothing goes wrong it
// must not happen at all. The same holds for one that goes back by itself, since it compares with what the user has acknowledged (R_MIN): what the device has comes again.
func (d *Log) inOrderLocked(name string, c *chat, from, to int64) bool {
	late := from > c.stored()+1
	switch {
	case late && c.astray:
		return false // before the cursors have taken effect
	case late && c.next == 0 && !d.ledger.Calm():
		d.counts.Late++
		c.astray = true
		return false
	case late:
		d.ledger.Complain(Gap, "%s got %d of %s, and has the first %d", d.Name, from, name, c.stored())
		return false
	case c.next != 0 && from != c.next && c.rewinds > 0:
		c.rewinds--
	case c.next != 0 && from != c.next && !c.astray && d.ledger.Calm():
		d.ledger.Complain(Order, "%s got %d of %s where %d was due", d.Name, from, name, c.next)
	case c.next != 0 && from != c.next:
		d.counts.Back++
	}
	c.astray, c.next = false, to+1
	return true
}

// numberLocked takes the number of an event, 0 if it has none.
func (d *Log) numberLocked(number int64) {
	if number == 0 {
		return
	}
	if number <= d.position {
		d.ledger.Complain(Order, "%s got event %d of %s after %d", d.Name, number, d.session, d.position)
	}
	d.position = max(d.position, number)
}

// Status takes the boundaries of a member, and merges them by maximum, as every client does (delivery.md §5, tick_monotone). One that is below what was said before is a fault
// all the same.
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
		d.ledger.Complain(Back, "%s was told that %s has %v of %s, after %v", d.Name, user, b, chat, was)
	}
	d.ledger.Tell(chat, user, b)
}

// Membership takes a change of members. Who is added again is sent again what he has not acknowledged; and he has to give his cursors, because that of the chat was refused while he was no member.
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
	return c.astray
}

// Other takes an event that changes nothing here. caughtUp says that it was that one.
func (d *Log) Other(number int64, caughtUp bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numberLocked(number)
	d.caughtUp = d.caughtUp || caughtUp
}

// CaughtUp reports whether the present connection said so.
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

// Await calls reached once, when the device has everything that was confirmed up to this moment.
func (d *Log) Await(reached func(took time.Duration)) {
	owed := d.ledger.Owed(d.User)
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(owed, func(chat string, head int64) bool { return d.chatLocked(chat).stored() >= head })
	if len(owed) == 0 {
		reached(0)
		return
	}
	d.goals = append(d.goals, &goal{missing: owed, since: time.Now(), reached: reached})
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

// Lacks returns what the device lacks of what is owed to its user, "" if nothing.
func (d *Log) Lacks(owed map[string]int64) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for chat, head := range owed {
		if c := d.chatLocked(chat); c.stored() < head {
			return fmt.Sprintf("%s has %d of %d of %s (session %s at %d, connected %v, lost %v, astray %v)", d.Name, c.stored(), head, chat, d.session, d.position, d.connected, d.lost, c.astray)
		}
	}
	return ""
}

// Counts returns what happened so far.
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
		c = &chat{astray: d.lost}
		d.chats[name] = c
	}
	return c
}

// digestOf is never 0.
func digestOf(sender, id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(sender + "/" + id))
	return max(1, h.Sum32())
}

// Lost reports whether the device is connected to a session that has to be given the cursors.
func (d *Log) Lost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.connected && d.lost && d.session != ""
}
