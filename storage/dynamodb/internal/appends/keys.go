package appends

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// idOf returns the table key of an idempotency key. No id contains a bar.
func idOf(key storage.SendKey) string {
	return string(key.Chat) + "|" + string(key.Sender) + "|" + key.ClientMessageID
}

// KeyItem returns the key of the item of an idempotency key.
func KeyItem(key storage.SendKey) call.Item { return call.Item{"id": call.Text(idOf(key))} }

// known returns the item of an idempotency key, nil if there is none or it has expired.
func known(ctx context.Context, access record.Access, key storage.SendKey) (call.Item, error) {
	it, err := access.Get(ctx, record.Keys, KeyItem(key))
	if err != nil || it == nil {
		return nil, err
	}
	r := call.Reader{Item: it}
	//rule:send_idempotent.expired-key-is-none
	if int64(r.Number("expires_at")) <= time.Now().Unix() {
		return nil, r.Err
	}
	return it, r.Err
}

// messageUnder returns the message that was stored with an idempotency key, and the id that it had
// when the key was written. An edit or a redaction has its target, as it is now, unless that has
// expired. The error is expired if the message has expired, and a Hole if a message is missing.
func messageUnder(
	ctx context.Context, access record.Access, chat tidemark.ChatID, key call.Item,
) (m tidemark.Message, first tidemark.MessageID, err error) {
	r := call.Reader{Item: key}
	sequence, first := r.Sequence("sequence"), tidemark.MessageID(r.Text("message_id"))
	if r.Err != nil {
		return m, first, r.Err
	}
	m, _, err = messageAt(ctx, access, chat, sequence)
	if err != nil || !m.Kind.Revises() || m.Relation.Sequences != nil {
		return m, first, err
	}
	target, _, err := messageAt(ctx, access, chat, m.Relation.Sequence)
	if errors.Is(err, errExpired) {
		return m, first, nil
	}
	m.Relation.Target = &target
	return m, first, err
}

// errExpired says that a message has expired.
var errExpired = errors.New("the message has expired")

// messageAt returns a message and its item. The error is errExpired if the message has expired, and
// a Hole if it is missing.
func messageAt(
	ctx context.Context, access record.Access, chat tidemark.ChatID, sequence tidemark.Sequence,
) (m tidemark.Message, it call.Item, err error) {
	it, err = access.Get(ctx, record.Messages, call.Item{
		"chat_id": call.Text(chat), "sequence": call.Number(sequence),
	})
	if err != nil {
		return m, nil, err
	}
	if it != nil {
		m, err = record.MessageOf(it)
		if err != nil || record.Young(&m) {
			return m, it, err
		}
	}
	counter, err := access.Counter(ctx, chat)
	switch {
	case err != nil:
		return m, nil, err
	case sequence < counter.Floor:
		return m, nil, errExpired
	case it == nil:
		return m, nil, &call.Hole{Chat: chat, Sequence: sequence}
	}
	return m, it, nil
}

// forget removes the key of a message that has expired, unless the key stands for another message
// by now.
func forget(ctx context.Context, access record.Access, key call.Item) error {
	_, _, err := access.Transact(ctx, []types.TransactWriteItem{{Delete: &types.Delete{
		TableName:                 access.Table(record.Keys),
		Key:                       call.Item{"id": key["id"]},
		ConditionExpression:       aws.String("message_id = :message"),
		ExpressionAttributeValues: call.Item{":message": key["message_id"]},
	}}})
	return err
}

// Sent returns the message that was stored under an idempotency key, as storage.Messages.Sent does.
func Sent(
	ctx context.Context, access record.Access, key storage.SendKey,
) (appended storage.Appended, found bool, err error) {
	it, err := known(ctx, access, key)
	if err != nil {
		return appended, false, err
	}
	// The version must not be older than the message.
	chat, err := access.Alive(ctx, key.Chat)
	if err != nil || it == nil {
		return appended, false, err
	}
	m, _, err := messageUnder(ctx, access, key.Chat, it)
	if errors.Is(err, errExpired) {
		return appended, false, nil
	}
	if err != nil {
		return appended, false, err
	}
	return storage.Appended{Message: m, Duplicate: true, Version: chat.MembersVersion}, true, nil
}
