package appends

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// runOf returns how many of the first drafts are one run: a single relation, or all drafts before
// the next one. A relation is a transaction of its own, because it depends on what its target is,
// and on what stands.
func runOf(drafts []tidemark.Draft) int {
	for n := range drafts {
		if drafts[n].Kind.Relates() {
			return max(1, n)
		}
	}
	return len(drafts)
}

// A target has what a relation does to the message that it names.
type target struct {
	// revised is the message after an edit or a redaction.
	revised tidemark.Message
	// writes are the actions beside those of every message. An edit or a redaction changes the
	// message, unless that was redacted before. A reaction or pin begins to stand, or stands no
	// more.
	writes []types.TransactWriteItem
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
	// redaction and its edits. What stands may have changed since, but it refused when it was read.
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
	refusal, err := a.mayRelate(ctx, &d, old)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
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
	a.target = a.effect(&d, old, it)
	return nil, nil
}

// mayRelate returns why a relation may not be stored, or nil. old is its target, nil if the chat
// has no such message.
func (a *appending) mayRelate(
	ctx context.Context, d *tidemark.Draft, old *tidemark.Message,
) (refusal, err error) {
	role := a.view.members[d.SenderID]
	if d.Kind.Revises() {
		return d.MayRevise([]*tidemark.Message{old}, role, a.view.Type), nil
	}
	if refusal = d.MayAnnotate(old, role, a.view.Type); refusal != nil {
		return refusal, nil
	}
	standing, err := a.standing(ctx, d)
	if err != nil {
		return nil, err
	}
	return standing.Allows(d), nil
}

// standing reads what a reaction or pin meets. What changes after the read moves the head, and then
// the transaction fails.
func (a *appending) standing(
	ctx context.Context, d *tidemark.Draft,
) (s tidemark.Standing, err error) {
	partition := record.PinsKey(a.chat)
	within := [2]types.AttributeValue{
		call.Number(a.view.Floor), call.Number(tidemark.MaxSequence),
	}
	if d.Kind == tidemark.KindReact {
		partition = record.ReactionsKey(a.chat)
		within = record.ReactionsBy(d.SenderID, d.Relation.Sequence)
	}
	found, err := a.Annotations(ctx, partition, within)
	for _, one := range found {
		if d.Kind == tidemark.KindReact && one.User != d.SenderID {
			continue
		}
		s.Count++
		//rule:annotations_counted.one-key-counts-as-one-emoji-in-dynamodb
		if one.Target == d.Relation.Sequence &&
			record.SameKey(d.SenderID, one.Emoji, d.Relation.Emoji) {
			s.Same = one.Sequence
		}
	}
	return s, err
}

// effect returns what a relation that may be stored does to its target, which was read from an
// item.
func (a *appending) effect(d *tidemark.Draft, old *tidemark.Message, read call.Item) *target {
	sequence := a.view.Head + 1
	if d.Kind.Annotates() {
		m := d.Message(sequence, a.view.MembersVersion)
		//rule:annotations_counted.stands-in-step-of-message-in-dynamodb
		return &target{writes: []types.TransactWriteItem{{Put: &types.Put{
			TableName:           a.Table(record.Messages),
			Item:                record.AnnotationItem(&m),
			ConditionExpression: aws.String("attribute_not_exists(chat_id)"),
		}}}}
	}
	t := &target{revised: old.Revise(d, sequence)}
	if !old.Redacted() {
		t.writes = append(t.writes, a.Action(record.Revision(&t.revised, read)))
	}
	//rule:annotations_counted.ends-in-step-of-redaction-in-dynamodb
	if old.Kind.Annotates() {
		t.writes = append(t.writes, types.TransactWriteItem{Delete: &types.Delete{
			TableName: a.Table(record.Messages), Key: record.AnnotationKey(old),
		}})
	}
	return t
}
