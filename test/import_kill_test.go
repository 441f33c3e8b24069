package test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	storagepostgres "github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
	"github.com/tidemark-im/tidemark/test/services/postgres"
)

const (
	// importChat is how many messages a chat of an export has. Users join before the first one, and
	// the first of them, who writes nothing, leaves and returns at places of importLeaves.
	importChat  = 1_000
	importUsers = 50
	// importTime bounds a run of the importer.
	importTime = 2 * time.Hour
)

// importLeaves are after which messages of a chat the first user leaves and returns.
var importLeaves = map[int]string{importChat / 2: "left", importChat * 3 / 4: "joined"}

// TestImport_import_once_killed_by_a_signal imports TIDEMARK_IMPORT_MESSAGES messages (10,000 if it
// is not set) in chats of 1,000 with 50 users, by the real program. It does so twice on each store:
// once without a kill, and once killed with SIGKILL at TIDEMARK_IMPORT_KILLS (5) random lines of
// the export. The stores then have the same: each message once, at its sequence, as the export has
// it.
//
// It prints how long that took. The CPU is that of the importer, with SQLite in it and without the
// server of Postgres.
func TestImport_import_once_killed_by_a_signal(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	t.Logf("TIDEMARK_SEED=%d", seed)
	messages := fromEnvironment(t, "TIDEMARK_IMPORT_MESSAGES", 10_000)
	kills := fromEnvironment(t, "TIDEMARK_IMPORT_KILLS", 5)
	e := newExport(t, max(1, messages/importChat), rand.New(rand.NewPCG(seed, 1)))
	binary := build(t)
	for name, open := range map[string]func(*testing.T) *importing{
		"sqlite": func(t *testing.T) *importing {
			path := filepath.Join(t.TempDir(), "tidemark.db")
			return &importing{
				url: "sqlite:" + path, quiet: func() {},
				open: func() (storage.Store, error) {
					return sqlite.Open(t.Context(), sqlite.Config{Path: path})
				},
			}
		},
		"postgres": func(t *testing.T) *importing {
			url := postgres.Shared(t).Database(t)
			return &importing{
				url: url, quiet: func() { noConnections(t, url) },
				open: func() (storage.Store, error) {
					return storagepostgres.Open(t.Context(), storagepostgres.Config{URL: url})
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := e.of(t, binary, open(t))
			whole.finish(e.path)
			want := whole.stored()
			e.check(t, want)
			whole.log(name, e.messages, 0)

			killed := e.of(t, binary, open(t))
			dice := rand.New(rand.NewPCG(seed, 2))
			for _, line := range e.moments(kills, dice) {
				killed.kill(line, dice)
			}
			killed.finish(e.path)
			if diff := cmp.Diff(want, killed.stored()); diff != "" {
				t.Errorf("TIDEMARK_SEED=%d: after %d kills (-want +got):\n%s", seed, kills, diff)
			}
			killed.log(name, e.messages, kills)
		})
	}
}

// export is a file in JSON Lines.
type export struct {
	path            string
	lines, messages int
	// texts has a digest of the messages of each chat.
	texts map[tidemark.ChatID]string
}

// newExport writes an export.
func newExport(t *testing.T, chats int, dice *rand.Rand) *export {
	t.Helper()
	e := &export{
		path:  filepath.Join(t.TempDir(), "export.jsonl"),
		texts: map[tidemark.ChatID]string{},
	}
	file, err := os.Create(e.path)
	must(t, err)
	defer file.Close()
	to := bufio.NewWriterSize(file, 1<<20)
	e.line(to, `{"type":"tidemark","version":1}`)
	for n := range chats {
		e.chat(to, fmt.Sprintf("chat-%04d", n), dice)
	}
	must(t, to.Flush())
	return e
}

// line writes a line.
func (e *export) line(to *bufio.Writer, form string, values ...any) {
	e.lines++
	fmt.Fprintf(to, form+"\n", values...)
}

// importUser names a user of an export.
func importUser(n int) string { return fmt.Sprintf("user-%02d", n) }

// chat writes a chat.
func (e *export) chat(to *bufio.Writer, id string, dice *rand.Rand) {
	began := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	members := make([]string, importUsers)
	for n := range members {
		members[n] = fmt.Sprintf("%q", importUser(n))
	}
	e.line(to, `{"type":"chat","chat_id":%q,"chat_type":"group","created_at":%q,"member_ids":[%s]}`,
		id, began.Format(time.RFC3339), strings.Join(members, ","))
	digest := sha256.New()
	for n := 1; n <= importChat; n++ {
		at := began.Add(time.Duration(n) * time.Second)
		m := tidemark.Message{
			Sequence:        tidemark.Sequence(n),
			SenderID:        tidemark.UserID(importUser(1 + dice.IntN(importUsers-1))),
			ClientMessageID: fmt.Sprintf("%d:m%d", n, n), CreatedAt: at, Content: words(dice),
		}
		e.messages++
		e.line(to, `{"type":"message","message_id":"m%d","sender_id":%q,"created_at":%q,`+
			`"content":%q}`, n, m.SenderID, at.Format(time.RFC3339), m.Content)
		digestMessage(digest, &m)
		if change := importLeaves[n]; change != "" {
			e.line(to, `{"type":"member","user_id":%q,"change":%q,"at":%q}`, importUser(0), change,
				at.Format(time.RFC3339))
		}
	}
	e.line(to, `{"type":"read","user_id":%q,"position":%d}`, importUser(1), importChat/3)
	e.line(to, `{"type":"end"}`)
	e.texts[tidemark.ChatID(id)] = fmt.Sprintf("%x", digest.Sum(nil))
}

// words returns a text of 3 to 40 words.
func words(dice *rand.Rand) string {
	var b strings.Builder
	for n := range 3 + dice.IntN(38) {
		if n > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "w%d", dice.IntN(10_000))
	}
	return b.String()
}

// digestMessage adds a message to the digest of its chat.
func digestMessage(to hash.Hash, m *tidemark.Message) {
	fmt.Fprintf(to, "%d %s %s %s %s\n", m.Sequence, m.SenderID, m.ClientMessageID,
		m.CreatedAt.UTC().Format(time.RFC3339), m.Content)
}

// moments returns the lines at which an import is killed, ascending.
func (e *export) moments(kills int, dice *rand.Rand) []int {
	lines := make([]int, kills)
	for i := range lines {
		lines[i] = 1 + dice.IntN(e.lines)
	}
	slices.Sort(lines)
	return lines
}

// feed writes the first lines of the export.
func (e *export) feed(to io.Writer, lines int) error {
	file, err := os.Open(e.path)
	if err != nil {
		return err
	}
	defer file.Close()
	from, out := bufio.NewReaderSize(file, 1<<20), bufio.NewWriter(to)
	for range lines {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return err
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// check compares what is stored with the export.
func (e *export) check(t *testing.T, stored map[tidemark.ChatID]moved) {
	t.Helper()
	if len(stored) != len(e.texts) {
		t.Errorf("%d chats are stored, want %d", len(stored), len(e.texts))
	}
	for id, want := range e.texts {
		got := stored[id]
		if got.Head != importChat || got.Messages != importChat || got.Texts != want ||
			got.State != tidemark.ChatLive {
			t.Errorf("%s is %+v, want %d messages with the digest %s", id, got, importChat, want)
		}
	}
}

// importing is a store into which an export is imported.
type importing struct {
	t      *testing.T
	e      *export
	binary string
	url    string
	open   func() (storage.Store, error)
	// quiet waits until nothing of a killed program is under way.
	quiet func()
	// took and cpu are those of all runs.
	took, cpu time.Duration
}

// of prepares the import of an export. It creates the schema.
func (e *export) of(t *testing.T, binary string, i *importing) *importing {
	t.Helper()
	i.t, i.e, i.binary = t, e, binary
	cmd := exec.Command(binary, "migrate", "up", "--store", i.url)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("migrate up: %v\n%s", err, out)
	}
	return i
}

// run runs the importer and, beside it, work. It returns what the importer prints.
func (i *importing) run(
	path string, work func(importer *os.Process, in io.WriteCloser),
) (stdout string, err error) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), importTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.binary, "import", "--from", "jsonl", "--store", i.url, path)
	cmd.Env = environment()
	var out, said output
	cmd.Stdout, cmd.Stderr = &out, &said
	in, err := cmd.StdinPipe()
	must(i.t, err)
	began := time.Now()
	must(i.t, cmd.Start())
	work(cmd.Process, in)
	err = cmd.Wait()
	i.took += time.Since(began)
	i.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if err != nil {
		err = fmt.Errorf("%w\n%s\n%s", err, said.String(), out.String())
	}
	return out.String(), err
}

// kill imports the first lines, and kills the importer just after it has got the last one of them.
func (i *importing) kill(lines int, dice *rand.Rand) {
	i.t.Helper()
	var fed error
	_, err := i.run("-", func(importer *os.Process, in io.WriteCloser) {
		fed = i.e.feed(in, lines)
		<-time.After(time.Duration(dice.IntN(20_000)) * time.Microsecond)
		if err := importer.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			i.t.Error(err)
		}
	})
	var exit *exec.ExitError
	if fed != nil || !errors.As(err, &exit) || !wasKilled(exit.ProcessState) {
		i.t.Fatalf("the importer was to be killed at line %d, and ended with %v (%v)", lines, err,
			fed)
	}
	i.quiet()
}

// wasKilled reports whether SIGKILL has ended a program.
func wasKilled(of *os.ProcessState) bool {
	status, ok := of.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// finish imports all that is left.
func (i *importing) finish(path string) {
	i.t.Helper()
	out, err := i.run(path, func(_ *os.Process, in io.WriteCloser) { _ = in.Close() })
	if err != nil {
		i.t.Fatalf("the import ended with %v", err)
	}
	var report struct {
		Complete  bool  `json:"complete"`
		Chats     int   `json:"chats"`
		Unchanged int   `json:"chats_unchanged"`
		Messages  int   `json:"messages"`
		Before    int   `json:"messages_before"`
		Refused   int64 `json:"chats_refused"`
	}
	must(i.t, json.Unmarshal([]byte(out), &report))
	if !report.Complete || report.Refused != 0 ||
		report.Chats+report.Unchanged != len(i.e.texts) ||
		report.Messages+report.Before != i.e.messages {
		i.t.Errorf("the last run reports %+v, want %d chats with %d messages", report,
			len(i.e.texts), i.e.messages)
	}
}

// log prints what all runs took.
func (i *importing) log(store string, messages, kills int) {
	i.t.Logf("%s: %d messages in %.1f s, %.0f a second, %.1f s of CPU, %d kills", store, messages,
		i.took.Seconds(), float64(messages)/i.took.Seconds(), i.cpu.Seconds(), kills)
}

// moved is what a store has of a chat.
type moved struct {
	State    tidemark.ChatState
	Head     tidemark.Sequence
	Messages int
	// Texts is a digest of the messages, Members has the members with what they see, and Marks has
	// what users have received and read.
	Texts, Members, Marks string
}

// stored returns what the store has of each chat.
func (i *importing) stored() map[tidemark.ChatID]moved {
	i.t.Helper()
	s, err := i.open()
	must(i.t, err)
	defer func() {
		if err := s.Close(); err != nil {
			i.t.Error(err)
		}
	}()
	all := map[tidemark.ChatID]moved{}
	for after, more := tidemark.ChatID(""), true; more; {
		var chats []tidemark.ChatID
		chats, after, more, err = s.EachChat(i.t.Context(), after, 500)
		must(i.t, err)
		for _, id := range chats {
			all[id] = movedOf(i.t, s, id)
		}
	}
	return all
}

// movedOf returns what a store has of a chat.
func movedOf(t *testing.T, s storage.Store, id tidemark.ChatID) (m moved) {
	t.Helper()
	ctx := t.Context()
	chat, err := s.Chat(ctx, id)
	must(t, err)
	m.State, m.Head = chat.State, chat.Head
	digest := sha256.New()
	for after := tidemark.Sequence(0); ; {
		pages, err := s.Ranges(ctx, []storage.Range{{Chat: id, After: after, Limit: 1_000}})
		must(t, err)
		if len(pages[0]) == 0 {
			break
		}
		for n := range pages[0] {
			digestMessage(digest, &pages[0][n])
			after = pages[0][n].Sequence
		}
		m.Messages += len(pages[0])
	}
	m.Texts = fmt.Sprintf("%x", digest.Sum(nil))
	changed, _, err := s.MembersSince(ctx, storage.MembersQuery{Chat: id, Limit: 1_000})
	must(t, err)
	keys := make([]storage.StateKey, len(changed))
	for n, one := range changed {
		m.Members += fmt.Sprintf("%s %s %s\n", one.UserID, one.Role, one.Intervals.Text())
		keys[n] = storage.StateKey{User: one.UserID, Chat: id}
	}
	states, err := s.States(ctx, keys)
	must(t, err)
	for n, state := range states {
		m.Marks += fmt.Sprintf("%s %d %d\n", keys[n].User, state.Acked, state.Read)
	}
	return m
}

// noConnections waits until a database has no other connection: Postgres notices late that a client
// is gone, and ends its statement before.
func noConnections(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	others := 0
	until(t, "the statements of the killed importer have ended", func() bool {
		must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()
				AND backend_type = 'client backend'`).Scan(&others))
		return others == 0
	}, func() string { return fmt.Sprint(others, " connections") })
}
