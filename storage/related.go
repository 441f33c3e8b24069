package storage

import (
	"context"

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
	// Bare leaves out the targets of relations.
	Bare bool
}

// Read reads ranges as Messages.Ranges, but without the targets of relations.
type Read func(ctx context.Context, ranges []Range) ([][]tidemark.Message, error)

// Related reads ranges with the targets of the relations in them. It reads the targets after the
// pages. So a target has the change of its relation, or a later one. If the targets make a page too
// large for Range.MaxBytes, the page ends earlier.
//
// A relation whose target cannot be read ends the page before it, as a missing message does.
func Related(ctx context.Context, ranges []Range, read Read) ([][]tidemark.Message, error) {
	pages, err := read(ctx, ranges)
	if err != nil {
		return nil, err
	}
	var wanted []Range
	at := make(map[MessageKey]int)
	for i, page := range pages {
		if ranges[i].Bare {
			continue
		}
		for j := range page {
			key, relates := targetOf(&page[j])
			if _, asked := at[key]; !relates || asked {
				continue
			}
			at[key] = len(wanted)
			wanted = append(wanted, Range{
				Chat: key.Chat, After: key.Sequence - 1, Limit: 1, Bare: true,
			})
		}
	}
	if len(wanted) == 0 {
		return pages, nil
	}
	targets := make([]*tidemark.Message, 0, len(wanted))
	for len(targets) < len(wanted) {
		part := wanted[len(targets):]
		found, err := read(ctx, part[:min(len(part), MaxBatch)])
		if err != nil {
			return nil, err
		}
		for i := range found {
			var target *tidemark.Message
			if len(found[i]) == 1 && found[i][0].Sequence == part[i].After+1 {
				target = &found[i][0]
			}
			targets = append(targets, target)
		}
	}
	for i := range pages {
		if !ranges[i].Bare {
			pages[i] = withTargets(pages[i], &ranges[i], func(key MessageKey) *tidemark.Message {
				return targets[at[key]]
			})
		}
	}
	return pages, nil
}

// MessageKey identifies a message.
type MessageKey struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
}

// targetOf returns the target of a message, and whether it has one.
func targetOf(m *tidemark.Message) (MessageKey, bool) {
	if m.Relation == nil {
		return MessageKey{}, false
	}
	return MessageKey{m.ChatID, m.Relation.Sequence}, true
}

// withTargets returns the part of a page that fits its range, with targets. The page may share
// memory with the store, so its messages are copied.
func withTargets(
	page []tidemark.Message, r *Range, target func(MessageKey) *tidemark.Message,
) []tidemark.Message {
	related := make([]tidemark.Message, 0, len(page))
	size := 0
	for n := range page {
		at := n
		if r.Before != 0 {
			at = len(page) - 1 - n
		}
		//rule:bounded_use.targets-count
		if r.MaxBytes != 0 && size >= r.MaxBytes {
			break
		}
		m := page[at]
		if key, relates := targetOf(&m); relates {
			t := target(key)
			if t == nil {
				break
			}
			m.Relation = &tidemark.Relation{Sequence: key.Sequence, Target: t}
		}
		size += m.Size()
		related = append(related, m)
	}
	if r.Before != 0 {
		for i, j := 0, len(related)-1; i < j; i, j = i+1, j-1 {
			related[i], related[j] = related[j], related[i]
		}
	}
	return related
}

// Relate sets the target of a message that Append or Sent returns, if it is a relation.
func Relate(ctx context.Context, a *Appended, read Read) error {
	key, relates := targetOf(&a.Message)
	if !relates || a.Err != nil {
		return nil
	}
	page, err := read(ctx, []Range{{
		Chat: key.Chat, After: key.Sequence - 1, Limit: 1, Bare: true,
	}})
	if err != nil {
		return err
	}
	if len(page[0]) == 1 && page[0][0].Sequence == key.Sequence {
		a.Message.Relation = &tidemark.Relation{Sequence: key.Sequence, Target: &page[0][0]}
	}
	return nil
}
