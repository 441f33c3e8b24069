package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// auditRedaction records that a user, or a backend for them, is about to redact a message of
// another user. end is nil if there is nothing to record. A redaction costs one more read, and
// other messages cost nothing.
//
// The role of the sender does not matter here: it may change until the step that stores the
// redaction.
func (s *Server) auditRedaction(
	ctx context.Context, d *tidemark.Draft,
) (end func(error), err error) {
	if s.cfg.Audit == nil || d.Kind != tidemark.KindRedact {
		return nil, nil
	}
	n := d.Relation.Sequence
	found, err := s.messages(ctx, storage.Range{
		Chat: d.ChatID, After: tidemark.After(n), Limit: 1, Bare: true,
	})
	if err != nil && tidemark.CodeOf(err) != tidemark.NotFound {
		return nil, err
	}
	if len(found) == 0 || found[0].Sequence != n {
		return nil, nil // The step refuses it.
	}
	//rule:audited_before_done.redaction-of-others
	if found[0].SenderID == d.SenderID && found[0].Kind != tidemark.KindSystem {
		return nil, nil
	}
	return s.cfg.Audit.Begin(ctx, "sendMessage", storage.AuditTarget{
		User: found[0].SenderID, Chat: d.ChatID, Sequence: n,
	})
}
