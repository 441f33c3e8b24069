package copying

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// mostDifferences is how many differences a report names.
const mostDifferences = 100

// differ records a difference.
func (c *Copier) differ(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.different++; len(c.differences) < mostDifferences {
		c.differences = append(c.differences, fmt.Sprintf(format, args...))
	}
}

// Verify compares the target with the source: every chat with its messages, members, marks and
// counts, and everything beside the chats. What differs is in the report. It writes nothing. Errors
// are those of the stores.
func (c *Copier) Verify(ctx context.Context) error {
	found, stored, err := stateOf(ctx, c.cfg.To)
	if err != nil {
		return err
	}
	//rule:copy_equal.verify-a-whole-copy
	if stored == nil || found.Step != done || found.Source != c.source() {
		c.differ("the target has no complete copy of this source")
	}
	if err := c.compareChats(ctx); err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := c.compareEntries(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

// compareChats compares all chats of the source. As many are in the target.
func (c *Copier) compareChats(ctx context.Context) error {
	inSource, err := c.eachChat(ctx, c.cfg.From, func(ids []tidemark.ChatID) error {
		if err := c.compareHeads(ctx, ids); err != nil {
			return err
		}
		return together(ctx, c.cfg.Workers, ids, c.compareChat)
	})
	if err != nil {
		return err
	}
	inTarget, err := c.eachChat(ctx, c.cfg.To, func([]tidemark.ChatID) error { return nil })
	//rule:copy_equal.verify-that-nothing-is-too-much
	if err == nil && inSource != inTarget {
		c.differ("the source has %d chats, and the target %d", inSource, inTarget)
	}
	return err
}

// compareHeads compares the heads of those chats of which nothing else is compared. So messages
// show that a server has stored since, which Nodes has not noticed.
func (c *Copier) compareHeads(ctx context.Context, ids []tidemark.ChatID) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id tidemark.ChatID) bool {
		return !c.compared(id)
	})
	if len(ids) == 0 {
		return nil
	}
	from, err := c.cfg.From.Heads(ctx, ids)
	if err != nil {
		return err
	}
	to, err := c.cfg.To.Heads(ctx, ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		//rule:copy_equal.verify-the-heads-of-all
		if from[i] != to[i] {
			c.differ("chat %s: its last message is %d, and was %d", id, to[i], from[i])
		}
	}
	return nil
}

// eachChat calls do for pages of a store's chats, and returns their number.
func (c *Copier) eachChat(
	ctx context.Context, s Store, do func([]tidemark.ChatID) error,
) (n int, err error) {
	after := tidemark.ChatID("")
	for more := true; more; {
		var ids []tidemark.ChatID
		if ids, after, more, err = s.EachChat(ctx, after, chatsAtOnce); err != nil {
			return n, err
		}
		n += len(ids)
		if err := do(ids); err != nil {
			return n, err
		}
	}
	return n, nil
}

// text returns a value as text that is equal for equal values.
func text(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		return err.Error() // The values are of this project, and have no cycles.
	}
	return string(b)
}

// orNil returns a slice, and nil if it is empty: backends return either.
func orNil[T any](items []T) []T {
	if len(items) == 0 {
		return nil
	}
	return items
}

// compareChat compares a chat, and names each part that differs.
func (c *Copier) compareChat(ctx context.Context, id tidemark.ChatID) error {
	defer c.chats.Add(1)
	if c.compared(id) {
		c.unchanged.Add(1)
		return nil
	}
	from, err := head(ctx, c.cfg.From, id)
	if err != nil {
		return err
	}
	to, err := head(ctx, c.cfg.To, id)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		c.differ("chat %s: it is missing", id)
		return nil
	}
	if err != nil {
		return err
	}
	//rule:copy_equal.verify-the-chat
	if text(from) != text(to) || !bytes.Equal(from.Metadata, to.Metadata) {
		c.differ("chat %s: it is %s, and was %s", id, text(to), text(from))
		return nil
	}
	if from.State == tidemark.ChatDeleted {
		return nil
	}
	members, err := c.compareMembers(ctx, id)
	if err != nil {
		return err
	}
	if err := c.compareBeside(ctx, &from.Chat); err != nil {
		return err
	}
	return c.compareMessages(ctx, &from.Chat, members)
}

// compared reports whether Config.Ran has found that a chat is as Ahead has copied it.
func (c *Copier) compared(id tidemark.ChatID) bool {
	ran := c.cfg.Ran
	//rule:copy_equal.compare-what-was-written
	return ran != nil && ran.unchanged.Load() > 0 && !ran.resumed && !ran.touched.has(id)
}

// compareMembers compares the members of a chat, their states, and what is unread. It returns the
// members.
func (c *Copier) compareMembers(
	ctx context.Context, id tidemark.ChatID,
) ([]tidemark.UserID, error) {
	from, err := membersOf(ctx, c.cfg.From, id)
	if err != nil {
		return nil, err
	}
	to, err := membersOf(ctx, c.cfg.To, id)
	if err != nil {
		return nil, err
	}
	users := make([]tidemark.UserID, len(from))
	keys := make([]storage.StateKey, len(from))
	for i := range from {
		users[i], keys[i] = from[i].UserID, storage.StateKey{User: from[i].UserID, Chat: id}
		//rule:copy_equal.verify-the-members
		if i < len(to) && (text(from[i]) != text(to[i]) ||
			!bytes.Equal(from[i].Metadata, to[i].Metadata)) {
			c.differ("chat %s: the member %s is %s, and was %s", id, users[i], text(to[i]),
				text(from[i]))
		}
	}
	if len(from) != len(to) {
		c.differ("chat %s: there are %d present and former members, and were %d", id, len(to),
			len(from))
	}
	for page := range slices.Chunk(keys, membersAtOnce) {
		before, err := c.cfg.From.Unread(ctx, page)
		if err != nil {
			return nil, err
		}
		after, err := c.cfg.To.Unread(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range page {
			//rule:copy_equal.verify-what-is-unread
			if before[i] != after[i] {
				c.differ("chat %s: %+v are unread for %s, and %+v were", id, after[i],
					page[i].User, before[i])
			}
		}
	}
	return users, nil
}

// compareBeside compares who is banned from a chat, what is pinned, and from which incarnation a
// client may come.
func (c *Copier) compareBeside(ctx context.Context, chat *tidemark.Chat) error {
	type beside struct {
		Bans   []storage.Ban
		Pins   []storage.Pin
		Shared []tidemark.Sequence
	}
	var claims []storage.Claim
	for _, of := range c.cfg.From.Incarnations() {
		claims = append(claims,
			storage.Claim{Chat: chat.ID, Incarnation: of, Sequence: chat.Head})
	}
	var found [2]beside
	for i, s := range []Store{c.cfg.From, c.cfg.To} {
		var err error
		if found[i].Bans, err = bansOf(ctx, s, chat.ID); err != nil {
			return err
		}
		if found[i].Pins, err = s.Pins(ctx, chat.ID); err != nil {
			return err
		}
		found[i].Bans, found[i].Pins = orNil(found[i].Bans), orNil(found[i].Pins)
		if found[i].Shared, err = s.Shared(ctx, claims); err != nil {
			return err
		}
	}
	//rule:copy_equal.verify-bans-pins-and-lives
	if text(found[0]) != text(found[1]) {
		c.differ("chat %s: bans, pins and incarnations are %s, and were %s", chat.ID,
			text(found[1]), text(found[0]))
	}
	return nil
}

// compareMessages compares hashes of a chat's messages, page by page, and the reactions to them.
func (c *Copier) compareMessages(
	ctx context.Context, chat *tidemark.Chat, users []tidemark.UserID,
) error {
	reacted := false
	for after := chat.Floor - 1; after < chat.Head; {
		from, err := messagesBehind(ctx, c.cfg.From, chat.ID, after)
		if err != nil {
			return err
		}
		to, err := c.cfg.To.Ranges(ctx, []storage.Range{{
			Chat: chat.ID, After: after, Limit: len(from),
		}})
		if err != nil {
			return err
		}
		last := from[len(from)-1]
		one, other, err := c.hashes(ctx, from, to[0], users)
		if err != nil {
			return err
		}
		//rule:copy_equal.verify-the-messages
		if !bytes.Equal(one, other) {
			c.differ("chat %s: the messages %d to %d differ", chat.ID, after+1, last.Sequence)
		}
		for i := range from {
			c.bytes.Add(int64(from[i].Size()))
			reacted = reacted || from[i].Kind == tidemark.KindReact
		}
		c.messages.Add(int64(len(from)))
		after = last.Sequence
		if err := c.compareKey(ctx, &last); err != nil {
			return err
		}
	}
	if !reacted {
		return nil
	}
	return c.compareReactions(ctx, chat)
}

// hashes returns the hashes of messages of both stores.
func (c *Copier) hashes(
	ctx context.Context, from, to []tidemark.Message, users []tidemark.UserID,
) (one, other []byte, err error) {
	if one, err = hash(ctx, c.cfg.From, from, users); err != nil {
		return nil, nil, err
	}
	if len(to) != len(from) || to[0].Sequence != from[0].Sequence {
		return one, nil, nil
	}
	other, err = hash(ctx, c.cfg.To, to, users)
	return one, other, err
}

// hash returns the hash of messages and of what is stored beside them.
func hash(
	ctx context.Context, s storage.CopySource, page []tidemark.Message, users []tidemark.UserID,
) ([]byte, error) {
	facts, err := factsOf(ctx, s, page, users)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	encoder := json.NewEncoder(h)
	for i := range page {
		if err := encoder.Encode(parts(page[i].WithoutTarget(), facts[i])); err != nil {
			return nil, err
		}
	}
	return h.Sum(nil), nil
}

// parts returns all of a message, which has no target, as values for an encoder.
func parts(m tidemark.Message, facts storage.MessageFacts) []any {
	m.Mentions.Users, facts.Mentions.Users = orNil(m.Mentions.Users), orNil(facts.Mentions.Users)
	// The encoder leaves out white space of JSON, which is kept byte for byte.
	return []any{m, facts, string(m.Attachments), string(m.Metadata)}
}

// compareKey compares what a resend of a message finds, if its key must still be known.
func (c *Copier) compareKey(ctx context.Context, m *tidemark.Message) error {
	if c.cfg.Clock().Sub(m.CreatedAt) > keysKept {
		return nil
	}
	key := storage.SendKey{
		Chat: m.ChatID, Sender: m.SenderID, ClientMessageID: m.ClientMessageID,
	}
	before, known, err := c.cfg.From.Sent(ctx, key)
	if err != nil || !known {
		return err
	}
	after, _, err := c.cfg.To.Sent(ctx, key)
	if err == nil && before.Message.Sequence != after.Message.Sequence {
		c.differ("chat %s: a resend of message %d finds %d", m.ChatID, before.Message.Sequence,
			after.Message.Sequence)
	}
	return err
}

// compareReactions compares the reactions that stand.
func (c *Copier) compareReactions(ctx context.Context, chat *tidemark.Chat) error {
	for first := chat.Floor; first <= chat.Head; first += storage.MaxReactionsRange {
		q := storage.ReactionsQuery{
			Chat: chat.ID, From: first,
			To: min(chat.Head, first+storage.MaxReactionsRange-1),
		}
		before, _, err := c.cfg.From.Reactions(ctx, q)
		if err != nil {
			return err
		}
		after, _, err := c.cfg.To.Reactions(ctx, q)
		if err != nil {
			return err
		}
		//rule:copy_equal.verify-the-reactions
		if text(orNil(before)) != text(orNil(after)) {
			c.differ("chat %s: the reactions to %d to %d differ", chat.ID, q.From, q.To)
		}
	}
	return nil
}

// compareEntries compares the entries of a kind. Backends have them in different orders, so it
// compares their number, and the sum of their hashes.
func (c *Copier) compareEntries(ctx context.Context, kind storage.EntryKind) error {
	var sums [2]digest
	for i, s := range []Store{c.cfg.From, c.cfg.To} {
		err := entries(ctx, s, kind, func(some []storage.Entry) error {
			for _, one := range some {
				if kind == storage.EntryReceipts {
					keep, err := kept(ctx, c.cfg.From, one)
					if err != nil {
						return err
					}
					if !keep {
						continue
					}
				}
				one.Document.Version, one.Backlog.Stamp, one.Backlog.Shard = 0, "", 0
				sums[i].add(text(one))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	//rule:copy_equal.verify-what-is-beside-the-chats
	if sums[0] != sums[1] {
		c.differ("the %s differ: there are %d, and were %d", kind, sums[1].n, sums[0].n)
	}
	return nil
}

// A digest is the number of some texts, and the sum of their hashes. It is the same in every order.
type digest struct {
	n   int
	sum [sha256.Size]byte
}

func (d *digest) add(text string) {
	d.n++
	carry := 0
	for i, b := range sha256.Sum256([]byte(text)) {
		carry += int(d.sum[i]) + int(b)
		d.sum[i], carry = byte(carry), carry>>8
	}
}
