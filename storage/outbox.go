package storage

import (
	"context"
	"crypto/sha256"

	"github.com/tidemark-im/tidemark"
)

// Outbox says which chats have news that outlets may not have received. An outlet receives all news
// of all chats: a webhook, a topic of Kafka, a pusher. The news itself is in the chats: their
// messages, their members, their names. A backlog only says from where on the news of a chat may be
// undelivered. So it costs one small write for many messages, and an outlet that is away for days
// costs one row per chat. The models in docs/internals/verification show why the rules are as they
// are.
//
// Each chat has a position up to which its news was handed to all outlets, and a backlog for
// AllOutlets if it may have news beyond it. The step that makes news opens the backlog: Append,
// CreateChat, UpdateChat, AddMembers, RemoveMember and UpdateMember, if they change anything. An
// open backlog stays as it is. The step opens it whether or not there are outlets (R_ALWAYS).
//
// A worker reads the backlogs for AllOutlets, delivers the news to all outlets, and settles them.
// If an outlet does not accept something, the worker first opens a backlog for this outlet alone.
type Outbox interface {
	// Backlogs returns a page of the backlogs for an outlet. The shards ascend, and the chat ids of
	// each. It sees every Rewind and Settle that returned before the call, if the outlet is not
	// AllOutlets. The backlogs for AllOutlets are eventual. q.Limit is at least 1. If q names
	// chats, all of their backlogs are on one page, in any order.
	Backlogs(ctx context.Context, q BacklogQuery) (backlogs []Backlog, more bool, err error)

	// Rewind opens backlogs for single outlets, or lets open ones begin lower: the least value of
	// each field of From wins. It ignores Backlog.Stamp and Backlog.Split. Each call gives the
	// backlog a new stamp, also if it begins no lower: a replay must not vanish because a worker
	// has begun at the same place before (R_STAMP). A backlog that would begin above its chat
	// begins at the chat's position, and is open all the same. Rewind ignores chats that do not
	// exist.
	//
	// Invalid: a backlog is for AllOutlets, or an outlet and chat are named twice.
	Rewind(ctx context.Context, backlogs []Backlog) error

	// Settle says that the news of a backlog was delivered, or is in a backlog of a single
	// outlet, up to a position. It does so in one step with the chat (R_CLEAR). If the chat has no
	// news beyond To, the backlog is closed. Otherwise it begins at To. To counts at most up to the
	// chat's position.
	//
	// Settle changes a backlog only if it is still the one that was read: From and Stamp are equal.
	// Otherwise another worker has settled it meanwhile, or somebody has asked for more. settled
	// reports for each item whether it was the same. If an attempt of the backend got no answer,
	// settled may be false for an item that was settled.
	//
	// A crash of the database may undo a Settle that returned. The news is delivered again then.
	//
	// Invalid: an outlet and chat are named twice.
	Settle(ctx context.Context, items []Settlement) (settled []bool, err error)

	// EachChat returns a page of all chats, in an order of the backend. after is the last chat of
	// the previous page, or "". A chat that existed before the first page is on exactly one page.
	// A page may be shorter than the limit, or empty, and still have more true. next is the
	// position of the next page. limit is at least 1.
	EachChat(ctx context.Context, after tidemark.ChatID, limit int) (chats []tidemark.ChatID,
		next tidemark.ChatID, more bool, err error)

	// MembersSince returns a page of the present and former members of a chat whose last change is
	// above q.Since. The user ids ascend and are above q.After. It sees every change that returned
	// before the call. An unknown chat has none. A change of many members may become visible on
	// several pages; then its version is above that of a chat that was read before.
	MembersSince(ctx context.Context, q MembersQuery) (members []ChangedMember, more bool,
		err error)
}

// OutletID names an outlet. It is an id (tidemark.ValidID), an id with a suffix that begins with a
// slash, or AllOutlets.
type OutletID string

// AllOutlets stands for all outlets.
const AllOutlets OutletID = ""

// Position says how much of a chat's news was delivered. The zero Position is before its creation.
type Position struct {
	// Sequence is that of the last message.
	Sequence tidemark.Sequence
	// Members is tidemark.Chat.MembersVersion, and Version is tidemark.Chat.Version.
	Members, Version uint64
}

// PositionOf returns the position of all news of a chat.
func PositionOf(c *tidemark.Chat) Position { return Position{c.Head, c.MembersVersion, c.Version} }

// Least returns the position up to which both were delivered.
func (p Position) Least(q Position) Position {
	return Position{
		min(p.Sequence, q.Sequence), min(p.Members, q.Members), min(p.Version, q.Version),
	}
}

// Most returns the position up to which one of both was delivered.
func (p Position) Most(q Position) Position {
	return Position{
		max(p.Sequence, q.Sequence), max(p.Members, q.Members), max(p.Version, q.Version),
	}
}

// Covers reports whether everything up to q is delivered.
func (p Position) Covers(q Position) bool { return p.Most(q) == p }

// Backlog says that the news of a chat beyond From may be undelivered.
type Backlog struct {
	Outlet OutletID
	Chat   tidemark.ChatID
	// Shard is ShardOf(Chat), or 0 for AllOutlets if an older program made the chat. Rewind and
	// Settle ignore it.
	Shard int
	From  Position
	// Stamp tells backlogs of a single outlet apart that begin at the same place. It is "" for
	// AllOutlets, whose positions only rise.
	Stamp string
	// Split is that of the last Settlement of the chat's backlog for AllOutlets. It is false in
	// other backlogs. If it is true, there may be backlogs of single outlets. They must be looked
	// for before anything is delivered: these outlets have earlier news to come (R_OWED).
	Split bool
	// End is the position of the chat, Large is tidemark.Chat.Large, and Importing says that the
	// chat is tidemark.ChatImporting, all read in one step with From. They are zero in backlogs of
	// single outlets. Rewind and Settle ignore them.
	End       Position
	Large     bool
	Importing bool
}

// Settlement is a Backlog as it was read, with how far it was delivered.
type Settlement struct {
	Backlog
	To Position
	// NowSplit becomes Backlog.Split of the chat, if the backlog is one for AllOutlets.
	NowSplit bool
}

// BacklogQuery selects a page of the backlogs for an outlet.
type BacklogQuery struct {
	Outlet OutletID
	// Shards ascend.
	Shards []int
	// Chats, if there are any, asks for the backlogs of these chats, each of which is named once.
	// The other fields but Outlet do not count then.
	Chats []tidemark.ChatID
	// After is the last backlog of the previous page, of which Shard and Chat count. If its Chat is
	// "", the first page is asked for.
	After Backlog
	// Limit is at least 1.
	Limit int
}

// MembersQuery selects a page of the members of a chat that changed.
type MembersQuery struct {
	Chat tidemark.ChatID
	// Since is a membership version. With 0, all members are selected, also former ones.
	Since uint64
	// After is the last user of the previous page, or "".
	After tidemark.UserID
	// Limit is at least 1.
	Limit int
}

// ChangedMember is a present or former member. A former one has no open interval.
type ChangedMember struct {
	tidemark.Member
	// Version is the membership version of the last change of the member.
	Version uint64
}

// Shards is the number of parts into which chats are divided, so that workers share them.
const Shards = 64

// ShardOf returns the shard of a chat. It never changes, since backends store it.
func ShardOf(chat tidemark.ChatID) int {
	sum := sha256.Sum256([]byte(chat))
	return int(sum[0]) % Shards
}

// CheckRewind returns the error of Rewind for what its caller did wrong.
func CheckRewind(backlogs []Backlog) error {
	seen := make(map[Backlog]bool, len(backlogs))
	for _, b := range backlogs {
		if b.Outlet == AllOutlets {
			return tidemark.Errorf(tidemark.Invalid, "the chat %s is rewound for no outlet", b.Chat)
		}
		if err := distinct(seen, &b); err != nil {
			return err
		}
	}
	return nil
}

// CheckSettle returns the error of Settle for what its caller did wrong.
func CheckSettle(items []Settlement) error {
	seen := make(map[Backlog]bool, len(items))
	for i := range items {
		if err := distinct(seen, &items[i].Backlog); err != nil {
			return err
		}
	}
	return nil
}

// distinct notes the outlet and the chat of a backlog. Invalid: they were noted before.
func distinct(seen map[Backlog]bool, b *Backlog) error {
	key := Backlog{Outlet: b.Outlet, Chat: b.Chat}
	if seen[key] {
		return tidemark.Errorf(tidemark.Invalid, "the outlet %q and the chat %s are named twice",
			b.Outlet, b.Chat)
	}
	seen[key] = true
	return nil
}
