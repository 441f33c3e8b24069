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
	images map[tidemark.ChatID]image
	states map[stateName]State
}

// An image has the senders of a chat when it ended at head.
type image struct {
	head    tidemark.Sequence
	senders Senders
}

// A State is the item of a delivery state.
type State struct {
	tidemark.DeliveryState
	// ReadSent is the number of the user's messages that count as unread, up to Read. MarkSent is
	// that up to UnreadFrom − 1, if UnreadFrom is set.
	ReadSent, MarkSent int64
	// MarkRead is Read when the user marked messages as unread. If Read has moved since, the mark
	// has ended.
	MarkRead tidemark.Sequence
	// Sender has the numbers that were moved here from the counter.
	Sender Sender
}

// SentBefore returns the number of the user's messages up to UnreadAfter.
func (s *State) SentBefore() int64 {
	if s.UnreadFrom != 0 {
		return s.MarkSent
	}
	return s.ReadSent
}

type stateName struct {
	user tidemark.UserID
	chat tidemark.ChatID
}

// mostKnown is the maximum number of heads, of senders, and of states: some 20 MB, and up to 600
// bytes for the senders of a group.
const mostKnown = 100_000

// NewKnown returns an empty Known.
func NewKnown() *Known {
	return &Known{
		heads:  map[tidemark.ChatID]tidemark.Sequence{},
		images: map[tidemark.ChatID]image{},
		states: map[stateName]State{},
	}
}

// SawHead remembers the head of a chat.
func (k *Known) SawHead(chat tidemark.ChatID, head tidemark.Sequence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	makeRoom(k.heads)
	k.heads[chat] = max(k.heads[chat], head)
}

// SawCounter remembers the head and the senders of a chat.
func (k *Known) SawCounter(c *Counter) {
	k.SawHead(c.ID, c.Head)
	k.mu.Lock()
	defer k.mu.Unlock()
	if seen, found := k.images[c.ID]; found && seen.head > c.Head {
		return
	}
	makeRoom(k.images)
	k.images[c.ID] = image{head: c.Head, senders: c.Senders}
}

// Sender returns the entry of a user in the senders of a chat that had the message at sequence.
// known is false if no such senders are remembered, and listed if the user is one of them.
func (k *Known) Sender(
	chat tidemark.ChatID, user tidemark.UserID, sequence tidemark.Sequence,
) (one Sender, listed, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen, found := k.images[chat]
	if !found || seen.head < sequence {
		return Sender{}, false, false
	}
	one, listed = seen.senders.Of(user)
	return one, listed, true
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
func (k *Known) SawState(s State) {
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
) (s State, found bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, found = k.states[stateName{user, chat}]
	if !found {
		s.DeliveryState = tidemark.DeliveryState{UserID: user, ChatID: chat}
		s.Sender.User = user
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
