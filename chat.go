package tidemark

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ChatType is the kind of a chat.
type ChatType string

// The types of chats.
const (
	// Direct is the chat of two users. A pair has at most one, and its members are fixed.
	Direct ChatType = "direct"
	// Group is a chat of up to MaxMembers users.
	Group ChatType = "group"
)

// HistoryMode says what a new member of a chat may see.
type HistoryMode string

// The history modes.
const (
	// HistoryFull shows every message. Both watermarks of a new member start at 0.
	HistoryFull HistoryMode = "full"
	// HistorySinceJoin shows what is sent after the member joined.
	// Both watermarks start at the chat's head at that moment.
	HistorySinceJoin HistoryMode = "since_join"
)

// Role is what a member may do in a chat.
type Role string

// The roles.
const (
	// Owner may rename the chat, add members and remove them. The creator is an owner.
	Owner Role = "owner"
	// Ordinary members may send, read and leave.
	Ordinary Role = "member"
)

// Chat is a chat as it is stored.
type Chat struct {
	ID   ChatID
	Type ChatType
	Name string
	// Metadata is a JSON object of the application, or nil. It is kept byte for byte.
	Metadata json.RawMessage
	// Version grows by one with every change of Name or Metadata. It starts at 1.
	Version   uint64
	History   HistoryMode
	CreatedAt time.Time
	// Creation identifies the request that created the chat: who sent it, and what it asked for. A
	// repeat of the request has the same value. Clients do not see it.
	Creation string
	// Head is the highest sequence of the chat; 0 while it is empty.
	Head Sequence
	// MemberCount is the number of current members.
	MemberCount int
	// MembersVersion grows by one with every change of the membership. It starts at 1.
	MembersVersion uint64
	// Large is set for good once the chat has had more than PendingFanoutLimit members.
	// Messages of a large chat mark no pending rows: an opening session compares the head instead.
	Large bool
}

// Member is one user's membership of one chat.
type Member struct {
	UserID UserID
	Role   Role
	// Intervals are the ranges of sequences that the user may see, ascending and disjoint.
	// The last one is open, because the user is a member.
	Intervals Intervals
	// JoinedAt is when the user last joined.
	JoinedAt time.Time
}

// Roster lists the members of a chat at one version of its membership. It is immutable.
type Roster struct {
	ChatID  ChatID
	Type    ChatType
	History HistoryMode
	Large   bool
	// Version is Chat.MembersVersion when the roster was read.
	Version uint64
	// Members are the current members, ordered by user id.
	Members []Member
}

// Member returns the membership of a user, and whether they are a current member.
func (r *Roster) Member(user UserID) (Member, bool) {
	i, found := slices.BinarySearchFunc(r.Members, user, func(m Member, u UserID) int {
		return strings.Compare(string(m.UserID), string(u))
	})
	if !found {
		return Member{}, false
	}
	return r.Members[i], true
}

// CheckChatName returns nil if name can be the name of a chat, else an Invalid or TooLarge error.
func CheckChatName(name string) error {
	if len(name) > MaxChatName {
		return BadParam(TooLarge, "name", "is %d bytes long, at most %d are allowed",
			len(name), MaxChatName)
	}
	return checkText("name", name)
}

// CheckMetadata returns nil if raw can be the metadata of a chat, else an Invalid or TooLarge
// error. nil is good.
func CheckMetadata(raw json.RawMessage) error {
	return checkJSON("metadata", raw, '{', MaxMetadata)
}

// DirectKey returns the key of the direct chat of two users, the same for (a, b) and (b, a).
// Different pairs have different keys, because no id contains the separator.
func DirectKey(a, b UserID) string {
	if b < a {
		a, b = b, a
	}
	return string(a) + "|" + string(b)
}

func checkText(field, s string) error {
	if !utf8.ValidString(s) {
		return BadParam(Invalid, field, "is not valid UTF-8")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return BadParam(Invalid, field, "holds the character U+0000, which is not allowed")
	}
	return nil
}
