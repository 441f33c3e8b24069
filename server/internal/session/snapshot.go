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

// maxSnapshotChats is how many chats a Snapshot has at most. A session with more chats that it
// cannot forget does not move.
const maxSnapshotChats = 4_096

// Snapshot is the state of a session that moves to another node. With it the client continues
// without a gap, and what is not acknowledged can be marked. Unsent statuses are not part of it;
// the other node reads them again.
type Snapshot struct {
	User         tidemark.UserID
	Session      tidemark.SessionID
	Device       tidemark.DeviceID
	LastID, Base uint64
	Runs         []snapshotRun      `json:",omitempty"`
	Chats        []snapshotProgress `json:",omitempty"`
	// Epoch is that of the last reconciliation. If Complete, that reconciliation counts at the
	// other node too.
	Epoch    registry.Epoch
	Certain  time.Time
	Complete bool
	// Refresh has the chats whose statuses have still to be sent.
	Refresh []tidemark.ChatID `json:",omitempty"`
	// Own has the chats whose own state has still to be sent.
	Own      []tidemark.ChatID `json:",omitempty"`
	Controls []snapshotControl `json:",omitempty"`
	// Aggregates is what was sent of large chats, which must not fall.
	Aggregates map[tidemark.ChatID]tidemark.Boundary `json:",omitempty"`
	// CaughtUp and AwaitingCursors give the state of catchUp; neither means catching.
	CaughtUp, AwaitingCursors bool
	// WantsStatuses is statuses.snapshot. ListRecent and ListOwn give the state of statuses.recent.
	WantsStatuses, ListRecent, ListOwn bool
	// Looks says whether the client has said what it shows. It says it again at the other node.
	Looks looksState `json:",omitempty"`
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
	Chat                     tidemark.ChatID
	Next, Start, Head, Acked tidemark.Sequence
	OpenEnded                bool `json:",omitempty"`
	FirstSeen                uint32
	AckedRead                bool `json:",omitempty"`
	MayBePending             bool `json:",omitempty"`
	GraceOn                  bool `json:",omitempty"`
	GraceMoved               bool `json:",omitempty"`
}

func (w snapshotProgress) progress() *progress {
	return &progress{
		chat:         w.Chat,
		next:         w.Next,
		start:        w.Start,
		head:         w.Head,
		acked:        w.Acked,
		openEnded:    w.OpenEnded,
		firstSeen:    w.FirstSeen,
		ackedRead:    w.AckedRead,
		mayBePending: w.MayBePending,
	}
}

// ReadSnapshot parses the text that Freeze returned.
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

// Unacknowledged returns the rows to mark if the session does not continue (R_WAKESET).
func (m *Snapshot) Unacknowledged() []tidemark.PendingDelivery {
	var rows []tidemark.PendingDelivery
	for _, w := range m.Chats {
		if p := w.progress(); p.behind() {
			rows = append(rows, p.pending(m.User))
		}
	}
	return rows
}

// Frozen is the result of Freeze.
type Frozen struct {
	// Text is the Snapshot as JSON.
	Text []byte
	// Unacknowledged has the rows to mark if the session does not continue.
	Unacknowledged []tidemark.PendingDelivery
}

// Freeze ends the session on this node, because it moves to another one. Its reader gets Replaced.
// Freeze returns false and changes nothing if the session is not served here or is too large to
// move. It does not release the lease, which the other node has already taken. What still arrives
// here is marked (R_ADDR).
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
		s.host.Log.Error("a session stays on this node, because its state cannot be encoded",
			"session", s.ID(), "error", err)
		return f, false
	}
	s.residence.freeze()
	if s.attachment.state == attached {
		s.host.Count.Replaced.Add(1)
	}
	s.chats, s.statuses, s.looks = chats{}, statuses{}, looks{}
	s.attachment.confirmations = confirmations{}
	s.attachment.flag.Set()
	return Frozen{text, m.Unacknowledged()}, true
}

// snapshot returns the session's state, or false if the session is too large.
func (s *Session) snapshot() (Snapshot, bool) {
	m := Snapshot{
		User: s.User(), Session: s.ID(), Device: s.Lease.Device,
		LastID: s.log.lastID, Base: s.log.base,
		Epoch: s.reconcile.epoch, Certain: s.reconcile.certain,
		// A lease that is being taken again may have had a gap.
		//rule:R_CONTINUITY.incomplete-while-reacquiring
		Complete: s.lease == held && s.reconcile.complete(),
		Refresh:  s.statuses.unsent(), Aggregates: s.statuses.aggregates,
		CaughtUp: s.catchUp.state == caughtUp, AwaitingCursors: s.catchUp.state == awaitingCursors,
		WantsStatuses: s.statuses.snapshot, ListRecent: s.statuses.recent.uses&forStatuses != 0,
		ListOwn: s.statuses.recent.uses&forOwn != 0, Own: slices.Clone(s.statuses.own),
		Looks: s.looks.state,
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
			continue // the next message enters it again
		}
		if len(m.Chats) == maxSnapshotChats {
			return m, false
		}
		m.Chats = append(m.Chats, snapshotProgress{
			Chat: id, Next: p.next, Start: p.start, Head: p.head, Acked: p.acked,
			OpenEnded: p.openEnded, FirstSeen: p.firstSeen,
			AckedRead: p.ackedRead, MayBePending: p.mayBePending,
			GraceOn: p.grace != graceOff, GraceMoved: p.grace == graceMoved,
		})
	}
	return m, true
}

// restore sets the state of a landing session. It returns rows to mark.
func (s *Session) restore(m *Snapshot) (rows []tidemark.PendingDelivery) {
	s.restoreLog(m)
	for _, chat := range m.Refresh {
		s.statuses.refreshChat(chat)
	}
	s.statuses.aggregates = m.Aggregates
	for _, chat := range m.Own {
		//rule:own_state_reaches_devices.take-unsent
		s.statuses.refreshOwn(chat)
	}
	s.statuses.snapshot = m.WantsStatuses
	s.looks.state = m.Looks
	if m.ListRecent {
		s.statuses.recent.uses |= forStatuses
	}
	if m.ListOwn {
		s.statuses.recent.uses |= forOwn
	}
	switch {
	case m.AwaitingCursors:
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

// restoreLog restores the numbers, runs and queued controls.
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

// restoreReconcile keeps the result of the frozen session's reconciliation if nothing was missed
// since, else it begins a new one (R_CONTINUITY). The lease had no gap, because it was only taken
// over from a lease of this session.
func (s *Session) restoreReconcile(m *Snapshot) {
	epoch, same := s.residence.arrival.epoch, true
	// The session may have noticed a newer epoch while it was arriving. That one counts.
	if noticed := s.reconcile.epoch; noticed != (registry.Epoch{}) && noticed != epoch {
		//rule:R_EPOCH.notice-epoch-on-the-way
		epoch, same = noticed, false
	}
	s.reconcile = reconcile{epoch: m.Epoch, certain: m.Certain}
	//rule:resume_lossless.trust-complete-look-of-same-epoch
	if !same || !m.Complete || m.Epoch != epoch {
		//rule:own_state_reaches_devices.list-after-interrupted-move
		s.missed(atOnce)
		s.reconcile.begin(readMissed, epoch, s.host.Now())
	}
}

// restoreProgress restores a chat. A grace period begins again on the first move only. On a second
// move restoreProgress appends a row instead.
func (s *Session) restoreProgress(
	w snapshotProgress, rows []tidemark.PendingDelivery,
) []tidemark.PendingDelivery {
	p := w.progress()
	p.waitsSince(s.host.Now())
	s.chats.byID[w.Chat] = p
	s.chats.queue(p)
	switch {
	case !w.GraceOn || !p.behind():
	case w.GraceMoved:
		p.mayBePending = true
		return append(rows, p.pending(s.User()))
	default:
		p.grace = graceMoved
		s.host.Grace.push(Deadline{session: s, progress: p, sequence: p.head})
	}
	return rows
}
