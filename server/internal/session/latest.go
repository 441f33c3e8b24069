package session

import (
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// maxLatest is how many chats are remembered of one user. A user with more is listed again.
	maxLatest = 100
	// maxLatestChats is how many chats are remembered of all users.
	maxLatestChats = 400_000
)

// Latest remembers chats of users between their sessions, so that an open need not read all chats
// of its user to find the latest ones. It has the recentChats chats of a user with the latest
// activity, and perhaps others. It may lack those with a message that the user has not
// acknowledged.
//
// A chat becomes active by a message. If the user has not acknowledged it, their session finds it
// when it opens, or is notified. The node calls Add before it stores an acknowledgement. It sees
// all of them only if no other node ever joined the registry. Otherwise Latest returns nothing.
//
// All methods are safe for concurrent use.
type Latest struct {
	registry onlyNode // nil if other processes share the registry
	node     registry.Node

	mu    sync.Mutex
	users map[tidemark.UserID]*latestOf
	total int
}

// latestOf is what is remembered of one user.
//
//	state     Begin      Add        Listed    Forget
//	(none)    listing    -          -         -
//	listing   -          appended   listed    (none)
//	listed    listing    appended   listed    (none)
type latestOf struct {
	state latestState
	// chats has what was listed, and what was added since Begin.
	chats []tidemark.ChatID
}

type latestState uint8

const (
	listing latestState = iota // the list is being read
	listed
)

// onlyNode is a registry that is not shared with other processes.
type onlyNode interface {
	// OnlyNode reports whether the node is the only one that ever joined, in this life of it.
	OnlyNode(node registry.Node) bool
}

// NewLatest returns an empty Latest of a node.
func NewLatest(r registry.Registry, node registry.Node) *Latest {
	alone, _ := r.(onlyNode)
	return &Latest{
		registry: alone, node: node, users: make(map[tidemark.UserID]*latestOf),
	}
}

// alone reports whether this node sees what all users send and acknowledge.
func (l *Latest) alone() bool { return l.registry != nil && l.registry.OnlyNode(l.node) }

// Of returns what is remembered of a user. It returns false if nothing is, or if there is another
// node.
func (l *Latest) Of(user tidemark.UserID) (chats []tidemark.ChatID, known bool) {
	if !l.alone() {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.users[user]; of != nil && of.state == listed {
		return slices.Clone(of.chats), true
	}
	return nil, false
}

// Begin says that the latest chats of a user are about to be read. What Add records from now on
// belongs to the list: the read may miss it.
func (l *Latest) Begin(user tidemark.UserID) {
	if !l.alone() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.users[user]; of != nil && of.state == listing {
		return
	}
	l.forgetLocked(user)
	l.users[user] = &latestOf{}
}

// Listed records the latest chats of a user, as they were read from storage after Begin. It does
// nothing if the user was forgotten since.
func (l *Latest) Listed(user tidemark.UserID, chats []tidemark.ChatID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.users[user]
	if of == nil {
		return
	}
	for other := range l.users { // the order of a map is random
		//rule:bounded_use.limit-latest-chats
		if l.total-len(of.chats)+len(chats) <= maxLatestChats {
			break
		}
		if other != user {
			l.forgetLocked(other)
		}
	}
	//rule:delivered_is_eventually_consistent.keep-what-was-added-while-listing
	for _, chat := range of.chats {
		if !slices.Contains(chats, chat) {
			chats = append(chats, chat)
		}
	}
	l.total += len(chats) - len(of.chats)
	of.state, of.chats = listed, chats
}

// Add records that a chat of a user may be one of the latest. It does nothing if the user is not
// remembered.
func (l *Latest) Add(user tidemark.UserID, chat tidemark.ChatID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.users[user]
	if of == nil {
		return
	}
	at := slices.Index(of.chats, chat)
	switch {
	case at >= 0:
		// It comes first, so that the next Add of the same chat finds it at once.
		of.chats[0], of.chats[at] = of.chats[at], of.chats[0]
	//rule:bounded_use.forget-long-lists-of-latest
	case len(of.chats) >= maxLatest:
		l.forgetLocked(user)
	default:
		of.chats = append(of.chats, chat)
		l.total++
	}
}

// Forget forgets a user.
func (l *Latest) Forget(user tidemark.UserID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(user)
}

func (l *Latest) forgetLocked(user tidemark.UserID) {
	if of := l.users[user]; of != nil {
		l.total -= len(of.chats)
		delete(l.users, user)
	}
}

// latest returns the chats that a snapshot has to cover, or false if they are not known.
func (s *Session) latest() (chats []tidemark.ChatID, known bool) {
	chats, known = s.host.Latest.Of(s.User())
	if !known {
		return nil, false
	}
	var news []tidemark.ChatID
	for chat, p := range s.chats.byID {
		//rule:delivered_is_eventually_consistent.add-unacknowledged-chats
		if p.unacknowledged() && !slices.Contains(chats, chat) {
			news = append(news, chat)
		}
		if len(chats)+len(news) > maxLatest {
			return nil, false
		}
	}
	s.host.Count.LatestKnown.Add(1)
	slices.Sort(news) // so that a run of the simulation is repeatable
	return append(chats, news...), true
}

// missed records that events may not have reached the session. It lists the recent chats again.
func (s *Session) missed(t turn) {
	s.host.Latest.Forget(s.User())
	s.statuses.missed(t)
}
