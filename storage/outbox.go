package storage

import (
	"context"
	"hash/fnv"

	"github.com/tidemark-im/tidemark"
)

// Outbox says which chats have news that outlets may not have been told. An outlet wants to be told
// everything: a webhook, a topic of Kafka, a pusher. The news themselves are in the chats: their
// messages, their members, their names. A debt only says from where on a chat's news may be untold.
// So it costs one small write for many messages, and an outlet that is away for days costs one row
// per chat. The models in docs/internals/verification show why the rules are as they are.
//
// Each chat has at most one debt to Everyone. The step that makes news writes it: Append,
// CreateChat, UpdateChat, AddMembers, RemoveMember and UpdateMember, if they change anything. It
// begins where the chat was before that step. If the chat has a debt already, the step leaves it as
// it is. It does so whether or not there are outlets (R_ALWAYS).
//
// A worker reads the debts of Everyone, tells the outlets what is above them, and settles them. If
// an outlet does not accept something, the worker first makes a debt to this outlet alone.
//
// Only a backend's tests use the role so far. Memory has it, the other backends follow.
type Outbox interface {
	// Owing returns a page of the debts to an outlet. The shards ascend, and the chat ids of each.
	// The debts to an outlet include every Owe and Settle that returned before the call. Those to
	// Everyone are eventual. q.Limit is at least 1.
	Owing(ctx context.Context, q OwingQuery) (debts []Debt, more bool, err error)

	// Owe makes debts, or lets them begin lower: the least value of each field of From wins. It
	// ignores Debt.Stamp and Debt.Owed. Each call gives the debt a new stamp, also if it begins no
	// lower: a replay must not vanish because a worker has begun at the same place before
	// (R_STAMP). A debt that would begin above its chat begins at the chat's position. A chat that
	// does not exist owes nothing.
	Owe(ctx context.Context, debts []Debt) error

	// Settle says that the news of a debt are told, or owed otherwise, up to a position. It does so
	// in one step with the chat (R_CLEAR). If the chat has no news beyond To, the debt is removed.
	// Else it begins at To.
	//
	// Settle changes a debt only if it is still the one that was read: From and Stamp are equal.
	// Otherwise another worker has settled it meanwhile, or somebody has asked for more. settled
	// reports for each item whether it was the same.
	//
	// A crash of the database may undo a Settle that returned. The news are told again then.
	Settle(ctx context.Context, items []Settlement) (settled []bool, err error)
}

// OutletID names an outlet. It is an id (tidemark.ValidID), or Everyone.
type OutletID string

// Everyone stands for all outlets.
const Everyone OutletID = ""

// Position says how much of a chat's news was told. The zero Position is before its creation.
type Position struct {
	// Sequence is that of the last message.
	Sequence tidemark.Sequence
	// Members is tidemark.Chat.MembersVersion, and Version is tidemark.Chat.Version.
	Members, Version uint64
}

// PositionOf returns the position of all news of a chat.
func PositionOf(c *tidemark.Chat) Position { return Position{c.Head, c.MembersVersion, c.Version} }

// Least returns the position up to which both were told.
func (p Position) Least(q Position) Position {
	return Position{
		min(p.Sequence, q.Sequence), min(p.Members, q.Members), min(p.Version, q.Version),
	}
}

// Most returns the position up to which one of both was told.
func (p Position) Most(q Position) Position {
	return Position{
		max(p.Sequence, q.Sequence), max(p.Members, q.Members), max(p.Version, q.Version),
	}
}

// Debt says that the news of a chat beyond From may be untold.
type Debt struct {
	Outlet OutletID
	Chat   tidemark.ChatID
	From   Position
	// Stamp tells debts apart that begin at the same place. It is "" if a step of the chat made the
	// debt.
	Stamp string
	// Owed is that of the last Settlement of the chat's debt to Everyone. It is false in other
	// debts. If it is true, there may be debts to single outlets, which must be looked for before
	// anything is told: these outlets have earlier news to come (R_OWED).
	Owed bool
}

// Settlement is a Debt as it was read, with how far it was told.
type Settlement struct {
	Debt
	To Position
	// NowOwed becomes Debt.Owed of the chat, if the debt is one to Everyone.
	NowOwed bool
}

// OwingQuery selects a page of the debts to an outlet.
type OwingQuery struct {
	Outlet OutletID
	// Shards ascend.
	Shards []int
	// After is the last chat of the previous page, or "".
	After tidemark.ChatID
	// Limit is at least 1.
	Limit int
}

// Shards is the number of parts into which chats are divided, so that workers share them.
const Shards = 64

// ShardOf returns the shard of a chat. It never changes, since backends store it.
func ShardOf(chat tidemark.ChatID) int {
	h := fnv.New32a()
	h.Write([]byte(chat))
	return int(h.Sum32() % Shards)
}
