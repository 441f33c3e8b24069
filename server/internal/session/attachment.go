package session

import (
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// attachment says which connection reads the session, and what it gets of the messages that it
// sends. Only the newest one may read.
//
//	state         attach          detach of the newest   land
//	detached(g)   attached(g+1)   -                      detached(g+1)
//	attached(g)   attached(g+1)   detached(g)            -
//
// An expiry with generation g ends the session only in the state detached(g).
type attachment struct {
	state      attachmentState
	generation uint32
	// issued is when the credentials of the last client were issued, or zero if none has come yet.
	issued time.Time
	// flag wakes the newest reader.
	flag Waker
	// confirmations are those for the newest reader.
	confirmations confirmations
}

// Waker is what a session sets when its reader may have something to do. Set must not block, and
// must not call the session, whose lock is held. A goroutine that waits for a flag would cost an
// idle connection a third of its memory. So a reader may instead give a signal.Runner.
type Waker interface{ Set() }

type attachmentState uint8

const (
	detached attachmentState = iota
	attached
)

// attach makes a new connection the reader, which flag wakes. It reports whether an older one was
// replaced, and signals that one.
func (a *attachment) attach(flag Waker) (replaced bool) {
	replaced = a.state == attached
	if replaced {
		a.flag.Set()
	}
	a.state, a.flag = attached, flag
	a.generation++
	return replaced
}

// land prepares a session that has moved here: it is as if a connection had just left. It returns
// the generation of that connection.
func (a *attachment) land() (generation uint32) {
	a.generation++
	return a.generation
}

// detach records that the reader of a generation has left. It reports whether that was the newest.
func (a *attachment) detach(generation uint32) bool {
	//rule:resume_lossless.detach-by-current-connection
	if generation != a.generation {
		return false
	}
	a.state = detached
	a.flag = signal.Flag{} // that of the reader may hold its whole connection
	return true
}

// follow makes flag wake the reader of a generation, if that is the newest.
func (a *attachment) follow(generation uint32, flag Waker) {
	if generation == a.generation {
		a.flag = flag
	}
}

// abandoned reports whether no connection has attached since the one of a generation left.
func (a *attachment) abandoned(generation uint32) bool {
	return a.state == detached && a.generation == generation
}

// owns returns nil if the reader of a generation is the newest, else Replaced.
func (a *attachment) owns(generation uint32) error {
	//rule:session_in_order.refuse-older-connection
	if generation != a.generation {
		return tidemark.Errorf(tidemark.Replaced,
			"a newer connection owns the session; do not reconnect automatically")
	}
	return nil
}
