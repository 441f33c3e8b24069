// Package traced records the spans of sampled messages in the core, and follows these messages on
// this node until each recipient has acknowledged (docs/observability.md, Traces).
//
//	send                     the call of a sender             node of the sender
//	├── append               the write to storage
//	│   └── commit           the transaction, which others share
//	└── publish              look-up of leases, notifications, pending rows
//	    └── deliver          notification until hand-over     node of the recipient, each session
//	        └── acknowledge  until the raise is stored        the same, each user
//
// A nil *Messages traces nothing, and costs one comparison a call.
package traced

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/tracing"
)

// Bounds of what a node remembers. A message beyond maxMessages, or a session beyond maxRecipients
// of its message, is not followed.
const (
	maxMessages   = 1024
	maxRecipients = 16
	// followWithin is how long a message is followed. It is as long as the default resume window.
	followWithin = time.Minute
	// lookEvery is how often Run looks for messages whose time is over.
	lookEvery = time.Second
)

// Messages are the sampled messages in flight on a node. It is safe for concurrent use.
type Messages struct {
	tracer *tracing.Tracer
	// live is how many messages are followed. If it is 0, nothing takes mu.
	live atomic.Int64
	// unfollowed counts messages beyond maxMessages.
	unfollowed atomic.Int64

	// mu is for readers while the messages of a chat are looked for. Most deliveries find none.
	mu    sync.RWMutex
	chats map[tidemark.ChatID][]*message
}

// message is a message that is followed until all its recipients have acknowledged.
type message struct {
	publish    tracing.Context
	sequence   tidemark.Sequence
	notified   time.Time
	recipients []recipient
}

// recipient is a session that was notified.
type recipient struct {
	user    tidemark.UserID
	session tidemark.SessionID
	// deliver names the span of the hand-over. handed is when that ended, or zero while the session
	// waits for its connection.
	deliver tracing.Context
	handed  time.Time
}

// New returns the Messages of a node, or nil if there is no tracer.
func New(tracer *tracing.Tracer) *Messages {
	if tracer == nil {
		return nil
	}
	return &Messages{tracer: tracer, chats: make(map[tidemark.ChatID][]*message)}
}

// Counts returns how many messages are followed, and how many were beyond maxMessages.
func (m *Messages) Counts() (followed, unfollowed int64) {
	if m == nil {
		return 0, 0
	}
	return m.live.Load(), m.unfollowed.Load()
}

// Notified follows a sampled message that was published to sessions of this node. It is called
// before the sessions are notified. The author's own sessions are left out.
func (m *Messages) Notified(to []registry.Lease, n *bus.Notification) {
	if m == nil || !n.Trace.Valid() || n.Message == nil {
		return
	}
	followed := &message{publish: n.Trace, sequence: n.Sequence, notified: time.Now()}
	for i := range to {
		if to[i].User == n.Message.SenderID {
			continue
		}
		//rule:trace_bounded.few-recipients-of-a-message
		if len(followed.recipients) == maxRecipients {
			break
		}
		// The ids of a lease may be parts of a frame, which they would keep in memory.
		followed.recipients = append(followed.recipients, recipient{
			user:    tidemark.UserID(strings.Clone(string(to[i].User))),
			session: tidemark.SessionID(strings.Clone(string(to[i].Session))),
			deliver: n.Trace.Child(),
		})
	}
	if len(followed.recipients) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	//rule:trace_bounded.few-messages-in-flight
	if m.live.Load() >= maxMessages {
		m.unfollowed.Add(1)
		return
	}
	m.live.Add(1)
	m.chats[n.Chat] = append(m.chats[n.Chat], followed)
}

// HandedOver records that a session handed messages of a chat to its connection. from and to are
// the first and the last sequence. Another session of the user is another delivery.
func (m *Messages) HandedOver(
	session tidemark.SessionID, chat tidemark.ChatID, from, to tidemark.Sequence,
) {
	if m == nil || m.live.Load() == 0 {
		return
	}
	within := func(msg *message) bool { return from <= msg.sequence && msg.sequence <= to }
	//rule:trace_bounded.look-before-locking
	if !m.follows(chat, func(msg *message) bool { return within(msg) && msg.awaits(session) }) {
		return
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range m.chats[chat] {
		if !within(msg) {
			continue
		}
		for i := range msg.recipients {
			//rule:trace_to_acknowledgement.hand-over-once
			if r := &msg.recipients[i]; r.session == session && r.handed.IsZero() {
				r.handed = now
				m.deliver(msg, r, now, "")
			}
		}
	}
}

// follows reports whether a message of a chat is followed for which wanted returns true.
func (m *Messages) follows(chat tidemark.ChatID, wanted func(*message) bool) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.ContainsFunc(m.chats[chat], wanted)
}

// awaits reports whether a session has not handed the message over yet.
func (msg *message) awaits(session tidemark.SessionID) bool {
	return slices.ContainsFunc(msg.recipients, func(r recipient) bool {
		return r.session == session && r.handed.IsZero()
	})
}

// goesTo reports whether a session of a user was notified.
func (msg *message) goesTo(user tidemark.UserID) bool {
	return slices.ContainsFunc(msg.recipients, func(r recipient) bool { return r.user == user })
}

// Acknowledged records that a user's watermark in a chat has reached acked: they have acknowledged
// all messages up to it.
func (m *Messages) Acknowledged(
	user tidemark.UserID, chat tidemark.ChatID, acked tidemark.Sequence,
) {
	if m == nil || m.live.Load() == 0 {
		return
	}
	covered := func(msg *message) bool { return msg.sequence <= acked && msg.goesTo(user) }
	//rule:trace_bounded.look-before-locking-for-an-acknowledgement
	if !m.follows(chat, covered) {
		return
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	//rule:trace_to_acknowledgement.all-up-to-the-watermark
	m.keep(chat, func(msg *message) bool {
		return msg.sequence > acked || !m.acknowledge(msg, user, now)
	})
}

// acknowledge ends the deliveries of a message to a user. It reports whether nobody is left. The
// first session that got the message stands for the user.
func (m *Messages) acknowledge(msg *message, user tidemark.UserID, now time.Time) (done bool) {
	var first *recipient
	for i := range msg.recipients {
		r := &msg.recipients[i]
		if r.user == user && (first == nil || earlier(r.handed, first.handed)) {
			first = r
		}
	}
	if first == nil {
		return false
	}
	m.acknowledged(msg, first, now, "")
	msg.recipients = slices.DeleteFunc(msg.recipients, func(r recipient) bool {
		return r.user == user
	})
	return len(msg.recipients) == 0
}

// earlier reports whether a hand-over was before another. Zero is none.
func earlier(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

// keep removes the messages of a chat for which stays returns false. The caller holds mu.
func (m *Messages) keep(chat tidemark.ChatID, stays func(*message) bool) {
	before := m.chats[chat]
	after := slices.DeleteFunc(before, func(msg *message) bool { return !stays(msg) })
	m.live.Add(int64(len(after) - len(before)))
	if len(after) == 0 {
		delete(m.chats, chat)
	} else {
		m.chats[chat] = after
	}
}

// Run ends the spans of messages whose recipients do not acknowledge in time, until ctx ends.
func (m *Messages) Run(ctx context.Context) {
	for m != nil && signal.Pause(ctx, lookEvery) {
		if m.live.Load() > 0 {
			m.expire(time.Now())
		}
	}
}

// Reasons why a span of a recipient failed. They say what this node saw. A session may have read
// and acknowledged a message before this node was notified of it: two sends at the same time may
// notify in another order than they were stored.
const (
	notHandedOver   = "no hand-over was seen within a minute"
	notAcknowledged = "no acknowledgement was seen within a minute"
)

// expire ends the spans of messages whose time is over.
func (m *Messages) expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for chat := range m.chats {
		m.keep(chat, func(msg *message) bool {
			//rule:trace_bounded.follow-for-a-minute
			if now.Sub(msg.notified) < followWithin {
				return true
			}
			for i := range msg.recipients {
				if r := &msg.recipients[i]; r.handed.IsZero() {
					m.deliver(msg, r, now, notHandedOver)
				} else {
					m.acknowledged(msg, r, now, notAcknowledged)
				}
			}
			return false
		})
	}
}

// deliver records the span of a hand-over to a session.
func (m *Messages) deliver(msg *message, r *recipient, now time.Time, failed string) {
	m.tracer.Record(tracing.Span{
		Context: r.deliver, Parent: msg.publish.Span, Name: "deliver", Kind: tracing.Consumer,
		Start: msg.notified, End: now, Failed: failed,
		Attributes: []tracing.Attribute{
			{Key: "tidemark.sequence", Number: int64(msg.sequence)},
			{Key: "tidemark.session_id", Text: string(r.session)},
		},
	})
}

// acknowledged records the span of an acknowledgement. A user who read the message elsewhere may
// acknowledge it before this node has handed it over.
func (m *Messages) acknowledged(msg *message, r *recipient, now time.Time, failed string) {
	parent, began := r.deliver.Span, r.handed
	if began.IsZero() {
		parent, began = msg.publish.Span, msg.notified
	}
	m.tracer.Record(tracing.Span{
		Context: r.deliver.Child(), Parent: parent, Name: "acknowledge", Kind: tracing.Consumer,
		Start: began, End: now, Failed: failed,
		Attributes: []tracing.Attribute{{
			Key: "tidemark.sequence", Number: int64(msg.sequence),
		}},
	})
}
