package dynamodb

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// AddMembers implements storage.Members. It uses one transaction if the members fit, and a change
// otherwise (changes.go).
func (s *Store) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, at time.Time,
) (storage.Added, error) {
	if err := fits(len(users)); err != nil {
		return storage.Added{}, err
	}
	c, ctx, leave, err := s.enter(ctx, "add_members", time.Duration(len(users))*memberTime)
	if err != nil {
		return storage.Added{}, err
	}
	defer leave()
	a := &adding{
		caller: c,
		chat:   chat,
		users:  slices.Compact(slices.Sorted(slices.Values(users))),
		role:   role,
		at:     call.Stored(at),
		token:  rand.Text(),
	}
	added, err := a.all(ctx)
	if err != nil {
		return storage.Added{}, call.Public(err)
	}
	names := make([]storage.StateKey, len(a.users))
	for i, user := range a.users {
		names[i] = storage.StateKey{User: user, Chat: chat}
	}
	if err := c.copyReceipts(ctx, names); err != nil {
		return storage.Added{}, call.Public(err)
	}
	added.States, err = c.states(ctx, names, false)
	return added, call.Public(err)
}

// An adding executes AddMembers.
type adding struct {
	caller
	chat  tidemark.ChatID
	users []tidemark.UserID // ascending, distinct
	role  tidemark.Role
	at    time.Time
	token string
	// doubtful reports that an attempt with an unknown outcome may have taken effect.
	doubtful bool
}

func (a *adding) all(ctx context.Context) (storage.Added, error) {
	for again := 0; ; again++ {
		added, many, err := a.few(ctx)
		if err == nil && added == nil && many {
			added, err = a.many(ctx)
		}
		if err != nil && again > 0 && ctx.Err() != nil {
			// The time ended in a further attempt.
			return storage.Added{}, changeUnderWay(a.chat, err)
		}
		if err != nil || added != nil {
			return valueOf(added), err
		}
		if err := call.Yield(ctx, again); err != nil {
			return storage.Added{}, changeUnderWay(a.chat, err)
		}
	}
}

func valueOf(added *storage.Added) storage.Added {
	if added == nil {
		return storage.Added{}
	}
	return *added
}

// few adds the users in one transaction. added is nil if another write was in the way. many reports
// that the users do not fit into one transaction.
func (a *adding) few(ctx context.Context) (added *storage.Added, many bool, err error) {
	done, err := a.appends.Turn(ctx, a.chat)
	if err != nil {
		return nil, false, err
	}
	defer done()
	now, err := a.Look(ctx, a.chat, a.users)
	if err != nil {
		return nil, false, err
	}
	if now.Changed != "" {
		return nil, false, a.settle(ctx, now.Counter)
	}
	if err := a.unbanned(ctx, now.Counter, a.users); err != nil {
		return nil, false, err
	}
	join, own, err := a.joiners(now)
	if err != nil || len(join) == 0 {
		return &storage.Added{Version: now.MembersVersion, Head: now.Head, New: own}, false, err
	}
	each := 2
	if now.Large {
		each = 3
	}
	if many = a.crosses(now, len(join)) || 1+each*len(join) > call.MostActions; many {
		return nil, true, nil
	}
	actions, err := a.actions(ctx, now, join)
	if err != nil {
		return nil, false, err
	}
	refused, doubtful, err := a.Transact(ctx, actions)
	a.doubtful = a.doubtful || doubtful
	if err != nil || refused != nil {
		return nil, false, err
	}
	added = &storage.Added{Version: now.MembersVersion + 1, Head: now.Head, New: usersOf(join)}
	return added, false, nil
}

// crosses reports whether n more members make a chat Large.
func (a *adding) crosses(now record.Seen, n int) bool {
	return !now.Large && now.MemberCount+n > tidemark.PendingFanoutLimit
}

// joiners returns the users who are not members yet, with their new memberships. done are users
// that an earlier attempt of this call has added.
func (a *adding) joiners(
	now record.Seen,
) (join []record.Membership, done []tidemark.UserID, err error) {
	if now.Type == tidemark.Direct {
		return nil, nil, tidemark.Errorf(tidemark.Denied,
			"the chat %s is direct; its members are fixed", a.chat)
	}
	for _, user := range a.users {
		row := now.Rows[user]
		former := row.At(now.Counter)
		if former.Intervals.Open() {
			if a.doubtful && row.ChangedBy == a.token {
				done = append(done, user)
			}
			continue
		}
		intervals := former.Intervals.Joined(now.Head, now.History, row.Ever())
		if len(intervals) > tidemark.MaxIntervals {
			return nil, nil, tidemark.Errorf(tidemark.Denied,
				"%s has joined the chat %d times, which is the most", user, tidemark.MaxIntervals)
		}
		join = append(join, record.Membership{
			Member: tidemark.Member{
				UserID:    user,
				Role:      a.role,
				Intervals: intervals,
				JoinedAt:  a.at,
			},
			Version:   now.MembersVersion + 1,
			ChangedBy: a.token,
		})
	}
	if n := now.MemberCount + len(join); n > tidemark.MaxMembers {
		return nil, nil, tidemark.Errorf(tidemark.Denied,
			"the chat would have %d members, at most %d are allowed", n, tidemark.MaxMembers)
	}
	return join, done, nil
}

func usersOf(join []record.Membership) []tidemark.UserID {
	users := make([]tidemark.UserID, len(join))
	for i := range join {
		users[i] = join[i].UserID
	}
	return users
}

// actions returns the writes of the transaction. It writes the counter, and for each joiner the
// membership, the list of chats, and the standing row of a Large chat.
func (a *adding) actions(
	ctx context.Context, now record.Seen, join []record.Membership,
) ([]types.TransactWriteItem, error) {
	actions := []types.TransactWriteItem{a.Action(counted(now.Counter, len(join)))}
	starts, err := a.starts(ctx, now, join)
	if err != nil {
		return nil, err
	}
	for i := range join {
		user := join[i].UserID
		actions = append(actions,
			types.TransactWriteItem{Put: &types.Put{TableName: a.Table(record.Memberships),
				Item: join[i].Item(a.chat)}}, a.Action(starts[i]))
		if now.Large {
			actions = append(actions, types.TransactWriteItem{
				Put: &types.Put{TableName: a.Table(record.Pendings), Item: standing(user, a.chat)},
			})
		}
	}
	return actions, nil
}

// counted returns the update of a counter when n members join, or leave if n is negative. The
// condition includes the head, since the members' intervals begin or end there, and the policy that
// new members copy.
func counted(c *record.Counter, n int) call.Update {
	values := call.Item{
		":head": call.Number(c.Head), ":version": call.Number(c.MembersVersion),
		":next": call.Number(c.MembersVersion + 1), ":count": call.Number(c.MemberCount + n),
	}
	//rule:nothing_outside_membership.change-members-at-head
	return call.Update{
		Table: record.Counters,
		Key:   record.ChatKey(c.ID),
		Change: record.OpenBacklog(c.ID,
			"SET members_version = :next, member_count = :count", values),
		Condition: "head = :head AND members_version = :version AND " +
			policyIs(c.PolicyNumber, values),
		Values: values,
	}
}

// starts returns the updates that put the chat into the lists of the joiners. If the chat shows
// only what follows a join, the joiner begins at its head.
func (a *adding) starts(
	ctx context.Context, now record.Seen, join []record.Membership,
) ([]call.Update, error) {
	starts := make([]call.Update, len(join))
	hiders, err := a.hiders(ctx, usersOf(join), now.PolicyNumber)
	if err != nil {
		return nil, err
	}
	var names []storage.StateKey
	for i := range join {
		user := join[i].UserID
		starts[i] = call.Update{
			Table:  record.States,
			Key:    record.StateKey(user, a.chat),
			Change: "SET is_member = :yes" + hiders.set(user) + " REMOVE member_change",
			Values: hiders.values(user),
		}
		starts[i].Values[":yes"] = call.Flag(true)
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
		former := now.Rows[join[i].UserID]
		wanted, moves := tidemark.Raise{Acked: now.Head, Read: now.Head}.Apply(found[i], a.at)
		if former.Ever() || !moves {
			continue
		}
		u := raised(found[i], wanted, false)
		user := join[i].UserID
		u.Change += ", is_member = :yes" + hiders.set(user) +
			" REMOVE member_change, hidden_from, shown_at"
		maps.Copy(u.Values, hiders.values(user))
		u.Values[":yes"] = call.Flag(true)
		starts[i] = u
	}
	return starts, nil
}

// standing returns the pending row of a member of a Large chat.
func standing(user tidemark.UserID, chat tidemark.ChatID) call.Item {
	it := record.PendingKey(user, chat)
	it["first_undelivered_seq"] = call.Number(0)
	return it
}

// RemoveMember implements storage.Members.
func (s *Store) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, _ time.Time,
) (storage.Removed, error) {
	c, ctx, leave, err := s.enter(ctx, "remove_member", 0)
	if err != nil {
		return storage.Removed{}, err
	}
	defer leave()
	done, err := s.appends.Turn(ctx, chat)
	if err != nil {
		return storage.Removed{}, call.Public(err)
	}
	defer done()
	r := &removing{caller: c, chat: chat, user: user, token: rand.Text()}
	for again := 0; ; again++ {
		removed, err := r.attempt(ctx)
		if err != nil {
			return storage.Removed{}, call.Public(err)
		}
		if removed != nil {
			return *removed, nil
		}
		if err := call.Yield(ctx, again); err != nil {
			return storage.Removed{}, call.Public(err)
		}
	}
}

// A removing executes RemoveMember.
type removing struct {
	caller
	chat  tidemark.ChatID
	user  tidemark.UserID
	token string
	// doubtful is the result of an attempt whose outcome is unknown.
	doubtful *storage.Removed
}

// attempt ends the membership in one transaction. It returns nil if another write was in the way.
func (r *removing) attempt(ctx context.Context) (*storage.Removed, error) {
	now, err := r.Look(ctx, r.chat, []tidemark.UserID{r.user})
	if err != nil {
		return nil, err
	}
	// Settling sets where the user's watermarks begin. After a removal that would be lost.
	//rule:delivery_state_independent_of_membership.settle-before-removal
	if now.Changed != "" {
		return nil, r.settle(ctx, now.Counter)
	}
	row := now.Rows[r.user]
	member := row.Member
	switch {
	//rule:nothing_outside_membership.own-removal-after-doubt
	case r.doubtful != nil && row.ChangedBy == r.token:
		return r.doubtful, nil
	case !member.Intervals.Open():
		return nil, record.NotMember(r.chat, r.user)
	case now.Type == tidemark.Direct:
		return nil, tidemark.Errorf(tidemark.Denied, "the chat %s is direct; its members are fixed",
			r.chat)
	}
	removed, actions, err := r.leaving(ctx, now, member, r.token)
	if err != nil || removed == nil {
		return nil, err
	}
	refused, doubtful, err := r.Transact(ctx, append(actions, r.Action(counted(now.Counter, -1))))
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

// leaving returns the writes that end the membership of a current member, besides that of the
// counter. removed is nil if another write was in the way.
func (c caller) leaving(
	ctx context.Context, now record.Seen, member tidemark.Member, token string,
) (removed *storage.Removed, actions []types.TransactWriteItem, err error) {
	user := member.UserID
	removed = &storage.Removed{Version: now.MembersVersion + 1, Head: now.Head}
	if member.Role == tidemark.Owner {
		roster, err := c.RosterAt(ctx, now.Counter)
		if err != nil || roster.Version != now.MembersVersion {
			return nil, nil, err
		}
		//rule:owner_always.succeed-at-removal-in-dynamodb
		if heir, found, _ := roster.Successor(user); found {
			removed.Successor = heir.UserID
			actions = append(actions, c.promote(now, heir, token))
		}
	}
	member.Intervals, member.Metadata = member.Intervals.Left(now.Head), nil
	return removed, append(actions,
		c.put(now, member, token),
		c.Action(call.Update{
			Table:  record.States,
			Key:    record.StateKey(user, now.ID),
			Change: "REMOVE is_member, member_change",
		}),
		types.TransactWriteItem{
			Delete: &types.Delete{
				TableName: c.Table(record.Pendings),
				Key:       record.PendingKey(user, now.ID),
			},
		},
	), nil
}

// Rosters implements storage.Members.
func (s *Store) Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "rosters", len(chats))
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := c.Counters(ctx, chats, false)
	if err != nil {
		return nil, call.Public(err)
	}
	rosters := make([]*tidemark.Roster, len(chats))
	err = call.Together(ctx, len(chats), func(ctx context.Context, i int) (err error) {
		if counter := found[chats[i]]; counter != nil {
			rosters[i], err = c.RosterAt(ctx, counter)
		}
		return err
	})
	if err != nil {
		return nil, call.Public(err)
	}
	return rosters, nil
}

// roster reads the members of a chat. It settles a change first if the watermarks of new members
// depend on it. It returns nil if there is no such chat.
func (c caller) roster(ctx context.Context, chat tidemark.ChatID) (*tidemark.Roster, error) {
	counter, err := c.Counter(ctx, chat)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return nil, nil
	}
	if err == nil && counter.Changed != "" && counter.History == tidemark.HistorySinceJoin {
		err = c.settle(ctx, counter)
	}
	if err != nil {
		return nil, err
	}
	return c.RosterAt(ctx, counter)
}
