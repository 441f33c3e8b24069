package dynamodb

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/appends"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

var _ storage.Erasures = (*Store)(nil)

// ChatsNaming implements storage.Erasures. The order of the chats is that of EachChat.
func (s *Store) ChatsNaming(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return nil, "", false, err
	}
	all, next, more, err := s.EachChat(ctx, after, limit)
	if err != nil {
		return nil, "", false, err
	}
	c, ctx, leave, err := s.enterBatch(ctx, "chats_naming", len(all))
	if err != nil {
		return nil, "", false, err
	}
	defer leave()
	named := make([]bool, len(all))
	err = call.Together(ctx, len(all), func(ctx context.Context, i int) (err error) {
		named[i], err = c.names(ctx, all[i], user)
		return err
	})
	if err != nil {
		return nil, "", false, call.Public(err)
	}
	for i, id := range all {
		if named[i] {
			chats = append(chats, id)
		}
	}
	return chats, next, more, nil
}

// names reports whether a chat has something of a user.
func (c caller) names(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) (bool, error) {
	it, err := c.Get(ctx, record.Memberships, record.MemberKey(chat, user))
	if err != nil || it != nil {
		return it != nil, err
	}
	it, err = c.Get(ctx, record.States, record.StateKey(user, chat))
	if err != nil || it != nil {
		return it != nil, err
	}
	it, err = c.Get(ctx, record.Documents, banKey(chat, user))
	if err != nil || it != nil {
		return it != nil, err
	}
	found := false
	q := call.Query{
		Read:      call.Read{Table: record.Messages, Only: []string{"sequence"}},
		Partition: "chat_id", Of: call.Text(record.MentionKey(chat, user)), Page: 1,
	}
	err = c.Each(ctx, q, func(call.Item) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// CloseDirect implements storage.Erasures.
func (s *Store) CloseDirect(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, _ time.Time,
) (storage.Removed, error) {
	c, ctx, leave, err := s.enter(ctx, "close_direct", 0)
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
		removed, err := r.close(ctx)
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

// close ends a membership in a direct chat in one transaction. It returns nil if another write was
// in the way.
func (r *removing) close(ctx context.Context) (*storage.Removed, error) {
	now, err := r.Look(ctx, r.chat, []tidemark.UserID{r.user})
	if err != nil {
		return nil, err
	}
	row := now.Rows[r.user]
	switch {
	case r.doubtful != nil && row.ChangedBy == r.token:
		return r.doubtful, nil
	case now.Type != tidemark.Direct:
		return nil, storage.NotDirect(r.chat)
	case !row.Intervals.Open():
		return nil, record.NotMember(r.chat, r.user)
	}
	roster, err := r.RosterAt(ctx, now.Counter)
	if err != nil || roster.Version != now.MembersVersion {
		return nil, err
	}
	actions := []types.TransactWriteItem{
		r.Action(counted(now.Counter, -1)),
		r.Action(call.Update{
			Table:  record.States,
			Key:    record.StateKey(r.user, r.chat),
			Change: "REMOVE is_member, member_change",
		}),
		{Delete: &types.Delete{
			TableName: r.Table(record.Pendings), Key: record.PendingKey(r.user, r.chat),
		}},
	}
	for _, m := range roster.Members {
		if m.UserID == r.user {
			m.Intervals, m.Metadata = m.Intervals.Left(now.Head), nil
		} else {
			pair, err := r.pair(ctx, tidemark.DirectKey(r.user, m.UserID))
			if err != nil {
				return nil, err
			}
			//rule:erased_nowhere.blocks-stay-in-step-in-dynamodb
			if pair.chat == r.chat {
				actions = append(actions, r.putPair(&pair, pair.closed, ""))
			}
			m = storage.AsReader(m)
		}
		actions = append(actions, r.put(now, m, r.token))
	}
	removed := &storage.Removed{Version: now.MembersVersion + 1, Head: now.Head}
	refused, doubtful, err := r.Transact(ctx, actions)
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

// erasable returns a chat of which something may be erased.
func (c caller) erasable(ctx context.Context, id tidemark.ChatID) (*record.Counter, error) {
	counter, err := c.Alive(ctx, id)
	if err == nil {
		//rule:held_is_kept.nothing-is-erased-in-dynamodb
		err = storage.OnHold(id, counter.Policy)
	}
	return counter, err
}

// An erasing executes EraseMessages and EraseMember.
type erasing struct {
	caller
	chat *record.Counter
	of   tidemark.Erasure
}

// EraseMessages implements storage.Erasures. What stands beside a message is changed before it,
// because the message says what that is.
func (s *Store) EraseMessages(
	ctx context.Context, id tidemark.ChatID, e tidemark.Erasure, p storage.ErasePage,
) (done storage.ErasedPage, err error) {
	if err := storage.CheckErase(p.Limit); err != nil {
		return done, err
	}
	c, ctx, leave, err := s.enter(ctx, "erase_messages", time.Duration(p.Limit)*memberTime)
	if err != nil {
		return done, err
	}
	defer leave()
	counter, err := c.erasable(ctx, id)
	if err != nil {
		return done, call.Public(err)
	}
	e.At = call.Stored(e.At)
	x := &erasing{caller: c, chat: counter, of: e}
	first := max(p.After+1, counter.Floor)
	done.Through = min(counter.Head, first+tidemark.Sequence(p.Limit)-1)
	done.Done = done.Through == counter.Head
	if first > done.Through {
		return done, nil
	}
	var items []call.Item
	q := call.Query{
		Read: call.Read{Table: record.Messages}, Partition: "chat_id", Sort: "sequence",
		Of: call.Text(id), Range: between(first, done.Through),
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		items = append(items, it)
		return true, nil
	})
	if err != nil {
		return done, call.Public(err)
	}
	erased := make([]tidemark.Message, len(items))
	touched := make([]tidemark.Touched, len(items))
	err = call.Together(ctx, len(items), func(ctx context.Context, i int) (err error) {
		erased[i], touched[i], err = x.message(ctx, items[i])
		return err
	})
	if err == nil {
		err = x.unmention(ctx, first, done.Through)
	}
	if err != nil {
		return storage.ErasedPage{}, call.Public(err)
	}
	for i := range erased {
		done.Count(&erased[i], touched[i], e)
	}
	return done, nil
}

// unmention removes the mentions of the user by a part of the messages.
func (x *erasing) unmention(ctx context.Context, first, last tidemark.Sequence) error {
	var keys []call.Item
	q := call.Query{
		Read:      call.Read{Table: record.Messages, Only: []string{"chat_id", "sequence"}},
		Partition: "chat_id", Sort: "sequence",
		Of: call.Text(record.MentionKey(x.chat.ID, x.of.User)), Range: between(first, last),
	}
	err := x.Each(ctx, q, func(it call.Item) (bool, error) {
		keys = append(keys, it)
		return true, nil
	})
	if err == nil {
		err = x.RemoveAll(ctx, record.Messages, keys)
	}
	return err
}

// message erases the user in the message of an item, again if it changes meanwhile. It returns what
// is left of the message.
func (x *erasing) message(
	ctx context.Context, it call.Item,
) (after tidemark.Message, touched tidemark.Touched, err error) {
	for again := 0; ; again++ {
		before, err := record.MessageOf(it)
		if err != nil {
			return after, tidemark.Untouched, err
		}
		after, touched = before.Erase(x.of, x.chat.Head)
		if touched == tidemark.Untouched {
			return after, touched, nil
		}
		if before.SenderID == x.of.User {
			if err := x.beside(ctx, &before); err != nil {
				return after, touched, err
			}
		}
		done, err := x.put(ctx, &before, &after, it)
		if err != nil || done {
			return after, touched, err
		}
		if err := call.Yield(ctx, again); err != nil {
			return after, touched, err
		}
		key := placeOf(string(x.chat.ID), before.Sequence)
		if it, err = x.Get(ctx, record.Messages, key); err != nil || it == nil {
			return tidemark.Message{}, tidemark.Untouched, err // It has expired.
		}
	}
}

// beside changes what stands beside a message of the user.
func (x *erasing) beside(ctx context.Context, m *tidemark.Message) error {
	key := storage.SendKey{
		Chat: m.ChatID, Sender: m.SenderID, ClientMessageID: m.ClientMessageID,
	}
	//rule:erased_nowhere.key-in-dynamodb
	if err := x.RemoveAll(ctx, record.Keys, []call.Item{appends.KeyItem(key)}); err != nil {
		return err
	}
	if m.Kind == tidemark.KindPin {
		u := x.renamed(record.AnnotationKey(m))
		u.Condition += " AND message_sequence = :n"
		u.Values[":n"] = call.Number(m.Sequence)
		//rule:erased_nowhere.pins-in-dynamodb
		if _, _, _, err := x.Update(ctx, u); err != nil {
			return err
		}
	}
	for _, partition := range notedIn(m) {
		if !m.Kind.Counts() {
			continue
		}
		_, _, _, err := x.Update(ctx, x.renamed(placeOf(partition, m.Sequence)))
		if err != nil {
			return err
		}
	}
	return nil
}

// renamed returns the change of the sender of an item to the alias, if the user is its sender.
func (x *erasing) renamed(key call.Item) call.Update {
	return call.Update{
		Table: record.Messages, Key: key,
		Change: "SET sender_id = :alias", Condition: "sender_id = :user",
		Values: call.Item{":alias": call.Text(x.of.Alias), ":user": call.Text(x.of.User)},
	}
}

// put writes an erased message, unless it has changed since it was read. A reaction stands no more.
func (x *erasing) put(
	ctx context.Context, before, after *tidemark.Message, read call.Item,
) (done bool, err error) {
	u := record.Erasing(after, read)
	if before.Kind != tidemark.KindReact || before.SenderID != x.of.User || before.Redacted() {
		_, done, _, err = x.Update(ctx, u)
		return done, err
	}
	//rule:erased_nowhere.reactions-in-dynamodb
	refused, _, err := x.Transact(ctx, []types.TransactWriteItem{
		x.Action(u),
		{Delete: &types.Delete{
			TableName: x.Table(record.Messages), Key: record.AnnotationKey(before),
		}},
	})
	return err == nil && refused == nil, err
}

// EraseMember implements storage.Erasures.
func (s *Store) EraseMember(
	ctx context.Context, id tidemark.ChatID, e tidemark.Erasure, limit int,
) (done bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return false, err
	}
	c, ctx, leave, err := s.enter(ctx, "erase_member", tidemark.MaxMembers*memberTime)
	if err != nil {
		return false, err
	}
	defer leave()
	turn, err := s.appends.Turn(ctx, id)
	if err != nil {
		return false, call.Public(err)
	}
	defer turn()
	for again := 0; ; again++ {
		counter, err := c.erasable(ctx, id)
		if err != nil {
			return false, call.Public(err)
		}
		x := &erasing{caller: c, chat: counter, of: e}
		more, ended, err := x.member(ctx, limit)
		if err != nil || more || ended {
			return ended, call.Public(err)
		}
		if err := call.Yield(ctx, again); err != nil {
			return false, call.Public(err)
		}
	}
}

// member removes what is left of a member. more reports that this call has done its part, and ended
// that nothing is left. If neither is true, another write was in the way.
func (x *erasing) member(ctx context.Context, limit int) (more, ended bool, err error) {
	if x.chat.Changed != "" {
		return false, false, x.settle(ctx, x.chat)
	}
	rows, err := x.Memberships(ctx, x.chat.ID, []tidemark.UserID{x.of.User})
	if err != nil {
		return false, false, err
	}
	row := rows[x.of.User]
	if row.Intervals.Open() {
		return false, false, storage.StillMember(x.chat.ID, x.of.User)
	}
	n, err := x.purgePartitions(ctx, limit, record.MentionKey(x.chat.ID, x.of.User))
	if err != nil || n >= limit {
		return true, false, err
	}
	if err := x.mentioned(ctx); err != nil {
		return false, false, err
	}
	// All items of a user in a chat are listed here, beside those of EraseMessages.
	remove := func(table string, key call.Item) types.TransactWriteItem {
		return types.TransactWriteItem{Delete: &types.Delete{TableName: x.Table(table), Key: key}}
	}
	actions := []types.TransactWriteItem{
		remove(record.States, record.StateKey(x.of.User, x.chat.ID)),
		remove(record.Pendings, record.PendingKey(x.of.User, x.chat.ID)),
		//rule:erased_nowhere.membership-in-dynamodb
		remove(record.Memberships, record.MemberKey(x.chat.ID, x.of.User)),
	}
	counter, err := x.counter(ctx, row)
	if err != nil {
		return false, false, err
	}
	refused, _, err := x.Transact(ctx, append(actions, counter...))
	return false, err == nil && refused == nil, err
}

// counter returns the change of the counter, if it has something of the user, and of their ban.
func (x *erasing) counter(
	ctx context.Context, row record.Membership,
) (actions []types.TransactWriteItem, err error) {
	ban, err := x.Get(ctx, record.Documents, banKey(x.chat.ID, x.of.User))
	if err != nil {
		return nil, err
	}
	if ban != nil {
		//rule:erased_nowhere.bans-in-dynamodb
		actions = append(actions, x.lift(x.chat.ID, x.of.User))
	}
	_, sent := x.chat.Senders.Of(x.of.User)
	switch {
	case row.Ever() || sent:
		u := x.without()
		if ban != nil {
			u.Change += ", bans = bans - :one_ban"
			u.Values[":one_ban"] = call.Number(1)
		}
		actions = append(actions, x.Action(u))
	case ban != nil:
		actions = append(actions, x.Action(banLifted(x.chat.ID)))
	}
	return actions, nil
}

// without returns the update of the counter that forgets the user as a sender. Another process may
// write the senders from what it has in memory. The next version keeps it from that.
func (x *erasing) without() call.Update {
	u := counted(x.chat, 0)
	u.Change += ", senders = :senders"
	//rule:erased_nowhere.senders-in-dynamodb
	u.Values[":senders"] = call.Text(x.chat.Senders.Without(x.of.User).Text())
	return u
}

// mentioned renames the user in mentions that EraseMessages has not found, because their message
// was edited. It looks at the mentions of each present and former member.
func (x *erasing) mentioned(ctx context.Context) error {
	partitions := []string{record.MentionKey(x.chat.ID, unread.Everyone)}
	q := call.Query{
		Read:      call.Read{Table: record.Memberships, Only: []string{"user_id"}},
		Partition: "chat_id", Of: call.Text(x.chat.ID),
	}
	err := x.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		name := tidemark.UserID(r.Text("user_id"))
		partitions = append(partitions, record.MentionKey(x.chat.ID, name))
		return true, r.Err
	})
	if err != nil {
		return err
	}
	return call.Together(ctx, len(partitions), func(ctx context.Context, i int) error {
		var keys []call.Item
		q := call.Query{
			Read: call.Read{
				Table: record.Messages, Only: []string{"chat_id", "sequence", "sender_id"},
			},
			Partition: "chat_id", Of: call.Text(partitions[i]),
			Filter: "sender_id = :user", Values: call.Item{":user": call.Text(x.of.User)},
		}
		err := x.Each(ctx, q, func(it call.Item) (bool, error) {
			keys = append(keys, call.Item{"chat_id": it["chat_id"], "sequence": it["sequence"]})
			return true, nil
		})
		for _, key := range keys {
			if err == nil {
				_, _, _, err = x.Update(ctx, x.renamed(key))
			}
		}
		return err
	})
}

// blocksAtOnce is the most blocks of a kind that a call of EraseUser lifts. Each takes a
// transaction.
const blocksAtOnce = 100

// EraseUser implements storage.Erasures. All tables with items of a user that belong to no chat are
// listed here.
func (s *Store) EraseUser(
	ctx context.Context, user tidemark.UserID, limit int,
) (done bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return false, err
	}
	c, ctx, leave, err := s.enterBatch(ctx, "erase_user", limit)
	if err != nil {
		return false, err
	}
	defer leave()
	var keys []call.Item
	q := call.Query{
		Read:      call.Read{Table: record.Pendings, Only: []string{"receiver_id", "chat_id"}},
		Partition: "receiver_id", Of: call.Text(user), Page: limit,
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		keys = append(keys, it)
		return len(keys) < limit, nil
	})
	if err == nil {
		err = c.RemoveAll(ctx, record.Pendings, keys)
	}
	if err == nil {
		err = c.RemoveAll(ctx, record.States, []call.Item{record.StateKey(user, allChats)})
	}
	if err == nil {
		done, err = c.eraseBlocks(ctx, user, min(limit, blocksAtOnce))
	}
	return err == nil && done && len(keys) < limit, call.Public(err)
}

// eraseBlocks lifts at most limit blocks by a user, and as many of them. done reports that none is
// left.
func (c caller) eraseBlocks(
	ctx context.Context, user tidemark.UserID, limit int,
) (done bool, err error) {
	var all []blocking
	by, err := c.pageOf(ctx, blocksBy(user), "", limit, func(r *call.Reader) {
		all = append(all, blocking{user: user, blocked: tidemark.UserID(r.Text("name"))})
	})
	if err != nil {
		return false, err
	}
	//rule:erased_nowhere.blocks-of-the-erased-in-dynamodb
	of, err := c.pageOf(ctx, blocksOf(user), "", limit, func(r *call.Reader) {
		all = append(all, blocking{user: tidemark.UserID(r.Text("name")), blocked: user})
	})
	for i := range all {
		if err != nil {
			return false, err
		}
		all[i].caller = c
		_, err = all[i].run(ctx)
	}
	if err != nil || by || of {
		return false, err
	}
	return true, c.RemoveAll(ctx, record.Documents, []call.Item{blocksKey(user)})
}
