// Package device is what a device of the load does with what it receives: it checks that nothing is lost, doubled or out of order (Checker), and
// acknowledges it (Acknowledger).
package device

import (
	"fmt"
	"slices"
	"sort"
)

// Checker verifies what one user receives: per chat strictly in order, nothing lost, nothing doubled. After a
// resumed connection the server may send again what it cannot know to have arrived: then a run of sequences from the
// past is allowed once, in order. It belongs to one goroutine.
type Checker struct {
	user  string
	chats map[string]*progress
	// problems are the first maxProblems that were found; found counts all.
	problems []string
	found    int
}

// maxProblems bounds what one checker tells: the first ones say what is wrong, the rest only repeat it.
const maxProblems = 5

// progress is one chat of one recipient.
type progress struct {
	// next is the lowest sequence above everything received.
	next uint64
	// missing are the sequences below next that have not arrived.
	missing map[uint64]struct{}
	// replay is the sequence that a re-send may continue with; 0 when none is allowed; anywhere just after a resume.
	replay   uint64
	anywhere bool
	// rewound says that one re-send may begin anywhere whenever it comes, also behind new messages.
	rewound bool
	// digest is the sum of the digests of the contents received: it tells whether exactly the messages that were sent are here,
	// whatever their order.
	digest uint64
	count  uint64
}

// NewChecker returns the checker of a user.
func NewChecker(user string) *Checker {
	return &Checker{user: user, chats: make(map[string]*progress)}
}

// Observe takes one message. It returns the contiguous prefix of the chat, which is what a client may acknowledge, and
// whether the message is new.
func (c *Checker) Observe(chat []byte, sequence, digest uint64) (prefix uint64, fresh bool) {
	p := c.chat(chat)
	fresh = c.place(p, string0(chat), sequence)
	if fresh {
		p.digest += digest
		p.count++
	}
	return p.prefix(), fresh
}

// Gap takes a range that the user may not see; it counts as received.
func (c *Checker) Gap(chat []byte, from, to uint64) (prefix uint64) {
	p := c.chat(chat)
	for sequence := from; sequence <= to; sequence++ {
		c.place(p, string0(chat), sequence)
	}
	return p.prefix()
}

// Resumed says that the connection was lost and another one continues.
func (c *Checker) Resumed() {
	for _, p := range c.chats {
		p.replay, p.anywhere = 0, true
	}
}

// Rewound says that the server was told a position, from which it goes on, whatever it has sent meanwhile.
func (c *Checker) Rewound(chat string) { c.chat([]byte(chat)).rewound = true }

// string0 defers the conversion to where a sentence is formed.
type string0 []byte

func (c *Checker) place(p *progress, chat string0, sequence uint64) bool {
	switch {
	case sequence == p.next:
		p.next++
		p.replay, p.anywhere = 0, false
		return true
	case sequence > p.next:
		// A session begins a chat at the first message that it is told of, and what its user wrote himself counts as acknowledged: if his second message is told
		// first it begins with that one, and goes back when it is told of the first (delivery.md §3, R_MIN). Later nothing is before what is missing.
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

// Finish compares with what must have arrived: the messages 1..head of a chat, and their digest.
func (c *Checker) Finish(chat string, head, digest uint64) {
	p := c.chat([]byte(chat))
	if len(p.missing) > 0 || p.next <= head {
		c.Problem("%s never got %s of chat %s, whose head is %d", c.user, lost(p, head), chat, head)
		return
	}
	if p.next != head+1 {
		c.Problem("%s got messages of chat %s up to %d, but its head is %d", c.user, chat, p.next-1, head)
		return
	}
	if p.digest != digest {
		c.Problem("%s got %d messages of chat %s that are not the ones that were sent", c.user, p.count, chat)
	}
}

// Problems returns the first problems, and how many there are besides.
func (c *Checker) Problems() []string {
	if more := c.found - len(c.problems); more > 0 {
		return append(slices.Clip(c.problems), fmt.Sprintf("%s has %d more problems", c.user, more))
	}
	return c.problems
}

// Problem notes a problem.
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

// prefix is the highest sequence with nothing missing below.
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
