package server

import (
	"context"
	"slices"
	"time"

	"github.com/gofrs/uuid/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/storage"
)

// Sent is the outcome of a draft: the message, or an error.
type Sent = delivery.Result

// Send stores a message and hands it over: it notifies the sessions of online members, and marks a
// pending row for the others. After nil, the message is durable, and handed over unless another
// node does that later (delivery.md §4, Send; Config.Workers). Send sets the draft's SenderID,
// MessageID and CreatedAt, and its ContentType if that is empty. After Unavailable the outcome may
// be unknown; the same send again resolves it and yields one message.
//
// Errors: those of Draft.Check, Draft.MayRevise, Draft.MayAnnotate and Standing.Allows, NotFound,
// NotMember, Denied, InvalidSequence (Seen is above the head), Conflict (other content under the
// same client message id), Expired, Unavailable; for files also those of Attachments.Pin, or
// Invalid if there is no Config.Attachments.
func (s *Server) Send(ctx context.Context, user tidemark.UserID, d tidemark.Draft) (Sent, error) {
	sent := s.SendAll(ctx, user, []tidemark.Draft{d})[0]
	return sent, sent.Err
}

// SendAll sends several messages of one user. Those of one chat are stored in order, in one step.
// Each succeeds or fails alone.
func (s *Server) SendAll(
	ctx context.Context, user tidemark.UserID, drafts []tidemark.Draft,
) []Sent {
	results := make([]Sent, len(drafts))
	if err := s.calls.begin(); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	defer s.calls.end()
	complete := make([]tidemark.Draft, 0, len(drafts))
	at := make([]int, 0, len(drafts))
	for i, d := range drafts {
		if err := s.complete(ctx, user, &d); err != nil {
			results[i].Err = err
			continue
		}
		//rule:send_idempotent.late-stores-nothing
		if d.LateAt(d.CreatedAt) {
			results[i] = s.late(ctx, d)
			s.auditRedaction(ctx, &results[i])
			s.hideChanges(ctx, user, &results[i])
			conceal(&d, &results[i])
			continue
		}
		complete, at = append(complete, d), append(at, i)
	}
	refused := s.review(ctx, complete)
	pinned := make([]tidemark.Draft, 0, len(complete))
	of := make([]int, 0, len(complete))
	for j := range complete {
		err := refused[j]
		if err == nil {
			err = s.pinFiles(ctx, &complete[j])
		}
		if err != nil {
			results[at[j]].Err = err
			conceal(&complete[j], &results[at[j]])
			continue
		}
		pinned, of = append(pinned, complete[j]), append(of, at[j])
	}
	complete, at = pinned, of
	for j, result := range s.stored(ctx, complete) {
		results[at[j]] = result
		s.auditRedaction(ctx, &results[at[j]])
		s.hideChanges(ctx, user, &results[at[j]])
		conceal(&complete[j], &results[at[j]])
	}
	return results
}

// hideChanges removes from the answer to a send what the sender may not see. That is the target of
// a relation, if it is a pin from a time in which they were away (checkUnseen). In the answer to a
// resend, it is also how others have changed the message since the sender left the chat, or the
// target of the relation. If the members cannot be read, the answer is that error.
func (s *Server) hideChanges(ctx context.Context, user tidemark.UserID, sent *Sent) {
	m := &sent.Message
	if sent.Err != nil || !m.Kind.Revises() && m.Revision == nil {
		return
	}
	undoesPin := m.Relation != nil && m.Relation.Target != nil &&
		m.Relation.Target.Kind == tidemark.KindPin
	if !sent.Duplicate && !undoesPin {
		return
	}
	_, member, err := s.chats.Member(ctx, user, m.ChatID)
	switch {
	case err == nil:
		//rule:nothing_outside_membership.no-unseen-target-in-an-answer
		if m.Relation != nil && !member.Intervals.Contains(m.Relation.Sequence) {
			*m = m.WithoutTarget()
		}
		return
	case tidemark.CodeOf(err) != tidemark.NotMember:
		*sent = Sent{Err: err}
		return
	}
	//rule:nothing_outside_membership.no-changes-for-former-members
	*m = m.WithoutTarget()
	if m.Revision != nil {
		m.Content, m.Attachments, m.Metadata, m.Mentions = "", nil, nil, tidemark.Mentions{}
	}
}

// HandOver hands over messages that a node has stored, and returns the error of each: it notifies
// the sessions of their chats' members, and marks rows for the members who are away. Those of one
// chat ascend. It may be called on any node, and again for the same messages.
//
// Errors: NotFound (no such chat), Unavailable.
func (s *Server) HandOver(ctx context.Context, messages []tidemark.Message) []error {
	if err := s.calls.begin(); err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	defer s.calls.end()
	return s.delivery.HandOver(ctx, messages)
}

// Reconcile makes the sessions of all nodes look for messages in storage, since some may not have
// been handed over. It does not wait.
func (s *Server) Reconcile() { s.leases.Rejoin() }

// complete completes and checks a draft.
func (s *Server) complete(ctx context.Context, user tidemark.UserID, d *tidemark.Draft) error {
	d.SenderID = user
	if d.ContentType == "" {
		d.ContentType = tidemark.DefaultContentType
	}
	if d.Kind == "" {
		d.Kind = tidemark.KindMessage
	}
	//rule:read_implies_delivered.what-is-not-shown-reads-nothing
	if !d.Kind.Shown() && !d.Seen.Stated {
		d.Seen = tidemark.SeenThrough(0)
	}
	if err := d.Check(); err != nil {
		return err
	}
	if err := s.erased(user); err != nil {
		return err
	}
	if err := s.erased(d.Mentions.Users...); err != nil {
		return err
	}
	if err := s.checkAuthority(ctx, d); err != nil {
		return err
	}
	if err := s.checkSeen(ctx, d); err != nil {
		return err
	}
	if err := s.checkTarget(ctx, d); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "no message id could be made")
	}
	d.MessageID = tidemark.MessageID(id.String())
	d.CreatedAt = s.now()
	//rule:send_idempotent.key-outlives-send-by
	if d.SendBy.After(d.CreatedAt.Add(tidemark.MaxSendBy)) {
		return tidemark.BadParam(tidemark.Invalid, "send_by", "is more than %d days ahead",
			tidemark.MaxSendBy/(24*time.Hour))
	}
	return nil
}

// checkAuthority returns Denied for what only some may send: lines of the system, and mentions of
// all members of a group.
func (s *Server) checkAuthority(ctx context.Context, d *tidemark.Draft) error {
	switch {
	case d.ByBackend:
		return nil
	//rule:caller_does_only_what_they_may.system-lines-by-backends
	case d.Kind == tidemark.KindSystem:
		return tidemark.Errorf(tidemark.Denied, "only a backend may send messages of the kind %s",
			tidemark.KindSystem)
	case !d.Mentions.All:
		return nil
	}
	roster, m, err := s.chats.Member(ctx, d.SenderID, d.ChatID)
	//rule:caller_does_only_what_they_may.owners-mention-all
	if err == nil && !m.Role.Manages(tidemark.Ordinary) && roster.Type == tidemark.Group {
		err = tidemark.Errorf(tidemark.Denied,
			"only an owner or an admin of the chat may mention all members")
	}
	return err
}

// checkTarget checks a relation before it is stored. Draft.MayRevise and Draft.MayAnnotate decide
// the rest, in the step that stores it.
//
// Unavailable: the relation changes its target, and this node is degraded, so the others would
// serve the old text from memory. NotFound: the sender may not see the target.
func (s *Server) checkTarget(ctx context.Context, d *tidemark.Draft) error {
	if !d.Kind.Relates() {
		return nil
	}
	//rule:R_WIPE.change-nothing-while-cut-off
	if err := s.leases.Degraded(); err != nil && d.Kind.Revises() {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"this node is cut off from the others, so it stores no edits or redactions; "+
				"send it again")
	}
	if d.ByBackend {
		return nil
	}
	roster, m, err := s.chats.Member(ctx, d.SenderID, d.ChatID)
	switch {
	case tidemark.CodeOf(err) == tidemark.NotMember:
		return nil // An earlier send may have stored the relation.
	case err != nil:
		return err
	}
	for i, n := range d.Relation.Named() {
		//rule:nothing_outside_membership.no-relation-to-the-invisible
		if m.Intervals.Contains(n) {
			continue
		}
		if d.Relation.Sequences != nil {
			return unseen(d.TargetField(i), n)
		}
		return s.checkUnseen(ctx, d, m.Role.MayPin(roster.Type))
	}
	return nil
}

// unseen returns the NotFound of a message that the sender may not see, and that a field names.
func unseen(field string, n tidemark.Sequence) error {
	return tidemark.BadParam(tidemark.NotFound, field,
		"is %d, but you see no such message in this chat", n)
}

// checkUnseen returns nil if a relation redacts a pin that its sender does not see, and the sender
// may pin. A pin counts against tidemark.MaxPins wherever it is, and Pins names it.
//
// NotFound: any other relation.
func (s *Server) checkUnseen(ctx context.Context, d *tidemark.Draft, mayPin bool) error {
	n := d.Relation.Sequence
	refusal := unseen("relation.sequence", n)
	//rule:nothing_outside_membership.unseen-pins-by-those-who-may-pin
	if d.Kind != tidemark.KindRedact || !mayPin {
		return refusal
	}
	found, err := s.messages(ctx, storage.Range{
		Chat: d.ChatID, After: tidemark.After(n), Limit: 1, Bare: true,
	})
	if err != nil {
		return err
	}
	//rule:nothing_outside_membership.of-the-unseen-only-pins
	if len(found) == 0 || found[0].Sequence != n || found[0].Kind != tidemark.KindPin {
		return refusal
	}
	return nil
}

// checkSeen returns InvalidSequence if the draft's Seen is above the head.
func (s *Server) checkSeen(ctx context.Context, d *tidemark.Draft) error {
	seen := d.Seen.Through
	if seen == 0 || s.chats.Reaches(d.ChatID, seen) {
		return nil
	}
	heads, err := s.storage.Heads(ctx, []tidemark.ChatID{d.ChatID})
	if err != nil {
		return err
	}
	//rule:watermark_bounded_by_counter.check-seen
	if seen <= heads[0] {
		s.chats.Chat(d.ChatID).Reached(heads[0])
		return nil
	}
	if _, _, err := s.chats.Member(ctx, d.SenderID, d.ChatID); err != nil {
		return err // only members learn where the chat ends
	}
	return tidemark.BadParam(tidemark.InvalidSequence, "seen_sequence",
		"is %d, but the chat ends at %d", seen, heads[0])
}

// Author sets what the kind of the caller implies for a draft: of a backend that does not say so,
// the user has seen nothing. A bot reads nothing by writing.
func (c Caller) Author(d *tidemark.Draft) {
	d.ByBackend, d.Unreviewed = c.Backend, c.Moderates
	//rule:read_implies_delivered.backend-reads-nothing
	if c.Backend && !d.Seen.Stated {
		d.Seen = tidemark.SeenThrough(0)
	}
}
