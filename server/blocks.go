package server

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/pagetoken"
	"github.com/tidemark-im/tidemark/storage"
)

// BlockPage is a page of those whom a user has blocked, ordered by user id. NextCursor is empty on
// the last page.
type BlockPage struct {
	Blocks     []storage.Block
	NextCursor string
}

// Blocks returns a page of those whom the user has blocked. limit is at least 1.
func (s *Server) Blocks(
	ctx context.Context, user tidemark.UserID, limit int, cursor string,
) (BlockPage, error) {
	after, err := pagetoken.DecodeID[tidemark.UserID](pagetoken.Blocks, cursor)
	if err != nil {
		return BlockPage{}, err
	}
	blocks, more, err := s.storage.BlocksOf(ctx, user, after, limit)
	if err != nil {
		return BlockPage{}, err
	}
	page := BlockPage{Blocks: blocks}
	if more && len(blocks) > 0 {
		last := blocks[len(blocks)-1].User
		page.NextCursor = pagetoken.Encode(pagetoken.Blocks, string(last))
	}
	return page, nil
}

// Block lets the user block another user. That closes their direct chat. Neither can create a new
// one, or add the other to a group. After nil, nothing is stored in the closed chat, unless a
// backend redacts. Groups that both are in go on. The call may be repeated.
//
// Errors: Invalid (the id, or the user's own), Denied (above tidemark.MaxBlocks, or the other user
// was erased), Unavailable (repeat the call).
func (s *Server) Block(ctx context.Context, user, other tidemark.UserID) error {
	if err := s.erased(other); err != nil {
		return err
	}
	return s.changeBlock(ctx, user, other, func(ctx context.Context) (storage.PairChat, error) {
		return s.storage.PutBlock(ctx, user, other, s.now())
	})
}

// Unblock ends what Block began, unless the other user has blocked this one, too. It may be
// repeated.
//
// Errors: Invalid (the id, or the user's own), Unavailable (repeat the call).
func (s *Server) Unblock(ctx context.Context, user, other tidemark.UserID) error {
	return s.changeBlock(ctx, user, other, func(ctx context.Context) (storage.PairChat, error) {
		return s.storage.RemoveBlock(ctx, user, other)
	})
}

// changeBlock makes a change of a block, and tells all nodes of the state of the direct chat. If
// the outcome is unknown, it tries again: a repeated change changes nothing more.
func (s *Server) changeBlock(
	ctx context.Context, user, other tidemark.UserID,
	change func(context.Context) (storage.PairChat, error),
) error {
	if err := tidemark.CheckID("user_id", other); err != nil {
		return err
	}
	if user == other {
		return tidemark.BadParam(tidemark.Invalid, "user_id", "is your own; name another user")
	}
	if err := s.calls.begin(); err != nil {
		return err
	}
	defer s.calls.end()
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		pair, err := change(ctx)
		if err == nil {
			// An earlier attempt may have closed the chat, or opened it.
			s.announcePair(ctx, pair, pair.Turned || attempt > 1)
		}
		if tidemark.CodeOf(err) != tidemark.Unavailable ||
			attempt == changeAttempts || !signal.Pause(ctx, changePause<<attempt) {
			return err
		}
	}
}

// announcePair notifies all nodes of the state of a direct chat. It also does so if the call
// changed nothing: an earlier one may have ended before it. If the chat was closed or opened, it
// notifies the members' sessions, too. They get nothing else: it would say who has blocked whom.
func (s *Server) announcePair(ctx context.Context, pair storage.PairChat, turned bool) {
	if pair.ID == "" {
		return
	}
	s.chats.Chat(pair.ID).Invalidate(pair.MembersVersion)
	//rule:blocked_is_closed.outdate-the-rosters-of-all-nodes
	s.outdate(ctx, pair.ID, pair.MembersVersion)
	//rule:blocked_is_closed.tell-only-what-members-see
	if !turned {
		return
	}
	s.announceUpdate(ctx, tidemark.Chat{ID: pair.ID, Version: pair.Version}, false)
	if !pair.State.Closed() {
		//rule:blocked_is_closed.publish-boundaries-when-opened
		s.receipts.Recompute(pair.ID)
	}
}

// outdate notifies all nodes, and no session, that a chat has a membership version.
func (s *Server) outdate(ctx context.Context, id tidemark.ChatID, version uint64) {
	s.announce(ctx, nil, bus.Membership{
		Changes: []tidemark.MembershipChange{
			{ChatID: id, UserID: forNodes, Change: tidemark.MetadataChanged},
		},
		Version: version,
	})
}

// open returns nil, or the Denied of a closed chat. The roster may be old, so open reads it again
// before it refuses.
func (s *Server) open(ctx context.Context, roster *chat.Roster) error {
	if !roster.State.Closed() {
		return nil
	}
	now, err := s.chats.Current(ctx, roster.ChatID)
	//rule:blocked_is_closed.no-typing
	if err == nil && now.State.Closed() {
		err = storage.Closed()
	}
	return err
}

// notApart returns Denied if a block stands between the caller's user and one of the users. It does
// not say whose. field names the users in the error. A backend without a user adds anybody.
func (s *Server) notApart(
	ctx context.Context, c Caller, field string, users []tidemark.UserID,
) error {
	if c.User == "" {
		return nil
	}
	found, err := s.storage.Apart(ctx, c.User, users)
	//rule:blocked_is_closed.add-nobody-who-is-blocked
	if err == nil && len(found) > 0 {
		err = tidemark.BadParam(tidemark.Denied, field, "names %s, whom you cannot add", found[0])
	}
	return err
}

// mayGather returns Denied if a block stands between the creator and another member of a new group.
// A group that an equal request has created stays as it is. Of direct chats, storage decides.
func (s *Server) mayGather(ctx context.Context, c Caller, n storage.NewChat) error {
	if n.Type != tidemark.Group {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(n.Members),
		func(user tidemark.UserID) bool { return user == c.User })
	err := s.notApart(ctx, c, "member_ids", others)
	if tidemark.CodeOf(err) == tidemark.Denied {
		if _, other := s.repeated(ctx, n, err); other == nil {
			return nil
		}
	}
	return err
}

// closedStatus is DeliveryStatus of a closed chat for one of its members. Of the other one it says
// nothing: their watermarks are 0.
func (s *Server) closedStatus(
	ctx context.Context, user tidemark.UserID, status DeliveryStatus, users []tidemark.UserID,
	author, after tidemark.UserID, limit int,
) (DeliveryStatus, error) {
	own, err := s.storage.States(ctx, []storage.StateKey{{User: user, Chat: status.Chat.ID}})
	if err != nil {
		return DeliveryStatus{}, err
	}
	for _, member := range users {
		state := tidemark.DeliveryState{UserID: member, ChatID: status.Chat.ID}
		//rule:blocked_is_closed.status-of-oneself-only
		if member == user {
			state = own[0]
		}
		status.Summary.Count(state, status.Sequence, author)
		switch {
		case member <= after:
		case len(status.Members) == limit:
			status.NextCursor = pagetoken.Encode(pagetoken.Members,
				string(status.Members[limit-1].UserID))
		default:
			status.Members = append(status.Members, state)
		}
	}
	return status, nil
}
