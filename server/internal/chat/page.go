package chat

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Request asks for what a user may see of a chat, starting at a sequence.
type Request struct {
	User tidemark.UserID
	Chat tidemark.ChatID
	From tidemark.Sequence
	// To is the highest sequence that is known to exist. If OpenEnded is set, To is ignored and
	// storage decides where the chat ends.
	To        tidemark.Sequence
	OpenEnded bool
	// Limit and Bytes bound the page's messages. A page has at least one message if there is one.
	Limit int
	Bytes int
}

// Piece is a message, or a gap of one or more sequences.
type Piece struct {
	From, To tidemark.Sequence
	Gap      bool
	Payload  []byte
}

// Page is a contiguous part of a chat, cut into pieces.
type Page struct {
	Pieces []Piece
	// Through is the last sequence that the pieces cover, or From − 1 if there are no pieces.
	Through tidemark.Sequence
	// End reports that the chat ends at Through. Only an OpenEnded request sets it.
	End bool
	// Gone reports that the user may see nothing of the chat: they are no member, or the chat does
	// not exist.
	Gone bool
}

// Pages reads a page for each request. It reads storage once for the messages of all pages, and
// once more for each page that a newer roster decides. A page ends at its limits, before a second
// gap, or before a message that has not arrived. The result uses buf if it has room.
func (c *Cache) Pages(ctx context.Context, requests []Request, buf []Page) ([]Page, error) {
	pages := append(buf[:0], make([]Page, len(requests))...)
	var few [1]reading
	readings := few[:0]
	for i := range requests {
		r, err := c.begin(ctx, &requests[i], &pages[i], 0)
		if err != nil {
			return nil, err
		}
		readings = append(readings, r)
	}
	if err := c.fill(ctx, readings); err != nil {
		return nil, err
	}
	for i := range readings {
		r := &readings[i]
		//rule:nothing_outside_membership.page-by-current-roster
		for r.newest > r.version || r.short {
			// A message was stored under a newer roster than the one that decided, or messages may
			// have expired since that was read: decide again.
			again, err := c.again(ctx, r)
			if err != nil {
				return nil, err
			}
			// The roster has just been read from storage. If a message claims a newer one, it is
			// not from storage: do not trust the node that published it.
			//rule:bounded_input.give-up-on-old-storage
			again.stored = again.version < r.newest
			if r.short && again.end != 0 && again.view.floor <= r.view.floor {
				again.term, again.empty = r.term, r.empty
				*r = again
				if r.empty {
					c.took(r, nil)
				}
				break
			}
			*r = again
			if err := c.fill(ctx, readings[i:i+1]); err != nil {
				return nil, err
			}
		}
	}
	return pages, nil
}

// reading is a page while it is being read.
type reading struct {
	*Request
	page  *Page
	entry *Entry
	// end is the last sequence after page.Through that the user may see, or 0 if nothing is read.
	end tidemark.Sequence
	// version is that of the roster that decided. newest is the highest among the messages.
	version, newest uint64
	// stored reports that the cache must not be used, only storage.
	stored bool
	// ended reports that storage had no further message.
	ended bool
	// short reports that storage did not have the next message, and empty that it had none at all.
	// term is that of the read.
	short, empty bool
	term         Term
	// view is what the user may see.
	view view
}

// again decides again what the user may see. If messages may have expired, it reads the floor after
// them.
func (c *Cache) again(ctx context.Context, r *reading) (reading, error) {
	//rule:floor_recorded.read-the-floor-after-the-messages
	if r.short {
		_, err := c.Current(ctx, r.Chat)
		if err != nil && tidemark.CodeOf(err) != tidemark.NotFound {
			return reading{}, err
		}
	}
	return c.begin(ctx, r.Request, r.page, r.newest)
}

// begin decides what the user may see, by a roster of at least the given version. If the range
// starts with a gap, begin adds it to the page.
func (c *Cache) begin(
	ctx context.Context, r *Request, page *Page, atLeast uint64,
) (reading, error) {
	rd := reading{Request: r, page: page, entry: c.Chat(r.Chat)}
	*page = Page{Through: r.From - 1}
	_, err := c.Roster(ctx, r.Chat, atLeast)
	if err != nil && tidemark.CodeOf(err) != tidemark.NotFound {
		return rd, err
	}
	// Any age will do: each message carries the version under which it was stored.
	roster, m, err := c.member(ctx, r.User, r.Chat, true)
	switch code := tidemark.CodeOf(err); {
	//rule:nothing_outside_membership.no-page-for-strangers
	case code == tidemark.NotMember, code == tidemark.NotFound:
		page.Gone = true
		return rd, nil
	case err != nil:
		return rd, err
	}
	rd.version, rd.view = roster.Version, viewOf(roster, &m)
	to := r.To
	if r.OpenEnded {
		to = tidemark.MaxSequence
	}
	if r.From > to {
		return rd, nil
	}
	end, why := rd.view.piece(r.From, to)
	if why != "" {
		g := tidemark.Gap{ChatID: r.Chat, From: r.From, To: end, Reason: why}
		//rule:session_in_order.announce-gap
		page.Pieces = append(page.Pieces, Piece{
			From:    g.From,
			To:      g.To,
			Gap:     true,
			Payload: g.AppendJSON(nil),
		})
		if page.Through = end; end >= to {
			return rd, nil
		}
		// What follows what has expired may be another gap, with which the next page begins.
		if end, why = rd.view.piece(end+1, to); why != "" {
			return rd, nil
		}
	}
	rd.end = end
	return rd, nil
}

// fill reads messages from memory where it can, and all others with one read of storage. Only
// storage knows where a chat ends.
func (c *Cache) fill(ctx context.Context, readings []reading) error {
	var ranges []storage.Range
	var at []int
	for i := range readings {
		rd := &readings[i]
		if rd.end == 0 || !rd.OpenEnded && !rd.stored && c.fromTail(rd) {
			continue
		}
		ranges = append(ranges, storage.Range{
			Chat: rd.Chat, After: rd.page.Through, Limit: rd.Limit, MaxBytes: rd.Bytes,
		})
		at = append(at, i)
	}
	if len(ranges) == 0 {
		return nil
	}
	term := c.Term()
	read, err := c.storage.Ranges(ctx, ranges)
	if err != nil {
		return err
	}
	c.Count.RangeReads.Add(1)
	for j, messages := range read {
		rd := &readings[at[j]]
		c.Count.RangeMessages.Add(int64(len(messages)))
		rd.term = term
		// If storage does not have the next message, it may have expired. A request that asks
		// where the chat ends finds nothing there as a rule, so that is no reason to read a roster:
		// if all has expired, its gap is told before the next message.
		rd.empty = len(messages) == 0
		rd.short = rd.empty && !rd.OpenEnded ||
			!rd.empty && messages[0].Sequence > rd.page.Through+1
		if !rd.short {
			c.took(rd, messages)
		}
	}
	return nil
}

// took takes what a page got from storage.
func (c *Cache) took(rd *reading, messages []tidemark.Message) {
	rd.fromStorage(messages)
	c.learn(rd, messages, rd.term)
	if len(messages) == 0 && !rd.OpenEnded {
		c.Count.ShortReads.Add(1)
	}
}

// learn caches what a session read from storage in a term: what nodes send without content, and all
// of it while Put leaves out what may be from before the term (R_WIPE). If that was the end of the
// chat, learn records that what follows it is from the term.
func (c *Cache) learn(rd *reading, messages []tidemark.Message, term Term) {
	present, settled := c.present()
	news := !settled && term == present && term != NoTerm
	for i := range messages {
		if m := &messages[i]; news || !m.Kind.Shown() && !m.Kind.Annotates() {
			c.refill(rd.entry, m, term)
		}
	}
	if !news || !rd.ended {
		return
	}
	next := rd.page.Through + 1
	if n := len(messages); n > 0 {
		next = messages[n-1].Sequence + 1
	}
	//rule:R_WIPE.keep-what-follows-the-end
	c.follows(rd.entry, next, term)
}

// fromTail fills the page from memory if its first message is there, and reports whether it did.
func (c *Cache) fromTail(rd *reading) bool {
	rd.entry.mu.Lock()
	defer rd.entry.mu.Unlock()
	//rule:R_WIPE.serve-the-present-term-only
	if term := c.Term(); term == NoTerm || rd.entry.tail.term != term {
		return false
	}
	found := rd.entry.tail.read(rd.page.Through+1, rd.end, rd.Limit, rd.Bytes)
	rd.page.Pieces = slices.Grow(rd.page.Pieces, len(found))
	for _, m := range found {
		rd.add(m)
	}
	if rd.newest == 0 {
		return false
	}
	c.Count.TailReads.Add(1)
	return true
}

func (rd *reading) fromStorage(messages []tidemark.Message) {
	size := 0
	for i := range messages {
		size += messages[i].Size()
	}
	rd.page.Pieces = slices.Grow(rd.page.Pieces, len(messages))
	if n := len(messages); n > 0 {
		rd.entry.Reached(messages[n-1].Sequence)
	}
	for i := range messages {
		m := &messages[i]
		//rule:nothing_outside_membership.end-page-at-membership
		if m.Sequence > rd.end {
			break
		}
		kept := message{sequence: m.Sequence, version: m.MembersVersion}
		//rule:nothing_outside_membership.no-invisible-target-from-storage
		if m.Relation != nil && !rd.view.contains(m.Relation.Sequence) {
			bare := m.WithoutTarget()
			m = &bare
		}
		kept.payload = m.AppendJSON(nil)
		rd.add(kept)
	}
	//rule:pending_or_delivered.end-only-when-all-was-read
	rd.ended = len(messages) < rd.Limit && size < rd.Bytes
	rd.page.End = rd.OpenEnded && rd.ended && rd.end == tidemark.MaxSequence
}

func (rd *reading) add(m message) {
	rd.page.Pieces = append(rd.page.Pieces, Piece{
		From:    m.sequence,
		To:      m.sequence,
		Payload: m.payloadFor(rd.view),
	})
	rd.page.Through = m.sequence
	rd.newest = max(rd.newest, m.version)
}
