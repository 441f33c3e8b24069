package record

import (
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// MessageItem returns the item of a draft at its sequence in the chat. life is the number of the
// present life of the data.
func MessageItem(
	d *tidemark.Draft, sequence tidemark.Sequence, version uint64, life int64,
) call.Item {
	m := d.Message(sequence, version)
	it := itemOf(&m)
	//rule:restore_is_noticed.message-has-its-life-in-dynamodb
	if life > 1 {
		it["life"] = call.Number(life)
	}
	return it
}

// CopiedItem returns a message that a life of the data has stored, as an item.
func CopiedItem(m *tidemark.Message, life int64) call.Item {
	it := itemOf(m)
	if life > 1 {
		it["life"] = call.Number(life)
	}
	return it
}

// itemOf returns a message as an item, without its life.
func itemOf(m *tidemark.Message) call.Item {
	it := call.Item{
		"chat_id": call.Text(m.ChatID), "sequence": call.Number(m.Sequence),
		"message_id": call.Text(m.MessageID), "sender_id": call.Text(m.SenderID),
		"client_message_id": call.Text(m.ClientMessageID),
		"content":           call.Text(storage.ContentOf(m)),
		"content_type":      call.Text(m.ContentType),
		"created_at":        call.Number(m.CreatedAt.UnixMilli()),
		"members_version":   call.Number(m.MembersVersion),
	}
	if m.Attachments != nil {
		it["attachments"] = call.Text(string(m.Attachments))
	}
	if m.Metadata != nil {
		it["metadata"] = call.Text(string(m.Metadata))
	}
	if m.Kind != tidemark.KindMessage {
		it["kind"] = call.Text(m.Kind)
	}
	if m.Relation != nil {
		it["relation"] = call.Number(storage.RelatedTo(m.Relation))
	}
	if m.Revision != nil {
		it["revision"] = call.Text(m.Revision.Text())
	}
	if !m.Mentions.None() {
		it["mentions"] = call.Text(m.Mentions.Text())
	}
	return it
}

// revised are the attributes of a message's item that relations change (tidemark.Message.Revise).
var revised = []string{
	//rule:redacted_stays.nothing-is-left-in-dynamodb
	"content",
	"content_type", "attachments", "metadata", "mentions", "revision",
}

// Revision returns the change of an item that was read to what its message has become. The item
// must still have the revision that was read.
func Revision(m *tidemark.Message, read call.Item) call.Update {
	return update(m, read, revised)
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
	if r.Has("relation") {
		m.Relation = &tidemark.Relation{Sequence: r.Sequence("relation")}
	}
	if err := storage.TakeRelation(&m); err != nil {
		return m, err
	}
	revision, err := tidemark.ParseRevision(r.Text("revision"))
	if err != nil {
		return m, err
	}
	m.Revision = revision
	if r.Has("attachments") {
		m.Attachments = json.RawMessage(r.Text("attachments"))
	}
	if r.Has("metadata") {
		m.Metadata = json.RawMessage(r.Text("metadata"))
	}
	return m, r.Err
}

// clockSlack is more than the clocks of two processes may differ.
const clockSlack = time.Hour

// Young reports whether a message is too young to have expired. Otherwise the floor of its chat
// decides.
func Young(m *tidemark.Message) bool {
	return time.Since(m.CreatedAt) < storage.MinAge-clockSlack
}
