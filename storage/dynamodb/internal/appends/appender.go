// Package appends appends messages to chats, each chat's in batches of what queued while the last one was under way.
package appends

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// Appender appends messages. What queues for a chat while a transaction of it is under way is its
// next one, so that a process is its own chat's only appender, and batches grow with the load. Nothing
// relies on it: other processes may append to the same chat.
type Appender struct {
	access    record.Access
	committed func(sends, acks int, took time.Duration)
	// Patience bounds each transaction of a turn, and the waiting for the turn. It is set before
	// the first call, if not to what New has made of it.
	Patience time.Duration
	batches  *batch.Keyed[tidemark.ChatID, *sending]

	mu    sync.Mutex
	chats map[tidemark.ChatID]*chat
}

// chat is what a process has of one. It stays when nobody uses it, for its view, until there are too
// many.
type chat struct {
	// turn has one entry, held by whoever writes the chat's counter: appends, or a change of its
	// members.
	turn chan struct{}
	// view is what the holder of the turn knows of the chat.
	view view
	// users counts the holders of the chat. Appender.mu guards it.
	users int
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

// New returns an Appender that has nothing to do. committed is told of what it appends. It is called
// concurrently.
func New(
	access record.Access, committed func(sends, acks int, took time.Duration),
) *Appender {
	a := &Appender{
		access: access, committed: committed, Patience: turnTime,
		chats: map[tidemark.ChatID]*chat{},
	}
	a.batches = batch.NewKeyed(0, a.appendBatch) // no bound: each caller waits for its answers
	return a
}

// Wait waits until all that was queued is appended, or could not be. Nothing is queued any more.
func (a *Appender) Wait() { a.batches.Wait() }

// Turn gives the caller the turn to write the counter of a chat, until done is called. Then what the
// process remembers of the chat is out of date.
func (a *Appender) Turn(ctx context.Context, id tidemark.ChatID) (done func(), err error) {
	c := a.use(id)
	if err := c.take(ctx); err != nil {
		a.leave(c)
		return nil, err
	}
	return func() {
		c.view.stale = true
		c.release()
		a.leave(c)
	}, nil
}

// Append appends drafts, each at the next sequence of its chat. They are appended even if the caller leaves: a transaction that is cut off is one that nobody knows
// the outcome of. The error means that any of them may or may not have been.
func (a *Appender) Append(
	ctx context.Context, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
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
		one := &sending{
			drafts: make([]tidemark.Draft, 0, len(places[chat])),
			done:   make(chan struct{}),
		}
		one.progress = func() { call.Progress(ctx) }
		for _, i := range places[chat] {
			one.drafts = append(one.drafts, drafts[i])
		}
		sendings[n] = one
		a.batches.Add(chat, 0, one)
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

// use returns what there is of a chat, until leave.
func (a *Appender) use(id tidemark.ChatID) *chat {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.chats[id]
	if c == nil {
		if len(a.chats) >= mostChats {
			a.forget()
		}
		c = &chat{turn: make(chan struct{}, 1)}
		a.chats[id] = c
	}
	c.users++
	return c
}

func (a *Appender) leave(c *chat) {
	a.mu.Lock()
	c.users--
	a.mu.Unlock()
}

// mostChats is how many chats' views are remembered.
const mostChats = 50_000

// forget drops a chat that nobody uses. The mutex is held.
func (a *Appender) forget() {
	for id, c := range a.chats {
		if c.users == 0 {
			delete(a.chats, id)
			return
		}
	}
}

// take waits for the turn to write the chat.
func (c *chat) take(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *chat) release() { <-c.turn }

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
