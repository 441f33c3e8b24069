package dynamodb

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/appends"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/schema"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

var _ storage.CopyTarget = (*Store)(nil)

// copied is the token of what a copy has written, in place of that of a call.
const copied = "copied"

// PutLives implements storage.CopyTarget.
func (s *Store) PutLives(ctx context.Context, of []tidemark.Incarnation) error {
	c, ctx, leave, err := s.enter(ctx, "put_lives", 0)
	if err != nil {
		return err
	}
	defer leave()
	all := lives.Copied(s.lives, of)
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	it := schema.LivesKey()
	it["lives"] = call.Text(string(text))
	it["life"] = call.Number(all[len(all)-1].Number)
	if err := c.PutAll(ctx, record.Counters, []call.Item{it}); err != nil {
		return call.Public(err)
	}
	s.lives = all // No other call is under way.
	s.appends.Life = s.life().Number
	return nil
}

// PutChat implements storage.CopyTarget. The senders are in their delivery states.
func (s *Store) PutChat(ctx context.Context, chat storage.CopiedChat) error {
	c, ctx, leave, err := s.enter(ctx, "put_chat", 0)
	if err != nil {
		return err
	}
	defer leave()
	counter := record.Counter{Chat: chat.Chat, Activity: chat.Activity, CreatedBy: copied}
	if chat.Metadata != nil {
		counter.Described = copied + "|" + string(chat.ID)
		it := describedKey(counter.Described)
		it["metadata"] = call.Text(string(chat.Metadata))
		if err := c.PutAll(ctx, record.Counters, []call.Item{it}); err != nil {
			return call.Public(err)
		}
	}
	it := counter.Item()
	for name, n := range map[string]uint64{
		"uncounted": uint64(chat.Uncounted), "last_uncounted": uint64(chat.LastUncounted),
		"last_mention": uint64(chat.LastMention), "last_moved": uint64(chat.LastSent),
		"bans": uint64(chat.Bans), "keep_days": uint64(chat.Policy.KeepDays),
	} {
		if n > 0 {
			it[name] = call.Number(n)
		}
	}
	if chat.Floor > 1 {
		it["floor"] = call.Number(chat.Floor)
	}
	if chat.Policy.Receipts != tidemark.ReceiptsOptional {
		it["receipts_policy"] = call.Number(record.NextPolicy(0, chat.Policy.Receipts))
	}
	if chat.Policy.Hold {
		it["on_hold"] = call.Flag(true)
	}
	if !chat.DeletedAt.IsZero() {
		it["deleted_at"] = call.Number(chat.DeletedAt.UnixMilli())
	}
	if chat.Large {
		it["may_stand"] = call.Flag(true)
	}
	if chat.From != (storage.Position{}) {
		it["outbox_from"] = call.Text(record.Position(chat.From))
	}
	if chat.Split {
		it["outbox_split"] = call.Flag(true)
	}
	if !chat.Open {
		delete(it, "outbox_shard")
	}
	if err := c.PutAll(ctx, record.Counters, []call.Item{it}); err != nil {
		return call.Public(err)
	}
	if chat.Pair == "" {
		return nil
	}
	_, _, _, err = c.Update(ctx, call.Update{
		Table: record.Counters, Key: pairKey(chat.Pair), Change: "SET direct_chat = :chat",
		Values: call.Item{":chat": call.Text(chat.ID)},
	})
	return call.Public(err)
}

// PutMembers implements storage.CopyTarget.
func (s *Store) PutMembers(
	ctx context.Context, chat tidemark.ChatID, members []storage.CopiedMember,
) error {
	c, ctx, leave, err := s.enterBatch(ctx, "put_members", len(members))
	if err != nil {
		return err
	}
	defer leave()
	counter, err := c.Counter(ctx, chat)
	if err != nil {
		return call.Public(err)
	}
	var rows, states, pendings, gone []call.Item
	for i := range members {
		m := &members[i]
		row := record.Membership{Member: m.Member, Version: m.Version, ChangedBy: copied}
		rows = append(rows, row.Item(chat))
		//rule:copy_equal.a-state-for-each-in-dynamodb
		states = append(states, stateItem(m, counter))
		key := record.PendingKey(m.UserID, chat)
		if m.Pending {
			key["first_undelivered_seq"] = call.Number(m.FirstUndelivered)
			pendings = append(pendings, key)
		} else {
			gone = append(gone, key)
		}
	}
	for table, items := range map[string][]call.Item{
		record.Memberships: rows, record.States: states, record.Pendings: pendings,
	} {
		if err := c.PutAll(ctx, table, items); err != nil {
			return call.Public(err)
		}
	}
	return call.Public(c.RemoveAll(ctx, record.Pendings, gone))
}

// stateItem returns the item of a member's delivery state. It has no settings: SetReceipts writes
// them later, into states that exist. So a user who left has one, too: Advance does not check the
// membership.
func stateItem(m *storage.CopiedMember, counter *record.Counter) call.Item {
	it := record.StateKey(m.UserID, counter.ID)
	//rule:copy_equal.a-member-who-left-in-dynamodb
	if m.Intervals.Open() {
		it["is_member"] = call.Flag(true)
	}
	st := &m.State
	for name, n := range map[string]uint64{
		"last_acked_sequence": uint64(st.Acked), "last_read_sequence": uint64(st.Read),
		"hidden_from": uint64(st.HiddenFrom), "read_sent": uint64(m.SentRead),
		"sent": uint64(m.Sent), "last_sent": uint64(m.LastSent),
	} {
		if n > 0 {
			it[name] = call.Number(n)
		}
	}
	for name, at := range map[string]time.Time{
		"acked_at": st.AckedAt, "read_at": st.ReadAt, "shown_at": st.ShownAt,
	} {
		if !at.IsZero() {
			it[name] = call.Number(at.UnixMilli())
		}
	}
	if at := st.UpdatedAt(); !at.IsZero() {
		it["updated_at"] = call.Text(at.UTC().Format(call.ISOTime))
	}
	if st.UnreadFrom > 0 {
		it["unread_from"] = call.Number(st.UnreadFrom)
		it["mark_read"], it["mark_sent"] = call.Number(st.Read), call.Number(m.SentBefore)
	}
	if m.Sent > 0 && counter.Floor > 1 {
		it["expired"], it["expired_at"] = call.Number(0), call.Number(counter.Floor)
	}
	//rule:copy_equal.the-policy-in-the-states-in-dynamodb
	if counter.PolicyNumber > 0 {
		it["receipts_policy"] = call.Number(counter.PolicyNumber)
	}
	return it
}

// PutMessages implements storage.CopyTarget. It forgets keys anyway, and so accepts those of two
// messages.
func (s *Store) PutMessages(
	ctx context.Context, chat tidemark.ChatID, messages []storage.CopiedMessage,
) error {
	c, ctx, leave, err := s.enterBatch(ctx, "put_messages", len(messages))
	if err != nil {
		return err
	}
	defer leave()
	var items []call.Item
	keys := make(map[string]call.Item)
	until := time.Now().Add(appends.KeptKeys).Unix()
	for i := range messages {
		m := &messages[i]
		items = append(items, record.CopiedItem(&m.Message, m.Life))
		items = append(items, notesOf(chat, m)...)
		if m.Stands {
			items = append(items, record.AnnotationItem(&m.Message))
		}
		//rule:copy_equal.a-resend-is-known-in-dynamodb
		if m.Keyed {
			key := appends.KeyItem(storage.SendKey{
				Chat: chat, Sender: m.SenderID, ClientMessageID: m.ClientMessageID,
			})
			name := call.NameOf(key)
			key["sequence"], key["message_id"] = call.Number(m.Sequence), call.Text(m.MessageID)
			key["expires_at"] = call.Number(until)
			keys[name] = key // Of two messages, the later one counts.
		}
	}
	if err := c.PutAll(ctx, record.Messages, items); err != nil {
		return call.Public(err)
	}
	known := make([]call.Item, 0, len(keys))
	for _, key := range keys {
		known = append(known, key)
	}
	return call.Public(c.PutAll(ctx, record.Keys, known))
}

// notesOf returns the items that say that a message does not count, or whom it named.
func notesOf(chat tidemark.ChatID, m *storage.CopiedMessage) []call.Item {
	if m.Ordinal != 0 {
		return []call.Item{{
			"chat_id":  call.Text(record.UncountedKey(chat)),
			"sequence": call.Number(m.Sequence), "ordinal": call.Number(m.Ordinal),
		}}
	}
	names := m.MessageFacts.Mentions.Users
	if m.MessageFacts.Mentions.All {
		names = []tidemark.UserID{unread.Everyone}
	}
	notes := make([]call.Item, len(names))
	for i, name := range names {
		notes[i] = call.Item{
			"chat_id":  call.Text(record.MentionKey(chat, name)),
			"sequence": call.Number(m.Sequence), "sender_id": call.Text(m.SenderID),
		}
	}
	return notes
}

// DropChat implements storage.CopyTarget. The counter comes last, so that a later call finds the
// rest of the chat.
func (s *Store) DropChat(ctx context.Context, id tidemark.ChatID) error {
	c, ctx, leave, err := s.enterBatch(ctx, "drop_chat", 1)
	if err != nil {
		return err
	}
	defer leave()
	counter, err := c.Counter(ctx, id)
	if tidemark.CodeOf(call.Public(err)) == tidemark.NotFound {
		return nil
	}
	if err != nil {
		return call.Public(err)
	}
	if err := c.dropPair(ctx, counter); err != nil {
		return call.Public(err)
	}
	for _, step := range []func(context.Context, tidemark.ChatID, int) (int, error){
		c.dropMessages, c.purgeNotes, c.purgeBans, c.purgeMembers,
	} {
		for n := storage.MaxExpired; n == storage.MaxExpired; {
			if n, err = step(ctx, id, storage.MaxExpired); err != nil {
				return call.Public(err)
			}
		}
	}
	gone := []call.Item{record.ChatKey(id)}
	if counter.Described != "" {
		gone = append(gone, describedKey(counter.Described))
	}
	return call.Public(c.RemoveAll(ctx, record.Counters, gone))
}

// dropPair takes the pair of its members from a direct chat. It comes first, because the members
// say which pair it is.
func (c caller) dropPair(ctx context.Context, counter *record.Counter) error {
	if counter.Type != tidemark.Direct {
		return nil
	}
	var users []tidemark.UserID
	q := call.Query{
		Read:      call.Read{Table: record.Memberships, Only: []string{"user_id"}},
		Partition: "chat_id", Of: call.Text(counter.ID),
	}
	err := c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		users = append(users, tidemark.UserID(r.Text("user_id")))
		return true, r.Err
	})
	if err != nil || len(users) != 2 {
		return err
	}
	pair, err := c.pair(ctx, tidemark.DirectKey(users[0], users[1]))
	if err != nil || pair.chat != counter.ID {
		return err
	}
	refused, _, err := c.Transact(ctx,
		[]types.TransactWriteItem{c.putPair(&pair, pair.closed, "")})
	if err == nil && refused != nil {
		err = tidemark.Errorf(tidemark.Unavailable, "another call changes the pair of the chat %s",
			counter.ID)
	}
	return err
}

// dropMessages is purgeMessages, and removes the keys of the messages, too. These come first.
func (c caller) dropMessages(
	ctx context.Context, id tidemark.ChatID, limit int,
) (int, error) {
	keys, read := make(map[string]call.Item), 0 // Two messages may have one key.
	q := call.Query{
		Read: call.Read{
			Table: record.Messages, Only: []string{"sender_id", "client_message_id"},
		},
		Partition: "chat_id", Sort: "sequence", Of: call.Text(id), Page: limit,
	}
	err := c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		key := appends.KeyItem(storage.SendKey{
			Chat: id, Sender: tidemark.UserID(r.Text("sender_id")),
			ClientMessageID: r.Text("client_message_id"),
		})
		keys[call.NameOf(key)] = key
		read++
		return read < limit, r.Err
	})
	if err == nil {
		err = c.RemoveAll(ctx, record.Keys, slices.Collect(maps.Values(keys)))
	}
	if err != nil {
		return 0, err
	}
	return c.purgeMessages(ctx, id, limit)
}
