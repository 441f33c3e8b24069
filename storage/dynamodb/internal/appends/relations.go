package appends

import (
	"context"
	"errors"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// runOf returns how many of the first drafts are one run: a single relation, or all drafts before
// the next one. A relation is a transaction of its own, because it depends on what its target is.
func runOf(drafts []tidemark.Draft) int {
	for n := range drafts {
		if drafts[n].Kind.Relates() {
			return max(1, n)
		}
	}
	return len(drafts)
}

// A target is the message that a relation changes.
type target struct {
	// revised is the message after the relation, and change the write of it. There is nothing to
	// write if the message was redacted before.
	revised tidemark.Message
	change  *call.Update
}

// aim reads the target of a relation whose sender is a member in the view. If the relation may not
// be stored, it sets the draft's result, and there is no target. There is none either if the view
// was too old to decide that: then the draft is left.
func (a *appending) aim(ctx context.Context, i int) (left []int, err error) {
	a.target = nil
	d := a.drafts[i]
	d.CreatedAt = call.Stored(d.CreatedAt)
	var old *tidemark.Message
	var it call.Item
	expired := false
	// The target is read before a refusal is confirmed, and what refuses it stays: its author, its
	// redaction and its edits.
	if d.Relation.Sequence <= a.view.Head {
		var found tidemark.Message
		found, it, err = messageAt(ctx, a.Access, a.chat, d.Relation.Sequence)
		var hole *call.Hole
		switch {
		case errors.Is(err, errExpired):
			expired = true
		case errors.As(err, &hole):
			a.results[i] = storage.Appended{Err: call.Public(hole)}
			return nil, nil
		case err != nil:
			return nil, err
		default:
			old = &found
		}
	}
	if refusal := d.MayRevise(old, a.view.members[d.SenderID]); refusal != nil {
		newer, err := a.confirm(ctx)
		if err != nil {
			return nil, err
		}
		//rule:caller_does_only_what_they_may.relation-judged-at-stored-head-in-dynamodb
		if newer || old == nil && !expired && d.Relation.Sequence <= a.view.Head {
			return []int{i}, nil
		}
		return nil, a.refuse(ctx, i, refusal)
	}
	a.target = &target{revised: old.Revise(&d, a.view.Head+1)}
	if !old.Redacted() {
		change := record.Revision(&a.target.revised, it)
		a.target.change = &change
	}
	return nil, nil
}
