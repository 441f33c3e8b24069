package chat

import "github.com/tidemark-im/tidemark"

// message is a message in a tail. It is encoded once for all recipients.
type message struct {
	sequence tidemark.Sequence
	version  uint64
	payload  []byte
}

// messageOverhead is about what a message needs beside its payload, in bytes.
const messageOverhead = 64

// tail holds the last messages of a chat. It is a range of sequences; a message that has not
// arrived has an empty slot. It is not safe for concurrent use.
type tail struct {
	// first is the sequence of slots[0]. A slot with a nil payload is empty.
	first tidemark.Sequence
	slots []message
	bytes int
}

// put adds a message and drops old ones beyond most messages or mostBytes bytes. It returns the
// change in size.
func (t *tail) put(m message, most, mostBytes int) int {
	before := t.bytes
	if len(t.slots) == 0 || m.sequence >= t.first+tidemark.Sequence(len(t.slots)+most) {
		// It is too far from the range: start a new one.
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

// read returns the messages from a sequence up to and including to: at most limit messages, and
// about mostBytes. It stops before an empty slot. The result is valid until the next put.
func (t *tail) read(from, to tidemark.Sequence, limit, mostBytes int) []message {
	if from < t.first || from >= t.first+tidemark.Sequence(len(t.slots)) {
		return nil
	}
	//rule:session_in_order.stop-at-missing-message
	slots := t.slots[from-t.first:]
	n, size := 0, 0
	for n < len(slots) && n < limit && size < mostBytes && slots[n].payload != nil &&
		slots[n].sequence <= to {
		size += len(slots[n].payload)
		n++
	}
	return slots[:n]
}
