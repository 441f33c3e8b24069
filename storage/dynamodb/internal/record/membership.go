package record

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// A Membership is the item of a user and a chat. It remains when the user leaves.
type Membership struct {
	tidemark.Member
	// Version is the membership version of the chat in the step that wrote the item.
	Version uint64
	// ChangedBy is the token of the call that wrote the item.
	ChangedBy string
	// Next is the membership after a change of many members, if that change has taken effect
	// (storage/dynamodb/changes.go).
	Next *Joining
}

// A Joining is a membership that begins with a change.
type Joining struct {
	Change string
	Role   tidemark.Role
	At     time.Time
}

// Item returns the membership as an item.
func (m *Membership) Item(chat tidemark.ChatID) call.Item {
	it := call.Item{
		"chat_id": call.Text(chat), "user_id": call.Text(m.UserID), "role": call.Text(m.Role),
		"intervals": call.Text(m.Intervals.Text()),
		"joined_at": call.Number(m.JoinedAt.UnixMilli()), "version": call.Number(m.Version),
		"changed_by": call.Text(m.ChangedBy),
	}
	if m.Metadata != nil {
		it["metadata"] = call.Text(string(m.Metadata))
	}
	return it
}

// MembershipOf returns the membership in an item.
func MembershipOf(it call.Item) (Membership, error) {
	r := call.Reader{Item: it}
	m := Membership{
		Member: tidemark.Member{
			UserID:    tidemark.UserID(r.Text("user_id")),
			Role:      tidemark.Role(r.Text("role")),
			Intervals: r.Intervals("intervals"),
			JoinedAt:  r.Time("joined_at"),
		},
		Version: r.Number("version"), ChangedBy: r.Text("changed_by"),
	}
	if metadata := r.Text("metadata"); metadata != "" {
		m.Metadata = json.RawMessage(metadata)
	}
	if change := r.Text("next_change"); change != "" {
		m.Next = &Joining{
			Change: change,
			Role:   tidemark.Role(r.Text("next_role")),
			At:     r.Time("next_joined_at"),
		}
	}
	return m, r.Err
}

// Ever reports whether the user was a member before.
func (m *Membership) Ever() bool { return m.Version > 0 }

// At returns the membership at the version of a counter.
func (m Membership) At(c *Counter) tidemark.Member {
	//rule:pending_or_delivered.follow-change-in-effect
	if !m.takesEffect(c) {
		return m.Member
	}
	return tidemark.Member{
		UserID:    m.UserID,
		Role:      m.Next.Role,
		JoinedAt:  m.Next.At,
		Intervals: m.Intervals.Joined(c.ChangeHead, c.History, m.Ever()),
	}
}

// ChangedAt returns the membership at the version of a counter, and the version of its last change.
// The version is 0 if the user was never a member.
func (m Membership) ChangedAt(c *Counter) (tidemark.Member, uint64) {
	//rule:told_or_owed.version-of-change-in-effect
	if m.takesEffect(c) {
		return m.At(c), c.ChangeVersion
	}
	return m.Member, m.Version
}

// takesEffect reports whether the membership follows a change that took effect and is not settled.
func (m *Membership) takesEffect(c *Counter) bool {
	return m.Next != nil && c.Changed != "" && m.Next.Change == c.Changed
}

// Memberships reads the items of some users in a chat with strong consistency.
func (c Access) Memberships(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
) (map[tidemark.UserID]Membership, error) {
	wanted := make([]call.Item, len(users))
	for i, user := range users {
		wanted[i] = MemberKey(chat, user)
	}
	items, err := c.GetAll(ctx, call.Read{Table: Memberships}, wanted)
	if err != nil {
		return nil, err
	}
	rows := make(map[tidemark.UserID]Membership, len(items))
	for _, it := range items {
		row, err := MembershipOf(it)
		if err != nil {
			return nil, err
		}
		rows[row.UserID] = row
	}
	for _, user := range users {
		if row, found := rows[user]; !found {
			row.UserID = user
			rows[user] = row
		}
	}
	return rows, nil
}

// MembershipsOf reads the items with keys that MemberKey made. The results are in the order of the
// keys. If there is no item, the result is zero.
func (c Access) MembershipsOf(
	ctx context.Context, keys []call.Item, eventual bool,
) ([]Membership, error) {
	items, err := c.GetAll(ctx, call.Read{Table: Memberships, Eventual: eventual}, keys)
	if err != nil {
		return nil, err
	}
	found := make(map[string]Membership, len(items))
	for _, it := range items {
		key := call.Item{"chat_id": it["chat_id"], "user_id": it["user_id"]}
		if found[call.NameOf(key)], err = MembershipOf(it); err != nil {
			return nil, err
		}
	}
	rows := make([]Membership, len(keys))
	for i, key := range keys {
		rows[i] = found[call.NameOf(key)]
	}
	return rows, nil
}

// A Seen is a chat and some memberships in it, all at one version.
type Seen struct {
	*Counter
	Rows map[tidemark.UserID]Membership
}

// Look reads a chat and the memberships of some users in it. If a membership has a later version
// than the counter, it reads both again. It returns NotFound for a deleted chat.
func (c Access) Look(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
) (Seen, error) {
	for again := 0; ; again++ {
		counter, err := c.Alive(ctx, chat)
		if err != nil {
			return Seen{}, err
		}
		rows, err := c.Memberships(ctx, chat, users)
		if err != nil {
			return Seen{}, err
		}
		newer := false
		for _, row := range rows {
			//rule:nothing_outside_membership.notice-newer-memberships
			newer = newer || row.Version > counter.MembersVersion
		}
		if !newer {
			return Seen{counter, rows}, nil
		}
		if err := call.Yield(ctx, again); err != nil {
			return Seen{}, err
		}
	}
}

// RosterAt reads the members of a chat at the version of its counter, or at a later one. The query
// is not atomic. But each change of the membership writes its version into the items, and items are
// never removed. So if no item is newer than the counter, all are of its version.
func (c Access) RosterAt(ctx context.Context, at *Counter) (*tidemark.Roster, error) {
	for again := 0; ; again++ {
		r := &tidemark.Roster{
			ChatID:  at.ID,
			State:   at.State,
			Type:    at.Type,
			History: at.History,
			Large:   at.Large,
			Version: at.MembersVersion,
			Floor:   at.Floor,
			Members: make([]tidemark.Member, 0, at.MemberCount),
		}
		// The items of its members stay until the chat is purged.
		//rule:deleted_is_gone.no-members-in-dynamodb
		if at.State == tidemark.ChatDeleted {
			return r, nil
		}
		newer := false
		//rule:nothing_outside_membership.consistent-roster
		q := call.Query{
			Read:      call.Read{Table: Memberships},
			Partition: "chat_id",
			Of:        call.Text(at.ID),
		}
		err := c.Each(ctx, q, func(it call.Item) (bool, error) {
			row, err := MembershipOf(it)
			//rule:nothing_outside_membership.notice-newer-roster
			if newer = row.Version > at.MembersVersion; err != nil || newer {
				return false, err
			}
			if m := row.At(at); m.Intervals.Open() {
				r.Members = append(r.Members, m)
			}
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		if !newer {
			slices.SortFunc(r.Members, func(a, b tidemark.Member) int {
				return strings.Compare(string(a.UserID), string(b.UserID))
			})
			return r, nil
		}
		if err := call.Yield(ctx, again); err != nil {
			return nil, err
		}
		if at, err = c.Counter(ctx, at.ID); err != nil {
			return nil, err
		}
	}
}
