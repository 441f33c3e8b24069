package server

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// debts is what must happen for stored messages and has not. It is bounded, and safe for concurrent use.
type debts struct {
	signal chan struct{}

	mu sync.Mutex
	// marks are the rows to be written; wakes are rows that were written, for sessions that could not be told: the smallest sequence of each user and chat.
	marks, wakes map[storage.StateKey]tidemark.Sequence
	// sends are messages whose append has an unknown outcome, or which were not handed over: both are resolved by sending again with the same key.
	sends []owedSend
	bytes int
	// lost says that a bound was exceeded since the node joined the registry anew.
	lost bool
}

// owedSend is a message to be sent again by the node itself.
type owedSend struct {
	draft tidemark.Draft
	seen  tidemark.Sequence
}

// Bounds of what the node owes, and how often it tries again. Beyond a bound the node gives up its claim to know: it voids all proofs by joining
// the registry again, as if it had crashed, so that every open compares.
const (
	maxOwedRows  = 200_000
	maxOwedBytes = 64 << 20
	debtsPause   = time.Second
)

func newDebts() *debts {
	return &debts{signal: make(chan struct{}, 1), marks: map[storage.StateKey]tidemark.Sequence{}, wakes: map[storage.StateKey]tidemark.Sequence{}}
}

// oweMarks takes on rows to be marked. It does not block.
func (s *Server) oweMarks(rows []tidemark.PendingDelivery) { s.debts.addRows(s.debts.marks, rows) }

// oweWakes takes on rows that are marked, and whose users' sessions are to be told. It does not block.
func (s *Server) oweWakes(rows []tidemark.PendingDelivery) { s.debts.addRows(s.debts.wakes, rows) }

func (d *debts) addRows(to map[storage.StateKey]tidemark.Sequence, rows []tidemark.PendingDelivery) {
	if len(rows) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, row := range rows {
		key := storage.StateKey{User: row.UserID, Chat: row.ChatID}
		first, there := to[key]
		switch {
		case !there && len(to) >= maxOwedRows:
			d.lost = true
		case !there || row.FirstUndelivered < first:
			to[key] = row.FirstUndelivered
		}
	}
	d.notify()
}

// oweSend takes on a message to be sent again. It does not block.
func (s *Server) oweSend(o owedSend) {
	d := s.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes += o.size(); d.bytes > maxOwedBytes {
		d.bytes -= o.size()
		d.lost = true
	} else {
		d.sends = append(d.sends, o)
	}
	d.notify()
}

func (o owedSend) size() int { return 512 + len(o.draft.Content) + len(o.draft.Attachment) }

func (d *debts) notify() {
	select {
	case d.signal <- struct{}{}:
	default:
	}
}

// take returns everything that is owed, and owes nothing any more.
func (d *debts) take() (marks, wakes []tidemark.PendingDelivery, sends []owedSend, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	marks, wakes, sends, lost = rowsOf(d.marks), rowsOf(d.wakes), d.sends, d.lost
	d.sends, d.bytes, d.lost = nil, 0, false
	return marks, wakes, sends, lost
}

// rowsOf empties a map of rows.
func rowsOf(m map[storage.StateKey]tidemark.Sequence) []tidemark.PendingDelivery {
	rows := make([]tidemark.PendingDelivery, 0, len(m))
	for key, first := range m {
		rows = append(rows, tidemark.PendingDelivery{UserID: key.User, ChatID: key.Chat, FirstUndelivered: first})
	}
	clear(m)
	return rows
}

// owes reports whether anything is owed.
func (d *debts) owes() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.marks) > 0 || len(d.wakes) > 0 || len(d.sends) > 0 || d.lost
}

// pay tries everything that is owed once, and reports whether nothing is owed any more.
func (s *Server) pay(ctx context.Context) bool {
	marks, wakes, sends, lost := s.debts.take()
	if lost {
		if err := s.nodes.Join(ctx, s.node, s.cfg.LeaseTTL); err != nil {
			s.log.Warn("the node owes more than it can remember, and cannot say so to the registry", "error", err)
			s.debts.mu.Lock()
			s.debts.lost = true
			s.debts.mu.Unlock()
		}
	}
	for _, o := range sends {
		s.sendAgain(ctx, o)
	}
	if err := s.mark(ctx, marks); err != nil {
		s.log.Warn("pending rows wait to be marked", "rows", len(marks), "error", err)
		s.oweMarks(marks)
	}
	s.wakeMarked(ctx, wakes)
	return !s.debts.owes()
}

// sendAgain resolves an append by its idempotency key, and hands the message over. What is refused now was refused before, or has been answered otherwise.
func (s *Server) sendAgain(ctx context.Context, o owedSend) {
	appended, err := storage.AppendOne(ctx, s.storage, o.draft)
	if err == nil {
		_, _ = s.finish(ctx, o.draft, o.seen, appended) // it owes what it could not do
		return
	}
	if code := tidemark.CodeOf(err); code == tidemark.Unavailable || code == tidemark.Internal {
		s.log.Warn("a send waits to be resolved", "chat", o.draft.ChatID, "error", err)
		s.oweSend(o)
	}
}

// payLoop pays until ctx ends.
func (s *Server) payLoop(ctx context.Context) {
	for {
		select {
		case <-s.debts.signal:
		case <-ctx.Done():
			return
		}
		for !s.pay(ctx) {
			if !pause(ctx, debtsPause) {
				return
			}
		}
	}
}
