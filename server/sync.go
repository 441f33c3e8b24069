package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/storage"
)

// Cursor is a device's position in a chat: the device has stored everything up to Acked. 0 means
// that it has stored nothing yet.
//
// Incarnation is that of the data from which the device has it. Empty means the present one.
type Cursor struct {
	Chat        tidemark.ChatID
	Acked       tidemark.Sequence
	Incarnation tidemark.Incarnation
}

// SyncRequest states a device's cursors and asks for the messages after them. A cursor also counts
// as an acknowledgement.
type SyncRequest struct {
	// Cursors names each chat at most once. It holds at most storage.MaxBatch cursors.
	Cursors []Cursor
	// Session is the user's session whose positions the cursors set; the messages then arrive on
	// its stream. It may be empty.
	Session tidemark.SessionID
	// Limit bounds the messages of one chat. It is from 1 to 1,000.
	Limit int
	// Statuses asks for the chats' boundaries as well.
	Statuses bool
}

// SyncChat is what follows a cursor. If Reset or Err is set, there are no messages.
type SyncChat struct {
	Chat     tidemark.ChatID
	Head     tidemark.Sequence
	Messages []tidemark.Message
	Gaps     []tidemark.Gap
	HasMore  bool
	// Reset is tidemark.ResetRestored if the cursor is of an earlier incarnation and above Through,
	// and tidemark.ResetAhead if it is above the head. Else it is empty.
	Reset   tidemark.ResetReason
	Through tidemark.Sequence
	// Err is NotFound, NotMember or Invalid.
	Err error

	// former says that the user is no member, and that the cursor is a position in the chat.
	former bool
}

// SyncResponse answers a SyncRequest. With a session, Chats holds only the refused cursors.
type SyncResponse struct {
	Chats    []SyncChat
	Statuses []tidemark.StatusUpdate
	// HasMore reports that a chat here has more messages, or that more chats are behind. The client
	// then syncs again with its new cursors.
	HasMore bool
}

// Bounds of one answer: its messages, and the chats that the request did not name.
const (
	syncMessages = 5_000
	syncBehind   = 256
)

// Sync takes cursors as acknowledgements and returns the messages after each. It adds the chats
// that the request did not name and in which the user is behind, and statuses if asked. With a
// session, Sync sets the session's positions instead, and all of this follows on its stream. The
// session also keeps the cursors of chats that the user has left, in case they return.
//
// Errors: Gone (the user has no such session), Replaced (it was replaced on this node),
// ErrUncertain (another node may have it, but does not answer), Invalid, Unavailable. An error of
// one chat is in its SyncChat.
func (s *Server) Sync(
	ctx context.Context, user tidemark.UserID, r SyncRequest,
) (SyncResponse, error) {
	if len(r.Cursors) > storage.MaxBatch {
		return SyncResponse{}, tidemark.BadParam(tidemark.Invalid,
			"chats", "names %d chats, at most %d are allowed", len(r.Cursors), storage.MaxBatch)
	}
	if err := s.calls.begin(); err != nil {
		return SyncResponse{}, err
	}
	defer s.calls.end()
	if r.Session != "" {
		switch has, err := s.leases.Has(ctx, user, r.Session); {
		//rule:resume_lossless.silent-registry-ends-no-session
		case err != nil:
			return SyncResponse{}, ErrUncertain
		case !has:
			return SyncResponse{}, s.sessions.Missing(user, r.Session)
		}
	}
	chats, err := s.takeCursors(ctx, user, r.Cursors)
	if err != nil {
		return SyncResponse{}, err
	}
	if r.Session != "" {
		return s.syncSession(ctx, user, r, chats)
	}
	return s.syncAnswer(ctx, user, r, chats)
}

// takeCursors acknowledges the cursors and returns a SyncChat with the head for each. A refused
// cursor gets Err or Reset.
func (s *Server) takeCursors(
	ctx context.Context, user tidemark.UserID, cursors []Cursor,
) ([]SyncChat, error) {
	chats := make([]SyncChat, len(cursors))
	ids := make([]tidemark.ChatID, len(cursors))
	named := make(map[tidemark.ChatID]bool, len(cursors))
	for i, cursor := range cursors {
		if err := tidemark.CheckID("chat_id", cursor.Chat); err != nil {
			return nil, err
		}
		if named[cursor.Chat] {
			return nil, tidemark.BadParam(tidemark.Invalid, "chats", "names %s twice", cursor.Chat)
		}
		named[cursor.Chat] = true
		chats[i].Chat, ids[i] = cursor.Chat, cursor.Chat
	}
	heads, err := s.storage.Heads(ctx, ids)
	if err != nil {
		return nil, err
	}
	var advances []storage.Advance
	now := s.now()
	verdicts, err := s.chats.Memberships(ctx, keysOf(user, ids))
	if err != nil {
		return nil, err
	}
	shared, err := s.shared(ctx, cursors, heads)
	if err != nil {
		return nil, err
	}
	for i, cursor := range cursors {
		//rule:nothing_leaks.head-for-members-only
		if chats[i].Err = verdicts[i]; verdicts[i] != nil {
			chats[i].former = tidemark.CodeOf(verdicts[i]) == tidemark.NotMember &&
				cursor.Acked == shared[i]
			continue // without its head, which only members may know
		}
		chats[i].Head = heads[i]
		//rule:restore_is_noticed.foreign-cursor-acknowledges-nothing
		if cursor.Acked > shared[i] && s.earlier(cursor) {
			chats[i].Reset, chats[i].Through = tidemark.ResetRestored, shared[i]
			continue
		}
		//rule:watermark_bounded_by_counter.reset-cursor-above-head
		if cursor.Acked > heads[i] {
			chats[i].Reset = tidemark.ResetAhead
			continue
		}
		//rule:sync_position_from_watermark.cursor-is-acknowledgement
		if cursor.Acked > 0 {
			advances = append(advances, storage.Advance{
				User:  user,
				Chat:  cursor.Chat,
				Now:   now,
				Raise: tidemark.Raise{Acked: cursor.Acked},
			})
		}
	}
	if _, err := s.receipts.Advance(ctx, advances); err != nil {
		return nil, err
	}
	return chats, nil
}

// earlier reports whether the cursor is of another incarnation than the data.
func (s *Server) earlier(c Cursor) bool {
	return c.Incarnation != "" && c.Incarnation != s.host.Incarnation
}

// shared returns up to which sequence each cursor is a position in its chat, at most the head.
func (s *Server) shared(
	ctx context.Context, cursors []Cursor, heads []tidemark.Sequence,
) ([]tidemark.Sequence, error) {
	shared := make([]tidemark.Sequence, len(cursors))
	var claims []storage.Claim
	var at []int
	for i, cursor := range cursors {
		shared[i] = min(cursor.Acked, heads[i])
		if s.earlier(cursor) {
			at = append(at, i)
			claims = append(claims, storage.Claim{
				Chat:        cursor.Chat,
				Incarnation: cursor.Incarnation,
				Sequence:    shared[i],
			})
		}
	}
	if len(claims) == 0 {
		return shared, nil
	}
	found, err := s.storage.Shared(ctx, claims)
	for n, sequence := range found {
		shared[at[n]] = sequence
	}
	return shared, err
}

// keysOf returns the keys of a user's states in chats.
func keysOf(user tidemark.UserID, chats []tidemark.ChatID) []storage.StateKey {
	keys := make([]storage.StateKey, len(chats))
	for i, chat := range chats {
		keys[i] = storage.StateKey{User: user, Chat: chat}
	}
	return keys
}

// syncSession sets the positions of a session and returns what was refused. A reset is also sent on
// the session's stream.
func (s *Server) syncSession(
	ctx context.Context, user tidemark.UserID, r SyncRequest, chats []SyncChat,
) (SyncResponse, error) {
	var response SyncResponse
	to := session.Positions{Statuses: r.Statuses}
	for i, chat := range chats {
		if chat.Err == nil && chat.Reset == "" {
			to.Positions = append(to.Positions, session.Position{
				Chat:   chat.Chat,
				Cursor: r.Cursors[i].Acked,
				Head:   chat.Head,
			})
			continue
		}
		response.Chats = append(response.Chats, chat)
		if chat.former {
			to.Positions = append(to.Positions, session.Position{
				Chat:   chat.Chat,
				Cursor: r.Cursors[i].Acked,
				Former: true,
			})
		}
		if chat.Reset != "" {
			to.Refused = append(to.Refused, chat.reset())
		}
	}
	return response, s.sessions.Seek(ctx, user, r.Session, to)
}

// reset returns the reset of a refused cursor.
func (c *SyncChat) reset() tidemark.Reset {
	return tidemark.Reset{Reason: c.Reset, ChatID: c.Chat, Through: c.Through}
}

// syncAnswer reads what follows the cursors, and the chats that are behind and were not named.
func (s *Server) syncAnswer(
	ctx context.Context, user tidemark.UserID, r SyncRequest, chats []SyncChat,
) (SyncResponse, error) {
	var response SyncResponse
	after := make(map[tidemark.ChatID]tidemark.Sequence, len(chats))
	for i, chat := range chats {
		after[chat.Chat] = r.Cursors[i].Acked
	}
	more, next := true, tidemark.ChatID("")
	found := 0
	//rule:sync_position_from_watermark.send-chats-that-were-not-named
	for more && found < syncBehind {
		var lags []storage.Lag
		var err error
		s.host.Count.Compares.Add(1)
		lags, next, more, err = s.storage.Behind(ctx, user, storage.BehindQuery{
			After: next,
			Limit: syncBehind,
		})
		if err != nil {
			return response, err
		}
		for _, lag := range lags {
			if _, named := after[lag.Chat]; !named {
				after[lag.Chat] = lag.Acked
				chats = append(chats, SyncChat{Chat: lag.Chat, Head: lag.Head})
				found++
			}
		}
	}
	response.HasMore = more
	room := syncMessages
	for i := range chats {
		chat := &chats[i]
		if chat.Err == nil && chat.Reset == "" {
			limit := min(r.Limit, room)
			if err := s.syncChat(ctx, user, chat, after[chat.Chat], limit); err != nil {
				return response, err
			}
			room -= len(chat.Messages)
			response.HasMore = response.HasMore || chat.HasMore
		}
	}
	response.Chats = chats
	if !r.Statuses {
		return response, nil
	}
	ids := make([]tidemark.ChatID, 0, len(chats))
	for _, chat := range chats {
		ids = append(ids, chat.Chat)
	}
	var err error
	response.Statuses, err = s.host.Boundaries(ctx, user, ids)
	return response, err
}

// syncChat fills in at most limit messages after a position. If limit is 0, it only sets HasMore.
func (s *Server) syncChat(
	ctx context.Context, user tidemark.UserID, chat *SyncChat, after tidemark.Sequence, limit int,
) error {
	if limit <= 0 {
		chat.HasMore = chat.Head > after
		return nil
	}
	//rule:sync_position_from_watermark.start-behind-cursor-of-sync
	h, err := s.chats.After(ctx, user, chat.Chat, after, chat.Head, limit)
	if code := tidemark.CodeOf(err); code == tidemark.NotFound || code == tidemark.NotMember {
		chat.Err = err
		return nil
	}
	if err != nil {
		return err
	}
	chat.Messages, chat.Gaps, chat.HasMore = h.Messages, h.Gaps, h.HasMore
	return nil
}
