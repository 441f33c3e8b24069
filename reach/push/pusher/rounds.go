package pusher

import (
	"container/list"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/queue"
)

// maxRounds is of how many chats a process remembers what was sent. The one that was looked at
// least lately is forgotten: if it is still owed here, its devices are notified once more.
const maxRounds = 20_000

// rounds are the chats with notifications that are owed. Rounds of chats on which other processes
// work now stay until they are forgotten.
type rounds struct {
	mu    sync.Mutex
	chats map[tidemark.ChatID]*list.Element // of *round
	// lately has the rounds, the one that was looked at last in front.
	lately list.List
}

// round is what was sent of a chat since its messages are owed.
type round struct {
	chat  tidemark.ChatID
	began time.Time

	mu   sync.Mutex // held by the call that works on the chat
	sent map[receiver]sent
	// looked is what the last look at the people of the chat found.
	looked looked
}

// looked is a look at the people of a chat, for the messages first to last. all says that the
// queues have all notifications of these: nothing else waits.
type looked struct {
	at          time.Time
	first, last tidemark.Sequence
	all         bool
}

// lookedLately is for how long a look that found nobody else holds. So a chat whose notifications
// leave at once is read once. After a longer wait it is read again: users may have new devices.
const lookedLately = 5 * time.Second

// covers reports whether a look shows now that nobody else is to be told of messages.
func (l *looked) covers(messages []tidemark.Message, now time.Time) bool {
	return l.all && now.Sub(l.at) < lookedLately && messages[0].Sequence >= l.first &&
		messages[len(messages)-1].Sequence == l.last
}

// waits is what a round waits for: notifications that queues have, and queues without room.
type waits struct {
	began time.Time
	held  []sent
	full  []*queue.Queue
}

// rest returns when to ask again, or 0 if the chat is to be read: all of its notifications have
// left, or a queue has room.
func (w *waits) rest() time.Duration {
	for _, q := range w.full {
		if q.Room() > 0 {
			return 0
		}
	}
	for _, s := range w.held {
		//rule:push_is_owed_until_sent.ask-the-queue
		if s.queue.Holds(s.target, s.notification) {
			return min(max(time.Since(w.began)/4, recheck), slowRecheck)
		}
	}
	if len(w.full) > 0 {
		return slowRecheck
	}
	return 0
}

// refusal returns what the engine is told while the round waits, or nil if it does not.
func (w *waits) refusal() *outlet.Refusal {
	rest := w.rest()
	if rest == 0 {
		return nil
	}
	return &outlet.Refusal{Action: outlet.Later, After: rest, Waits: w.rest}
}

// waits returns what a round waits for. The caller holds the lock.
func (r *round) waits() *waits {
	w := &waits{began: r.began}
	for _, s := range r.sent {
		if s.queue.Holds(s.target, s.notification) {
			w.held = append(w.held, s)
		}
	}
	return w
}

// find returns the round of a chat, or nil if there is none.
func (r *rounds) find(chat tidemark.ChatID) *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.chats[chat]
	if e == nil {
		return nil
	}
	r.lately.MoveToFront(e)
	return e.Value.(*round)
}

// sent is the latest notification that a device got.
type sent struct {
	through      tidemark.Sequence
	at           time.Time
	queue        *queue.Queue
	target       push.Target
	notification push.Notification
}

// of returns the round of a chat. A new one begins now.
func (r *rounds) of(chat tidemark.ChatID, now time.Time) *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.chats[chat]
	if e == nil {
		if len(r.chats) >= maxRounds {
			delete(r.chats, r.lately.Remove(r.lately.Back()).(*round).chat)
		}
		e = r.lately.PushFront(&round{chat: chat, began: now, sent: map[receiver]sent{}})
		r.chats[chat] = e
	}
	r.lately.MoveToFront(e)
	return e.Value.(*round)
}

// end forgets a round, of whose chat nothing is owed any more.
func (r *rounds) end(of *round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.chats[of.chat]; e != nil && e.Value == of {
		delete(r.chats, of.chat)
		r.lately.Remove(e)
	}
}
