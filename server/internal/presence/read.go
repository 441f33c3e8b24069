package presence

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
)

// maxRead is how many members one call of Read looks up.
const maxRead = 1_000

// contains reports whether a user is one of users, which ascend.
func contains(users []tidemark.UserID, user tidemark.UserID) bool {
	_, found := slices.BinarySearchFunc(users, user, func(a, b tidemark.UserID) int {
		return strings.Compare(string(a), string(b))
	})
	return found
}

// Visible reports whether others see when the user is online.
func (p *Presence) Visible(ctx context.Context, user tidemark.UserID) (bool, error) {
	read, err := p.profiles.of(ctx, []tidemark.UserID{user})
	if err != nil {
		return false, err
	}
	return !read[0].Hidden, nil
}

// SetVisible hides a user or shows them again. Who hides sees nobody.
//
// Errors: Unavailable, Invalid (this server keeps no profiles).
func (p *Presence) SetVisible(ctx context.Context, user tidemark.UserID, visible bool) error {
	if p.profiles.store == nil {
		return tidemark.Errorf(tidemark.Invalid, "this server does not keep who hides")
	}
	if err := p.profiles.hide(ctx, user, !visible); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = append(p.changed, user)
	p.wake.Set()
	return nil
}

// Forget removes the profile of a user. It may be repeated.
//
// Errors: Unavailable.
func (p *Presence) Forget(ctx context.Context, user tidemark.UserID) error {
	if p.profiles.store == nil {
		return nil
	}
	_, _, err := storage.EditDocument(ctx, p.profiles.store, keyOf(user),
		func([]byte) ([]byte, error) { return nil, nil })
	return err
}

// Export returns the profile of a user, as it is stored.
//
// Errors: Unavailable.
func (p *Presence) Export(ctx context.Context, user tidemark.UserID) (any, error) {
	read, err := p.profiles.of(ctx, []tidemark.UserID{user})
	if err != nil {
		return nil, err
	}
	return read[0], nil
}

// Kinds returns the kinds of the profiles, whose names are users.
func (p *Presence) Kinds() []string {
	all := make([]string, kinds)
	for n := range all {
		all[n] = fmt.Sprintf("presence.%d", n)
	}
	return all
}

// Read returns who is online in chats, as the user may see it. It is for clients without a session.
// known is false for a chat that no longer exists, and for one with which the total of members
// would exceed maxRead. Such a chat has neither Members nor Online. The caller has checked that the
// user is a member.
//
// Errors: Unavailable.
func (p *Presence) Read(
	ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID,
) (all []tidemark.Presence, known []bool, err error) {
	rosters, err := p.cfg.Chats.Rosters(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	all, known = make([]tidemark.Presence, len(ids)), make([]bool, len(ids))
	users := []tidemark.UserID{user}
	for i, r := range rosters {
		all[i].ChatID = ids[i]
		if r == nil || len(users)+len(r.Users) > maxRead+1 || !contains(r.Users, user) {
			continue
		}
		known[i] = true
		users = append(users, r.Users...)
	}
	slices.Sort(users)
	people, err := p.readPeople(ctx, user, slices.Compact(users), rosters)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range rosters {
		if known[i] {
			show(&all[i], r, people, user)
		}
	}
	return all, known, nil
}

// show fills in what a user may know of a chat.
func show(
	to *tidemark.Presence, r *chat.Roster, people map[tidemark.UserID]*person,
	user tidemark.UserID,
) {
	named := len(r.Users) <= tidemark.PresenceMembers
	if named {
		to.Members = []tidemark.MemberPresence{}
	}
	for _, member := range r.Users {
		q := people[member]
		switch {
		case !named && q.isOnline():
			to.Online++
		//rule:blocked_is_closed.closed-chat-shows-nobody
		case named && r.State.Closed():
			to.Members = append(to.Members, tidemark.MemberPresence{UserID: member})
		case named && people[user].profile == hidden:
			to.Members = append(to.Members, tidemark.MemberPresence{UserID: member})
		case named:
			to.Members = append(to.Members, q.shows(member))
		}
	}
}

// readPeople looks up users, and reads the profiles of those whose chats show names.
func (p *Presence) readPeople(
	ctx context.Context, user tidemark.UserID, users []tidemark.UserID, rosters []*chat.Roster,
) (map[tidemark.UserID]*person, error) {
	leases, certain := p.cfg.Leases.Lookup(ctx, users)
	if !certain {
		return nil, tidemark.Errorf(tidemark.Unavailable,
			"this node cannot find out who is online; try again")
	}
	named := []tidemark.UserID{user}
	for _, r := range rosters {
		if r != nil && len(r.Users) <= tidemark.PresenceMembers {
			named = append(named, r.Users...)
		}
	}
	slices.Sort(named)
	named = slices.Compact(named)
	profiles, err := p.profiles.of(ctx, named)
	if err != nil {
		return nil, err
	}
	people := make(map[tidemark.UserID]*person, len(users))
	for i, u := range users {
		people[u] = &person{state: offline}
		if len(leases[i]) > 0 {
			people[u].state = online
		}
	}
	for i, u := range named {
		if q := people[u]; q != nil {
			q.profile, q.seen = shown, p.lastSeen(profiles[i].LastSeen)
			if profiles[i].Hidden {
				q.profile = hidden
			}
		}
	}
	return people, nil
}
