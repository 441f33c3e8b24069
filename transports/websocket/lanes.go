package websocket

import "sync"

const (
	// maxWork bounds what one connection has under way, in slots; while it is reached, the socket is not read.
	maxWork = 64
	// slotBytes is how many bytes of a frame count as one slot, so that 64 slots are at most 1 MiB.
	slotBytes = 16 << 10
)

// lanes runs the requests of one connection: those of one key one after the other in the order of do, those of different keys
// side by side. A chat is a key: the messages of a connection are stored in the order of its frames. An idle connection has no goroutine
// here. The zero value is ready.
type lanes struct {
	running sync.WaitGroup

	mu   sync.Mutex
	room sync.Cond
	used int
	// queues has an entry for each key that has a goroutine, with what waits behind the request that it is running.
	queues map[string][]request
}

type request struct {
	slots int
	run   func()
}

// do queues a request that size bytes were read for. It blocks while too much is under way. Only one goroutine calls it.
func (l *lanes) do(key string, size int, run func()) {
	r := request{slots: 1 + size/slotBytes, run: run}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room.L = &l.mu
	for l.used > 0 && l.used+r.slots > maxWork {
		l.room.Wait()
	}
	l.used += r.slots
	if queue, busy := l.queues[key]; busy {
		l.queues[key] = append(queue, r)
		return
	}
	if l.queues == nil {
		l.queues = make(map[string][]request)
	}
	l.queues[key] = nil
	l.running.Go(func() { l.serve(key, r) })
}

// serve runs r and whatever is queued behind it.
func (l *lanes) serve(key string, r request) {
	for more := true; more; {
		r.run()
		r, more = l.next(key, r)
	}
}

// next gives the room of a request back, and returns the one behind it.
func (l *lanes) next(key string, done request) (r request, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= done.slots
	l.room.Signal()
	queue := l.queues[key]
	if len(queue) > 0 {
		l.queues[key] = queue[1:]
		return queue[0], true
	}
	delete(l.queues, key)
	if len(l.queues) == 0 {
		l.queues = nil
	}
	return request{}, false
}

// wait returns when nothing is under way. do must not be called any more.
func (l *lanes) wait() { l.running.Wait() }
