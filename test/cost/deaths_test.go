package cost

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	backend "github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// perUser is how many chats each user of a cluster has, and perChat how many members each chat has.
const (
	perUser = 20
	perChat = 5
)

// A survivor is a node whose sessions are simulated in this process, in place of clients. Its store
// is a real Postgres.
type survivor struct {
	*server.Server
	registry *memory.Registry
	store    storage.Store
	users    int
	// messages and owns count events of all sessions, and caughtUp the sessions that have opened.
	messages, owns, caughtUp atomic.Int64
	// probes gets the times that messages of probe took to sessions.
	probes chan time.Duration
}

func userNo(i int) tidemark.UserID { return tidemark.UserID(fmt.Sprintf("user%06d", i)) }

func groupNo(i int) tidemark.ChatID {
	return tidemark.ChatID(fmt.Sprintf("00000000-0000-7000-8000-%012d", i))
}

// TestDeath_sessions_reconcile_in_few_statements lets a node die that has stored messages and told
// nobody. It measures how long the sessions of another node take until each has what it missed.
// Sends between their users go on meanwhile. TIDEMARK_DEATH_SESSIONS is the number of sessions.
// TIDEMARK_DEATH_STATUSES=1 measures with clients that ask for statuses.
func TestDeath_sessions_reconcile_in_few_statements(t *testing.T) {
	sessions := number(t, "TIDEMARK_DEATH_SESSIONS", 1_000)
	statuses := number(t, "TIDEMARK_DEATH_STATUSES", 0) > 0
	postgres := service.Start(t, "shared_buffers = 1GB")
	postgres.Exec(t, "postgres", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	url := postgres.Database(t)
	store := openStore(t, url)
	fillGroups(t, url, sessions)
	meter, err := pgx.Connect(t.Context(), postgres.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer meter.Close(context.Background())
	s := newSurvivor(t, store, sessions, statuses)
	compared, epochs := s.Counters()["comparisons_total"], s.Counters()["epochs_total"]
	ownStates := s.owns.Load()
	missed := s.die(t)
	wait.Until(t, "the node notices", func() bool { return s.Counters()["epochs_total"] > epochs })
	noticed := time.Now()
	own, theirs := ownTime(t), treeTime(t, postgres.PID())
	if _, err := meter.Exec(t.Context(), "SELECT pg_stat_statements_reset()"); err != nil {
		t.Fatal(err)
	}
	stop := s.probe(t)
	wait.For(t, "every session has reconciled", func() (int, bool) {
		done := s.Counters()["comparisons_total"] - compared
		return int(done), done >= int64(s.users) && s.messages.Load() >= missed
	})
	took := time.Since(noticed)
	own, theirs = ownTime(t)-own, treeTime(t, postgres.PID())-theirs
	statements := statementsOf(t, meter, url)
	each := float64(statements) / float64(s.users)
	delays := stop()
	t.Logf("%d sessions of %d chats are whole %.1f s after the node noticed: %d messages, %d "+
		"statements (%.3f each), CPU of Postgres %.1f s, of the node %.1f s; %d deliveries "+
		"meanwhile took %v in the median, %v in the 99th percentile", s.users, perUser,
		took.Seconds(), missed, statements, each, theirs.Seconds(), own.Seconds(),
		len(delays), delays[len(delays)/2], delays[len(delays)*99/100])
	var compares int
	err = meter.QueryRow(t.Context(), "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements "+
		"WHERE query LIKE '%c.activity_at >= l.since%'").Scan(&compares)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d statements compared, for %.1f sessions each",
		compares, float64(s.users)/float64(compares))
	if compares == 0 || compares > s.users/5 {
		t.Errorf("%d statements compared %d sessions, want at most %d",
			compares, s.users, s.users/5)
	}
	if statuses {
		wait.For(t, "every session has its own states", func() (int, bool) {
			got := s.owns.Load() - ownStates
			return int(got), got >= int64(s.users*perUser)
		})
		t.Logf("all statuses came %.1f s after the node noticed, with %d statements",
			time.Since(noticed).Seconds(), statementsOf(t, meter, url))
	}
}

// fillGroups creates users and their chats. Each chat has a message, which all members have
// acknowledged.
func fillGroups(t *testing.T, url string, users int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	const chat = `'00000000-0000-7000-8000-' || lpad(i::text, 12, '0')`
	values := strings.NewReplacer("$users", fmt.Sprint(users),
		"$chats", fmt.Sprint(users*perUser/perChat), "$members", fmt.Sprint(perChat))
	for _, text := range []string{
		`INSERT INTO chats (id, type, history, name, created_at, activity_at, head, member_count,
			large, creation)
			SELECT ` + chat + `, 'group', 'full', 'a chat', 1, 1, 1, $members, false, ''
			FROM generate_series(0, $chats - 1) AS i ORDER BY i`,
		`INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, intervals)
			SELECT c.key, 'user' ||
				lpad(((c.key + k * ($users / $members)) % $users)::text, 6, '0'),
				c.id, true, 'member', 1, '1-'
			FROM chats AS c, generate_series(0, $members - 1) AS k`,
		`INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence,
			acked_at, read_at)
			SELECT chat, user_id, 1, 1, 1, 1 FROM members`,
		`INSERT INTO messages (chat, sequence, created_at, members_version, sender_id,
			client_message_id, message_id, content_type, content)
			SELECT chat, 1, 1, 1, max(user_id), 'key' || chat, 'message' || chat, 'text/plain', 'hi'
			FROM members GROUP BY chat`,
		`VACUUM ANALYZE`,
	} {
		if _, err := c.Exec(t.Context(), values.Replace(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// newSurvivor starts a node, opens a session of each user, and reads it.
func newSurvivor(t *testing.T, store storage.Store, users int, statuses bool) *survivor {
	t.Helper()
	s := &survivor{
		registry: memory.New(), store: store, users: users,
		probes: make(chan time.Duration, 1<<16),
	}
	var err error
	s.Server, err = server.New(server.Config{
		Storage: store, Registry: s.registry, Nodes: s.registry, Bus: local.New(),
		Logger: slog.New(slog.DiscardHandler), ComparesPerSecond: backend.ComparesPerSecond,
	})
	if err == nil {
		err = s.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var readers, openers sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		readers.Wait()
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var next atomic.Int64
	for range senders {
		openers.Go(func() {
			for i := int(next.Add(1)) - 1; i < users; i = int(next.Add(1)) - 1 {
				c, err := s.Open(ctx, server.OpenRequest{User: userNo(i), Statuses: statuses})
				if err != nil {
					t.Error(err)
					return
				}
				readers.Go(func() { s.read(ctx, c) })
			}
		})
	}
	openers.Wait()
	wait.For(t, "all sessions have opened", func() (int, bool) {
		n := int(s.caughtUp.Load())
		if statuses {
			n += int(s.owns.Load())
		}
		return n, s.caughtUp.Load() >= int64(users)
	})
	return s
}

// probed is what the content of a message of probe begins with. The time follows.
const probed = `"content":"probe `

// read reads a session until ctx ends.
func (s *survivor) read(ctx context.Context, c *server.Connection) {
	var events []tidemark.Event
	var err error
	for {
		if events, err = c.Next(ctx, events[:0], false); err != nil {
			return
		}
		for _, e := range events {
			s.take(e)
		}
		if len(events) == 0 && c.Wait(ctx) != nil {
			return
		}
	}
}

// take counts an event.
func (s *survivor) take(e tidemark.Event) {
	switch e.Type {
	case tidemark.EventCaughtUp:
		s.caughtUp.Add(1)
	case tidemark.EventOwnState:
		s.owns.Add(1)
	case tidemark.EventMessage:
		_, sent, probe := strings.Cut(string(e.Payload), probed)
		if !probe {
			s.messages.Add(1)
			return
		}
		var at int64
		_, _ = fmt.Sscan(strings.TrimRight(sent, `"},`), &at)
		select {
		case s.probes <- time.Since(time.Unix(0, at)):
		default:
		}
	}
}

// die lets another node store a message in each hundredth chat and end. It returns how many
// messages the sessions miss then.
func (s *survivor) die(t *testing.T) (missed int64) {
	t.Helper()
	ghost := registry.Node{ID: "ghost", Boot: "1"}
	if err := s.registry.Join(t.Context(), ghost, time.Second); err != nil {
		t.Fatal(err)
	}
	var drafts []tidemark.Draft
	for i := 0; i < s.users*perUser/perChat; i += 100 {
		drafts = append(drafts, draftFor(groupNo(i), s.member(i)))
	}
	for part := range slices.Chunk(drafts, 500) {
		appended, err := s.store.Append(t.Context(), part)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range appended {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	return int64(len(drafts) * perChat)
}

// member returns a member of a chat. The key of a chat is its number and one.
func (s *survivor) member(chat int) tidemark.UserID { return userNo((chat + 1) % s.users) }

// probe sends messages until stop, which returns the sorted times in which they were delivered.
func (s *survivor) probe(t *testing.T) (stop func() []time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for i := 1; ctx.Err() == nil; i += 10 * 100 {
			chat := i % (s.users * perUser / perChat)
			d := draftFor(groupNo(chat), s.member(chat))
			d.Content = fmt.Sprint("probe ", time.Now().UnixNano())
			if _, err := s.Send(t.Context(), d.SenderID, d); err != nil {
				t.Log(err) // the database has too much to do
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return func() []time.Duration {
		cancel()
		sending.Wait()
		delays := []time.Duration{0}
		for len(s.probes) > 0 {
			delays = append(delays, <-s.probes)
		}
		slices.Sort(delays)
		return delays
	}
}
