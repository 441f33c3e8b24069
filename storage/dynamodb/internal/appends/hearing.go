package appends

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// A hearing says whether a process gets the messages of a chat that others store
// (storage.Messages.Observe). Then it need not read the counter before it writes there after a
// rest. It gets them if it has sessions of the chat's members. A failed transaction costs as much
// as fifty reads. So a process relies on what it gets only after reads have shown that nothing was
// missing.
type hearing struct {
	// expected is the head by what this process got, while the counter is read to compare, or 0.
	expected tidemark.Sequence
	// right is how many reads in a row have found that head. needed is how many there have to be,
	// and 0 stands for 1.
	right, needed int
	// relied reports that the present transaction relies on what this process got.
	relied bool
}

// mostNeeded bounds needed. With it, a chat whose messages arrive only sometimes costs little more
// than one that is always read.
const mostNeeded = 256

// follow brings the view of a shared chat up to date after a rest. It uses the messages of others
// that this process got, or orders a read of the counter.
func (v *view) follow(known *record.Known) {
	if v.Counter == nil || v.stale {
		v.stale = true
		return
	}
	counter, latest := known.Follow(v.Counter)
	if latest && v.heard.right >= max(1, v.heard.needed) {
		v.Counter, v.heard.relied = counter, true
		return
	}
	v.stale, v.heard.expected = true, counter.Head
}

// compare compares a counter that was read with what this process expected. It does nothing if
// others have not moved the head.
func (h *hearing) compare(before, head tidemark.Sequence) {
	switch {
	case h.expected == 0 || head == before:
	case head == h.expected:
		h.right++
	default:
		h.right = 0
	}
	h.expected = 0
}

// failed records that a transaction found another counter than expected.
func (h *hearing) failed() {
	if h.relied {
		h.right, h.needed = 0, min(16*max(1, h.needed), mostNeeded)
	}
	h.relied = false
}
