package feed

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// People is a roster and the ids of its members, as the registry is asked for them. It is immutable.
type People struct {
	*tidemark.Roster
	Users []tidemark.UserID
	// read is when they were read.
	read time.Time
}

// After returns the members behind one in the order of their ids, all for "". The result must not be changed.
func (p *People) After(user tidemark.UserID) []tidemark.Member {
	from, found := slices.BinarySearchFunc(p.Members, user, func(m tidemark.Member, u tidemark.UserID) int {
		return strings.Compare(string(m.UserID), string(u))
	})
	if found {
		from++
	}
	return p.Members[from:]
}

// People returns the members of a chat at a membership version of at least atLeast, from memory if it can. With 0 memory is believed only if Config.Trusts says
// so; any other version was read from storage a moment ago. NotFound if there is no such chat.
func (f *Feed) People(ctx context.Context, chat tidemark.ChatID, atLeast uint64) (*People, error) {
	return f.people(ctx, chat, atLeast, atLeast > 0)
}

// people is People whose caller says whether memory is believed in any case.
func (f *Feed) people(ctx context.Context, chat tidemark.ChatID, atLeast uint64, believe bool) (*People, error) {
	if c := f.lookup(chat); c != nil {
		if p := c.people.Load(); p != nil && p.Version >= atLeast && (believe || f.cfg.Trusts(p.read)) {
			return p, nil
		}
	}
	all, err := f.read(ctx, []tidemark.ChatID{chat})
	if err != nil {
		return nil, err
	}
	if all[0] == nil {
		return nil, notFound(chat)
	}
	return all[0], nil
}

// PeopleOf returns the members of many chats, nil for one that does not exist, with one read for those that are not in memory.
func (f *Feed) PeopleOf(ctx context.Context, ids []tidemark.ChatID) ([]*People, error) {
	all := make([]*People, len(ids))
	var missing []tidemark.ChatID
	var at []int
	for i, id := range ids {
		all[i] = f.remembered(id)
		if all[i] == nil {
			missing, at = append(missing, id), append(at, i)
		}
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
	return f.member(ctx, user, chat, false)
}

// member is Member whose caller says whether memory is believed in any case.
func (f *Feed) member(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, believe bool) (*People, tidemark.Member, error) {
	p, err := f.people(ctx, chat, 0, believe)
	if err != nil {
		return nil, tidemark.Member{}, err
	}
	m, ok := p.Member(user)
	if !ok {
		//rule:nothing_outside_membership.ask-storage-before-refusing
		if p, err = f.People(ctx, chat, p.Version+1); err != nil {
			return nil, tidemark.Member{}, err
		}
		if m, ok = p.Member(user); !ok {
			return nil, tidemark.Member{}, notMember(user, chat)
		}
	}
	return p, m, nil
}

// Members says of each user and chat whether he is a member, as Member does: nil, NotFound or NotMember. It reads storage at most twice, whatever
// the number of chats: for those that are not in memory, and for those of which memory says no.
func (f *Feed) Members(ctx context.Context, keys []storage.StateKey) ([]error, error) {
	ids := make([]tidemark.ChatID, len(keys))
	for i, key := range keys {
		ids[i] = key.Chat
	}
	before := f.known(ids)
	all, err := f.PeopleOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	verdicts := make([]error, len(keys))
	var doubtful []tidemark.ChatID
	var at []int
	judge := func(i int, p *People) {
		verdicts[i] = nil
		if p == nil {
			verdicts[i] = notFound(ids[i])
		} else if _, ok := p.Member(keys[i].User); !ok {
			verdicts[i] = notMember(keys[i].User, ids[i])
		}
	}
	for i, p := range all {
		//rule:ack_cumulative.ask-storage-for-former-members
		if judge(i, p); verdicts[i] != nil && before[i] {
			doubtful, at = append(doubtful, ids[i]), append(at, i)
		}
	}
	again, err := f.read(ctx, doubtful)
	if err != nil {
		return nil, err
	}
	for i, p := range again {
		judge(at[i], p)
	}
	return verdicts, nil
}

// known says of which chats the people are in memory.
func (f *Feed) known(ids []tidemark.ChatID) []bool {
	known := make([]bool, len(ids))
	for i, id := range ids {
		known[i] = f.remembered(id) != nil
	}
	return known
}

// remembered returns the people of a chat if they are in memory and may be believed, or nil.
func (f *Feed) remembered(id tidemark.ChatID) *People {
	if c := f.lookup(id); c != nil {
		if p := c.people.Load(); p != nil && f.cfg.Trusts(p.read) {
			return p
		}
	}
	return nil
}

func notMember(user tidemark.UserID, chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotMember, "%s is not a member of chat %s", user, chat)
}

func notFound(chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotFound, "there is no chat %s", chat)
}

// read reads the members of chats from storage and remembers them; nil for a chat that does not exist, of which nothing is remembered.
func (f *Feed) read(ctx context.Context, ids []tidemark.ChatID) ([]*People, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	now := time.Now()
	rosters, err := f.storage.Rosters(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := make([]*People, len(ids))
	for i, roster := range rosters {
		if roster == nil {
			continue
		}
		p := &People{Roster: roster, Users: make([]tidemark.UserID, len(roster.Members)), read: now}
		for j, m := range roster.Members {
			p.Users[j] = m.UserID
		}
		all[i] = f.Chat(ids[i]).remember(p)
	}
	return all, nil
}

// remember keeps the newer of two rosters and returns it.
func (c *Chat) remember(p *People) *People {
	for {
		old := c.people.Load()
		//rule:nothing_outside_membership.keep-newer-roster
		if old != nil && (old.Version > p.Version || old.Version == p.Version && old.read.After(p.read)) {
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
		//rule:nothing_outside_membership.drop-outdated-roster
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

// ForgetPeople forgets all rosters, because news of them may have been missed.
func (f *Feed) ForgetPeople() {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, c := range f.chats {
		c.people.Store(nil)
	}
}

// Forget forgets the roster, because a change of it may have happened whose version is not known.
func (f *Feed) Forget(chat tidemark.ChatID) {
	if c := f.lookup(chat); c != nil {
		c.people.Store(nil)
	}
}
