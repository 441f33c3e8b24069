package importer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

// roll has the members of a chat, as the source says so far. It is computed anew in each run.
type roll struct {
	people map[tidemark.UserID]*person
	// members is how many of them are members.
	members int
	// changed are those of whom the source has said something since the last message.
	changed []*person
	// someone is the member of anyone, or "" if it is not known.
	someone tidemark.UserID
	// guest is a former member who wrote all the same, or nil. They are a member for their messages
	// only: those that follow each other.
	guest *person
}

// person is a present or former member, or a user who becomes one.
type person struct {
	user   tidemark.UserID
	role   tidemark.Role
	joined time.Time
	// member says whether the user is a member now, and before whether they were one at the last
	// message.
	member, before bool
	// changed says that they are in roll.changed. stranger says that they joined by writing.
	changed, stranger bool
	// joins is how often they have joined.
	joins int
	// read is the last message that they have read, if the source says it (marked). A run is
	// messages of their own without one of others between them. 1..own is the first run, if one
	// begins the chat. first..last is the last run.
	marked           bool
	read             tidemark.Sequence
	own, first, last tidemark.Sequence
}

func newRoll() roll { return roll{people: map[tidemark.UserID]*person{}} }

// person returns what is known of a user.
func (r *roll) person(user tidemark.UserID) *person {
	p := r.people[user]
	if p == nil {
		p = &person{user: user}
		r.people[user] = p
	}
	return p
}

// begin notes a member that the chat is created with.
func (r *roll) begin(user tidemark.UserID, at time.Time) {
	p := r.person(user)
	p.member, p.before, p.joined, p.joins = true, true, at, 1
	r.members++
}

// change notes what the source says of a user.
func (r *roll) change(user tidemark.UserID, c *Member) {
	p := r.person(user)
	if !p.changed {
		p.changed = true
		r.changed = append(r.changed, p)
	}
	if c.Role != "" {
		p.role = c.Role
	}
	if p.member != c.Left {
		return
	}
	if r.someone = ""; c.Left {
		p.member, p.role = false, ""
		r.members--
		return
	}
	p.member, p.joined = true, c.At
	r.members++
}

// mostReturns is how often a user may have joined before they stay after their next message. So who
// writes for ever after they left does not reach tidemark.MaxIntervals.
const mostReturns = tidemark.MaxIntervals / 2

// admit makes a user a member who is none by the source, but writes.
func (r *roll) admit(p *person, at time.Time) {
	r.change(p.user, &Member{At: at})
	p.stranger = true
	//rule:import_once.stays-after-many-returns
	if p.joins > 0 && p.joins < mostReturns {
		r.guest = p
	}
}

// dismiss ends the membership of the guest, unless the next message is theirs.
func (r *roll) dismiss(author tidemark.UserID) {
	if p := r.guest; p != nil && p.user != author {
		//rule:import_once.who-has-left-stays-away
		r.change(p.user, &Member{Left: true})
		r.guest = nil
	}
}

// anyone returns a member, always the same one for the same members, and whether there is one.
func (r *roll) anyone() (tidemark.UserID, bool) {
	if r.someone == "" && r.members > 0 {
		for user, p := range r.people {
			if p.member && (r.someone == "" || user < r.someone) {
				r.someone = user
			}
		}
	}
	return r.someone, r.someone != ""
}

// sorted returns all people by their ids.
func (r *roll) sorted() []*person {
	return slices.SortedFunc(maps.Values(r.people), func(a, b *person) int {
		return cmp.Compare(a.user, b.user)
	})
}

// wrote notes a message of the person.
func (p *person) wrote(n tidemark.Sequence) {
	if p.last+1 != n || p.last == 0 {
		p.first = n
	}
	if p.last = n; n == p.own+1 {
		p.own = n
	}
}

// hasRead notes that the person has read up to a message.
func (p *person) hasRead(n tidemark.Sequence) { p.read = max(p.read, n) }

// seen returns the last message that the person has read. If they have read everything before a run
// of their own messages, they have read the run, too, as in the core. Only the first and the last
// run are known.
func (p *person) seen() tidemark.Sequence {
	read := max(p.read, p.own)
	if p.first > 0 && read+1 >= p.first {
		return max(read, p.last)
	}
	return read
}

// apply makes the changes of members before the next message, if an earlier run has not made them.
// What comes before a stored message was made. What comes after the last one may have been made in
// part. So only the result counts, which can be made twice.
func (m *move) apply(ctx context.Context) error {
	if len(m.roll.changed) == 0 {
		return nil
	}
	if err := m.flush(ctx); err != nil {
		return err
	}
	var joined, left []*person
	for _, p := range m.roll.changed {
		p.changed = false
		if p.member == p.before {
			continue
		}
		if p.before = p.member; !p.member {
			left = append(left, p)
			continue
		}
		joined = append(joined, p)
		if p.joins++; p.joins > tidemark.MaxIntervals {
			return m.wrong(m.at, tidemark.Errorf(tidemark.Denied,
				"%s joins for the %dth time, at most %d are allowed", p.user, p.joins,
				tidemark.MaxIntervals))
		}
	}
	m.roll.changed = m.roll.changed[:0]
	if m.roll.members > tidemark.MaxMembers {
		return m.wrong(m.at, tidemark.Errorf(tidemark.Denied,
			"there are %d members, at most %d are allowed", m.roll.members, tidemark.MaxMembers))
	}
	//rule:import_once.members-at-their-position
	if m.done || m.at < m.head {
		return nil
	}
	for _, p := range left {
		if err := m.leave(ctx, p); err != nil {
			return err
		}
	}
	return m.join(ctx, joined)
}

// restore undoes what an earlier run has done to the members at the end of a shorter export, before
// it was interrupted. They left, or became readers, and the store would refuse their next messages.
// A user who leaves and returns at one head sees the same as before. A user who has only joined
// early stays: a second join would hide the history.
func (m *move) restore(ctx context.Context) error {
	//rule:import_once.members-after-an-interrupted-end
	if !m.again || m.direct {
		return nil
	}
	roster, err := m.roster(ctx)
	if err != nil {
		return err
	}
	var gone []*person
	for _, p := range m.roll.sorted() {
		stored, is := roster.Member(p.user)
		switch {
		case p.member && !is:
			gone = append(gone, p)
		case !p.member && is && p.joins > 0:
			err = m.leave(ctx, p)
		case is && !stored.Role.MaySend():
			err = m.role(ctx, p, tidemark.Ordinary)
		}
		if err != nil {
			return err
		}
	}
	m.again = false
	return m.join(ctx, gone)
}

func (m *move) roster(ctx context.Context) (*tidemark.Roster, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	rosters, err := m.i.store.Rosters(ctx, []tidemark.ChatID{m.id})
	if err == nil && rosters[0] == nil {
		err = tidemark.Errorf(tidemark.NotFound, "the chat %s is gone", m.id)
	}
	if err != nil {
		return nil, err
	}
	return rosters[0], nil
}

// leave ends the membership of a person.
func (m *move) leave(ctx context.Context, p *person) error {
	ctx, cancel := call(ctx)
	defer cancel()
	removed, err := m.i.store.RemoveMember(ctx, m.id, p.user, m.i.cfg.Clock())
	switch tidemark.CodeOf(err) {
	case "":
		m.i.count(func(r *Report) { r.Left++ })
		return m.alone(removed.Head)
	case tidemark.NotMember: // An earlier run has done it.
		return nil
	}
	return err
}

// alone returns Conflict if a change of members was made at another place than it should be. Two
// runs that add the same messages share the work, since these have keys. Members have none.
func (m *move) alone(head tidemark.Sequence) error {
	//rule:import_once.notice-another-run
	if head == m.head {
		return nil
	}
	return m.wrong(m.head, tidemark.Errorf(tidemark.Conflict,
		"another run imports the chat at the same time, and members may now be wrong; delete "+
			"the chat, and import it under another id"))
}

// join makes people members. Those who joined at one time share a call.
func (m *move) join(ctx context.Context, people []*person) error {
	slices.SortFunc(people, func(a, b *person) int {
		return cmp.Or(a.joined.Compare(b.joined), cmp.Compare(a.user, b.user))
	})
	for len(people) > 0 {
		n := 1
		for n < len(people) && n < tidemark.MaxMembersPerCall &&
			people[n].joined.Equal(people[0].joined) {
			n++
		}
		if err := m.joinAtOnce(ctx, people[:n]); err != nil {
			return err
		}
		people = people[n:]
	}
	return nil
}

func (m *move) joinAtOnce(ctx context.Context, people []*person) error {
	users := make([]tidemark.UserID, len(people))
	for i, p := range people {
		users[i] = p.user
	}
	ctx, cancel := call(ctx)
	defer cancel()
	//rule:import_once.everyone-may-send-until-the-end
	added, err := m.i.store.AddMembers(ctx, m.id, users, tidemark.Ordinary, people[0].joined)
	if err != nil {
		return err
	}
	if len(added.New) == 0 {
		return nil
	}
	m.i.count(func(r *Report) {
		r.Joined += int64(len(added.New))
		for _, user := range added.New {
			if m.roll.people[user].stranger {
				r.Senders++
			}
		}
	})
	return m.alone(added.Head)
}
