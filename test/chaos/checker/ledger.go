// Package checker holds the rules of delivery.md §5 against what happened to clients: what they were told and gave (Log, one for each device), what all of them did
// (Ledger), and what is in the database in the end (Truth).
package checker

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is a kind of fault of the server's.
type Kind string

// What may not be.
const (
	Lost    Kind = "lost"         // confirmed, and not stored, or at another sequence
	Twice   Kind = "twice"        // one send is stored twice
	Gap     Kind = "gap"          // a sequence is missing in the database or in a stream
	Order   Kind = "out of order" // a stream went back without a reason, or numbered its events wrongly
	Back    Kind = "tick back"    // a watermark fell, or was never stored
	Beyond  Kind = "beyond"       // a watermark is beyond the head, or beyond what its user acknowledged
	Foreign Kind = "foreign"      // a message or status to somebody who was no member, or one that was never sent
	Unwhole Kind = "never whole"  // a device lacks what it is owed
	Late    Kind = "late"         // it came, but too late
	Unowed  Kind = "pending"      // a user is behind in a chat, and nothing says so
	Refused Kind = "refused"      // an answer that no fault explains
)

// maxTold bounds the complaints that are kept: the first ones say what is wrong.
const maxTold = 200

// Fault is one complaint.
type Fault struct {
	Kind Kind
	Text string
}

// Send is one message that somebody wanted to send, be it several times.
type Send struct {
	// Sequence is what was confirmed, 0 if nothing was.
	Sequence int64
	// Confirmed is when, and Ended when the last attempt ended, with or without an answer.
	Confirmed, Ended time.Time
	// Abandoned says that it is not tried again, whatever became of it.
	Abandoned bool
	// Unknown counts the attempts that ended without an answer, and Found says that one of them had stored it.
	Unknown int
	Found   bool
}

// Boundary is what somebody has acknowledged and read of a chat.
type Boundary struct{ Acked, Read int64 }

func (b Boundary) merge(o Boundary) Boundary {
	return Boundary{max(b.Acked, o.Acked), max(b.Read, o.Read)}
}

// most is what is acknowledged: to read implies it.
func (b Boundary) most() int64 { return max(b.Acked, b.Read) }

// key names a message by who sent it, or a member of a chat.
type key struct{ chat, user, id string }

// Ledger is what all clients did and were told. It is safe for concurrent use.
type Ledger struct {
	// stormy says that something has gone wrong.
	stormy atomic.Bool
	// Dark is when nobody can be expected to be served.
	Dark Stretches

	mu    sync.Mutex // guards what follows
	sends map[key]*Send
	// heads are the highest confirmed sequence of each chat.
	heads map[string]int64
	// chats are those of each user, in which he stays.
	chats map[string][]string
	// visits are the members who come and go.
	visits map[key]bool
	// said is what the devices of a user have said of a chat, and told what anybody was told of him.
	said, told map[key]Boundary
	// unsaid are boundaries that were told when nobody had said so much: his own messages explain them, or nothing does.
	unsaid map[key][]claim
	faults []Fault
	counts map[Kind]int
}

// claim is a boundary that was told, and what had been said by then.
type claim struct{ told, said Boundary }

// NewLedger returns an empty one.
func NewLedger() *Ledger {
	return &Ledger{
		sends:  map[key]*Send{},
		heads:  map[string]int64{},
		chats:  map[string][]string{},
		counts: map[Kind]int{},
		visits: map[key]bool{},
		said:   map[key]Boundary{},
		told:   map[key]Boundary{},
		unsaid: map[key][]claim{},
	}
}

// Calm reports whether nothing has gone wrong yet.
func (l *Ledger) Calm() bool { return !l.stormy.Load() }

// Storm says that things go wrong from now on.
func (l *Ledger) Storm() { l.stormy.Store(true) }

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

// Visit notes that a user may be a member of a chat at times.
func (l *Ledger) Visit(chat, user string) {
	l.Join(chat, user)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.visits[key{chat: chat, user: user}] = true
}

// Visits reports whether a user comes to a chat and goes.
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

// Begin notes that a message is going to be sent.
func (l *Ledger) Begin(chat, user, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sends[key{chat, user, id}] = &Send{}
}

// Unanswered notes that an attempt ended without an answer that says what became of it.
func (l *Ledger) Unanswered(chat, user, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sends[key{chat, user, id}]
	s.Unknown++
	s.Ended = time.Now()
}

// Abandon notes that it is not tried any more.
func (l *Ledger) Abandon(chat, user, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sends[key{chat, user, id}]
	s.Abandoned, s.Ended = true, time.Now()
}

// Confirm notes the answer to a send. duplicate says that the server found it stored.
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

// since is from when a receiver may expect a message, zero if its sender still tries, or the receiver comes and goes.
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

// Say notes that a device of the user is about to say what it has, before it does.
func (l *Ledger) Say(chat, user string, b Boundary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{chat: chat, user: user}
	l.said[k] = l.said[k].merge(b)
}

// Tell notes that somebody was told the boundaries of a user.
func (l *Ledger) Tell(chat, user string, b Boundary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{chat: chat, user: user}
	l.told[k] = l.told[k].merge(b)
	said := l.said[k]
	if c := (claim{b, said}); (b.Acked > said.most() || b.Read > said.Read) && !slices.Contains(l.unsaid[k], c) {
		l.unsaid[k] = append(l.unsaid[k], c)
	}
}

// Owed returns, for each chat in which the user stays, the highest sequence that was confirmed.
func (l *Ledger) Owed(user string) map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	owed := map[string]int64{}
	for _, chat := range l.chats[user] {
		if head := l.heads[chat]; head > 0 && !l.visits[key{chat: chat, user: user}] {
			owed[chat] = head
		}
	}
	return owed
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

// Faults returns the first complaints, and how many of each kind there are.
func (l *Ledger) Faults() ([]Fault, map[Kind]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[Kind]int{}
	for kind, n := range l.counts {
		counts[kind] = n
	}
	return slices.Clone(l.faults), counts
}

// Tally counts sends: all, those confirmed, those with an attempt without an answer, those of them that were found stored when they were sent again, and those that were
// never confirmed.
type Tally struct{ Sends, Confirmed, Unanswered, Found, Unconfirmed int }

// Tally counts.
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
