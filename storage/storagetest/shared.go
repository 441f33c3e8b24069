package storagetest

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// large names the rules about the size of a call or of a chat. They do not depend on which store is
// called, and Run tests them. On DynamoDB they take most of the suite's time. So RunShared leaves
// them out, unless TIDEMARK_SHARED_RULES is "all", as in make soak.
var large = map[string]bool{
	"Limits/1000_members_per_call_and_MaxMembers_in_all": true,
	"Limits/MaxIntervals_of_one_user":                    true,
	"Limits/batches_of_10000":                            true,
	"Bulk/Append_and_Ranges_of_10000":                    true,
	"Bulk/Ranges_of_many_chats_each_with_its_own_bounds": true,
	"Bulk/Ranges_of_the_longest_messages":                true,
}

// RunShared tests a backend that several processes may use at once. open returns two stores on the
// same empty data. The calls go to both in turn. All rules are tested, except the large ones.
func RunShared(t *testing.T, open func(t *testing.T) (one, other storage.Store)) {
	limitChecks(t, "10")
	both := func(t *testing.T) suite {
		one, other := open(t)
		return newSuite(&turns{stores: [2]storage.Store{one, other}})
	}
	t.Run("rules", func(t *testing.T) {
		s := both(t)
		if os.Getenv("TIDEMARK_SHARED_RULES") != "all" {
			s.without = large
		}
		s.runAll(t)
	})
	t.Run("one incarnation", func(t *testing.T) {
		one, other := open(t)
		if one.Incarnation() != other.Incarnation() {
			t.Errorf("the stores have the incarnations %s and %s", one.Incarnation(),
				other.Incarnation())
		}
	})
	t.Run("model", func(t *testing.T) { testModel(t, both(t), nil) })
	t.Run("histories", func(t *testing.T) {
		one, other := open(t)
		testHistories(t, newSuite(one), other)
	})
	t.Run("schedules", func(t *testing.T) {
		one, other := open(t)
		testSchedules(t, newSuite(one), other)
	})
}

// turns is a store that calls two stores on the same data in turn.
type turns struct {
	stores [2]storage.Store
	calls  atomic.Uint64
}

func (t *turns) next() storage.Store { return t.stores[t.calls.Add(1)%2] }

// Unwrap returns one of the stores: a copy is the work of one process.
func (t *turns) Unwrap() storage.Store { return t.stores[0] }

func (t *turns) Check(ctx context.Context) error { return t.next().Check(ctx) }

func (t *turns) Close() error {
	if err := t.stores[0].Close(); err != nil {
		return err
	}
	return t.stores[1].Close()
}

func (t *turns) CreateChat(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	return t.next().CreateChat(ctx, new)
}

func (t *turns) Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error) {
	return t.next().Chat(ctx, chat)
}

func (t *turns) UpdateChat(
	ctx context.Context, chat tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	return t.next().UpdateChat(ctx, chat, change)
}

func (t *turns) ChatsOf(
	ctx context.Context, user tidemark.UserID, p storage.ChatsPage,
) ([]storage.ChatListItem, bool, error) {
	return t.next().ChatsOf(ctx, user, p)
}

func (t *turns) Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error) {
	return t.next().Heads(ctx, chats)
}

func (t *turns) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, now time.Time,
) (storage.Added, error) {
	return t.next().AddMembers(ctx, chat, users, role, now)
}

func (t *turns) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	return t.next().RemoveMember(ctx, chat, user, now)
}

func (t *turns) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	return t.next().UpdateMember(ctx, chat, user, change)
}

func (t *turns) Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	return t.next().Rosters(ctx, chats)
}

// Append also tells the other store of most messages.
func (t *turns) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	n := t.calls.Add(1)
	appended, err := t.stores[n%2].Append(ctx, drafts)
	for i := range appended {
		if m := &appended[i].Message; appended[i].Err == nil && m.Sequence%4 != 0 {
			t.stores[(n+1)%2].Observe(m)
		}
	}
	return appended, err
}

func (t *turns) Observe(m *tidemark.Message) { t.next().Observe(m) }

func (t *turns) Sent(
	ctx context.Context, key storage.SendKey,
) (storage.Appended, bool, error) {
	return t.next().Sent(ctx, key)
}

func (t *turns) Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	return t.next().Ranges(ctx, ranges)
}

func (t *turns) Reactions(
	ctx context.Context, q storage.ReactionsQuery,
) ([]storage.ReactionCount, tidemark.Sequence, error) {
	return t.next().Reactions(ctx, q)
}

func (t *turns) Reactors(
	ctx context.Context, chat tidemark.ChatID, target, after tidemark.Sequence, limit int,
) ([]storage.Reaction, bool, error) {
	return t.next().Reactors(ctx, chat, target, after, limit)
}

func (t *turns) Pins(ctx context.Context, chat tidemark.ChatID) ([]storage.Pin, error) {
	return t.next().Pins(ctx, chat)
}

func (t *turns) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	return t.next().Advance(ctx, advances)
}

func (t *turns) States(
	ctx context.Context, keys []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	return t.next().States(ctx, keys)
}

func (t *turns) StatesOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	return t.next().StatesOf(ctx, user, after, limit)
}

func (t *turns) StatesIn(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	return t.next().StatesIn(ctx, chat, after, limit)
}

func (t *turns) Summary(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
	author tidemark.UserID,
) (storage.Summary, error) {
	return t.next().Summary(ctx, chat, sequence, author)
}

func (t *turns) Unread(
	ctx context.Context, keys []storage.StateKey,
) ([]storage.Unread, error) {
	return t.next().Unread(ctx, keys)
}

func (t *turns) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (storage.UnreadTotal, error) {
	return t.next().UnreadOf(ctx, user)
}

func (t *turns) MarkUnread(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from tidemark.Sequence,
) (tidemark.DeliveryState, error) {
	return t.next().MarkUnread(ctx, user, chat, from)
}

func (t *turns) SetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) error {
	return t.next().SetReceipts(ctx, user, chat, setting)
}

func (t *turns) ReceiptsOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (inChat, inAll tidemark.ReceiptsSetting, err error) {
	return t.next().ReceiptsOf(ctx, user, chat)
}

func (t *turns) Incarnation() tidemark.Incarnation { return t.next().Incarnation() }

func (t *turns) Shared(
	ctx context.Context, claims []storage.Claim,
) ([]tidemark.Sequence, error) {
	return t.next().Shared(ctx, claims)
}

func (t *turns) Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error) {
	return t.next().Mark(ctx, rows)
}

func (t *turns) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	return t.next().Clear(ctx, items)
}

func (t *turns) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	return t.next().PendingOf(ctx, user, after, limit)
}

func (t *turns) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	return t.next().Behind(ctx, user, q)
}

func (t *turns) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	return t.next().Backlogs(ctx, q)
}

func (t *turns) Rewind(ctx context.Context, backlogs []storage.Backlog) error {
	return t.next().Rewind(ctx, backlogs)
}

func (t *turns) Settle(ctx context.Context, items []storage.Settlement) ([]bool, error) {
	return t.next().Settle(ctx, items)
}

func (t *turns) EachChat(
	ctx context.Context, after tidemark.ChatID, limit int,
) ([]tidemark.ChatID, tidemark.ChatID, bool, error) {
	return t.next().EachChat(ctx, after, limit)
}

func (t *turns) MembersSince(
	ctx context.Context, q storage.MembersQuery,
) ([]storage.ChangedMember, bool, error) {
	return t.next().MembersSince(ctx, q)
}

func (t *turns) Documents(
	ctx context.Context, kind, after string, limit int,
) ([]storage.Document, bool, error) {
	return t.next().Documents(ctx, kind, after, limit)
}

func (t *turns) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	return t.next().DocumentsOf(ctx, keys)
}

func (t *turns) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	return t.next().PutDocument(ctx, d)
}

func (t *turns) Expire(
	ctx context.Context, chat tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	return t.next().Expire(ctx, chat, before, limit)
}

func (t *turns) FinishImport(ctx context.Context, chat tidemark.ChatID, now time.Time) error {
	return t.next().FinishImport(ctx, chat, now)
}

func (t *turns) DeleteChat(
	ctx context.Context, chat tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	return t.next().DeleteChat(ctx, chat, now)
}

func (t *turns) PurgeChat(
	ctx context.Context, chat tidemark.ChatID, limit int, members bool,
) (int, bool, error) {
	return t.next().PurgeChat(ctx, chat, limit, members)
}

func (t *turns) ChatsNaming(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.ChatID, tidemark.ChatID, bool, error) {
	return t.next().ChatsNaming(ctx, user, after, limit)
}

func (t *turns) CloseDirect(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	return t.next().CloseDirect(ctx, chat, user, now)
}

func (t *turns) EraseMessages(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, page storage.ErasePage,
) (storage.ErasedPage, error) {
	return t.next().EraseMessages(ctx, chat, e, page)
}

func (t *turns) EraseMember(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, limit int,
) (bool, error) {
	return t.next().EraseMember(ctx, chat, e, limit)
}

func (t *turns) EraseUser(
	ctx context.Context, user tidemark.UserID, limit int,
) (bool, error) {
	return t.next().EraseUser(ctx, user, limit)
}

func (t *turns) Policies(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Policy, error) {
	return t.next().Policies(ctx, chats)
}
