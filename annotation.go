package tidemark

import (
	"unicode"
	"unicode/utf8"
)

const (
	// MaxEmoji is the greatest length of an emoji, in bytes.
	MaxEmoji = 64
	// MaxReactions is how many reactions of one user may stand on a message.
	MaxReactions = 20
	// MaxPins is how many messages of a chat may be pinned.
	MaxPins = 50
)

// Standing says which annotations stand in the step that stores another one. An annotation stands
// until it is redacted, or until its target expires.
type Standing struct {
	// Same is the sequence of an equal annotation, or 0 if there is none. For a reaction, that is
	// the sender's own with this emoji to the target. For a pin, it is the pin of the target.
	Same Sequence
	// Count is how many annotations count against the limit. For a reaction, these are the
	// reactions of the sender to the target. For a pin, they are the pins of the chat.
	Count int
}

// CheckEmoji returns nil if a reaction can have this emoji. No list of emoji is consulted. So it
// may be any text of up to MaxEmoji bytes without white space and control characters, in which
// something can be seen.
func CheckEmoji(field, emoji string) error {
	if emoji == "" {
		return BadParam(Invalid, field, "is missing; a reaction needs an emoji")
	}
	//rule:bounded_input.limit-emoji
	if len(emoji) > MaxEmoji {
		return BadParam(Invalid, field, "is %d bytes long, at most %d are allowed", len(emoji),
			MaxEmoji)
	}
	if !utf8.ValidString(emoji) {
		return BadParam(Invalid, field, "is not valid UTF-8")
	}
	seen := false
	for _, r := range emoji {
		//rule:bounded_input.no-text-in-an-emoji
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return BadParam(Invalid, field, "holds white space or a control character, which no "+
				"emoji has")
		}
		seen = seen || !invisible(r)
	}
	//rule:bounded_input.no-invisible-emoji
	if !seen {
		return BadParam(Invalid, field, "has no character that can be seen")
	}
	return nil
}

// invisible reports whether nobody sees a character that stands alone: joiners, directions, tags,
// variation selectors, combining marks, fillers and blanks. What Unicode does not know yet is
// visible, because it may be a new emoji.
func invisible(r rune) bool {
	const brailleBlank = '\u2800'
	return r == brailleBlank || unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me,
		unicode.Other_Default_Ignorable_Code_Point)
}

// MayAnnotate returns nil if the draft, a reaction or a pin, may name target. role is the sender's
// role in the chat, and in is the type of the chat. A nil target means that the chat has no such
// message. Standing.Allows decides the rest.
//
// NotFound: the target is nil. Denied: the sender may not pin. Conflict: the target is no message
// that is shown, or it was redacted.
func (d *Draft) MayAnnotate(target *Message, role Role, in ChatType) error {
	if target == nil {
		return noTarget("relation.sequence", d.Relation.Sequence)
	}
	//rule:caller_does_only_what_they_may.owners-pin
	if d.Kind == KindPin && !d.ByBackend && !role.MayPin(in) {
		return BadParam(Denied, "kind", "is %s, which only owners and admins of the group may send",
			KindPin)
	}
	if !target.Kind.Shown() {
		return BadParam(Conflict, "relation.sequence", "is a message of the kind %s, which is not "+
			"shown, so it cannot get a %s", target.Kind, d.Kind)
	}
	//rule:redacted_stays.no-annotation-of-redacted
	if target.Redacted() {
		return BadParam(Conflict, "relation.sequence", "was redacted, so it cannot get a %s",
			d.Kind)
	}
	return nil
}

// Allows returns nil if a reaction or pin may be stored beside those that stand, else a Conflict.
func (s Standing) Allows(d *Draft) error {
	switch {
	//rule:annotations_counted.once-per-user-and-emoji
	case s.Same != 0 && d.Kind == KindReact:
		return BadParam(Conflict, "relation.emoji", "stands already: you reacted with it by "+
			"message %d", s.Same)
	//rule:annotations_counted.pinned-once
	case s.Same != 0:
		return BadParam(Conflict, "relation.sequence", "is pinned already, by message %d", s.Same)
	//rule:bounded_use.limit-reactions
	case d.Kind == KindReact && s.Count >= MaxReactions:
		return BadParam(Conflict, "relation.sequence", "has %d reactions of yours, which is the "+
			"limit; redact one of them first", s.Count)
	//rule:bounded_use.limit-pins
	case d.Kind == KindPin && s.Count >= MaxPins:
		return BadParam(Conflict, "relation.sequence", "would be pinned beside %d messages, which "+
			"is the limit; redact one of the pins first", s.Count)
	}
	return nil
}
