package presence

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

// lookState says what a session that looks at a chat has got.
//
//	state   told     look again, or the user hides or shows
//	fresh   served   fresh
//	served  served   fresh
type lookState uint8

const (
	// fresh: the session gets all members next.
	fresh lookState = iota
	// served: the session gets changes.
	served
)

// rosterState says what is known of the members of a watched chat.
//
//	state      they changed   they were read
//	missing    missing        current
//	current    outdated       current
//	outdated   outdated       current
type rosterState uint8

const (
	// missing: nothing is told of the chat yet.
	missing rosterState = iota
	current
	outdated
)

// changed records that the members changed.
func (s *rosterState) changed() {
	if *s == current {
		*s = outdated
	}
}

// watched is a chat at which sessions of this node look.
type watched struct {
	sessions map[*session.Session]lookState
	// roster is the state of users, the members. version is that of the roster.
	roster  rosterState
	version uint64
	// closed reports that a block stands between the two members. Then the chat shows nobody.
	closed bool
	users  []tidemark.UserID
	// changed has the members whose presence has changed.
	changed map[tidemark.UserID]struct{}
	// told is the last number that sessions got, in a chat without names.
	told int
}

func newWatched() *watched {
	return &watched{
		sessions: make(map[*session.Session]lookState),
		changed:  make(map[tidemark.UserID]struct{}),
		told:     -1,
	}
}

// named reports whether the chat shows who is online, and not only how many.
func (w *watched) named() bool { return len(w.users) <= tidemark.PresenceMembers }

// due reports whether the chat has something to tell.
func (w *watched) due() bool {
	if w.roster != current || len(w.changed) > 0 {
		return true
	}
	for _, state := range w.sessions {
		if state == fresh {
			return true
		}
	}
	return false
}

// due returns the chats that have something to tell.
func (p *Presence) due() []tidemark.ChatID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []tidemark.ChatID
	for id, w := range p.chats {
		if w.due() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// mark records that a person came or went. Chats that show names are not told of those who hide.
func (p *Presence) mark(user tidemark.UserID, q *person) {
	for _, id := range q.chats {
		//rule:nothing_outside_membership.silence-about-hidden
		if w := p.chats[id]; !w.named() || q.profile != hidden {
			w.changed[user] = struct{}{}
		}
	}
}

// readMembers brings the members of chats up to date.
func (p *Presence) readMembers(ctx context.Context, ids []tidemark.ChatID) {
	if len(ids) == 0 {
		return
	}
	rosters, err := p.cfg.Chats.Rosters(ctx, ids)
	if err != nil {
		p.cfg.Log.Warn("presence is late, because the members of chats cannot be read; the node "+
			"tries again in a second", "error", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, id := range ids {
		if w := p.chats[id]; w != nil {
			p.setMembers(id, w, rosters[i])
		}
	}
}

// setMembers sets the members of a chat. It ends the looks at a chat that does not exist, or for
// whose members there is no room.
func (p *Presence) setMembers(id tidemark.ChatID, w *watched, r *chat.Roster) {
	if r == nil {
		p.unwatch(id, w)
		return
	}
	if w.roster != missing && w.version == r.Version {
		w.roster = current
		return
	}
	if p.members-len(w.users)+len(r.Users) > maxMembers {
		p.Count.Refused.Add(1)
		p.unwatch(id, w)
		return
	}
	first, before := w.roster == missing, w.users
	reopened := r.State.Closed() != w.closed
	w.closed = r.State.Closed()
	p.members += len(r.Users) - len(w.users)
	w.users, w.version, w.roster = r.Users, r.Version, current
	for _, user := range before {
		if _, still := r.Member(user); !still {
			p.drop(user, id)
			delete(w.changed, user)
		}
	}
	for _, user := range r.Users {
		q := p.people[user]
		if q == nil {
			q = &person{}
			p.people[user] = q
		}
		if !slices.Contains(q.chats, id) {
			q.chats = append(q.chats, id)
			if !first {
				w.changed[user] = struct{}{}
			}
		}
	}
	if !first && (reopened || w.named() != (len(before) <= tidemark.PresenceMembers)) {
		for sess := range w.sessions {
			w.sessions[sess] = fresh
		}
	}
}

// unwatch forgets a chat.
func (p *Presence) unwatch(id tidemark.ChatID, w *watched) {
	for _, user := range w.users {
		p.drop(user, id)
	}
	p.members -= len(w.users)
	delete(p.chats, id)
}

// drop forgets that a user is a member of a watched chat.
func (p *Presence) drop(user tidemark.UserID, id tidemark.ChatID) {
	q := p.people[user]
	q.chats = slices.DeleteFunc(q.chats, func(c tidemark.ChatID) bool { return c == id })
	if len(q.chats) == 0 {
		delete(p.people, user)
	}
}

// sweep removes what has ended: looks, chats without looks, and nodes that do not look any more.
func (p *Presence) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.swept) < sweepEvery {
		return
	}
	p.swept = now
	for id, w := range p.chats {
		for sess := range w.sessions {
			if !sess.LooksAt(id) {
				delete(w.sessions, sess)
			}
		}
		if len(w.sessions) == 0 {
			p.unwatch(id, w)
		}
	}
	for node, until := range p.nodes.looking {
		//rule:presence_linear.nothing-while-nobody-looks
		if now.After(until) {
			delete(p.nodes.looking, node)
		}
	}
	if len(p.chats) == 0 {
		p.nodes.told = nil
	}
	p.cfg.Sessions.Record(p.cfg.LastSeen || len(p.chats) > 0 || len(p.nodes.looking) > 0)
}

// check looks up the leases and the profiles of people of whom they are not known, or too old.
func (p *Presence) check(ctx context.Context, began time.Time) {
	users, profiles := p.toCheck(began)
	if len(users) > 0 {
		p.Count.Checks.Add(int64(len(users)))
		found, certain := p.cfg.Leases.Lookup(ctx, users)
		if certain {
			p.mu.Lock()
			for i, user := range users {
				q := p.people[user]
				if q != nil && q.check(len(found[i]) > 0, began, time.Now()) {
					p.mark(user, q)
				}
			}
			p.mu.Unlock()
		}
	}
	if len(profiles) == 0 {
		return
	}
	read, err := p.profiles.of(ctx, profiles)
	if err != nil {
		p.cfg.Log.Warn("presence is late, because profiles cannot be read; the node tries again "+
			"in a second", "error", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, user := range profiles {
		if q := p.people[user]; q != nil {
			p.setProfile(user, q, read[i], began)
		}
	}
}

// toCheck returns the users whose leases are to be looked up, and those whose profiles are to be
// read.
func (p *Presence) toCheck(now time.Time) (users, profiles []tidemark.UserID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for user, q := range p.people {
		if len(users) < maxChecks && q.dueAt(now, p.nodes.settled) {
			users = append(users, user)
		}
		if len(profiles) < maxChecks && (q.profile == unread || now.Sub(q.read) >= reread) &&
			p.anyNamed(q) {
			profiles = append(profiles, user)
		}
	}
	return users, profiles
}

// anyNamed reports whether a watched chat of a person shows names.
func (p *Presence) anyNamed(q *person) bool {
	return slices.ContainsFunc(q.chats,
		func(id tidemark.ChatID) bool { return p.chats[id].named() })
}

// setProfile takes the profile of a person. If they hid or no longer do, others are told, and their
// own sessions get everything again.
func (p *Presence) setProfile(user tidemark.UserID, q *person, read profile, at time.Time) {
	before := q.profile
	q.profile, q.read = shown, at
	if read.Hidden {
		q.profile = hidden
	}
	q.seen = max(q.seen, p.lastSeen(read.LastSeen))
	if before == q.profile || before == unread {
		return
	}
	for _, id := range q.chats {
		w := p.chats[id]
		w.changed[user] = struct{}{}
		for _, sess := range p.cfg.Sessions.Of(user) {
			if _, looks := w.sessions[sess]; looks {
				w.sessions[sess] = fresh
			}
		}
	}
}
