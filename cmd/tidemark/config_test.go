package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parseServe parses a command line of serve without running it.
func parseServe(t *testing.T, args ...string) (serveCommand, error) {
	t.Helper()
	var cli commands
	parser, err := newParser(&cli, streams{out: io.Discard, err: io.Discard}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(append([]string{"serve"}, args...))
	return cli.Serve, err
}

func TestServe_flag_then_variable_then_file_then_default(t *testing.T) {
	cleanEnvironment(t)
	file := write(t, "c.yaml", "listen: 127.0.0.1:3\nstore: 'sqlite:file.db'\ndev: true\n")
	other := write(t, "d.yaml", "listen: 127.0.0.1:4\n")
	list := write(t, "e.yaml", "allow-origin:\n- https://a.example.com\n- https://c.example.com\n")
	for _, tc := range []struct {
		name string
		env  map[string]string
		args []string
		want serveCommand
	}{
		{"defaults", nil, nil, serveCommand{Listen: "127.0.0.1:8080", Store: "sqlite:"}},
		{
			"file",
			nil, []string{"--config", file},
			serveCommand{Listen: "127.0.0.1:3", Store: "sqlite:file.db", Dev: true, Config: file},
		},
		{
			"file named by a variable", map[string]string{"TIDEMARK_CONFIG": file}, nil,
			serveCommand{Listen: "127.0.0.1:3", Store: "sqlite:file.db", Dev: true, Config: file},
		},
		{
			"file named by both", map[string]string{"TIDEMARK_CONFIG": file},
			[]string{"--config", other},
			serveCommand{Listen: "127.0.0.1:4", Store: "sqlite:", Config: other},
		},
		{
			"variable over file",
			map[string]string{"TIDEMARK_LISTEN": "127.0.0.1:2", "TIDEMARK_DEV": "false"},
			[]string{"--config", file},
			serveCommand{Listen: "127.0.0.1:2", Store: "sqlite:file.db", Config: file},
		},
		{
			"flag over all", map[string]string{"TIDEMARK_LISTEN": "127.0.0.1:2"},
			[]string{"--config", file, "--listen", "127.0.0.1:1", "--store", "memory:"},
			serveCommand{Listen: "127.0.0.1:1", Store: "memory:", Dev: true, Config: file},
		},
		{
			"lists",
			map[string]string{
				"TIDEMARK_ALLOW_ORIGIN": "https://a.example.com,https://b.example.com",
			},
			nil,
			serveCommand{
				Listen:      "127.0.0.1:8080",
				Store:       "sqlite:",
				AllowOrigin: []string{"https://a.example.com", "https://b.example.com"},
			},
		},
		{
			"a list in the file", nil, []string{"--config", list},
			serveCommand{
				Listen:      "127.0.0.1:8080",
				Store:       "sqlite:",
				AllowOrigin: []string{"https://a.example.com", "https://c.example.com"},
				Config:      list,
			},
		},
		{
			"variables alone",
			map[string]string{"TIDEMARK_STORE": "memory:", "TIDEMARK_MIGRATE": "true"}, nil,
			serveCommand{Listen: "127.0.0.1:8080", Store: "memory:", Migrate: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			got, err := parseServe(t, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Observe = observeFlags{
				LogFormat: "text", LogLevel: "info", Traces: traceFlags{Sample: 0.01},
			}
			tc.want.Core.OpenChats = "members"
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestServe_file_with_an_unknown_key_is_an_error(t *testing.T) {
	cleanEnvironment(t)
	for _, tc := range []struct{ name, content, want string }{
		{"misspelt", "lisen: 127.0.0.1:1\n", `the key "lisen", which is unknown; the keys are `},
		{"beside good ones", "listen: 127.0.0.1:1\nvalkey: x\n", `"valkey"`},
		{"the file itself", "config: other.yaml\n", `"config"`},
		{"help", "help: true\n", `"help"`},
		{"a secret", "jwt-secret: " + testSecret + "\n", "TIDEMARK_JWT_SECRET only"},
		{"no value", "listen:\n", "without a value"},
		{"no map", "- listen\n", "not a YAML map"},
		{"wrong type", "dev: 12\n", "dev"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseServe(t, "--config", write(t, "c.yaml", tc.content))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), testSecret) {
				t.Errorf("the secret is shown: %v", err)
			}
		})
	}
}
