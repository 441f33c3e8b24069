package batch

import "sync"

// Keyed runs the items of one key in batches one after the other, and those of different keys
// concurrently. Items that are added during a batch of their key form its next one. A key without
// items takes no memory. Use NewKeyed. Keyed is safe for concurrent use.
type Keyed[K comparable, Q any] struct {
	run     func(key K, items []Q, rested bool)
	running sync.WaitGroup

	mu sync.Mutex
	// freed is signalled when a batch ends.
	freed sync.Cond
	// used is the weight of the items that are not done. It is at most most, or the weight of a
	// single item.
	used, most int
	// queues has an entry for each key with a goroutine: the items after its present batch.
	queues map[K]queue[Q]
}

type queue[Q any] struct {
	items  []Q
	weight int
}

// NewKeyed returns a Keyed without items. most limits the weight of the items that are not done.
// run does the items of a batch in order; rested says that the key had none before.
func NewKeyed[K comparable, Q any](most int, run func(key K, items []Q, rested bool)) *Keyed[K, Q] {
	k := &Keyed[K, Q]{run: run, most: most}
	k.freed.L = &k.mu
	return k
}

// Add queues an item. It blocks while there is no room for the item's weight. An item heavier than
// the whole room is accepted when there is no other. Items of weight 0 are not limited.
func (k *Keyed[K, Q]) Add(key K, weight int, item Q) {
	k.mu.Lock()
	defer k.mu.Unlock()
	//rule:bounded_use.limit-work-under-way
	for weight > 0 && k.used > 0 && k.used+weight > k.most {
		k.freed.Wait()
	}
	k.used += weight
	waiting, busy := k.queues[key]
	if k.queues == nil {
		k.queues = make(map[K]queue[Q])
	}
	k.queues[key] = queue[Q]{append(waiting.items, item), waiting.weight + weight}
	//rule:session_in_order.one-key-in-order
	if !busy {
		k.running.Go(func() { k.serve(key) })
	}
}

// serve runs batches of a key until nothing is queued. What is added before its goroutine runs is
// in the first batch.
func (k *Keyed[K, Q]) serve(key K) {
	batch := k.next(key, 0)
	for rested := true; len(batch.items) > 0; rested = false {
		k.run(key, batch.items, rested)
		batch = k.next(key, batch.weight)
	}
}

// next returns the weight of a batch to the room, and returns the next batch.
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
		k.queues = nil // an empty map keeps its memory
	}
	return queue[Q]{}
}

// Wait returns when no item is queued or under way. Add must not be called any more.
func (k *Keyed[K, Q]) Wait() { k.running.Wait() }
