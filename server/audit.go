package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/storage"
)

// auditRedaction records that a user, or a backend for them, has redacted messages of other users.
//
// A call whose outcome is not known has no entry. The same send again resolves it, and is recorded.
func (s *Server) auditRedaction(ctx context.Context, sent *Sent) {
	m := &sent.Message
	if s.cfg.Audit == nil || sent.Err != nil || m.Kind != tidemark.KindRedact ||
		m.Relation == nil {
		return
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	if of, others := s.ofOthers(ctx, m); others {
		s.cfg.Audit.Note(ctx, "sendMessage", of)
	}
}

// ofOthers returns what a redaction has removed that was not its sender's own, if there is any. Of
// several messages it names the first. It names their author if they have one author.
//
// The step that stores a redaction of one message says whose it was, so this reads nothing. Whose
// the messages of a list were is read afterwards. If that fails, some may be of others.
func (s *Server) ofOthers(
	ctx context.Context, m *tidemark.Message,
) (of storage.AuditTarget, others bool) {
	var targets []tidemark.Message
	if list := m.Relation.Sequences; list != nil {
		var err error
		//rule:audited_before_done.list-in-doubt
		if targets, err = s.listed(ctx, m.ChatID, list); err != nil {
			return storage.AuditTarget{Chat: m.ChatID, Sequence: list[0]}, true
		}
	} else if m.Relation.Target != nil {
		targets = []tidemark.Message{*m.Relation.Target}
	}
	for i := range targets {
		target := &targets[i]
		//rule:audited_before_done.redaction-of-others
		if target.SenderID == m.SenderID && target.Kind != tidemark.KindSystem {
			continue
		}
		if !others {
			of, others = storage.AuditTarget{
				User: target.SenderID, Chat: m.ChatID, Sequence: target.Sequence,
			}, true
		}
		//rule:audited_before_done.one-author-or-none
		if of.User != target.SenderID {
			of.User = ""
		}
	}
	return of, others
}

// listed returns the messages of a list, without those that have expired.
func (s *Server) listed(
	ctx context.Context, chat tidemark.ChatID, list []tidemark.Sequence,
) (found []tidemark.Message, err error) {
	ranges := make([]storage.Range, len(list))
	for i, n := range list {
		ranges[i] = storage.Range{Chat: chat, After: tidemark.After(n), Limit: 1, Bare: true}
	}
	pages, err := s.storage.Ranges(ctx, ranges)
	for i, page := range pages {
		if len(page) > 0 && page[0].Sequence == list[i] {
			found = append(found, page[0])
		}
	}
	return found, err
}
