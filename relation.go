package tidemark

import (
	"encoding/json"
	"time"
)

// MaxEdits is how often a message may be edited.
const MaxEdits = 100

// Relation says which message of the same chat another one changes or annotates (lifecycle.md §2).
type Relation struct {
	// Sequence is that of the target. It is below the sequence of the message with the relation.
	Sequence Sequence
	// Emoji is that of a reaction, else "". It stays when the reaction is redacted, so that those
	// who have counted it know what to take back.
	Emoji string
	// Target is the message as it is now, not as it was after the relation. It is nil if it was not
	// read, if the reader may not see it, and always if the message annotates it (Kind.Annotates).
	Target *Message
}

// same reports whether two relations say the same of the same target.
func (r *Relation) same(other *Relation) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.Sequence == other.Sequence && r.Emoji == other.Emoji
}

// Revision says what changed a message last.
type Revision struct {
	// Sequence is that of the relation. A revision of a higher sequence is newer.
	Sequence Sequence
	// Kind is KindEdit or KindRedact.
	Kind Kind
	// By is the sender of the relation, and At its time.
	By UserID
	At time.Time
	// Edits is how often the message has been edited. It is not on the wire.
	Edits int
}

// Redacted reports whether what the message said was removed.
func (m *Message) Redacted() bool { return m.Revision != nil && m.Revision.Kind == KindRedact }

// checkRelation returns nil if the draft's kind is known, and its relation and what it says fit the
// kind.
func (d *Draft) checkRelation() error {
	switch {
	case d.Kind.Shown() || d.Kind == KindControl:
		if d.Relation != nil {
			return BadParam(Invalid, "relation", "does not belong to the kind %s; leave it out, "+
				"or send the kind %s, %s, %s or %s", d.Kind, KindEdit, KindRedact, KindReact,
				KindPin)
		}
		return nil
	case !d.Kind.Relates():
		return BadParam(Invalid, "kind", "must be %s, %s, %s, %s, %s, %s or %s",
			KindMessage, KindSystem, KindEdit, KindRedact, KindReact, KindPin, KindControl)
	case d.Relation == nil:
		return BadParam(Invalid, "relation", "is missing; the kind %s needs the sequence of the "+
			"message that it is about", d.Kind)
	case d.Relation.Sequence < 1 || d.Relation.Sequence > MaxSequence:
		return BadParam(Invalid, "relation.sequence", "must be from 1 to %d", MaxSequence)
	case d.Kind == KindReact:
		if err := CheckEmoji("relation.emoji", d.Relation.Emoji); err != nil {
			return err
		}
	case d.Relation.Emoji != "":
		return BadParam(Invalid, "relation.emoji", "does not belong to the kind %s; leave it out, "+
			"or send the kind %s", d.Kind, KindReact)
	}
	if field := d.says(); d.Kind.wordless() && field != "" {
		return BadParam(Invalid, field, "does not belong to the kind %s, which has no content, "+
			"attachments, metadata and mentions", d.Kind)
	}
	return nil
}

// says returns the first field in which the draft says something, or "" if it says nothing.
func (d *Draft) says() string {
	switch {
	case d.Content != "":
		return "content"
	case d.Attachments != nil:
		return "attachments"
	case d.Metadata != nil:
		return "metadata"
	case !d.Mentions.None():
		return "mentions"
	}
	return ""
}

// noTarget returns the error that the chat does not have the message of the draft's relation.
func (d *Draft) noTarget() error {
	return BadParam(NotFound, "relation.sequence", "is %d, but the chat has no such message",
		d.Relation.Sequence)
}

// MayRevise returns nil if the draft, an edit or a redaction, may change target. role is the
// sender's role in the chat, and in is the type of the chat. A nil target means that the chat has
// no such message.
//
// Its author may edit and redact a message, unless it is a line of the system. Owners and admins of
// a group may redact it, and backends may do both. Users who may pin messages may redact a pin.
//
// NotFound: the target is nil. Denied: the sender may not change it. Conflict: the target is an
// edit or a redaction itself, or an annotation that was redacted before. For an edit also: the
// target is an annotation, was redacted, or has been edited MaxEdits times.
func (d *Draft) MayRevise(target *Message, role Role, in ChatType) error {
	if target == nil {
		return d.noTarget()
	}
	if err := d.mayChange(target, role, in); err != nil {
		return err
	}
	switch {
	case target.Kind.Revises():
		return BadParam(Conflict, "relation.sequence", "is a message of the kind %s, which "+
			"cannot be changed; name the message that it changes", target.Kind)
	case target.Kind.Annotates() && d.Kind == KindEdit:
		return BadParam(Conflict, "relation.sequence", "is a message of the kind %s, which "+
			"cannot be edited; redact it, and send another one", target.Kind)
	//rule:annotations_counted.undone-once
	case target.Kind.Annotates() && target.Redacted():
		return BadParam(Conflict, "relation.sequence", "was undone already, by message %d",
			target.Revision.Sequence)
	case d.Kind == KindRedact:
		return nil
	}
	//rule:redacted_stays.no-edit-of-redacted
	if target.Redacted() {
		return BadParam(Conflict, "relation.sequence", "was redacted, so it cannot be edited")
	}
	//rule:bounded_use.limit-edits
	if target.Revision != nil && target.Revision.Edits >= MaxEdits {
		return BadParam(Conflict, "relation.sequence", "has been edited %d times, which is the "+
			"limit; send a new message", MaxEdits)
	}
	return nil
}

// mayChange returns Denied if the sender of the draft, an edit or a redaction, may not change
// target.
func (d *Draft) mayChange(target *Message, role Role, in ChatType) error {
	// Backends write the lines of the system, in the name of a member.
	own := target.SenderID == d.SenderID && target.Kind != KindSystem
	switch {
	case d.ByBackend:
		return nil
	//rule:caller_does_only_what_they_may.owners-undo-pins
	case target.Kind == KindPin && d.Kind == KindRedact:
		if !role.MayPin(in) {
			return BadParam(Denied, "relation.sequence", "is a pin, which only owners and admins "+
				"of the group may undo")
		}
		return nil
	//rule:caller_does_only_what_they_may.authors-change-their-own
	case own:
		return nil
	//rule:caller_does_only_what_they_may.no-owner-of-a-direct-chat
	case d.Kind == KindRedact && in == Group && role.Manages(Ordinary):
		return nil
	}
	return BadParam(Denied, "relation.sequence", "is a message of another user, or a line of "+
		"the system; only its author may edit it, and only its author, or an owner or an admin of "+
		"a group, may redact it")
}

// Revise returns the message after a draft, an edit or a redaction that was stored at a sequence. A
// message that was redacted stays as it is. A reaction or pin keeps its relation.
func (m *Message) Revise(d *Draft, sequence Sequence) Message {
	revised := *m
	//rule:redacted_stays.first-redaction-stays
	if m.Redacted() {
		return revised
	}
	r := Revision{Sequence: sequence, Kind: d.Kind, By: d.SenderID, At: d.CreatedAt}
	if m.Revision != nil {
		r.Edits = m.Revision.Edits
	}
	if d.Kind == KindEdit {
		r.Edits++
	}
	revised.Revision = &r
	//rule:redacted_stays.nothing-is-left
	revised.Content, revised.ContentType = d.Content, d.ContentType
	revised.Attachments, revised.Metadata = d.Attachments, d.Metadata
	revised.Mentions = d.Mentions
	if d.Kind == KindRedact {
		revised.ContentType = DefaultContentType
	}
	return revised
}

// WithoutTarget returns the message with a relation that has no target, for a reader who may not
// see the target.
func (m *Message) WithoutTarget() Message {
	bare := *m
	if m.Relation != nil {
		bare.Relation = &Relation{Sequence: m.Relation.Sequence, Emoji: m.Relation.Emoji}
	}
	return bare
}

// storedRevision is the stored form of a Revision.
type storedRevision struct {
	Sequence Sequence `json:"sequence"`
	Kind     Kind     `json:"kind"`
	By       UserID   `json:"by"`
	At       int64    `json:"at"` // milliseconds since 1970
	Edits    int      `json:"edits"`
}

// Text returns the revision as it is stored: a JSON object, or "" for nil.
func (r *Revision) Text() string {
	if r == nil {
		return ""
	}
	b, err := json.Marshal(storedRevision{r.Sequence, r.Kind, r.By, r.At.UnixMilli(), r.Edits})
	if err != nil {
		return "" // Its fields are numbers and texts.
	}
	return string(b)
}

// ParseRevision returns the revision of a Text, and nil for "".
func ParseRevision(text string) (*Revision, error) {
	if text == "" {
		return nil, nil
	}
	var s storedRevision
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, Wrap(Internal, err, "the revision of a message is damaged")
	}
	return &Revision{s.Sequence, s.Kind, s.By, time.UnixMilli(s.At).UTC(), s.Edits}, nil
}
