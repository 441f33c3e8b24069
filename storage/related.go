package storage

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
)

// Range selects messages of a chat above After. If Before is 0, it selects the first ones.
// Otherwise it selects the last ones below Before.
type Range struct {
	Chat   tidemark.ChatID
	After  tidemark.Sequence
	Before tidemark.Sequence
	// Limit is the maximum number of messages. It is at least 1.
	Limit int
	// MaxBytes, if not 0, ends the page after the message that reaches this size. Contents and
	// attachments count. A page contains at least one message, if there is one. Counting begins
	// with the first message, or with the last one if Before is set.
	MaxBytes int
	// Bare leaves out the targets of edits and redactions.
	Bare bool
}

// Read reads ranges as Messages.Ranges, but without the targets of edits and redactions.
type Read func(ctx context.Context, ranges []Range) ([][]tidemark.Message, error)

// firstTargets is how many targets of a range are read first. Each further read has twice as many.
// So a page of large targets reads few more than it returns.
const firstTargets = 8

// Related reads ranges with the targets of the relations in them: the edits and redactions. It
// reads the targets after the pages. So a target has the change of its relation, or a later one. If
// the targets make a page too large for Range.MaxBytes, the page ends earlier.
//
// A relation whose target has expired has none. A relation whose target cannot be read ends the
// page before it, as a missing message does. So does one whose target lacks its change: a store may
// show parts of a step for a moment.
func Related(ctx context.Context, ranges []Range, read Read) ([][]tidemark.Message, error) {
	pages, err := read(ctx, ranges)
	if err != nil {
		return nil, err
	}
	var open []*relating
	for i := range pages {
		if !ranges[i].Bare && slices.ContainsFunc(pages[i], relates) {
			open = append(open, &relating{Range: &ranges[i], page: &pages[i], left: pages[i]})
		}
	}
	all := slices.Clone(open)
	targets := make(map[MessageKey]*tidemark.Message)
	//rule:bounded_use.targets-count
	for most := firstTargets; len(open) > 0; most *= 2 {
		if err := readTargets(ctx, open, most, targets, read); err != nil {
			return nil, err
		}
		open = slices.DeleteFunc(open, func(r *relating) bool { return r.take(targets) })
	}
	for _, r := range all {
		*r.page = r.related
		if r.Before != 0 {
			slices.Reverse(*r.page)
		}
	}
	return pages, nil
}

// relating is a page whose relations get their targets.
type relating struct {
	*Range
	page *[]tidemark.Message
	// left are the messages that are not taken yet. related are those with targets, in the order in
	// which they count: from the last one on if Before is set. size is that of related.
	left, related []tidemark.Message
	size          int
}

// next returns the next message that is left.
func (r *relating) next() *tidemark.Message { return r.peek(0) }

// peek returns the n-th message that is left.
func (r *relating) peek(n int) *tidemark.Message {
	if r.Before != 0 {
		return &r.left[len(r.left)-1-n]
	}
	return &r.left[n]
}

// readTargets reads the next targets of each page, at most most of each.
func readTargets(
	ctx context.Context, open []*relating, most int, targets map[MessageKey]*tidemark.Message,
	read Read,
) error {
	var wanted []Range
	for _, r := range open {
		asked := 0
		for n := 0; n < len(r.left) && asked < most && len(wanted) < MaxBatch; n++ {
			m := r.peek(n)
			if !relates(*m) {
				continue
			}
			key := targetOf(m)
			if _, known := targets[key]; !known {
				targets[key] = nil
				wanted = append(wanted, Range{
					Chat: key.Chat, After: key.Sequence - 1, Limit: 1, Bare: true,
				})
				asked++
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	found, err := read(ctx, wanted)
	if err != nil {
		return err
	}
	for i := range found {
		if target := targetIn(found[i], wanted[i].After+1); target != nil {
			targets[MessageKey{wanted[i].Chat, wanted[i].After + 1}] = target
		}
	}
	return nil
}

// expired stands for a target that has expired.
var expired = new(tidemark.Message)

// targetIn returns message n, if a page that begins there has it, and nil if it does not. A page
// that begins above it begins at the floor of the chat: the message has expired.
func targetIn(page []tidemark.Message, n tidemark.Sequence) *tidemark.Message {
	switch {
	case len(page) == 0 || page[0].Sequence < n:
		return nil
	//rule:floor_recorded.relation-outlives-its-target
	case page[0].Sequence > n:
		return expired
	}
	return &page[0]
}

// take takes the messages whose targets were read. It reports whether the page ends there. The page
// may share memory with the store, so its messages are copied.
func (r *relating) take(targets map[MessageKey]*tidemark.Message) (ended bool) {
	for len(r.left) > 0 {
		if r.MaxBytes != 0 && r.size >= r.MaxBytes {
			return true
		}
		m := *r.next()
		if relates(m) {
			key := targetOf(&m)
			target, read := targets[key]
			switch {
			case target == nil:
				return read
			case target == expired:
			//rule:redacted_stays.no-target-from-before-the-relation
			case !carries(target, m.Sequence):
				return true
			default:
				m.Relation = &tidemark.Relation{Sequence: key.Sequence, Target: target}
			}
		}
		r.size += m.Size()
		r.related = append(r.related, m)
		if r.Before != 0 {
			r.left = r.left[:len(r.left)-1]
		} else {
			r.left = r.left[1:]
		}
	}
	return true
}

// carries reports whether a target has the change of a relation, or a later one. After a redaction
// nothing changes it.
func carries(target *tidemark.Message, relation tidemark.Sequence) bool {
	return target.Redacted() || target.Revision != nil && target.Revision.Sequence >= relation
}

// relates reports whether a message is read with the one that it changes. One that annotates
// another one is read without it, because it changes nothing of it. Of the messages in a list
// nothing is left that a reader would need.
//
//rule:annotations_counted.annotations-read-no-target
func relates(m tidemark.Message) bool {
	return m.Kind.Revises() && m.Relation != nil && m.Relation.Sequences == nil
}

// MessageKey identifies a message.
type MessageKey struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
}

// targetOf returns the target of a relation.
func targetOf(m *tidemark.Message) MessageKey {
	return MessageKey{m.ChatID, m.Relation.Sequence}
}

// Relate sets the target of a message that Append or Sent returns, if it is a relation.
func Relate(ctx context.Context, a *Appended, read Read) error {
	if a.Err != nil || !relates(a.Message) {
		return nil
	}
	key := targetOf(&a.Message)
	page, err := read(ctx, []Range{{
		Chat: key.Chat, After: key.Sequence - 1, Limit: 1, Bare: true,
	}})
	if err != nil {
		return err
	}
	target := targetIn(page[0], key.Sequence)
	if target == nil || target == expired {
		return nil
	}
	if !carries(target, a.Message.Sequence) {
		return tidemark.Errorf(tidemark.Unavailable, "message %d of the chat %s does not show "+
			"the change yet; send the change again", key.Sequence, key.Chat)
	}
	a.Message.Relation = &tidemark.Relation{Sequence: key.Sequence, Target: target}
	return nil
}
