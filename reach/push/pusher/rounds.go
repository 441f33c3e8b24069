package pusher

import (
	"container/list"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
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
