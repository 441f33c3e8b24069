package session

import "github.com/tidemark-im/tidemark/server/registry"

// lease is what this node knows of the session's lease in the registry.
//
//	state         asked         granted   no answer     lost
//	acquiring     -             held      unconfirmed   -
//	held          reacquiring   -         -             reacquiring
//	unconfirmed   reacquiring   -         -             reacquiring
//	reacquiring   -             held      unconfirmed   -
//
// Only a session with a held lease may leave a proof (R_PROOF). An ending session releases its
// lease in every state but acquiring. If it ends while acquiring, the goroutine that asked the
// registry releases the lease when the answer comes.
type lease uint8

const (
	acquiring   lease = iota // the registry is asked for the first time
	held                     // the registry granted the lease
	unconfirmed              // the registry did not answer; it may have granted the lease
	reacquiring              // the lease was lost, and the registry is asked again
)

// LeaseAnswer is the registry's answer to a request for a session's lease.
type LeaseAnswer struct {
	// Granted is false if the registry failed or did not answer.
	Granted bool
	// Proven says that Epoch has the proof of a clean close, and that the user had no other lease.
	// The pending rows then name every chat with unsent messages (R_PROOF, R_LAST).
	Proven bool
	// Epoch is the registry's epoch before the lease was granted.
	Epoch registry.Epoch
}

// ask records that the registry is asked again.
func (l *lease) ask() {
	if *l != acquiring {
		*l = reacquiring
	}
}

// answer records the registry's answer. It reports whether this is the first one.
func (l *lease) answer(granted bool) (first bool) {
	first = *l == acquiring
	*l = unconfirmed
	if granted {
		*l = held
	}
	return first
}

// settled reports whether the registry was asked and no request is under way.
func (l lease) settled() bool { return l == held || l == unconfirmed }
