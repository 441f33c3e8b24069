package test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver by which rows are read

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	storagepostgres "github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// jobMessages is how many messages a chat of a round has: some steps of each job.
const jobMessages = 1_300

// TestJobs_deleted_is_gone_after_kills kills a node with SIGKILL, TIDEMARK_JOB_KILLS times (12).
// It does so after a step of a job: messages expire, a chat is deleted, a user is erased, an
// import ends. The jobs end all the same, as they do without a kill, and no byte of another chat
// changes.
// (Rules: floor_recorded, deleted_is_gone, erased_nowhere, import_once, sequence_gapless,
// unread_exact.)
func TestJobs_deleted_is_gone_after_kills(t *testing.T) {
	t.Parallel() // It waits more than it works.
	binary := buildQuick(t)
	for name, open := range map[string]func(t *testing.T) *importing{
		"sqlite": func(t *testing.T) *importing {
			path := filepath.Join(t.TempDir(), "a.db")
			return &importing{url: "sqlite:" + path, quiet: func() {},
				open: func() (storage.Store, error) {
					return sqlite.Open(t.Context(), sqlite.Config{Path: path})
				}}
		},
		"postgres": func(t *testing.T) *importing {
			url := postgres.Shared(t).Database(t)
			return &importing{url: url, quiet: func() { noConnections(t, url) },
				open: func() (storage.Store, error) {
					return storagepostgres.Open(t.Context(), storagepostgres.Config{URL: url})
				}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newJobKills(t, binary, open(t)).run()
		})
	}
}

// jobKills is a server whose jobs are interrupted.
type jobKills struct {
	t     *testing.T
	seed  uint64
	dice  *rand.Rand
	store *importing
	db    *sql.DB
	p     *process
	key   string
	// kills are left. at counts the kills after each step.
	kills int
	at    map[string]int
	// last are the steps at which the node was killed last.
	last steps
}

// steps says how far the jobs of a round are, each with a number that falls as it goes on.
type steps struct{ expiry, deletion, erasure string }

// jobsWithin is how long the jobs of a round may go without a step.
const jobsWithin = 2 * wait.Hang

func newJobKills(t *testing.T, binary string, store *importing) *jobKills {
	t.Helper()
	seed := seedOf(t)
	t.Logf("TIDEMARK_SEED=%d", seed)
	k := &jobKills{
		t: t, seed: seed, dice: rand.New(rand.NewPCG(seed, 1)), store: store, at: map[string]int{},
		kills: fromEnvironment(t, "TIDEMARK_JOB_KILLS", 12), p: processOf(t, binary),
	}
	key, keys := apiKey(t, binary, "--scope", "chats,erase")
	k.key = key
	put(t, filepath.Join(k.p.dir, "ledger.key"), strings.Repeat("k", 32))
	k.p.flags = []string{"--dev", "--grace", "1s", "--api-keys-file", keys, "--ledger", k.ledger(),
		"--ledger-key-file", filepath.Join(k.p.dir, "ledger.key")}
	driver, source := "pgx", store.url
	if path, is := strings.CutPrefix(store.url, "sqlite:"); is {
		driver, source = "sqlite", "file:"+path+"?_pragma=busy_timeout(10000)"
	} else {
		k.p.url = store.url
	}
	if driver == "sqlite" {
		k.p.store, k.p.name = filepath.Split(strings.TrimPrefix(store.url, "sqlite:"))
	}
	db, err := sql.Open(driver, source)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	k.db = db
	(&export{}).of(t, binary, store)
	return k
}

func (k *jobKills) ledger() string { return filepath.Join(k.p.dir, "ledger") }

// run runs rounds until no kill is left, and one more without kills. The others must end like it.
func (k *jobKills) run() {
	t := k.t
	k.load("other", false)
	before := k.others()
	rounds := 0
	for ; k.kills > 0; rounds++ {
		k.round(rounds, true)
	}
	k.round(rounds, false)
	want := k.summary(rounds)
	for n := range rounds {
		if diff := cmp.Diff(want, k.summary(n)); diff != "" {
			t.Errorf("round %d ended otherwise than one without kills (-want +got):\n%s", n, diff)
		}
	}
	if diff := cmp.Diff(before, k.others()); diff != "" {
		t.Errorf("rows of other chats have changed (-before +after):\n%s", diff)
	}
	lines := bytes.Count(readFile(t, k.ledger()), []byte("Z "))
	if lines != rounds+1 {
		t.Errorf("the ledger has %d lines, want one for each of %d users", lines, rounds+1)
	}
	t.Logf("%d rounds; kills after these steps: %v", rounds, k.at)
}

// roundName returns what the ids of a round end with. None is the beginning of another one.
func roundName(n int) string { return fmt.Sprintf("%04d", n) }

// round lets jobs do their work: on chats and a user of its own.
func (k *jobKills) round(n int, kills bool) {
	t := k.t
	t.Helper()
	k.load(roundName(n), kills)
	k.p.start()
	operator := user{name: "backend", url: "http://" + k.p.address, token: k.key}
	alice := as(k.p.address, "alice")
	for _, chat := range []string{"expire", "team"} {
		id := chat + "-" + roundName(n)
		// A mark of the author would be written later.
		alice.call(t, http.MethodPatch, "/chats/"+id+"/delivery-state",
			map[string]any{"last_read_sequence": alice.send(t, id, "the last one").Sequence}, nil)
	}
	k.last = steps{}
	operator.call(t, http.MethodPatch, "/chats/expire-"+roundName(n),
		map[string]any{"keep_days": 8}, nil)
	operator.call(t, http.MethodPost, "/users/zoe-"+roundName(n)+"/erasure", nil, nil)
	operator.call(t, http.MethodDelete, "/chats/doomed-"+roundName(n), nil, nil)
	for k.goesOn(n, kills && k.kills > 0) {
		k.dieAfterStep()
	}
	for _, name := range []string{"alice", "bob"} {
		for _, chat := range []string{"expire", "team"} {
			as(k.p.address, name).holds(t, chat+"-"+roundName(n))
		}
	}
	k.p.stop()
}

// goesOn watches the jobs of a round. It returns true when one has taken a step since the last
// kill, if there are kills, and false when all have ended.
func (k *jobKills) goesOn(n int, kills bool) bool {
	k.t.Helper()
	var before steps
	for since := time.Now(); ; <-time.After(10 * time.Millisecond) {
		now := k.steps(n)
		if now != before {
			before, since = now, time.Now()
		}
		ended := now == steps{"ended", "ended", "ended"}
		if ended || kills && now != k.last {
			for name, step := range map[string][2]string{
				"expiry":   {k.last.expiry, now.expiry},
				"deletion": {k.last.deletion, now.deletion},
				"erasure":  {k.last.erasure, now.erasure},
			} {
				if kills && !ended && step[0] != step[1] {
					k.at[name+" "+step[1]]++
				}
			}
			k.last = now
			return !ended
		}
		if time.Since(since) > jobsWithin {
			k.t.Fatalf("TIDEMARK_SEED=%d: the jobs do not end: %+v\n%s", k.seed, now,
				k.p.log.String())
		}
	}
}

// dieAfterStep kills the node a little later, and starts it again.
func (k *jobKills) dieAfterStep() {
	k.t.Helper()
	<-time.After(time.Duration(k.dice.IntN(20_000)) * time.Microsecond)
	must(k.t, k.p.process.Kill())
	_ = k.p.wait()
	k.kills--
	k.p.start()
}

// steps reads how far the jobs are.
func (k *jobKills) steps(n int) (s steps) {
	k.t.Helper()
	s = steps{expiry: "ended", deletion: "ended", erasure: "not begun"}
	if left := k.number("SELECT count(*) FROM messages AS m JOIN chats AS c ON c.key = m.chat "+
		"WHERE c.id = '%s' AND m.sequence <= %d", "expire-"+roundName(n), jobMessages); left > 0 {
		s.expiry = fmt.Sprint("messages ", left)
	}
	if value := k.document("deletion", "doomed-"+roundName(n)); value != "" {
		left := k.number("SELECT count(*) FROM messages AS m JOIN chats AS c ON c.key = m.chat "+
			"WHERE c.id = '%s'", "doomed-"+roundName(n))
		s.deletion = fmt.Sprint("messages ", left)
		if strings.Contains(value, "messages_gone_at") {
			s.deletion = "members"
		}
	}
	rows, err := k.db.Query("SELECT value FROM documents WHERE kind = 'erasure'")
	must(k.t, err)
	defer rows.Close()
	done := 0
	for rows.Next() {
		var value string
		must(k.t, rows.Scan(&value))
		var job struct{ User, Step string }
		must(k.t, json.Unmarshal([]byte(value), &job))
		switch {
		case job.User == "zoe-"+roundName(n):
			s.erasure = job.Step
		case job.Step == "done":
			done++
		}
	}
	must(k.t, rows.Err())
	if done == n+1 {
		s.erasure = "ended"
	}
	return s
}

// number returns the answer to a question, which is a number.
func (k *jobKills) number(question string, about ...any) (n int) {
	k.t.Helper()
	must(k.t, k.db.QueryRow(fmt.Sprintf(question, about...)).Scan(&n))
	return n
}

// document returns the value of a document, or "".
func (k *jobKills) document(kind, name string) (value string) {
	k.t.Helper()
	err := k.db.QueryRow(fmt.Sprintf("SELECT value FROM documents "+
		"WHERE kind = '%s' AND name = '%s'", kind, name)).Scan(&value)
	if !errors.Is(err, sql.ErrNoRows) {
		must(k.t, err)
	}
	return value
}

// load imports the chats of a round. If there are kills, it kills the import at the end of a chat.
func (k *jobKills) load(round string, kills bool) {
	t := k.t
	t.Helper()
	k.store.e = newJobExport(t, round)
	if kills && k.kills > 0 {
		// The last lines of a chat finish its import. Then only this program may be connected.
		k.db.SetMaxIdleConns(0)
		defer k.db.SetMaxIdleConns(2)
		chat := 1 + k.dice.IntN(len(k.store.e.texts))
		k.store.kill(1+chat*(k.store.e.lines-1)/len(k.store.e.texts), k.dice)
		k.kills--
		k.at["the end of an import"]++
	}
	k.store.finish(k.store.e.path)
}

// newJobExport writes the export of a round. All of its chats have the same number of lines.
func newJobExport(t *testing.T, round string) *export {
	t.Helper()
	e := &export{
		path: filepath.Join(t.TempDir(), "export.jsonl"), texts: map[tidemark.ChatID]string{},
	}
	var b strings.Builder
	line := func(form string, values ...any) {
		fmt.Fprintf(&b, form+"\n", values...)
		e.lines++
	}
	line(`{"type":"tidemark","version":1}`)
	for _, kind := range []string{"expire", "doomed", "team"} {
		chat := kind + "-" + round
		e.texts[tidemark.ChatID(chat)] = ""
		line(`{"type":"chat","chat_id":%q,"chat_type":"group","created_at":"2024-01-01T00:00:00Z",`+
			`"member_ids":["alice","bob","zoe-%s"]}`, chat, round)
		for n := range jobMessages {
			sender := []string{"alice", "bob", "zoe-" + round}[n%3]
			line(`{"type":"message","message_id":"m%d","sender_id":%q,"created_at":`+
				`"2024-01-02T00:00:00Z","content":"message %d"}`, n, sender, n)
			e.messages++
		}
		line(`{"type":"end"}`)
	}
	put(t, e.path, b.String())
	return e
}

// summary returns what is stored of a round, without its number and without times. It leaves out
// what kills may change: how often the server names a message that was erased, and thus the head,
// and how far the author of a message has it, which a node that is killed may not have written yet.
func (k *jobKills) summary(round int) string {
	t := k.t
	t.Helper()
	var b strings.Builder
	s, err := k.store.open()
	must(t, err)
	defer func() { must(t, s.Close()) }()
	for _, kind := range []string{"expire", "doomed", "team"} {
		id := tidemark.ChatID(kind + "-" + roundName(round))
		chat, err := s.Chat(t.Context(), id)
		must(t, err)
		fmt.Fprintf(&b, "%s %s floor %d\n", kind, chat.State, chat.Floor)
		if chat.State == tidemark.ChatDeleted {
			continue
		}
		for _, m := range messagesOf(t, s, id) {
			if strings.HasPrefix(string(m.SenderID), "erased:") {
				if m.Kind == tidemark.KindRedact {
					continue
				}
				m.SenderID, m.ClientMessageID = "erased", ""
			}
			fmt.Fprintf(&b, "%d %s %s %s %s %v\n", m.Sequence, m.Kind, m.SenderID,
				m.ClientMessageID, m.Content, m.Revision != nil)
		}
		b.WriteString(movedOf(t, s, id).Members + "\n")
	}
	for _, table := range k.tables() {
		rows := strings.Join(k.rows(table, "zoe-"+roundName(round)), "")
		fmt.Fprintf(&b, "%s: %d bytes name the user\n", table, len(rows))
	}
	for table, rows := range k.ofChats([]string{"doomed-" + roundName(round)}) {
		if table != "chats" && len(rows) > 0 {
			fmt.Fprintf(&b, "%s: %d rows of the deleted chat\n", table, len(rows))
		}
	}
	return b.String()
}

// messagesOf returns all messages of a chat.
func messagesOf(t *testing.T, s storage.Store, id tidemark.ChatID) (all []tidemark.Message) {
	t.Helper()
	for after := tidemark.Sequence(0); ; after = all[len(all)-1].Sequence {
		pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: id, After: after, Limit: 1_000}})
		must(t, err)
		if len(pages[0]) == 0 {
			return all
		}
		all = append(all, pages[0]...)
	}
}

// others returns each row of the chats that no job may touch.
func (k *jobKills) others() map[string][]string {
	k.t.Helper()
	return k.ofChats([]string{"expire-other", "doomed-other", "team-other"})
}

// ofChats returns the rows of chats by their tables.
func (k *jobKills) ofChats(ids []string) map[string][]string {
	k.t.Helper()
	found := map[string][]string{}
	var keys []string
	for _, id := range ids {
		keys = append(keys, fmt.Sprint(k.number("SELECT key FROM chats WHERE id = '%s'", id)))
	}
	for _, table := range k.tables() {
		columns, rows := k.all(table)
		for _, row := range rows {
			for i, column := range columns {
				if column == "chat" && slices.Contains(keys, row[i]) ||
					(column == "chat_id" || table == "chats" && column == "id") &&
						slices.Contains(ids, row[i]) {
					found[table] = append(found[table], strings.Join(row, "|"))
					break
				}
			}
		}
		slices.Sort(found[table])
	}
	return found
}

// tables are those that have data of chats and users.
func (k *jobKills) tables() (names []string) {
	k.t.Helper()
	question := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if k.p.url != "" {
		question = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
	}
	rows, err := k.db.Query(question)
	must(k.t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		must(k.t, rows.Scan(&name))
		names = append(names, name)
	}
	must(k.t, rows.Err())
	slices.Sort(names)
	return names
}

// rows returns the rows of a table that have a text.
func (k *jobKills) rows(table, text string) (found []string) {
	k.t.Helper()
	_, rows := k.all(table)
	for _, row := range rows {
		if slices.ContainsFunc(row, func(value string) bool {
			return strings.Contains(value, text)
		}) {
			found = append(found, strings.Join(row, "|"))
		}
	}
	return found
}

// all returns a table.
func (k *jobKills) all(table string) (columns []string, all [][]string) {
	k.t.Helper()
	rows, err := k.db.Query("SELECT * FROM " + table)
	must(k.t, err)
	defer rows.Close()
	columns, err = rows.Columns()
	must(k.t, err)
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		must(k.t, rows.Scan(into...))
		row := make([]string, len(columns))
		for i, value := range values {
			row[i] = fmt.Sprint(value)
			if raw, is := value.([]byte); is {
				row[i] = string(raw)
			}
		}
		all = append(all, row)
	}
	must(k.t, rows.Err())
	return columns, all
}
