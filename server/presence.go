package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

// maxLooks is how many chats a client may show at once.
const maxLooks = 20

// PresenceOf says who is online in a chat, or has an error. Known is false if the call named chats
// with too many members in total.
type PresenceOf struct {
	tidemark.Presence
	Known bool
	// Err is nil, NotFound or NotMember.
	Err error
}

// Look records which chats the client of a session shows now, in place of those that it named
// before. For a minute the session gets typing notices and presence of these chats only. It gets
// the presence of all members of a chat that it did not show before. Chats of which the user is no
// member are left out, since a client may learn late that its user was removed.
//
// It does nothing if the user has no such session: the stream of the session tells the client.
//
// Errors: Invalid (more than maxLooks chats, or a bad id), NotFound or NotMember (if the user is
// a member of none of the chats), Unavailable.
func (s *Server) Look(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID, chats []tidemark.ChatID,
) error {
	chats, err := s.mayLook(ctx, user, chats)
	if err != nil {
		return err
	}
	err = s.sessions.Look(ctx, user, id, chats, func(sess *session.Session) bool {
		return s.presence.Look(sess, chats)
	})
	if code := tidemark.CodeOf(err); code == tidemark.Gone || code == tidemark.Replaced {
		return nil
	}
	return err
}

// Look is Server.Look for this session.
func (c *Connection) Look(ctx context.Context, chats []tidemark.ChatID) error {
	chats, err := c.server.mayLook(ctx, c.user(), chats)
	if err != nil {
		return err
	}
	// A session that has ended has told its client already.
	c.server.presence.Look(c.reader.Session(), chats)
	return nil
}

// mayLook returns those of chats at which the user may look. If there is none, it returns why.
func (s *Server) mayLook(
	ctx context.Context, user tidemark.UserID, chats []tidemark.ChatID,
) (own []tidemark.ChatID, err error) {
	verdicts, err := s.looks(ctx, user, "chat_ids", chats)
	if err != nil {
		return nil, err
	}
	for i := range verdicts {
		//rule:nothing_outside_membership.look-at-own-chats-only
		if verdicts[i] != nil {
			err = verdicts[i]
			continue
		}
		own = append(own, chats[i])
	}
	if len(own) > 0 {
		err = nil
	}
	return own, err
}

// looks returns for each chat nil, NotFound or NotMember. param names the chats in errors.
//
// Errors: Invalid, Unavailable.
func (s *Server) looks(
	ctx context.Context, user tidemark.UserID, param string, chats []tidemark.ChatID,
) ([]error, error) {
	//rule:bounded_use.bound-looks
	if len(chats) > maxLooks {
		return nil, tidemark.BadParam(tidemark.Invalid, param,
			"names %d chats; name at most %d", len(chats), maxLooks)
	}
	for _, id := range chats {
		if err := tidemark.CheckID(param, id); err != nil {
			return nil, err
		}
	}
	return s.chats.Memberships(ctx, keysOf(user, chats))
}

// Presence returns who of chats is online now, in their order. It is for clients without a session.
//
// Errors: Invalid (more than maxLooks chats, or a bad id), Unavailable.
func (s *Server) Presence(
	ctx context.Context, user tidemark.UserID, chats []tidemark.ChatID,
) ([]PresenceOf, error) {
	verdicts, err := s.looks(ctx, user, "chat_id", chats)
	if err != nil {
		return nil, err
	}
	all := make([]PresenceOf, len(chats))
	var own []tidemark.ChatID
	var at []int
	for i, id := range chats {
		all[i] = PresenceOf{Presence: tidemark.Presence{ChatID: id}, Err: verdicts[i]}
		if verdicts[i] == nil {
			own, at = append(own, id), append(at, i)
		}
	}
	read, known, err := s.presence.Read(ctx, user, own)
	for i := range read {
		all[at[i]].Presence, all[at[i]].Known = read[i], known[i]
	}
	return all, err
}

// Visible reports whether others see when the user is online and was last seen.
func (s *Server) Visible(ctx context.Context, user tidemark.UserID) (bool, error) {
	return s.presence.Visible(ctx, user)
}

// SetVisible hides a user or shows them again. A user who hides sees nobody either.
//
// Errors: Invalid (this server keeps no such settings), Unavailable.
func (s *Server) SetVisible(ctx context.Context, user tidemark.UserID, visible bool) error {
	return s.presence.SetVisible(ctx, user, visible)
}
