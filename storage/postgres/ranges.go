package postgres

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// readUp and readDown read a page of each range, upwards and downwards. The rows have no order. A
// page ends with the message that reaches the range's MaxBytes. A range without messages returns
// one row with the sequence 0. An unknown chat returns none.
const (
	readUp   = readFirst + `(ORDER BY m.sequence` + readSecond + `ORDER BY m.sequence` + readThird
	readDown = readFirst + `(ORDER BY m.sequence DESC` + readSecond + `ORDER BY m.sequence DESC` +
		readThird

	readFirst = `SELECT r.no, c.head, c.floor, coalesce(p.sequence, 0), coalesce(p.created_at, 0),
	coalesce(p.members_version, 0), coalesce(p.sender_id, ''),
	coalesce(p.client_message_id, ''), coalesce(p.message_id, ''), coalesce(p.content_type, ''),
	p.attachments, p.metadata, p.kind, p.mentions, p.relation, p.revision,
	coalesce(p.content, '')
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
	WITH ORDINALITY AS r (chat_id, low, high, page, weight, no)
CROSS JOIN LATERAL (SELECT key, head, floor FROM chats WHERE id = r.chat_id LIMIT 1) AS c
LEFT JOIN LATERAL (
	SELECT * FROM (
		SELECT m.*, ` + messageSize + ` AS own, sum(` + messageSize + `) OVER `
	readSecond = ` ROWS UNBOUNDED PRECEDING) AS through
		FROM messages AS m
			WHERE m.chat = c.key
				AND m.sequence BETWEEN greatest(r.low, c.floor) AND least(r.high, c.head) `
	readThird = ` LIMIT r.page
	) AS w WHERE r.weight = 0 OR w.through - w.own < r.weight
) AS p ON true`
)

// messageSize is tidemark.Message.Size.
const messageSize = `octet_length(m.content) + coalesce(octet_length(m.attachments), 0) +
			coalesce(octet_length(m.metadata), 0)`

// Ranges implements storage.Messages. One statement reads all upward ranges of concurrent calls,
// and one all downward ranges. If there are relations, one more reads their targets.
func (s *Store) Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	return storage.Related(ctx, ranges,
		func(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
			pages, err := through(ctx, s, s.pages, ranges)
			if err != nil {
				return nil, err
			}
			messages, err := messagesOf(pages)
			return messages, public(err)
		})
}

// ranges reads ranges without the targets of relations (storage.Read).
func (c *conn) ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	pages, err := readPages(ctx, c, ranges)
	if err != nil {
		return nil, err
	}
	return messagesOf(pages)
}

// messagesOf returns the messages of pages, or a hole of one of them.
func messagesOf(pages []page) ([][]tidemark.Message, error) {
	messages := make([][]tidemark.Message, len(pages))
	for i := range pages {
		if pages[i].hole != nil {
			return nil, pages[i].hole
		}
		messages[i] = pages[i].messages
	}
	return messages, nil
}

// Observe implements storage.Messages. The database knows what other processes have stored.
func (s *Store) Observe(*tidemark.Message) {}

// A page is the result of reading a range.
type page struct {
	wanted      *storage.Range
	floor, head tidemark.Sequence
	messages    []tidemark.Message
	// hole is the first missing message, nil if the page is complete.
	hole error
}

// readPages reads the page of each range.
func readPages(ctx context.Context, c *conn, ranges []storage.Range) ([]page, error) {
	pages := make([]page, len(ranges))
	var up, down []*page
	for i := range ranges {
		p := &pages[i]
		p.wanted = &ranges[i]
		if p.wanted.Before == 0 {
			up = append(up, p)
		} else {
			down = append(down, p)
		}
	}
	if err := c.read(ctx, readUp, up); err != nil {
		return nil, err
	}
	if err := c.read(ctx, readDown, down); err != nil {
		return nil, err
	}
	for i := range pages {
		pages[i].hole = pages[i].whole()
	}
	return pages, nil
}

// bounds returns the first and the last sequence of the range as bigints.
func (p *page) bounds() (low, high int64) {
	low, high = column(p.wanted.After)+1, math.MaxInt64
	if p.wanted.Before != 0 {
		high = column(p.wanted.Before) - 1
	}
	return low, high
}

// column returns a sequence as a bigint. It stays below the maximum of bigint, so that SQL can add
// to it.
func column(s tidemark.Sequence) int64 { return int64(min(s, tidemark.MaxSequence)) }

// read fills pages that all go in one direction.
func (c *conn) read(ctx context.Context, text string, pages []*page) error {
	n := len(pages)
	if n == 0 {
		return nil
	}
	chats, numbers := make([]string, n), make([]int64, 4*n)
	lows, highs, limits, weights := numbers[:n], numbers[n:2*n], numbers[2*n:3*n], numbers[3*n:]
	for i, p := range pages {
		chats[i] = string(p.wanted.Chat)
		limits[i], weights[i] = int64(p.wanted.Limit), int64(p.wanted.MaxBytes)
		lows[i], highs[i] = p.bounds()
	}
	var no, head, floor int64
	var m messageRow
	to := append([]any{&no, &head, &floor}, m.columns()...)
	return c.each(ctx, text, []any{chats, lows, highs, limits, weights}, func(row pgx.Rows) error {
		if err := row.Scan(to...); err != nil {
			return err
		}
		p := pages[no-1]
		p.floor, p.head = tidemark.Sequence(floor), tidemark.Sequence(head)
		if m.sequence == 0 {
			return nil
		}
		if p.messages == nil {
			p.messages = make([]tidemark.Message, 0, p.room())
		}
		found, err := m.message(p.wanted.Chat)
		p.messages = append(p.messages, found)
		return err
	})
}

// mostRoom bounds the messages for which a page has room from the beginning. MaxBytes may end the
// page sooner.
const mostRoom = 128

// room returns for how many messages a page has room when the first one is read.
func (p *page) room() int {
	last := p.head
	if p.wanted.Before != 0 {
		last = min(last, p.wanted.Before-1)
	}
	room := min(mostRoom, p.wanted.Limit)
	if first := p.first(); first <= last {
		return int(min(tidemark.Sequence(room), last-first+1))
	}
	return room
}

// first returns the first sequence that the range may have.
func (p *page) first() tidemark.Sequence { return max(p.wanted.After+1, p.floor) }

// whole sorts the page. It returns a hole if a message is missing between the chat's floor and its
// head. A missing message means that the database is damaged. It is never taken for the end of the
// chat.
func (p *page) whole() error {
	ascending := func(a, b tidemark.Message) int { return cmp.Compare(a.Sequence, b.Sequence) }
	if p.wanted.Before != 0 {
		slices.Reverse(p.messages)
	}
	if !slices.IsSortedFunc(p.messages, ascending) {
		slices.SortFunc(p.messages, ascending)
	}
	first, last := p.first(), p.head
	if p.wanted.Before != 0 {
		last = min(last, p.wanted.Before-1)
	}
	if first > last || p.head == 0 {
		return nil
	}
	n := tidemark.Sequence(len(p.messages))
	full := p.full()
	from := first
	if p.wanted.Before != 0 && full {
		from = last + 1 - n
	}
	//rule:sequence_gapless.check-every-sequence
	for i := range p.messages {
		if want := from + tidemark.Sequence(i); p.messages[i].Sequence != want {
			return &hole{p.wanted.Chat, want}
		}
	}
	//rule:sequence_gapless.check-last-sequence
	if !full && n != last+1-first {
		return &hole{p.wanted.Chat, from + n}
	}
	return nil
}

// full reports whether the page has reached its limit of messages or bytes.
func (p *page) full() bool {
	weight := 0
	for i := range p.messages {
		weight += p.messages[i].Size()
	}
	return len(p.messages) == p.wanted.Limit || p.wanted.MaxBytes != 0 &&
		weight >= p.wanted.MaxBytes
}

// messageColumns are the columns that messageRow.columns scans, in the same order.
const messageColumns = `m.sequence, m.created_at, m.members_version, m.sender_id,
	m.client_message_id, m.message_id, m.content_type, m.attachments,
	m.metadata, m.kind, m.mentions, m.relation, m.revision, m.content`

// A messageRow is the destination of a row of messages. It is reused for all rows of a statement.
// Its texts point into the answer of Postgres, and are valid until the next row.
type messageRow struct {
	sequence, createdAt, version int64
	sender, key, id, contentType pgtype.DriverBytes
	attachments, metadata        []byte
	kind, mentions, revision     *string
	relation                     *int64
	content                      pgtype.DriverBytes
	// lastSender and lastType are those of the row before, which are often the same.
	lastSender, lastType string
}

// columns returns the destinations of messageColumns.
func (m *messageRow) columns() []any {
	return []any{
		&m.sequence, &m.createdAt, &m.version, &m.sender, &m.key, &m.id, &m.contentType,
		&m.attachments, &m.metadata, &m.kind, &m.mentions, &m.relation, &m.revision, &m.content,
	}
}

func (m *messageRow) message(chat tidemark.ChatID) (tidemark.Message, error) {
	kind, mentions := tidemark.KindMessage, tidemark.Mentions{}
	var relation *tidemark.Relation
	var revision *tidemark.Revision
	var err error
	if m.relation != nil {
		relation = &tidemark.Relation{Sequence: tidemark.Sequence(*m.relation)}
	}
	if m.revision != nil {
		revision, err = tidemark.ParseRevision(*m.revision)
	}
	if m.kind != nil {
		kind = tidemark.Kind(*m.kind)
	}
	if m.mentions != nil {
		mentions = tidemark.ParseMentions(*m.mentions)
	}
	if string(m.sender) != m.lastSender {
		m.lastSender = string(m.sender)
	}
	if string(m.contentType) != m.lastType {
		m.lastType = string(m.contentType)
	}
	// The other texts share one allocation.
	var b strings.Builder
	b.Grow(len(m.key) + len(m.id) + len(m.content))
	b.Write(m.key)
	b.Write(m.id)
	b.Write(m.content)
	texts, ids := b.String(), len(m.key)+len(m.id)
	found := tidemark.Message{
		Kind:            kind,
		Relation:        relation,
		Revision:        revision,
		Mentions:        mentions,
		ChatID:          chat,
		Sequence:        tidemark.Sequence(m.sequence),
		SenderID:        tidemark.UserID(m.lastSender),
		ClientMessageID: texts[:len(m.key)],
		MessageID:       tidemark.MessageID(texts[len(m.key):ids]),
		CreatedAt:       timeOf(m.createdAt),
		MembersVersion:  uint64(m.version),
		ContentType:     m.lastType,
		Attachments:     m.attachments,
		Metadata:        m.metadata,
		Content:         texts[ids:],
	}
	return found, cmp.Or(err, storage.TakeRelation(&found))
}

// timeOf returns the time of a column in milliseconds.
func timeOf(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }
