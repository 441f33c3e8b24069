package presence

import (
	"time"

	"github.com/tidemark-im/tidemark"
)

// person is a member of a watched chat, as this node knows them. since is when the person last came
// or left. due is when a person who is leaving counts as offline, and seen when they left, by the
// clock of the node that said so.
//
//	state     came     left      has a lease   has none
//	unknown   online   leaving   online        offline
//	online    online   leaving   online        leaving
//	leaving   online   leaving   online        offline when due, else leaving
//	offline   online   offline   online        offline
//
// A person who is leaving still shows as online: most of them are reconnecting. A look-up that
// began before since changes nothing but unknown, because what happened since is newer.
type person struct {
	state      personState
	since, due time.Time
	checked    time.Time
	seen       tidemark.Millis

	profile profileState
	// read is when the profile was read.
	read  time.Time
	chats []tidemark.ChatID
}

type personState uint8

const (
	unknown personState = iota
	online
	leaving
	offline
)

// profileState says whether others may see a person online. While it is unread, they may not.
type profileState uint8

const (
	unread profileState = iota
	shown
	hidden
)

// came records that the person has a session. It reports whether that changes what is shown.
func (q *person) came(now time.Time) (changed bool) {
	changed = q.state == unknown || q.state == offline
	q.state, q.since = online, now
	return changed
}

// left records that the person's last session on a node ended. They may have others. It reports
// whether that changes what is shown.
func (q *person) left(now time.Time, at tidemark.Millis) (changed bool) {
	if q.state == offline {
		return false
	}
	changed = q.state == unknown
	q.state, q.since, q.due, q.seen = leaving, now, now.Add(lingers), at
	return changed
}

// check takes the result of a look-up of leases that began at a time. It reports whether that
// changes what is shown.
func (q *person) check(leased bool, began, now time.Time) (changed bool) {
	q.checked = began
	if q.state != unknown && began.Before(q.since) {
		return false
	}
	before := q.state
	switch {
	case leased:
		q.state = online
	case before == unknown:
		q.state = offline
	case before == online:
		// Its node may have crashed. Usually the person comes back to another one.
		q.state, q.due = leaving, now.Add(lingers)
	case before == leaving && !now.Before(q.due):
		q.state = offline
	}
	return before == unknown || (before == offline) != (q.state == offline)
}

// dueAt reports whether the person's leases are to be looked up. settled is when all other nodes
// have certainly known that this one looks.
func (q *person) dueAt(now, settled time.Time) bool {
	return q.state == unknown || q.state == leaving && !now.Before(q.due) ||
		now.Sub(q.checked) >= recheck ||
		!now.Before(settled) && q.checked.Before(settled)
}

// shows returns what others may know of the person.
func (q *person) shows(user tidemark.UserID) tidemark.MemberPresence {
	m := tidemark.MemberPresence{UserID: user}
	//rule:nothing_outside_membership.hidden-looks-offline
	if q.profile != shown {
		return m
	}
	m.Online = q.isOnline()
	if !m.Online {
		m.LastSeen = q.seen
	}
	return m
}

func (q *person) isOnline() bool { return q.state == online || q.state == leaving }

// ready reports whether enough is known of the person to show them in a chat. named says that the
// chat shows names.
func (q *person) ready(named bool) bool {
	return q.state != unknown && (!named || q.profile != unread)
}
