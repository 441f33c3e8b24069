package feed

import (
	"context"

	"github.com/tidemark-im/tidemark"
)

// People is a roster and the ids of its members, as the registry is asked for them. It is immutable.
type People struct {
	*tidemark.Roster
	Users []tidemark.UserID
}

// People returns the members of a chat at a membership version of at least atLeast, from memory if it can. NotFound if there is no such chat.
func (f *Feed) People(ctx context.Context, c *Chat, atLeast uint64) (*People, error) {
	if p := c.people.Load(); p != nil && p.Version >= atLeast {
		return p, nil
	}
	all, err := f.read(ctx, []*Chat{c})
	if err != nil {
		return nil, err
	}
	if all[0] == nil {
		return nil, tidemark.Errorf(tidemark.NotFound, "there is no chat %s", c.ID)
	}
	return all[0], nil
}

// PeopleOf returns the members of many chats, nil for one that does not exist, with one read for those that are not in memory.
func (f *Feed) PeopleOf(ctx context.Context, ids []tidemark.ChatID) ([]*People, error) {
	all := make([]*People, len(ids))
	var missing []*Chat
	var at []int
	for i, id := range ids {
		c := f.Chat(id)
		if all[i] = c.people.Load(); all[i] == nil {
			missing, at = append(missing, c), append(at, i)
		}
	}
	if len(missing) == 0 {
		return all, nil
	}
	read, err := f.read(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i, p := range read {
		all[at[i]] = p
	}
	return all, nil
}

// Member returns the membership of a user in a chat, and the people. What memory says is believed when it says yes; a no is read again.
// NotFound (no such chat) or NotMember.
func (f *Feed) Member(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID) (*People, tidemark.Member, error) {
	c := f.Chat(chat)
	p, err := f.People(ctx, c, 0)
	if err != nil {
		return nil, tidemark.Member{}, err
	}
	m, ok := p.Member(user)
	if !ok {
		if p, err = f.People(ctx, c, p.Version+1); err != nil {
			return nil, tidemark.Member{}, err
		}
		if m, ok = p.Member(user); !ok {
			return nil, tidemark.Member{}, notMember(user, chat)
		}
	}
	return p, m, nil
}

func notMember(user tidemark.UserID, chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotMember, "%s is not a member of chat %s", user, chat)
}

// read reads the members of chats from storage and remembers them; nil for a chat that does not exist.
func (f *Feed) read(ctx context.Context, chats []*Chat) ([]*People, error) {
	ids := make([]tidemark.ChatID, len(chats))
	for i, c := range chats {
		ids[i] = c.ID
	}
	rosters, err := f.storage.Rosters(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := make([]*People, len(chats))
	for i, roster := range rosters {
		if roster == nil {
			continue
		}
		p := &People{Roster: roster, Users: make([]tidemark.UserID, len(roster.Members))}
		for j, m := range roster.Members {
			p.Users[j] = m.UserID
		}
		all[i] = chats[i].remember(p)
	}
	return all, nil
}

// remember keeps the newer of two rosters and returns it.
func (c *Chat) remember(p *People) *People {
	for {
		old := c.people.Load()
		if old != nil && old.Version >= p.Version {
			return old
		}
		if c.people.CompareAndSwap(old, p) {
			return p
		}
	}
}

// Outdate forgets a roster that is older than version.
func (c *Chat) Outdate(version uint64) {
	for old := c.floor.Load(); old < version && !c.floor.CompareAndSwap(old, version); old = c.floor.Load() {
	}
	for {
		old := c.people.Load()
		if old == nil || old.Version >= version || c.people.CompareAndSwap(old, nil) {
			return
		}
	}
}

// May reports whether a user is a member, by what is remembered; sure is false if a newer roster than version is known to exist but is not here.
func (c *Chat) May(user tidemark.UserID, version uint64) (member, sure bool) {
	p := c.people.Load()
	if p != nil && p.Version > version {
		_, member = p.Member(user)
		return member, true
	}
	return true, c.floor.Load() <= version
}
