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

// Role is what a member may do in a chat. The roles of a direct chat mean nothing.
type Role string

// The roles, from the one that may do most.
const (
	// Owner may do all that there is, and make other members owners. The creator is an owner.
	Owner Role = "owner"
	// Admin may rename the chat, add members, and manage members and readers.
	Admin Role = "admin"
	// Ordinary members may send, read and leave.
	Ordinary Role = "member"
	// Reader may read and leave.
	Reader Role = "reader"
)

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return r == Owner || r == Admin || r == Ordinary || r == Reader }

// CheckRole returns nil if r is one of the roles, else an Invalid error.
func CheckRole(r Role) error {
	if !r.Valid() {
		return BadParam(Invalid, "role", "must be owner, admin, member or reader")
	}
	return nil
}

// MaySend reports whether a member with this role may send.
func (r Role) MaySend() bool { return r != Reader }

// Manages reports whether a member with this role may remove a member with the other role, change
// their metadata, or change their role within what it manages. Owners manage everyone, admins
// manage members and readers.
func (r Role) Manages(other Role) bool {
	switch r {
	case Owner:
		return true
	case Admin:
		return other == Ordinary || other == Reader
	}
	return false
}

// MayPin reports whether a member with this role may pin and unpin messages in a chat of a type.
// Owners and admins of a group may, and both members of a direct chat.
func (r Role) MayPin(in ChatType) bool {
	//rule:caller_does_only_what_they_may.a-direct-chat-has-no-owner
	return in == Direct || r.Manages(Ordinary)
}

// ChatState says what can be done with a chat. These steps change it:
//
//	from       step           to
//	none       CreateChat     live or importing, as the caller says
//	importing  FinishImport   live
//	live       FinishImport   live
//	deleted    FinishImport   deleted: it is refused
//	live       DeleteChat     deleted
//	importing  DeleteChat     deleted
//	deleted    DeleteChat     deleted
//	live       PutBlock       closed by one
//	closed     PutBlock       closed by one or by both
//	closed     RemoveBlock    closed by the other one, or live
//	closed     DeleteChat     deleted
//
// FinishImport leads to a closed state if a block stands between the two members of a direct chat.
// No step leads from deleted to another state, and none from live to importing.
type ChatState string

// The states of a chat.
const (
	// ChatLive is a chat that its members use.
	ChatLive ChatState = ""
	// ChatImporting is a chat whose messages are being moved here from another system. Only the
	// importer appends messages (Draft.Importing).
	ChatImporting ChatState = "importing"
	// ChatDeleted is what is left of a chat that was deleted: its id, which is never used again.
	ChatDeleted ChatState = "deleted"
	// ChatClosedByFirst is a direct chat whose member with the smaller id has blocked the other
	// one. Its members read it, and nobody writes.
	ChatClosedByFirst ChatState = "closed_by_first"
	// ChatClosedBySecond is the same for the member with the greater id.
	ChatClosedBySecond ChatState = "closed_by_second"
	// ChatClosedByBoth is a direct chat whose members have blocked each other.
	ChatClosedByBoth ChatState = "closed_by_both"
)

// Closed reports whether a member of a direct chat has blocked the other one.
func (s ChatState) Closed() bool {
	return s == ChatClosedByFirst || s == ChatClosedBySecond || s == ChatClosedByBoth
}

// Chat is a chat as it is stored.
type Chat struct {
	ID    ChatID
	State ChatState
	Type  ChatType
	Name  string
	// Metadata is a JSON object of the application, or nil. It is kept byte for byte.
	Metadata json.RawMessage
	// Version grows by one with every change of Name, Metadata or Policy, and when the chat is
	// deleted, closed or opened again. It starts at 1. It stays while only the number of blocks
	// between the members of a closed chat changes.
	Version   uint64
	History   HistoryMode
	CreatedAt time.Time
	// Creation identifies the request that created the chat: who sent it, and what it asked for. A
	// repeat of the request has the same value. That of an imported chat is ImportedBy and the
	// format. Clients do not see it.
	Creation string
	// Head is the highest sequence of the chat; 0 while it is empty.
	Head Sequence
	// Floor is the sequence of the first message that is kept, from 1 to Head + 1. The messages
	// below it have expired (storage.Retention). It never falls.
	Floor Sequence
	// MemberCount is the number of current members.
	MemberCount int
	// MembersVersion grows by one with every change of the membership or of State. It starts at 1.
	MembersVersion uint64
	// Large is set for good once the chat has had more than PendingFanoutLimit members.
	// Messages of a large chat mark no pending rows: an opening session compares the head instead.
	Large bool
	// DeletedAt is when the chat was deleted. It is zero if State is another one.
	DeletedAt time.Time
	Policy    Policy
}

// Policy says what may be removed of a chat, and who sees what its members read. The zero Policy is
// that of most chats.
type Policy struct {
	// KeepDays is for how many days messages are kept, at most: if the server keeps those of all
	// chats for a shorter time, that holds. It is 0 if the chat has no number of its own.
	KeepDays int
	// Hold says that nothing expires, and that the chat cannot be deleted.
	Hold bool
	// Receipts says who sees what the members read (storage.Receipts).
	Receipts ReceiptsPolicy
}

// The bounds of Policy.KeepDays, unless it is 0.
const (
	MinKeepDays = 8
	MaxKeepDays = 36_500
)

// CheckKeepDays returns nil if a number can be Policy.KeepDays, else an Invalid error.
func CheckKeepDays(days int) error {
	if days != 0 && (days < MinKeepDays || days > MaxKeepDays) {
		return BadParam(Invalid, "keep_days",
			"must be an integer from %d to %d, or 0 for as long as in all chats",
			MinKeepDays, MaxKeepDays)
	}
	return nil
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
	// Metadata is a JSON object of the application, or nil. It is kept byte for byte, and ends with
	// the membership.
	Metadata json.RawMessage
}

// Roster lists the members of a chat at one version of its membership. It is immutable.
type Roster struct {
	ChatID ChatID
	// State is Chat.State when the roster was read. A change of it raises Version.
	State   ChatState
	Type    ChatType
	History HistoryMode
	Large   bool
	// Version is Chat.MembersVersion when the roster was read.
	Version uint64
	// Floor is Chat.Floor when the roster was read.
	Floor Sequence
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

// Successor returns the member who must become an owner when user stops being one: the eldest
// admin, or else the eldest ordinary member. Of those who joined at the same time, the one with the
// smallest id is the eldest. Readers never succeed, because they would gain the right to send.
//
// needed reports that user is the last owner. found reports that somebody can succeed them.
func (r *Roster) Successor(user UserID) (heir Member, found, needed bool) {
	for _, m := range r.Members {
		switch {
		case m.Role == Owner && m.UserID != user:
			return Member{}, false, false
		case m.Role == Owner:
			needed = true
		//rule:owner_always.admins-and-members-succeed
		case m.Role != Admin && m.Role != Ordinary:
		//rule:owner_always.eldest-admin-first
		case !found || m.Role == Admin && heir.Role != Admin ||
			m.Role == heir.Role && m.JoinedAt.Before(heir.JoinedAt):
			heir, found = m, true
		}
	}
	return heir, found && needed, needed
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

// CheckMemberMetadata returns nil if raw can be the metadata of a member, else an Invalid or
// TooLarge error. nil is good.
func CheckMemberMetadata(raw json.RawMessage) error {
	return checkJSON("metadata", raw, '{', MaxMemberMetadata)
}

// ImportedBy begins Chat.Creation of a chat that an importer has created.
const ImportedBy = "import:"

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
