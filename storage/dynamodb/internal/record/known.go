package record

import (
	"sync"

	"github.com/tidemark-im/tidemark"
)

// Known has the heads and watermarks that this process has seen. They may be used although other
// processes write them, because they only grow. It holds at most mostKnown of each, and drops some
// at random. Use NewKnown. Known is safe for concurrent use.
type Known struct {
	mu     sync.Mutex
	heads  map[tidemark.ChatID]tidemark.Sequence
	states map[stateName]tidemark.DeliveryState
}

type stateName struct {
	user tidemark.UserID
	chat tidemark.ChatID
}

// mostKnown is the maximum number of heads, and of states: some 20 MB.
const mostKnown = 100_000

// NewKnown returns an empty Known.
func NewKnown() *Known {
	return &Known{
		heads:  map[tidemark.ChatID]tidemark.Sequence{},
		states: map[stateName]tidemark.DeliveryState{},
	}
}

// SawHead remembers the head of a chat.
func (k *Known) SawHead(chat tidemark.ChatID, head tidemark.Sequence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	makeRoom(k.heads)
	k.heads[chat] = max(k.heads[chat], head)
}

// Reaches reports whether a chat is known to have a message, and so all messages before it.
func (k *Known) Reaches(chat tidemark.ChatID, sequence tidemark.Sequence) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	head, found := k.heads[chat]
	return found && head >= sequence
}

// SawState remembers a delivery state, unless a later one is known. An eventually consistent read
// may return an older one.
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

// Guess returns a delivery state that was stored at some time. found is false if none is
// remembered.
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

// makeRoom deletes an entry if the map is full.
func makeRoom[K comparable, V any](m map[K]V) {
	if len(m) < mostKnown {
		return
	}
	for key := range m {
		delete(m, key)
		return
	}
}
