package memory

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// sendKey is the idempotency key of a message in its chat.
type sendKey struct {
	sender          tidemark.UserID
	clientMessageID string
}

// Append implements storage.Messages.
func (s *Store) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	if err := s.enterBatch(ctx, len(drafts)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	results := make([]storage.Appended, len(drafts))
	var behind storage.HeldBack
	for i, draft := range drafts {
		appended, err := s.append(draft, &behind)
		if err != nil {
			appended = storage.Appended{Err: err}
		}
		results[i] = appended
	}
	return results, nil
}

// append stores one draft. behind is that of its call. The mutex is held.
func (s *Store) append(
	draft tidemark.Draft, behind *storage.HeldBack,
) (storage.Appended, error) {
	c, err := s.find(draft.ChatID)
	if err != nil {
		return storage.Appended{}, err
	}
	//rule:importing_is_closed.ask-the-state-first
	if err := storage.MayAppend(c.State, &draft); err != nil {
		return storage.Appended{}, err
	}
	key := sendKey{draft.SenderID, draft.ClientMessageID}
	//rule:send_idempotent.key-before-membership
	if sequence, known := c.keys[key]; known {
		first := c.related(c.messages[sequence-1])
		//rule:send_idempotent.equal-key-equal-content
		if err := first.Repeats(&draft); err != nil {
			return storage.Appended{}, err
		}
		//rule:send_idempotent.duplicate-is-first-message
		return storage.Appended{Message: first, Duplicate: true, Version: c.MembersVersion}, nil
	}
	if err := behind.Judge(&draft, nil); err != nil {
		return storage.Appended{}, err
	}
	sender := c.members[draft.SenderID]
	//rule:nothing_outside_membership.members-only-append
	if !sender.Intervals.Open() && !draft.ByServer {
		//rule:sequence_gapless.refusal-takes-no-number
		return storage.Appended{}, behind.Judge(&draft,
			storage.NotSender(draft.ChatID, draft.SenderID, false))
	}
	//rule:caller_does_only_what_they_may.readers-never-append
	if !draft.ByServer && !sender.Role.MaySend() {
		return storage.Appended{}, behind.Judge(&draft,
			storage.NotSender(draft.ChatID, draft.SenderID, true))
	}
	//rule:blocked_is_closed.refuse-after-the-key-in-memory
	if err := storage.MayWrite(c.State, &draft); err != nil {
		return storage.Appended{}, behind.Judge(&draft, err)
	}
	draft.CreatedAt = stored(draft.CreatedAt)
	if draft.Kind.Relates() {
		if err := c.mayRelate(&draft, sender.Role); err != nil {
			return storage.Appended{}, behind.Judge(&draft, err)
		}
	}
	defer s.news(c, storage.PositionOf(&c.Chat))
	c.Head++
	message := draft.Message(c.Head, c.MembersVersion)
	c.messages, c.activity = append(c.messages, message), message.CreatedAt
	//rule:restore_is_noticed.message-has-its-life
	c.lives = append(c.lives, s.lives[len(s.lives)-1].Number)
	//rule:send_idempotent.remember-key
	c.keys[key] = message.Sequence
	if draft.Kind.Revises() {
		c.revise(&draft)
	}
	return storage.Appended{
		Message: c.related(message), Version: c.MembersVersion, RowsVersion: c.cleared + 1,
	}, nil
}

// message returns a message, or nil if there is none, or it has expired.
func (c *chat) message(n tidemark.Sequence) *tidemark.Message {
	if n < c.Floor || n > c.Head {
		return nil
	}
	return &c.messages[n-1]
}

// mayRelate returns nil if a draft with a relation may be stored. The mutex is held.
func (c *chat) mayRelate(d *tidemark.Draft, role tidemark.Role) error {
	if d.Kind.Revises() {
		var targets []*tidemark.Message
		for _, n := range d.Targets() {
			targets = append(targets, c.message(n))
		}
		return d.MayRevise(targets, role, c.Type)
	}
	if err := d.MayAnnotate(c.message(d.Relation.Sequence), role, c.Type); err != nil {
		return err
	}
	return c.standing(d).Allows(d)
}

// revise changes the targets of an edit or a redaction that is now the last message. The mutex is
// held.
func (c *chat) revise(d *tidemark.Draft) {
	for _, n := range d.Targets() {
		target := c.message(n)
		//rule:countable_fixed.mentions-of-the-first-step
		if _, kept := c.mentions[target.Sequence]; !kept {
			c.mentions[target.Sequence] = target.Mentions
		}
		//rule:redacted_stays.target-in-step-of-relation
		*target = target.Revise(d, c.Head)
	}
}

// related returns a message with what it changes, unless that has expired.
func (c *chat) related(m tidemark.Message) tidemark.Message {
	if !m.Kind.Revises() || m.Relation.Sequences != nil {
		return m
	}
	if found := c.message(m.Relation.Sequence); found != nil {
		target := *found
		m.Relation = &tidemark.Relation{Sequence: target.Sequence, Target: &target}
	}
	return m
}

// Sent implements storage.Messages.
func (s *Store) Sent(
	ctx context.Context, key storage.SendKey,
) (appended storage.Appended, found bool, err error) {
	if err := s.enter(ctx); err != nil {
		return storage.Appended{}, false, err
	}
	defer s.mu.Unlock()
	c, err := s.alive(key.Chat)
	if err != nil {
		return storage.Appended{}, false, err
	}
	sequence, known := c.keys[sendKey{key.Sender, key.ClientMessageID}]
	if !known {
		return storage.Appended{}, false, nil
	}
	return storage.Appended{
		Message: c.related(c.messages[sequence-1]), Duplicate: true, Version: c.MembersVersion,
	}, true, nil
}

// Ranges implements storage.Messages.
func (s *Store) Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	if err := s.enterBatch(ctx, len(ranges)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return storage.Related(ctx, ranges, s.pages)
}

// pages returns ranges without the targets of relations. The mutex is held.
func (s *Store) pages(_ context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	pages := make([][]tidemark.Message, len(ranges))
	for i, r := range ranges {
		if c := s.chats[r.Chat]; c != nil {
			pages[i] = slices.Clone(c.page(r))
		}
	}
	return pages, nil
}

// Observe implements storage.Messages. No other process stores anything.
func (s *Store) Observe(*tidemark.Message) {}

// page returns the messages of a range. They may change when the mutex is released.
func (c *chat) page(r storage.Range) []tidemark.Message {
	// first..last is the selected range. from..to is the part of it that the page returns.
	//rule:sync_position_from_watermark.range-starts-behind-after
	//rule:floor_recorded.page-begins-at-the-floor
	first, last := max(r.After+1, c.Floor), c.Head
	if r.Before != 0 {
		last = min(last, r.Before-1)
	}
	if first > last {
		return nil
	}
	if r.Before != 0 {
		from, size := last+1, 0
		for from > first && int(last+1-from) < r.Limit && !reached(size, r.MaxBytes) {
			from--
			size += weight(&c.messages[from-1])
		}
		return c.messages[from-1 : last : last]
	}
	to, size := first-1, 0
	for to < last && int(to+1-first) < r.Limit && !reached(size, r.MaxBytes) {
		to++
		size += weight(&c.messages[to-1])
	}
	return c.messages[first-1 : to : to]
}

func reached(size, most int) bool { return most != 0 && size >= most }

func weight(m *tidemark.Message) int { return m.Size() }
