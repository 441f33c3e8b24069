// Package frame encodes events between nodes. Nodes of different versions can read each other's
// frames.
//
// A frame is a version and a series of events. An event is a kind, the length of its body, and the
// body. A body has fields in a fixed order; later versions add fields only at the end. A reader
// skips unknown kinds and unknown fields. Numbers are varints, and texts follow their length. The
// node and boot of leases are not in the frame, because they are those of the receiver. The JSON of
// a message is not in it either; the reader encodes the message again.
package frame

import (
	"encoding/binary"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Version is the first byte of a frame. A reader refuses a frame of another version entirely, so
// Version changes only if skipping unknown parts would be wrong.
const Version = 1

// The kinds of events. 6 and 7 belonged to an earlier protocol and are never used again.
const (
	kindPing         = 1
	kindNotification = 2
	kindStatus       = 3
	kindMembership   = 4
	kindTyping       = 5
	kindRequest      = 8
	kindTransfer     = 9
	kindSeek         = 10
	kindDone         = 11
	kindEnd          = 12
	kindOwn          = 13
	kindUpdate       = 14
	kindSurvey       = 15
	kindReport       = 16
	kindPresence     = 17
	kindAccess       = 18
	kindReceipts     = 19
)

// Flags of a notification.
const (
	notifyMarked      = 1
	notifyMessage     = 2
	notifyAttachments = 4
	notifyMetadata    = 8
	notifySystem      = 16
	notifyRelation    = 32
	notifyAnnotation  = 64
)

// Begin appends the beginning of a frame to b.
func Begin(b []byte) []byte { return append(b, Version) }

// AppendPing appends a ping, which a node sends to itself.
func AppendPing(b []byte, ping uint64) []byte {
	return appendEvent(b, kindPing, binary.AppendUvarint(nil, ping))
}

// AppendEvent appends an event. It appends nothing if no pointer of e is set.
func AppendEvent(b []byte, e *bus.Event) []byte {
	// Most bodies are small, and stay on the stack.
	body := make([]byte, 0, 512)
	switch {
	case e.Notification != nil:
		return appendEvent(b, kindNotification, appendNotification(body, e.To, e.Notification))
	case e.Status != nil:
		return appendEvent(b, kindStatus, appendStatus(body, e.To, e.Status))
	case e.Own != nil && e.Own.Chat == "":
		return appendEvent(b, kindReceipts, appendLeases(body, e.To))
	case e.Own != nil:
		return appendEvent(b, kindOwn, appendLeases(appendText(body, e.Own.Chat), e.To))
	case e.Membership != nil:
		return appendEvent(b, kindMembership, appendMembership(body, e.To, e.Membership))
	case e.Update != nil:
		body = appendText(body, e.Update.ChatID)
		body = binary.AppendUvarint(body, e.Update.Version)
		body = binary.AppendUvarint(body, e.Update.MembersVersion)
		body = appendLeases(body, e.To)
		if e.Update.Receipts {
			body = append(body, 1) // Earlier versions ignore it.
		}
		return appendEvent(b, kindUpdate, body)
	case e.Typing != nil:
		body = appendText(appendText(body, e.Typing.ChatID), e.Typing.UserID)
		return appendEvent(b, kindTyping, appendLeases(body, e.To))
	case e.Presence != nil:
		return appendEvent(b, kindPresence, appendPresence(body, e.Presence))
	case e.Request != nil:
		return appendEvent(b, kindRequest, appendRequest(body, e.Request))
	case e.Transfer != nil:
		return appendEvent(b, kindTransfer,
			appendText(appendText(body, e.Transfer.ID), e.Transfer.Snapshot))
	case e.Seek != nil:
		return appendEvent(b, kindSeek, appendSeek(body, e.Seek))
	case e.End != nil:
		return appendEvent(b, kindEnd, appendEnd(body, e.End))
	case e.Done != nil:
		return appendEvent(b, kindDone, appendText(body, e.Done.ID))
	case e.Survey != nil:
		return appendEvent(b, kindSurvey,
			appendLife(appendText(body, e.Survey.ID), e.Survey.From))
	case e.Report != nil:
		body = appendLife(appendText(body, e.Report.ID), e.Report.Node)
		return appendEvent(b, kindReport, appendText(body, e.Report.Figures))
	case e.Access != nil:
		return appendEvent(b, kindAccess, appendText(body, e.Access.User))
	}
	return b
}

func appendEvent(b []byte, kind byte, body []byte) []byte {
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(body)))
	return append(b, body...)
}

func appendText[T ~string | ~[]byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendLeases(b []byte, leases []registry.Lease) []byte {
	b = binary.AppendUvarint(b, uint64(len(leases)))
	for i := range leases {
		b = appendText(b, leases[i].User)
		b = appendText(b, leases[i].Device)
		b = appendText(b, leases[i].Session)
	}
	return b
}

func appendNotification(b []byte, to []registry.Lease, w *bus.Notification) []byte {
	var flags byte
	if w.Marked {
		flags |= notifyMarked
	}
	if w.Relation {
		flags |= notifyRelation
	}
	m := w.Message
	if m != nil {
		flags |= notifyMessage
		if m.Attachments != nil {
			flags |= notifyAttachments
		}
		if m.Metadata != nil {
			flags |= notifyMetadata
		}
		if m.Kind == tidemark.KindSystem {
			flags |= notifySystem
		}
		if annotates(m) {
			flags |= notifyAnnotation
		}
	}
	b = append(b, flags)
	b = appendText(b, w.Chat)
	b = binary.AppendUvarint(b, uint64(w.Sequence))
	b = appendLeases(b, to)
	if m == nil {
		return b
	}
	b = appendText(b, m.ChatID)
	b = binary.AppendUvarint(b, uint64(m.Sequence))
	b = appendText(b, m.MessageID)
	b = appendText(b, m.SenderID)
	b = appendText(b, m.ClientMessageID)
	b = appendText(b, m.Content)
	b = appendText(b, m.ContentType)
	b = appendText(b, m.Attachments)
	b = appendText(b, m.Metadata)
	b = appendText(b, m.Mentions.Text())
	b = binary.AppendVarint(b, m.CreatedAt.UnixMilli())
	b = binary.AppendUvarint(b, m.MembersVersion)
	//rule:trace_to_acknowledgement.trace-goes-to-other-nodes
	if w.Trace.Valid() {
		b = appendText(b, w.Trace.Append(nil)) // Older nodes skip this field.
	} else if annotates(m) {
		b = appendText(b, "")
	}
	if annotates(m) {
		// Older nodes find a message without content, and read it from storage.
		b = binary.AppendUvarint(b, uint64(m.Relation.Sequence))
		b = appendText(b, m.Relation.Emoji)
	}
	return b
}

// annotates reports whether a frame has the relation of a message.
func annotates(m *tidemark.Message) bool { return m.Kind.Annotates() && m.Relation != nil }

func appendStatus(b []byte, to []registry.Lease, s *bus.Status) []byte {
	b = binary.AppendUvarint(b, s.Version)
	b = appendLeases(b, to)
	b = binary.AppendUvarint(b, uint64(len(s.Updates)))
	for i := range s.Updates {
		u := &s.Updates[i]
		b = appendText(b, u.ChatID)
		b = appendText(b, u.UserID)
		b = binary.AppendUvarint(b, uint64(u.Acked))
		b = binary.AppendUvarint(b, uint64(u.Read))
		b = binary.AppendUvarint(b, uint64(u.AckedAt))
		b = binary.AppendUvarint(b, uint64(u.ReadAt))
	}
	return b
}

func appendMembership(b []byte, to []registry.Lease, m *bus.Membership) []byte {
	b = binary.AppendUvarint(b, m.Version)
	b = appendLeases(b, to)
	b = binary.AppendUvarint(b, uint64(len(m.Changes)))
	for i := range m.Changes {
		c := &m.Changes[i]
		b = appendText(b, c.ChatID)
		b = appendText(b, c.UserID)
		b = appendText(b, c.Change)
		b = appendText(b, c.Role)
	}
	return binary.AppendUvarint(b, uint64(m.Members))
}

// Flags of Presence.
const (
	presenceLooking = 1
	presenceLook    = 2
)

func appendPresence(b []byte, p *bus.Presence) []byte {
	var flags byte
	if p.Looking {
		flags |= presenceLooking
	}
	if p.Look != nil {
		flags |= presenceLook
	}
	b = append(appendLife(b, p.From), flags)
	b = binary.AppendUvarint(b, uint64(p.At))
	for _, users := range [][]tidemark.UserID{p.Came, p.Left, p.Changed} {
		b = appendIDs(b, users)
	}
	if l := p.Look; l != nil {
		b = appendText(appendText(appendText(b, l.ID), l.Session), l.User)
		b = appendIDs(b, l.Chats)
	}
	return b
}

func appendIDs[T ~string](b []byte, ids []T) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = appendText(b, id)
	}
	return b
}

func appendLife(b []byte, node registry.Node) []byte {
	return appendText(appendText(b, node.ID), node.Boot)
}

func appendRequest(b []byte, r *bus.Request) []byte {
	b = appendText(b, r.ID)
	b = appendText(b, r.Session)
	b = appendText(b, r.User)
	return append(appendLife(b, r.To), r.Hops)
}

func appendEnd(b []byte, e *bus.End) []byte {
	b = appendText(b, e.ID)
	b = appendText(b, e.Session)
	b = appendText(b, e.User)
	return appendLife(b, e.From)
}

func appendSeek(b []byte, s *bus.Seek) []byte {
	b = appendText(b, s.ID)
	b = appendText(b, s.Session)
	b = appendText(b, s.User)
	return appendText(appendLife(b, s.From), s.Positions)
}

// atMilli returns a message's time from milliseconds since 1970.
func atMilli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// sequence converts a number to a sequence. It returns false if the number is too large.
func sequence(n uint64) (tidemark.Sequence, bool) {
	return tidemark.Sequence(n), n <= uint64(tidemark.MaxSequence)
}
