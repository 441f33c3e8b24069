package cost

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/chores"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// expiryChat is how many messages a chat has. The first half of them is old.
const expiryChat = 10_000

// fillOld stores messages in all chats, as Append stores them. Those of the first half are of 2024.
const fillOld = `INSERT INTO messages (chat, sequence, created_at, members_version, sender_id,
		client_message_id, message_id, content_type, content)
	SELECT c.key, n, CASE WHEN n <= $1 / 2 THEN 1704067200000 ELSE $2 END + n, c.members_version,
		'anna', '01900000-0000-7000-8000-' || lpad(to_hex(c.key * 100000 + n), 12, '0'),
		'01900000-0000-7000-9000-' || lpad(to_hex(c.key * 100000 + n), 12, '0'), $3, $4
	FROM chats AS c CROSS JOIN generate_series(1, $1) AS n ORDER BY n, c.key`

// fillHeads gives the chats and their sender the numbers that belong to these messages.
var fillHeads = []string{
	`UPDATE chats SET head = $1, activity_at = $2`,
	`INSERT INTO senders (chat, user_id, sent, last_sent)
		SELECT key, 'anna', $1, $1 FROM chats
		ON CONFLICT (chat, user_id) DO UPDATE SET sent = $1, last_sent = $1`,
}

// TestExpiry_costs fills chats on Postgres with TIDEMARK_EXPIRY_MESSAGES messages (20,000), of
// which half are old, and removes those as the jobs of a server do: a batch, and then a rest of
// four times as long. It prints how many rows a second that removes, how large table and indexes
// are before and after, and what sends cost with it and without, in turns of TIDEMARK_COST_SECONDS.
func TestExpiry_costs(t *testing.T) {
	messages := number(t, "TIDEMARK_EXPIRY_MESSAGES", 20_000)
	seconds, rounds := number(t, "TIDEMARK_COST_SECONDS", 1), number(t, "TIDEMARK_COST_ROUNDS", 1)
	server := service.Shared(t)
	url := server.Database(t)
	s := openStore(t, url)
	each := min(expiryChat, messages/2)
	chats := openedChats(t, s, tidemark.Group, messages/each)
	e := &expiry{t: t, store: s, chats: chats, each: each, url: url}
	e.fill()
	e.honest()
	sizes := []string{"filled: " + e.sizes()}
	send := func(i int) error {
		_, err := storage.AppendOne(t.Context(), s, draftFor(chats[i%len(chats)], "anna"))
		return err
	}
	var without, with []float64
	for range rounds {
		alone := measure(t, server.PID(), seconds, send)
		stop := e.sweep()
		beside := measure(t, server.PID(), seconds, send)
		removed := stop()
		t.Logf("sends alone: %v; while %d messages were removed: %v", alone, removed, beside)
		without, with = append(without, alone.micro), append(with, beside.micro)
	}
	t.Logf("a send costs %.1f µs without, and %.1f µs with what removes messages", median(without),
		median(with))
	before, own, database := e.removed.Load(), ownTime(t), treeTime(t, server.PID())
	began := time.Now()
	e.finish()
	removed := float64(e.removed.Load() - before)
	t.Logf("alone: %.0f messages removed, %.0f a second; %.1f µs of CPU each, %.1f of them in "+
		"Postgres; %.0f a second without rests", removed, removed/time.Since(began).Seconds(),
		micros(ownTime(t)-own+treeTime(t, server.PID())-database)/removed,
		micros(treeTime(t, server.PID())-database)/removed, removed/e.worked.Seconds())
	sizes = append(sizes, "removed: "+e.sizes())
	e.ask("VACUUM messages")
	sizes = append(sizes, "vacuumed: "+e.sizes())
	t.Log(strings.Join(sizes, "; "))
	if want := int64(len(chats) * (each / 2)); e.removed.Load() != want {
		t.Errorf("%d messages were removed, want %d", e.removed.Load(), want)
	}
}

// micros returns a time in microseconds.
func micros(d time.Duration) float64 { return float64(d.Microseconds()) }

// expiry is a database of which half has expired.
type expiry struct {
	t     *testing.T
	store storage.Store
	chats []tidemark.ChatID
	each  int
	url   string
	// removed counts the messages that were removed, and worked is how long the calls took of the
	// last run of remove.
	removed atomic.Int64
	worked  time.Duration
}

// ask returns the answer to a statement as a text.
func (e *expiry) ask(statement string, args ...any) (answer string) {
	e.t.Helper()
	ctx := e.t.Context()
	conn, err := pgx.Connect(ctx, e.url)
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, statement, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		e.t.Fatalf("%s: %v", statement, err)
	}
	return strings.Join(texts, " ")
}

// fill stores the messages.
func (e *expiry) fill() {
	e.t.Helper()
	now := time.Now().UnixMilli() - int64(e.each)
	draft := draftFor("", "anna")
	e.ask(fillOld, e.each, now, draft.ContentType, draft.Content)
	e.ask(fillHeads[0], e.each, now)
	e.ask(fillHeads[1], e.each)
	e.ask("VACUUM ANALYZE")
	e.ask("CHECKPOINT")
}

// honest checks that a message that the store appends is like those that were filled in.
func (e *expiry) honest() {
	e.t.Helper()
	draft := draftFor(e.chats[0], "anna")
	if _, err := storage.AppendOne(e.t.Context(), e.store, draft); err != nil {
		e.t.Fatal(err)
	}
	const columns = `SELECT string_agg(pair.key, ' ' ORDER BY pair.key) || ' ' ||
			max(pg_column_size(m.*))
		FROM messages AS m JOIN chats AS c ON c.key = m.chat AND c.id = $1
		CROSS JOIN LATERAL jsonb_each_text(to_jsonb(m)) AS pair
		WHERE m.sequence = $2 AND pair.value IS NOT NULL`
	filled, appended := e.ask(columns, e.chats[0], e.each), e.ask(columns, e.chats[0], e.each+1)
	if filled != appended {
		e.t.Errorf("a message that was filled in has %s, and an appended one %s", filled, appended)
	}
}

// sizes returns the sizes of the table of messages and of its indexes, and what is dead and free.
func (e *expiry) sizes() string {
	e.t.Helper()
	const mib = 1 << 20
	text := e.ask(fmt.Sprintf(`SELECT round(pg_relation_size('messages') / %d.0, 1) || ' MiB, ' ||
		round(pg_indexes_size('messages') / %[1]d.0, 1) || ' MiB of indexes'`, mib))
	if e.ask(`SELECT count(*)::text FROM pg_available_extensions
		WHERE name = 'pgstattuple'`) == "0" {
		return text
	}
	e.ask("CREATE EXTENSION IF NOT EXISTS pgstattuple")
	return text + e.ask(`SELECT ', dead ' || dead_tuple_percent || ' %, free ' || free_percent ||
		' %' FROM pgstattuple('messages')`)
}

// sweep removes old messages beside what follows, until stop is called. stop returns how many.
func (e *expiry) sweep() (stop func() int64) {
	ctx, cancel := context.WithCancel(e.t.Context())
	before, done := e.removed.Load(), make(chan struct{})
	go func() {
		defer close(done)
		e.remove(ctx)
	}()
	return func() int64 {
		cancel()
		<-done
		return e.removed.Load() - before
	}
}

// finish removes what is left.
func (e *expiry) finish() { e.remove(e.t.Context()) }

// remove removes old messages until ctx ends, at the pace of a server.
func (e *expiry) remove(ctx context.Context) {
	e.worked = 0
	for _, chat := range e.chats {
		failed, err := chores.Repeat(ctx, func() error { return nil }, func() (bool, error) {
			began := time.Now()
			// A call that was begun is ended, so that all that was removed is counted.
			expired, err := e.store.Expire(context.WithoutCancel(ctx), chat,
				time.Now().Add(-storage.MinAge-time.Hour), storage.MaxExpired)
			e.worked += time.Since(began)
			e.removed.Add(int64(expired.Removed))
			return expired.Removed < storage.MaxExpired, err
		})
		if ctx.Err() != nil {
			return
		}
		if failed != nil || err != nil {
			e.t.Errorf("%s: %v, %v", chat, failed, err)
			return
		}
	}
}
