package feed

import "github.com/tidemark-im/tidemark"

// entry is one message as the tail keeps it: encoded once, whatever the number of its receivers.
type entry struct {
	sequence tidemark.Sequence
	version  uint64
	payload  []byte
}

// entryOverhead is what an entry costs beside its payload, in bytes, roughly.
const entryOverhead = 64

// tail is the last messages of a chat. It holds a range of sequences without holes below its end; a message that arrives before
// its predecessor waits in the slot that is its own. It is not safe for concurrent use.
type tail struct {
	// first is the sequence of slots[0]. A slot whose payload is nil has not arrived.
	first tidemark.Sequence
	slots []entry
	bytes int
}

// put adds a message. Old ones are dropped beyond most messages or mostBytes bytes. It returns by how much the size changed.
func (t *tail) put(e entry, most, mostBytes int) int {
	before := t.bytes
	if len(t.slots) == 0 || e.sequence >= t.first+tidemark.Sequence(len(t.slots)+most) {
		// Nothing here, or too far ahead to be joined: begin anew.
		clear(t.slots)
		t.slots, t.first, t.bytes = t.slots[:0], e.sequence, 0
	}
	if e.sequence < t.first {
		return t.bytes - before
	}
	for t.first+tidemark.Sequence(len(t.slots)) <= e.sequence {
		t.slots = append(t.slots, entry{})
	}
	slot := &t.slots[e.sequence-t.first]
	if slot.payload != nil {
		return t.bytes - before
	}
	*slot = e
	t.bytes += len(e.payload) + entryOverhead
	drop, size := 0, t.bytes
	//rule:bounded_use.limit-cached-messages
	for len(t.slots)-drop > most || (size > mostBytes && len(t.slots)-drop > 1) {
		if old := t.slots[drop]; old.payload != nil {
			size -= len(old.payload) + entryOverhead
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

// read returns the messages from a sequence on, up to and including to, at most limit of them and about mostBytes, and stops before one that
// has not arrived. The result is valid until the next put.
func (t *tail) read(from, to tidemark.Sequence, limit, mostBytes int) []entry {
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
