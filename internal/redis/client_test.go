package redis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

// open opens a client that waits for an answer for as long as a busy machine needs.
func open(t *testing.T, url string) *redis.Client { return openFor(t, url, wait.Hang) }

// openFor opens a client that waits for an answer for a time.
func openFor(t *testing.T, url string, timeout time.Duration) *redis.Client {
	t.Helper()
	c, err := redis.Open(redis.Config{URL: url, Name: "tidemark-test", Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func script(key string, args ...any) redis.Call {
	return redis.Call{
		Script: redis.NewScript(`return {redis.call('INCR', KEYS[1]), ARGV[1] or false}`),
		Keys:   []string{key},
		Args:   args,
	}
}

func TestRun_replies_one_by_one(t *testing.T) {
	c := open(t, service.Start(t).URL()) // does not know the scripts
	got := c.Run(t.Context(), []redis.Call{
		script("n", "x"), {Args: []any{"GET", "nothing"}},
		{Args: []any{"SET", "text", []byte("b\x00")}}, {Args: []any{"LPUSH", "text", 1}},
		script("n"), {Args: []any{"GET", "text"}},
	})
	if err := got[3].Err; tidemark.CodeOf(err) != tidemark.Unavailable ||
		!strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("the wrong command: %v", err)
	}
	got[3].Err = nil
	want := []redis.Reply{
		{Value: []any{int64(1), "x"}}, {}, {Value: "OK"}, {}, {Value: []any{int64(2), nil}},
		{Value: "b\x00"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if trips := c.Counters()["redis_round_trips_total"]; trips != 2 {
		t.Errorf("%d round trips, want one, and one for the script that was not known", trips)
	}
}

// A restart and SCRIPT FLUSH make Redis forget scripts, also one of several in a pipeline.
func TestRun_teaches_scripts_again(t *testing.T) {
	server := service.Start(t)
	c := open(t, server.URL())
	for i := range 3 {
		got := c.Run(t.Context(), []redis.Call{script("n"), {Args: []any{"PING"}}, script("n")})
		want := []redis.Reply{
			{Value: []any{int64(2*i + 1), nil}}, {Value: "PONG"},
			{Value: []any{int64(2*i + 2), nil}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", i, diff)
		}
		server.Do(t, "SCRIPT", "FLUSH")
	}
}

func TestRun_on_a_cluster_finds_the_servers(t *testing.T) {
	t.Parallel()
	cluster := service.StartCluster(t)
	c := open(t, cluster.URL())
	var calls []redis.Call
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		calls = append(calls, script(key))
	}
	for i, reply := range c.Run(t.Context(), calls) {
		if diff := cmp.Diff(redis.Reply{Value: []any{int64(1), nil}}, reply); diff != "" {
			t.Errorf("%d (-want +got):\n%s", i, diff)
		}
	}
	lives, err := c.Lives(t.Context())
	again, _ := c.Lives(t.Context())
	if err != nil || lives == "" || lives != again {
		t.Errorf("lives %q, then %q, %v", lives, again, err)
	}
	cluster.FailOver(t, cluster.Shards[1])
	deadline := time.Now().Add(wait.Hang)
	for {
		if now, err := c.Lives(t.Context()); err == nil && now != lives {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a shard was failed over, and the lives are the same")
		}
		<-time.After(50 * time.Millisecond)
	}
}

// A call to a Redis that hangs ends after the timeout, and to one that is away before it.
func TestRun_takes_bounded_time(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	c := openFor(t, server.URL(), 300*time.Millisecond)
	ask := func() (time.Duration, error) {
		began := time.Now()
		_, err := redis.Only(c.Run(t.Context(), []redis.Call{script("n")}))
		return time.Since(began), err
	}
	wait.Until(t, "it answers in time", func() bool { _, err := ask(); return err == nil })
	server.Freeze(t)
	for range 3 { // over an existing connection, and over a new one
		if took, err := ask(); tidemark.CodeOf(err) != tidemark.Unavailable || took > wait.Hang {
			t.Errorf("frozen: %v after %v, want %s", err, took, tidemark.Unavailable)
		}
	}
	server.Thaw(t)
	server.Kill(t)
	if took, err := ask(); tidemark.CodeOf(err) != tidemark.Unavailable || took > wait.Hang {
		t.Errorf("away: %v after %v, want %s", err, took, tidemark.Unavailable)
	}
	server.Run(t)
	deadline := time.Now().Add(wait.Hang)
	for _, err := ask(); err != nil; _, err = ask() {
		if time.Now().After(deadline) {
			t.Fatalf("it is back, and still: %v", err)
		}
	}
	if failures := c.Counters()["redis_failures_total"]; failures < 4 {
		t.Errorf("%d failures were counted, want at least 4", failures)
	}
}

func TestCheck_tells_what_needs_somebody_from_what_passes(t *testing.T) {
	t.Parallel()
	guarded, cluster, watched := service.Start(t,
		"requirepass pa55"), service.StartCluster(t), service.StartSentinel(t)
	at := func(kind, user string, address string) string { return kind + "://" + user + address }
	for _, tc := range []struct {
		name, url string
		want      tidemark.Code
	}{
		{"a server", service.Database(t), ""},
		{"with its password", at("redis", ":pa55@", guarded.Address()), ""},
		{"with another password", at("redis", ":pa56@", guarded.Address()), tidemark.Invalid},
		{"without a password", at("redis", "", guarded.Address()), tidemark.Invalid},
		{
			"a database that is not there",
			at("redis", ":pa55@", guarded.Address()) + "/99999", tidemark.Invalid,
		},
		{"a cluster", cluster.URL(), ""},
		{
			"a member of a cluster alone",
			at("redis", "", cluster.Shards[0].Master.Address()), tidemark.Invalid,
		},
		{"no cluster", at("redis+cluster", ":pa55@", guarded.Address()), tidemark.Invalid},
		{"behind a sentinel", watched.URL(), ""},
		{"the sentinel itself", at("redis", "", watched.Sentinel.Address()), tidemark.Invalid},
		{
			"a master that the sentinel does not know",
			strings.TrimSuffix(watched.URL(), "tidemark") + "nobody", tidemark.Unavailable,
		},
		{"nobody", "redis://127.0.0.1:1", tidemark.Unavailable},
	} {
		err := open(t, tc.url).Check(wait.Context(t))
		if (err == nil) != (tc.want == "") || err != nil && tidemark.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if err != nil &&
			(strings.Contains(err.Error(), "pa55") || strings.Contains(err.Error(), "pa56")) {
			t.Errorf("%s shows the password: %v", tc.name, err)
		}
	}
}

// Sentinels may require a login that differs from that of Redis.
func TestCheck_sentinels_with_a_login_of_their_own(t *testing.T) {
	t.Parallel()
	watched := service.StartSentinel(t)
	for _, command := range [][]string{
		{"ACL", "SETUSER", "tidemark", "on", ">pa55", "~*", "&*", "+@all"},
		{"ACL", "SETUSER", "default", "off"},
	} {
		if _, err := watched.Sentinel.Ask(command...); err != nil {
			t.Fatal(err)
		}
	}
	for login, want := range map[string]tidemark.Code{
		"": tidemark.Invalid, "?sentinel_user=tidemark&sentinel_password=pa56": tidemark.Invalid,
		"?sentinel_user=tidemark&sentinel_password=pa55": "",
	} {
		err := open(t, watched.URL()+login).Check(wait.Context(t))
		if (err == nil) != (want == "") ||
			err != nil && (tidemark.CodeOf(err) != want || strings.Contains(err.Error(), "pa5")) {
			t.Errorf("%q: %v, want %q and no password", login, err, want)
		}
	}
}

func TestOpen_names_its_connections(t *testing.T) {
	url := service.Database(t)
	c := open(t, url)
	list, err := redis.Only(c.Run(t.Context(), []redis.Call{{Args: []any{"CLIENT", "LIST"}}}))
	if text, _ := list.(string); err != nil || !strings.Contains(text, "name=tidemark-test ") {
		t.Errorf("%v, %v", list, err)
	}
}
