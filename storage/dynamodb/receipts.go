package dynamodb

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// A raise reads and writes one item: the delivery state. So each state has a copy of the user's
// setting for all chats. Every raise of Read has a condition: the copy and the setting for the chat
// are as they were read.
//
// The setting itself is in a state of allChats, which is the id of no chat. It is the number of its
// changes: the user hides what they read if it is odd. A copy only rises, so that a delayed write
// does not bring an older setting back.
//
// SetReceipts writes the setting first, and then the copies in all states that exist. The step that
// makes a user a member writes the copy into the state that it creates. The setting may change
// between the read of it and that step, and SetReceipts does not see the state yet. So the setting
// is read once more after the step, before the call answers.
//
// Each state also has a copy of the number of the chat's policy, which is in the counter.
// UpdateChat writes the counter first, and then the copies of all who are or were members. The step
// that makes a user a member has the condition that the policy is the one that it copies. So that
// step comes before the change of the policy, which then finds the member, or it is tried again.
// A call that died may have left a state with an older number. So a transaction overwrites the
// number, and a change raises it once its tokens keep the calls before it out.

// allChats names the state that has the user's setting for all chats.
const allChats tidemark.ChatID = "."

// hiders has what is copied into the states of new members: their settings for all chats, and the
// number of the chat's policy.
type hiders struct {
	all    map[tidemark.UserID]int64
	policy int64
}

// hiders reads the settings of some users for all chats. policy is that of the chat that they join.
func (c caller) hiders(
	ctx context.Context, users []tidemark.UserID, policy int64,
) (hiders, error) {
	wanted := make([]call.Item, len(users))
	for i, user := range users {
		wanted[i] = record.StateKey(user, allChats)
	}
	items, err := c.GetAll(ctx, call.Read{Table: record.States}, wanted)
	if err != nil {
		return hiders{}, err
	}
	found := hiders{all: make(map[tidemark.UserID]int64, len(items)), policy: policy}
	for _, it := range items {
		r := call.Reader{Item: it}
		found.all[tidemark.UserID(r.Text("user_id"))] = int64(r.Number("hides_read"))
		if r.Err != nil {
			return hiders{}, r.Err
		}
	}
	return found, nil
}

// set, prepare and values are the parts of an update that writes the copies for a user who joins.
// set and prepare follow a SET. set is for the step in which the user joins. That step has the
// condition policyIs.
func (h hiders) set(user tidemark.UserID) string {
	//rule:shown_within_real.states-that-were-left
	return h.copies(user, ":policy")
}

// prepare is for a step before the user joins. The policy may have changed since it was read, so a
// number that is there stays.
func (h hiders) prepare(user tidemark.UserID) string {
	return h.copies(user, "if_not_exists(receipts_policy, :policy)")
}

// copies returns the assignments. A state that exists has a copy of the setting already, which
// SetReceipts keeps.
func (h hiders) copies(user tidemark.UserID, policy string) (set string) {
	if h.all[user] > 0 {
		set = ", hides_read = if_not_exists(hides_read, :hides)"
	}
	//rule:shown_within_real.join-with-the-policy
	if h.policy > 0 {
		set += ", receipts_policy = " + policy
	}
	return set
}

func (h hiders) values(user tidemark.UserID) call.Item {
	values := call.Item{}
	if h.all[user] > 0 {
		values[":hides"] = call.Number(h.all[user])
	}
	if h.policy > 0 {
		values[":policy"] = call.Number(h.policy)
	}
	return values
}

// policyIs returns the condition that a counter has the policy of a number, and adds to the values.
func policyIs(number int64, values call.Item) string {
	//rule:shown_within_real.join-under-this-policy
	if number == 0 {
		return "attribute_not_exists(receipts_policy)"
	}
	values[":policy"] = call.Number(number)
	return "receipts_policy = :policy"
}

// namesOf returns the keys of the states of some users in a chat.
func namesOf(chat tidemark.ChatID, users []tidemark.UserID) []storage.StateKey {
	names := make([]storage.StateKey, len(users))
	for i, user := range users {
		names[i] = storage.StateKey{User: user, Chat: chat}
	}
	return names
}

// copyReceipts raises the copies in states to the settings.
func (c caller) copyReceipts(ctx context.Context, names []storage.StateKey) error {
	users := make([]tidemark.UserID, len(names))
	for i, name := range names {
		users[i] = name.User
	}
	slices.Sort(users)
	hiders, err := c.hiders(ctx, slices.Compact(users), 0)
	if err != nil {
		return err
	}
	images, err := c.images(ctx, names, false)
	if err != nil {
		return err
	}
	var older []storage.StateKey
	for i, name := range names {
		//rule:shown_within_real.copy-what-differs
		if images[i].HidesAll < hiders.all[name.User] {
			older = append(older, name)
		}
	}
	return call.Together(ctx, len(older), func(ctx context.Context, i int) error {
		return c.putCopy(ctx, older[i], "hides_read", hiders.all[older[i].User])
	})
}

// copyPolicy raises the copies of a chat's policy in the states of some users, as far as they have
// states.
func (c caller) copyPolicy(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID, policy int64,
) error {
	if policy == 0 {
		return nil
	}
	wanted := make([]call.Item, len(users))
	for i, user := range users {
		wanted[i] = record.StateKey(user, chat)
	}
	items, err := c.GetAll(ctx, call.Read{
		Table: record.States, Only: []string{"user_id", "receipts_policy"},
	}, wanted)
	if err != nil {
		return err
	}
	var older []storage.StateKey
	for _, it := range items {
		r := call.Reader{Item: it}
		//rule:shown_within_real.copy-the-policy-that-differs
		if int64(r.Number("receipts_policy")) < policy {
			older = append(older,
				storage.StateKey{User: tidemark.UserID(r.Text("user_id")), Chat: chat})
		}
		if r.Err != nil {
			return r.Err
		}
	}
	return call.Together(ctx, len(older), func(ctx context.Context, i int) error {
		return c.putCopy(ctx, older[i], "receipts_policy", policy)
	})
}

// spreadPolicy copies the policy of a chat into the states of all who are or were members.
func (c caller) spreadPolicy(ctx context.Context, chat tidemark.ChatID) error {
	counter, err := c.Counter(ctx, chat)
	if err != nil || counter.PolicyNumber == 0 {
		return err
	}
	var users []tidemark.UserID
	q := call.Query{
		Read:      call.Read{Table: record.Memberships, Only: []string{"user_id"}},
		Partition: "chat_id", Of: call.Text(chat),
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		users = append(users, tidemark.UserID(r.Text("user_id")))
		return true, r.Err
	})
	for some := range slices.Chunk(users, chunk) {
		if err == nil {
			err = c.copyPolicy(ctx, chat, some, counter.PolicyNumber)
		}
	}
	return err
}

// putCopy raises a copy in a state, if there is a state.
func (c caller) putCopy(
	ctx context.Context, name storage.StateKey, attribute string, number int64,
) error {
	it, done, _, err := c.Update(ctx, call.Update{
		Table: record.States, Key: record.StateKey(name.User, name.Chat),
		Change: "SET " + attribute + " = :number",
		Condition: "attribute_exists(user_id) AND " +
			"(attribute_not_exists(" + attribute + ") OR " + attribute + " < :number)",
		Values: call.Item{":number": call.Number(number)},
	})
	if err != nil || !done {
		return err
	}
	_, err = c.stateOf(name.User, name.Chat, it)
	return err
}

// expectShown adds to an update that raises the read watermark, what others see of it. It adds the
// condition that the settings, the policy and what is hidden are as in the image.
func expectShown(u *call.Update, image record.State, wanted tidemark.DeliveryState) {
	if u.Condition != "" {
		u.Condition += " AND "
	}
	if image.HidesAll == 0 {
		u.Condition += "attribute_not_exists(hides_read)"
	} else {
		u.Condition += "hides_read = :hides_before"
		u.Values[":hides_before"] = call.Number(image.HidesAll)
	}
	//rule:shown_within_real.raise-under-this-policy
	if image.PolicyNumber == 0 {
		u.Condition += " AND attribute_not_exists(receipts_policy)"
	} else {
		u.Condition += " AND receipts_policy = :policy_before"
		u.Values[":policy_before"] = call.Number(image.PolicyNumber)
	}
	if image.Receipts == "" {
		u.Condition += " AND attribute_not_exists(read_receipts)"
	} else {
		u.Condition += " AND read_receipts = :receipts"
		u.Values[":receipts"] = call.Text(image.Receipts)
	}
	if image.HiddenFrom == 0 {
		u.Condition += " AND attribute_not_exists(hidden_from)"
	} else {
		u.Condition += " AND hidden_from = :hidden_before"
		u.Values[":hidden_before"] = call.Number(image.HiddenFrom)
	}
	switch {
	case wanted.HiddenFrom == image.HiddenFrom:
	case wanted.HiddenFrom == 0:
		u.Change += " REMOVE hidden_from, shown_at"
	default:
		// What is shown ends at the read watermark before, so that must be exact.
		if image.Read == 0 {
			u.Condition += " AND attribute_not_exists(last_read_sequence)"
		} else {
			u.Condition += " AND last_read_sequence = :read_before"
			u.Values[":read_before"] = call.Number(image.Read)
		}
		u.Change += ", hidden_from = :hidden_from"
		u.Values[":hidden_from"] = call.Number(wanted.HiddenFrom)
		if !wanted.ShownAt.IsZero() {
			u.Change += ", shown_at = :shown_at"
			u.Values[":shown_at"] = call.Number(wanted.ShownAt.UnixMilli())
		}
	}
}

// SetReceipts implements storage.Receipts. That for all chats takes a write for each chat in which
// the user is or was a member.
func (s *Store) SetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) error {
	if err := storage.CheckReceipts(chat, setting); err != nil {
		return err
	}
	c, ctx, leave, err := s.enter(ctx, "set_receipts", time.Minute)
	if err != nil {
		return err
	}
	defer leave()
	if chat == "" {
		return call.Public(c.setForAll(ctx, user, setting == tidemark.ReceiptsOff))
	}
	if _, err := c.Alive(ctx, chat); err != nil {
		return call.Public(err)
	}
	u := call.Update{
		Table: record.States, Key: record.StateKey(user, chat), Change: "REMOVE read_receipts",
	}
	if setting != tidemark.ReceiptsDefault {
		u.Change = "SET read_receipts = :receipts"
		u.Values = call.Item{":receipts": call.Text(setting)}
	}
	it, _, _, err := c.Update(ctx, u)
	if err == nil {
		_, err = c.stateOf(user, chat, it)
	}
	return call.Public(err)
}

// setForAll stores the setting for all chats, and then its copies.
func (c caller) setForAll(ctx context.Context, user tidemark.UserID, hides bool) error {
	for again := 0; ; again++ {
		found, err := c.hiders(ctx, []tidemark.UserID{user}, 0)
		if err != nil {
			return err
		}
		n := found.all[user]
		if n%2 == 1 == hides {
			break
		}
		u := call.Update{
			Table: record.States, Key: record.StateKey(user, allChats),
			Change: "SET hides_read = :next", Condition: "attribute_not_exists(hides_read)",
			Values: call.Item{":next": call.Number(n + 1)},
		}
		if n > 0 {
			u.Condition, u.Values[":n"] = "hides_read = :n", call.Number(n)
		}
		_, done, _, err := c.Update(ctx, u)
		if err == nil && !done {
			err = call.Yield(ctx, again)
		}
		if err != nil {
			return err
		}
	}
	var names []storage.StateKey
	q := call.Query{
		Read: call.Read{
			Table: record.States, Only: []string{"chat_id"},
		},
		Partition: "user_id", Sort: "chat_id", Of: call.Text(user),
	}
	err := c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		if chat := tidemark.ChatID(r.Text("chat_id")); chat != allChats {
			names = append(names, storage.StateKey{User: user, Chat: chat})
		}
		return true, r.Err
	})
	for err == nil && len(names) > 0 {
		some := names[:min(len(names), chunk)]
		names = names[len(some):]
		err = c.copyReceipts(ctx, some)
	}
	return err
}

// ReceiptsOf implements storage.Receipts.
func (s *Store) ReceiptsOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (inChat, inAll tidemark.ReceiptsSetting, err error) {
	inChat, inAll = tidemark.ReceiptsDefault, tidemark.ReceiptsOn
	c, ctx, leave, err := s.enter(ctx, "receipts_of", 0)
	if err != nil {
		return inChat, inAll, err
	}
	defer leave()
	names := []tidemark.ChatID{allChats}
	if chat != "" {
		names = append(names, chat)
	}
	for _, name := range names {
		it, err := c.Get(ctx, record.States, record.StateKey(user, name))
		if err != nil {
			return inChat, inAll, call.Public(err)
		}
		r := call.Reader{Item: it}
		switch {
		case name == allChats && int64(r.Number("hides_read"))%2 == 1:
			inAll = tidemark.ReceiptsOff
		case name != allChats && r.Has("read_receipts"):
			inChat = tidemark.ReceiptsSetting(r.Text("read_receipts"))
		}
		if r.Err != nil {
			return inChat, inAll, call.Public(r.Err)
		}
	}
	return inChat, inAll, nil
}
