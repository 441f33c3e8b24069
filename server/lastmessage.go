package server

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// The last message of a chat is looked for in at most lastPages pages of lastPage messages.
const (
	lastPages = 20
	lastPage  = 100
)

// lastOf returns the last message of a chat that is no relation, before a relation and among what
// the user may see. It returns nil if there is none, or too far back.
//
// Errors: those of reading members and messages. A user who is no member has none.
func (s *Server) lastOf(
	ctx context.Context, user tidemark.UserID, relation *tidemark.Message,
) (*tidemark.Message, error) {
	_, member, err := s.chats.Member(ctx, user, relation.ChatID)
	switch code := tidemark.CodeOf(err); {
	case code == tidemark.NotMember || code == tidemark.NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	before := relation.Sequence
	for range lastPages {
		page, err := s.messages(ctx, storage.Range{
			Chat: relation.ChatID, Before: before, Limit: lastPage, MaxBytes: lastBytes, Bare: true,
		})
		if err != nil || len(page) == 0 {
			return nil, err
		}
		for _, m := range slices.Backward(page) {
			switch {
			//rule:nothing_outside_membership.last-message-within-membership
			case !member.Intervals.Contains(m.Sequence):
				return nil, nil
			case !m.Kind.Relates():
				return &m, nil
			}
		}
		before = page[0].Sequence
	}
	return nil, nil
}

// lastBytes ends a page that has a message which is no relation. Relations have no content.
const lastBytes = 1

// skipRelations replaces last messages that are relations.
func (s *Server) skipRelations(
	ctx context.Context, user tidemark.UserID, views []ChatView,
) (err error) {
	for i := range views {
		if last := views[i].Last; last != nil && last.Kind.Relates() {
			if views[i].Last, err = s.lastOf(ctx, user, last); err != nil {
				return err
			}
		}
	}
	return nil
}
