// Package appends appends messages to chats. It batches what queued for a chat while the previous
// transaction was under way.
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

// Appender appends messages. Drafts that queue for a chat during its transaction form the next
// transaction. So a process has one writer for each chat, and batches grow with the load. Other
// processes may append to the same chat; nothing relies on being alone.
type Appender struct {
	access    record.Access
	committed func(sends, acks int, took time.Duration)
	// Patience bounds each transaction of a turn, and the wait for the turn. Change it only before
	// the first call; New sets the default.
	Patience time.Duration
	// Life is the number of the present life of the data. Change it only before the first call.
	Life    int64
	batches *batch.Keyed[tidemark.ChatID, *sending]

	mu    sync.Mutex
	chats map[tidemark.ChatID]*chat
}

// chat is a process's state of a chat. It is kept while unused for the sake of its view, until
// there are too many.
type chat struct {
	// turn has one entry, held by the writer of the chat's counter: appends, or a change of
	// members.
	turn chan struct{}
	// view is the turn holder's view of the chat.
	view view
	// users counts the holders of the chat. Appender.mu guards it.
	users int
}

// A sending has the drafts of one call for one chat.
type sending struct {
	drafts []tidemark.Draft
	// progress is called when drafts have results.
	progress func()
	// results and err are set before done is closed.
	results []storage.Appended
	err     error
	done    chan struct{}
}

// New returns an Appender with an empty queue. committed is called after each transaction,
// concurrently.
func New(
	access record.Access, committed func(sends, acks int, took time.Duration),
) *Appender {
	a := &Appender{
		access: access, committed: committed, Patience: turnTime,
		chats: map[tidemark.ChatID]*chat{},
	}
	// No bound is needed: each caller waits for its results.
	a.batches = batch.NewKeyed(0, a.appendBatch)
	return a
}

// Wait waits until the queue is empty. No draft may be added any more.
func (a *Appender) Wait() { a.batches.Wait() }

// Turn gives the caller the turn to write the counter of a chat, until done is called. After that,
// the process reads the chat's counter again.
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

// Append appends drafts, each at the next sequence of its chat. It appends them even if the caller
// leaves, because an interrupted transaction has an unknown outcome. After an error, any of the
// drafts may or may not be stored.
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

// use returns the state of a chat, and keeps it until leave.
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

// mostChats is the number of chats whose views are remembered.
const mostChats = 50_000

// forget drops one unused chat. The caller holds the mutex.
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

// A view is a process's memory of a chat after its last write: the counter, and the members at that
// version. It may be out of date. Then the conditions of the write fail, and the failure returns
// the present counter.
type view struct {
	*record.Counter // nil if unknown
	// members has the roles of members who may send.
	members map[tidemark.UserID]tidemark.Role
	// stale reports that the counter must be read before it is used again.
	stale bool
	// shared reports that another process has written the chat between two writes of this one. It
	// may do so again while this process rests. Reading the counter costs one unit, much less than
	// a failed transaction.
	shared bool
	heard  hearing
	// lost is how many attempts in a row were lost to other processes.
	lost int
	// won is how many transactions followed each other without a loss or a rest, and share how many
	// may. took is how long the last one took.
	won, share int
	took       time.Duration
	// moved has the senders that this process has written to their delivery states, each with the
	// sequence of their last message then.
	moved map[tidemark.UserID]tidemark.Sequence
	// unlisted has senders who are not in the counter.
	unlisted map[tidemark.UserID]unlisted
}

// unlisted has what the delivery state of a sender says, who was not in the counter of a head when
// it was read. It is still true if nobody has left the counter since who has sent later: the sender
// cannot have been in the counter meanwhile, and have left it again.
type unlisted struct {
	record.Sender
	head tidemark.Sequence
}

// mostMembers bounds the members that a view remembers.
const mostMembers = 1_000

// see remembers a counter that was read. Another version has other members, so it forgets them.
func (v *view) see(c *record.Counter) {
	if v.Counter == nil || v.MembersVersion != c.MembersVersion {
		v.members = nil
		v.heard.expected = 0
	} else {
		v.heard.compare(v.Head, c.Head)
	}
	v.Counter, v.stale = c, false
}

// move remembers senders that are written to their delivery states. It remembers only those that
// are in the counter.
func (v *view) move(senders record.Senders) {
	moved := make(map[tidemark.UserID]tidemark.Sequence)
	for _, one := range v.Senders {
		if last, there := v.moved[one.User]; there {
			moved[one.User] = last
		}
	}
	for _, one := range senders {
		moved[one.User] = one.Last
	}
	v.moved = moved
}

func (v *view) addMember(user tidemark.UserID, role tidemark.Role) {
	if v.members == nil || len(v.members) >= mostMembers {
		v.members = map[tidemark.UserID]tidemark.Role{}
	}
	v.members[user] = role
}
