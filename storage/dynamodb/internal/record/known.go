package record

import (
	"sync"

	"github.com/tidemark-im/tidemark"
)

// Known is what this process has learned of heads and watermarks, and may use although others write them: they only grow. It holds at most mostKnown of
// each, and forgets at random. Use NewKnown; it is safe for concurrent use.
type Known struct {
	mu     sync.Mutex
	heads  map[tidemark.ChatID]tidemark.Sequence
	states map[stateName]tidemark.DeliveryState
}

type stateName struct {
	user tidemark.UserID
	chat tidemark.ChatID
}

// mostKnown is how many heads, and how many states, are remembered: some 20 MB.
const mostKnown = 100_000

// NewKnown knows nothing.
func NewKnown() *Known {
	return &Known{
		heads:  map[tidemark.ChatID]tidemark.Sequence{},
		states: map[stateName]tidemark.DeliveryState{},
	}
}

// SawHead takes in the head of a chat.
func (k *Known) SawHead(chat tidemark.ChatID, head tidemark.Sequence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	makeRoom(k.heads)
	k.heads[chat] = max(k.heads[chat], head)
}

// Reaches reports whether a chat is known to have a message, and so all before it.
func (k *Known) Reaches(chat tidemark.ChatID, sequence tidemark.Sequence) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	head, found := k.heads[chat]
	return found && head >= sequence
}

// SawState takes in a delivery state, unless a later one is known: what was read eventually may be older.
func (k *Known) SawState(s tidemark.DeliveryState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := stateName{s.UserID, s.ChatID}
	if known := k.states[name]; known.Acked > s.Acked || known.Read > s.Read {
		return
	}
	makeRoom(k.states)
	k.states[name] = s
}

// Guess returns a delivery state as it was once, the empty one if it is not known.
func (k *Known) Guess(
	user tidemark.UserID, chat tidemark.ChatID,
) (s tidemark.DeliveryState, found bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, found = k.states[stateName{user, chat}]
	if !found {
		s = tidemark.DeliveryState{UserID: user, ChatID: chat}
	}
	return s, found
}

// makeRoom forgets something if there is too much.
func makeRoom[K comparable, V any](m map[K]V) {
	if len(m) < mostKnown {
		return
	}
	for key := range m {
		delete(m, key)
		return
	}
}
