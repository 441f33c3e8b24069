package tidemark

import (
	"bytes"
	"encoding/json"
	"time"
)

// Draft is a message before it is stored: what the sender submitted, and what the server added.
type Draft struct {
	ChatID   ChatID
	SenderID UserID
	// ClientMessageID is the sender's idempotency key. It is an id.
	// If a sender repeats a key in a chat within 7 days, no second message is stored.
	ClientMessageID string
	// Content is UTF-8 of 1 to MaxContent bytes. It may be empty if there are attachments, and is
	// empty if Kind says nothing by itself.
	Content string
	// ContentType is a media type, "text/plain" unless the sender says otherwise.
	ContentType string
	// Attachments is a JSON array of 1 to MaxAttachments objects, of at most MaxAttachmentBytes, or
	// nil. Metadata is a JSON object of at most MaxMetadata bytes, or nil. Both are stored byte for
	// byte.
	Attachments, Metadata json.RawMessage
	Kind                  Kind
	// Relation is set if Kind.Relates, else nil. Its Target is not set.
	Relation *Relation
	// Mentions names those to whom the message is of special interest.
	Mentions Mentions
	// Sources are at most MaxAttachments messages that the sender sees, and that have the files of
	// other users which Attachments name (`attachment_sources`). They are not stored.
	Sources []MessageRef
	// ByBackend reports that a backend sends the message for SenderID. It is not stored.
	ByBackend bool
	// Unreviewed reports that the hook is not asked about the message. The field is not stored.
	Unreviewed bool
	// Importing reports that an importer moves the message into a chat that is ChatImporting. Only
	// there may it be set. It is not stored.
	Importing bool
	// Seen says what the sender had been shown (`seen_sequence`). It is not stored with the
	// message.
	Seen Seen

	// SendBy is until when the message may be stored; zero is for ever (`send_by`). It is not
	// stored with the message.
	SendBy time.Time

	// MessageID and CreatedAt come from the server. A resend returns those of the first send.
	MessageID MessageID
	// CreatedAt is in UTC with millisecond precision. It is for display only and implies no order.
	CreatedAt time.Time
}

// Seen says how far a client had shown a chat to a user when the user wrote a message. The zero
// value means that the client does not say.
type Seen struct {
	// Stated reports whether the client says it.
	Stated bool
	// Through is the highest sequence that had been shown; 0 is nothing. It counts only if Stated.
	Through Sequence
}

// SeenThrough returns what a client states: it had shown everything up to n.
func SeenThrough(n Sequence) Seen { return Seen{Stated: true, Through: n} }

// Declined reports whether the client states that nothing had been shown.
func (s Seen) Declined() bool { return s.Stated && s.Through == 0 }

// Message is a stored message. Only relations change it (Message.Revise), and only its content,
// content type, attachments, metadata, mentions and revision.
type Message struct {
	ChatID          ChatID
	Sequence        Sequence
	MessageID       MessageID
	SenderID        UserID
	ClientMessageID string
	Content         string
	ContentType     string
	Attachments     json.RawMessage
	Metadata        json.RawMessage
	Kind            Kind
	// Relation is set if Kind.Relates, else nil.
	Relation *Relation
	// Revision is nil until a relation changes the message.
	Revision  *Revision
	Mentions  Mentions
	CreatedAt time.Time

	// MembersVersion is the version of the chat's membership in the step that stored the message.
	// Only a roster of this version, or a newer one, decides who may see the message.
	// It is not on the wire.
	MembersVersion uint64
}

// Kind says what a message is. Clients store and acknowledge a kind that they do not know, but
// neither show nor count it.
type Kind string

// The kinds.
const (
	// KindMessage is what a user wrote.
	KindMessage Kind = "message"
	// KindSystem is a line about the chat, such as "alice has joined". Only backends write it.
	KindSystem Kind = "system"
	// KindEdit replaces what another message says. It has that message in its Relation.
	KindEdit Kind = "edit"
	// KindRedact removes what another message says. It has that message in its Relation.
	KindRedact Kind = "redact"
	// KindReact adds an emoji to another message, which does not change. It has that message and
	// the emoji in its Relation. It is undone by its own redaction.
	KindReact Kind = "react"
	// KindPin pins another message to the top of the chat. It has that message in its Relation. It
	// is undone by its own redaction.
	KindPin Kind = "pin"
	// KindControl is a message of the application to itself, such as the offer of a call, or a key.
	KindControl Kind = "control"
)

// Counts reports whether a message of this kind counts as unread (lifecycle.md §4).
func (k Kind) Counts() bool { return k == KindMessage }

// Shown reports whether clients show a message of this kind. What is not shown is stored, delivered
// and acknowledged as any other message. It notifies nobody, reads nothing, and is not the last
// message of a chat.
func (k Kind) Shown() bool { return k == KindMessage || k == KindSystem }

// Relates reports whether a message of this kind refers to another one (Relation): it revises or
// annotates it.
func (k Kind) Relates() bool { return k.Revises() || k.Annotates() }

// Revises reports whether a message of this kind changes another one (Message.Revise).
func (k Kind) Revises() bool { return k == KindEdit || k == KindRedact }

// Annotates reports whether a message of this kind adds something to another one, which itself does
// not change.
func (k Kind) Annotates() bool { return k == KindReact || k == KindPin }

// wordless reports whether a message of this kind has no content.
func (k Kind) wordless() bool { return k == KindRedact || k.Annotates() }

// DefaultContentType is the content type if the sender names none.
const DefaultContentType = "text/plain"

// Check returns nil if the draft can be stored, else an Invalid or TooLarge error that says what is
// wrong.
func (d *Draft) Check() error {
	if err := CheckID("chat_id", d.ChatID); err != nil {
		return err
	}
	if err := CheckID("sender_id", d.SenderID); err != nil {
		return err
	}
	if err := CheckID("client_message_id", d.ClientMessageID); err != nil {
		return err
	}
	//rule:bounded_input.limit-content
	if len(d.Content) > MaxContent {
		return BadParam(TooLarge, "content", "is %d bytes long, at most %d are allowed",
			len(d.Content), MaxContent)
	}
	if d.Content == "" && d.Attachments == nil && !d.Kind.wordless() {
		return BadParam(Invalid, "content", "is empty; a message needs content or an attachment")
	}
	if err := checkText("content", d.Content); err != nil {
		return err
	}
	if len(d.ContentType) > MaxContentType {
		return BadParam(TooLarge, "content_type", "is %d bytes long, at most %d are allowed",
			len(d.ContentType), MaxContentType)
	}
	if d.ContentType == "" {
		return BadParam(Invalid, "content_type", "is empty; leave it out for %s",
			DefaultContentType)
	}
	for _, c := range []byte(d.ContentType) {
		//rule:bounded_input.printable-content-type
		if c < ' ' || c > '~' {
			return BadParam(Invalid, "content_type",
				"holds a character that is not printable ASCII, so it is no media type")
		}
	}
	if err := d.checkRelation(); err != nil {
		return err
	}
	if err := d.Mentions.check(); err != nil {
		return err
	}
	if err := checkJSON("attachments", d.Attachments, '[', MaxAttachmentBytes); err != nil {
		return err
	}
	return checkJSON("metadata", d.Metadata, '{', MaxMetadata)
}

// checkJSON checks raw JSON that begins with an opening bracket. nil is good.
func checkJSON(field string, raw json.RawMessage, opening byte, most int) error {
	if raw == nil {
		return nil
	}
	if len(raw) > most {
		return BadParam(TooLarge, field, "is %d bytes long, at most %d are allowed",
			len(raw), most)
	}
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] != opening || !json.Valid(raw) {
		what := map[byte]string{'[': "a JSON array of objects", '{': "a JSON object"}[opening]
		return BadParam(Invalid, field, "must be %s", what)
	}
	return checkText(field, string(raw))
}

// Size returns the bytes of the draft's content, attachments and metadata.
func (d *Draft) Size() int { return len(d.Content) + len(d.Attachments) + len(d.Metadata) }

// Size returns the bytes of the content, attachments and metadata of the message and its target.
// The emoji of a reaction counts, too.
func (m *Message) Size() int {
	n := len(m.Content) + len(m.Attachments) + len(m.Metadata)
	if m.Relation == nil {
		return n
	}
	//rule:bounded_use.an-emoji-counts
	n += len(m.Relation.Emoji)
	if m.Relation.Target != nil {
		n += m.Relation.Target.Size()
	}
	return n
}

// SameAs reports whether the message may be what the draft became. Kind, related sequence and emoji
// must be equal. So must be mentions, content, content type, attachments and metadata, the latter
// four byte for byte, unless the message was changed since. An edit has them in its target, so they
// are compared with the target if this edit was the last to change it. A resend for which SameAs
// reports false is a Conflict.
func (m *Message) SameAs(d *Draft) bool {
	if m.Kind != d.Kind || !m.Relation.same(d.Relation) {
		return false
	}
	says := m
	switch {
	case m.Kind.wordless():
		return true
	case m.Kind == KindEdit:
		says = m.Relation.Target
		if says == nil || says.Revision == nil || says.Revision.Sequence != m.Sequence {
			return true
		}
	default:
		//rule:redacted_stays.resend-after-change
		if m.Revision != nil {
			return true
		}
	}
	//rule:send_idempotent.same-key-same-content
	return says.Content == d.Content && says.ContentType == d.ContentType &&
		bytes.Equal(says.Attachments, d.Attachments) &&
		bytes.Equal(says.Metadata, d.Metadata) && says.Mentions.equal(d.Mentions)
}

// Repeats returns nil if the message is SameAs a draft with its key, else a Conflict.
func (m *Message) Repeats(d *Draft) error {
	if m.SameAs(d) {
		return nil
	}
	return Errorf(Conflict, "the client_message_id %s was used for another message in this chat",
		d.ClientMessageID)
}

// LateAt reports whether the draft's SendBy is before t.
func (d *Draft) LateAt(t time.Time) bool { return !d.SendBy.IsZero() && d.SendBy.Before(t) }

// Message returns the stored form of the draft at its sequence in the chat. A relation is stored
// without what it says about its target: only that has it (Message.Revise).
func (d *Draft) Message(sequence Sequence, membersVersion uint64) Message {
	if d.Kind.Relates() {
		return Message{
			ChatID:          d.ChatID,
			Sequence:        sequence,
			MessageID:       d.MessageID,
			SenderID:        d.SenderID,
			ClientMessageID: d.ClientMessageID,
			ContentType:     DefaultContentType,
			Kind:            d.Kind,
			Relation:        &Relation{Sequence: d.Relation.Sequence, Emoji: d.Relation.Emoji},
			CreatedAt:       d.CreatedAt,
			MembersVersion:  membersVersion,
		}
	}
	return Message{
		ChatID:          d.ChatID,
		Sequence:        sequence,
		MessageID:       d.MessageID,
		SenderID:        d.SenderID,
		ClientMessageID: d.ClientMessageID,
		Content:         d.Content,
		ContentType:     d.ContentType,
		Attachments:     d.Attachments,
		Metadata:        d.Metadata,
		Kind:            d.Kind,
		Mentions:        d.Mentions,
		CreatedAt:       d.CreatedAt,
		MembersVersion:  membersVersion,
	}
}
