package record

import (
	"sync"

	"github.com/tidemark-im/tidemark"
)

// Known has the heads and watermarks that this process has seen. They may be used although other
// processes write them, because they only grow. It also has the chats that this process has seen
// deleted, which stay deleted. It holds at most mostKnown of each, and drops some at random. Use
// NewKnown. Known is safe for concurrent use.
type Known struct {
	mu     sync.Mutex
	heads  map[tidemark.ChatID]tidemark.Sequence
	images map[tidemark.ChatID]image
	states map[stateName]State
	// gone has the deleted chats of which it has seen the counter. It has no head of them.
	gone map[tidemark.ChatID]struct{}
}

// An image has what the messages of a chat have written to its counter when it ended at head. Who
// has left the senders of the counter since may still be in those of the image, with exact numbers.
// lastMoved is of those who are not in the image. So a counter may be written from the image.
type image struct {
	head, lastMoved            tidemark.Sequence
	senders                    Senders
	uncounted                  int64
	lastUncounted, lastMention tidemark.Sequence
	// version is the membership version.
	version uint64
}

// with returns the image after the next message. ok is false if the message does not suffice for
// that. Then one is missing before it, the members have changed, or the numbers of its sender may
// be in their delivery state.
func (i image) with(m *tidemark.Message) (next image, ok bool) {
	//rule:unread_exact.follow-without-hole
	if m.Sequence != i.head+1 || m.MembersVersion != i.version {
		return i, false
	}
	next = i
	next.head = m.Sequence
	if !m.Kind.Counts() {
		next.uncounted, next.lastUncounted = i.uncounted+1, m.Sequence
		return next, true
	}
	one, listed := i.senders.Of(m.SenderID)
	//rule:unread_exact.follow-known-senders
	if !listed && i.lastMoved > 0 {
		return i, false
	}
	one.Sent, one.Last = one.Sent+1, m.Sequence
	next.senders = i.senders.With(one)
	if !m.Mentions.None() {
		next.lastMention = m.Sequence
	}
	return next, true
}

// A State is the item of a delivery state.
type State struct {
	tidemark.DeliveryState
	// ReadSent is the number of the user's messages that count as unread, up to Read. MarkSent is
	// that up to UnreadFrom − 1, if UnreadFrom is set.
	ReadSent, MarkSent int64
	// Expired is the number of those messages below ExpiredAt. They have expired.
	Expired   int64
	ExpiredAt tidemark.Sequence
	// MarkRead is Read when the user marked messages as unread. If Read has moved since, the mark
	// has ended.
	MarkRead tidemark.Sequence
	// Sender has the numbers that were moved here from the counter.
	Sender Sender
	// Receipts is the user's setting for the chat, or "". HidesAll is a copy of the one for all
	// chats: they hide what they read if it is odd. PolicyNumber is a copy of that of the chat.
	Receipts     tidemark.ReceiptsSetting
	HidesAll     int64
	PolicyNumber int64
}

// Hidden reports whether what the user reads is hidden.
func (s *State) Hidden() bool {
	hides := s.Receipts == tidemark.ReceiptsOff || s.Receipts == "" && s.HidesAll%2 == 1
	return ReceiptsPolicyOf(s.PolicyNumber).Hides(hides)
}

// policies are those of ReceiptsPolicyOf.
var policies = [...]tidemark.ReceiptsPolicy{
	tidemark.ReceiptsOptional, tidemark.ReceiptsRequired, tidemark.ReceiptsNever,
}

// ReceiptsPolicyOf returns the policy for which a number stands. Each change of the policy raises
// the number, so a later one is known by its number. The policies repeat: 0 and 3 are the same.
func ReceiptsPolicyOf(number int64) tidemark.ReceiptsPolicy {
	return policies[number%int64(len(policies))]
}

// NextPolicy returns the next number above one that stands for a policy.
func NextPolicy(number int64, policy tidemark.ReceiptsPolicy) int64 {
	for number++; ReceiptsPolicyOf(number) != policy; {
		number++
	}
	return number
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

// mostKnown is the maximum number of heads, of images, and of states: some 25 MB, and up to 600
// bytes for the senders of a group.
const mostKnown = 100_000

// NewKnown returns an empty Known.
func NewKnown() *Known {
	return &Known{
		heads:  map[tidemark.ChatID]tidemark.Sequence{},
		images: map[tidemark.ChatID]image{},
		states: map[stateName]State{},
		gone:   map[tidemark.ChatID]struct{}{},
	}
}

// SawHead remembers the head of a chat.
func (k *Known) SawHead(chat tidemark.ChatID, head tidemark.Sequence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	//rule:deleted_is_gone.no-head-of-a-deleted-chat
	if _, gone := k.gone[chat]; gone {
		return
	}
	makeRoom(k.heads)
	k.heads[chat] = max(k.heads[chat], head)
}

// SawDeletion remembers that a chat was deleted, and forgets what it knows of the chat.
func (k *Known) SawDeletion(chat tidemark.ChatID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	makeRoom(k.gone)
	k.gone[chat] = struct{}{}
	delete(k.heads, chat)
	delete(k.images, chat)
}

// Gone reports whether a chat is known to be deleted.
func (k *Known) Gone(chat tidemark.ChatID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, gone := k.gone[chat]
	return gone
}

// SawCounter remembers the head and the senders of a chat.
func (k *Known) SawCounter(c *Counter) {
	if c.State == tidemark.ChatDeleted {
		k.SawDeletion(c.ID)
		return
	}
	k.SawHead(c.ID, c.Head)
	k.mu.Lock()
	defer k.mu.Unlock()
	if seen, found := k.images[c.ID]; found && seen.head > c.Head {
		return
	}
	makeRoom(k.images)
	k.images[c.ID] = image{
		head: c.Head, lastMoved: c.LastMoved, senders: c.Senders, uncounted: c.Uncounted,
		lastUncounted: c.LastUncounted, lastMention: c.LastMention, version: c.MembersVersion,
	}
}

// SawMessage remembers that a chat has a message, which another process stored. If the messages
// before it are known, it remembers the counter after it.
func (k *Known) SawMessage(m *tidemark.Message) {
	//rule:watermark_bounded_by_counter.message-proves-head
	k.SawHead(m.ChatID, m.Sequence)
	k.mu.Lock()
	defer k.mu.Unlock()
	if seen, found := k.images[m.ChatID]; found {
		if next, ok := seen.with(m); ok {
			k.images[m.ChatID] = next
		}
	}
}

// Follow returns a counter after the later messages that SawMessage got. latest is false if the
// chat is known to have still later ones, or other members.
func (k *Known) Follow(c *Counter) (next *Counter, latest bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := k.images[c.ID]
	if seen.head <= c.Head {
		return c, k.heads[c.ID] <= c.Head
	}
	if seen.version != c.MembersVersion {
		return c, false
	}
	copied := *c
	copied.Head, copied.LastMoved, copied.Senders = seen.head, seen.lastMoved, seen.senders
	copied.Uncounted, copied.LastUncounted = seen.uncounted, seen.lastUncounted
	copied.LastMention = seen.lastMention
	return &copied, k.heads[c.ID] <= seen.head
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
