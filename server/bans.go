package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/pagetoken"
	"github.com/tidemark-im/tidemark/storage"
)

// BanPage is a page of those who are banned from a chat, ordered by user id. NextCursor is empty on
// the last page.
type BanPage struct {
	Bans       []storage.Ban
	NextCursor string
}

// Bans returns a page of those who are banned from a group. Owners, admins and backends may see it.
// limit is at least 1.
//
// Errors: NotFound, NotMember, Denied.
func (s *Server) Bans(
	ctx context.Context, c Caller, id tidemark.ChatID, limit int, cursor string,
) (BanPage, error) {
	after, err := pagetoken.DecodeID[tidemark.UserID](pagetoken.Bans, cursor)
	if err != nil {
		return BanPage{}, err
	}
	if _, _, err := s.mayManage(ctx, c, id); err != nil {
		return BanPage{}, err
	}
	bans, more, err := s.storage.BansOf(ctx, id, after, limit)
	if err != nil {
		return BanPage{}, err
	}
	page := BanPage{Bans: bans}
	if more && len(bans) > 0 {
		page.NextCursor = pagetoken.Encode(pagetoken.Bans, string(bans[len(bans)-1].User))
	}
	return page, nil
}

// Ban bans a user from a group, and ends their membership in the same step. Owners and backends may
// ban anybody. Admins may ban all but owners and admins. Nobody bans themselves. The call may be
// repeated.
//
// Errors: Invalid (the user), NotFound, NotMember (the caller), Denied (also above
// tidemark.MaxBans, and if the user was erased), Unavailable (repeat the call).
func (s *Server) Ban(
	ctx context.Context, c Caller, id tidemark.ChatID, user tidemark.UserID,
) error {
	if err := s.mayBan(c, user); err != nil {
		return err
	}
	if err := s.erased(user); err != nil {
		return err
	}
	if err := s.calls.begin(); err != nil {
		return err
	}
	defer s.calls.end()
	roster, m, err := s.mayManage(ctx, c, id)
	if err != nil {
		return err
	}
	//rule:caller_does_only_what_they_may.admins-ban-those-below
	if target, there := roster.Member(user); !c.Backend && there && !m.Role.Manages(target.Role) {
		return tidemark.Errorf(tidemark.Denied, "an admin may not ban an owner or an admin")
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	banned, err := s.ban(ctx, id, user)
	if err != nil {
		return concealed(c, id, err)
	}
	if banned.Left {
		s.announceRemoval(ctx, id, user, banned.Removed)
		return nil
	}
	s.chats.Chat(id).Invalidate(banned.Version)
	s.outdate(ctx, id, banned.Version)
	return nil
}

// mayBan returns Invalid if the user cannot be banned by the caller at all.
func (s *Server) mayBan(c Caller, user tidemark.UserID) error {
	if err := tidemark.CheckID("user_id", user); err != nil {
		return err
	}
	if user == c.User {
		return tidemark.BadParam(tidemark.Invalid, "user_id",
			"is your own; leave the chat, or name another user")
	}
	return nil
}

// ban bans a user in storage. If an outcome is unknown, it tries again. An earlier attempt may then
// have removed the user.
func (s *Server) ban(
	ctx context.Context, id tidemark.ChatID, user tidemark.UserID,
) (storage.Banned, error) {
	for attempt := 1; ; attempt++ {
		banned, err := s.storage.Ban(ctx, id, user, s.now())
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			//rule:banned_stays_out.tell-after-unknown-ban
			banned.Left = banned.Left || attempt > 1
			return banned, err
		}
		s.chats.ForgetRoster(id)
		if attempt == changeAttempts || !signal.Pause(ctx, changePause<<attempt) {
			return banned, err
		}
	}
}

// Unban lifts a ban. Owners, admins and backends may do so. The user can then be added again. It
// may be repeated.
//
// Errors: Invalid (the user), NotFound, NotMember, Denied, Unavailable (repeat the call).
func (s *Server) Unban(
	ctx context.Context, c Caller, id tidemark.ChatID, user tidemark.UserID,
) error {
	if err := tidemark.CheckID("user_id", user); err != nil {
		return err
	}
	if err := s.calls.begin(); err != nil {
		return err
	}
	defer s.calls.end()
	if _, _, err := s.mayManage(ctx, c, id); err != nil {
		return err
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	return concealed(c, id, s.storage.Unban(ctx, id, user))
}
