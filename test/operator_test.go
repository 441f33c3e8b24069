package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// The commands of docs/postgres.md. These tests run them unchanged, except for places and
// passwords.

// operator runs the commands of a page on a server of its own, with other places and passwords.
type operator struct {
	t      *testing.T
	server *postgres.Server
	binary string
	// dir stands for /etc/tidemark and /var/backups.
	dir   string
	guide string
}

func newOperator(t *testing.T, server *postgres.Server) *operator {
	t.Helper()
	dir, err := os.MkdirTemp("", "tidemark-operator-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o777)) //nolint:gosec // the database's user writes there, too
	return &operator{
		t:      t,
		server: server,
		binary: build(t),
		dir:    dir,
		guide:  guide(t, "postgres.md"),
	}
}

// guide returns the text of a page of docs.
func guide(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../docs", name))
	must(t, err)
	return string(page)
}

// block returns the first block of code behind the first place of the guide that has the words.
func (o *operator) block(words string) string {
	o.t.Helper()
	var quoted []string
	for _, word := range strings.Fields(words) {
		quoted = append(quoted, regexp.QuoteMeta(word))
	}
	// A line may end between two words.
	at := regexp.MustCompile(strings.Join(quoted, `\s+`)).FindStringIndex(o.guide)
	if at == nil {
		o.t.Fatalf("the page does not say %q", words)
	}
	_, rest, opened := strings.Cut(o.guide[at[1]:], "\n```")
	_, rest, _ = strings.Cut(rest, "\n")
	block, _, closed := strings.Cut(rest, "\n```")
	if !opened || !closed {
		o.t.Fatalf("the page has no block behind %q", words)
	}
	return o.here(block)
}

// here replaces the guide's places with those of this test.
func (o *operator) here(text string) string {
	if o.server == nil {
		return strings.ReplaceAll(text, "/var/backups", o.dir)
	}
	place := fmt.Sprintf("127.0.0.1:%d", o.server.Port())
	return strings.NewReplacer(
		"db.example.org:5432", place, "host=db.example.org port=5432",
		fmt.Sprintf("host=127.0.0.1 port=%d", o.server.Port()),
		"/etc/tidemark", o.dir, "/etc/pgbouncer", o.dir, "/var/backups", o.dir, "systemctl ", ": ",
		"tidemark-$(date +%F).dump", "tidemark.dump", "tidemark-2026-11-20.dump", "tidemark.dump",
	).Replace(text)
}

// roles makes roles, schema and environment file, as the guide begins.
func (o *operator) roles() {
	o.t.Helper()
	said := strings.TrimSpace(o.run("## Roles and schema"))
	if want := fmt.Sprintf("postgres://127.0.0.1:%d/tidemark: schema 12, compatible 1, needed 12",
		o.server.Port()); !strings.HasSuffix(said, want) {
		o.t.Errorf("the commands said %q, want %q at the end", said, want)
	}
}

// run runs the block behind some words as the operator, and returns what it wrote to standard
// output.
func (o *operator) run(words string, env ...string) string {
	o.t.Helper()
	command := exec.Command("bash", "-euo", "pipefail", "-c", o.block(words))
	command.Dir = o.dir
	command.Env = append(environment(), "PATH="+filepath.Dir(o.binary)+":"+os.Getenv("PATH"),
		"SUPERUSER="+o.server.URL("postgres"), "PGPASSWORD=one")
	command.Env = append(command.Env, env...)
	out, err := command.Output()
	if err != nil {
		o.t.Fatalf("%q: %v\n%s\n%s", words, err, out, stderrOf(err))
	}
	return string(out)
}

// store returns the URL in the environment file.
func (o *operator) store() string {
	o.t.Helper()
	env, err := os.ReadFile(filepath.Join(o.dir, "tidemark.env"))
	must(o.t, err)
	_, store, _ := strings.Cut(strings.TrimSpace(string(env)), "TIDEMARK_STORE=")
	return store
}

// site serves the database that the guide has prepared.
func (o *operator) site() *site {
	o.t.Helper()
	p := processOf(o.t, o.binary)
	p.url, p.migrated = o.store(), true
	return siteOf(p)
}

// TestOperations_postgres_dump_is_a_gapless_prefix_and_is_restored takes a dump under load. The
// dump has what was confirmed before it began, without a gap. After its restore, devices that have
// more get a reset. The role that serves has no other rights.
func TestOperations_postgres_dump_is_a_gapless_prefix_and_is_restored(t *testing.T) {
	t.Parallel()
	o := newOperator(t, postgres.Start(t))
	o.roles()
	s := o.site()
	for _, statement := range []string{
		"DROP TABLE messages", "CREATE TABLE mine (n int)",
		"UPDATE pg_authid SET rolsuper = true", "TRUNCATE messages",
		"UPDATE schema_migrations SET version = 0; SELECT 1/0",
	} {
		script := `psql --set=ON_ERROR_STOP=1 "$STORE" --command="$STATEMENT"`
		if out, err := o.server.Shell(script, "STORE="+s.url,
			"STATEMENT="+statement).CombinedOutput(); err == nil {
			t.Errorf("the role that serves may do %s: %s", statement, out)
		}
	}
	alice, bob := s.user("alice", "http://"+s.address, nil), s.user("bob", "http://"+s.address, nil)
	for _, chat := range backupChats {
		alice.call(t, http.MethodPost, "/chats",
			map[string]any{"type": "group", "chat_id": chat, "member_ids": []string{"bob"}}, nil)
	}
	confirmed := &ledger{messages: map[string]int64{}, acked: map[string]int64{}}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); clients.Wait() })
	t.Cleanup(end)
	for _, chat := range backupChats {
		clients.Go(func() { writeUntil(t, stop, alice, bob, chat, confirmed) })
	}
	enough := func(n int) {
		until(t, "the load runs", func() bool { return t.Failed() || confirmed.size() >= n },
			func() string { return fmt.Sprint(confirmed.size(), " confirmed") })
	}
	enough(60)
	before, acked := confirmed.copy()
	o.run("## Backup of Postgres")
	enough(confirmed.size() + 30)
	end()
	all, _ := confirmed.copy()
	s.stop()
	o.run("## Restore of Postgres")
	s.start()

	restored := s.stored(bob)
	if len(restored) < len(before) || len(restored) >= len(all) {
		t.Errorf("%d messages were restored; %d were confirmed before the dump, %d in all",
			len(restored), len(before), len(all))
	}
	for id, sequence := range before {
		if restored[id] != sequence {
			t.Errorf("%s was confirmed as %d before the dump, and is restored as %d (0: not at "+
				"all)", id, sequence, restored[id])
		}
	}
	for chat, sequence := range acked {
		var got state
		path := "/chats/" + chat + "/delivery-state"
		if bob.call(t, http.MethodGet, path, nil, &got); got.Acked < sequence {
			t.Errorf("%s: the watermark is restored as %d, and was %d before the dump",
				chat, got.Acked, sequence)
		}
	}
	for _, chat := range backupChats {
		s.wantReset(bob, chat, all)
	}
}

// TestOperations_postgres_partitions_change_nothing splits the messages as the guide says. Stored
// messages and idempotency keys stay, and chats go on.
func TestOperations_postgres_partitions_change_nothing(t *testing.T) {
	t.Parallel()
	o := newOperator(t, postgres.Start(t))
	o.roles()
	s := o.site()
	alice, bob := s.user("alice", "http://"+s.address, nil), s.user("bob", "http://"+s.address, nil)
	want := map[string]int64{}
	for _, chat := range backupChats {
		alice.call(t, http.MethodPost, "/chats",
			map[string]any{"type": "group", "chat_id": chat, "member_ids": []string{"bob"}}, nil)
		for n := range 10 {
			content := fmt.Sprint(chat, " message ", n)
			want[content] = alice.send(t, chat, content).Sequence
		}
	}
	s.stop()
	const shape = `SELECT
		(SELECT string_agg(regexp_replace(indexdef, ' ON .* USING', ''), '; ' ORDER BY indexname)
			FROM pg_indexes WHERE tablename = 'messages'),
		(SELECT string_agg(
				concat_ws(' ', attname, atttypid::regtype, attnotnull, attcollation), ', '
				ORDER BY attnum)
			FROM pg_attribute WHERE attrelid = 'messages'::regclass AND attnum > 0)`
	whole := o.askIn("tidemark", shape)
	o.run("### Partitions")
	if diff := cmp.Diff(whole, o.askIn("tidemark", shape)); diff != "" {
		t.Errorf("indexes and columns of the messages (-want +got):\n%s", diff)
	}
	s.start()
	for _, chat := range backupChats {
		again := chat + " message 3"
		if got := alice.send(t, chat, again).Sequence; got != want[again] {
			t.Errorf("%s, sent again, is %d", again, got)
		}
		for n := range 10 {
			content := fmt.Sprint(chat, " message ", 10+n)
			want[content] = int64(11 + n)
			if got := alice.send(t, chat, content).Sequence; got != want[content] {
				t.Errorf("%s is %d, want %d", content, got, want[content])
			}
		}
	}
	if diff := cmp.Diff(want, s.stored(bob)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if said := o.run("## Watching Postgres"); !strings.Contains(said, "messages_15") ||
		!strings.Contains(said, "tidemark_app") {
		t.Errorf("what is watched: %s", said)
	}
}

// TestOperations_postgres_through_pgbouncer runs the README's first steps through a pooler in
// transaction mode, configured as the guide says.
func TestOperations_postgres_through_pgbouncer(t *testing.T) {
	t.Parallel()
	o := newOperator(t, postgres.Start(t))
	o.roles()
	o.run("Make the settings of a connection on the role")
	address := freeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	configuration := filepath.Join(o.dir, "pgbouncer.ini")
	block := o.block("**PgBouncer**")
	if !strings.Contains(block, "listen_port = 6432") {
		t.Fatalf("the guide's configuration is %s", block)
	}
	put(t, configuration,
		strings.ReplaceAll(block, "listen_port = 6432", "listen_port = "+port)+"\n")
	put(t, filepath.Join(o.dir, "userlist.txt"), `"tidemark_app" "another"`+"\n")
	for _, file := range []string{configuration, filepath.Join(o.dir, "userlist.txt")} {
		must(t, os.Chmod(file, 0o644)) //nolint:gosec // for the user that the pooler runs as
	}
	pooler := o.server.Shell(`exec "$PGBOUNCER" "$CONFIGURATION"`, "PGBOUNCER="+o.pgbouncer(),
		"CONFIGURATION="+configuration)
	log := &output{}
	pooler.Stdout, pooler.Stderr = log, log
	must(t, pooler.Start())
	t.Cleanup(func() {
		_ = pooler.Process.Kill()
		_ = pooler.Wait()
		if t.Failed() {
			t.Logf("the pooler's log:\n%s", log.String())
		}
	})
	until(t, "the pooler listens",
		func() bool { return strings.Contains(log.String(), "process up") }, log.String)

	p := processOf(t, o.binary)
	p.url = strings.Replace(o.store(), fmt.Sprintf("127.0.0.1:%d", o.server.Port()), address, 1) +
		"?pgbouncer=true"
	p.migrated = true
	readmeLeadsToABlueTick(t, p.serve())
	if out, err := p.command("bench", "p2p", "--url", "http://"+p.address,
		"--pairs", "20", "--messages", "2000"); err != nil {
		t.Errorf("bench: %v\n%s", err, out)
	}
	if !strings.Contains(log.String(), "tidemark/tidemark_app") {
		t.Error("nobody came through the pooler")
	}
	p.stop()
}

// pgbouncer returns the path of a copy of the program that the database's user may run.
func (o *operator) pgbouncer() string {
	o.t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "../.build/debian/usr/sbin/pgbouncer"
	}
	program, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatalf("pgbouncer is missing; run: make postgres-deps (%v)", err)
	}
	copied := filepath.Join(o.dir, "pgbouncer")
	must(o.t, os.WriteFile(copied, program, 0o755)) //nolint:gosec // it has to run
	return copied
}

// TestOperations_postgres_to_a_moment restores a second between two messages, from a base backup
// and the archive of the log.
func TestOperations_postgres_to_a_moment(t *testing.T) {
	t.Parallel()
	o := newOperator(t, nil)
	wal := filepath.Join(o.dir, "wal")
	must(t, os.Mkdir(wal, 0o777))
	must(t, os.Chmod(wal, 0o777)) //nolint:gosec // the database's user writes there
	o.server = postgres.Start(t, strings.Split(o.block("### To a moment"), "\n")...)
	o.roles()
	s := o.site()
	alice := s.user("alice", "http://"+s.address, nil)
	alice.call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "b0", "member_ids": []string{"bob"}}, nil)
	alice.send(t, "b0", "in the base")
	base := o.server.Shell(o.block("Copy the whole server now and then"),
		"SUPERUSER="+o.server.URL("postgres"))
	if out, err := base.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	alice.send(t, "b0", "in the archive")
	moment := o.ask("SELECT now()")
	until(t, "a second has passed", func() bool {
		return o.ask("SELECT now() > '"+moment+"'::timestamptz + interval '1 second'") == "t"
	}, func() string { return moment })
	alice.send(t, "b0", "the mistake")
	// Another commit may begin the next file at any time, so the switch itself names the old one.
	last := o.ask("SELECT pg_walfile_name(pg_switch_wal())")
	until(t, "the log is archived", func() bool {
		return o.ask("SELECT last_archived_wal >= '"+last+"' FROM pg_stat_archiver") == "t"
	}, func() string { return o.ask("SELECT last_archived_wal FROM pg_stat_archiver") })
	s.stop()
	o.server.Stop(t, "fast")

	block := o.block("To restore, stop both servers")
	if !strings.Contains(block, "2026-11-20 12:00:00+00") {
		t.Fatalf("the guide's commands are %s", block)
	}
	block = strings.ReplaceAll(block, "2026-11-20 12:00:00+00", moment)
	restored := postgres.StartCopy(t, o.server, func(copied *postgres.Server) error {
		script := strings.ReplaceAll("mkdir -m 700 /var/lib/postgresql/15/main\n"+block,
			"/var/lib/postgresql/15/main", copied.Data())
		if out, err := copied.Shell(script).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.url = strings.Replace(s.url, fmt.Sprint(":", o.server.Port(), "/"),
		fmt.Sprint(":", restored.Port(), "/"), 1)
	s.start()
	want := map[string]int64{"in the base": 1, "in the archive": 2}
	if diff := cmp.Diff(want, s.storedIn(alice, "b0")); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	if sent := alice.send(t, "b0", "from here on"); sent.Sequence != 3 {
		t.Errorf("the next message is %d, want 3", sent.Sequence)
	}
	s.stop()
}

// ask returns the first value of the answer.
func (o *operator) ask(question string) string {
	o.t.Helper()
	return o.askIn("postgres", question)
}

// askIn is ask in a database.
func (o *operator) askIn(database, question string) string {
	o.t.Helper()
	out, err := o.server.Shell(`psql --no-align --tuples-only "$URL" --command="$QUESTION"`,
		"URL="+o.server.URL(database), "QUESTION="+question).Output()
	if err != nil {
		o.t.Fatalf("%s: %v: %s", question, err, stderrOf(err))
	}
	return strings.TrimSpace(string(out))
}
