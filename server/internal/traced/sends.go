package traced

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/tracing"
)

// Sends are the spans of the sampled drafts of one call. A nil *Sends has none. It is for one
// goroutine.
type Sends struct {
	messages *Messages
	// each has an element for each draft.
	each []send
	// began is when the call began, storing when the append did, and stored when that ended.
	began, storing, stored time.Time
	commit                 batch.Watcher
}

// send is the trace of one draft. Its spans are zero if the draft is not sampled.
type send struct {
	parent  tracing.SpanID
	span    tracing.Context
	append  tracing.Context
	publish tracing.Context
	// message and duplicate are known when the draft is stored.
	message   *tidemark.Message
	duplicate bool
}

// Begin decides which of n drafts are traced. It returns nil if none is. If a transport has decided
// for the call, that counts. Otherwise each draft is decided by itself, and begins its own trace.
func (m *Messages) Begin(ctx context.Context, n int) *Sends {
	if m == nil {
		return nil
	}
	var s *Sends
	parent, decided := tracing.From(ctx)
	for i := range n {
		of, traced := parent, parent.Valid()
		if !decided {
			of, traced = m.tracer.Decide(tracing.Context{}, false)
		}
		if !traced {
			continue
		}
		if s == nil {
			s = &Sends{messages: m, each: make([]send, n), began: time.Now()}
		}
		span := of.Child()
		s.each[i] = send{
			parent: of.Span, span: span, append: span.Child(), publish: span.Child(),
		}
	}
	return s
}

// Storing returns the context of the append. It makes the store report the batch that it shared.
func (s *Sends) Storing(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	s.storing = time.Now()
	spans := s.appends()
	s.commit = batch.Watcher{Tag: spans}
	return tracing.With(batch.Watch(ctx, &s.commit), spans[0])
}

// appends are the spans of the appends of one call. They are the tag of its batch.Watcher.
type appends []tracing.Context

// appends returns the spans of the appends.
func (s *Sends) appends() appends {
	var spans appends
	for i := range s.each {
		if s.each[i].span.Valid() {
			spans = append(spans, s.each[i].append)
		}
	}
	return spans
}

// Refused records that a draft was not stored, or that the outcome is unknown.
func (s *Sends) Refused(i int, err error) {
	if s == nil || !s.each[i].span.Valid() {
		return
	}
	s.appended(&s.each[i], err)
	s.sent(&s.each[i], time.Now(), err)
}

// Stored records the append of a draft, and returns the span under which its message is published.
func (s *Sends) Stored(i int, m *tidemark.Message, duplicate bool) tracing.Context {
	if s == nil || !s.each[i].span.Valid() {
		return tracing.Context{}
	}
	s.each[i].message, s.each[i].duplicate = m, duplicate
	s.appended(&s.each[i], nil)
	return s.each[i].publish
}

// appended records the append of a draft, and the commit that it shared.
func (s *Sends) appended(one *send, err error) {
	if s.stored.IsZero() {
		s.stored = time.Now()
	}
	s.messages.tracer.Record(tracing.Span{
		Context: one.append, Parent: one.span.Span, Name: "append", Kind: tracing.Internal,
		Start: s.storing, End: s.stored, Links: s.others(one.append), Failed: code(err),
	})
	run := s.commit.Run
	// A store may answer each draft by itself, also if none was committed.
	//rule:trace_to_acknowledgement.no-commit-of-a-refused-draft
	if run == nil || err != nil {
		return
	}
	s.messages.tracer.Record(tracing.Span{
		Context: one.append.Child(), Parent: one.append.Span, Name: "commit",
		Kind: tracing.Internal, Start: run.Began, End: run.Ended,
		Attributes: []tracing.Attribute{{Key: "tidemark.commit.calls", Number: int64(run.Calls)}},
	})
}

// others returns the appends of other traces that shared the commit.
func (s *Sends) others(than tracing.Context) []tracing.Context {
	var links []tracing.Context
	//rule:trace_to_acknowledgement.link-shared-commit
	all := s.appends()
	if s.commit.Run != nil {
		all = nil
		for _, tag := range s.commit.Run.Tags {
			others, _ := tag.(appends)
			all = append(all, others...)
		}
	}
	for _, c := range all {
		if c.Trace != than.Trace && len(links) < maxRecipients {
			links = append(links, c)
		}
	}
	return links
}

// HandedOver records the hand-over of a stored draft, and the end of its send. recipients is how
// many members get it from this node. online is how many of them have a session.
func (s *Sends) HandedOver(i, recipients, online int, err error) {
	if s == nil || !s.each[i].span.Valid() {
		return
	}
	one, now := &s.each[i], time.Now()
	s.messages.tracer.Record(tracing.Span{
		Context: one.publish, Parent: one.span.Span, Name: "publish", Kind: tracing.Producer,
		Start: s.stored, End: now, Failed: code(err),
		Attributes: []tracing.Attribute{
			{Key: "tidemark.recipients", Number: int64(recipients)},
			{Key: "tidemark.recipients.online", Number: int64(online)},
		},
	})
	s.sent(one, now, err)
}

// sent records the end of a send.
func (s *Sends) sent(one *send, now time.Time, err error) {
	var attributes []tracing.Attribute
	//rule:trace_holds_no_secret.ids-of-the-server-only
	if m := one.message; m != nil {
		attributes = []tracing.Attribute{
			{Key: "tidemark.message_id", Text: string(m.MessageID)},
			{Key: "tidemark.sequence", Number: int64(m.Sequence)},
		}
	}
	if one.duplicate {
		attributes = append(attributes, tracing.Attribute{Key: "tidemark.duplicate", Number: 1})
	}
	s.messages.tracer.Record(tracing.Span{
		Context: one.span, Parent: one.parent, Name: "send", Kind: tracing.Internal,
		Start: s.began, End: now, Attributes: attributes, Failed: code(err),
	})
}

// code returns the code of an error, or "" without one. A code has no text of a caller.
func code(err error) string {
	if err == nil {
		return ""
	}
	return string(tidemark.CodeOf(err))
}
