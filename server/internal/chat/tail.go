package chat

import "github.com/tidemark-im/tidemark"

// message is a message in a tail. It is encoded once for all recipients.
type message struct {
	sequence tidemark.Sequence
	version  uint64
	// created is when the message was created, or its target if that is older, in seconds since
	// 1970.
	created int64
	payload []byte
	// relation is nil unless the message is an edit, or a redaction of one message.
	relation *relation
}

// relation is what a tail has of a relation, besides the payload with its target.
type relation struct {
	target tidemark.Sequence
	// bare is the payload for those who may not see the target.
	bare []byte
}

// encoded returns a message for a tail. payload is its JSON.
func encoded(m *tidemark.Message, payload []byte) message {
	kept := message{
		sequence: m.Sequence, version: m.MembersVersion, created: m.CreatedAt.Unix(),
		payload: payload,
	}
	if m.Kind.Revises() && m.Relation != nil && m.Relation.Sequences == nil {
		if target := m.Relation.Target; target != nil {
			//rule:floor_recorded.age-of-the-target
			kept.created = min(kept.created, target.CreatedAt.Unix())
		}
		bare := m.WithoutTarget()
		kept.relation = &relation{target: m.Relation.Sequence, bare: bare.AppendJSON(nil)}
	}
	return kept
}

// payloadFor returns the payload for a reader with a view.
func (m *message) payloadFor(v view) []byte {
	//rule:nothing_outside_membership.no-invisible-target
	if m.relation != nil && !v.contains(m.relation.target) {
		return m.relation.bare
	}
	return m.payload
}

func (m *message) size() int {
	n := len(m.payload) + messageOverhead
	if m.relation != nil {
		n += len(m.relation.bare)
	}
	return n
}

// messageOverhead is about what a message needs beside its payload, in bytes.
const messageOverhead = 64

// tail holds the last messages of a chat. It is a range of sequences; a message that has not
// arrived has an empty slot. It is not safe for concurrent use.
type tail struct {
	// floor is the highest edit or redaction that the node knows of. It may have changed any
	// message before it, so the tail has none of them (R_WIPE).
	floor tidemark.Sequence
	// term is the term in which the slots were filled. since is a sequence from which on all
	// messages were stored in it, or 0 if none is known.
	term  Term
	since tidemark.Sequence
	// first is the sequence of slots[0]. A slot with a nil payload is empty.
	first tidemark.Sequence
	slots []message
	bytes int
}

// put adds a message and drops old ones beyond most messages or mostBytes bytes. It returns the
// change in size.
func (t *tail) put(m message, most, mostBytes int) int {
	before := t.bytes
	//rule:R_WIPE.nothing-below-the-relation
	if m.sequence < t.floor {
		return 0
	}
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
	t.bytes += m.size()
	dropped, size := 0, t.bytes
	//rule:bounded_use.limit-cached-messages
	for len(t.slots)-dropped > most || (size > mostBytes && len(t.slots)-dropped > 1) {
		if old := t.slots[dropped]; old.payload != nil {
			size -= old.size()
		}
		dropped++
	}
	if dropped > 0 {
		t.drop(dropped)
		t.bytes = size
	}
	return t.bytes - before
}

// takes reports whether the tail has a free slot for a message that was read in a term: one in the
// range, the next one after it, or the first one of an empty tail. It has none below floor. A tail
// of another term counts as empty.
func (t *tail) takes(n tidemark.Sequence, term Term) bool {
	end := t.first + tidemark.Sequence(len(t.slots))
	switch {
	case n < t.floor:
		return false
	case len(t.slots) == 0 || t.term != term || n == end:
		return true
	}
	return n >= t.first && n < end && t.slots[n-t.first].payload == nil
}

// enter drops what the tail has from another term. It returns the change in size.
func (t *tail) enter(term Term) int {
	if t.term == term {
		return 0
	}
	freed := t.forget()
	t.term = term
	return freed
}

// follows records that the messages from a sequence on were stored in the tail's term.
func (t *tail) follows(from tidemark.Sequence) {
	if t.since == 0 || from < t.since {
		t.since = from
	}
}

// isFollowing reports whether a message is known to have been stored in the tail's term.
func (t *tail) isFollowing(n tidemark.Sequence) bool { return t.since != 0 && n >= t.since }

// relate drops what a relation may have changed. It returns the change in size.
func (t *tail) relate(relation tidemark.Sequence) int {
	if relation <= t.floor {
		return 0
	}
	t.floor = relation
	dropped, freed := 0, 0
	for dropped < len(t.slots) && t.first+tidemark.Sequence(dropped) < relation {
		if old := t.slots[dropped]; old.payload != nil {
			freed += old.size()
		}
		dropped++
	}
	t.drop(dropped)
	t.bytes -= freed
	return -freed
}

// age drops the messages that were created before a time in seconds since 1970. It returns the
// change in size.
func (t *tail) age(before int64) int {
	freed, empty := 0, 0
	for i := range t.slots {
		old := &t.slots[i]
		if old.payload != nil && old.created < before {
			freed += old.size()
			*old = message{}
		}
		if old.payload == nil && empty == i {
			empty++
		}
	}
	t.drop(empty)
	t.bytes -= freed
	return -freed
}

// drop removes the first slots.
func (t *tail) drop(dropped int) {
	n := copy(t.slots, t.slots[dropped:])
	clear(t.slots[n:])
	t.slots = t.slots[:n]
	t.first += tidemark.Sequence(dropped)
}

// forget drops all messages, and returns the change in size.
func (t *tail) forget() int {
	freed := t.bytes
	clear(t.slots)
	*t = tail{floor: t.floor, slots: t.slots[:0]}
	return -freed
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
