// Package device handles what a device of the load receives.
// The Checker checks that nothing is lost, doubled or out of order.
// The Acknowledger acknowledges it.
package device

import (
	"fmt"
	"slices"
	"sort"
)

// Checker verifies what one user receives: per chat strictly in order, nothing lost or doubled.
// After a resumed connection the server may repeat what it does not know to have arrived.
// So one run of earlier sequences, in order, is allowed then. One goroutine uses a Checker.
type Checker struct {
	user  string
	chats map[string]*progress
	// problems are the first maxProblems problems. found counts all.
	problems []string
	found    int
}

// maxProblems is the greatest number of problems that a checker keeps.
// The first ones show what is wrong, and further ones only repeat it.
const maxProblems = 5

// progress is one chat of one recipient.
type progress struct {
	// next is the lowest sequence above everything received.
	next uint64
	// missing are the sequences below next that have not arrived.
	missing map[uint64]struct{}
	// replay is the sequence that continues a re-send, or 0 if none is allowed.
	replay uint64
	// anywhere says that the next message may begin a re-send at any sequence, after a resume.
	anywhere bool
	// rewound says that one re-send may begin at any sequence and time, even after new messages.
	rewound bool
	// digest is the sum of the digests of the messages received, in any order.
	// It equals that of the sent messages if exactly these have arrived.
	digest uint64
	count  uint64
}

// NewChecker returns a checker for a user.
func NewChecker(user string) *Checker {
	return &Checker{user: user, chats: make(map[string]*progress)}
}

// Observe checks one message, and reports whether it is new (fresh).
// It also returns the contiguous prefix of the chat, which a client may acknowledge.
func (c *Checker) Observe(chat []byte, sequence, digest uint64) (prefix uint64, fresh bool) {
	p := c.chat(chat)
	fresh = c.place(p, lazyString(chat), sequence)
	if fresh {
		p.digest += digest
		p.count++
	}
	return p.prefix(), fresh
}

// Gap records a range that the user may not see. The range counts as received.
func (c *Checker) Gap(chat []byte, from, to uint64) (prefix uint64) {
	p := c.chat(chat)
	for sequence := from; sequence <= to; sequence++ {
		c.place(p, lazyString(chat), sequence)
	}
	return p.prefix()
}

// Resumed records that the connection was lost and that another one continues.
func (c *Checker) Resumed() {
	for _, p := range c.chats {
		p.replay, p.anywhere = 0, true
	}
}

// Rewound records that the server was given a position.
// It continues there, whatever it has sent meanwhile.
func (c *Checker) Rewound(chat string) { c.chat([]byte(chat)).rewound = true }

// Reopened records that another session continues. It may notice only after its first new messages
// what is not acknowledged, and goes back then (delivery.md §3, R_MIN).
func (c *Checker) Reopened() {
	for _, p := range c.chats {
		p.rewound = true
	}
}

// lazyString is converted to a string only where a problem is reported.
type lazyString []byte

// place records one sequence, and reports whether it is new. It reports a problem if it is wrong.
func (c *Checker) place(p *progress, chat lazyString, sequence uint64) bool {
	switch {
	case sequence == p.next:
		p.next++
		p.replay, p.anywhere = 0, false
		return true
	case sequence > p.next:
		// A session begins a chat at the first message of which it is notified.
		// A user's own messages count as acknowledged, so this may be their second one.
		// The session goes back when it is notified of the first (delivery.md §3, R_MIN).
		// Later, a message that comes before a missing one is a problem.
		if p.next != 1 {
			c.Problem("%s got %d of chat %s before %d", c.user, sequence, chat, p.next)
		}
		for s := p.next; s < sequence; s++ {
			p.missing[s] = struct{}{}
		}
		p.next = sequence + 1
		return true
	}
	if _, ok := p.missing[sequence]; ok {
		delete(p.missing, sequence)
		p.replay = sequence + 1
		return true
	}
	if p.anywhere || p.rewound && sequence != p.replay {
		p.rewound = p.rewound && p.anywhere
		p.replay, p.anywhere = sequence+1, false
		return false
	}
	if sequence == p.replay {
		p.replay = sequence + 1
		return false
	}
	c.Problem("%s got %d of chat %s twice", c.user, sequence, chat)
	return false
}

// Finish reports a problem unless exactly the messages 1..head of a chat, with the given digest,
// have arrived.
func (c *Checker) Finish(chat string, head, digest uint64) {
	p := c.chat([]byte(chat))
	if len(p.missing) > 0 || p.next <= head {
		c.Problem("%s never got %s of chat %s, whose head is %d", c.user, lost(p, head), chat, head)
		return
	}
	if p.next != head+1 {
		c.Problem("%s got messages of chat %s up to %d, but its head is %d",
			c.user, chat, p.next-1, head)
		return
	}
	if p.digest != digest {
		c.Problem("%s got %d messages of chat %s that are not the ones that were sent",
			c.user, p.count, chat)
	}
}

// Problems returns the first problems, and the number of further ones.
func (c *Checker) Problems() []string {
	if more := c.found - len(c.problems); more > 0 {
		return append(slices.Clip(c.problems), fmt.Sprintf("%s has %d more problems", c.user, more))
	}
	return c.problems
}

// Problem records a problem.
func (c *Checker) Problem(format string, args ...any) {
	c.found++
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

func (c *Checker) chat(chat []byte) *progress {
	p, ok := c.chats[string(chat)]
	if !ok {
		p = &progress{next: 1, missing: make(map[uint64]struct{})}
		c.chats[string(chat)] = p
	}
	return p
}

// prefix returns the highest sequence with nothing missing below.
func (p *progress) prefix() uint64 {
	least := p.next
	for s := range p.missing {
		least = min(least, s)
	}
	return least - 1
}

func lost(p *progress, head uint64) string {
	var missing []uint64
	for s := range p.missing {
		missing = append(missing, s)
	}
	sort.Slice(missing, func(i, j int) bool { return missing[i] < missing[j] })
	total := uint64(len(missing))
	if p.next <= head {
		missing = append(missing, p.next)
		total += head + 1 - p.next
	}
	if total == 1 {
		return fmt.Sprintf("message %d", missing[0])
	}
	return fmt.Sprintf("%d messages, the first of them %d,", total, missing[0])
}
