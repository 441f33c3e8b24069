package presence

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

// telling is an event for a session.
type telling struct {
	sess    *session.Session
	event   *tidemark.Presence
	payload []byte
}

// tell sends sessions what changed in the chats at which they look.
func (p *Presence) tell(ctx context.Context) {
	ids := p.due()
	if len(ids) == 0 {
		return
	}
	rosters, err := p.cfg.Chats.Rosters(ctx, ids)
	if err != nil {
		return // the next second tells it
	}
	var all []telling
	p.mu.Lock()
	for i, id := range ids {
		w := p.chats[id]
		// If the members have changed since they were read, the next second tells it.
		if w == nil {
			continue
		}
		if w.roster == missing || rosters[i] == nil || rosters[i].Version != w.version {
			w.roster.changed()
			continue
		}
		if w.named() {
			all = p.tellNames(all, id, w)
		} else {
			all = p.tellCount(all, id, w)
		}
	}
	p.mu.Unlock()
	for _, t := range all {
		if t.sess.Present(t.event, t.payload) {
			p.Count.Events.Add(1)
		} else {
			p.forget(t)
		}
	}
}

// forget ends the look of a session that does not look any more.
func (p *Presence) forget(t telling) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.chats[t.event.ChatID]
	if w != nil && !t.sess.LooksAt(t.event.ChatID) {
		delete(w.sessions, t.sess)
	}
}

// tellNames appends what the sessions get of a chat that shows names.
func (p *Presence) tellNames(all []telling, id tidemark.ChatID, w *watched) []telling {
	whole := tidemark.Presence{ChatID: id, Members: []tidemark.MemberPresence{}}
	nobody := whole
	part := whole
	complete := true
	for _, user := range w.users {
		q := p.people[user]
		if !q.ready(true) {
			complete = false
			continue
		}
		m := q.shows(user)
		whole.Members = append(whole.Members, m)
		nobody.Members = append(nobody.Members, tidemark.MemberPresence{UserID: user})
		//rule:presence_linear.changes-and-not-everybody
		if _, changed := w.changed[user]; changed {
			part.Members = append(part.Members, m)
			delete(w.changed, user)
		}
	}
	forAll, forSome, forHidden := encoded(&whole), encoded(&part), encoded(&nobody)
	for sess, state := range w.sessions {
		looker := p.people[sess.User()]
		//rule:nothing_outside_membership.presence-for-members-only
		if looker == nil || !contains(w.users, sess.User()) {
			delete(w.sessions, sess)
			continue
		}
		switch {
		case looker.profile == unread, state == fresh && !complete: // later
		case state == fresh && (looker.profile == hidden || w.closed):
			all = append(all, telling{sess, &nobody, forHidden()})
			w.sessions[sess] = served
		case state == fresh:
			all = append(all, telling{sess, &whole, forAll()})
			w.sessions[sess] = served
		//rule:nothing_outside_membership.hidden-see-nobody
		case looker.profile == hidden, w.closed, len(part.Members) == 0:
		default:
			all = append(all, telling{sess, &part, forSome()})
		}
	}
	return all
}

// tellCount appends what the sessions get of a chat that shows how many are online.
func (p *Presence) tellCount(all []telling, id tidemark.ChatID, w *watched) []telling {
	event := tidemark.Presence{ChatID: id}
	for _, user := range w.users {
		q := p.people[user]
		if !q.ready(false) {
			return all // later
		}
		if q.isOnline() {
			event.Online++
		}
	}
	clear(w.changed)
	changed := event.Online != w.told
	w.told = event.Online
	payload := encoded(&event)
	for sess, state := range w.sessions {
		if !contains(w.users, sess.User()) {
			delete(w.sessions, sess)
			continue
		}
		if state == fresh || changed {
			all = append(all, telling{sess, &event, payload()})
			w.sessions[sess] = served
		}
	}
	return all
}

// encoded returns a function that encodes an event once, if anybody gets it.
func encoded(p *tidemark.Presence) func() []byte {
	var payload []byte
	return func() []byte {
		if payload == nil {
			payload = p.AppendJSON(nil)
		}
		return payload
	}
}
