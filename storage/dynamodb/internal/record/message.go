package record

import (
	"encoding/json"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// MessageItem returns the item of a draft at its sequence in the chat. life is the number of the
// present life of the data.
func MessageItem(
	d *tidemark.Draft, sequence tidemark.Sequence, version uint64, life int64,
) call.Item {
	it := call.Item{
		"chat_id": call.Text(d.ChatID), "sequence": call.Number(sequence),
		"message_id": call.Text(d.MessageID), "sender_id": call.Text(d.SenderID),
		"client_message_id": call.Text(d.ClientMessageID), "content": call.Text(d.Content),
		"content_type":    call.Text(d.ContentType),
		"created_at":      call.Number(d.CreatedAt.UnixMilli()),
		"members_version": call.Number(version),
	}
	if d.Attachments != nil {
		it["attachments"] = call.Text(string(d.Attachments))
	}
	if d.Metadata != nil {
		it["metadata"] = call.Text(string(d.Metadata))
	}
	if d.Kind != tidemark.KindMessage {
		it["kind"] = call.Text(d.Kind)
	}
	if !d.Mentions.None() {
		it["mentions"] = call.Text(d.Mentions.Text())
	}
	//rule:restore_is_noticed.message-has-its-life-in-dynamodb
	if life > 1 {
		it["life"] = call.Number(life)
	}
	return it
}

// LifeOf returns the number of the life of the data that stored the message in an item.
func LifeOf(it call.Item) (int64, error) {
	r := call.Reader{Item: it}
	if !r.Has("life") {
		return 1, nil
	}
	return int64(r.Number("life")), r.Err
}

// MessageOf returns the message in an item.
func MessageOf(it call.Item) (tidemark.Message, error) {
	r := call.Reader{Item: it}
	m := tidemark.Message{
		ChatID:          tidemark.ChatID(r.Text("chat_id")),
		Sequence:        r.Sequence("sequence"),
		MessageID:       tidemark.MessageID(r.Text("message_id")),
		SenderID:        tidemark.UserID(r.Text("sender_id")),
		ClientMessageID: r.Text("client_message_id"),
		Content:         r.Text("content"),
		ContentType:     r.Text("content_type"),
		CreatedAt:       r.Time("created_at"),
		MembersVersion:  r.Number("members_version"),
		Kind:            tidemark.KindMessage,
		Mentions:        tidemark.ParseMentions(r.Text("mentions")),
	}
	if r.Has("kind") {
		m.Kind = tidemark.Kind(r.Text("kind"))
	}
	if r.Has("attachments") {
		m.Attachments = json.RawMessage(r.Text("attachments"))
	}
	if r.Has("metadata") {
		m.Metadata = json.RawMessage(r.Text("metadata"))
	}
	return m, r.Err
}
