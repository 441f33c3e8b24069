package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// TestDoctor_says_what_is_wrong_and_what_to_do runs it over good and wrong configurations.
func TestDoctor_says_what_is_wrong_and_what_to_do(t *testing.T) {
	dir := t.TempDir()
	code, _, err := invoke(t, nil, "migrate", "up", "--store", "sqlite:"+dir+"/a.db")
	if code != 0 {
		t.Fatal(err)
	}
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			fmt.Fprint(w, `{"keys":[]}`)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(keys.Close)
	unused := "127.0.0.1:1"
	secret := map[string]string{secretVariable: testSecret}
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		code int
		// says has words of the lines that must be there.
		says []string
	}{
		{
			"a good one", secret,
			[]string{"--store", "sqlite:" + dir + "/a.db", "--listen", unused},
			exitOK, []string{
				"ok       configuration", "tokens of " + secretVariable, "a.db: schema 9",
				"note     server         none answers",
			},
		},
		{
			"a new one", secret,
			[]string{"--store", "sqlite:" + dir + "/b.db", "--listen", unused},
			exitOK, []string{"serve makes it"},
		},
		{
			"nobody can log in, and no directory", nil,
			[]string{"--store", "sqlite:" + dir + "/c/c.db", "--listen", unused},
			exitFailure, []string{
				"PROBLEM  credentials    nobody could log in", "PROBLEM  store",
				"make its directory",
			},
		},
		{
			"an issuer that does not answer", nil,
			[]string{"--store", "memory:", "--listen", unused, "--jwks-url", keys.URL + "/gone"},
			exitFailure, []string{"PROBLEM  issuer", "404", "check --jwks-url"},
		},
		{
			"an issuer without keys", nil,
			[]string{"--store", "memory:", "--listen", unused, "--jwks-url", keys.URL + "/none"},
			exitFailure, []string{"PROBLEM  issuer         it publishes no usable key"},
		},
		{
			"settings out of their range", secret,
			[]string{
				"--store", "memory:", "--listen", "8080", "--grace", "1ns",
				"--allow-origin", "example.com",
			},
			exitFailure, []string{
				`PROBLEM  configuration  --listen "8080"`, "PROBLEM  configuration  --grace",
				"PROBLEM  configuration  --allow-origin",
			},
		},
		{
			"a store and a Redis that nobody serves", secret,
			[]string{
				"--store", "postgres://u:geheim@127.0.0.1:1/d", "--listen", unused,
				"--redis", "redis://u:geheim@127.0.0.1:1",
			},
			exitFailure, []string{"PROBLEM  store", "PROBLEM  redis", "there are 2 problems"},
		},
		{
			"malformed URLs with passwords", secret,
			[]string{
				"--store", "postgres://u:geheim@h:x/d", "--listen", unused,
				"--redis", "redis://u:geheim@h:y",
			},
			exitFailure, []string{"PROBLEM  store", "PROBLEM  redis"},
		},
		{
			"a ledger that is not there yet", secret,
			[]string{
				"--store", "memory:", "--listen", unused, "--ledger", dir + "/ledger",
				"--ledger-key-file", write(t, "good.key", strings.Repeat("k", 32)),
			},
			exitOK, []string{"ledger: there is no file yet, serve makes it"},
		},
		{
			"a ledger without a directory", secret,
			[]string{
				"--store", "memory:", "--listen", unused, "--ledger", dir + "/none/ledger",
				"--ledger-key-file", write(t, "good.key", strings.Repeat("k", 32)),
			},
			exitFailure, []string{"PROBLEM  ledger", "make its directory"},
		},
		{
			"a damaged ledger", secret,
			[]string{
				"--store", "memory:", "--listen", unused,
				"--ledger", write(t, "ledger", "now "+strings.Repeat("0", 64)+"\n"),
				"--ledger-key-file", write(t, "good.key", strings.Repeat("k", 32)),
			},
			exitFailure, []string{"PROBLEM  ledger", "line 1 of the ledger is damaged"},
		},
		{
			"a short key of a ledger", secret,
			[]string{
				"--store", "memory:", "--listen", unused, "--ledger", dir + "/ledger",
				"--ledger-key-file", write(t, "short.key", "k"),
			},
			exitFailure, []string{"PROBLEM  ledger", "needs at least 32"},
		},
		{
			"an unknown variable", map[string]string{"TIDEMARK_STOER": "x"}, nil,
			exitUsage, []string{"TIDEMARK_STOER is unknown"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, err := invoke(t, tt.env, append([]string{"doctor"}, tt.args...)...)
			if code != tt.code || strings.Contains(out+err, "geheim") {
				t.Errorf("exit %d, want %d", code, tt.code)
			}
			for _, words := range tt.says {
				if !strings.Contains(out+err, words) {
					t.Errorf("it does not say %q", words)
				}
			}
			if t.Failed() {
				t.Logf("it says\n%s%s", out, err)
			}
		})
	}
	t.Run("a Redis that keeps everything, and one that drops keys", func(t *testing.T) {
		server, store := redis.Start(t), postgres.Shared(t).Database(t)
		doctor := func(want int, says ...string) {
			t.Helper()
			code, out, err := invoke(t, secret, "doctor", "--store", store, "--migrate",
				"--redis", server.URL(), "--listen", unused)
			for _, words := range says {
				if code != want || !strings.Contains(out+err, words) {
					t.Errorf("exit %d, want %d and %q:\n%s%s", code, want, words, out, err)
				}
			}
		}
		doctor(exitOK, "ok       redis", "which serve brings to 12")
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		doctor(exitFailure, "PROBLEM  redis", "set maxmemory-policy noeviction (it is allkeys-lru)")
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		code, out, err := invoke(t, secret, "doctor", "--store", store, "--listen", unused)
		if code != exitFailure || !strings.Contains(out, "run tidemark migrate up") {
			t.Errorf("of a store without a schema: exit %d\n%s%s", code, out, err)
		}
	})
	t.Run("beside a server", func(t *testing.T) {
		cleanEnvironment(t)
		t.Setenv(secretVariable, testSecret)
		store := "sqlite:" + dir + "/d.db"
		url := startServer(t, "--store", store)
		code, out, err := invoke(t, secret, "doctor", "--store", store,
			"--listen", strings.TrimPrefix(url, "http://"))
		if code != exitOK || !strings.Contains(out, "is ready") {
			t.Errorf("exit %d\n%s%s", code, out, err)
		}
	})
}
