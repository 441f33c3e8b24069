package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// auditRedaction records that a user, or a backend for them, has redacted a message of another
// user. The step that stored the redaction says whose message it was, so this reads nothing.
//
// A call whose outcome is not known has no entry. The same send again resolves it, and is recorded.
func (s *Server) auditRedaction(ctx context.Context, sent *Sent) {
	m := &sent.Message
	if s.cfg.Audit == nil || sent.Err != nil || m.Kind != tidemark.KindRedact ||
		m.Relation == nil || m.Relation.Target == nil {
		return
	}
	target := m.Relation.Target
	//rule:audited_before_done.redaction-of-others
	if target.SenderID == m.SenderID && target.Kind != tidemark.KindSystem {
		return
	}
	s.cfg.Audit.Note(ctx, "sendMessage", storage.AuditTarget{
		User: target.SenderID, Chat: m.ChatID, Sequence: m.Relation.Sequence,
	})
}
