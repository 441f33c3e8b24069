package session

import "github.com/tidemark-im/tidemark/server/registry"

// lease says what this node knows of its claim in the registry to receive for the device.
//
//	state         asked         granted   silence       lost
//	acquiring     -             held      unconfirmed   -
//	held          reacquiring   -         -             reacquiring
//	unconfirmed   reacquiring   -         -             reacquiring
//	reacquiring   -             held      unconfirmed   -
//
// Only a held lease may leave a proof (R_PROOF). A session that ends in any state but acquiring
// releases its lease. One that ends while acquiring is orphaned: whoever asked releases the lease
// when the answer comes.
type lease uint8

const (
	acquiring   lease = iota // the registry is being asked for the first time
	held                     // the registry granted it
	unconfirmed              // the registry did not answer, and may have granted it
	reacquiring              // it was lost, and the registry is being asked again
)

// LeaseAnswer is what the registry said to a request for a session's lease.
type LeaseAnswer struct {
	// Granted is false if the registry could not be asked, or did not answer.
	Granted bool
	// Proven says that a proof of a clean close names Epoch, and that the user had no other lease:
	// the pending rows then name every chat in which something waits (R_PROOF, R_LAST).
	Proven bool
	// Epoch is what the registry said before the lease was taken.
	Epoch registry.Epoch
}

// ask says that the registry is asked again.
func (l *lease) ask() {
	if *l != acquiring {
		*l = reacquiring
	}
}

// answer takes the registry's answer. It reports whether this is the first one.
func (l *lease) answer(granted bool) (first bool) {
	first = *l == acquiring
	*l = unconfirmed
	if granted {
		*l = held
	}
	return first
}

// settled reports whether an answer is known and none is under way.
func (l lease) settled() bool { return l == held || l == unconfirmed }
