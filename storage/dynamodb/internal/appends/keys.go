package appends

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// idOf returns the table key of an idempotency key. No id contains a bar.
func idOf(key storage.SendKey) string {
	return string(key.Chat) + "|" + string(key.Sender) + "|" + key.ClientMessageID
}

// known returns the item of an idempotency key, nil if there is none or it has expired.
func known(ctx context.Context, access record.Access, key storage.SendKey) (call.Item, error) {
	it, err := access.Get(ctx, record.Keys, call.Item{"id": call.Text(idOf(key))})
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
// when the key was written. A relation has its target, as it is now. The error is a Hole if a
// message is missing.
func messageUnder(
	ctx context.Context, access record.Access, chat tidemark.ChatID, key call.Item,
) (m tidemark.Message, first tidemark.MessageID, err error) {
	r := call.Reader{Item: key}
	sequence, first := r.Sequence("sequence"), tidemark.MessageID(r.Text("message_id"))
	if r.Err != nil {
		return m, first, r.Err
	}
	m, _, err = messageAt(ctx, access, chat, sequence)
	if err != nil || m.Relation == nil {
		return m, first, err
	}
	target, _, err := messageAt(ctx, access, chat, m.Relation.Sequence)
	m.Relation.Target = &target
	return m, first, err
}

// messageAt returns a message and its item. The error is a Hole if the message is missing.
func messageAt(
	ctx context.Context, access record.Access, chat tidemark.ChatID, sequence tidemark.Sequence,
) (m tidemark.Message, it call.Item, err error) {
	it, err = access.Get(ctx, record.Messages, call.Item{
		"chat_id": call.Text(chat), "sequence": call.Number(sequence),
	})
	if err == nil && it == nil {
		err = &call.Hole{Chat: chat, Sequence: sequence}
	}
	if err != nil {
		return m, nil, err
	}
	m, err = record.MessageOf(it)
	return m, it, err
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
	chat, err := access.Counter(ctx, key.Chat)
	if err != nil || it == nil {
		return appended, false, err
	}
	m, _, err := messageUnder(ctx, access, key.Chat, it)
	if err != nil {
		return appended, false, err
	}
	return storage.Appended{Message: m, Duplicate: true, Version: chat.MembersVersion}, true, nil
}
