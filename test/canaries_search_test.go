package test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// finds looks at all answers of all nodes. Of the fates, they must have those that are named.
func (s *canarySite) finds(when string, fates ...string) {
	s.t.Helper()
	for n := range s.nodes {
		s.findsAt(when, n, fates...)
	}
}

// findsAt is finds for one node.
func (s *canarySite) findsAt(when string, n int, fates ...string) {
	t := s.t
	t.Helper()
	var all strings.Builder
	for _, name := range []string{"alice", "bob", "carol", "late"} {
		u := s.as(n, name)
		for _, path := range s.paths(u) {
			all.Write(s.read(u, path))
		}
		answer := s.read(s.backend(n), "/users/"+name+"/export")
		if !bytes.Contains(answer, []byte(`"end"`)) {
			t.Fatalf("%s: the export of %s: %s", when, name, answer)
		}
		all.Write(answer)
	}
	for fate, word := range s.words {
		count := strings.Count(all.String(), word)
		if want := fate == kept || slices.Contains(fates, fate); want != (count > 0) {
			t.Errorf("%s, the answers of node %d have %d texts that are %s, want some: %v", when, n,
				count, fate, want)
		}
	}
	if len(fates) == 0 && strings.Contains(all.String(), s.zoe) {
		t.Errorf("%s, the answers of node %d name the user who is erased", when, n)
	}
}

// read returns an answer of any status below 500. It asks again while the server is unavailable.
func (s *canarySite) read(u user, path string) (answer []byte) {
	t := s.t
	t.Helper()
	status := 0
	eventually(t, path+" has an answer", func() bool {
		var err error
		status, answer, err = u.try(t.Context(), http.MethodGet, path, nil)
		must(t, err)
		return status != http.StatusServiceUnavailable
	}, func() string { return string(answer) })
	if status >= 500 {
		t.Fatalf("%s of %s: %d %s", path, u.name, status, answer)
	}
	return answer
}

// paths are those that a user may ask for.
func (s *canarySite) paths(u user) []string {
	all := []string{
		"/chats", "/unread", "/pending", "/sessions", "/delivery-states", "/blocks",
		"/statuses?chat_id=team&chat_id=old",
	}
	chats := []string{"team", "old", "doomed"}
	if u.name == "bob" {
		chats = append(chats, s.direct)
	}
	for _, chat := range chats {
		all = append(all, "/chats/"+chat, "/chats/"+chat+"/members", "/chats/"+chat+"/pins",
			"/chats/"+chat+"/messages?limit=1000&after_sequence=0",
			"/chats/"+chat+"/messages?limit=1000&reactions=true&after_sequence=0",
			"/chats/"+chat+"/messages?limit=1000", "/chats/"+chat+"/delivery-state",
			"/chats/"+chat+"/delivery-status", "/chats/"+chat+"/bans")
	}
	if u.name == "bob" {
		for sequence := range 2 * s.count {
			all = append(all, fmt.Sprint("/chats/team/messages/", sequence+1, "/reactions"))
		}
	}
	return all
}

// searchHeaps looks at what the nodes have in memory.
func (s *canarySite) searchHeaps() {
	s.t.Helper()
	s.hook.server.CloseClientConnections() // They have the last event in their buffers.
	for n, p := range s.nodes {
		found := ""
		for try := range heapTries {
			s.place.disconnect()
			s.overwrite(n, try)
			if found = s.inHeap(p); found == "" {
				break
			}
		}
		if found != "" {
			s.t.Errorf("node %d has in memory: %s", n, found)
		}
	}
}

// heapTries is how often a heap is searched.
const heapTries = 10

// overwrite makes a node read and write long messages at once. The buffers of its connections have
// the last bytes that came until then (docs/privacy.md).
func (s *canarySite) overwrite(n, try int) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 16 {
		all.Go(func() {
			u := s.as(n, "alice")
			var long message
			u.call(s.t, http.MethodPost, "/chats/team/messages", map[string]any{
				"client_message_id": fmt.Sprint("long-", n, "-", try, "-", i),
				"content":           s.words[kept] + strings.Repeat(" long", 2_000),
			}, &long)
			s.change(u, "team", "redact", long.Sequence, nil)
			_, _, _ = u.try(s.t.Context(), http.MethodGet, "/chats/team/messages?limit=100", nil)
		})
	}
}

// inHeap returns which texts a node has in memory, and what is around one of each fate.
func (s *canarySite) inHeap(p *process) (found string) {
	t := s.t
	t.Helper()
	path := filepath.Join(p.dir, "heap")
	must(t, p.process.Signal(syscall.SIGUSR1))
	eventually(t, "the heap is written", func() bool {
		_, err := os.Stat(path)
		return err == nil
	}, p.log.String)
	heap, err := os.ReadFile(path)
	must(t, errors.Join(err, os.Remove(path)))
	if !bytes.Contains(heap, []byte(s.words[kept])) {
		t.Fatal("the heap has no text that is kept, so it shows nothing")
	}
	for _, fate := range gone {
		// A text has a number at its end. A piece without it is what is left in memory that has
		// another use now.
		texts := regexp.MustCompile(s.words[fate]+"-[0-9]").FindAllIndex(heap, -1)
		different := map[string]bool{}
		for _, text := range texts {
			different[string(heap[text[0]:min(text[1]+1, len(heap))])] = true
		}
		// Buffers that nobody has used again have a few (docs/privacy.md). What keeps messages has
		// all of them.
		if len(different) > s.count/2 {
			at := texts[0][0]
			found += fmt.Sprintf("%d texts that are %s, in %q; ", len(texts), fate,
				heap[max(0, at-100):min(len(heap), at+100)])
		}
	}
	return found
}

// searchLog looks at what a node has logged: no text at all.
func (s *canarySite) searchLog(p *process) {
	s.t.Helper()
	for fate, word := range s.words {
		if strings.Contains(p.log.String(), word) {
			s.t.Errorf("the log has a text that is %s", fate)
		}
	}
}

// searchStore looks at all tables, and at the bytes of the files when the nodes have ended.
func (s *canarySite) searchStore() {
	t := s.t
	t.Helper()
	for fate, word := range s.words {
		found := s.place.tables(word)
		if (fate == kept) != (len(found) > 0) {
			t.Errorf("a text that is %s is in %q", fate, found)
		}
	}
	if found := s.place.tables(s.zoe); len(found) > 0 {
		t.Errorf("the user who is erased is named in %q", found)
	}
	for _, p := range s.nodes {
		p.stop()
	}
	words := maps.Clone(s.words)
	words["the erased user"] = s.zoe
	for _, found := range s.place.bytes(words) {
		if !strings.HasPrefix(found, kept) {
			t.Errorf("in the files: %s", found)
		}
	}
}

// searchRestored serves the copy, which has all texts. When it serves, those of the user who was
// erased after the copy are nowhere.
func (s *canarySite) searchRestored(binary string, place canaryPlace) {
	t := s.t
	t.Helper()
	for fate, word := range s.words {
		if found := place.tables(word); len(found) == 0 {
			t.Errorf("the copy has no text that is %s, so it shows nothing", fate)
		}
	}
	p := processOf(t, binary)
	p.url, p.flags = place.url(), append([]string{"--dev"}, s.ledger...)
	p.start()
	if found := place.tables(s.words[erased]); len(found) > 0 {
		t.Errorf("a restored server serves with texts of the erased user in %q", found)
	}
	operator := user{name: "backend", url: "http://" + p.address, token: s.key}
	var erasure struct{ State string }
	eventually(t, "the user is erased again", func() bool {
		operator.call(t, http.MethodGet, "/users/"+s.zoe+"/erasure", nil, &erasure)
		return erasure.State == "erased"
	}, func() string { return erasure.State })
	p.stop()
	if found := place.tables(s.zoe); len(found) > 0 {
		t.Errorf("after a restore the erased user is named in %q", found)
	}
	for _, found := range place.bytes(map[string]string{
		erased: s.words[erased], "the erased user": s.zoe,
	}) {
		t.Errorf("in the files of the restored copy: %s", found)
	}
}

// inFiles returns which words are in files below a folder, as "NAME in FILE".
func inFiles(t *testing.T, folder string, words map[string]string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return skipMissing(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return skipMissing(err)
		}
		for name, word := range words {
			if n := bytes.Count(content, []byte(word)); n > 0 {
				found = append(found, fmt.Sprintf("%s in %s: %d times", name,
					strings.TrimPrefix(path, folder), n))
			}
		}
		return nil
	})
	must(t, err)
	slices.Sort(found)
	return found
}

// skipMissing returns nil for a file that was removed meanwhile.
func skipMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// canaryFile is a database of SQLite.
type canaryFile struct {
	t            *testing.T
	binary, path string
}

func (f *canaryFile) url() string { return "sqlite:" + f.path }

func (f *canaryFile) tables(text string) (found []string) {
	f.t.Helper()
	db, err := sql.Open("sqlite", f.path)
	must(f.t, err)
	defer db.Close()
	for table := range strings.FieldsSeq(query(f.t, f.path,
		"SELECT name FROM sqlite_master WHERE type = 'table'")) {
		found = append(found, f.columns(db, table, text)...)
	}
	return found
}

// columns returns the columns of a table that have a text in some row.
func (f *canaryFile) columns(db *sql.DB, table, text string) (found []string) {
	f.t.Helper()
	rows, err := db.Query("SELECT * FROM " + table)
	must(f.t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(f.t, err)
	values := make([]sql.RawBytes, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		must(f.t, rows.Scan(into...))
		for i, value := range values {
			if place := table + "." + columns[i]; bytes.Contains(value, []byte(text)) &&
				!slices.Contains(found, place) {
				found = append(found, place)
			}
		}
	}
	must(f.t, rows.Err())
	return found
}

// bytes looks at the database, its log and the index of that, after VACUUM. Before that, unused
// parts of pages may have copies (docs/sqlite.md).
func (f *canaryFile) bytes(words map[string]string) []string {
	f.t.Helper()
	db, err := sql.Open("sqlite", f.path)
	must(f.t, err)
	defer func() { must(f.t, db.Close()) }()
	var found []string
	for _, statement := range []string{"SELECT 1", "VACUUM"} {
		_, err := db.Exec(statement)
		must(f.t, err)
		var busy, log, moved int
		must(f.t, db.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &moved))
		if busy != 0 {
			f.t.Error("the log is not empty after the checkpoint")
		}
		found = inFiles(f.t, filepath.Dir(f.path), words)
		f.t.Logf("after %s: %q", statement, found)
	}
	return found
}

func (f *canaryFile) copy() canaryPlace {
	f.t.Helper()
	copied := &canaryFile{
		t: f.t, binary: f.binary, path: filepath.Join(f.t.TempDir(), "copy.db"),
	}
	shell(f.t, f.binary, "backup", "--store", f.url(), "--to", copied.path)
	return copied
}

func (f *canaryFile) disconnect() {}

// canaryDatabase is a database of a Postgres server of its own.
type canaryDatabase struct {
	t      *testing.T
	server *postgres.Server
	of     string
	// conn is what ask uses, and nil at first.
	conn *pgx.Conn
}

func (d *canaryDatabase) url() string { return d.of }

// ask returns the first column of an answer.
func (d *canaryDatabase) ask(statement string, args ...any) []string {
	d.t.Helper()
	ctx := d.t.Context()
	if d.conn == nil {
		conn, err := pgx.Connect(ctx, d.of)
		must(d.t, err)
		d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
		d.conn = conn
	}
	rows, err := d.conn.Query(ctx, statement, args...)
	must(d.t, err)
	answer, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(d.t, err)
	return answer
}

func (d *canaryDatabase) tables(text string) (found []string) {
	d.t.Helper()
	for _, table := range d.ask(`SELECT tablename::text FROM pg_tables
		WHERE schemaname = 'public'`) {
		if n := d.ask("SELECT count(*)::text FROM "+table+
			" AS row WHERE position($1 IN row::text) > 0", text)[0]; n != "0" {
			found = append(found, table)
		}
	}
	return found
}

// bytes looks at the files of the database after VACUUM FULL, and at the log after checkpoints have
// removed its old segments. After a plain VACUUM, pages may have the bytes until others follow
// (docs/postgres.md).
func (d *canaryDatabase) bytes(words map[string]string) []string {
	d.t.Helper()
	// VACUUM keeps what a statement that is under way may read.
	eventually(d.t, "the connections of the nodes have ended", func() bool {
		return d.ask(`SELECT count(*)::text FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()
				AND backend_type = 'client backend'`)[0] == "0"
	}, func() string { return "" })
	d.ask("VACUUM")
	d.ask("CHECKPOINT")
	oid := d.ask("SELECT oid::text FROM pg_database WHERE datname = current_database()")[0]
	own := filepath.Join(d.server.Data(), "base", oid)
	d.t.Logf("after VACUUM: %q", inFiles(d.t, own, words))
	d.ask("VACUUM FULL")
	for range 2 { // A recovery may need the log since the checkpoint before the last one.
		d.ask("SELECT pg_switch_wal()::text")
		d.ask("CHECKPOINT")
	}
	return append(inFiles(d.t, own, words),
		inFiles(d.t, filepath.Join(d.server.Data(), "pg_wal"), words)...)
}

func (d *canaryDatabase) copy() canaryPlace {
	d.t.Helper()
	other := &canaryDatabase{t: d.t, server: d.server, of: d.server.Database(d.t)}
	out, err := d.server.Shell(
		`pg_dump "$FROM" --format=custom | pg_restore --exit-on-error --dbname="$TO"`,
		"FROM="+d.of, "TO="+other.of).CombinedOutput()
	if err != nil {
		d.t.Fatalf("the copy: %v: %s", err, out)
	}
	return other
}

func (d *canaryDatabase) disconnect() {
	d.t.Helper()
	d.ask(`SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
}
