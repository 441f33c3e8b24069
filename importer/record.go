// Package importer moves the chats of another system into a store.
//
// A source yields records: for each chat a Chat, then Members, Messages and Reads, and at the end
// an End. The packages below this one are sources. An Importer takes the records one after the
// other, so a chat may have any number of messages.
//
// A message gets the sequence that it has in the source: the n-th message of a chat is message n
// (rule import_once). So an import that was interrupted is simply run again. What is stored is
// compared with the source by its position, and what is missing is appended.
package importer

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Record is a Chat, Member, Message, Read or End. Ids in records are those of the source. They need
// not be ids of Tidemark: see ID.
type Record interface{ record() }

// Chat begins a chat.
type Chat struct {
	ID   string
	Type tidemark.ChatType
	// Name is cut if it is too long.
	Name string
	// Metadata is a JSON object, or nil.
	Metadata json.RawMessage
	// History is tidemark.HistoryFull if it is empty.
	History   tidemark.HistoryMode
	CreatedAt time.Time
	// Members are the two members of a direct chat, or the first members of a group.
	Members []string
}

// Member says that a user joins or leaves a group before the next message. Of all that it says of a
// user between two messages, only the result counts.
type Member struct {
	User string
	Left bool
	// Role is the role at the end of the import. If it is empty, an earlier one counts, or else
	// tidemark.Ordinary.
	Role tidemark.Role
	At   time.Time
}

// Message is the next message of a chat.
type Message struct {
	// ID tells the message from the others of the chat. It may be anything.
	ID string
	// Author is "" if the source does not say it. Then a member stands for the author, and the
	// kind must not be tidemark.KindMessage.
	Author string
	At     time.Time
	// Says is what the message says: Kind, Content, ContentType, Attachments, Metadata and
	// Mentions.All count. If they are empty, Kind is tidemark.KindMessage, and ContentType
	// tidemark.DefaultContentType.
	Says tidemark.Draft
	// Mentioned are the users whom the message names.
	Mentioned []string
	// Lack, if it is not empty, says why the message is only a stub. Says does not count then.
	Lack Lack
}

// Lack says why a message says nothing.
type Lack string

// The reasons.
const (
	// Deleted: the source has removed what the message said.
	Deleted Lack = "deleted"
	// Empty: the message had neither content nor attachments.
	Empty Lack = "empty"
	// Oversize: the message exceeds a limit of Tidemark (Config.SkipOversize).
	Oversize Lack = "oversize"
	// Edit: the message replaced another one, which says that now.
	Edit Lack = "edit"
)

// stub returns what a message without content says. It keeps the place of the message. Clients show
// it as a line of the system, which is not unread. An edit is not shown.
func (l Lack) stub() tidemark.Draft {
	d := tidemark.Draft{
		Kind: tidemark.KindSystem, Content: "(" + string(l) + ")",
		Metadata: json.RawMessage(`{"import":{"` + string(l) + `":true}}`),
	}
	if l == Edit {
		d.Kind = tidemark.KindControl
	}
	return d
}

// Read says that a user has read the chat up to a message. It names the message by its position or
// by its id.
type Read struct {
	User string
	// Message is the id of a later record, or "".
	Message string
	// Position counts if Message is "". 0 is nothing.
	Position uint64
}

// End ends a chat. A chat without it is not complete, and stays as it is.
type End struct{}

func (Chat) record()    {}
func (Member) record()  {}
func (Message) record() {}
func (Read) record()    {}
func (End) record()     {}

// Schedule puts changes of members between messages by their times. It is for sources that know
// when members joined, and not between which messages.
type Schedule struct {
	changes []Member
	next    int
	// members says who is a member after the changes that were returned. wrote has the authors.
	members, wrote map[string]bool
}

// NewSchedule returns a schedule. members are those of the beginning.
func NewSchedule(members []string, changes []Member) *Schedule {
	s := &Schedule{changes: changes, members: map[string]bool{}, wrote: map[string]bool{}}
	for _, user := range members {
		s.members[user] = true
	}
	slices.SortStableFunc(s.changes, func(a, b Member) int { return a.At.Compare(b.At) })
	return s
}

// Before returns the changes that come before a message.
func (s *Schedule) Before(m *Message) []Member {
	if m.Author != "" {
		s.wrote[m.Author] = true
	}
	n := s.next
	for n < len(s.changes) && !s.changes[n].At.After(m.At) {
		n++
	}
	return s.take(n)
}

func (s *Schedule) take(n int) []Member {
	taken := s.changes[s.next:n]
	s.next = n
	for i := range taken {
		s.members[taken[i].User] = !taken[i].Left
	}
	return taken
}

// Rest returns the changes after the last message. If the schedule names all members, authors who
// are none of them leave: they must have been members once.
func (s *Schedule) Rest(all bool, at time.Time) []Member {
	rest := slices.Clone(s.take(len(s.changes)))
	if !all {
		return rest
	}
	var gone []string
	for user := range s.wrote {
		if !s.members[user] {
			gone = append(gone, user)
		}
	}
	slices.Sort(gone)
	for _, user := range gone {
		rest = append(rest, Member{User: user, Left: true, At: at})
	}
	return rest
}
