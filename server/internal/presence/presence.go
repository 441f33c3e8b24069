// Package presence tells sessions who is online in the chats that they look at (docs/presence.md).
// A user is online while a session of theirs has a lease, and for lingers longer.
//
// A node whose sessions look at chats announces that to the other nodes. Once a second, each of
// them sends it one batch: the users whose first session there began, or whose last one ended. So n
// reconnects are n short entries, and no entry if nobody looks. Once a second, the node sends its
// sessions what changed, in one event for each chat. A look-up of leases finds what batches did not
// say: when a chat is first looked at, and then once in recheck.
//
// Files: person.go decides who is online; watch.go has the chats and their members; tell.go tells
// sessions; nodes.go tells other nodes; profiles.go stores who hides and when they were seen;
// absences.go writes that.
package presence

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/leases"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// lasts is how long a look lasts, unless the client repeats it.
	lasts = time.Minute
	// lingers is how long after their last session a user still counts as online.
	lingers = 30 * time.Second
	// period is the least time between two batches, and between two events about changes.
	period = time.Second
	// pause is the least time between two passes for new looks.
	pause = 100 * time.Millisecond
	// recheck is how long the result of a look-up is used.
	recheck = time.Minute
	// reread is how long a profile is used before it is read again, in case an announcement of a
	// change was lost.
	reread = 10 * time.Minute
	// sweepEvery is how often looks that have ended are removed.
	sweepEvery = 10 * time.Second
)

const (
	// maxMembers is how many members of watched chats one node keeps. Looks at chats beyond it get
	// no presence.
	maxMembers = 100_000
	// maxChecks is how many users one pass looks up.
	maxChecks = 2_000
	// maxQuestions is how many looks of clients of other nodes wait. More are dropped, and asked
	// again.
	maxQuestions = 1_000
)

// Config has what Presence needs. Documents may be nil: then nobody can hide, and nobody is seen.
type Config struct {
	Node      registry.Node
	Leases    *leases.Leases
	Sessions  *session.Table
	Chats     *chat.Cache
	Bus       bus.Bus
	Documents storage.Documents
	// LastSeen writes when users were last seen.
	LastSeen bool
	Log      *slog.Logger
	// Now returns the time of day.
	Now func() time.Time
}

// Counters count what Presence does. They only grow. Batches and Entries count what other nodes are
// sent, Checks the users who are looked up, and Events what sessions are told. Refused counts looks
// at chats beyond maxMembers. Seen counts written times, and Unseen those that were lost.
type Counters struct {
	Batches, Entries, Checks, Events atomic.Int64
	Refused, Seen, Unseen            atomic.Int64
}

// Presence knows the looks of a node's sessions. It is safe for concurrent use.
type Presence struct {
	cfg      Config
	Count    Counters
	profiles profiles
	wake     signal.Flag
	// answering waits for answer's publications.
	answering sync.WaitGroup

	mu sync.Mutex
	// chats has the chats that sessions look at, and people their members.
	chats  map[tidemark.ChatID]*watched
	people map[tidemark.UserID]*person
	// members is the sum of the members of chats.
	members int
	// asked has the looks of clients that called another node.
	asked []bus.Presence
	// changed has users whose profile changed through this node.
	changed  []tidemark.UserID
	nodes    nodes
	absences absences
	swept    time.Time
}

// New returns Presence. It starts no goroutine.
func New(cfg Config) *Presence {
	cfg.Sessions.Record(cfg.LastSeen)
	return &Presence{
		cfg: cfg, profiles: profiles{cfg.Documents}, wake: signal.New(),
		chats:  make(map[tidemark.ChatID]*watched),
		people: make(map[tidemark.UserID]*person),
		nodes:  newNodes(), absences: newAbsences(),
	}
}

// Looks returns how many chats the sessions of this node look at.
func (p *Presence) Looks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.chats)
}

// Look records which chats the client of a session shows. The caller has checked that the user is a
// member of each. It returns false if the session is not served here.
func (p *Presence) Look(sess *session.Session, chats []tidemark.ChatID) bool {
	begun, ended, ok := sess.Look(chats, lasts)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ended {
		if w := p.chats[id]; w != nil {
			delete(w.sessions, sess)
		}
	}
	for _, id := range begun {
		w := p.chats[id]
		if w == nil {
			w = newWatched()
			p.chats[id] = w
		}
		w.sessions[sess] = fresh
	}
	p.wake.Set()
	return true
}

// MembersChanged records that members of a chat joined or left.
func (p *Presence) MembersChanged(id tidemark.ChatID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.chats[id]; w != nil {
		w.roster.changed()
	}
}

// Receive takes what another node says. It does not block.
func (p *Presence) Receive(e *bus.Presence) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Look != nil && len(p.asked) < maxQuestions {
		p.asked = append(p.asked, *e)
		p.wake.Set()
	}
	if e.Looking {
		if _, there := p.nodes.looking[e.From]; !there {
			p.wake.Set()
		}
		p.nodes.looking[e.From] = now.Add(lasts)
		p.cfg.Sessions.Record(true)
	}
	p.take(e, now)
}

// take applies a batch to the people that this node knows.
func (p *Presence) take(e *bus.Presence, now time.Time) {
	for _, user := range e.Came {
		if q := p.people[user]; q != nil && q.came(now) {
			p.mark(user, q)
		}
	}
	for _, user := range e.Left {
		if q := p.people[user]; q != nil && q.left(now, p.lastSeen(e.At)) {
			p.mark(user, q)
		}
	}
	for _, user := range e.Changed {
		if q := p.people[user]; q != nil {
			q.read = time.Time{}
		}
	}
}

// lastSeen returns a time if this server shows such times, else 0.
func (p *Presence) lastSeen(at tidemark.Millis) tidemark.Millis {
	if !p.cfg.LastSeen {
		return 0
	}
	return at
}

// Loop tells other nodes and sessions what changed, until ctx ends. While there is nothing to do it
// waits.
func (p *Presence) Loop(ctx context.Context) {
	defer p.answering.Wait()
	var last time.Time
	for {
		var due time.Time
		if p.busy() {
			due = last.Add(period)
		}
		if _, ok := p.wake.WaitUntil(ctx, due); !ok {
			return
		}
		//rule:presence_linear.one-batch-a-second
		if now := time.Now(); now.Sub(last) >= period {
			last = now
			p.second(ctx, now)
		} else {
			p.begin(ctx)
		}
		if !signal.Pause(ctx, pause) {
			return
		}
	}
}

// busy reports whether something may have to be done in a second.
func (p *Presence) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg.LastSeen || len(p.chats) > 0 || len(p.nodes.looking) > 0
}

// second is the pass of each second.
func (p *Presence) second(ctx context.Context, now time.Time) {
	p.sweep(now)
	p.share(ctx, now)
	p.begin(ctx)
	p.noteAbsent(ctx, now)
}

// begin is the pass for looks that have just begun. The pass of each second contains it.
func (p *Presence) begin(ctx context.Context) {
	p.answer(ctx)
	p.announce(ctx, time.Now())
	p.readMembers(ctx, p.due())
	p.check(ctx, time.Now())
	p.tell(ctx)
}

// answer takes the looks of clients that called another node.
func (p *Presence) answer(ctx context.Context) {
	p.mu.Lock()
	asked := p.asked
	p.asked = nil
	p.mu.Unlock()
	var answers []bus.Publication
	for _, e := range asked {
		sess := p.cfg.Sessions.Get(e.Look.Session)
		//rule:nothing_outside_membership.look-for-its-user-only
		if sess == nil || sess.User() != e.Look.User || !p.Look(sess, e.Look.Chats) {
			continue // the other node asks again
		}
		done := bus.Event{Done: &bus.Done{ID: e.Look.ID}}
		answers = append(answers, bus.Publication{Node: e.From, Event: done})
	}
	if len(answers) > 0 {
		// An answer may take seconds if the asking node has died.
		p.answering.Go(func() { _ = p.cfg.Bus.Publish(ctx, answers) })
	}
}

// Close tells the other nodes which users left since the last second, because the node is stopping.
func (p *Presence) Close(ctx context.Context) { p.share(ctx, time.Now()) }
