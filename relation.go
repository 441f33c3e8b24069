package tidemark

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

const (
	// MaxEdits is how often a message may be edited.
	MaxEdits = 100
	// MaxRedactions is how many messages a redaction may name.
	MaxRedactions = 100
)

// Relation says which message of the same chat another one changes or annotates (lifecycle.md §2).
type Relation struct {
	// Sequence is that of the target. It is below the sequence of the message with the relation. It
	// is 0 if there are Sequences.
	Sequence Sequence
	// Sequences are those of the targets of a redaction that names a list, else nil: 1 to
	// MaxRedactions, which ascend. Such a relation has no Target. It says that nothing
	// of these messages is left.
	Sequences []Sequence
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
	return r.Sequence == other.Sequence && r.Emoji == other.Emoji &&
		slices.Equal(r.Sequences, other.Sequences)
}

// Named returns the sequences of all targets. They ascend.
func (r *Relation) Named() []Sequence {
	if len(r.Sequences) > 0 {
		return r.Sequences
	}
	return []Sequence{r.Sequence}
}

// Has reports whether the relation names a message.
func (r *Relation) Has(n Sequence) bool {
	if r.Sequences == nil {
		return r.Sequence == n
	}
	_, found := slices.BinarySearch(r.Sequences, n)
	return found
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
	case d.Relation.Sequences != nil:
		if err := d.checkList(); err != nil {
			return err
		}
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

// checkList returns nil if a draft may name its list of messages.
func (d *Draft) checkList() error {
	const field = "relation.sequences"
	named := d.Relation.Sequences
	switch {
	case d.Kind != KindRedact:
		return BadParam(Invalid, field,
			"does not belong to the kind %s; leave it out, or send the kind %s", d.Kind, KindRedact)
	case d.Relation.Sequence != 0:
		return BadParam(Invalid, field, "is a second way to name messages, beside sequence; leave "+
			"out one of both")
	case d.Relation.Emoji != "":
		return BadParam(Invalid, "relation.emoji", "does not belong to the kind %s; leave it out",
			d.Kind)
	//rule:bounded_input.limit-redactions
	case len(named) == 0 || len(named) > MaxRedactions:
		return BadParam(Invalid, field, "must name 1 to %d messages, not %d", MaxRedactions,
			len(named))
	}
	for i, n := range named {
		//rule:redacted_stays.list-ascends
		if n < 1 || n > MaxSequence || i > 0 && n <= named[i-1] {
			return BadParam(Invalid, element(field, i), "must be from 1 to %d, and above the one "+
				"before", MaxSequence)
		}
	}
	return nil
}

// element returns the name of an element of an array.
func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// Targets returns the messages that the step which stores the draft reads. Those of an edit or a
// redaction are changed. There are none if the server announces an erasure: it has wiped them
// before.
func (d *Draft) Targets() []Sequence {
	//rule:erasure_is_announced.changes-nothing
	if d.Relation == nil || d.ByServer {
		return nil
	}
	return d.Relation.Named()
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

// noTarget returns the error that the chat does not have a message of the draft's relation.
func noTarget(field string, n Sequence) error {
	return BadParam(NotFound, field, "is %d, but the chat has no such message", n)
}

// TargetField returns the name of the field that has target i of the draft's Targets.
func (d *Draft) TargetField(i int) string {
	if d.Relation != nil && d.Relation.Sequences != nil {
		return element("relation.sequences", i)
	}
	return "relation.sequence"
}

// MayRevise returns nil if the draft, an edit or a redaction, may change its Targets. targets has
// one for each of them, in order. role is the sender's role in the chat, and in is the type of the
// chat. A nil target means that the chat has no such message. The error is that of the first target
// that may not be changed, and its parameter names that.
//
// Its author may edit and redact a message, unless it is a line of the system. Owners and admins of
// a group may redact it, and backends may do both. Users who may pin messages may redact a pin.
//
// NotFound: a target is nil. Denied: the sender may not change it. Conflict: the target is an edit
// or a redaction itself, an annotation in a list, or an annotation that was redacted before. For an
// edit also: the target is an annotation, was redacted, or has been edited MaxEdits times.
func (d *Draft) MayRevise(targets []*Message, role Role, in ChatType) error {
	for i, n := range d.Targets() {
		if err := d.mayRevise(targets[i], n, d.TargetField(i), role, in); err != nil {
			return err
		}
	}
	return nil
}

// mayRevise is MayRevise for message n, which a field names.
func (d *Draft) mayRevise(
	target *Message, n Sequence, field string, role Role, in ChatType,
) error {
	if target == nil {
		return noTarget(field, n)
	}
	if err := d.mayChange(target, field, role, in); err != nil {
		return err
	}
	switch {
	case target.Kind.Revises():
		return BadParam(Conflict, field, "is a message of the kind %s, which "+
			"cannot be changed; name the message that it changes", target.Kind)
	case target.Kind.Annotates() && d.Kind == KindEdit:
		return BadParam(Conflict, field, "is a message of the kind %s, which "+
			"cannot be edited; redact it, and send another one", target.Kind)
	//rule:annotations_counted.undone-one-by-one
	case target.Kind.Annotates() && d.Relation.Sequences != nil:
		return BadParam(Conflict, field, "is a message of the kind %s, which a list cannot "+
			"name; redact it by itself", target.Kind)
	//rule:annotations_counted.undone-once
	case target.Kind.Annotates() && target.Redacted():
		return BadParam(Conflict, field, "was undone already, by message %d",
			target.Revision.Sequence)
	case d.Kind == KindRedact:
		return nil
	}
	//rule:redacted_stays.no-edit-of-redacted
	if target.Redacted() {
		return BadParam(Conflict, field, "was redacted, so it cannot be edited")
	}
	//rule:bounded_use.limit-edits
	if target.Revision != nil && target.Revision.Edits >= MaxEdits {
		return BadParam(Conflict, field, "has been edited %d times, which is the "+
			"limit; send a new message", MaxEdits)
	}
	return nil
}

// mayChange returns Denied if the sender of the draft, an edit or a redaction, may not change
// target.
func (d *Draft) mayChange(target *Message, field string, role Role, in ChatType) error {
	// Backends write the lines of the system, in the name of a member.
	own := target.SenderID == d.SenderID && target.Kind != KindSystem
	switch {
	case d.ByBackend:
		return nil
	//rule:caller_does_only_what_they_may.owners-undo-pins
	case target.Kind == KindPin && d.Kind == KindRedact:
		if !role.MayPin(in) {
			return BadParam(Denied, field, "is a pin, which only owners and admins "+
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
	return BadParam(Denied, field, "is a message of another user, or a line of "+
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

// bare returns the relation without its target.
func (r *Relation) bare() *Relation {
	return &Relation{Sequence: r.Sequence, Sequences: r.Sequences, Emoji: r.Emoji}
}

// WithoutTarget returns the message with a relation that has no target, for a reader who may not
// see the target.
func (m *Message) WithoutTarget() Message {
	bare := *m
	if m.Relation != nil {
		bare.Relation = m.Relation.bare()
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
