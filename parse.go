package tidemark

import (
	"encoding/json"
	"errors"
	"time"
)

// ParseMessage parses a message as Message.AppendJSON writes it. It returns an error unless the
// message has a chat, a sequence, an id and a sender.
func ParseMessage(raw json.RawMessage) (Message, error) {
	var w struct {
		ChatID          ChatID          `json:"chat_id"`
		Sequence        Sequence        `json:"sequence"`
		MessageID       MessageID       `json:"message_id"`
		SenderID        UserID          `json:"sender_id"`
		ClientMessageID string          `json:"client_message_id"`
		Content         string          `json:"content"`
		ContentType     string          `json:"content_type"`
		Attachments     json.RawMessage `json:"attachments"`
		Metadata        json.RawMessage `json:"metadata"`
		Kind            Kind            `json:"kind"`
		Relation        *struct {
			Sequence  Sequence        `json:"sequence"`
			Sequences []Sequence      `json:"sequences"`
			Emoji     string          `json:"emoji"`
			Target    json.RawMessage `json:"target"`
		} `json:"relation"`
		Revision *struct {
			Sequence Sequence  `json:"sequence"`
			Kind     Kind      `json:"kind"`
			By       UserID    `json:"by"`
			At       time.Time `json:"revised_at"`
		} `json:"revision"`
		Mentions *struct {
			All   bool     `json:"all"`
			Users []UserID `json:"user_ids"`
		} `json:"mentions"`
		CreatedAt      time.Time `json:"created_at"`
		MembersVersion uint64    `json:"members_version"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return Message{}, err
	}
	if w.ChatID == "" || w.Sequence == 0 || w.MessageID == "" || w.SenderID == "" {
		return Message{}, errors.New("a message without chat, sequence, id or sender")
	}
	m := Message{
		ChatID: w.ChatID, Sequence: w.Sequence, MessageID: w.MessageID, SenderID: w.SenderID,
		ClientMessageID: w.ClientMessageID, Content: w.Content, ContentType: w.ContentType,
		Attachments: unless(w.Attachments, "[]"), Metadata: unless(w.Metadata, "null"),
		Kind: w.Kind, CreatedAt: w.CreatedAt, MembersVersion: w.MembersVersion,
	}
	if w.Relation != nil {
		m.Relation = &Relation{
			Sequence: w.Relation.Sequence, Sequences: w.Relation.Sequences, Emoji: w.Relation.Emoji,
		}
		if w.Relation.Sequences != nil {
			m.Relation.Sequence = 0 // JSON has the first of the list there.
		}
		if target := unless(w.Relation.Target, "null"); target != nil {
			parsed, err := ParseMessage(target)
			if err != nil {
				return Message{}, err
			}
			m.Relation.Target = &parsed
		}
	}
	if r := w.Revision; r != nil {
		m.Revision = &Revision{Sequence: r.Sequence, Kind: r.Kind, By: r.By, At: r.At}
	}
	if w.Mentions != nil {
		m.Mentions = NewMentions(w.Mentions.All, w.Mentions.Users)
	}
	return m, nil
}

// unless returns raw, or nil if it is absent, null or what stands for nothing.
func unless(raw json.RawMessage, nothing string) json.RawMessage {
	if s := string(raw); s == "" || s == "null" || s == nothing {
		return nil
	}
	return raw
}
