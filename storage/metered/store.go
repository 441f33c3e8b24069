package metered

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Store measures another store. It implements every method explicitly, so that the compiler reports
// a method that is added to the contract.
type Store struct {
	meter *Meter
	store storage.Store
}

// Store returns a store that passes all calls to s and measures them.
func (m *Meter) Store(s storage.Store) *Store { return &Store{meter: m, store: s} }

// Unwrap returns the store whose calls are measured.
func (s *Store) Unwrap() storage.Store { return s.store }

// Close implements storage.Store. It is not measured.
func (s *Store) Close() error { return s.store.Close() }

// CreateChat implements storage.Chats.
func (s *Store) CreateChat(
	ctx context.Context, new storage.NewChat,
) (chat tidemark.Chat, created bool, err error) {
	began := time.Now()
	chat, created, err = s.store.CreateChat(ctx, new)
	s.meter.done(ctx, opCreateChat, began, err)
	return chat, created, err
}

// Chat implements storage.Chats.
func (s *Store) Chat(ctx context.Context, id tidemark.ChatID) (chat tidemark.Chat, err error) {
	began := time.Now()
	chat, err = s.store.Chat(ctx, id)
	s.meter.done(ctx, opChat, began, err)
	return chat, err
}

// UpdateChat implements storage.Chats.
func (s *Store) UpdateChat(
	ctx context.Context, id tidemark.ChatID, change storage.ChatChange,
) (chat tidemark.Chat, err error) {
	began := time.Now()
	chat, err = s.store.UpdateChat(ctx, id, change)
	s.meter.done(ctx, opUpdateChat, began, err)
	return chat, err
}

// ChatsOf implements storage.Chats.
func (s *Store) ChatsOf(
	ctx context.Context, user tidemark.UserID, page storage.ChatsPage,
) (chats []storage.ChatListItem, more bool, err error) {
	began := time.Now()
	chats, more, err = s.store.ChatsOf(ctx, user, page)
	s.meter.done(ctx, opChatsOf, began, err)
	return chats, more, err
}

// Heads implements storage.Chats.
func (s *Store) Heads(
	ctx context.Context, chats []tidemark.ChatID,
) (heads []tidemark.Sequence, err error) {
	began := time.Now()
	heads, err = s.store.Heads(ctx, chats)
	s.meter.done(ctx, opHeads, began, err)
	return heads, err
}

// AddMembers implements storage.Members.
func (s *Store) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, now time.Time,
) (added storage.Added, err error) {
	began := time.Now()
	added, err = s.store.AddMembers(ctx, chat, users, role, now)
	s.meter.done(ctx, opAddMembers, began, err)
	return added, err
}

// RemoveMember implements storage.Members.
func (s *Store) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (removed storage.Removed, err error) {
	began := time.Now()
	removed, err = s.store.RemoveMember(ctx, chat, user, now)
	s.meter.done(ctx, opRemoveMember, began, err)
	return removed, err
}

// UpdateMember implements storage.Members.
func (s *Store) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (updated storage.UpdatedMember, err error) {
	began := time.Now()
	updated, err = s.store.UpdateMember(ctx, chat, user, change)
	s.meter.done(ctx, opUpdateMember, began, err)
	return updated, err
}

// Rosters implements storage.Members.
func (s *Store) Rosters(
	ctx context.Context, chats []tidemark.ChatID,
) (rosters []*tidemark.Roster, err error) {
	began := time.Now()
	rosters, err = s.store.Rosters(ctx, chats)
	s.meter.done(ctx, opRosters, began, err)
	return rosters, err
}

// Append implements storage.Messages.
func (s *Store) Append(
	ctx context.Context, drafts []tidemark.Draft,
) (appended []storage.Appended, err error) {
	began := time.Now()
	appended, err = s.store.Append(ctx, drafts)
	s.meter.done(ctx, opAppend, began, err)
	return appended, err
}

// Sent implements storage.Messages.
func (s *Store) Sent(
	ctx context.Context, key storage.SendKey,
) (appended storage.Appended, found bool, err error) {
	began := time.Now()
	appended, found, err = s.store.Sent(ctx, key)
	s.meter.done(ctx, opSent, began, err)
	return appended, found, err
}

// Ranges implements storage.Messages.
func (s *Store) Ranges(
	ctx context.Context, ranges []storage.Range,
) (messages [][]tidemark.Message, err error) {
	began := time.Now()
	messages, err = s.store.Ranges(ctx, ranges)
	s.meter.done(ctx, opRanges, began, err)
	return messages, err
}

// Observe implements storage.Messages. It is not measured.
func (s *Store) Observe(m *tidemark.Message) { s.store.Observe(m) }

// Reactions implements storage.Annotations.
func (s *Store) Reactions(
	ctx context.Context, q storage.ReactionsQuery,
) (found []storage.ReactionCount, through tidemark.Sequence, err error) {
	began := time.Now()
	found, through, err = s.store.Reactions(ctx, q)
	s.meter.done(ctx, opReactions, began, err)
	return found, through, err
}

// Reactors implements storage.Annotations.
func (s *Store) Reactors(
	ctx context.Context, chat tidemark.ChatID, target, after tidemark.Sequence, limit int,
) (reactions []storage.Reaction, more bool, err error) {
	began := time.Now()
	reactions, more, err = s.store.Reactors(ctx, chat, target, after, limit)
	s.meter.done(ctx, opReactors, began, err)
	return reactions, more, err
}

// Pins implements storage.Annotations.
func (s *Store) Pins(ctx context.Context, chat tidemark.ChatID) (pins []storage.Pin, err error) {
	began := time.Now()
	pins, err = s.store.Pins(ctx, chat)
	s.meter.done(ctx, opPins, began, err)
	return pins, err
}

// Advance implements storage.Deliveries.
func (s *Store) Advance(
	ctx context.Context, advances []storage.Advance,
) (advanced []storage.Advanced, err error) {
	began := time.Now()
	advanced, err = s.store.Advance(ctx, advances)
	s.meter.done(ctx, opAdvance, began, err)
	return advanced, err
}

// States implements storage.Deliveries.
func (s *Store) States(
	ctx context.Context, keys []storage.StateKey,
) (states []tidemark.DeliveryState, err error) {
	began := time.Now()
	states, err = s.store.States(ctx, keys)
	s.meter.done(ctx, opStates, began, err)
	return states, err
}

// StatesOf implements storage.Deliveries.
func (s *Store) StatesOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) (states []tidemark.DeliveryState, more bool, err error) {
	began := time.Now()
	states, more, err = s.store.StatesOf(ctx, user, after, limit)
	s.meter.done(ctx, opStatesOf, began, err)
	return states, more, err
}

// StatesIn implements storage.Deliveries.
func (s *Store) StatesIn(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) (states []tidemark.DeliveryState, more bool, err error) {
	began := time.Now()
	states, more, err = s.store.StatesIn(ctx, chat, after, limit)
	s.meter.done(ctx, opStatesIn, began, err)
	return states, more, err
}

// Summary implements storage.Deliveries.
func (s *Store) Summary(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
	author tidemark.UserID,
) (summary storage.Summary, err error) {
	began := time.Now()
	summary, err = s.store.Summary(ctx, chat, sequence, author)
	s.meter.done(ctx, opSummary, began, err)
	return summary, err
}

// Incarnation implements storage.Lives. It is not measured.
func (s *Store) Incarnation() tidemark.Incarnation { return s.store.Incarnation() }

// Shared implements storage.Lives.
func (s *Store) Shared(
	ctx context.Context, claims []storage.Claim,
) (shared []tidemark.Sequence, err error) {
	began := time.Now()
	shared, err = s.store.Shared(ctx, claims)
	s.meter.done(ctx, opShared, began, err)
	return shared, err
}

// Unread implements storage.Unreads.
func (s *Store) Unread(
	ctx context.Context, keys []storage.StateKey,
) (counts []storage.Unread, err error) {
	began := time.Now()
	counts, err = s.store.Unread(ctx, keys)
	s.meter.done(ctx, opUnread, began, err)
	return counts, err
}

// UnreadOf implements storage.Unreads.
func (s *Store) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (total storage.UnreadTotal, err error) {
	began := time.Now()
	total, err = s.store.UnreadOf(ctx, user)
	s.meter.done(ctx, opUnreadOf, began, err)
	return total, err
}

// MarkUnread implements storage.Unreads.
func (s *Store) MarkUnread(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from tidemark.Sequence,
) (state tidemark.DeliveryState, err error) {
	began := time.Now()
	state, err = s.store.MarkUnread(ctx, user, chat, from)
	s.meter.done(ctx, opMarkUnread, began, err)
	return state, err
}

// Mark implements storage.Pending.
func (s *Store) Mark(
	ctx context.Context, rows []tidemark.PendingDelivery,
) (written []bool, err error) {
	began := time.Now()
	written, err = s.store.Mark(ctx, rows)
	//rule:metrics_documented.count-by-operation
	s.meter.done(ctx, opMark, began, err)
	return written, err
}

// Clear implements storage.Pending.
func (s *Store) Clear(ctx context.Context, items []storage.Clear) (cleared []bool, err error) {
	began := time.Now()
	cleared, err = s.store.Clear(ctx, items)
	s.meter.done(ctx, opClear, began, err)
	return cleared, err
}

// PendingOf implements storage.Pending.
func (s *Store) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) (rows []storage.PendingRow, more bool, err error) {
	began := time.Now()
	rows, more, err = s.store.PendingOf(ctx, user, after, limit)
	s.meter.done(ctx, opPendingOf, began, err)
	return rows, more, err
}

// Behind implements storage.Pending.
func (s *Store) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) (chats []storage.Lag, next tidemark.ChatID, more bool, err error) {
	began := time.Now()
	chats, next, more, err = s.store.Behind(ctx, user, q)
	s.meter.done(ctx, opBehind, began, err)
	return chats, next, more, err
}

// Backlogs implements storage.Outbox.
func (s *Store) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) (backlogs []storage.Backlog, more bool, err error) {
	began := time.Now()
	backlogs, more, err = s.store.Backlogs(ctx, q)
	s.meter.done(ctx, opBacklogs, began, err)
	return backlogs, more, err
}

// Rewind implements storage.Outbox.
func (s *Store) Rewind(ctx context.Context, backlogs []storage.Backlog) (err error) {
	began := time.Now()
	err = s.store.Rewind(ctx, backlogs)
	s.meter.done(ctx, opRewind, began, err)
	return err
}

// Settle implements storage.Outbox.
func (s *Store) Settle(
	ctx context.Context, items []storage.Settlement,
) (settled []bool, err error) {
	began := time.Now()
	settled, err = s.store.Settle(ctx, items)
	s.meter.done(ctx, opSettle, began, err)
	return settled, err
}

// EachChat implements storage.Outbox.
func (s *Store) EachChat(
	ctx context.Context, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	began := time.Now()
	chats, next, more, err = s.store.EachChat(ctx, after, limit)
	s.meter.done(ctx, opEachChat, began, err)
	return chats, next, more, err
}

// MembersSince implements storage.Outbox.
func (s *Store) MembersSince(
	ctx context.Context, q storage.MembersQuery,
) (members []storage.ChangedMember, more bool, err error) {
	began := time.Now()
	members, more, err = s.store.MembersSince(ctx, q)
	s.meter.done(ctx, opMembersSince, began, err)
	return members, more, err
}

// Documents implements storage.Documents.
func (s *Store) Documents(
	ctx context.Context, kind, after string, limit int,
) (found []storage.Document, more bool, err error) {
	began := time.Now()
	found, more, err = s.store.Documents(ctx, kind, after, limit)
	s.meter.done(ctx, opDocuments, began, err)
	return found, more, err
}

// DocumentsOf implements storage.Documents.
func (s *Store) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) (found []storage.Document, err error) {
	began := time.Now()
	found, err = s.store.DocumentsOf(ctx, keys)
	s.meter.done(ctx, opDocumentsOf, began, err)
	return found, err
}

// PutDocument implements storage.Documents.
func (s *Store) PutDocument(ctx context.Context, d storage.Document) (version uint64, err error) {
	began := time.Now()
	version, err = s.store.PutDocument(ctx, d)
	s.meter.done(ctx, opPutDocument, began, err)
	return version, err
}

// Check implements storage.Store.
func (s *Store) Check(ctx context.Context) (err error) {
	began := time.Now()
	err = s.store.Check(ctx)
	s.meter.done(ctx, opCheck, began, err)
	return err
}

// Expire implements storage.Retention.
func (s *Store) Expire(
	ctx context.Context, chat tidemark.ChatID, before time.Time, limit int,
) (expired storage.Expired, err error) {
	began := time.Now()
	expired, err = s.store.Expire(ctx, chat, before, limit)
	s.meter.done(ctx, opExpire, began, err)
	return expired, err
}

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(
	ctx context.Context, chat tidemark.ChatID, now time.Time,
) (err error) {
	began := time.Now()
	err = s.store.FinishImport(ctx, chat, now)
	s.meter.done(ctx, opFinishImport, began, err)
	return err
}

// DeleteChat implements storage.Deletions.
func (s *Store) DeleteChat(
	ctx context.Context, chat tidemark.ChatID, now time.Time,
) (deleted storage.Deleted, err error) {
	began := time.Now()
	deleted, err = s.store.DeleteChat(ctx, chat, now)
	s.meter.done(ctx, opDeleteChat, began, err)
	return deleted, err
}

// PurgeChat implements storage.Deletions.
func (s *Store) PurgeChat(
	ctx context.Context, chat tidemark.ChatID, limit int, members bool,
) (removed int, done bool, err error) {
	began := time.Now()
	removed, done, err = s.store.PurgeChat(ctx, chat, limit, members)
	s.meter.done(ctx, opPurgeChat, began, err)
	return removed, done, err
}

// ChatsNaming implements storage.Erasures.
func (s *Store) ChatsNaming(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	began := time.Now()
	chats, next, more, err = s.store.ChatsNaming(ctx, user, after, limit)
	s.meter.done(ctx, opChatsNaming, began, err)
	return chats, next, more, err
}

// CloseDirect implements storage.Erasures.
func (s *Store) CloseDirect(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (removed storage.Removed, err error) {
	began := time.Now()
	removed, err = s.store.CloseDirect(ctx, chat, user, now)
	s.meter.done(ctx, opCloseDirect, began, err)
	return removed, err
}

// EraseMessages implements storage.Erasures.
func (s *Store) EraseMessages(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, page storage.ErasePage,
) (erased storage.ErasedPage, err error) {
	began := time.Now()
	erased, err = s.store.EraseMessages(ctx, chat, e, page)
	s.meter.done(ctx, opEraseMessages, began, err)
	return erased, err
}

// EraseMember implements storage.Erasures.
func (s *Store) EraseMember(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, limit int,
) (done bool, err error) {
	began := time.Now()
	done, err = s.store.EraseMember(ctx, chat, e, limit)
	s.meter.done(ctx, opEraseMember, began, err)
	return done, err
}

// EraseUser implements storage.Erasures.
func (s *Store) EraseUser(
	ctx context.Context, user tidemark.UserID, limit int,
) (done bool, err error) {
	began := time.Now()
	done, err = s.store.EraseUser(ctx, user, limit)
	s.meter.done(ctx, opEraseUser, began, err)
	return done, err
}

// Policies implements storage.Retention.
func (s *Store) Policies(
	ctx context.Context, chats []tidemark.ChatID,
) (policies []tidemark.Policy, err error) {
	began := time.Now()
	policies, err = s.store.Policies(ctx, chats)
	s.meter.done(ctx, opPolicies, began, err)
	return policies, err
}

// UsersNamed implements storage.Traces.
func (s *Store) UsersNamed(
	ctx context.Context, after string, limit int,
) (users []tidemark.UserID, next string, more bool, err error) {
	began := time.Now()
	users, next, more, err = s.store.UsersNamed(ctx, after, limit)
	s.meter.done(ctx, opUsersNamed, began, err)
	return users, next, more, err
}
