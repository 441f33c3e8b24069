package tidemark

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ChatType is the kind of a chat.
type ChatType string

// The types of chats.
const (
	// Direct is the chat of two users; it exists once for a pair, and its members are fixed.
	Direct ChatType = "direct"
	// Group is a chat of any number of users, up to MaxMembers.
	Group ChatType = "group"
)

// HistoryMode says what a new member of a chat may see.
type HistoryMode string

// The history modes.
const (
	// HistoryFull: everything; a new member starts with both watermarks at 0.
	HistoryFull HistoryMode = "full"
	// HistorySinceJoin: what is sent after he joined; both watermarks start at the head of that moment.
	HistorySinceJoin HistoryMode = "since_join"
)

// Role is what a member may do in a chat.
type Role string

// The roles.
const (
	// Owner may rename the chat, add members and remove them. The creator is owner.
	Owner Role = "owner"
	// Ordinary members send, read, and may leave.
	Ordinary Role = "member"
)

// Chat is a chat as it is stored.
type Chat struct {
	ID        ChatID
	Type      ChatType
	Name      string
	History   HistoryMode
	CreatedAt time.Time
	// Head is the highest sequence of the chat; 0 while it is empty.
	Head Sequence
	// MemberCount is the number of current members.
	MemberCount int
	// MembersVersion grows by one with every change of the membership. It starts at 1.
	MembersVersion uint64
	// Large is set for good once the chat had more than PendingFanoutLimit members: no pending rows are
	// written for it, and every opening session compares its head.
	Large bool
}

// Member is one user's membership of one chat.
type Member struct {
	UserID UserID
	Role   Role
	// Intervals are the ranges of sequences that he may see, ascending and disjoint. The last one is open:
	// he is a member.
	Intervals Intervals
	// JoinedAt is when he joined last.
	JoinedAt time.Time
}

// Roster is who is a member of a chat, at one version of its membership. It is immutable.
type Roster struct {
	ChatID  ChatID
	Type    ChatType
	History HistoryMode
	Large   bool
	// Version is Chat.MembersVersion when the roster was read.
	Version uint64
	// Members are the current members in the order of their user ids.
	Members []Member
}

// Member returns the membership of a user, and whether he is a current member.
func (r *Roster) Member(user UserID) (Member, bool) {
	i, found := slices.BinarySearchFunc(r.Members, user, func(m Member, u UserID) int {
		return strings.Compare(string(m.UserID), string(u))
	})
	if !found {
		return Member{}, false
	}
	return r.Members[i], true
}

// CheckChatName returns an Invalid or TooLarge error unless name can be the name of a chat.
func CheckChatName(name string) error {
	if len(name) > MaxChatName {
		return Errorf(TooLarge, "name is %d bytes long, at most %d are allowed", len(name), MaxChatName)
	}
	return checkText("name", name)
}

// DirectKey returns the key of the direct chat of two users: the same for (a, b) and (b, a).
// Neither id can hold the separator.
func DirectKey(a, b UserID) string {
	if b < a {
		a, b = b, a
	}
	return string(a) + "|" + string(b)
}

func checkText(field, s string) error {
	if !utf8.ValidString(s) {
		return Errorf(Invalid, "%s is not valid UTF-8", field)
	}
	if strings.IndexByte(s, 0) >= 0 {
		return Errorf(Invalid, "%s holds the character U+0000, which is not allowed", field)
	}
	return nil
}
