package client

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// run is one Run of a client. It owns all of its goroutines: one keeps the connection, one gives
// chats their turns, one acknowledges, one sends cursors. Handlers and streams have theirs.
type run struct {
	c     *Client
	inbox *inbox

	mu sync.Mutex // guards the fields below
	// at is the session of the stream. It stays between two connections.
	at current
	// stream is the open stream, or nil. end ends it.
	stream stream
	end    context.CancelCauseFunc
}

// current is the session that a client has now.
type current struct {
	session     tidemark.SessionID
	incarnation tidemark.Incarnation
}

func newRun(c *Client, handle func(context.Context, tidemark.Message) error) *run {
	return &run{c: c, inbox: &inbox{
		surroundings: surroundings{
			user: c.cfg.User, store: c.cfg.Cursors, log: c.cfg.Logger, handle: handle,
			fetch: c.page, most: c.cfg.Concurrent,
		},
		wake: signal.New(), acks: signal.New(), sync: signal.New(),
		chats:  make(map[tidemark.ChatID]*chat),
		paused: make(map[*chat]time.Time),
		dirty:  make(map[*chat]struct{}),
	}}
}

// run implements Client.Run.
func (r *run) run(ctx context.Context) error {
	if err := r.load(ctx); err != nil {
		return err
	}
	working, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { r.inbox.dispatch(working) })
	work.Go(func() { r.keepAcknowledging(working) })
	work.Go(func() { r.keepSynced(working) })
	f := r.keepConnected(working)
	cancel()
	work.Wait()
	r.farewell(ctx, f)
	if f == nil {
		return nil
	}
	return f.err
}

// load takes the stored cursors.
func (r *run) load(ctx context.Context) error {
	if r.c.cfg.Cursors == nil {
		return nil
	}
	cursors, err := r.c.cfg.Cursors.Load(ctx)
	if err != nil {
		return &tidemark.Error{
			Code: tidemark.Unavailable, Detail: "the cursors cannot be loaded", Err: err,
		}
	}
	for id, cursor := range cursors {
		r.inbox.chats[id] = &chat{
			id: id, progress: begin(cursor.Sequence), incarnation: cursor.Incarnation,
		}
	}
	return nil
}

// farewell acknowledges what was handled, and ends the session, unless that is no longer ours.
func (r *run) farewell(ctx context.Context, f *failure) {
	defer func() {
		if r.c.cfg.HTTP == nil {
			r.c.http.CloseIdleConnections()
		}
	}()
	if f != nil && f.ending != replaced {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.c.timing.farewell)
	defer cancel()
	if _, f := r.acknowledge(ctx, true); f != nil {
		r.c.cfg.Logger.Warn("what was handled last was not acknowledged; it comes again",
			"error", f)
	}
	if at := r.current(); f == nil && at.session != "" {
		// If it fails, the session ends by itself.
		_ = r.c.call(ctx, http.MethodDelete, "/sessions/"+string(at.session), nil, nil)
	}
}

// keepConnected keeps a stream open until ctx ends, and returns nil then. Otherwise it returns why
// there can be none.
func (r *run) keepConnected(ctx context.Context) *failure {
	link := connection{transports: r.c.cfg.Transports}
	var at position
	for ctx.Err() == nil {
		over := link.begin(time.Now())
		f := r.connect(ctx, over, &link, &at)
		if ctx.Err() != nil {
			return nil
		}
		then := link.ended(f, time.Now())
		r.c.cfg.Logger.Info("the stream ended", "transport", over, "session", at.session,
			"error", f.Error(), "over", then.over)
		switch {
		case then.over:
			return f
		case then.fresh:
			at = position{}
			r.forget()
		}
		//rule:client_never_stuck.blocked-demotes
		if then.check && r.c.answers(ctx) {
			link.descend(time.Now())
			continue
		}
		wait := then.exactly
		if wait == 0 && then.within > 0 {
			wait = rand.N(then.within + 1)
		}
		if !signal.Pause(ctx, wait) {
			return nil
		}
	}
	return nil
}

// position is where a stream goes on: after an event of a session.
type position struct {
	session tidemark.SessionID
	after   uint64
}

// query returns the parameters of a stream at the position.
func (p position) query(device tidemark.DeviceID) url.Values {
	q := url.Values{"device_id": {string(device)}, "status_updates": {"false"}}
	if p.session != "" {
		q.Set("session_id", string(p.session))
		q.Set("after_event_id", strconv.FormatUint(p.after, 10))
	}
	return q
}

// connect opens a stream and keeps it until it ends. It moves the position on.
func (r *run) connect(
	ctx context.Context, over Transport, link *connection, at *position,
) *failure {
	token, err := r.c.tokens.get(ctx)
	if err != nil {
		return asFailure(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first := r.c.timing.first
	if over == LongPoll {
		first = r.c.timing.session // its first byte is that of the whole answer
	}
	w := newWatch(cancel, first, fail(blocked, nil, "%s: nothing came", over))
	defer w.stop()
	var again repeats
	defer func() { link.abandoned = append(link.abandoned, again.all()...) }()
	traced := again.trace(ctx)
	s := r.c.dial(traced, over, token, *at, w)
	defer s.close()
	r.hold(s, cancel)
	defer r.inbox.unsay()
	defer r.hold(nil, nil)
	for {
		e, err := s.next(traced)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if err != nil {
			f := asFailure(err)
			if f.ending == unauthenticated {
				r.c.tokens.discard(token)
			}
			return f
		}
		if err := r.take(e, at, w, func(start sessionStart) {
			link.sessionCame(time.Now())
			r.c.cfg.Logger.Info("the stream is open", "transport", over, "session", at.session,
				"resumed", start.Resumed)
			r.leaveAt(ctx, cancel, earliest(r.c.tokens.renewAt(), link.moveDue()))
		}); err != nil {
			return asFailure(err)
		}
	}
}

// leaveAt ends a stream at a time, to come back with a new token or over a better transport.
func (r *run) leaveAt(ctx context.Context, cancel context.CancelCauseFunc, at time.Time) {
	if at.IsZero() {
		return
	}
	timer := time.AfterFunc(time.Until(at), func() {
		cancel(fail(moved, nil, "the client moves"))
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// hold keeps the stream for acknowledgements, and what ends it.
func (r *run) hold(s stream, end context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream, r.end = s, end
}

// leave ends the present stream for a reason.
func (r *run) leave(f *failure) {
	r.mu.Lock()
	end := r.end
	r.mu.Unlock()
	if end != nil {
		end(f)
	}
}

// forget forgets the session.
func (r *run) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at.session = ""
}

// current returns the session of the stream, or of the last one.
func (r *run) current() current {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// frames returns the open stream if it takes frames, and the incarnation of its session.
func (r *run) frames() (framer, tidemark.Incarnation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, _ := r.stream.(framer)
	if s == nil || !s.open() {
		return nil, ""
	}
	return s, r.at.incarnation
}

// take takes one event. opened is called when it opens the stream.
func (r *run) take(e event, at *position, w *watch, opened func(sessionStart)) error {
	bad := func(err error) error {
		return fail(lost, err, "an event of type %s that cannot be read", e.Type)
	}
	switch e.Type {
	case tidemark.EventSession:
		var start sessionStart
		if err := json.Unmarshal(e.Payload, &start); err != nil || start.Session == "" {
			return bad(err)
		}
		r.opened(start, at, w)
		opened(start)
	case tidemark.EventMessage:
		m, err := tidemark.ParseMessage(e.Payload)
		if err != nil {
			return bad(err)
		}
		r.inbox.message(m)
	case tidemark.EventGap:
		var g gap
		if err := json.Unmarshal(e.Payload, &g); err != nil || g.From == 0 || g.To < g.From {
			return bad(err)
		}
		r.inbox.take(g.ChatID, g.From, g.To, nil)
	case tidemark.EventMembership:
		var m membership
		if err := json.Unmarshal(e.Payload, &m); err != nil {
			return bad(err)
		}
		if m.UserID == r.c.cfg.User && m.Change == tidemark.Added {
			r.inbox.sync.Set()
		}
	case tidemark.EventReset:
		var v reset
		if err := json.Unmarshal(e.Payload, &v); err != nil {
			return bad(err)
		}
		// A reset of one chat is in the answer to its cursor, too.
		if v.ChatID == "" {
			r.inbox.sync.Set()
		}
	case tidemark.EventProblem:
		var p problem
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			return bad(err)
		}
		// On a WebSocket it answers a frame. Frames that the client sends have no answer.
		r.c.cfg.Logger.Warn("the server reports a problem", "error", p.cause())
	}
	at.after = max(at.after, e.ID)
	return nil
}

// opened takes the first event of a stream. On long-poll a resumed session has none, and the stream
// makes one up.
func (r *run) opened(start sessionStart, at *position, w *watch) {
	heartbeat := time.Duration(start.Heartbeat) * time.Second
	if heartbeat <= 0 {
		heartbeat = defaultHeartbeat
	}
	w.opened(heartbeat)
	if !start.Resumed || start.Session != at.session {
		*at = position{session: start.Session, after: start.EventID}
	}
	r.mu.Lock()
	if start.Incarnation == "" {
		start.Incarnation = r.at.incarnation
	}
	r.at = current{start.Session, start.Incarnation}
	r.mu.Unlock()
	r.inbox.session(start.Incarnation, !start.Resumed)
}

// page returns a part of a chat's history.
func (c *Client) page(
	ctx context.Context, id tidemark.ChatID, after tidemark.Sequence, limit int,
) (page, error) {
	var p page
	err := c.call(ctx, http.MethodGet,
		fmt.Sprintf("/chats/%s/messages?after_sequence=%d&limit=%d", id, after, limit), nil, &p)
	return p, err
}
