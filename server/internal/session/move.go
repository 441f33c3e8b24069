package session

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// maxMoved bounds the chats of a session that moves; one with more of them that it cannot have again does not move.
const maxMoved = 4_096

// moved is a session on its way to another node: what the other one has to know so that the client goes on without a gap, and so that what is not acknowledged
// is marked when the session ends. What can be had again, such as unsent statuses, is left behind and read again.
type moved struct {
	User         tidemark.UserID
	Session      tidemark.SessionID
	Device       tidemark.DeviceID
	LastID, Base uint64
	Runs         []movedRun      `json:",omitempty"`
	Chats        []movedPosition `json:",omitempty"`
	// Epoch is that of the look, which the other node need not do again if it is Complete.
	Epoch    registry.Epoch
	Certain  time.Time
	Complete bool
	// Snapshots are chats whose statuses have still to be sent.
	Snapshots []tidemark.ChatID `json:",omitempty"`
	Controls  []movedControl    `json:",omitempty"`
	// Least is what was pushed of large chats: it never falls.
	Least map[tidemark.ChatID]tidemark.Boundary `json:",omitempty"`
	CaughtUp, Lost, WantStatuses,
	Recent bool
}

type movedRun struct {
	Event    uint64
	Count    uint32            `json:",omitempty"`
	Kind     runKind           `json:",omitempty"`
	Chat     tidemark.ChatID   `json:",omitempty"`
	Sequence tidemark.Sequence `json:",omitempty"`
	To       tidemark.Sequence `json:",omitempty"`
	Control  *movedControl     `json:",omitempty"`
}

type movedControl struct {
	Kind    tidemark.EventType
	Payload json.RawMessage
	Chat    tidemark.ChatID `json:",omitempty"`
}

type movedPosition struct {
	Chat                      tidemark.ChatID
	Next, Start, Woken, Acked tidemark.Sequence
	ToEnd                     bool `json:",omitempty"`
	Born                      uint32
	Sure                      bool `json:",omitempty"`
	Row                       bool `json:",omitempty"`
	Graced                    bool `json:",omitempty"`
	Carried                   bool `json:",omitempty"`
}

// DeviceIn returns the device of a session in writing, "" if it cannot be read.
func DeviceIn(text []byte) tidemark.DeviceID {
	var m struct{ Device tidemark.DeviceID }
	_ = json.Unmarshal(text, &m)
	return m.Device
}

// RowsIn returns the id of a session in writing, "" if it cannot be read, and the rows that are to be marked if nobody goes on with it: what was sent or only woken and is
// not acknowledged (R_WAKESET).
func RowsIn(text []byte) (id tidemark.SessionID, rows []tidemark.PendingDelivery) {
	var m moved
	if json.Unmarshal(text, &m) != nil || m.User == "" {
		return "", nil
	}
	for _, w := range m.Chats {
		if p := w.position(); p.woken > p.acked {
			rows = append(rows, p.pending(m.User))
		}
	}
	return m.Session, rows
}

// Registered reports whether the registry has been asked for the session's lease.
func (s *Session) Registered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registered
}

// Leaseless reports whether nobody knows that the session has a lease: the registry could not be asked, or was not heard.
func (s *Session) Leaseless() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_NOBODY.retake-unconfirmed-lease
	return s.registered && !s.leased
}

// Give freezes the session, which goes on on another node, and returns it in writing. Its connection, if there is one, was replaced. nil: it has ended, is
// another user's, or is too large to move, and stays as it is. Its lease is not touched: the other node has taken it already, so that whatever
// arrives here from now on finds nobody and is marked (R_ADDR).
func (s *Session) Give(user tidemark.UserID) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.arriving != nil || s.User != user {
		return nil
	}
	state, ok := s.moved()
	if !ok {
		return nil
	}
	text, err := json.Marshal(state)
	if err != nil {
		s.node.Log.Error("a session cannot be written down", "session", s.ID, "error", err)
		return nil
	}
	//rule:resume_lossless.tell-connection-of-replacement
	s.closed, s.gone = true, true
	if s.attached {
		s.node.Count.Replaced.Add(1)
	}
	s.chats, s.wakes, s.statuses, s.statusOrder, s.snapshots, s.heard, s.unheard = nil, nil, nil, nil, nil, nil, nil
	notify(s.signal)
	return text
}

// moved describes the session. It reports false if the session is too large.
func (s *Session) moved() (moved, bool) {
	m := moved{
		User: s.User, Session: s.ID, Device: s.Lease.Device, LastID: s.lastID, Base: s.log.base, Epoch: s.epoch, Certain: s.certain, Complete: s.complete && s.leased,
		Snapshots: slices.Clone(s.snapshots), Least: s.least, CaughtUp: s.caughtUp, Lost: s.lost, WantStatuses: s.wantStatuses, Recent: s.recent,
	}
	for _, k := range s.statusOrder {
		if !slices.Contains(m.Snapshots, k.chat) {
			m.Snapshots = append(m.Snapshots, k.chat)
		}
	}
	for _, r := range s.log.runs {
		w := movedRun{Event: r.event, Count: r.count, Kind: r.kind, Chat: r.chat, Sequence: r.sequence, To: r.to}
		if r.control != nil {
			w.Control = &movedControl{r.control.kind, r.control.payload, r.control.chat}
		}
		m.Runs = append(m.Runs, w)
	}
	for _, c := range s.controls {
		m.Controls = append(m.Controls, movedControl{c.kind, c.payload, c.chat})
	}
	for _, chat := range slices.Sorted(maps.Keys(s.chats)) {
		p := s.chats[chat]
		if len(s.chats) > maxMoved && !p.unserved() && !p.unacknowledged() && !p.row && p.acked+1 >= p.next {
			continue // it begins anew with the next message
		}
		if len(m.Chats) == maxMoved {
			return m, false
		}
		m.Chats = append(m.Chats, movedPosition{
			Chat: chat, Next: p.next, Start: p.start, Woken: p.woken, Acked: p.acked, ToEnd: p.toEnd, Born: p.born, Sure: p.sure, Row: p.row, Graced: p.graced, Carried: p.carried,
		})
	}
	return m, true
}

// arrival is what was handed over in one chat for a session that has a lease here and is not here yet.
type arrival struct {
	low, high tidemark.Sequence
	marked    bool
}

// Arriving returns a session that moves to this node: it collects what is handed over to its lease, until Take or End.
func (n *Node) Arriving(lease registry.Lease) *Session {
	s := n.New(lease, false)
	s.arriving, s.landed = make(map[tidemark.ChatID]arrival), make(chan struct{})
	s.leased = true // or will be: whoever ends it releases the lease
	return s
}

// Arriving reports whether the session is on its way to this node.
func (s *Session) Arriving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arriving != nil
}

// Arrived waits until an arriving session is here, and reports whether it is.
func (s *Session) Arrived(ctx context.Context) bool {
	if s.landed != nil {
		select {
		case <-s.landed:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.arriving == nil
}

// arrive takes a hand-over for a session that is not here yet. It reports false if there are too many.
func (s *Session) arrive(chat tidemark.ChatID, sequence tidemark.Sequence, marked bool) bool {
	a, there := s.arriving[chat]
	if !there && len(s.arriving) >= s.node.Chats {
		return false
	}
	if !there || sequence < a.low {
		a.low = sequence
	}
	a.high, a.marked = max(a.high, sequence), a.marked || marked
	s.arriving[chat] = a
	return true
}

// Take lets an arriving session go on where the one stopped that was given by another node. held says that the lease was the session's all the time, so that
// nothing was handed to nobody: only then the look of before counts. It returns rows to be marked, and reports whether the text could be read.
func (s *Session) Take(text []byte, held bool, epoch registry.Epoch) (rows []tidemark.PendingDelivery, ok bool) {
	var m moved
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.arriving == nil {
		return nil, false
	}
	s.certain, s.lastID, s.log = m.Certain, m.LastID, runLog{base: m.Base}
	for _, w := range m.Runs {
		r := run{event: w.Event, count: w.Count, kind: w.Kind, chat: w.Chat, sequence: w.Sequence, to: w.To}
		if w.Control != nil {
			r.control = &control{w.Control.Kind, w.Control.Payload, w.Control.Chat}
		}
		//rule:resume_lossless.take-unacknowledged-runs
		s.log.runs = append(s.log.runs, r)
	}
	for _, c := range m.Controls {
		s.control(control{c.Kind, c.Payload, c.Chat})
	}
	for _, chat := range m.Snapshots {
		s.snapshot(chat)
	}
	s.least, s.caughtUp, s.lost, s.wantStatuses, s.recent = m.Least, m.CaughtUp, m.Lost, m.WantStatuses, m.Recent
	s.chats = make(map[tidemark.ChatID]*position, len(m.Chats))
	for _, w := range m.Chats {
		//rule:session_in_order.take-positions
		rows = s.place(w, rows)
	}
	// An epoch that was noticed while it was on its way is the one that counts.
	if later := s.epoch; later != (registry.Epoch{}) && later != epoch {
		//rule:R_EPOCH.notice-epoch-on-the-way
		held, epoch = false, later
	}
	s.registered = true
	//rule:resume_lossless.trust-complete-look-of-same-epoch
	if held && m.Complete && m.Epoch == epoch {
		s.epoch, s.complete = epoch, true
	} else {
		s.orderLook(lookMissed, epoch)
	}
	arrived := s.arriving
	s.arriving = nil
	close(s.landed)
	for _, chat := range slices.Sorted(maps.Keys(arrived)) {
		a := arrived[chat]
		//rule:R_ADDR.replay-early-wakes
		s.wake(chat, a.low, a.marked)
		s.wake(chat, a.high, a.marked)
	}
	return rows, true
}

func (w movedPosition) position() *position {
	return &position{chat: w.Chat, next: w.Next, start: w.Start, woken: w.Woken, acked: w.Acked, toEnd: w.ToEnd, born: w.Born, sure: w.Sure, row: w.Row}
}

// place enters a position of the session that was given. The grace period begins anew, but once only: a row is appended to rows for what has moved before in it.
func (s *Session) place(w movedPosition, rows []tidemark.PendingDelivery) []tidemark.PendingDelivery {
	p := w.position()
	s.chats[w.Chat] = p
	s.queue(p)
	switch {
	case !w.Graced || p.woken <= p.acked:
	case w.Carried:
		p.row = true
		return append(rows, p.pending(s.User))
	default:
		p.graced, p.carried = true, true
		s.node.Grace.push(Deadline{session: s, position: p, sequence: p.woken})
	}
	return rows
}
