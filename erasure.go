package tidemark

import (
	"slices"
	"strings"
	"time"
)

// Erasure says who is forgotten in a chat, and which id their messages get.
type Erasure struct {
	User UserID
	// Alias takes the place of the user's id. It is another one in each chat, and no user has it
	// (ErasedID).
	Alias UserID
	// At becomes the time of the redactions.
	At time.Time
}

// ErasedEmoji takes the place of an erased user's emoji.
const ErasedEmoji = "×"

// ErasedID returns an id that takes the place of a user's. ValidID refuses it, so no user has it.
// random has letters and digits, and at most MaxIDLength less the prefix "erased:".
func ErasedID(random string) UserID { return reservedIDs + UserID(random) }

// Touched says what Message.Erase has changed.
type Touched uint8

const (
	// Untouched is a message that has nothing of the user.
	Untouched Touched = iota
	// Renamed is a message that names the alias now, and says what it said before.
	Renamed
	// Wiped is a message that says nothing any more.
	Wiped
)

// Erase returns the message without anything of the user, and says what changed. head is that of
// the chat. Repeating it changes nothing more.
//
//   - What the user wrote is wiped as by a redaction. Its Revision is above all earlier ones. The
//     message keeps its sequence and its kind, so no count changes.
//   - The sender becomes the alias, and the idempotency key the id of the message.
//   - A line of the system that names the user is wiped.
//   - In messages of others, mentions and revisions name the alias. What others wrote stays.
func (m *Message) Erase(e Erasure, head Sequence) (Message, Touched) {
	erased, touched := *m, Untouched
	own := m.SenderID == e.User
	//rule:erased_nowhere.sender-and-key
	if own {
		touched = Renamed
		erased.SenderID, erased.ClientMessageID = e.Alias, string(m.MessageID)
	}
	if m.Revision != nil && m.Revision.By == e.User {
		touched = Renamed
		r := *m.Revision
		//rule:erased_nowhere.who-revised
		r.By = e.Alias
		erased.Revision = &r
	}
	if named := slices.Index(m.Mentions.Users, e.User); named >= 0 {
		touched = Renamed
		users := slices.Clone(m.Mentions.Users)
		//rule:erased_nowhere.mentions-in-messages
		users[named] = e.Alias
		erased.Mentions = NewMentions(m.Mentions.All, users)
	}
	//rule:erased_nowhere.lines-of-the-system
	line := m.Kind == KindSystem && m.names(e.User)
	if !m.Redacted() && (line || own && !m.Kind.Revises() && m.Kind != KindPin) {
		touched = Wiped
		erased.wipe(e, head)
	}
	if own && m.Kind == KindReact {
		//rule:erased_nowhere.emoji
		erased.Relation = &Relation{Sequence: m.Relation.Sequence, Emoji: ErasedEmoji}
	}
	return erased, touched
}

// Erased reports whether a message was wiped by this erasure, now or in an earlier call.
func (m *Message) Erased(e Erasure) bool {
	//rule:erasure_is_announced.what-was-wiped
	return m.Redacted() && m.Revision.By == e.Alias && m.Revision.At.Equal(e.At)
}

// wipe removes what the message says. A clean-up of a message that was revised by the chat's last
// message needs a higher revision than that. Nothing can revise the message later.
func (m *Message) wipe(e Erasure, head Sequence) {
	r := Revision{Sequence: head, Kind: KindRedact, By: e.Alias, At: e.At}
	if m.Revision != nil {
		//rule:erased_nowhere.a-higher-revision
		r.Sequence, r.Edits = max(head, m.Revision.Sequence+1), m.Revision.Edits
	}
	m.Revision = &r
	//rule:erased_nowhere.nothing-is-left
	m.Content, m.ContentType = "", DefaultContentType
	m.Attachments, m.Metadata, m.Mentions = nil, nil, Mentions{}
}

// names reports whether a line of the system is about a user: it mentions them, or has their id
// among its words.
func (m *Message) names(user UserID) bool {
	return slices.Contains(m.Mentions.Users, user) ||
		hasWord(m.Content, string(user)) ||
		hasWord(string(m.Metadata), string(user)) || hasWord(string(m.Attachments), string(user))
}

// hasWord reports whether a text has a word, with no letter and no digit beside it.
func hasWord(text, word string) bool {
	for from := 0; ; from++ {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return false
		}
		from += at
		if !endsWord(text[:from]) && !beginsWord(text[from+len(word):]) {
			return true
		}
	}
}

func endsWord(s string) bool   { return s != "" && alphanumeric(s[len(s)-1]) }
func beginsWord(s string) bool { return s != "" && alphanumeric(s[0]) }

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
