// Package cost measures the cost of the stores, and compares it with a naive design on the same
// server.
package cost

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/uuid/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// senders is how many goroutines send at once in the measurements. Each waits for its answer.
const senders = 64

// A load is what senders achieve in some seconds, and its cost.
type load struct {
	perSecond float64
	// micro is the user and system time of this process and of Postgres, in microseconds per
	// operation. server is the part of Postgres.
	micro, server float64
}

func (l load) String() string {
	return fmt.Sprintf("%.0f/s, %.1f µs each (Postgres %.1f)", l.perSecond, l.micro, l.server)
}

// TestAppend_costs_a_fraction_of_a_naive_writer alternates the store and a service that writes each
// message in a transaction of its own, on the same server. TIDEMARK_COST_SECONDS is the duration of
// each run, TIDEMARK_COST_ROUNDS the number of runs of each.
func TestAppend_costs_a_fraction_of_a_naive_writer(t *testing.T) {
	seconds, rounds := number(t, "TIDEMARK_COST_SECONDS", 1), number(t, "TIDEMARK_COST_ROUNDS", 2)
	for _, test := range []struct {
		name  string
		kind  tidemark.ChatType
		chats int
		// The store must need less CPU by the factor cpu, and send more messages a second by the
		// factor rate. Documented factors are larger: other programs on the machine take the rest.
		cpu, rate float64
	}{
		{"1000 chats", tidemark.Direct, 1_000, 4, 1}, {"one hot chat", tidemark.Direct, 1, 10, 2},
		{"1000 groups", tidemark.Group, 1_000, 4, 1}, {"one hot group", tidemark.Group, 1, 10, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := service.Shared(t)
			url := server.Database(t)
			s := openStore(t, url)
			chats := openedChats(t, s, test.kind, test.chats)
			naive := openNaive(t, url)
			var cpu, rate []float64
			for range rounds {
				theirs := measure(t, server.PID(), seconds,
					func(i int) error {
						return naive.send(t.Context(), chats[i%len(chats)], sender(chats, i))
					})
				ours := measure(t, server.PID(), seconds, func(i int) error {
					d := draftFor(chats[i%len(chats)], sender(chats, i))
					_, err := storage.AppendOne(t.Context(), s, d)
					return err
				})
				t.Logf("naive: %v; the store: %v", theirs, ours)
				cpu, rate = append(cpu, theirs.micro/ours.micro), append(rate,
					ours.perSecond/theirs.perSecond)
			}
			t.Logf("%s: %.1f times less CPU, %.1f times the messages (medians of %d alternating "+
				"runs)", test.name, median(cpu), median(rate), rounds)
			if median(cpu) < test.cpu || median(rate) < test.rate {
				t.Errorf("%.1f times less CPU and %.1f times the messages of a naive writer, "+
					"want %.1f and %.1f", median(cpu), median(rate), test.cpu, test.rate)
			}
		})
	}
}

// TestAdvance_costs_little measures acknowledgements of many users at once.
func TestAdvance_costs_little(t *testing.T) {
	server := service.Shared(t)
	s := openStore(t, server.Database(t))
	chats := openedChats(t, s, tidemark.Group, 1_000)
	const head = 20
	for range head {
		drafts := make([]tidemark.Draft, len(chats))
		for i, chat := range chats {
			drafts[i] = draftFor(chat, "anna")
		}
		if _, err := s.Append(t.Context(), drafts); err != nil {
			t.Fatal(err)
		}
	}
	// Each raise moves a watermark by one.
	raise := func(i int) storage.Advance {
		chat, sequence, user := i%len(chats), 1+i/len(chats)%head, i/len(chats)/head
		return storage.Advance{
			User:  tidemark.UserID(fmt.Sprint("u", user)),
			Chat:  chats[chat],
			Raise: tidemark.Raise{Acked: tidemark.Sequence(sequence)},
			Now:   time.Now(),
		}
	}
	seconds := number(t, "TIDEMARK_COST_SECONDS", 1)
	alone := measure(t, server.PID(), seconds, func(i int) error {
		advanced, err := s.Advance(t.Context(), []storage.Advance{raise(i)})
		if err == nil {
			err = advanced[0].Err
		}
		return err
	})
	// The server collects the acknowledgements of 50 ms, and writes them in one call.
	const together = 64
	calls := measure(t, server.PID(), seconds, func(i int) error {
		raises := make([]storage.Advance, together)
		for n := range raises {
			raises[n] = raise(1_000_000_000 + i*together + n)
		}
		_, err := s.Advance(t.Context(), raises)
		return err
	})
	calls.perSecond *= together
	calls.micro /= together
	calls.server /= together
	t.Logf("acknowledgements of %d at once: %v; in calls of %d: %v",
		senders, alone, together, calls)
	if alone.micro > 100 || calls.micro > 60 {
		t.Errorf("an acknowledgement costs %.1f µs, or %.1f in a call of %d; want a few tens",
			alone.micro, calls.micro, together)
	}
}

// openStore opens the store on an empty database.
func openStore(t *testing.T, url string) *postgres.Store {
	t.Helper()
	if err := postgres.Migrate(t.Context(), url, postgres.Up); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func draftFor(chat tidemark.ChatID, sender tidemark.UserID) tidemark.Draft {
	return tidemark.Draft{
		Kind:            tidemark.KindMessage,
		ChatID:          chat,
		SenderID:        sender,
		ClientMessageID: newID(),
		Content:         strings.Repeat("message ", 25),
		ContentType:     tidemark.DefaultContentType,
		MessageID:       tidemark.MessageID(newID()),
		CreatedAt:       time.Now(),
	}
}

// sender returns the user who sends draft i: the members of a chat take turns.
func sender(chats []tidemark.ChatID, i int) tidemark.UserID {
	if i/len(chats)%2 == 0 {
		return "anna"
	}
	return partner(chats[i%len(chats)])
}

// partner returns the other member of a chat.
func partner(chat tidemark.ChatID) tidemark.UserID { return "of-" + tidemark.UserID(chat) }

// openedChats creates chats of anna and another user each.
func openedChats(
	t *testing.T, s storage.Store, kind tidemark.ChatType, n int,
) []tidemark.ChatID {
	t.Helper()
	chats := make([]tidemark.ChatID, n)
	var group sync.WaitGroup
	for worker := range 16 {
		group.Go(func() {
			for i := worker; i < n; i += 16 {
				chats[i] = tidemark.ChatID(newID())
				new := storage.NewChat{
					ID:        chats[i],
					Type:      kind,
					History:   tidemark.HistoryFull,
					CreatedAt: time.Now(),
					Members:   []tidemark.UserID{"anna", partner(chats[i])},
				}
				if kind == tidemark.Group {
					new.Creator = "anna"
				}
				if _, _, err := s.CreateChat(t.Context(), new); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return chats
}

// naive writes each message in a transaction. It locks the chat and checks that the sender is a
// member, counts, stores, and commits.
type naive struct{ pool *pgxpool.Pool }

func openNaive(t *testing.T, url string) naive {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16 // 64 are slower
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return naive{pool}
}

func (n naive) send(ctx context.Context, chat tidemark.ChatID, sender tidemark.UserID) error {
	return pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		d := draftFor(chat, sender)
		var key, head int64
		err := tx.QueryRow(ctx, `SELECT c.key, c.head FROM chats AS c
			JOIN members AS m ON m.chat = c.key AND m.user_id = $2 AND m.current
			WHERE c.id = $1 FOR UPDATE OF c`,
			string(chat), string(sender)).Scan(&key, &head)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx,
			`UPDATE chats SET head = head + 1, activity_at = $2 WHERE key = $1`,
			key, d.CreatedAt.UnixMilli())
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO messages (chat, sequence, created_at, members_version,
				sender_id, client_message_id, message_id, content_type, content)
				VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8)`,
			key, head+1, d.CreatedAt.UnixMilli(), string(sender), d.ClientMessageID,
			string(d.MessageID), d.ContentType, d.Content)
		return err
	})
}

// measure lets the senders call do for some seconds.
func measure(t *testing.T, postmaster, seconds int, do func(i int) error) load {
	t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	own, server, began := ownTime(t), treeTime(t, postmaster), time.Now()
	end := began.Add(time.Duration(seconds) * time.Second)
	for range senders {
		group.Go(func() {
			for time.Now().Before(end) {
				if err := do(int(next.Add(1)) - 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	n := float64(next.Load())
	own, server = ownTime(t)-own, treeTime(t, postmaster)-server
	return load{
		perSecond: n / time.Since(began).Seconds(),
		micro:     float64((own + server).Microseconds()) / n,
		server:    float64(server.Microseconds()) / n,
	}
}

// ownTime returns the CPU time of this process.
func ownTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// treeTime returns the CPU time of a process and its children, including those that have ended.
func treeTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	total := processTime(pid)
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Fatalf("the children of %d cannot be listed: %v", pid, err)
	}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				total += processTime(n)
			}
		}
	}
	return total
}

// processTime returns the CPU time of a process and of the children that it has waited for. It is 0
// if the process has just ended.
func processTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		if n, err := strconv.ParseInt(field, 10, 64); err == nil {
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// number reads a count from the environment.
func number(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, want a number from 1 on", name, text)
	}
	return n
}
