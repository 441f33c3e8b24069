package dynamodb

import (
	"context"
	"sync"

	"github.com/tidemark-im/tidemark"
)

// lanes hold what is to be appended, by chats. What queues while a transaction of a chat is under way is its next one, so that a process
// is its own chat's only appender, and batches grow with the load. Nothing relies on it: other processes may append to the same chat.
type lanes struct {
	mu    sync.Mutex
	chats map[tidemark.ChatID]*lane
}

// A lane is one chat's. It is forgotten when nobody uses it.
type lane struct {
	// turn has one entry, held by whoever writes the chat's counter: appends, or a change of its members.
	turn chan struct{}
	// view is what the holder of the turn knows of the chat.
	view view

	// Of lanes.mu:
	users   int // holders of the lane
	waiting []*sending
	running bool // somebody appends
}

// A sending is the drafts of one call for one chat.
type sending struct {
	drafts []tidemark.Draft
	// results and err are set before done is closed.
	results []appended
	err     error
	done    chan struct{}
}

func newLanes() *lanes { return &lanes{chats: map[tidemark.ChatID]*lane{}} }

// use returns the lane of a chat, until leave.
func (l *lanes) use(chat tidemark.ChatID) *lane {
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

func (l *lanes) leave(own *lane) {
	l.mu.Lock()
	own.users--
	l.mu.Unlock()
}

// mostLanes is how many chats' views are remembered.
const mostLanes = 50_000

// forget drops a lane that nobody uses. The mutex is held.
func (l *lanes) forget() {
	for chat, own := range l.chats {
		if own.users == 0 {
			delete(l.chats, chat)
			return
		}
	}
}

// queue adds a sending, and reports whether the caller has to start the appender.
func (l *lanes) queue(own *lane, s *sending) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own.waiting = append(own.waiting, s)
	start = !own.running
	own.running = true
	return start
}

// next takes what waits; if nothing does, the appender has ended.
func (l *lanes) next(own *lane) []*sending {
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
	*counter // nil: nothing is known
	members  map[tidemark.UserID]bool
	// stale reports that the counter has to be read before it is used again.
	stale bool
	// heat is how often other processes were in the way lately.
	heat int
}

// mostMembers bounds the members that a view remembers.
const mostMembers = 1_000

// see takes in a counter that was read. Members are those of a version.
func (v *view) see(c *counter) {
	if v.counter == nil || v.MembersVersion != c.MembersVersion {
		v.members = nil
	}
	v.counter, v.stale = c, false
}

func (v *view) isMember(user tidemark.UserID) bool { return v.members[user] }

func (v *view) addMember(user tidemark.UserID) {
	if v.members == nil || len(v.members) >= mostMembers {
		v.members = map[tidemark.UserID]bool{}
	}
	v.members[user] = true
}
