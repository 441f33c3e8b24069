package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSchemathesis_finds_nothing sends thousands of requests that a third-party tool generates from
// the contract: good and bad ones, and chains of them. The server must answer each as the contract
// says. The second run shows that the tool notices a contract that is wrong.
func TestSchemathesis_finds_nothing(t *testing.T) {
	t.Parallel()
	// The tool feeds answers into later requests. So no answer may depend on the disk, or on how
	// long a session has been silent.
	p := newProcess(t)
	p.url, p.migrated = "memory:", true
	p.flags = append(p.flags, "--resume-window", "1h", "--sessions-per-user", "10000")
	server := "http://" + p.serve()
	// Each run of make test sends the same requests; make soak sends others, and more.
	generate := []string{"--max-examples", "10", "--seed", "1"}
	if n := os.Getenv("TIDEMARK_SCHEMATHESIS_EXAMPLES"); n != "" {
		generate = []string{"--max-examples", n}
	}
	if out, err := schemathesis(t, server+"/openapi.yaml", generate...); err != nil {
		t.Errorf("%v\n%s", err, found(out))
	}
	contract, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wrong := bytes.ReplaceAll(contract,
		[]byte("unread_count: {$ref: '#/components/schemas/UnreadCount'}"),
		[]byte("unread_count: {type: string}"))
	file := filepath.Join(t.TempDir(), "openapi.yaml")
	if err := os.WriteFile(file, wrong, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := schemathesis(t, file, "--max-examples", "1", "--include-path", "/unread",
		"--url", server+"/api/v1")
	if err == nil || !strings.Contains(out, "Response violates schema") {
		t.Errorf("a wrong contract passes: %v\n%s", err, out)
	}
}

// found returns the part of a report that says what failed, or all of it. A log may be cut, and
// most of a report is about what passed.
func found(report string) string {
	if i := strings.Index(report, "= FAILURES ="); i >= 0 {
		return report[i:]
	}
	if i := strings.Index(report, "= ERRORS ="); i >= 0 {
		return report[i:]
	}
	return report
}

// schemathesis runs the tool in a directory of its own, and returns what it printed.
func schemathesis(t *testing.T, contract string, arguments ...string) (string, error) {
	t.Helper()
	absolute := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	run := exec.CommandContext(t.Context(), absolute("../.build/schemathesis/bin/python"),
		append([]string{
			"-m", "schemathesis.cli", "--no-color",
			"--config-file", absolute("schemathesis/schemathesis.toml"), "run", contract,
			"-H", "Authorization: Bearer dev:ann", "--generation-database", ":memory:",
		}, arguments...)...)
	run.Dir = t.TempDir()
	run.Env = append(os.Environ(),
		"PYTHONPATH="+absolute("schemathesis"), "PYTHONDONTWRITEBYTECODE=1")
	out, err := run.CombinedOutput()
	return string(out), err
}
