package frame

import (
	"errors"
	"math"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/tracing"
)

// errMalformed says that a frame is not valid.
var errMalformed = errors.New("malformed frame")

// Contents is the result of Read.
type Contents struct {
	Events []bus.Event
	// Pings has the numbers of the node's own pings.
	Pings []uint64
	// Unknown counts events of kinds that this version does not know.
	Unknown int
	// Malformed counts events with an invalid body.
	Malformed int
}

// Read decodes a frame that was sent to node. If the frame has another version or ends early, it
// returns an error and the events before that place. It skips and counts events with an invalid
// body. It allocates at most a multiple of the frame's length. An id of a chat or user that is kept
// does not keep the frame in memory.
func Read(frame string, node registry.Node) (Contents, error) {
	var c Contents
	if frame == "" || frame[0] != Version {
		return c, errMalformed
	}
	r := reader{rest: frame[1:], node: node}
	for r.rest != "" {
		kind := r.byte()
		body := r.text()
		if r.failed {
			return c, errMalformed
		}
		// The texts of an event share one allocation, since they may outlive the rest of the frame.
		c.add(kind, reader{rest: strings.Clone(body), node: node})
	}
	return c, nil
}

func (c *Contents) add(kind byte, r reader) {
	var e bus.Event
	switch kind {
	case kindPing:
		if ping := r.number(); !r.failed {
			c.Pings = append(c.Pings, ping)
			return
		}
	case kindNotification:
		e.To, e.Notification = r.notification()
	case kindStatus:
		e.To, e.Status = r.status()
	case kindOwn:
		e.Own = &bus.Own{Chat: kept[tidemark.ChatID](&r)}
		e.To = r.leases()
	case kindReceipts:
		e.Own, e.To = &bus.Own{}, r.leases()
	case kindMembership:
		e.To, e.Membership = r.membership()
	case kindUpdate:
		e.Update = r.update()
		e.To = r.leases()
		e.Update.Receipts = len(r.rest) > 0 && r.byte() == 1
	case kindTyping:
		e.To, e.Typing = r.typing()
	case kindPresence:
		e.Presence = r.presence()
	case kindRequest:
		e.Request = r.request()
	case kindTransfer:
		e.Transfer = &bus.Transfer{ID: id[string](&r), Snapshot: []byte(r.text())}
	case kindSeek:
		e.Seek = r.seek()
	case kindEnd:
		e.End = r.end()
	case kindDone:
		e.Done = &bus.Done{ID: id[string](&r)}
	case kindSurvey:
		e.Survey = &bus.Survey{ID: id[string](&r), From: r.life()}
	case kindReport:
		e.Report = &bus.Report{
			ID: id[string](&r), Node: r.life(), Figures: []byte(r.text()),
		}
	case kindAccess:
		e.Access = &bus.Access{User: kept[tidemark.UserID](&r)}
	default:
		//rule:resume_lossless.count-unknown-events
		c.Unknown++
		return
	}
	//rule:resume_lossless.ignore-trailing-fields
	if r.failed {
		c.Malformed++
		return
	}
	c.Events = append(c.Events, e)
}

// reader decodes a body. After a failure it returns zero values.
type reader struct {
	rest   string
	node   registry.Node
	failed bool
}

func (r *reader) fail() { r.rest, r.failed = "", true }

func (r *reader) byte() byte {
	if r.rest == "" {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) number() uint64 {
	var n uint64
	for shift := uint(0); shift < 64; shift += 7 {
		b := r.byte()
		if shift == 63 && b > 1 {
			break
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	r.fail()
	return 0
}

// signed decodes binary.AppendVarint.
func (r *reader) signed() int64 {
	u := r.number()
	n := int64(u >> 1)
	if u&1 != 0 {
		n = ^n
	}
	return n
}

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.fail()
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// id reads an id. An invalid id is an error: storage would refuse it, together with everything else
// in the same call.
func id[T ~string](r *reader) T {
	s := T(r.text())
	//rule:bounded_input.check-names
	if !tidemark.ValidID(s) {
		r.fail()
	}
	return s
}

// kept reads an id that is kept for long.
func kept[T ~string](r *reader) T { return T(strings.Clone(string(id[T](r)))) }

// count reads a number of elements, each of which takes at least size bytes.
func (r *reader) count(size int) int {
	n := r.number()
	if n > uint64(len(r.rest)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) sequence() tidemark.Sequence {
	n, ok := sequence(r.number())
	if !ok {
		r.fail()
	}
	return n
}

// millis reads a time.
func (r *reader) millis() tidemark.Millis {
	n := r.number()
	if n > math.MaxInt64 {
		r.fail()
		return 0
	}
	return tidemark.Millis(n)
}

// position reads the sequence of a message, which cannot be 0.
func (r *reader) position() tidemark.Sequence {
	n := r.sequence()
	//rule:bounded_input.refuse-sequence-zero
	if n == 0 {
		r.fail()
	}
	return n
}

func (r *reader) leases() []registry.Lease {
	n := r.count(3)
	if n == 0 {
		return nil
	}
	leases := make([]registry.Lease, n)
	for i := range leases {
		leases[i] = registry.Lease{
			User:    id[tidemark.UserID](r),
			Device:  id[tidemark.DeviceID](r),
			Session: id[tidemark.SessionID](r),
			Node:    r.node.ID,
			Boot:    r.node.Boot,
		}
	}
	return leases
}

// life reads a life of a node.
func (r *reader) life() registry.Node {
	return registry.Node{ID: id[tidemark.NodeID](r), Boot: id[string](r)}
}

func (r *reader) notification() (to []registry.Lease, w *bus.Notification) {
	flags := r.byte()
	w = &bus.Notification{
		Marked:   flags&notifyMarked != 0,
		Relation: flags&notifyRelation != 0,
		Chat:     kept[tidemark.ChatID](r),
		Sequence: r.position(),
	}
	to = r.leases()
	if flags&notifyMessage == 0 || r.failed {
		return to, w
	}
	m := &tidemark.Message{
		ChatID:          kept[tidemark.ChatID](r),
		Sequence:        r.position(),
		MessageID:       id[tidemark.MessageID](r),
		SenderID:        id[tidemark.UserID](r),
		ClientMessageID: id[string](r),
		Content:         r.text(),
		ContentType:     r.text(),
	}
	if attachments := r.text(); flags&notifyAttachments != 0 {
		m.Attachments = []byte(attachments)
	}
	if metadata := r.text(); flags&notifyMetadata != 0 {
		m.Metadata = []byte(metadata)
	}
	if m.Kind = tidemark.KindMessage; flags&notifySystem != 0 {
		m.Kind = tidemark.KindSystem
	}
	m.Mentions = tidemark.ParseMentions(r.text())
	m.CreatedAt, m.MembersVersion = atMilli(r.signed()), r.number()
	if len(r.rest) > 0 {
		w.Trace = tracing.FromBinary(r.text())
	}
	if flags&notifyAnnotation != 0 {
		m.Relation = &tidemark.Relation{Sequence: r.position(), Emoji: r.text()}
		if m.Kind = tidemark.KindPin; m.Relation.Emoji != "" {
			m.Kind = tidemark.KindReact
		}
	}
	if m.ChatID != w.Chat || m.Sequence != w.Sequence {
		r.fail()
	}
	if !r.failed && storable(m) {
		w.Message, w.Encoded = m, m.AppendJSON(nil)
	}
	return to, w
}

// storable reports whether storage could hold the message. If not, its notification gets no
// message, and the sessions read it from storage.
func storable(m *tidemark.Message) bool {
	d := tidemark.Draft{
		ChatID:          m.ChatID,
		SenderID:        m.SenderID,
		ClientMessageID: m.ClientMessageID,
		Content:         m.Content,
		ContentType:     m.ContentType,
		Attachments:     m.Attachments,
		Metadata:        m.Metadata,
		Kind:            m.Kind,
		Relation:        m.Relation,
		Mentions:        m.Mentions,
	}
	//rule:bounded_input.check-drafts
	return d.Check() == nil
}

func (r *reader) status() (to []registry.Lease, s *bus.Status) {
	s = &bus.Status{Version: r.number()}
	to = r.leases()
	for range r.count(4) {
		u := tidemark.StatusUpdate{ChatID: kept[tidemark.ChatID](r)}
		if !strings.HasPrefix(r.rest, "\x00") {
			u.UserID = kept[tidemark.UserID](r)
		} else {
			r.byte() // an aggregate has no user
		}
		u.Acked, u.Read = r.sequence(), r.sequence()
		u.AckedAt, u.ReadAt = r.millis(), r.millis()
		s.Updates = append(s.Updates, u)
	}
	return to, s
}

func (r *reader) membership() (to []registry.Lease, m *bus.Membership) {
	m = &bus.Membership{Version: r.number()}
	to = r.leases()
	for range r.count(4) {
		c := tidemark.MembershipChange{
			ChatID: kept[tidemark.ChatID](r),
			UserID: kept[tidemark.UserID](r),
			Change: tidemark.Change(r.text()),
			Role:   tidemark.Role(r.text()),
		}
		if (c.Change == tidemark.Removed) != (c.Role == "") || c.Role != "" && !c.Role.Valid() {
			r.fail()
		}
		switch c.Change {
		case tidemark.Added, tidemark.Removed, tidemark.RoleChanged, tidemark.MetadataChanged:
		default:
			r.fail()
		}
		m.Changes = append(m.Changes, c)
	}
	members := r.number()
	if members > tidemark.MaxMembers {
		r.fail()
	}
	m.Members = int(members)
	return to, m
}

func (r *reader) update() *bus.Update {
	return &bus.Update{
		ChatUpdate:     tidemark.ChatUpdate{ChatID: kept[tidemark.ChatID](r), Version: r.number()},
		MembersVersion: r.number(),
	}
}

func (r *reader) typing() (to []registry.Lease, t *tidemark.Typing) {
	t = &tidemark.Typing{ChatID: id[tidemark.ChatID](r), UserID: id[tidemark.UserID](r)}
	return r.leases(), t
}

func (r *reader) presence() *bus.Presence {
	p := &bus.Presence{From: r.life()}
	flags := r.byte()
	p.Looking, p.At = flags&presenceLooking != 0, r.millis()
	p.Came, p.Left = ids[tidemark.UserID](r), ids[tidemark.UserID](r)
	p.Changed = ids[tidemark.UserID](r)
	if flags&presenceLook != 0 {
		p.Look = &bus.Look{
			ID: id[string](r), Session: id[tidemark.SessionID](r), User: id[tidemark.UserID](r),
			Chats: ids[tidemark.ChatID](r),
		}
	}
	return p
}

// ids reads ids that are kept for long.
func ids[T ~string](r *reader) []T {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	all := make([]T, n)
	for i := range all {
		all[i] = kept[T](r)
	}
	return all
}

func (r *reader) request() *bus.Request {
	q := &bus.Request{
		ID:      id[string](r),
		Session: id[tidemark.SessionID](r),
		User:    id[tidemark.UserID](r),
		To:      r.life(),
		Hops:    r.byte(),
	}
	//rule:R_PASS.refuse-endless-request
	if q.Hops > bus.MaxHops {
		r.fail()
	}
	return q
}

func (r *reader) end() *bus.End {
	return &bus.End{
		ID:      id[string](r),
		Session: id[tidemark.SessionID](r),
		User:    id[tidemark.UserID](r),
		From:    r.life(),
	}
}

func (r *reader) seek() *bus.Seek {
	return &bus.Seek{
		ID:        id[string](r),
		Session:   id[tidemark.SessionID](r),
		User:      id[tidemark.UserID](r),
		From:      r.life(),
		Positions: []byte(r.text()),
	}
}
