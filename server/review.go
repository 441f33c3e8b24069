package server

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/storage"
)

// Reviewer says which messages may be stored.
type Reviewer interface {
	// Review asks about drafts of one sender. It returns them as they may be stored: the reviewer
	// may have replaced content and metadata. It also returns an error for each that may not be
	// stored. Both slices have the order of drafts, which it does not change. Each draft that it
	// returns passes Draft.Check. It bounds its time itself, and may be called concurrently.
	//
	// Errors: Denied (with a text for the sender), Unavailable.
	Review(ctx context.Context, drafts []tidemark.Draft) ([]tidemark.Draft, []error)
}

// reviewable reports whether a draft is reviewed: a message with words of its sender.
func reviewable(d *tidemark.Draft) bool {
	return !d.Unreviewed && (d.Kind == tidemark.KindMessage || d.Kind == tidemark.KindEdit)
}

// review asks about drafts before they are stored, in one call. It replaces in place what the
// reviewer replaced, and returns the error of each draft that may not be stored.
//
// A resend stores nothing, so it is not refused: its message is stored already.
func (s *Server) review(ctx context.Context, drafts []tidemark.Draft) []error {
	refused := make([]error, len(drafts))
	if s.cfg.Reviewer == nil {
		return refused
	}
	var asked []tidemark.Draft
	var at []int
	for i := range drafts {
		d := &drafts[i]
		//rule:asked_before_stored.ask-once
		if reviewable(d) && !s.reviewed.has(storage.SendKeyOf(d)) {
			asked, at = append(asked, *d), append(at, i)
		}
	}
	if len(asked) == 0 {
		return refused
	}
	//rule:asked_before_stored.ask
	answered, errs := s.cfg.Reviewer.Review(ctx, asked)
	for j, i := range at {
		if errs[j] != nil {
			//rule:asked_before_stored.refuse
			refused[i] = s.refusal(ctx, &drafts[i], errs[j])
			continue
		}
		//rule:asked_before_stored.replace
		drafts[i].Content, drafts[i].Metadata = answered[j].Content, answered[j].Metadata
	}
	return refused
}

// refusal returns the error for the sender of a draft that the reviewer refused. It is nil if an
// earlier send stored the message. If that is not known, it is the error of the storage: a Denied
// would tell the sender that the message is not stored.
func (s *Server) refusal(ctx context.Context, d *tidemark.Draft, refused error) error {
	_, found, err := s.storage.Sent(ctx, storage.SendKeyOf(d))
	switch {
	case err != nil:
		return err
	//rule:asked_before_stored.refuse-nothing-that-is-stored
	case found:
		return nil
	}
	return refused
}

// stored stores drafts that were reviewed, and hands them over.
//
// With a reviewer, what is stored may have other content than a resend. So contents are not
// compared then.
func (s *Server) stored(ctx context.Context, drafts []tidemark.Draft) []delivery.Result {
	results := s.delivery.Send(ctx, drafts)
	if s.cfg.Reviewer == nil {
		return results
	}
	for i := range drafts {
		d := drafts[i]
		if !reviewable(&d) {
			continue
		}
		//rule:asked_before_stored.resend-of-what-was-replaced
		if tidemark.CodeOf(results[i].Err) == tidemark.Conflict && s.asStored(ctx, &d) {
			results[i] = s.delivery.Send(ctx, []tidemark.Draft{d})[0]
		}
		if results[i].Err == nil {
			s.reviewed.add(storage.SendKeyOf(&d))
		}
	}
	return results
}

// late resolves a draft that came after its SendBy. As in stored, contents are not compared.
func (s *Server) late(ctx context.Context, d tidemark.Draft) delivery.Result {
	result := s.delivery.Late(ctx, d)
	if s.cfg.Reviewer != nil && reviewable(&d) &&
		tidemark.CodeOf(result.Err) == tidemark.Conflict && s.asStored(ctx, &d) {
		return s.delivery.Late(ctx, d)
	}
	return result
}

// asStored gives a draft the content and metadata of the message that is stored under its key, and
// reports whether there is one.
func (s *Server) asStored(ctx context.Context, d *tidemark.Draft) bool {
	appended, found, err := s.storage.Sent(ctx, storage.SendKeyOf(d))
	if err != nil || !found {
		return false
	}
	says := &appended.Message
	if says.Kind == tidemark.KindEdit && says.Relation != nil && says.Relation.Target != nil {
		says = says.Relation.Target
	}
	d.Content, d.Metadata = says.Content, says.Metadata
	return true
}

const (
	// maxReviewed is the most keys that are remembered. If there are more, the older half is
	// forgotten.
	maxReviewed = 20_000
	// reviewedFor is how long a key is remembered. It is far below the time for which the storage
	// keeps keys. Otherwise a key that the storage has forgotten would store a message unasked.
	reviewedFor = time.Hour
)

// reviewed remembers keys of messages that this node stored lately, so that their resends are not
// asked about.
type reviewed struct {
	mu sync.Mutex
	// later and earlier have the time of each key.
	later, earlier map[storage.SendKey]time.Time
}

func (r *reviewed) has(key storage.SendKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, there := r.later[key]
	if !there {
		at, there = r.earlier[key]
	}
	//rule:asked_before_stored.ask-again-after-a-time
	return there && time.Since(at) < reviewedFor
}

// add remembers a key. A resend does not make it last longer.
func (r *reviewed) add(key storage.SendKey) {
	if r.has(key) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.later) >= maxReviewed/2 {
		r.earlier, r.later = r.later, nil
	}
	if r.later == nil {
		r.later = make(map[storage.SendKey]time.Time)
	}
	r.later[key] = time.Now()
}
