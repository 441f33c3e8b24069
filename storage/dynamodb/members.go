package dynamodb

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A membership is the item of a user and chat. It stays when he leaves.
type membership struct {
	tidemark.Member
	// version is the membership version of the chat in the step that wrote the item.
	version uint64
	// changedBy is the token of the call that wrote it.
	changedBy string
	// next is what a change of many members makes of it, if that has taken effect (changes.go).
	next *joining
}

// A joining is a membership that begins with a change.
type joining struct {
	change string
	role   tidemark.Role
	at     time.Time
}

// newToken names a call, so that it knows its own writes again.
func newToken() string { return rand.Text() }

func (m *membership) item(chat tidemark.ChatID) item {
	return item{
		"chat_id": text(chat), "user_id": text(m.UserID), "role": text(m.Role), "intervals": text(m.Intervals.Text()),
		"joined_at": number(m.JoinedAt.UnixMilli()), "version": number(m.version), "changed_by": text(m.changedBy),
	}
}

func membershipOf(it item) (membership, error) {
	r := reader{item: it}
	m := membership{
		Member: tidemark.Member{
			UserID: tidemark.UserID(r.text("user_id")), Role: tidemark.Role(r.text("role")), Intervals: r.intervals("intervals"), JoinedAt: r.time("joined_at"),
		},
		version: r.number("version"), changedBy: r.text("changed_by"),
	}
	if change := r.text("next_change"); change != "" {
		m.next = &joining{change: change, role: tidemark.Role(r.text("next_role")), at: r.time("next_joined_at")}
	}
	return m, r.err
}

// ever reports whether the user was a member before.
func (m *membership) ever() bool { return m.version > 0 }

// member returns the membership at the version of a counter.
func (m membership) member(c *counter) tidemark.Member {
	if m.next == nil || c.changed == "" || m.next.change != c.changed {
		return m.Member
	}
	return tidemark.Member{
		UserID: m.UserID, Role: m.next.role, JoinedAt: m.next.at, Intervals: m.Intervals.Joined(c.change.head, c.History, m.ever()),
	}
}

// memberships reads the items of some users in a chat, strongly.
func (c caller) memberships(ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID) (map[tidemark.UserID]membership, error) {
	wanted := make([]item, len(users))
	for i, user := range users {
		wanted[i] = memberKey(chat, user)
	}
	items, err := c.getAll(ctx, read{table: memberships}, wanted)
	if err != nil {
		return nil, err
	}
	rows := make(map[tidemark.UserID]membership, len(items))
	for _, it := range items {
		row, err := membershipOf(it)
		if err != nil {
			return nil, err
		}
		rows[row.UserID] = row
	}
	for _, user := range users {
		if row, found := rows[user]; !found {
			row.UserID = user
			rows[user] = row
		}
	}
	return rows, nil
}

// A seen is a chat and some memberships in it, all at one version.
type seen struct {
	*counter
	rows map[tidemark.UserID]membership
}

// look reads a chat and the memberships of some users in it. A membership of a later version than the counter's says that the counter has to be read again.
func (c caller) look(ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID) (seen, error) {
	for again := 0; ; again++ {
		counter, err := c.counter(ctx, chat)
		if err != nil {
			return seen{}, err
		}
		rows, err := c.memberships(ctx, chat, users)
		if err != nil {
			return seen{}, err
		}
		newer := false
		for _, row := range rows {
			newer = newer || row.version > counter.MembersVersion
		}
		if !newer {
			return seen{counter, rows}, nil
		}
		if err := yield(ctx, again); err != nil {
			return seen{}, err
		}
	}
}

// AddMembers implements storage.Members. What fits into a transaction is one; more is a change (changes.go).
func (s *Store) AddMembers(ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID, at time.Time) (storage.Added, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "add_members", longTime, len(users))
	if err != nil {
		return storage.Added{}, err
	}
	defer leave()
	a := &adding{caller: c, chat: chat, users: slices.Compact(slices.Sorted(slices.Values(users))), at: stored(at), token: newToken()}
	added, err := a.all(ctx)
	if err != nil {
		return storage.Added{}, public(err)
	}
	names := make([]storage.StateKey, len(a.users))
	for i, user := range a.users {
		names[i] = storage.StateKey{User: user, Chat: chat}
	}
	added.States, err = c.states(ctx, names, false)
	return added, public(err)
}

// An adding is the work of AddMembers.
type adding struct {
	caller
	chat  tidemark.ChatID
	users []tidemark.UserID // ascending, distinct
	at    time.Time
	token string
	// doubtful reports that an attempt may have taken effect, although nobody said so.
	doubtful bool
}

func (a *adding) all(ctx context.Context) (storage.Added, error) {
	for again := 0; ; again++ {
		added, many, err := a.few(ctx)
		if err != nil || added != nil {
			return valueOf(added), err
		}
		if many {
			added, err := a.many(ctx)
			if err != nil || added != nil {
				return valueOf(added), err
			}
		}
		if err := yield(ctx, again); err != nil {
			return storage.Added{}, err
		}
	}
}

func valueOf(added *storage.Added) storage.Added {
	if added == nil {
		return storage.Added{}
	}
	return *added
}

// few adds the users in one transaction. It returns nil if something was in the way, and many if they do not fit into one.
func (a *adding) few(ctx context.Context) (added *storage.Added, many bool, err error) {
	own := a.lanes.use(a.chat)
	defer a.lanes.leave(own)
	if err := own.take(ctx); err != nil {
		return nil, false, err
	}
	defer own.release()
	now, err := a.look(ctx, a.chat, a.users)
	if err != nil {
		return nil, false, err
	}
	if now.changed != "" {
		return nil, false, a.settle(ctx, now.counter)
	}
	join, done, err := a.joiners(now)
	if err != nil || len(join) == 0 {
		return &storage.Added{Version: now.MembersVersion, Head: now.Head, New: done}, false, err
	}
	each := 2
	if now.Large {
		each = 3
	}
	if many = a.crosses(now, len(join)) || 1+each*len(join) > mostActions; many {
		return nil, true, nil
	}
	actions, err := a.actions(ctx, now, join)
	if err != nil {
		return nil, false, err
	}
	own.view.stale = true
	refused, doubtful, err := a.transact(ctx, actions)
	a.doubtful = a.doubtful || doubtful
	if err != nil || refused != nil {
		return nil, false, err
	}
	return &storage.Added{Version: now.MembersVersion + 1, Head: now.Head, New: usersOf(join)}, false, nil
}

// crosses reports whether n more members make a chat Large.
func (a *adding) crosses(now seen, n int) bool {
	return !now.Large && now.MemberCount+n > tidemark.PendingFanoutLimit
}

// joiners are the users who are not members yet, as they will be. done are those that an earlier attempt of this call has added.
func (a *adding) joiners(now seen) (join []membership, done []tidemark.UserID, err error) {
	if now.Type == tidemark.Direct {
		return nil, nil, tidemark.Errorf(tidemark.Denied, "the chat %s is direct; its members are fixed", a.chat)
	}
	for _, user := range a.users {
		row := now.rows[user]
		former := row.member(now.counter)
		if former.Intervals.Open() {
			if a.doubtful && row.changedBy == a.token {
				done = append(done, user)
			}
			continue
		}
		intervals := former.Intervals.Joined(now.Head, now.History, row.ever())
		if len(intervals) > tidemark.MaxIntervals {
			return nil, nil, tidemark.Errorf(tidemark.Denied, "%s has joined the chat %d times, which is the most", user, tidemark.MaxIntervals)
		}
		join = append(join, membership{
			Member:  tidemark.Member{UserID: user, Role: tidemark.Ordinary, Intervals: intervals, JoinedAt: a.at},
			version: now.MembersVersion + 1, changedBy: a.token,
		})
	}
	if n := now.MemberCount + len(join); n > tidemark.MaxMembers {
		return nil, nil, tidemark.Errorf(tidemark.Denied, "the chat would have %d members, at most %d are allowed", n, tidemark.MaxMembers)
	}
	return join, done, nil
}

func usersOf(join []membership) []tidemark.UserID {
	users := make([]tidemark.UserID, len(join))
	for i := range join {
		users[i] = join[i].UserID
	}
	return users
}

// actions are the counter, and for each joiner his membership, his list of chats, and the row that stands for a Large chat.
func (a *adding) actions(ctx context.Context, now seen, join []membership) ([]types.TransactWriteItem, error) {
	actions := []types.TransactWriteItem{a.action(counted(now.counter, len(join)))}
	starts, err := a.starts(ctx, now, join)
	if err != nil {
		return nil, err
	}
	for i := range join {
		user := join[i].UserID
		actions = append(actions, types.TransactWriteItem{Put: &types.Put{TableName: a.table(memberships), Item: join[i].item(a.chat)}}, a.action(starts[i]))
		if now.Large {
			actions = append(actions, types.TransactWriteItem{Put: &types.Put{TableName: a.table(pendings), Item: standing(user, a.chat)}})
		}
	}
	return actions, nil
}

// counted is the update of a counter when n members come, or go if it is negative. The head is part of the condition, since their intervals begin or end there.
func counted(c *counter, n int) update {
	return update{
		table: counters, key: chatKey(c.ID), change: "SET members_version = :next, member_count = :count", condition: "head = :head AND members_version = :version",
		values: item{
			":head": number(c.Head), ":version": number(c.MembersVersion), ":next": number(c.MembersVersion + 1), ":count": number(c.MemberCount + n),
		},
	}
}

// starts are the updates that put the chat into the lists of the joiners. Who joins a chat that shows what follows begins at its head.
func (a *adding) starts(ctx context.Context, now seen, join []membership) ([]update, error) {
	starts := make([]update, len(join))
	var names []storage.StateKey
	for i := range join {
		user := join[i].UserID
		starts[i] = update{table: states, key: stateKey(user, a.chat), change: "SET is_member = :yes REMOVE member_change", values: item{":yes": flag(true)}}
		names = append(names, storage.StateKey{User: user, Chat: a.chat})
	}
	if now.History != tidemark.HistorySinceJoin || now.Head == 0 {
		return starts, nil
	}
	found, err := a.states(ctx, names, false)
	if err != nil {
		return nil, err
	}
	for i := range join {
		former := now.rows[join[i].UserID]
		wanted, moves := tidemark.Raise{Acked: now.Head, Read: now.Head}.Apply(found[i], a.at)
		if former.ever() || !moves {
			continue
		}
		u := raised(found[i], wanted, false)
		u.change += ", is_member = :yes REMOVE member_change"
		u.values[":yes"] = flag(true)
		starts[i] = u
	}
	return starts, nil
}

// standing is the pending row of a Large chat.
func standing(user tidemark.UserID, chat tidemark.ChatID) item {
	it := pendingKey(user, chat)
	it["first_undelivered_seq"] = number(0)
	return it
}

// RemoveMember implements storage.Members.
func (s *Store) RemoveMember(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, _ time.Time) (storage.Removed, error) {
	c, ctx, leave, err := s.enter(ctx, "remove_member", callTime)
	if err != nil {
		return storage.Removed{}, err
	}
	defer leave()
	own := s.lanes.use(chat)
	defer s.lanes.leave(own)
	if err := own.take(ctx); err != nil {
		return storage.Removed{}, public(err)
	}
	defer own.release()
	r := &removing{caller: c, chat: chat, user: user, token: newToken()}
	for again := 0; ; again++ {
		own.view.stale = true
		removed, err := r.attempt(ctx)
		if err != nil {
			return storage.Removed{}, public(err)
		}
		if removed != nil {
			return *removed, nil
		}
		if err := yield(ctx, again); err != nil {
			return storage.Removed{}, public(err)
		}
	}
}

// A removing is the work of RemoveMember.
type removing struct {
	caller
	chat  tidemark.ChatID
	user  tidemark.UserID
	token string
	// doubtful is what an attempt may have done, although nobody said so.
	doubtful *storage.Removed
}

// attempt ends the membership in one transaction. It returns nil if something was in the way.
func (r *removing) attempt(ctx context.Context) (*storage.Removed, error) {
	now, err := r.look(ctx, r.chat, []tidemark.UserID{r.user})
	if err != nil {
		return nil, err
	}
	row := now.rows[r.user]
	member := row.member(now.counter)
	switch {
	case r.doubtful != nil && row.changedBy == r.token:
		return r.doubtful, nil
	case !member.Intervals.Open():
		return nil, notMember(r.chat, r.user)
	case now.Type == tidemark.Direct:
		return nil, tidemark.Errorf(tidemark.Denied, "the chat %s is direct; its members are fixed", r.chat)
	}
	member.Intervals = member.Intervals.Left(now.Head)
	left := membership{Member: member, version: now.MembersVersion + 1, changedBy: r.token}
	removed := &storage.Removed{Version: left.version, Head: now.Head}
	refused, doubtful, err := r.transact(ctx, []types.TransactWriteItem{
		r.action(counted(now.counter, -1)),
		{Put: &types.Put{TableName: r.table(memberships), Item: left.item(r.chat)}},
		r.action(update{table: states, key: stateKey(r.user, r.chat), change: "REMOVE is_member, member_change"}),
		{Delete: &types.Delete{TableName: r.table(pendings), Key: pendingKey(r.user, r.chat)}},
	})
	if err != nil {
		return nil, err
	}
	if refused == nil {
		return removed, nil
	}
	if doubtful {
		r.doubtful = removed
	}
	return nil, nil
}

// Rosters implements storage.Members.
func (s *Store) Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "rosters", callTime, len(chats))
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := c.counters(ctx, chats, false)
	if err != nil {
		return nil, public(err)
	}
	rosters := make([]*tidemark.Roster, len(chats))
	err = together(ctx, len(chats), func(ctx context.Context, i int) (err error) {
		if counter := found[chats[i]]; counter != nil {
			rosters[i], err = c.rosterAt(ctx, counter)
		}
		return err
	})
	if err != nil {
		return nil, public(err)
	}
	return rosters, nil
}

// roster reads the members of a chat. It is nil if there is no such chat.
func (c caller) roster(ctx context.Context, chat tidemark.ChatID) (*tidemark.Roster, error) {
	counter, err := c.counter(ctx, chat)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c.rosterAt(ctx, counter)
}

// rosterAt reads the members of a chat at the version of its counter, or a later one. The query is not one step; but as each change of the membership
// writes its version into the items, and none is ever removed, items that are all no newer than the counter are those of its version.
func (c caller) rosterAt(ctx context.Context, at *counter) (*tidemark.Roster, error) {
	for again := 0; ; again++ {
		r := &tidemark.Roster{
			ChatID: at.ID, Type: at.Type, History: at.History, Large: at.Large, Version: at.MembersVersion, Members: make([]tidemark.Member, 0, at.MemberCount),
		}
		newer := false
		q := query{read: read{table: memberships}, partition: "chat_id", of: text(at.ID)}
		err := c.each(ctx, q, func(it item) (bool, error) {
			row, err := membershipOf(it)
			if newer = row.version > at.MembersVersion; err != nil || newer {
				return false, err
			}
			if m := row.member(at); m.Intervals.Open() {
				r.Members = append(r.Members, m)
			}
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		if !newer {
			slices.SortFunc(r.Members, func(a, b tidemark.Member) int { return strings.Compare(string(a.UserID), string(b.UserID)) })
			return r, nil
		}
		if err := yield(ctx, again); err != nil {
			return nil, err
		}
		if at, err = c.counter(ctx, at.ID); err != nil {
			return nil, err
		}
	}
}
