package session

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// maxSnapshotChats bounds the chats of a session that moves. One with more of them that it cannot
// have again does not move.
const maxSnapshotChats = 4_096

// Snapshot is a session on its way to another node: what that node has to know so that the client
// goes on without a gap, and so that what is not acknowledged is marked when the session ends. What
// can be had again, such as unsent statuses, is left behind and read again.
type Snapshot struct {
	User         tidemark.UserID
	Session      tidemark.SessionID
	Device       tidemark.DeviceID
	LastID, Base uint64
	Runs         []snapshotRun      `json:",omitempty"`
	Chats        []snapshotProgress `json:",omitempty"`
	// Epoch is that of the last reconciliation, which need not be done again if it is Complete.
	Epoch    registry.Epoch
	Certain  time.Time
	Complete bool
	// Snapshots are chats whose statuses have still to be sent.
	Snapshots []tidemark.ChatID `json:",omitempty"`
	Controls  []snapshotControl `json:",omitempty"`
	// Least is what was sent of large chats: it never falls.
	Least map[tidemark.ChatID]tidemark.Boundary `json:",omitempty"`
	// Lost says that the client has still to give its cursors.
	CaughtUp, Lost, WantStatuses, Recent bool
}

type snapshotRun struct {
	Event    uint64
	Count    uint32            `json:",omitempty"`
	Kind     runKind           `json:",omitempty"`
	Chat     tidemark.ChatID   `json:",omitempty"`
	Sequence tidemark.Sequence `json:",omitempty"`
	To       tidemark.Sequence `json:",omitempty"`
	Control  *snapshotControl  `json:",omitempty"`
}

type snapshotControl struct {
	Kind    tidemark.EventType
	Payload json.RawMessage
	Chat    tidemark.ChatID `json:",omitempty"`
}

type snapshotProgress struct {
	Chat                      tidemark.ChatID
	Next, Start, Woken, Acked tidemark.Sequence
	ToEnd                     bool `json:",omitempty"`
	Born                      uint32
	Sure                      bool `json:",omitempty"`
	Row                       bool `json:",omitempty"`
	Graced                    bool `json:",omitempty"`
	Carried                   bool `json:",omitempty"`
}

func (w snapshotProgress) progress() *progress {
	return &progress{
		chat:         w.Chat,
		next:         w.Next,
		start:        w.Start,
		head:         w.Woken,
		acked:        w.Acked,
		openEnded:    w.ToEnd,
		firstSeen:    w.Born,
		ackedRead:    w.Sure,
		mayBePending: w.Row,
	}
}

// ReadSnapshot reads what Freeze has written.
func ReadSnapshot(text []byte) (*Snapshot, error) {
	var m Snapshot
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if m.User == "" || m.Session == "" {
		return nil, errors.New("it names no session")
	}
	return &m, nil
}

// Unacknowledged returns the rows to be marked if the session does not go on (R_WAKESET).
func (m *Snapshot) Unacknowledged() []tidemark.PendingDelivery {
	var rows []tidemark.PendingDelivery
	for _, w := range m.Chats {
		if p := w.progress(); p.behind() {
			rows = append(rows, p.pending(m.User))
		}
	}
	return rows
}

// Frozen is a session that has left this node.
type Frozen struct {
	// Text is its Snapshot in writing.
	Text []byte
	// Unacknowledged are the rows to be marked if it does not go on.
	Unacknowledged []tidemark.PendingDelivery
}

// Freeze ends the session here, because it goes on at another node. Its reader is replaced. It reports
// false, and the session stays as it is, if it is not served here or is too large to move. Its lease
// is not touched: the other node has taken it already, so that what arrives here from now on finds
// nobody and is marked (R_ADDR).
func (s *Session) Freeze() (f Frozen, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.serves() {
		return f, false
	}
	m, ok := s.snapshot()
	if !ok {
		return f, false
	}
	text, err := json.Marshal(m)
	if err != nil {
		s.host.Log.Error("a session cannot be written down", "session", s.ID(), "error", err)
		return f, false
	}
	s.residence.freeze()
	if s.attachment.state == attached {
		s.host.Count.Replaced.Add(1)
	}
	s.chats, s.statuses = chats{}, statuses{}
	s.attachment.flag.Set()
	return Frozen{text, m.Unacknowledged()}, true
}

// snapshot describes the session. It reports false if the session is too large.
func (s *Session) snapshot() (Snapshot, bool) {
	m := Snapshot{
		User: s.User(), Session: s.ID(), Device: s.Lease.Device,
		LastID: s.log.lastID, Base: s.log.base,
		Epoch: s.reconcile.epoch, Certain: s.reconcile.certain,
		// A lease that is being taken again may have had a gap.
		//rule:R_CONTINUITY.incomplete-while-reacquiring
		Complete:  s.lease == held && s.reconcile.complete(),
		Snapshots: slices.Clone(s.statuses.refresh), Least: s.statuses.aggregates,
		CaughtUp: s.catchUp.state == caughtUp, Lost: s.catchUp.state == awaitingCursors,
		WantStatuses: s.statuses.snapshot, Recent: s.statuses.listRecent,
	}
	for _, k := range s.statuses.order {
		if !slices.Contains(m.Snapshots, k.chat) {
			m.Snapshots = append(m.Snapshots, k.chat)
		}
	}
	for _, r := range s.log.runs {
		w := snapshotRun{
			Event:    r.event,
			Count:    r.count,
			Kind:     r.kind,
			Chat:     r.chat,
			Sequence: r.sequence,
			To:       r.to,
		}
		if r.control != nil {
			w.Control = &snapshotControl{r.control.kind, r.control.payload, r.control.chat}
		}
		m.Runs = append(m.Runs, w)
	}
	for _, c := range s.log.controls {
		m.Controls = append(m.Controls, snapshotControl{c.kind, c.payload, c.chat})
	}
	many := len(s.chats.byID) > maxSnapshotChats
	for _, id := range slices.Sorted(maps.Keys(s.chats.byID)) {
		p := s.chats.get(id)
		if many && !p.ready() && !p.unacknowledged() && !p.mayBePending && p.acked+1 >= p.next {
			continue // it begins anew with the next message
		}
		if len(m.Chats) == maxSnapshotChats {
			return m, false
		}
		m.Chats = append(m.Chats, snapshotProgress{
			Chat: id, Next: p.next, Start: p.start, Woken: p.head, Acked: p.acked,
			ToEnd: p.openEnded, Born: p.firstSeen, Sure: p.ackedRead, Row: p.mayBePending,
			Graced: p.grace != graceOff, Carried: p.grace == graceMoved,
		})
	}
	return m, true
}

// restore lets the session go on where it was frozen. It returns rows to be marked.
func (s *Session) restore(m *Snapshot) (rows []tidemark.PendingDelivery) {
	s.restoreLog(m)
	for _, chat := range m.Snapshots {
		s.statuses.refreshChat(chat)
	}
	s.statuses.aggregates = m.Least
	s.statuses.snapshot, s.statuses.listRecent = m.WantStatuses, m.Recent
	switch {
	case m.Lost:
		s.catchUp.state = awaitingCursors
	case m.CaughtUp:
		s.catchUp.state = caughtUp
	}
	s.chats.byID = make(map[tidemark.ChatID]*progress, len(m.Chats))
	for _, w := range m.Chats {
		//rule:session_in_order.take-positions
		rows = s.restoreProgress(w, rows)
	}
	s.restoreReconcile(m)
	return rows
}

// restoreLog takes over what was sent, and what waits as it is.
func (s *Session) restoreLog(m *Snapshot) {
	s.log = eventLog{lastID: m.LastID, base: m.Base}
	for _, w := range m.Runs {
		r := run{
			event:    w.Event,
			count:    w.Count,
			kind:     w.Kind,
			chat:     w.Chat,
			sequence: w.Sequence,
			to:       w.To,
		}
		if w.Control != nil {
			r.control = &control{w.Control.Kind, w.Control.Payload, w.Control.Chat}
		}
		//rule:resume_lossless.take-unacknowledged-runs
		s.log.runs = append(s.log.runs, r)
	}
	for _, c := range m.Controls {
		s.control(control{c.Kind, c.Payload, c.Chat})
	}
}

// restoreReconcile counts the reconciliation of before if nothing was missed since, else begins one
// (R_CONTINUITY). The lease was never without a session, because it is taken only in place of one of
// this session.
func (s *Session) restoreReconcile(m *Snapshot) {
	epoch, same := s.residence.arrival.epoch, true
	// An epoch that was noticed while the session was on its way is the one that counts.
	if noticed := s.reconcile.epoch; noticed != (registry.Epoch{}) && noticed != epoch {
		//rule:R_EPOCH.notice-epoch-on-the-way
		epoch, same = noticed, false
	}
	s.reconcile = reconcile{epoch: m.Epoch, certain: m.Certain}
	//rule:resume_lossless.trust-complete-look-of-same-epoch
	if !same || !m.Complete || m.Epoch != epoch {
		s.reconcile.begin(readKnown, epoch, s.host.Now())
	}
}

// restoreProgress enters a chat of the frozen session. The grace period begins anew, but once only:
// a row is appended for a chat that has moved before in it.
func (s *Session) restoreProgress(
	w snapshotProgress, rows []tidemark.PendingDelivery,
) []tidemark.PendingDelivery {
	p := w.progress()
	s.chats.byID[w.Chat] = p
	s.chats.queue(p)
	switch {
	case !w.Graced || !p.behind():
	case w.Carried:
		p.mayBePending = true
		return append(rows, p.pending(s.User()))
	default:
		p.grace = graceMoved
		s.host.Grace.push(Deadline{session: s, progress: p, sequence: p.head})
	}
	return rows
}
