package bench

import (
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

// ticks measures the time from a send until all other members have acknowledged it.
// It reads the status updates of the sender's stream.
// They name each member in small chats, and the least boundary of all in large ones.
type ticks struct {
	user    string
	others  int
	latency *measure.Histogram

	mu      sync.Mutex
	bounds  map[string]uint64 // of each other member
	reached uint64            // the least boundary of all others
	waiting []sentMessage
}

type sentMessage struct {
	sequence uint64
	sent     time.Duration
}

func newTicks(user string, others int, latency *measure.Histogram) *ticks {
	return &ticks{user: user, others: others, latency: latency, bounds: make(map[string]uint64)}
}

// confirmed records a message of this sender. Its tick may have come before its confirmation.
func (t *ticks) confirmed(sequence uint64, sent, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sequence <= t.reached {
		t.latency.Add(now - sent)
		return
	}
	t.waiting = append(t.waiting, sentMessage{sequence: sequence, sent: sent})
}

// status handles the payload of a status_update.
func (t *ticks) status(payload []byte, now time.Duration) {
	var user []byte
	var acked, all uint64
	o := client.NewObject(payload)
	for {
		key, value, ok := o.Next()
		if !ok {
			break
		}
		switch string(key) {
		case "user_id":
			user = client.Text(value)
		case "last_acked_sequence":
			acked = client.Number(value)
		case "all_acked_sequence":
			all = client.Number(value)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if user == nil {
		t.reach(all, now)
		return
	}
	if string(user) == t.user {
		return
	}
	t.bounds[string(user)] = max(t.bounds[string(user)], acked)
	if len(t.bounds) < t.others {
		return
	}
	least := t.bounds[string(user)]
	for _, bound := range t.bounds {
		least = min(least, bound)
	}
	t.reach(least, now)
}

// reach records that all others have acknowledged up to boundary. The caller holds the mutex.
func (t *ticks) reach(boundary uint64, now time.Duration) {
	if boundary <= t.reached {
		return
	}
	t.reached = boundary
	kept := t.waiting[:0]
	for _, m := range t.waiting {
		if m.sequence <= boundary {
			t.latency.Add(now - m.sent)
		} else {
			kept = append(kept, m)
		}
	}
	t.waiting = kept
}

// open returns how many messages have no second tick yet.
func (t *ticks) open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}
