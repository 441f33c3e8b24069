package dynamodb

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// A counter is the item of a chat: the chat itself, with its head.
type counter struct {
	tidemark.Chat
	activity time.Time
	// createdBy is the token of the call that created it.
	createdBy string
	change
}

// A change is one of more members than fit into a transaction: see changes.go. All of it is empty as a rule.
type change struct {
	// changing is the token of the change that is being prepared, since when.
	changing string
	since    time.Time
	// changed is the token of the last one that took effect, until all its items are settled; at which head and version it did.
	changed   string
	head      tidemark.Sequence
	toVersion uint64
}

// counterOf takes an item apart. It is nil for none, and for a chat that is only being prepared.
func counterOf(it item) (*counter, error) {
	r := reader{item: it}
	if !r.has("type") {
		return nil, nil
	}
	c := &counter{
		Chat: tidemark.Chat{
			ID: tidemark.ChatID(r.text("chat_id")), Type: tidemark.ChatType(r.text("type")), Name: r.text("name"), History: tidemark.HistoryMode(r.text("history")),
			CreatedAt: r.time("created_at"), Head: r.sequence("head"), MemberCount: int(r.number("member_count")), MembersVersion: r.number("members_version"), Large: r.flag("is_large"),
		},
		activity: r.time("activity_at"), createdBy: r.text("created_by"),
		change: change{
			changing: r.text("changing"), since: r.time("changing_at"), changed: r.text("change"), head: r.sequence("change_head"), toVersion: r.number("change_version"),
		},
	}
	return c, r.err
}

// counter reads the item of a chat. NotFound if there is none.
func (c caller) counter(ctx context.Context, chat tidemark.ChatID) (*counter, error) {
	it, err := c.get(ctx, counters, chatKey(chat))
	if err != nil {
		return nil, err
	}
	return c.learn(chat, it)
}

// learn takes in the item of a chat as it was read. NotFound if it is none.
func (c caller) learn(chat tidemark.ChatID, it item) (*counter, error) {
	found, err := counterOf(it)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, noChat(chat)
	}
	c.known.head(chat, found.Head)
	return found, nil
}

// counters reads the items of chats, those that are there.
func (c caller) counters(ctx context.Context, chats []tidemark.ChatID, eventual bool) (map[tidemark.ChatID]*counter, error) {
	wanted := make([]item, len(chats))
	for i, chat := range chats {
		wanted[i] = chatKey(chat)
	}
	items, err := c.getAll(ctx, read{table: counters, eventual: eventual}, wanted)
	if err != nil {
		return nil, err
	}
	found := make(map[tidemark.ChatID]*counter, len(items))
	for _, it := range items {
		one, err := counterOf(it)
		if err != nil {
			return nil, err
		}
		if one == nil {
			continue
		}
		c.known.head(one.ID, one.Head)
		found[one.ID] = one
	}
	return found, nil
}

// known is what this process has learned of chats, and may use although others write them: heads and watermarks only grow, and a membership holds at its
// version. It is bounded, and forgets at random.
type known struct {
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

func newKnown() *known {
	return &known{heads: map[tidemark.ChatID]tidemark.Sequence{}, states: map[stateName]tidemark.DeliveryState{}}
}

// head takes in the head of a chat.
func (k *known) head(chat tidemark.ChatID, head tidemark.Sequence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	makeRoom(k.heads)
	k.heads[chat] = max(k.heads[chat], head)
}

// reaches reports whether a chat is known to have a message, and so all before it.
func (k *known) reaches(chat tidemark.ChatID, sequence tidemark.Sequence) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	head, found := k.heads[chat]
	return found && head >= sequence
}

// state takes in a delivery state.
func (k *known) state(s tidemark.DeliveryState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	makeRoom(k.states)
	k.states[stateName{s.UserID, s.ChatID}] = s
}

// guess returns a delivery state as it was once, the empty one if it is not known.
func (k *known) guess(user tidemark.UserID, chat tidemark.ChatID) (s tidemark.DeliveryState, found bool) {
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
