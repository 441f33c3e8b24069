package storagetest

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// intercepted calls every method of a store through one function. If this function returns an
// error, the caller gets the error and no results, whether or not the method was called.
type intercepted struct {
	storage.Store
	// around gets the method's name and the number of items in its slice argument, 1 if it has
	// none.
	around func(method string, items int, call func() error) error
}

// Unwrap returns the store behind the function.
func (i *intercepted) Unwrap() storage.Store { return i.Store }

// results2 and results3 make a call with two or three results through around.
func results2[A any](i *intercepted, method string, items int, call func() (A, error)) (A, error) {
	var a A
	err := i.around(method, items, func() (err error) {
		a, err = call()
		return err
	})
	if err != nil {
		var none A
		return none, err
	}
	return a, nil
}

func results3[A, B any](i *intercepted, method string, call func() (A, B, error)) (A, B, error) {
	var b B
	a, err := results2(i, method, 1, func() (a A, err error) {
		a, b, err = call()
		return a, err
	})
	if err != nil {
		var none B
		return a, none, err
	}
	return a, b, nil
}

func (i *intercepted) Check(ctx context.Context) error {
	return i.around("Check", 1, func() error { return i.Store.Check(ctx) })
}

func (i *intercepted) CreateChat(
	ctx context.Context, new storage.NewChat,
) (tidemark.Chat, bool, error) {
	return results3(i, "CreateChat",
		func() (tidemark.Chat, bool, error) { return i.Store.CreateChat(ctx, new) })
}

func (i *intercepted) Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error) {
	return results2(i, "Chat", 1, func() (tidemark.Chat, error) { return i.Store.Chat(ctx, chat) })
}

func (i *intercepted) UpdateChat(
	ctx context.Context, chat tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	return results2(i, "UpdateChat",
		1, func() (tidemark.Chat, error) { return i.Store.UpdateChat(ctx, chat, change) })
}

func (i *intercepted) ChatsOf(
	ctx context.Context, user tidemark.UserID, p storage.ChatsPage,
) ([]storage.ChatListItem, bool, error) {
	return results3(i, "ChatsOf",
		func() ([]storage.ChatListItem, bool, error) { return i.Store.ChatsOf(ctx, user, p) })
}

func (i *intercepted) Heads(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Sequence, error) {
	return results2(i, "Heads",
		len(chats), func() ([]tidemark.Sequence, error) { return i.Store.Heads(ctx, chats) })
}

func (i *intercepted) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, now time.Time,
) (storage.Added, error) {
	return results2(i, "AddMembers", len(users), func() (storage.Added, error) {
		return i.Store.AddMembers(ctx, chat, users, role, now)
	})
}

func (i *intercepted) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	return results2(i, "RemoveMember", 1, func() (storage.Removed, error) {
		return i.Store.RemoveMember(ctx, chat, user, now)
	})
}

func (i *intercepted) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	return results2(i, "UpdateMember", 1, func() (storage.UpdatedMember, error) {
		return i.Store.UpdateMember(ctx, chat, user, change)
	})
}

func (i *intercepted) Rosters(
	ctx context.Context, chats []tidemark.ChatID,
) ([]*tidemark.Roster, error) {
	return results2(i, "Rosters",
		len(chats), func() ([]*tidemark.Roster, error) { return i.Store.Rosters(ctx, chats) })
}

func (i *intercepted) Append(
	ctx context.Context, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
	return results2(i, "Append",
		len(drafts), func() ([]storage.Appended, error) { return i.Store.Append(ctx, drafts) })
}

func (i *intercepted) Sent(
	ctx context.Context, key storage.SendKey,
) (storage.Appended, bool, error) {
	return results3(i, "Sent",
		func() (storage.Appended, bool, error) { return i.Store.Sent(ctx, key) })
}

func (i *intercepted) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	return results2(i, "Ranges",
		len(ranges), func() ([][]tidemark.Message, error) { return i.Store.Ranges(ctx, ranges) })
}

func (i *intercepted) Reactions(
	ctx context.Context, q storage.ReactionsQuery,
) ([]storage.ReactionCount, tidemark.Sequence, error) {
	return results3(i, "Reactions",
		func() ([]storage.ReactionCount, tidemark.Sequence, error) {
			return i.Store.Reactions(ctx, q)
		})
}

func (i *intercepted) Reactors(
	ctx context.Context, chat tidemark.ChatID, target, after tidemark.Sequence, limit int,
) ([]storage.Reaction, bool, error) {
	return results3(i, "Reactors", func() ([]storage.Reaction, bool, error) {
		return i.Store.Reactors(ctx, chat, target, after, limit)
	})
}

func (i *intercepted) Pins(ctx context.Context, chat tidemark.ChatID) ([]storage.Pin, error) {
	return results2(i, "Pins", 1,
		func() ([]storage.Pin, error) { return i.Store.Pins(ctx, chat) })
}

func (i *intercepted) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	return results2(i, "Advance",
		len(advances), func() ([]storage.Advanced, error) { return i.Store.Advance(ctx, advances) })
}

func (i *intercepted) States(
	ctx context.Context, keys []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	return results2(i, "States",
		len(keys), func() ([]tidemark.DeliveryState, error) { return i.Store.States(ctx, keys) })
}

func (i *intercepted) StatesOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	return results3(i, "StatesOf", func() ([]tidemark.DeliveryState, bool, error) {
		return i.Store.StatesOf(ctx, user, after, limit)
	})
}

func (i *intercepted) StatesIn(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	return results3(i, "StatesIn", func() ([]tidemark.DeliveryState, bool, error) {
		return i.Store.StatesIn(ctx, chat, after, limit)
	})
}

func (i *intercepted) Summary(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
	author tidemark.UserID,
) (storage.Summary, error) {
	return results2(i, "Summary", 1, func() (storage.Summary, error) {
		return i.Store.Summary(ctx, chat, sequence, author)
	})
}

func (i *intercepted) Shared(
	ctx context.Context, claims []storage.Claim,
) ([]tidemark.Sequence, error) {
	return results2(i, "Shared", len(claims),
		func() ([]tidemark.Sequence, error) { return i.Store.Shared(ctx, claims) })
}

func (i *intercepted) Unread(
	ctx context.Context, keys []storage.StateKey,
) ([]storage.Unread, error) {
	return results2(i, "Unread", len(keys),
		func() ([]storage.Unread, error) { return i.Store.Unread(ctx, keys) })
}

func (i *intercepted) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (storage.UnreadTotal, error) {
	return results2(i, "UnreadOf", 1,
		func() (storage.UnreadTotal, error) { return i.Store.UnreadOf(ctx, user) })
}

func (i *intercepted) MarkUnread(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from tidemark.Sequence,
) (tidemark.DeliveryState, error) {
	return results2(i, "MarkUnread", 1, func() (tidemark.DeliveryState, error) {
		return i.Store.MarkUnread(ctx, user, chat, from)
	})
}

func (i *intercepted) SetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) error {
	_, err := results2(i, "SetReceipts", 1, func() (bool, error) {
		return true, i.Store.SetReceipts(ctx, user, chat, setting)
	})
	return err
}

func (i *intercepted) ReceiptsOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (inChat, inAll tidemark.ReceiptsSetting, err error) {
	return results3(i, "ReceiptsOf", func() (inChat, inAll tidemark.ReceiptsSetting, err error) {
		return i.Store.ReceiptsOf(ctx, user, chat)
	})
}

func (i *intercepted) Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error) {
	return results2(i, "Mark", len(rows), func() ([]bool, error) { return i.Store.Mark(ctx, rows) })
}

func (i *intercepted) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	return results2(i, "Clear",
		len(items), func() ([]bool, error) { return i.Store.Clear(ctx, items) })
}

func (i *intercepted) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	return results3(i, "PendingOf", func() ([]storage.PendingRow, bool, error) {
		return i.Store.PendingOf(ctx, user, after, limit)
	})
}

func (i *intercepted) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	var more bool
	lags, next, err := results3(i, "Behind",
		func() (lags []storage.Lag, next tidemark.ChatID, err error) {
			lags, next, more, err = i.Store.Behind(ctx, user, q)
			return lags, next, err
		})
	return lags, next, more && err == nil, err
}

func (i *intercepted) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	return results3(i, "Backlogs",
		func() ([]storage.Backlog, bool, error) { return i.Store.Backlogs(ctx, q) })
}

func (i *intercepted) Rewind(ctx context.Context, backlogs []storage.Backlog) error {
	_, err := results2(i, "Rewind", len(backlogs),
		func() (bool, error) { return true, i.Store.Rewind(ctx, backlogs) })
	return err
}

func (i *intercepted) Settle(ctx context.Context, items []storage.Settlement) ([]bool, error) {
	return results2(i, "Settle", len(items),
		func() ([]bool, error) { return i.Store.Settle(ctx, items) })
}

func (i *intercepted) EachChat(
	ctx context.Context, after tidemark.ChatID, limit int,
) ([]tidemark.ChatID, tidemark.ChatID, bool, error) {
	var more bool
	chats, next, err := results3(i, "EachChat",
		func() (chats []tidemark.ChatID, next tidemark.ChatID, err error) {
			chats, next, more, err = i.Store.EachChat(ctx, after, limit)
			return chats, next, err
		})
	return chats, next, more && err == nil, err
}

func (i *intercepted) MembersSince(
	ctx context.Context, q storage.MembersQuery,
) ([]storage.ChangedMember, bool, error) {
	return results3(i, "MembersSince",
		func() ([]storage.ChangedMember, bool, error) { return i.Store.MembersSince(ctx, q) })
}

func (i *intercepted) Documents(
	ctx context.Context, kind, after string, limit int,
) ([]storage.Document, bool, error) {
	return results3(i, "Documents", func() ([]storage.Document, bool, error) {
		return i.Store.Documents(ctx, kind, after, limit)
	})
}

func (i *intercepted) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	return results2(i, "DocumentsOf", len(keys),
		func() ([]storage.Document, error) { return i.Store.DocumentsOf(ctx, keys) })
}

func (i *intercepted) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	return results2(i, "PutDocument", 1,
		func() (uint64, error) { return i.Store.PutDocument(ctx, d) })
}

func (i *intercepted) Expire(
	ctx context.Context, chat tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	return results2(i, "Expire", 1, func() (storage.Expired, error) {
		return i.Store.Expire(ctx, chat, before, limit)
	})
}

func (i *intercepted) FinishImport(
	ctx context.Context, chat tidemark.ChatID, now time.Time,
) error {
	return i.around("FinishImport", 1, func() error { return i.Store.FinishImport(ctx, chat, now) })
}

func (i *intercepted) DeleteChat(
	ctx context.Context, chat tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	return results2(i, "DeleteChat", 1,
		func() (storage.Deleted, error) { return i.Store.DeleteChat(ctx, chat, now) })
}

func (i *intercepted) PurgeChat(
	ctx context.Context, chat tidemark.ChatID, limit int, members bool,
) (int, bool, error) {
	return results3(i, "PurgeChat",
		func() (int, bool, error) { return i.Store.PurgeChat(ctx, chat, limit, members) })
}

func (i *intercepted) ChatsNaming(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.ChatID, tidemark.ChatID, bool, error) {
	var more bool
	chats, next, err := results3(i, "ChatsNaming",
		func() (chats []tidemark.ChatID, next tidemark.ChatID, err error) {
			chats, next, more, err = i.Store.ChatsNaming(ctx, user, after, limit)
			return chats, next, err
		})
	return chats, next, more && err == nil, err
}

func (i *intercepted) CloseDirect(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	return results2(i, "CloseDirect", 1,
		func() (storage.Removed, error) { return i.Store.CloseDirect(ctx, chat, user, now) })
}

func (i *intercepted) EraseMessages(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, page storage.ErasePage,
) (storage.ErasedPage, error) {
	return results2(i, "EraseMessages", 1, func() (storage.ErasedPage, error) {
		return i.Store.EraseMessages(ctx, chat, e, page)
	})
}

func (i *intercepted) EraseMember(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, limit int,
) (bool, error) {
	return results2(i, "EraseMember", 1,
		func() (bool, error) { return i.Store.EraseMember(ctx, chat, e, limit) })
}

func (i *intercepted) EraseUser(
	ctx context.Context, user tidemark.UserID, limit int,
) (bool, error) {
	return results2(i, "EraseUser", 1,
		func() (bool, error) { return i.Store.EraseUser(ctx, user, limit) })
}

func (i *intercepted) Policies(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Policy, error) {
	return results2(i, "Policies", len(chats),
		func() ([]tidemark.Policy, error) { return i.Store.Policies(ctx, chats) })
}
