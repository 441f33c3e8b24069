package client

import "github.com/tidemark-im/tidemark"

// progress is how far a chat is. Sequences without a gap in between are a prefix:
//
//	confirmed ≤ said ≤ done ≤ received ≤ seen
//
// Everything up to done is handled and saved. What is between done and received is queued. What is
// between received and seen was left out, for want of room or because the stream began too late,
// and comes from the history.
type progress struct {
	// confirmed is what the server has answered to be acknowledged, said what it was sent.
	confirmed, said tidemark.Sequence
	done            tidemark.Sequence
	received        tidemark.Sequence
	seen            tidemark.Sequence
	// read is what the application has read, readSaid what the server was sent of it.
	read, readSaid tidemark.Sequence
}

// begin returns the progress of a chat of which everything up to n is handled.
func begin(n tidemark.Sequence) progress { return progress{done: n, received: n, seen: n} }

// place says where a range of sequences lies.
type place int

const (
	// again: all of it was received before.
	again place = iota
	// due: it follows what was received.
	due
	// beyond: something before it is missing.
	beyond
)

// place returns where the range from–to lies.
func (p *progress) place(from, to tidemark.Sequence) place {
	switch {
	case to <= p.received:
		return again
	//rule:client_skips_nothing.hole-is-not-passed
	case from > p.received+1:
		return beyond
	}
	return due
}

// receive notes that everything up to n is queued.
func (p *progress) receive(n tidemark.Sequence) {
	p.received = max(p.received, n)
	p.see(p.received)
}

// see notes that the chat has a message n.
func (p *progress) see(n tidemark.Sequence) { p.seen = max(p.seen, n) }

// drop forgets what is queued. It comes from the history again.
func (p *progress) drop() { p.received = p.done }

// behind reports whether something has to come from the history.
func (p *progress) behind() bool { return p.received < p.seen }

// finish notes that everything up to n is handled and saved.
func (p *progress) finish(n tidemark.Sequence) {
	p.done = max(p.done, n)
	p.receive(n)
}

// due returns what has to be acknowledged and read now, and whether that is anything. What is read
// counts as received, so no read goes beyond what is handled. By a call, what only a frame has said
// counts as not said.
func (p *progress) due(byCall bool) (a acked, some bool) {
	said := p.said
	if byCall {
		said = p.confirmed
	}
	if p.done > said {
		a.Acked, some = p.done, true
	}
	//rule:client_acks_handled.read-waits-for-handled
	if n := min(p.read, p.done); n > p.readSaid {
		a.Read, some = n, true
	}
	return a, some
}

// say notes that an entry was sent. By a call, the server has answered.
func (p *progress) say(a acked, answered bool) {
	p.said, p.readSaid = max(p.said, a.Acked), max(p.readSaid, a.Read)
	if answered {
		p.confirmed = max(p.confirmed, a.Acked)
	}
}

// unsay notes that what was only sent by frames may be lost.
func (p *progress) unsay() { p.said, p.readSaid = p.confirmed, 0 }

// rewind notes that the server's data have the chat only up to n, as it was handled.
func (p *progress) rewind(n tidemark.Sequence) {
	n = min(n, p.done)
	*p = progress{done: n, received: n, seen: n, read: min(p.read, n)}
}
