package chat

import (
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
)

// standing remembers which members of a roster have a pending row (R_STANDS). Otherwise each
// message of a group would ask storage again for all members who are away.
//
// A bit is set when a Mark has returned. At some moment of that call the row stood, and the version
// of the chat's rows was at least version, because it was read before. If a message that is stored
// later has the same version, no row was removed in between, so the row covers the message too. If
// the version is higher, some row was removed, and all bits are dropped.
//
// Nothing else has to reach a node, such as an acknowledgement on another node, or one by PATCH. A
// removal of a member ends the roster. A restart begins without bits.
type standing struct {
	mu      sync.Mutex
	version uint64
	// since is the highest sequence with which a row was marked. Rows may begin above a message
	// that is below it.
	since tidemark.Sequence
	// bits has a bit for each of Users. It is nil if none is set.
	bits Members
}

// Members is a set of members of a roster, by their indexes in Users. The nil set is empty.
type Members []uint64

// Has reports whether the set has the member of an index.
func (m Members) Has(i int) bool { return i>>6 < len(m) && m[i>>6]>>(i&63)&1 != 0 }

// Standing returns the members whose pending rows are known to cover a message. version is the
// storage.Appended.RowsVersion of the step that stored the message. 0 stands for unknown. Standing
// is safe for concurrent use.
func (r *Roster) Standing(version uint64, n tidemark.Sequence) Members {
	s := &r.standing
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_STANDS.forget-after-removal
	if version > s.version {
		s.version, s.since, s.bits = version, 0, nil
	}
	//rule:R_STANDS.row-may-begin-later
	if version == 0 || n < s.since {
		return nil
	}
	return slices.Clone(s.bits)
}

// Stood records that rows of members stood at or below message n after Standing was called with a
// version. members are indexes in Users. Stood is safe for concurrent use.
func (r *Roster) Stood(version uint64, n tidemark.Sequence, members []int) {
	s := &r.standing
	s.mu.Lock()
	defer s.mu.Unlock()
	// If a later version is known, a row may have been removed since it stood.
	//rule:R_STANDS.remember-of-one-version
	if version == 0 || version != s.version {
		return
	}
	if s.bits == nil {
		s.bits = make(Members, (len(r.Users)+63)>>6)
	}
	s.since = max(s.since, n)
	for _, i := range members {
		s.bits[i>>6] |= 1 << (i & 63)
	}
}
