// Package appends appends messages to chats, each chat's in batches of what queued while the last one was under way.
package appends

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// Lanes hold what is to be appended, by chats. What queues while a transaction of a chat is under way is its next one, so that a process
// is its own chat's only appender, and batches grow with the load. Nothing relies on it: other processes may append to the same chat.
type Lanes struct {
	access    record.Access
	committed func(sends, acks int, took time.Duration)
	// Patience bounds each transaction of a turn, and the waiting for the turn. It is set before
	// the first call, if not to what New has made of it.
	Patience time.Duration
	// running are the lanes with something to append.
	running sync.WaitGroup

	mu    sync.Mutex
	chats map[tidemark.ChatID]*lane
}

// A lane is one chat's. It stays when nobody uses it, for what it knows of the chat, until there are too many.
type lane struct {
	// turn has one entry, held by whoever writes the chat's counter: appends, or a change of its members.
	turn chan struct{}
	// view is what the holder of the turn knows of the chat.
	view view

	// Of Lanes.mu:
	users   int // holders of the lane
	waiting []*sending
	running bool // somebody appends
}

// A sending is the drafts of one call for one chat.
type sending struct {
	drafts []tidemark.Draft
	// progress is called when drafts are answered for.
	progress func()
	// results and err are set before done is closed.
	results []storage.Appended
	err     error
	done    chan struct{}
}

// New returns lanes that have nothing to do. committed is told of what they append; it is called concurrently.
func New(access record.Access, committed func(sends, acks int, took time.Duration)) *Lanes {
	return &Lanes{access: access, committed: committed, Patience: turnTime, chats: map[tidemark.ChatID]*lane{}}
}

// Wait waits until all that was queued is appended, or could not be. Nothing is queued any more.
func (l *Lanes) Wait() { l.running.Wait() }

// Turn gives the caller the turn to write the counter of a chat, until done is called. What the lane remembers of the chat is out of date then.
func (l *Lanes) Turn(ctx context.Context, chat tidemark.ChatID) (done func(), err error) {
	own := l.use(chat)
	if err := own.take(ctx); err != nil {
		l.leave(own)
		return nil, err
	}
	return func() {
		own.view.stale = true
		own.release()
		l.leave(own)
	}, nil
}

// Append appends drafts, each at the next sequence of its chat. They are appended even if the caller leaves: a transaction that is cut off is one that nobody knows
// the outcome of. The error means that any of them may or may not have been.
func (l *Lanes) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	places := map[tidemark.ChatID][]int{}
	var chats []tidemark.ChatID
	for i := range drafts {
		chat := drafts[i].ChatID
		if places[chat] == nil {
			chats = append(chats, chat)
		}
		places[chat] = append(places[chat], i)
	}
	sendings := make([]*sending, len(chats))
	for n, chat := range chats {
		one := &sending{drafts: make([]tidemark.Draft, 0, len(places[chat])), done: make(chan struct{})}
		one.progress = func() { call.Progress(ctx) }
		for _, i := range places[chat] {
			one.drafts = append(one.drafts, drafts[i])
		}
		sendings[n] = one
		l.send(chat, one)
	}
	results := make([]storage.Appended, len(drafts))
	var failed error
	for n, one := range sendings {
		select {
		case <-one.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if one.err != nil {
			failed = one.err
			continue
		}
		for at, i := range places[chats[n]] {
			results[i] = one.results[at]
		}
	}
	if failed != nil {
		return nil, failed
	}
	return results, nil
}

// send queues drafts of a chat.
func (l *Lanes) send(chat tidemark.ChatID, one *sending) {
	own := l.use(chat)
	if !l.queue(own, one) {
		l.leave(own)
		return
	}
	l.running.Go(func() {
		defer l.leave(own)
		rested := true
		for batch := l.next(own); len(batch) > 0; batch = l.next(own) {
			l.appendBatch(chat, own, batch, rested)
			rested = false
		}
	})
}

// use returns the lane of a chat, until leave.
func (l *Lanes) use(chat tidemark.ChatID) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.chats[chat]
	if own == nil {
		if len(l.chats) >= mostLanes {
			l.forget()
		}
		own = &lane{turn: make(chan struct{}, 1)}
		l.chats[chat] = own
	}
	own.users++
	return own
}

func (l *Lanes) leave(own *lane) {
	l.mu.Lock()
	own.users--
	l.mu.Unlock()
}

// mostLanes is how many chats' views are remembered.
const mostLanes = 50_000

// forget drops a lane that nobody uses. The mutex is held.
func (l *Lanes) forget() {
	for chat, own := range l.chats {
		if own.users == 0 {
			delete(l.chats, chat)
			return
		}
	}
}

// queue adds a sending, and reports whether the caller has to start the appender.
func (l *Lanes) queue(own *lane, s *sending) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own.waiting = append(own.waiting, s)
	start = !own.running
	own.running = true
	return start
}

// next takes what waits; if nothing does, the appender has ended.
func (l *Lanes) next(own *lane) []*sending {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := own.waiting
	own.waiting = nil
	if len(batch) == 0 {
		own.running = false
	}
	return batch
}

// take waits for the turn of the lane.
func (own *lane) take(ctx context.Context) error {
	select {
	case own.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (own *lane) release() { <-own.turn }

// A view is what a process remembers of a chat from its last write: the counter, and who was a member at that version. It may be out of date; the
// conditions of the write then fail, and bring the counter as it is.
type view struct {
	*record.Counter // nil: nothing is known
	members         map[tidemark.UserID]bool
	// stale reports that the counter has to be read before it is used again.
	stale bool
	// shared reports that another process has written the chat between two writes of this one. It may have done so again whenever this one has rested, and
	// to look costs a read unit, where a transaction that fails costs as much as one that succeeds.
	shared bool
	// lost is how many attempts in a row were lost to other processes.
	lost int
}

// mostMembers bounds the members that a view remembers.
const mostMembers = 1_000

// see takes in a counter that was read. Members are those of a version.
func (v *view) see(c *record.Counter) {
	if v.Counter == nil || v.MembersVersion != c.MembersVersion {
		v.members = nil
	}
	v.Counter, v.stale = c, false
}

func (v *view) isMember(user tidemark.UserID) bool { return v.members[user] }

func (v *view) addMember(user tidemark.UserID) {
	if v.members == nil || len(v.members) >= mostMembers {
		v.members = map[tidemark.UserID]bool{}
	}
	v.members[user] = true
}
