package appends

import (
	"context"
	"errors"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// aimAtList is aim for a redaction that names a list. It wipes the targets, each in a step of its
// own. A transaction has room for fewer items, costs twice as much, and appears in parts: a reader
// could get the redaction, and then the old text of a target.
//
// Nothing is wiped before the key is looked up and all targets are judged. If a target changes in
// between, the draft is left, and all of them are judged again.
func (a *appending) aimAtList(ctx context.Context, i int) (left []int, err error) {
	a.target = nil
	d := a.drafts[i]
	d.CreatedAt = call.Stored(d.CreatedAt)
	key, err := known(ctx, a.Access, storage.SendKeyOf(&d))
	if err != nil {
		return nil, err
	}
	//rule:send_idempotent.key-before-list-in-dynamodb
	if key != nil {
		forgotten, err := a.duplicate(ctx, i, key)
		if err != nil || !forgotten {
			return nil, err
		}
	}
	newer, err := a.confirm(ctx)
	if err != nil {
		return nil, err
	}
	if newer {
		return []int{i}, nil
	}
	targets, items, err := a.listed(ctx, &d)
	var hole *call.Hole
	if errors.As(err, &hole) {
		a.results[i] = storage.Appended{Err: call.Public(hole)}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	role := a.view.members[d.SenderID]
	//rule:redacted_stays.judge-the-whole-list-in-dynamodb
	if refusal := d.MayRevise(targets, role, a.view.Type); refusal != nil {
		return nil, a.refuse(ctx, i, refusal)
	}
	changed := make([]bool, len(targets))
	err = call.Together(ctx, len(targets), func(ctx context.Context, n int) error {
		if targets[n].Redacted() {
			return nil
		}
		// An edit may have been stored since the view. The redaction is above that, too.
		sequence := a.view.Head + 1
		if before := targets[n].Revision; before != nil {
			sequence = max(sequence, before.Sequence+1)
		}
		revised := targets[n].Revise(&d, sequence)
		//rule:redacted_stays.list-before-relation-in-dynamodb
		_, done, _, err := a.Update(ctx, record.Revision(&revised, items[n]))
		changed[n] = !done
		return err
	})
	if err != nil || slices.Contains(changed, true) {
		return []int{i}, err
	}
	a.target = &target{}
	return nil, nil
}

// listed reads the targets of a redaction that names a list, and their items. A target is nil if
// the chat has no such message, or it has expired.
func (a *appending) listed(
	ctx context.Context, d *tidemark.Draft,
) ([]*tidemark.Message, []call.Item, error) {
	named := d.Targets()
	targets, items := make([]*tidemark.Message, len(named)), make([]call.Item, len(named))
	err := call.Together(ctx, len(named), func(ctx context.Context, n int) error {
		if named[n] > a.view.Head {
			return nil
		}
		found, it, err := messageAt(ctx, a.Access, a.chat, named[n])
		switch {
		case errors.Is(err, errExpired):
			return nil
		case err != nil:
			return err
		}
		targets[n], items[n] = &found, it
		return nil
	})
	return targets, items, err
}
