package dynamodb

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

const (
	// pageItems is the maximum number of messages a query reads. Messages beyond a limit of bytes
	// are paid for as well.
	pageItems = 256
	// looks is how often a range is read again after a missing message, if a later message is
	// visible.
	looks = 3
)

// Ranges implements storage.Messages. Each range is one strongly consistent query, and so is each
// target of a relation.
func (s *Store) Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "ranges", len(ranges))
	if err != nil {
		return nil, err
	}
	defer leave()
	pages, err := storage.Related(ctx, ranges, c.pages)
	if err != nil {
		return nil, call.Public(err)
	}
	return pages, nil
}

// pages reads ranges without the targets of relations.
func (c caller) pages(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	pages := make([][]tidemark.Message, len(ranges))
	return pages, call.Together(ctx, len(ranges), func(ctx context.Context, i int) (err error) {
		pages[i], err = c.page(ctx, ranges[i])
		return err
	})
}

// Observe implements storage.Messages. The message proves a head. What it writes to the counter of
// its chat can be computed from it.
func (s *Store) Observe(m *tidemark.Message) { s.known.SawMessage(m) }

// page reads a range. A query is not atomic: it may return a message of a transaction without the
// one before it. page reads again from such a hole, unless the missing message has expired. If a
// message is old enough to have expired, page reads the floor after it. A chat that is known to be
// deleted has no messages, although they may not be removed yet.
func (c caller) page(ctx context.Context, r storage.Range) ([]tidemark.Message, error) {
	//rule:deleted_is_gone.no-messages-in-dynamodb
	if c.Gone(r.Chat) {
		return nil, nil
	}
	p := &page{r: r, floor: 1}
	for look := 0; ; look++ {
		missing, err := p.read(ctx, c)
		if err == nil && (missing != 0 || p.mayHaveExpired()) {
			var rose bool
			if rose, err = p.readFloor(ctx, c); rose {
				look = -1
				continue
			}
		}
		if err != nil || missing == 0 {
			return p.ordered(), err
		}
		if look == looks {
			if len(p.found) > 0 {
				return p.ordered(), nil
			}
			//rule:sequence_gapless.report-hole
			return nil, &call.Hole{Chat: r.Chat, Sequence: missing}
		}
		if err := call.Pause(ctx, look); err != nil {
			return nil, err
		}
	}
}

// A page is the part of a range that was read so far. It has no hole, and goes downwards if
// r.Before is set.
type page struct {
	r     storage.Range
	found []tidemark.Message
	size  int
	// floor is the floor of the chat as far as it is known.
	floor tidemark.Sequence
}

// mayHaveExpired reports whether a message that was found is old enough to have expired, and not
// known to be kept.
func (p *page) mayHaveExpired() bool {
	return slices.ContainsFunc(p.found, func(m tidemark.Message) bool {
		return m.Sequence >= p.floor && !record.Young(&m)
	})
}

// readFloor reads the floor of the chat, and reports whether it is higher than what was known. Then
// it removes what is below it from the page, which has to be read on.
func (p *page) readFloor(ctx context.Context, c caller) (rose bool, err error) {
	counter, err := c.Counter(ctx, p.r.Chat)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return false, nil
	}
	//rule:floor_recorded.rows-before-the-floor-in-dynamodb
	if err != nil || counter.Floor <= p.floor {
		return false, err
	}
	p.floor = counter.Floor
	//rule:floor_recorded.leave-out-what-is-not-removed-yet
	p.found = slices.DeleteFunc(p.found,
		func(m tidemark.Message) bool { return m.Sequence < p.floor })
	p.size = 0
	for i := range p.found {
		p.size += p.found[i].Size()
	}
	return true, nil
}

// read adds the next messages until the page is full. missing is a message that must exist and was
// not returned.
func (p *page) read(ctx context.Context, c caller) (missing tidemark.Sequence, err error) {
	backwards := p.r.Before != 0
	from, to := max(p.r.After+1, p.floor), tidemark.MaxSequence
	if backwards {
		to = min(to, p.r.Before-1)
	}
	if n := len(p.found); n > 0 && backwards {
		to = p.found[n-1].Sequence - 1
	} else if n > 0 {
		from = p.found[n-1].Sequence + 1
	}
	if from > to || p.full() {
		return 0, nil
	}
	q := call.Query{
		Read:      call.Read{Table: record.Messages},
		Partition: "chat_id",
		Sort:      "sequence",
		Of:        call.Text(p.r.Chat),
		Range:     between(from, to),
		Backwards: backwards,
		Page:      min(p.r.Limit-len(p.found), pageItems),
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		m, err := record.MessageOf(it)
		if err != nil {
			return false, err
		}
		if missing = p.before(m.Sequence, from); missing != 0 {
			return false, nil
		}
		p.found = append(p.found, m)
		p.size += m.Size()
		return !p.full(), nil
	})
	if len(p.found) > 0 && missing == 0 {
		c.SawHead(p.r.Chat, max(p.found[0].Sequence, p.found[len(p.found)-1].Sequence))
	}
	return missing, err
}

// between returns the sequences from one to another, both included.
func between(from, to tidemark.Sequence) [2]types.AttributeValue {
	return [2]types.AttributeValue{call.Number(from), call.Number(to)}
}

// before returns a message that must exist between the last one read and sequence, or 0 if there is
// none.
func (p *page) before(sequence, from tidemark.Sequence) tidemark.Sequence {
	n := len(p.found)
	switch {
	//rule:sequence_gapless.check-order-backwards
	case p.r.Before != 0 && n > 0 && sequence != p.found[n-1].Sequence-1:
		return p.found[n-1].Sequence - 1
	case p.r.Before != 0:
		return 0
	//rule:sequence_gapless.check-order-forwards
	case n > 0 && sequence != p.found[n-1].Sequence+1:
		return p.found[n-1].Sequence + 1
	//rule:sequence_gapless.check-first-of-page
	case n == 0 && sequence != from:
		return from
	}
	return 0
}

func (p *page) full() bool {
	//rule:bounded_use.limit-page
	return len(p.found) >= p.r.Limit || p.r.MaxBytes != 0 && p.size >= p.r.MaxBytes
}

// ordered returns the messages in ascending order.
func (p *page) ordered() []tidemark.Message {
	if p.r.Before != 0 {
		slices.Reverse(p.found)
	}
	return p.found
}
