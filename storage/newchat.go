package storage

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Check returns Invalid if the chat cannot be created. It checks the id, the name, the type, the
// history and the number of members. It does not check the ids of the members, nor that they are
// distinct: the caller has done so.
func (n *NewChat) Check() error {
	if err := tidemark.CheckID("chat_id", n.ID); err != nil {
		return err
	}
	if err := tidemark.CheckChatName(n.Name); err != nil {
		return err
	}
	if err := tidemark.CheckMetadata(n.Metadata); err != nil {
		return err
	}
	caller := ""
	if n.Creator != "" {
		caller = "and the caller "
	}
	switch {
	case n.State != tidemark.ChatLive && n.State != tidemark.ChatImporting:
		return tidemark.Errorf(tidemark.Invalid, "a new chat cannot have the state %q", n.State)
	case n.History != tidemark.HistoryFull && n.History != tidemark.HistorySinceJoin:
		return tidemark.BadParam(tidemark.Invalid, "history", "must be full or since_join")
	case n.Type != tidemark.Direct && n.Type != tidemark.Group:
		return tidemark.BadParam(tidemark.Invalid, "type", "must be direct or group")
	case n.Type == tidemark.Direct && len(n.Members) != 2 && n.Creator == "":
		return tidemark.BadParam(tidemark.Invalid, "member_ids",
			"must name two users: a direct chat has two members")
	case n.Type == tidemark.Direct && len(n.Members) != 2:
		return tidemark.Errorf(tidemark.Invalid,
			"a direct chat has two members: name exactly one other user in member_ids")
	case len(n.Members) > tidemark.MaxMembersPerCall:
		return tidemark.BadParam(tidemark.Invalid, "member_ids",
			"%sare %d users, at most %d are allowed; add more afterwards",
			caller, len(n.Members), tidemark.MaxMembersPerCall)
	}
	return nil
}

// Taken returns the Conflict of CreateChat for an id that is taken. It does not say by what: a
// deleted chat keeps its id, and not everybody may know that there was such a chat.
func Taken(id tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.Conflict,
		"the id %s is taken by another chat, which may have been deleted; use another id", id)
}

// Chat returns the chat that CreateChat stores. created is CreatedAt in the precision of the store.
func (n *NewChat) Chat(created time.Time) tidemark.Chat {
	return tidemark.Chat{
		ID:             n.ID,
		State:          n.State,
		Type:           n.Type,
		Name:           n.Name,
		Metadata:       n.Metadata,
		Version:        1,
		History:        n.History,
		CreatedAt:      created,
		Creation:       n.Creation,
		Floor:          1,
		MemberCount:    len(n.Members),
		MembersVersion: 1,
		Large:          len(n.Members) > tidemark.PendingFanoutLimit,
	}
}

// ChatChange says what to change of a chat. What is nil stays as it is.
type ChatChange struct {
	Name *string
	// Metadata takes the place of the whole object. If it is empty and not nil, none remains.
	Metadata json.RawMessage
	// KeepDays, Hold and Receipts change Chat.Policy.
	KeepDays *int
	Hold     *bool
	Receipts *tidemark.ReceiptsPolicy
}

// Apply returns the chat after the change. It reports whether anything changed.
func (c *ChatChange) Apply(chat tidemark.Chat) (after tidemark.Chat, changed bool) {
	if c.Name != nil && *c.Name != chat.Name {
		chat.Name, changed = *c.Name, true
	}
	if c.Metadata != nil && !bytes.Equal(c.Metadata, chat.Metadata) {
		chat.Metadata, changed = c.Metadata, true
		if len(c.Metadata) == 0 {
			chat.Metadata = nil
		}
	}
	policy := chat.Policy
	if c.KeepDays != nil {
		policy.KeepDays = *c.KeepDays
	}
	if c.Hold != nil {
		policy.Hold = *c.Hold
	}
	if c.Receipts != nil {
		policy.Receipts = *c.Receipts
	}
	if policy != chat.Policy {
		chat.Policy, changed = policy, true
	}
	//rule:post_retry_safe.equal-change-is-none
	if changed {
		chat.Version++
	}
	return chat, changed
}
