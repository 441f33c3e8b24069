package tidemark

import (
	"slices"
	"strings"
)

// Mentions names the users to whom a message is of special interest. The zero value names nobody.
// A message that counts as unread for a user also counts as a mention if it names them.
type Mentions struct {
	// All names all members of the chat.
	All bool
	// Users are ascending and distinct, and at most MaxMentions. They need not be members.
	Users []UserID
}

// NewMentions returns the mentions of some users, sorted and without duplicates.
func NewMentions(all bool, users []UserID) Mentions {
	users = slices.Clone(users)
	slices.Sort(users)
	return Mentions{All: all, Users: slices.Compact(users)}
}

// None reports whether nobody is named.
func (m Mentions) None() bool { return !m.All && len(m.Users) == 0 }

// Name reports whether a user is named.
func (m Mentions) Name(user UserID) bool {
	if m.All {
		return true
	}
	_, found := slices.BinarySearch(m.Users, user)
	return found
}

func (m Mentions) equal(other Mentions) bool {
	return m.All == other.All && slices.Equal(m.Users, other.Users)
}

// check returns nil if the users are ids, ascending, distinct and few enough.
func (m Mentions) check() error {
	if len(m.Users) > MaxMentions {
		return BadParam(Invalid, "mentions", "names %d users, at most %d are allowed",
			len(m.Users), MaxMentions)
	}
	for i, user := range m.Users {
		if err := CheckID("mentions", user); err != nil {
			return err
		}
		if i > 0 && m.Users[i-1] >= user {
			return BadParam(Invalid, "mentions", "must ascend, and name each user once")
		}
	}
	return nil
}

// everyone stands for all members in a text. No id contains it.
const everyone = "*"

// Text returns the mentions as they are stored: ids with blanks between them, first * for all. It
// is "" for none.
func (m Mentions) Text() string {
	names := make([]string, 0, len(m.Users)+1)
	if m.All {
		names = append(names, everyone)
	}
	for _, user := range m.Users {
		names = append(names, string(user))
	}
	return strings.Join(names, " ")
}

// ParseMentions returns the mentions in a text.
func ParseMentions(text string) Mentions {
	var m Mentions
	if text == "" {
		return m
	}
	for name := range strings.SplitSeq(text, " ") {
		if name == everyone {
			m.All = true
		} else {
			m.Users = append(m.Users, UserID(name))
		}
	}
	return m
}
