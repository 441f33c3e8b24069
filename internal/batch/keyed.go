package batch

import "sync"

// Keyed runs the items of one key one batch after the other, and those of different keys side by
// side. What is added for a key while its batch is under way is the next one. A key without items
// costs nothing. It is safe for concurrent use. Use NewKeyed.
type Keyed[K comparable, Q any] struct {
	run     func(key K, items []Q, rested bool)
	running sync.WaitGroup

	mu sync.Mutex
	// freed is signalled when a batch has ended.
	freed sync.Cond
	// used is the weight of what was added and is not done; it is bounded by most, unless it is
	// that of a single item.
	used, most int
	// queues has an entry for each key that has a goroutine, with what waits behind its batch.
	queues map[K]queue[Q]
}

type queue[Q any] struct {
	items  []Q
	weight int
}

// NewKeyed returns a Keyed that has nothing to do. Most bounds the weight of the items that are not
// done. run does the items of a batch in their order; rested says that the key had none before.
func NewKeyed[K comparable, Q any](most int, run func(key K, items []Q, rested bool)) *Keyed[K, Q] {
	k := &Keyed[K, Q]{run: run, most: most}
	k.freed.L = &k.mu
	return k
}

// Add queues an item. It blocks while there is no room for its weight; an item that is heavier than
// all the room is taken when there is no other. Items that weigh nothing are not bounded.
func (k *Keyed[K, Q]) Add(key K, weight int, item Q) {
	k.mu.Lock()
	defer k.mu.Unlock()
	//rule:bounded_use.limit-work-under-way
	for weight > 0 && k.used > 0 && k.used+weight > k.most {
		k.freed.Wait()
	}
	k.used += weight
	//rule:session_in_order.one-key-in-order
	if waiting, busy := k.queues[key]; busy {
		k.queues[key] = queue[Q]{append(waiting.items, item), waiting.weight + weight}
		return
	}
	if k.queues == nil {
		k.queues = make(map[K]queue[Q])
	}
	k.queues[key] = queue[Q]{}
	k.running.Go(func() { k.serve(key, queue[Q]{[]Q{item}, weight}) })
}

// serve runs a batch and what is queued behind it.
func (k *Keyed[K, Q]) serve(key K, batch queue[Q]) {
	for rested := true; len(batch.items) > 0; rested = false {
		k.run(key, batch.items, rested)
		batch = k.next(key, batch.weight)
	}
}

// next gives back the weight of a batch, and returns what waits behind it.
func (k *Keyed[K, Q]) next(key K, weight int) queue[Q] {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used -= weight
	k.freed.Broadcast()
	waiting := k.queues[key]
	if len(waiting.items) > 0 {
		k.queues[key] = queue[Q]{}
		return waiting
	}
	delete(k.queues, key)
	if len(k.queues) == 0 {
		k.queues = nil // an empty map keeps the room of the keys that it had
	}
	return queue[Q]{}
}

// Wait returns when nothing is queued or under way. Add must not be called any more.
func (k *Keyed[K, Q]) Wait() { k.running.Wait() }
