package test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// The program with Postgres, as an operator runs it. The faults of the database have tests of their
// own.

// command runs the program to its end, and returns all that it wrote.
func (p *process) command(args ...string) (said string, err error) {
	command := exec.Command(p.binary, args...)
	command.Dir = p.dir
	command.Env = append(environment(), p.env...)
	out, err := command.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// TestPostgres_older_schema_is_refused_with_the_command: a start changes no tables unless a flag
// says so.
func TestPostgres_older_schema_is_refused_with_the_command(t *testing.T) {
	server := postgres.Shared(t)
	store := server.Database(t)
	address, err := url.Parse(store)
	must(t, err)
	database := strings.TrimPrefix(address.Path, "/")
	shown := "postgres://" + address.Host + "/" + database + ": "
	p := newProcess(t)
	serve := []string{"serve", "--dev", "--listen", "127.0.0.1:0", "--store", store}
	p.env = []string{"TIDEMARK_STORE=" + store}
	schema := func(n int) string {
		return fmt.Sprintf("%sschema %d, compatible %d, needed 12", shown, n, min(n, 1))
	}
	const tooNew = "for programs that need version 999 or a later one, and this program needs " +
		"12; run a newer program"
	for _, step := range []struct {
		name string
		sql  string
		args []string
		fail bool
		want string
	}{
		{"an empty database", "", serve, true, "tidemark migrate up"},
		{"its status", "", []string{"migrate", "status"}, false, schema(0)},
		{
			"nothing to take down",
			"", []string{"migrate", "down"}, true, "there is no schema to take down",
		},
		{"the command", "", []string{"migrate", "up"}, false, schema(12)},
		{"again", "", []string{"migrate", "up"}, false, schema(12)},
		{"down", "", []string{"migrate", "down"}, false, schema(11)},
		{
			"old",
			"", serve, true,
			"the schema has version 11, and this program needs 12; run tidemark migrate up",
		},
		{"down again", "", []string{"migrate", "down"}, false, schema(10)},
		{"once again", "", []string{"migrate", "down"}, false, schema(9)},
		{"once more", "", []string{"migrate", "down"}, false, schema(8)},
		{"one more", "", []string{"migrate", "down"}, false, schema(7)},
		{"the next one", "", []string{"migrate", "down"}, false, schema(6)},
		{"and one more", "", []string{"migrate", "down"}, false, schema(5)},
		{"another one", "", []string{"migrate", "down"}, false, schema(4)},
		{"further down", "", []string{"migrate", "down"}, false, schema(3)},
		{"and further", "", []string{"migrate", "down"}, false, schema(2)},
		{"and down", "", []string{"migrate", "down"}, false, fmt.Sprint(shown, "schema 1, ")},
		{"to nothing", "", []string{"migrate", "down"}, false, schema(0)},
		{
			"older",
			"", serve, true,
			"the schema has version 0, and this program needs 12; run tidemark migrate up",
		},
		{"up again", "", []string{"migrate", "up"}, false, schema(12)},
		{
			"newer",
			"UPDATE schema_migrations SET version = 999; " +
				"UPDATE schema_compatible SET version = 999", serve, true,
			tooNew,
		},
		{
			"newer, with --migrate",
			"", append(serve, "--migrate"), true, tooNew,
		},
		{
			"half-way",
			"UPDATE schema_migrations SET version = 1, dirty = true; " +
				"UPDATE schema_compatible SET version = 1", append(serve, "--migrate"),
			true, "half-way",
		},
		{"half-way, by the command", "", []string{"migrate", "up"}, true, "half-way"},
		{"half-way, the status", "", []string{"migrate", "status"}, true, "half-way"},
	} {
		if step.sql != "" {
			server.Exec(t, database, step.sql)
		}
		said, err := p.command(step.args...)
		var exit *exec.ExitError
		failed := errors.As(err, &exit)
		if failed != step.fail || failed && exit.ExitCode() != 1 ||
			!strings.Contains(said, step.want) {
			t.Errorf("%s: %v: %s; want failure %v and %q",
				step.name, err, said, step.fail, step.want)
		}
	}
}

// TestPostgres_many_migrate_at_once: several servers start together on an empty database. One makes
// the schema, and all of them serve.
func TestPostgres_many_migrate_at_once(t *testing.T) {
	store := postgres.Shared(t).Database(t)
	binary := build(t)
	servers := make([]*process, 4)
	for i := range servers {
		servers[i] = processOf(t, binary)
		servers[i].url = store
		servers[i].launch()
		t.Cleanup(servers[i].stop)
	}
	chat := ""
	for i, p := range servers {
		if err := waitReady(t.Context(), "http://"+p.address+"/readyz", p.ended); err != nil {
			t.Fatalf("server %d: %v\n%s", i, err, p.log.String())
		}
		switch got := as(p.address, "alice").direct(t, "bob"); chat {
		case "":
			chat = got
		case got:
		default:
			t.Errorf("server %d has the chat %s, and the first one has %s", i, got, chat)
		}
	}
}

// TestPostgres_password_is_nowhere looks for the password in the program's title, log, metrics,
// profiles, answers and errors.
func TestPostgres_password_is_nowhere(t *testing.T) {
	t.Parallel() // It waits more than it works.
	const secret = "tell-nobody"
	server := postgres.Start(t)
	server.Exec(t, "postgres", "CREATE ROLE shy LOGIN PASSWORD '"+secret+"'")
	server.Exec(t, "postgres", "CREATE DATABASE shy OWNER shy")
	place := fmt.Sprintf("127.0.0.1:%d/shy", server.Port())
	p := newProcess(t)
	p.url = "postgres://shy:" + secret + "@" + place
	debug := freeAddress(t)
	p.flags = append(p.flags, "--log-level", "debug", "--debug-listen", debug)

	shown := map[string]string{}
	var mu sync.Mutex // guards shown
	var commands sync.WaitGroup
	for name, args := range map[string][]string{
		"wrong password": {
			"migrate", "status", "--store", "postgres://shy:" + secret + "x@" + place,
		},
		"nobody there": {
			"migrate", "up", "--store", "postgres://shy:" + secret + "@" + freeAddress(t) + "/shy",
		},
		"no such host": {
			"serve",
			"--dev", "--store", "postgres://shy:" + secret + "@db.invalid/shy?connect_timeout=2",
		},
		"no such database":  {"serve", "--dev", "--store", p.url + "er"},
		"bad mode":          {"serve", "--dev", "--store", p.url + "?sslmode=" + "perhaps"},
		"unknown parameter": {"migrate", "up", "--store", p.url + "?colour=blue"},
		"bad number":        {"serve", "--dev", "--store", p.url + "?pool_writers=many"},
		"bad port": {
			"migrate", "up", "--store", "postgres://shy:" + secret + "@h:port/d",
		},
		"slash": {"migrate", "up", "--store", "postgres://shy:1/" + secret + "@h/d"},
		"in the parameters": {
			"migrate", "up", "--store", "postgres://shy@" + place + "?password=" + secret + "x",
		},
		"as a file":          {"serve", "--config", "postgres://shy:" + secret + "@" + place},
		"not asked for":      {"serve", p.url},
		"of another command": {"backup", "--to", "x", "--store", p.url},
	} {
		commands.Go(func() {
			said, err := p.command(args...)
			mu.Lock()
			defer mu.Unlock()
			if shown[name] = said; err == nil || said == "" {
				t.Errorf("%s: %v, %q; want a failure with a reason", name, err, said)
			}
		})
	}
	commands.Wait()
	p.serve()
	said, err := p.command("migrate", "status", "--store", p.url)
	if shown["status"] = said; err != nil || !strings.Contains(said, "postgres://"+place) {
		t.Errorf("migrate status: %v: %s", err, said)
	}
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.process.Pid))
	shown["title"] = string(title)
	if err != nil || !strings.Contains(string(title), "--store\x00postgres:") {
		t.Errorf("the title is %q, %v", title, err)
	}
	alice := as(p.address, "alice")
	alice.send(t, alice.direct(t, "bob"), "hello")
	server.Stop(t, "fast")
	until(t, "/readyz is red", func() bool {
		shown["/readyz"] = page(t, p.address, "/readyz")
		return strings.Contains(shown["/readyz"], "UNAVAILABLE")
	}, func() string { return shown["/readyz"] })
	_, body, err := alice.try(t.Context(), http.MethodGet, "/chats", nil)
	must(t, err)
	shown["an answer"] = string(body)
	for _, path := range []string{
		"/metrics", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
	} {
		shown[path] = page(t, debug, path)
	}
	p.stop()
	if shown["log"] = p.log.String(); !strings.Contains(shown["log"], "the storage failed") {
		t.Error("the log has no failure of the storage")
	}
	for name, text := range shown {
		if strings.Contains(text, secret) {
			t.Errorf("%s: the password is shown: %s", name, text)
		}
	}
}

// page returns a server's answer to a GET.
func page(t *testing.T, address, path string) string {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return string(body)
}
