// Package checker holds the rules of delivery.md §5 against what happened to clients. A Log records
// what one device sent and received, the Ledger what all of them did, and Truth what the database
// contains in the end.
package checker

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Kind names a rule that the server broke.
type Kind string

// The kinds of faults.
const (
	Lost  Kind = "lost"  // confirmed, and not stored, or stored at another sequence
	Twice Kind = "twice" // one send is stored twice
	Gap   Kind = "gap"   // a sequence is missing in the database or in a stream
	// a stream went back without a reason, or numbered its events wrongly
	Order Kind = "out of order"
	Back  Kind = "tick back" // a watermark fell, or was never stored
	// a watermark is beyond the head, or beyond what its user acknowledged
	Beyond Kind = "beyond"
	// an event for a user who was no member, or a message that nobody sent
	Foreign    Kind = "foreign"
	Incomplete Kind = "never whole" // a device lacks a message that it must have
	Late       Kind = "late"        // it came, but too late
	Unmarked   Kind = "pending"     // a user is behind in a chat, and has no pending row
	Refused    Kind = "refused"     // an answer that no fault explains
)

// maxTold bounds the complaints that are kept. The first ones show what is wrong.
const maxTold = 200

// Fault is one complaint.
type Fault struct {
	Kind Kind
	Text string
}

// Send is one message that a user tried to send, once or several times.
type Send struct {
	// Sequence is the confirmed sequence, 0 if the send was not confirmed.
	Sequence int64
	// Confirmed is the time of the confirmation. Ended is the end of the last attempt, with or
	// without an answer.
	Confirmed, Ended time.Time
	// Abandoned reports that the sender stopped trying, whatever the outcome.
	Abandoned bool
	// Unknown counts the attempts that ended without an answer. Found reports that one of them had
	// stored the message.
	Unknown int
	Found   bool
}

// Boundary is how far a user has acknowledged and read a chat.
type Boundary struct{ Acked, Read int64 }

func (b Boundary) merge(o Boundary) Boundary {
	return Boundary{max(b.Acked, o.Acked), max(b.Read, o.Read)}
}

// most returns how far the chat is acknowledged: reading implies it.
func (b Boundary) most() int64 { return max(b.Acked, b.Read) }

// key names a message of a sender, or a member of a chat.
type key struct{ chat, user, id string }

// Ledger records what all clients sent and received. It is safe for concurrent use.
type Ledger struct {
	// disturbed reports that faults have begun.
	disturbed atomic.Bool
	// Outages are the times when no client can expect to be served.
	Outages Periods

	mu    sync.Mutex // guards the fields below
	sends map[key]*Send
	// heads are the highest confirmed sequences, by chat.
	heads map[string]int64
	// chats are the chats of each user, in which they stay.
	chats map[string][]string
	// visits are the members who join and leave.
	visits map[key]bool
	// acknowledged is what the devices of a user have sent of a chat. reported is what the server
	// has sent to anyone about that user.
	acknowledged, reported map[key]Boundary
	// unexplained are boundaries that the server reported before the user's devices had
	// acknowledged as much. Only the user's own messages, or messages hidden from the user, explain
	// them.
	unexplained map[key][]claim
	faults      []Fault
	counts      map[Kind]int
	// early are faults that count unless the nodes were disturbed before the first fault.
	early []earlyFault
}

// earlyFault is a fault of a device in a chat. A connection that began the chat too late began at
// from, which is 0 for another fault.
type earlyFault struct {
	Fault
	device, chat string
	from         int64
}

// claim is a reported boundary, and what the devices had acknowledged by then.
type claim struct{ reported, acknowledged Boundary }

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		sends:        map[key]*Send{},
		heads:        map[string]int64{},
		chats:        map[string][]string{},
		counts:       map[Kind]int{},
		visits:       map[key]bool{},
		acknowledged: map[key]Boundary{},
		reported:     map[key]Boundary{},
		unexplained:  map[key][]claim{},
	}
}

// Undisturbed reports whether no fault has begun yet.
func (l *Ledger) Undisturbed() bool { return !l.disturbed.Load() }

// Disturb notes that faults begin now.
func (l *Ledger) Disturb() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disturbed.Store(true)
	l.judgeEarlyLocked()
}

// Excuse notes that something has disturbed the nodes before the first fault, as a machine does
// that stands still for longer than a lease. Sessions then may go back by themselves.
func (l *Ledger) Excuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.early = nil
}

// complainEarly records a fault that only a disturbance explains. No fault has begun yet.
func (l *Ledger) complainEarly(f earlyFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.early) < maxTold {
		l.early = append(l.early, f)
	}
}

// wentBack notes that a device has everything of a chat up to a sequence. If a connection had begun
// the chat too late, it has sent what it left out.
func (l *Ledger) wentBack(device, chat string, to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.early = slices.DeleteFunc(l.early, func(f earlyFault) bool {
		return f.device == device && f.chat == chat && 0 < f.from && f.from <= to+1
	})
}

// Late returns how many connections began a chat too late before the first fault, and have not gone
// back yet.
func (l *Ledger) Late() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.early {
		if f.from > 0 {
			n++
		}
	}
	return n
}

// judgeEarlyLocked makes the early faults count. The caller holds mu.
func (l *Ledger) judgeEarlyLocked() {
	for _, f := range l.early {
		l.complainLocked(f.Kind, "%s", f.Text)
	}
	l.early = nil
}

// Join notes that users are members of a chat from now on.
func (l *Ledger) Join(chat string, users ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, user := range users {
		if !slices.Contains(l.chats[user], chat) {
			l.chats[user] = append(l.chats[user], chat)
		}
	}
}

// Visit notes that a user joins a chat and leaves it, again and again.
func (l *Ledger) Visit(chat, user string) {
	l.Join(chat, user)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.visits[key{chat: chat, user: user}] = true
}

// Visits reports whether a user joins a chat and leaves it, again and again.
func (l *Ledger) Visits(chat, user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.visits[key{chat: chat, user: user}]
}

// Chats returns the chats that a user is a member of, or may be.
func (l *Ledger) Chats(user string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.chats[user])
}

// Begin notes that a message is about to be sent.
func (l *Ledger) Begin(chat, user, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sends[key{chat, user, id}] = &Send{}
}

// Unanswered notes that an attempt ended without an answer, so that its outcome is unknown.
func (l *Ledger) Unanswered(chat, user, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sends[key{chat, user, id}]
	s.Unknown++
	s.Ended = time.Now()
}

// Abandon notes that the sender stops trying.
func (l *Ledger) Abandon(chat, user, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sends[key{chat, user, id}]
	s.Abandoned, s.Ended = true, time.Now()
}

// Confirm notes the answer to a send. duplicate is what the answer says: the message was stored
// already.
func (l *Ledger) Confirm(chat, user, id string, sequence int64, duplicate bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sends[key{chat, user, id}]
	if s.Sequence != 0 && s.Sequence != sequence {
		l.complainLocked(Twice, "%s of %s in %s was confirmed as %d and as %d",
			id, user, chat, s.Sequence, sequence)
	}
	if duplicate && s.Unknown == 0 && s.Sequence == 0 {
		l.complainLocked(Twice, "%s of %s in %s was found as %d, and never sent before",
			id, user, chat, sequence)
	}
	s.Sequence, s.Ended, s.Found = sequence, time.Now(), duplicate
	if s.Confirmed.IsZero() {
		s.Confirmed = s.Ended
	}
	l.heads[chat] = max(l.heads[chat], sequence)
}

// since returns the time from which a receiver may expect a message. It is zero while the sender
// still tries, and for a receiver who joins and leaves.
func (l *Ledger) since(chat, user, id, receiver string) (when time.Time, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sends[key{chat, user, id}]
	switch {
	case s == nil:
		return time.Time{}, false
	case l.visits[key{chat: chat, user: receiver}]:
		return time.Time{}, true
	case !s.Confirmed.IsZero():
		return s.Confirmed, true
	case s.Abandoned:
		return s.Ended, true
	}
	return time.Time{}, true
}

// Acknowledge notes what a device of the user is about to acknowledge.
func (l *Ledger) Acknowledge(chat, user string, b Boundary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{chat: chat, user: user}
	l.acknowledged[k] = l.acknowledged[k].merge(b)
}

// Report notes that the server sent the boundary of a user to a client.
func (l *Ledger) Report(chat, user string, b Boundary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{chat: chat, user: user}
	l.reported[k] = l.reported[k].merge(b)
	acknowledged := l.acknowledged[k]
	beyond := b.Acked > acknowledged.most() || b.Read > acknowledged.Read
	if c := (claim{b, acknowledged}); beyond && !slices.Contains(l.unexplained[k], c) {
		l.unexplained[k] = append(l.unexplained[k], c)
	}
}

// Expected returns the highest confirmed sequence of each chat in which the user stays.
func (l *Ledger) Expected(user string) map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	expected := map[string]int64{}
	for _, chat := range l.chats[user] {
		if head := l.heads[chat]; head > 0 && !l.visits[key{chat: chat, user: user}] {
			expected[chat] = head
		}
	}
	return expected
}

// Complain notes a fault.
func (l *Ledger) Complain(kind Kind, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complainLocked(kind, format, args...)
}

func (l *Ledger) complainLocked(kind Kind, format string, args ...any) {
	l.counts[kind]++
	if len(l.faults) < maxTold {
		l.faults = append(l.faults, Fault{kind, fmt.Sprintf(format, args...)})
	}
}

// Faults returns the first complaints, and the number of complaints of each kind.
func (l *Ledger) Faults() ([]Fault, map[Kind]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judgeEarlyLocked()
	counts := map[Kind]int{}
	for kind, n := range l.counts {
		counts[kind] = n
	}
	return slices.Clone(l.faults), counts
}

// Tally counts sends. Unanswered sends have an attempt without an answer; those Found were stored
// when they were sent again. Unconfirmed sends were never confirmed.
type Tally struct{ Sends, Confirmed, Unanswered, Found, Unconfirmed int }

// Tally counts the sends so far.
func (l *Ledger) Tally() (t Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sends {
		t.Sends++
		if s.Confirmed.IsZero() {
			t.Unconfirmed++
		} else {
			t.Confirmed++
		}
		if s.Unknown > 0 {
			t.Unanswered++
		}
		if s.Found {
			t.Found++
		}
	}
	return t
}
