package dynamodb

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A change of more members than fit into a transaction takes effect with one write to the chat's counter. Before that it is prepared, item by
// item; after it, it is settled:
//
//  1. begin: the counter gets the token of the change, if no other change is being prepared. One that is older than changeTime may be taken over: its author
//     cannot make it take effect any more.
//  2. prepare: each new member's items get the token. A token that is not the counter's says nothing.
//  3. take effect: the counter gets the new version, and the token as that of its last change, on the condition that the version is that of the
//     preparation, and that the change was not taken over. From then on the items count, and begin at the head of that step.
//  4. settle: each item is written as if it had been changed alone. Whoever finds a change that is not settled does it before the next one.
//
// So a crash leaves a change that did not take effect, which nobody sees, or one that did, which everybody sees whole.

// changeTime is how long the author of a change has to make it take effect. It decides when others try theirs, and nothing else.
const changeTime = 10 * time.Second

// begin puts the token into a counter. It reports false if another change is in the way.
func (c caller) begin(ctx context.Context, chat tidemark.ChatID, token string, version uint64) (bool, error) {
	at := now()
	u := update{
		table: counters, key: chatKey(chat), change: "SET changing = :token, changing_at = :now",
		condition: "(attribute_not_exists(changing) OR changing = :token OR changing_at < :old) AND ",
		values:    item{":token": text(token), ":now": number(at), ":old": number(at - changeTime.Milliseconds())},
	}
	if version == 0 { // It is not there yet.
		u.condition += "attribute_not_exists(head)"
	} else {
		u.condition += "attribute_not_exists(change) AND members_version = :version"
		u.values[":version"] = number(version)
	}
	it, done, doubtful, err := c.update(ctx, u)
	r := reader{item: it}
	return done || doubtful && r.text("changing") == token, err
}

// prepare puts the token into the items of the new members. It reports false if the change was taken over.
//
// What an item holds is read first, and then whether the change still is the counter's; and the item is written if it is as it was read. So somebody
// whose change was taken over cannot undo the preparation of whoever did that.
func (c caller) prepare(ctx context.Context, chat tidemark.ChatID, token string, join []membership) (bool, error) {
	rows, err := c.memberships(ctx, chat, usersOf(join))
	if err != nil {
		return false, err
	}
	it, err := c.get(ctx, counters, chatKey(chat))
	if err != nil {
		return false, err
	}
	r := reader{item: it}
	if r.text("changing") != token {
		return false, r.err
	}
	taken := make([]bool, len(join))
	err = together(ctx, len(join), func(ctx context.Context, i int) error {
		m := &join[i]
		u := update{
			table: memberships, key: memberKey(chat, m.UserID), change: "SET next_change = :token, next_role = :role, next_joined_at = :at",
			condition: "attribute_not_exists(next_change)",
			values:    item{":token": text(token), ":role": text(m.Role), ":at": number(m.JoinedAt.UnixMilli())},
		}
		if next := rows[m.UserID].next; next != nil {
			u.condition = "next_change = :seen OR next_change = :token"
			u.values[":seen"] = text(next.change)
		}
		now, done, _, err := c.update(ctx, u)
		r := reader{item: now}
		if taken[i] = !done && r.text("next_change") != token; err != nil || taken[i] {
			return err
		}
		_, _, _, err = c.update(ctx, update{
			table: states, key: stateKey(m.UserID, chat), change: "SET member_change = :token", values: item{":token": text(token)},
		})
		return err
	})
	for i := range taken {
		if taken[i] {
			return false, err
		}
	}
	return true, err
}

// many adds the users by a change. It returns nil if something was in the way.
func (a *adding) many(ctx context.Context) (*storage.Added, error) {
	now, err := a.look(ctx, a.chat, a.users)
	if err != nil {
		return nil, err
	}
	if now.changed != "" {
		return nil, a.settle(ctx, now.counter)
	}
	join, _, err := a.joiners(now)
	if err != nil || len(join) == 0 {
		return nil, err
	}
	begun, err := a.begin(ctx, a.chat, a.token, now.MembersVersion)
	if err != nil || !begun {
		return nil, err
	}
	prepared, err := a.prepare(ctx, a.chat, a.token, join)
	if err != nil || !prepared {
		return nil, err
	}
	large := now.Large || a.crosses(now, len(join))
	if large {
		if err := a.stand(ctx, now, join); err != nil {
			return nil, err
		}
	}
	u := update{
		table: counters, key: chatKey(a.chat),
		change:    "SET members_version = :next, member_count = :count, change = :token, change_head = head, change_version = :next",
		condition: "changing = :token AND members_version = :version",
		values: item{
			":token": text(a.token), ":version": number(now.MembersVersion), ":next": number(now.MembersVersion + 1), ":count": number(now.MemberCount + len(join)),
		},
	}
	if large {
		u.change += ", is_large = :yes"
		u.values[":yes"] = flag(true)
	}
	u.change += " REMOVE changing, changing_at"
	it, done, doubtful, err := a.update(ctx, u)
	if err != nil {
		return nil, err
	}
	r := reader{item: it}
	if a.doubtful = a.doubtful || doubtful; !done && r.text("change") != a.token {
		return nil, nil // Who has been added already is seen by the next attempt.
	}
	after, err := a.learn(a.chat, it)
	if err != nil {
		return nil, err
	}
	if err := a.settle(ctx, after); err != nil {
		return nil, err
	}
	return &storage.Added{Version: after.toVersion, Head: after.change.head, New: usersOf(join)}, nil
}

// stand writes the rows that stand for a Large chat: of the new members, and of all if it was not Large before. They are written before the change takes effect, and
// say too much if it does not: that a head has to be compared.
func (a *adding) stand(ctx context.Context, now seen, join []membership) error {
	var rows []item
	for i := range join {
		rows = append(rows, standing(join[i].UserID, a.chat))
	}
	if !now.Large {
		roster, err := a.rosterAt(ctx, now.counter)
		if err != nil {
			return err
		}
		for _, m := range roster.Members {
			rows = append(rows, standing(m.UserID, a.chat))
		}
	}
	return a.putAll(ctx, pendings, rows)
}

// createMany creates a chat by a change.
func (c caller) createMany(ctx context.Context, new storage.NewChat, made counter) (tidemark.Chat, bool, error) {
	join := make([]membership, len(new.Members))
	var rows []item
	for i, user := range new.Members {
		join[i].Member = tidemark.Member{UserID: user, Role: roleIn(new, user), JoinedAt: made.CreatedAt}
		rows = append(rows, standing(user, new.ID))
	}
	token := made.createdBy
	for again := 0; ; again++ {
		it, err := c.get(ctx, counters, chatKey(new.ID))
		if err != nil {
			return tidemark.Chat{}, false, err
		}
		there, err := counterOf(it)
		switch {
		case err != nil:
			return tidemark.Chat{}, false, err
		case there != nil && there.createdBy == token:
			return made.Chat, true, c.settle(ctx, there)
		case there != nil:
			return tidemark.Chat{}, false, tidemark.Errorf(tidemark.Conflict, "there is a chat %s already", new.ID)
		}
		ready, err := c.begin(ctx, new.ID, token, 0)
		if err == nil && ready {
			ready, err = c.prepare(ctx, new.ID, token, join)
		}
		if err == nil && ready && made.Large {
			err = c.putAll(ctx, pendings, rows)
		}
		if err == nil && ready {
			err = c.takeEffect(ctx, made)
		}
		if err == nil {
			err = yield(ctx, again)
		}
		if err != nil {
			return tidemark.Chat{}, false, err
		}
	}
}

// takeEffect makes a chat of what was prepared for it, unless that was taken over.
func (c caller) takeEffect(ctx context.Context, made counter) error {
	it := made.item()
	it["change"], it["change_head"], it["change_version"] = text(made.createdBy), number(0), number(1)
	_, _, err := try(ctx, c, c.api.PutItem, c.put(counters, it, "changing = :token AND attribute_not_exists(head)", item{":token": text(made.createdBy)}))
	if code(err) == "ConditionalCheckFailedException" {
		return nil
	}
	return err
}

// settle writes the items of a change that took effect as if they had been changed alone.
func (c caller) settle(ctx context.Context, at *counter) error {
	var join []membership
	q := query{read: read{table: memberships}, partition: "chat_id", of: text(at.ID)}
	err := c.each(ctx, q, func(it item) (bool, error) {
		row, err := membershipOf(it)
		if row.next != nil && row.next.change == at.changed {
			join = append(join, row)
		}
		return true, err
	})
	if err != nil {
		return err
	}
	const batch = mostActions / 2
	err = together(ctx, (len(join)+batch-1)/batch, func(ctx context.Context, i int) error {
		return c.settleSome(ctx, at, join[i*batch:min(len(join), (i+1)*batch)])
	})
	if err != nil {
		return err
	}
	_, _, _, err = c.update(ctx, update{
		table: counters, key: chatKey(at.ID), change: "REMOVE change, change_head, change_version", condition: "change = :token", values: item{":token": text(at.changed)},
	})
	return err
}

// settleSome settles members, each of them only if nobody else has.
func (c caller) settleSome(ctx context.Context, at *counter, join []membership) error {
	for again := 0; len(join) > 0; again++ {
		if again > 0 {
			if err := pause(ctx, again); err != nil {
				return err
			}
		}
		var actions []types.TransactWriteItem
		for i := range join {
			row := &join[i]
			// Who joins a chat that shows what follows begins at its head: before his membership is settled, so that this is not forgotten.
			if at.History == tidemark.HistorySinceJoin && !row.ever() && at.change.head > 0 {
				raise := tidemark.Raise{Acked: at.change.head, Read: at.change.head}
				if _, _, err := c.raise(ctx, row.UserID, at.ID, raise, row.next.at); err != nil {
					return err
				}
			}
			member := membership{Member: row.member(at), version: at.toVersion, changedBy: at.changed}
			actions = append(actions,
				types.TransactWriteItem{Put: &types.Put{
					TableName: c.table(memberships), Item: member.item(at.ID), ConditionExpression: aws.String("next_change = :token"),
					ExpressionAttributeValues: item{":token": text(at.changed)},
				}},
				c.action(update{
					table: states, key: stateKey(row.UserID, at.ID), change: "SET is_member = :yes REMOVE member_change", values: item{":yes": flag(true)},
				}))
		}
		refused, _, err := c.transact(ctx, actions)
		if err != nil || refused == nil {
			return err
		}
		left := join[:0:0]
		for i := range join {
			if !failed(refused[2*i]) {
				left = append(left, join[i])
			}
		}
		join = left
	}
	return nil
}
