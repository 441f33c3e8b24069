package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestHealth_says_what_readyz_says(t *testing.T) {
	var ready atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(int(ready.Load()))
		_, _ = w.Write([]byte(`{"detail":"words of the server"}`))
	}))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(address, ":")
	closed := httptest.NewServer(nil)
	unused := strings.TrimPrefix(closed.URL, "http://")
	closed.Close()
	file := write(t, "c.yaml", "listen: "+address+"\nstore: 'memory:'\n")
	// A proxy could answer 200 although the server is down, so none may be used.
	t.Setenv("HTTP_PROXY", "http://"+unused)

	for _, tc := range []struct {
		name  string
		ready int64
		env   map[string]string
		args  []string
		code  int
		words string
	}{
		{"ready", 200, nil, []string{"--listen", address}, exitOK, "words of the server"},
		{
			"not ready",
			503, nil, []string{"--listen", address}, exitFailure,
			"not ready: 503 Service Unavailable: {\"detail\":\"words of the server\"}",
		},
		{"all addresses", 200, nil, []string{"--listen", ":" + port}, exitOK, "words"},
		{
			"all addresses of IPv4",
			200, nil, []string{"--listen", "0.0.0.0:" + port}, exitOK, "words",
		},
		{
			"from the environment",
			200, map[string]string{"TIDEMARK_LISTEN": address}, nil, exitOK, "words",
		},
		{"from the file", 200, map[string]string{"TIDEMARK_CONFIG": file}, nil, exitOK, "words"},
		{"no server", 200, nil, []string{"--listen", unused}, exitFailure, "does not answer"},
		{"no address", 200, nil, []string{"--listen", "8080"}, exitUsage, "not HOST:PORT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ready.Store(tc.ready)
			code, out, stderr := invoke(t, tc.env, append([]string{"health"}, tc.args...)...)
			if code != tc.code || !strings.Contains(out+stderr, tc.words) {
				t.Errorf("exit %d, out %q, err %q, want exit %d and %q",
					code, out, stderr, tc.code, tc.words)
			}
		})
	}
}

func TestBackup_copies_the_store_that_serve_would_use(t *testing.T) {
	dir := t.TempDir()
	database, to := dir+"/a.db", dir+"/backup"
	file := write(t, "c.yaml", "store: sqlite:"+database+"\nlisten: 127.0.0.1:1\n")
	if code, _, stderr := invoke(t, nil, "migrate", "up", "--config", file); code != exitOK {
		t.Fatal(stderr)
	}
	code, out, stderr := invoke(t, map[string]string{"TIDEMARK_CONFIG": file}, "backup", "--to", to)
	if code != exitOK || !strings.HasPrefix(out, to+": ") || stderr != "" {
		t.Errorf("exit %d, out %q, err %q, want exit 0 and %s with its size", code, out, stderr, to)
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{
			"a second time",
			[]string{"--store", "sqlite:" + database, "--to", to}, exitFailure, "is there already",
		},
		{
			"memory",
			[]string{"--store", "memory:", "--to", dir + "/b"}, exitUsage, "nothing to back up",
		},
		{"to nowhere", []string{"--store", "sqlite:" + database}, exitUsage, "--to"},
		{
			"no database",
			[]string{"--store", "sqlite:" + dir + "/b.db", "--to", dir + "/c"}, exitFailure,
			"there is no database",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, stderr := invoke(t, nil, append([]string{"backup"}, tc.args...)...)
			if code != tc.code || out != "" || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit %d, out %q, err %q, want exit %d and %q",
					code, out, stderr, tc.code, tc.want)
			}
		})
	}
}
