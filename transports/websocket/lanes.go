package websocket

import (
	"sync"

	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

const (
	// maxWork bounds what one connection has under way, in slots; while it is reached, the socket is not read.
	maxWork = 64
	// slotBytes is how many bytes of a frame count as one slot, so that 64 slots are at most 1 MiB.
	slotBytes = 16 << 10
)

// lanes runs the requests of one connection: those of one key one after the other in the order of do, those of different keys
// side by side. A chat is a key: the messages of a connection are stored in the order of its frames, and whatever queued while the ones before were being
// stored is stored together. An idle connection has no goroutine here. The zero value is ready.
type lanes struct {
	running sync.WaitGroup

	mu   sync.Mutex
	room sync.Cond
	used int
	// queues has an entry for each key that has a goroutine, with what waits behind the requests that it is running.
	queues map[string][]request
}

// request is one frame's. Requests of one key have the same run, and are run together.
type request struct {
	slots int
	frame wire.Frame
	run   func(frames []wire.Frame)
}

// do queues a frame that size bytes were read for. It blocks while too much is under way. Only one goroutine calls it.
func (l *lanes) do(key string, size int, frame wire.Frame, run func(frames []wire.Frame)) {
	r := request{slots: 1 + size/slotBytes, frame: frame, run: run}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room.L = &l.mu
	//rule:bounded_use.limit-work-of-socket
	for l.used > 0 && l.used+r.slots > maxWork {
		l.room.Wait()
	}
	l.used += r.slots
	//rule:session_in_order.one-key-in-order
	if queue, busy := l.queues[key]; busy {
		l.queues[key] = append(queue, r)
		return
	}
	if l.queues == nil {
		l.queues = make(map[string][]request)
	}
	l.queues[key] = nil
	l.running.Go(func() { l.serve(key, []request{r}) })
}

// serve runs requests and whatever is queued behind them.
func (l *lanes) serve(key string, requests []request) {
	for len(requests) > 0 {
		frames := make([]wire.Frame, len(requests))
		for i := range requests {
			frames[i] = requests[i].frame
		}
		requests[0].run(frames)
		requests = l.next(key, requests)
	}
}

// next gives the room of requests back, and returns those behind them.
func (l *lanes) next(key string, done []request) []request {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range done {
		l.used -= r.slots
	}
	l.room.Signal()
	queue := l.queues[key]
	if len(queue) > 0 {
		l.queues[key] = nil
		return queue
	}
	delete(l.queues, key)
	if len(l.queues) == 0 {
		l.queues = nil
	}
	return nil
}

// wait returns when nothing is under way. do must not be called any more.
func (l *lanes) wait() { l.running.Wait() }
