package copying

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A part is what a store has of a chat, without its messages. The row is read first. So if servers
// work on the store, everything else is as new as the row, or newer.
type part struct {
	storage.CopiedChat
	members []storage.CopiedMember
	bans    []storage.Ban
}

// partOf reads a chat. NotFound: no such chat.
func partOf(ctx context.Context, s Store, id tidemark.ChatID) (p part, err error) {
	if p.CopiedChat, err = head(ctx, s, id); err != nil || p.State == tidemark.ChatDeleted {
		return p, err
	}
	if p.members, err = membersOf(ctx, s, id); err != nil {
		return p, err
	}
	p.bans, err = bansOf(ctx, s, id)
	return p, err
}

// underWork is tidemark.Chat.Creation of a chat of the target that is not there as a whole: it is
// being written, or dropped. No chat of the source has it, so such a chat equals none.
const underWork = "being copied"

// begun returns the row of a chat that is under work. It gets its pair when its members are there.
func (p *part) begun() storage.CopiedChat {
	row := p.CopiedChat
	row.Pair = ""
	//rule:copy_equal.a-chat-under-work-equals-none
	row.Creation = underWork
	return row
}

// equals reports whether the target's chat is as the source's was when it was copied. Then its
// messages are the same, too, although they are not read. A message changes in these ways:
//
//   - An edit, a redaction, a reaction or a pin is a message itself, and raises the head in the
//     same step. So does the announcement of an erasure that wiped messages.
//   - Expiry raises the floor before it removes a message, or in the same step.
//   - A deletion changes the state, and comes before PurgeChat.
//   - An import appends, and its end changes the state and the membership version.
//   - An erasure also changes messages without their chat: before it announces them, and where it
//     renames mentions. Copier.settled looks at the documents of erasures, and if one may have
//     run, each chat is read (state.Reread).
//   - A redaction of a list whose call fails may have wiped some of it in DynamoDB, where the head
//     stays. Config.Reread is for that.
//
// The head, the floor and the versions only rise. The target has those that were read before
// anything else of the chat. So a change during a copy makes a difference, too.
func (p *part) equals(to *part) bool {
	if !sameRow(&p.CopiedChat, &to.CopiedChat) || len(p.members) != len(to.members) {
		return false
	}
	for i := range p.members {
		//rule:copy_equal.skip-only-equal-members
		if !sameMember(p.members[i], to.members[i]) {
			return false
		}
	}
	//rule:copy_equal.skip-only-equal-bans
	return text(orNil(p.bans)) == text(orNil(to.bans))
}

// sameRow reports whether two rows are equal. JSON does not keep the bytes of metadata.
func sameRow(a, b *storage.CopiedChat) bool {
	return text(a) == text(b) && bytes.Equal(a.Metadata, b.Metadata)
}

// sameMember reports whether two members are equal. Settings of receipts are copied later.
func sameMember(a, b storage.CopiedMember) bool {
	a.State.Hides, b.State.Hides = false, false
	return text(a) == text(b) && bytes.Equal(a.Metadata, b.Metadata)
}

// outgrows reports whether writing the source's chat over that of the target leaves nothing there
// that the source has no more. Else the chat is dropped first.
func (p *part) outgrows(to *part) bool {
	switch {
	case to.Creation == underWork:
		return false
	case p.State == tidemark.ChatDeleted, to.State == tidemark.ChatDeleted:
		//rule:copy_equal.drop-what-was-deleted
		return false
	//rule:copy_equal.drop-what-has-expired
	case p.Floor != to.Floor:
		return false
	case p.Type != to.Type, p.History != to.History, !p.CreatedAt.Equal(to.CreatedAt),
		p.Head < to.Head, p.Version < to.Version, p.MembersVersion < to.MembersVersion:
		return false
	case to.Metadata != nil && p.Metadata == nil, to.pair() != "" && p.pair() != to.pair():
		return false
	}
	for i := range to.members {
		//rule:copy_equal.drop-what-was-erased
		if m := p.member(to.members[i].UserID); m == nil ||
			m.State.Unmoved() && !to.members[i].State.Unmoved() {
			return false
		}
	}
	for i := range to.bans {
		if !slices.ContainsFunc(p.bans, func(ban storage.Ban) bool {
			return ban.User == to.bans[i].User && ban.At.Equal(to.bans[i].At)
		}) {
			return false
		}
	}
	return true
}

// member returns a present or former member, or nil.
func (p *part) member(user tidemark.UserID) *storage.CopiedMember {
	i, found := slices.BinarySearchFunc(p.members, user,
		func(m storage.CopiedMember, user tidemark.UserID) int {
			return cmp.Compare(m.UserID, user)
		})
	if !found {
		return nil
	}
	return &p.members[i]
}

// errRemains is the error of news: the target's chat must be dropped.
var errRemains = errors.New("the target has what the source has no more")

// news returns those messages of a page that are not in the target, or differ there.
func (c *chat) news(
	ctx context.Context, page []tidemark.Message, copied []storage.CopiedMessage,
) ([]storage.CopiedMessage, error) {
	known := 0
	for known < len(page) && page[known].Sequence <= c.there.Head {
		known++
	}
	if known == 0 {
		return copied, nil
	}
	pages, err := c.cfg.To.Ranges(ctx, []storage.Range{{
		Chat: c.ID, After: page[0].Sequence - 1, Limit: known,
	}})
	if err != nil {
		return nil, err
	}
	found := pages[0]
	if len(found) != known {
		return nil, errRemains
	}
	facts, err := factsOf(ctx, c.cfg.To, found, c.users())
	if err != nil {
		return nil, err
	}
	var news []storage.CopiedMessage
	for i := range known {
		was := storage.CopiedMessage{Message: found[i].WithoutTarget(), MessageFacts: facts[i]}
		//rule:copy_equal.pages-that-differ-are-written
		if said(&was) == said(&copied[i]) {
			continue
		}
		//rule:copy_equal.drop-what-cannot-be-overwritten
		if !overwrites(&copied[i], &was) {
			return nil, errRemains
		}
		news = append(news, copied[i])
	}
	return append(news, copied[known:]...), nil
}

// said returns a message and what is stored beside it as text. It is equal for equal ones.
func said(m *storage.CopiedMessage) string {
	b, err := json.Marshal(parts(m.Message, m.MessageFacts))
	if err != nil {
		return err.Error() // The values are of this project, and have no cycles.
	}
	return string(b)
}

// overwrites reports whether PutMessages of a message leaves nothing of another state of it. A
// reaction or a pin has rows of its own, and so have mentions, keys and what does not count.
func overwrites(m, was *storage.CopiedMessage) bool {
	bare := func(m storage.CopiedMessage) string {
		m.Content, m.ContentType, m.Attachments = "", "", nil
		m.Message.Metadata, m.Message.Mentions, m.Revision = nil, tidemark.Mentions{}, nil
		return said(&m)
	}
	return !m.Kind.Annotates() && bare(*m) == bare(*was)
}

// bring makes a chat of the target that of the source. there is the target's, or nil.
func (c *Copier) bring(ctx context.Context, from part, there *part) error {
	if there != nil {
		switch {
		//rule:copy_equal.skip-only-equal-chats
		case !c.reread() && from.equals(there):
			c.unchanged.Add(1)
			return nil
		case !from.outgrows(there):
			if err := c.drop(ctx, there); err != nil {
				return err
			}
			there = nil
		}
	}
	c.touched.add(from.ID)
	err := c.write(ctx, from, there)
	if errors.Is(err, errRemains) {
		if err = c.drop(ctx, there); err == nil {
			err = c.write(ctx, from, nil)
		}
	}
	return err
}

// drop removes a chat of the target. If it ends in between, the rest of the chat equals none.
func (c *Copier) drop(ctx context.Context, there *part) error {
	if err := c.cfg.To.PutChat(ctx, there.begun()); err != nil {
		return err
	}
	return c.cfg.To.DropChat(ctx, there.ID)
}

// merge copies a chat into a target that may have it. If the source's chat changes so that it
// cannot be read to its end, it is read again. One that changes all the time does not end Ahead: a
// later call finds that the target does not have it as a whole.
func (c *Copier) merge(ctx context.Context, id tidemark.ChatID) error {
	const attempts = 3
	for n := 1; ; n++ {
		from, err := partOf(ctx, c.cfg.From, id)
		if err == nil {
			var there *part
			if there, err = c.inTarget(ctx, id); err != nil {
				return err
			}
			err = c.bring(ctx, from, there)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		now, failed := head(ctx, c.cfg.From, id)
		//rule:copy_equal.read-again-what-was-torn
		if failed != nil || sameRow(&now, &from.CopiedChat) {
			return err
		}
		if n == attempts {
			//rule:copy_equal.leave-what-changes-all-the-time
			if c.state.Step == ahead {
				return nil
			}
			return err
		}
	}
}

// inTarget returns the target's part of a chat, or nil.
func (c *Copier) inTarget(ctx context.Context, id tidemark.ChatID) (*part, error) {
	there, err := partOf(ctx, c.cfg.To, id)
	switch {
	case tidemark.CodeOf(err) == tidemark.NotFound:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the target's chat %s: %w", id, err)
	}
	return &there, nil
}
