package dynamodb

import (
	"context"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// A change of more members than fit into a transaction takes effect with one write to the chat's
// counter. It is prepared before that write, item by item, and settled after it:
//
//  1. begin: the counter gets the token of the change, if no other change is being prepared. If
//     standing rows will be written (stand), the counter notes that first. A preparation older
//     than changeTime may be taken over. Then its author can no longer make it take effect.
//  2. prepare: the items of each new member get the token. A token has no effect unless the
//     counter has it too.
//  3. take effect: the counter gets the new version, and the token as that of its last change.
//     The conditions are that the version is that of the preparation, and that the change was not
//     taken over. From then on the items are in effect, and begin at the head of that step.
//  4. settle: each item is written as if it had been changed alone. A process that finds a change
//     that is not settled settles it before the next change.
//
// A crash leaves a change that did not take effect and is invisible, or one that took effect and
// is visible as a whole.

// changeTime is the time an author has to make a change take effect. After it, another process may
// take over with its own change. Correctness does not depend on it. It is half the server's limit
// for a request. So a client whose server died can repeat its call with success.
const changeTime = 5 * time.Second

// changeUnderWay returns the error of a change whose time ended while another change was under way.
func changeUnderWay(chat tidemark.ChatID, err error) error {
	return tidemark.Wrap(tidemark.Unavailable, err,
		"another change of the members of the chat "+string(chat)+" is under way; try again")
}

// begin puts the token into a counter. If stand is true, it also notes that standing rows of a
// Large chat may be written. It returns false if another change is under way. standing reports that
// any process may have written standing rows.
func (c caller) begin(
	ctx context.Context, chat tidemark.ChatID, token string, version uint64, stand bool,
) (begun, standing bool, err error) {
	at := time.Now().UnixMilli()
	u := call.Update{
		Table:  record.Counters,
		Key:    record.ChatKey(chat),
		Change: "SET changing = :token, changing_at = :now",
		Condition: "(attribute_not_exists(changing) OR changing = :token" +
			" OR changing_at < :old) AND ",
		Values: call.Item{
			":token": call.Text(token),
			":now":   call.Number(at), ":old": call.Number(at - changeTime.Milliseconds()),
		},
	}
	if stand {
		u.Change += ", may_stand = :yes"
		u.Values[":yes"] = call.Flag(true)
	}
	if version == 0 { // The chat does not exist yet.
		u.Condition += "attribute_not_exists(head)"
	} else {
		u.Condition += "attribute_not_exists(change) AND members_version = :version"
		u.Values[":version"] = call.Number(version)
	}
	it, done, doubtful, err := c.Update(ctx, u)
	r := call.Reader{Item: it}
	return done || doubtful && r.Text("changing") == token, r.Flag("may_stand"), err
}

// prepare puts the token into the items of the new members, and the number of the chat's policy. It
// returns false if the change was taken over.
//
// It reads the items first, and then checks that the counter still has the token. It writes an item
// only if the item has not changed since. So an author whose change was taken over cannot undo the
// preparation of the other process.
func (c caller) prepare(
	ctx context.Context, chat tidemark.ChatID, token string, join []record.Membership,
	policy int64,
) (bool, error) {
	rows, err := c.Memberships(ctx, chat, usersOf(join))
	if err != nil {
		return false, err
	}
	lists, err := c.prepared(ctx, chat, join)
	if err != nil {
		return false, err
	}
	hiders, err := c.hiders(ctx, usersOf(join), policy)
	if err != nil {
		return false, err
	}
	it, err := c.Get(ctx, record.Counters, record.ChatKey(chat))
	if err != nil {
		return false, err
	}
	r := call.Reader{Item: it}
	if r.Text("changing") != token {
		return false, r.Err
	}
	taken := make([]bool, len(join))
	err = call.Together(ctx, len(join), func(ctx context.Context, i int) error {
		m := &join[i]
		u := call.Update{
			Table:  record.Memberships,
			Key:    record.MemberKey(chat, m.UserID),
			Change: "SET next_change = :token, next_role = :role, next_joined_at = :at",
			Values: call.Item{
				":role": call.Text(m.Role), ":at": call.Number(m.JoinedAt.UnixMilli()),
			},
		}
		// A delayed call may arrive when the member has already been removed again.
		row, seen := rows[m.UserID], ""
		//rule:nothing_outside_membership.change-as-read
		if u.Condition = "attribute_not_exists(version)"; row.Ever() {
			u.Condition = "version = :version"
			u.Values[":version"] = call.Number(row.Version)
		}
		if row.Next != nil {
			seen = row.Next.Change
		}
		ready, err := c.putToken(ctx, u, "next_change", token, seen)
		if taken[i] = err == nil && !ready; err != nil || taken[i] {
			return err
		}
		u = call.Update{
			Table:  record.States,
			Key:    record.StateKey(m.UserID, chat),
			Change: "SET member_change = :token" + hiders.prepare(m.UserID),
			Values: hiders.values(m.UserID),
		}
		ready, err = c.putToken(ctx, u, "member_change", token, lists[m.UserID])
		taken[i] = err == nil && !ready
		return err
	})
	if err != nil || slices.Contains(taken, true) {
		return false, err
	}
	// An earlier attempt may have left states with an older policy. From now on the tokens keep its
	// writes out.
	//rule:shown_within_real.states-of-an-earlier-attempt
	err = c.copyPolicy(ctx, chat, usersOf(join), policy)
	return err == nil, err
}

// putToken writes a token into an attribute of an item. The attribute must still have the value
// seen, "" for none, or the token itself.
func (c caller) putToken(
	ctx context.Context, u call.Update, attribute, token, seen string,
) (bool, error) {
	u.Values[":token"] = call.Text(token)
	free := "attribute_not_exists(" + attribute + ")"
	if seen != "" {
		free = attribute + " = :seen"
		u.Values[":seen"] = call.Text(seen)
	}
	free = "(" + free + " OR " + attribute + " = :token)"
	if u.Condition != "" {
		free += " AND " + u.Condition
	}
	u.Condition = free
	_, done, _, err := c.Update(ctx, u)
	return done, err
}

// prepared returns the tokens in the new members' delivery states, which are their lists of chats.
func (c caller) prepared(
	ctx context.Context, chat tidemark.ChatID, join []record.Membership,
) (map[tidemark.UserID]string, error) {
	wanted := make([]call.Item, len(join))
	for i := range join {
		wanted[i] = record.StateKey(join[i].UserID, chat)
	}
	items, err := c.GetAll(ctx,
		call.Read{Table: record.States, Only: []string{"user_id", "member_change"}}, wanted)
	if err != nil {
		return nil, err
	}
	tokens := make(map[tidemark.UserID]string, len(items))
	for _, it := range items {
		r := call.Reader{Item: it}
		tokens[tidemark.UserID(r.Text("user_id"))] = r.Text("member_change")
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return tokens, nil
}

// many adds the users by a change. It returns nil if another write was in the way.
func (a *adding) many(ctx context.Context) (*storage.Added, error) {
	now, err := a.Look(ctx, a.chat, a.users)
	if err != nil {
		return nil, err
	}
	if now.Changed != "" {
		return nil, a.settle(ctx, now.Counter)
	}
	if err := a.unbanned(ctx, now.Counter, a.users); err != nil {
		return nil, err
	}
	join, _, err := a.joiners(now)
	if err != nil || len(join) == 0 {
		return nil, err
	}
	crosses := a.crosses(now, len(join))
	begun, _, err := a.begin(ctx, a.chat, a.token, now.MembersVersion, crosses)
	if err != nil || !begun {
		return nil, err
	}
	prepared, err := a.prepare(ctx, a.chat, a.token, join, now.PolicyNumber)
	if err != nil || !prepared {
		return nil, err
	}
	large := now.Large || crosses
	if large {
		if err := a.stand(ctx, now, join); err != nil {
			return nil, err
		}
	}
	u := call.Update{
		Table: record.Counters,
		Key:   record.ChatKey(a.chat),
		Change: "SET members_version = :next, member_count = :count, change = :token, " +
			"change_head = head, change_version = :next",
		//rule:nothing_outside_membership.change-of-this-version-only
		Condition: "changing = :token AND members_version = :version",
		Values: call.Item{
			":token": call.Text(a.token), ":version": call.Number(now.MembersVersion),
			":next":  call.Number(now.MembersVersion + 1),
			":count": call.Number(now.MemberCount + len(join)),
		},
	}
	u.Condition += " AND " + policyIs(now.PolicyNumber, u.Values)
	if large {
		u.Change += ", is_large = :yes"
		u.Values[":yes"] = call.Flag(true)
	}
	u.Change = record.OpenBacklog(a.chat, u.Change, u.Values) + " REMOVE changing, changing_at"
	it, done, doubtful, err := a.Update(ctx, u)
	if err != nil {
		return nil, err
	}
	r := call.Reader{Item: it}
	if a.doubtful = a.doubtful || doubtful; !done && r.Text("change") != a.token {
		return nil, nil // The next attempt finds the users who are members already.
	}
	after, err := a.Learn(a.chat, it)
	if err != nil {
		return nil, err
	}
	if err := a.settle(ctx, after); err != nil {
		return nil, err
	}
	return &storage.Added{
		Version: after.ChangeVersion,
		Head:    after.ChangeHead,
		New:     usersOf(join),
	}, nil
}

// stand writes the standing rows of a Large chat: of the new members, or of all members if the chat
// was not Large before. It runs before the change takes effect. If the change fails, the rows still
// keep Mark from writing. For that case the counter has noted that heads must be compared
// (record.Counter.Standing).
func (a *adding) stand(ctx context.Context, now record.Seen, join []record.Membership) error {
	users := usersOf(join)
	if !now.Large {
		roster, err := a.RosterAt(ctx, now.Counter)
		if err != nil {
			return err
		}
		for _, m := range roster.Members {
			users = append(users, m.UserID)
		}
	}
	// The roster may be of a later version that has new members. A batch may not name an item
	// twice.
	slices.Sort(users)
	var rows []call.Item
	for _, user := range slices.Compact(users) {
		rows = append(rows, standing(user, a.chat))
	}
	return a.PutAll(ctx, record.Pendings, rows)
}

// createMany creates a chat by a change.
func (c caller) createMany(
	ctx context.Context, new storage.NewChat, made record.Counter,
) (tidemark.Chat, bool, error) {
	join := make([]record.Membership, len(new.Members))
	var rows []call.Item
	for i, user := range new.Members {
		join[i].Member = tidemark.Member{
			UserID:   user,
			Role:     roleIn(new, user),
			JoinedAt: made.CreatedAt,
		}
		rows = append(rows, standing(user, new.ID))
	}
	token := made.CreatedBy
	for again := 0; ; again++ {
		it, err := c.Get(ctx, record.Counters, record.ChatKey(new.ID))
		if err != nil {
			return tidemark.Chat{}, false, err
		}
		there, err := record.CounterOf(it)
		switch {
		case err != nil:
			return tidemark.Chat{}, false, err
		case there != nil && there.CreatedBy == token:
			return made.Chat, true, c.settle(ctx, there)
		case there != nil:
			return tidemark.Chat{}, false, storage.Taken(new.ID)
		}
		ready, standing, err := c.begin(ctx, new.ID, token, 0, made.Large)
		made.Standing = standing
		if err == nil && ready {
			ready, err = c.prepare(ctx, new.ID, token, join, 0)
		}
		if err == nil && ready && made.Large {
			err = c.PutAll(ctx, record.Pendings, rows)
		}
		if err == nil && ready {
			err = c.takeEffect(ctx, made)
		}
		if err == nil {
			if err = call.Yield(ctx, again); err != nil {
				err = changeUnderWay(new.ID, err)
			}
		}
		if err != nil {
			return tidemark.Chat{}, false, err
		}
	}
}

// takeEffect creates the prepared chat, unless the preparation was taken over.
func (c caller) takeEffect(ctx context.Context, made record.Counter) error {
	it := made.Item()
	it["change"] = call.Text(made.CreatedBy)
	it["change_head"], it["change_version"] = call.Number(0), call.Number(1)
	_, _, err := c.Put(ctx, record.Counters, it, "changing = :token AND attribute_not_exists(head)",
		call.Item{":token": call.Text(made.CreatedBy)})
	return err
}

// settle writes the items of a change that took effect as if they had been changed alone.
func (c caller) settle(ctx context.Context, at *record.Counter) error {
	var join []record.Membership
	q := call.Query{
		Read:      call.Read{Table: record.Memberships},
		Partition: "chat_id",
		Of:        call.Text(at.ID),
	}
	err := c.Each(ctx, q, func(it call.Item) (bool, error) {
		row, err := record.MembershipOf(it)
		if row.Next != nil && row.Next.Change == at.Changed {
			join = append(join, row)
		}
		return true, err
	})
	if err != nil {
		return err
	}
	const batch = call.MostActions / 2
	err = call.Together(ctx, (len(join)+batch-1)/batch, func(ctx context.Context, i int) error {
		return c.settleSome(ctx, at, join[i*batch:min(len(join), (i+1)*batch)])
	})
	if err != nil {
		return err
	}
	_, _, _, err = c.Update(ctx, call.Update{
		Table:     record.Counters,
		Key:       record.ChatKey(at.ID),
		Change:    "REMOVE change, change_head, change_version",
		Condition: "change = :token",
		Values:    call.Item{":token": call.Text(at.Changed)},
	})
	return err
}

// settleSome settles members. It settles each one only if no other process has.
func (c caller) settleSome(
	ctx context.Context, at *record.Counter, join []record.Membership,
) error {
	for again := 0; len(join) > 0; again++ {
		if again > 0 {
			if err := call.Pause(ctx, again); err != nil {
				return err
			}
		}
		var actions []types.TransactWriteItem
		for i := range join {
			row := &join[i]
			// If the chat shows only what follows a join, the member begins at its head. The
			// watermarks are raised before the membership is settled, so that a crash cannot lose
			// them.
			//rule:sync_position_from_watermark.remember-where-membership-starts
			if at.History == tidemark.HistorySinceJoin && !row.Ever() && at.ChangeHead > 0 {
				raise := tidemark.Raise{Acked: at.ChangeHead, Read: at.ChangeHead}
				a := storage.Advance{
					User: row.UserID, Chat: at.ID, Raise: raise, Now: row.Next.At,
				}
				if _, err := c.raise(ctx, &a, true); err != nil {
					return err
				}
			}
			member := record.Membership{
				Member:    row.At(at),
				Version:   at.ChangeVersion,
				ChangedBy: at.Changed,
			}
			actions = append(actions,
				//rule:nothing_outside_membership.settle-once
				types.TransactWriteItem{Put: &types.Put{
					TableName:                 c.Table(record.Memberships),
					Item:                      member.Item(at.ID),
					ConditionExpression:       aws.String("next_change = :token"),
					ExpressionAttributeValues: call.Item{":token": call.Text(at.Changed)},
				}},
				c.Action(call.Update{
					Table:  record.States,
					Key:    record.StateKey(row.UserID, at.ID),
					Change: "SET is_member = :yes REMOVE member_change",
					Values: call.Item{":yes": call.Flag(true)},
				}))
		}
		refused, _, err := c.Transact(ctx, actions)
		if err != nil || refused == nil {
			return err
		}
		left := join[:0:0]
		for i := range join {
			if !call.Failed(refused[2*i]) {
				left = append(left, join[i])
			}
		}
		join = left
	}
	return nil
}
