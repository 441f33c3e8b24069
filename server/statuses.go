package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/pagetoken"
)

// maxStatuses is how many chats one call of Statuses may name.
const maxStatuses = 100

// ChatStatuses is what others have received and read of a chat, or an error.
type ChatStatuses struct {
	Chat tidemark.ChatID
	// Updates has the boundary of each member. In a chat of more than Config.StatusFanout members
	// it has one, the least of all. Boundaries that are 0 are left out.
	Updates []tidemark.StatusUpdate
	// Err is nil, NotFound or NotMember.
	Err error
}

// Statuses returns what `status_update` events would say of chats, in the order of ids.
//
// Errors: Invalid (no chat, more than maxStatuses, or a bad id), Unavailable.
func (s *Server) Statuses(
	ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID,
) ([]ChatStatuses, error) {
	if len(ids) == 0 || len(ids) > maxStatuses {
		return nil, tidemark.BadParam(tidemark.Invalid, "chat_id",
			"names %d chats; name 1 to %d", len(ids), maxStatuses)
	}
	for _, id := range ids {
		if err := tidemark.CheckID("chat_id", id); err != nil {
			return nil, err
		}
	}
	verdicts, err := s.chats.Memberships(ctx, keysOf(user, ids))
	if err != nil {
		return nil, err
	}
	all := make([]ChatStatuses, len(ids))
	var own []tidemark.ChatID
	for i, id := range ids {
		all[i] = ChatStatuses{Chat: id, Err: verdicts[i]}
		if verdicts[i] == nil {
			own = append(own, id)
		}
	}
	updates, err := s.host.Boundaries(ctx, user, own)
	if err != nil {
		return nil, err
	}
	of := make(map[tidemark.ChatID][]tidemark.StatusUpdate, len(own))
	for _, u := range updates {
		of[u.ChatID] = append(of[u.ChatID], u)
	}
	for i := range all {
		all[i].Updates = of[all[i].Chat]
	}
	return all, nil
}

// PendingPage is a page of a user's pending rows, ordered by chat id. NextCursor is empty on the
// last page.
type PendingPage struct {
	Rows       []tidemark.PendingDelivery
	NextCursor string
}

// Pending returns a page of the user's own pending rows. limit is at least 1.
func (s *Server) Pending(
	ctx context.Context, user tidemark.UserID, limit int, cursor string,
) (PendingPage, error) {
	after, err := pagetoken.DecodeID[tidemark.ChatID](pagetoken.Pending, cursor)
	if err != nil {
		return PendingPage{}, err
	}
	rows, more, err := s.storage.PendingOf(ctx, user, after, limit)
	if err != nil {
		return PendingPage{}, err
	}
	page := PendingPage{Rows: make([]tidemark.PendingDelivery, len(rows))}
	for i, row := range rows {
		page.Rows[i] = row.PendingDelivery
	}
	if more && len(rows) > 0 {
		page.NextCursor = pagetoken.Encode(pagetoken.Pending, string(rows[len(rows)-1].ChatID))
	}
	return page, nil
}
