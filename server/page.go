package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// pageRequest asks for what a user may see of a chat from a sequence on.
type pageRequest struct {
	user tidemark.UserID
	chat tidemark.ChatID
	from tidemark.Sequence
	// to is the highest sequence known to exist. With toEnd storage says where the chat ends.
	to    tidemark.Sequence
	toEnd bool
	limit int
	bytes int
}

// piece is a message, or a gap of one or more sequences.
type piece struct {
	from, to tidemark.Sequence
	gap      bool
	payload  []byte
}

// page is a contiguous stretch of a chat, cut into pieces.
type page struct {
	pieces []piece
	// through is the last sequence that the pieces cover; from − 1 if there is none.
	through tidemark.Sequence
	// end says that the chat ends there.
	end bool
}

// page reads a stretch of a chat for a user: from the tail if it is there, else from storage. NotMember if he may see nothing any more.
func (s *Server) page(ctx context.Context, r pageRequest) (page, error) {
	c := s.hot.get(r.chat)
	var atLeast uint64
	for {
		p, err := s.people(ctx, c, atLeast)
		if err != nil {
			return page{}, err
		}
		m, ok := p.Member(r.user)
		if !ok {
			return page{}, notMember(r.user, r.chat)
		}
		pg, newest, err := s.pageFor(ctx, c, r, m.Intervals)
		if err != nil || newest <= p.Version {
			return pg, err
		}
		// A message was stored under a newer membership than the one that we looked at: look again.
		atLeast = newest
	}
}

// pageFor reads a stretch for one who may see the intervals. newest is the highest membership version of the messages in it.
func (s *Server) pageFor(ctx context.Context, c *hotChat, r pageRequest, iv tidemark.Intervals) (pg page, newest uint64, err error) {
	pg.through = r.from - 1
	to := r.to
	if r.toEnd {
		to = tidemark.MaxSequence
	}
	for len(pg.pieces) < r.limit && pg.through < to {
		from := pg.through + 1
		end, visible := iv.Visible(from, to)
		if !visible {
			g := tidemark.Gap{ChatID: r.chat, From: from, To: end, Reason: tidemark.GapNotMember}
			pg.pieces = append(pg.pieces, piece{from: from, to: end, gap: true, payload: g.AppendJSON(nil)})
			pg.through = end
			continue
		}
		limit := r.limit - len(pg.pieces)
		entries, err := s.read(ctx, c, from, end, limit, r.bytes, r.toEnd)
		if err != nil {
			return pg, newest, err
		}
		for _, e := range entries {
			pg.pieces = append(pg.pieces, piece{from: e.sequence, to: e.sequence, payload: e.payload})
			pg.through = e.sequence
			newest = max(newest, e.version)
		}
		if pg.through < end {
			// The limit, the chat's end, or a message that cannot be seen yet.
			pg.end = r.toEnd && len(entries) < limit && sizeOf(entries) < r.bytes
			return pg, newest, nil
		}
	}
	return pg, newest, nil
}

func sizeOf(entries []entry) int {
	size := 0
	for _, e := range entries {
		size += len(e.payload)
	}
	return size
}

// read returns the messages [from, to], as far as limit and bytes go. Only storage knows where a chat ends, so that it is asked for toEnd.
func (s *Server) read(ctx context.Context, c *hotChat, from, to tidemark.Sequence, limit, bytes int, toEnd bool) ([]entry, error) {
	if !toEnd {
		c.mu.Lock()
		entries, ok := c.tail.read(nil, from, to, limit, bytes)
		c.mu.Unlock()
		if ok {
			s.count.tailReads.Add(1)
			return entries, nil
		}
	}
	messages, err := s.storage.Range(ctx, storage.Range{Chat: c.id, After: tidemark.After(from), Limit: limit, MaxBytes: bytes})
	if err != nil {
		return nil, err
	}
	s.count.rangeReads.Add(1)
	s.count.rangeMessages.Add(int64(len(messages)))
	entries := make([]entry, 0, len(messages))
	for i := range messages {
		m := &messages[i]
		if m.Sequence > to {
			break
		}
		entries = append(entries, entry{sequence: m.Sequence, version: m.MembersVersion, payload: m.AppendJSON(nil)})
	}
	if len(messages) == 0 && !toEnd {
		s.count.shortReads.Add(1)
	}
	return entries, nil
}

// acked returns a lower bound of a user's acknowledged watermark, from memory or storage.
func (s *Server) acked(ctx context.Context, key storage.StateKey) (tidemark.Sequence, error) {
	if acked, ok := s.known.acked(key); ok {
		return acked, nil
	}
	states, err := s.storage.States(ctx, []storage.StateKey{key})
	if err != nil {
		return 0, err
	}
	return s.known.raise(states[0]).Acked, nil
}

func stateKey(user tidemark.UserID, chat tidemark.ChatID) storage.StateKey {
	return storage.StateKey{User: user, Chat: chat}
}
