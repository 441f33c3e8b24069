package storage

import (
	"bytes"

	"github.com/tidemark-im/tidemark"
)

// Apply returns the member after the change. It reports whether anything changed.
func (c *MemberChange) Apply(m tidemark.Member) (after tidemark.Member, changed bool) {
	if c.Role != "" && c.Role != m.Role {
		m.Role, changed = c.Role, true
	}
	if c.Metadata != nil && !bytes.Equal(c.Metadata, m.Metadata) {
		m.Metadata, changed = c.Metadata, true
		if len(c.Metadata) == 0 {
			m.Metadata = nil
		}
	}
	return m, changed
}

// StopsOwning reports whether the change takes the role of an owner away.
func (c *MemberChange) StopsOwning(m tidemark.Member) bool {
	return m.Role == tidemark.Owner && c.Role != "" && c.Role != tidemark.Owner
}

// Heir returns who must become an owner in the step in which the user stops being one but stays a
// member, or nil if another owner remains. Denied: nobody can succeed the user.
func Heir(roster *tidemark.Roster, user tidemark.UserID) (*tidemark.Member, error) {
	heir, found, needed := roster.Successor(user)
	switch {
	case !needed:
		return nil, nil
	//rule:owner_always.last-owner-stays
	case !found:
		return nil, tidemark.BadParam(tidemark.Denied, "role",
			"cannot change: %s is the last owner, and no admin or member can succeed them", user)
	}
	return &heir, nil
}

// NotSender returns why the draft of a user who may not send was refused: NotMember, or Denied for
// a current member, who is then a reader.
func NotSender(chat tidemark.ChatID, user tidemark.UserID, current bool) error {
	if !current {
		return tidemark.Errorf(tidemark.NotMember, "%s is not a member of the chat %s", user, chat)
	}
	return tidemark.Errorf(tidemark.Denied,
		"%s is a reader of the chat %s, and readers may not send", user, chat)
}
