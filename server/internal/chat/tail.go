package chat

import "github.com/tidemark-im/tidemark"

// message is one message as the tail keeps it: encoded once, however many receive it.
type message struct {
	sequence tidemark.Sequence
	version  uint64
	payload  []byte
}

// messageOverhead is about what a message costs beside its payload, in bytes.
const messageOverhead = 64

// tail is the last messages of a chat: a range of sequences, in which one that has not arrived yet has
// an empty slot. It is not safe for concurrent use.
type tail struct {
	// first is the sequence of slots[0]. A slot whose payload is nil has not arrived.
	first tidemark.Sequence
	slots []message
	bytes int
}

// put adds a message, and drops old ones beyond most messages or mostBytes bytes. It returns by how
// much the size has changed.
func (t *tail) put(m message, most, mostBytes int) int {
	before := t.bytes
	if len(t.slots) == 0 || m.sequence >= t.first+tidemark.Sequence(len(t.slots)+most) {
		// It does not join what is here: begin anew.
		clear(t.slots)
		t.slots, t.first, t.bytes = t.slots[:0], m.sequence, 0
	}
	if m.sequence < t.first {
		return t.bytes - before
	}
	for t.first+tidemark.Sequence(len(t.slots)) <= m.sequence {
		t.slots = append(t.slots, message{})
	}
	slot := &t.slots[m.sequence-t.first]
	if slot.payload != nil {
		return t.bytes - before
	}
	*slot = m
	t.bytes += len(m.payload) + messageOverhead
	drop, size := 0, t.bytes
	//rule:bounded_use.limit-cached-messages
	for len(t.slots)-drop > most || (size > mostBytes && len(t.slots)-drop > 1) {
		if old := t.slots[drop]; old.payload != nil {
			size -= len(old.payload) + messageOverhead
		}
		drop++
	}
	if drop > 0 {
		n := copy(t.slots, t.slots[drop:])
		clear(t.slots[n:])
		t.slots = t.slots[:n]
		t.first += tidemark.Sequence(drop)
		t.bytes = size
	}
	return t.bytes - before
}

// read returns the messages from a sequence up to and including to, at most limit of them and about
// mostBytes. It stops before one that has not arrived. The result is valid until the next put.
func (t *tail) read(from, to tidemark.Sequence, limit, mostBytes int) []message {
	if from < t.first || from >= t.first+tidemark.Sequence(len(t.slots)) {
		return nil
	}
	//rule:session_in_order.stop-at-missing-message
	slots := t.slots[from-t.first:]
	n, size := 0, 0
	for n < len(slots) && n < limit && size < mostBytes && slots[n].payload != nil && slots[n].sequence <= to {
		size += len(slots[n].payload)
		n++
	}
	return slots[:n]
}
