package dynamodb

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// bansOf returns the partition of the documents' table that has the bans of a chat. Their number is
// in the counter. So a chat without bans costs no read.
func bansOf(chat tidemark.ChatID) string { return "ban|" + string(chat) }

// banKey returns the key of a ban.
func banKey(chat tidemark.ChatID, user tidemark.UserID) call.Item {
	return call.Item{"kind": call.Text(bansOf(chat)), "name": call.Text(user)}
}

// unbanned returns Denied if one of the users is banned from a chat. A later ban raises the version
// of the members.
func (c caller) unbanned(
	ctx context.Context, chat *record.Counter, users []tidemark.UserID,
) error {
	if chat.Bans == 0 {
		return nil
	}
	keys := make([]call.Item, len(users))
	for i, user := range users {
		keys[i] = banKey(chat.ID, user)
	}
	found, err := c.GetAll(ctx, call.Read{Table: record.Documents}, keys)
	//rule:banned_stays_out.add-nobody-banned-in-dynamodb
	if err == nil && len(found) > 0 {
		r := call.Reader{Item: found[0]}
		err = storage.IsBanned(chat.ID, tidemark.UserID(r.Text("name")))
	}
	return err
}

// Ban implements storage.Bans.
func (s *Store) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Banned, error) {
	c, ctx, leave, err := s.enter(ctx, "ban", 0)
	if err != nil {
		return storage.Banned{}, err
	}
	defer leave()
	done, err := s.appends.Turn(ctx, chat)
	if err != nil {
		return storage.Banned{}, call.Public(err)
	}
	defer done()
	b := &banning{caller: c, chat: chat, user: user, at: now, token: rand.Text()}
	for again := 0; ; again++ {
		banned, err := b.attempt(ctx)
		if err != nil {
			return storage.Banned{}, call.Public(err)
		}
		if banned != nil {
			return *banned, nil
		}
		if err := call.Yield(ctx, again); err != nil {
			return storage.Banned{}, call.Public(err)
		}
	}
}

// A banning executes Ban.
type banning struct {
	caller
	chat  tidemark.ChatID
	user  tidemark.UserID
	at    time.Time
	token string
	// doubtful is the result of an attempt whose outcome is unknown.
	doubtful *storage.Banned
}

// attempt bans the user in one transaction. It returns nil if another write was in the way.
func (b *banning) attempt(ctx context.Context) (*storage.Banned, error) {
	now, err := b.Look(ctx, b.chat, []tidemark.UserID{b.user})
	switch {
	case err != nil:
		return nil, err
	case now.Type == tidemark.Direct:
		return nil, storage.NoBans(b.chat)
	case now.Changed != "":
		return nil, b.settle(ctx, now.Counter)
	}
	it, err := b.Get(ctx, record.Documents, banKey(b.chat, b.user))
	if err != nil {
		return nil, err
	}
	r := call.Reader{Item: it}
	switch {
	case b.doubtful != nil && r.Text("token") == b.token:
		return b.doubtful, nil
	case it != nil:
		return &storage.Banned{
			Removed: storage.Removed{Version: now.MembersVersion, Head: now.Head},
		}, nil
	}
	if err := storage.CheckBans(b.chat, now.Bans); err != nil {
		return nil, err
	}
	banned := &storage.Banned{
		Removed: storage.Removed{Version: now.MembersVersion + 1, Head: now.Head},
	}
	var actions []types.TransactWriteItem
	members := 0
	member := now.Rows[b.user].At(now.Counter)
	//rule:banned_stays_out.remove-with-the-ban-in-dynamodb
	if banned.Left = member.Intervals.Open(); banned.Left {
		var removed *storage.Removed
		removed, actions, err = b.leaving(ctx, now, member, b.token)
		if err != nil || removed == nil {
			return nil, err
		}
		banned.Removed, members = *removed, -1
	}
	counter := counted(now.Counter, members)
	// Unban does not raise the version, and may have lifted a ban since the counter was read.
	counter.Change += ", bans = if_not_exists(bans, :no_bans) + :one_ban"
	counter.Values[":no_bans"], counter.Values[":one_ban"] = call.Number(0), call.Number(1)
	ban := banKey(b.chat, b.user)
	ban["banned_at"], ban["token"] = call.Number(b.at.UnixMilli()), call.Text(b.token)
	refused, doubtful, err := b.Transact(ctx, append(actions, b.Action(counter),
		types.TransactWriteItem{Put: &types.Put{
			TableName: b.Table(record.Documents), Item: ban,
			ConditionExpression: aws.String("attribute_not_exists(kind)"),
		}}))
	if err != nil {
		return nil, err
	}
	if refused == nil {
		return banned, nil
	}
	if doubtful {
		b.doubtful = banned
	}
	return nil, nil
}

// Unban implements storage.Bans.
func (s *Store) Unban(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID) error {
	c, ctx, leave, err := s.enter(ctx, "unban", 0)
	if err != nil {
		return err
	}
	defer leave()
	done, err := s.appends.Turn(ctx, chat)
	if err != nil {
		return call.Public(err)
	}
	defer done()
	for again := 0; ; again++ {
		lifted, err := c.unban(ctx, chat, user)
		if err != nil || lifted {
			return call.Public(err)
		}
		if err := call.Yield(ctx, again); err != nil {
			return call.Public(err)
		}
	}
}

// unban lifts a ban in one transaction. It returns false if another write was in the way.
func (c caller) unban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) (lifted bool, err error) {
	if _, err := c.Alive(ctx, chat); err != nil {
		return false, err
	}
	it, err := c.Get(ctx, record.Documents, banKey(chat, user))
	if err != nil || it == nil {
		return err == nil, err
	}
	refused, _, err := c.Transact(ctx, []types.TransactWriteItem{
		c.lift(chat, user), c.Action(banLifted(chat)),
	})
	return err == nil && refused == nil, err
}

// lift removes a ban that stands.
func (c caller) lift(chat tidemark.ChatID, user tidemark.UserID) types.TransactWriteItem {
	return types.TransactWriteItem{Delete: &types.Delete{
		TableName: c.Table(record.Documents), Key: banKey(chat, user),
		ConditionExpression: aws.String("attribute_exists(kind)"),
	}}
}

// banLifted returns the update of the counter of a chat from which a ban is lifted.
func banLifted(chat tidemark.ChatID) call.Update {
	return call.Update{
		Table:  record.Counters,
		Key:    record.ChatKey(chat),
		Change: "SET bans = bans - :one",
		Condition: "bans >= :one AND (attribute_not_exists(chat_state) OR " +
			"chat_state <> :deleted)",
		Values: call.Item{
			":one": call.Number(1), ":deleted": call.Text(tidemark.ChatDeleted),
		},
	}
}

// BansOf implements storage.Bans with one strongly consistent query.
func (s *Store) BansOf(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) (bans []storage.Ban, more bool, err error) {
	c, ctx, leave, err := s.enter(ctx, "bans_of", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	more, err = c.pageOf(ctx, bansOf(chat), string(after), limit, func(r *call.Reader) {
		bans = append(bans, storage.Ban{
			User: tidemark.UserID(r.Text("name")), At: r.Time("banned_at"),
		})
	})
	if err != nil {
		return nil, false, call.Public(err)
	}
	return bans, more, nil
}

// purgeBans removes at most limit bans of a deleted chat.
func (c caller) purgeBans(ctx context.Context, id tidemark.ChatID, limit int) (int, error) {
	var keys []call.Item
	_, err := c.pageOf(ctx, bansOf(id), "", limit, func(r *call.Reader) {
		keys = append(keys, banKey(id, tidemark.UserID(r.Text("name"))))
	})
	if err != nil {
		return 0, err
	}
	return len(keys), c.RemoveAll(ctx, record.Documents, keys)
}
