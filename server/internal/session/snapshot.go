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

// maxSnapshotChats bounds the chats of a session that moves. One with more of them that it cannot
// have again does not move.
const maxSnapshotChats = 4_096

// snapshot is a session on its way to another node: what that node has to know so that the client
// goes on without a gap, and so that what is not acknowledged is marked when the session ends. What
// can be had again, such as unsent statuses, is left behind and read again.
type snapshot struct {
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
		chat: w.Chat, next: w.Next, start: w.Start, head: w.Woken, acked: w.Acked, openEnded: w.ToEnd,
		firstSeen: w.Born, ackedRead: w.Sure, mayBePending: w.Row,
	}
}

// DeviceIn returns the device of a session in writing, "" if it cannot be read.
func DeviceIn(text []byte) tidemark.DeviceID {
	var m struct{ Device tidemark.DeviceID }
	_ = json.Unmarshal(text, &m)
	return m.Device
}

// RowsIn returns the id of a session in writing, "" if it cannot be read, and the rows to be marked
// if the session does not go on: for everything that is not acknowledged (R_WAKESET).
func RowsIn(text []byte) (id tidemark.SessionID, rows []tidemark.PendingDelivery) {
	var m snapshot
	if json.Unmarshal(text, &m) != nil || m.User == "" {
		return "", nil
	}
	for _, w := range m.Chats {
		if p := w.progress(); p.behind() {
			rows = append(rows, p.pending(m.User))
		}
	}
	return m.Session, rows
}

// Freeze ends the session here, because it goes on at another node, and returns it in writing. Its
// reader is replaced. It returns nil, and the session stays as it is, if it is not served here, is
// another user's, or is too large to move. Its lease is not touched: the other node has taken it
// already, so that what arrives here from now on finds nobody and is marked (R_ADDR).
func (s *Session) Freeze(user tidemark.UserID) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.serves() || s.User() != user {
		return nil
	}
	state, ok := s.snapshot()
	if !ok {
		return nil
	}
	text, err := json.Marshal(state)
	if err != nil {
		s.host.Log.Error("a session cannot be written down", "session", s.ID(), "error", err)
		return nil
	}
	s.residence.freeze()
	if s.attachment.state == attached {
		s.host.Count.Replaced.Add(1)
	}
	s.chats, s.statuses = chats{}, statuses{}
	s.attachment.flag.Set()
	return text
}

// snapshot describes the session. It reports false if the session is too large.
func (s *Session) snapshot() (snapshot, bool) {
	m := snapshot{
		User: s.User(), Session: s.ID(), Device: s.Lease.Device,
		LastID: s.log.lastID, Base: s.log.base,
		Epoch: s.reconcile.epoch, Certain: s.reconcile.certain,
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
			Event: r.event, Count: r.count, Kind: r.kind, Chat: r.chat, Sequence: r.sequence, To: r.to,
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
			Chat: id, Next: p.next, Start: p.start, Woken: p.head, Acked: p.acked, ToEnd: p.openEnded,
			Born: p.firstSeen, Sure: p.ackedRead, Row: p.mayBePending,
			Graced: p.grace != graceOff, Carried: p.grace == graceMoved,
		})
	}
	return m, true
}

// Arriving returns a session that moves to this node. It collects what is published to its lease,
// until Restore or End.
func (h *Host) Arriving(lease registry.Lease) *Session {
	s := h.New(lease, false)
	s.residence = newArriving()
	return s
}

// Arriving reports whether the session is on its way to this node.
func (s *Session) Arriving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.residence.state == arriving
}

// Landed waits until an arriving session is here, or has ended, and reports whether it is here.
func (s *Session) Landed(ctx context.Context) bool {
	if s.residence.landed != nil {
		select {
		case <-s.residence.landed:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.residence.serves()
}

// Continuity says whether a session that moves had a lease all the time.
type Continuity struct {
	// Unbroken says that the lease that was taken replaced that of the node which froze the session:
	// nothing was published to nobody. Only then the reconciliation of before counts.
	Unbroken bool
	// Epoch is what the registry said before the lease was taken.
	Epoch registry.Epoch
}

// Restore lets an arriving session go on where it was frozen. It returns rows to be marked, and
// reports false if the text cannot be read or the session is not arriving any more.
func (s *Session) Restore(text []byte, c Continuity) (rows []tidemark.PendingDelivery, ok bool) {
	var m snapshot
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.residence.state != arriving {
		return nil, false
	}
	s.restoreLog(&m)
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
	s.restoreReconcile(&m, c)
	for _, n := range s.residence.restore() {
		//rule:R_ADDR.replay-early-wakes
		s.notify(n)
	}
	return rows, true
}

// restoreLog takes over what was sent, and what waits as it is.
func (s *Session) restoreLog(m *snapshot) {
	s.log = eventLog{lastID: m.LastID, base: m.Base}
	for _, w := range m.Runs {
		r := run{
			event: w.Event, count: w.Count, kind: w.Kind, chat: w.Chat, sequence: w.Sequence, to: w.To,
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

// restoreReconcile counts the reconciliation of before if nothing was missed since, else begins one.
func (s *Session) restoreReconcile(m *snapshot, c Continuity) {
	// An epoch that was noticed while the session was on its way is the one that counts.
	if later := s.reconcile.epoch; later != (registry.Epoch{}) && later != c.Epoch {
		//rule:R_EPOCH.notice-epoch-on-the-way
		c = Continuity{Epoch: later}
	}
	s.reconcile = reconcile{epoch: m.Epoch, certain: m.Certain}
	//rule:resume_lossless.trust-complete-look-of-same-epoch
	if !c.Unbroken || !m.Complete || m.Epoch != c.Epoch {
		s.reconcile.begin(readKnown, c.Epoch, s.host.Now())
	}
}

// restoreProgress enters a chat of the frozen session. The grace period begins anew, but once only:
// a row is appended for a chat that has moved before in it.
func (s *Session) restoreProgress(w snapshotProgress, rows []tidemark.PendingDelivery) []tidemark.PendingDelivery {
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
