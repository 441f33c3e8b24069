package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

func TestDynamoDB_tables_are_made_when_asked_for(t *testing.T) {
	cleanEnvironment(t)
	url := service.Shared(t).Store(t)
	name, _, _ := strings.Cut(url, "?")
	migrate := func(verb, want string) {
		t.Helper()
		code, out, err := invoke(t, nil, "migrate", verb, "--store", url)
		if want = name + ": " + want + "\n"; code != exitOK || out != want {
			t.Errorf("migrate %s: exit %d, %q, %s; want %q", verb, code, out, err, want)
		}
	}
	migrate("status", "schema 0, compatible 0, needed 2")
	code, _, err := invoke(t, nil, "serve", "--dev", "--listen", "127.0.0.1:0", "--store", url)
	if code != exitFailure ||
		!strings.Contains(err,
			"run tidemark migrate up with the same --store, or serve with --migrate") {
		t.Errorf("serve without tables: exit %d, %s", code, err)
	}
	migrate("up", "schema 2, compatible 1, needed 2")
	migrate("up", "schema 2, compatible 1, needed 2")
	startServer(t, "--dev", "--store", url)
	migrate("down", "schema 1, compatible 1, needed 2")
	migrate("down", "schema 0, compatible 0, needed 2")
}

// TestDynamoDB_request_units_are_counted checks that /metrics counts request units per operation,
// and that the report of bench contains them.
func TestDynamoDB_request_units_are_counted(t *testing.T) {
	cleanEnvironment(t)
	url := startServer(t, "--dev", "--migrate", "--store", service.Shared(t).Store(t))
	traffic(t, url)
	poll(t, func() error {
		values, types, _ := series(t, url+"/metrics")
		for _, name := range []string{
			`{kind="write",operation="append"}`,
			`{kind="write",operation="create_chat"}`,
			`{kind="write",operation="advance"}`,
			`{kind="read",operation="rosters"}`,
		} {
			if name = "tidemark_dynamodb_request_units_total" + name; values[name] <= 0 {
				return fmt.Errorf("%s is %v", name, values[name])
			}
		}
		for name := range values {
			_, labels, ours := strings.Cut(name, "tidemark_dynamodb_request_units_total{")
			_, operation, _ := strings.Cut(labels, "operation=")
			_, known := values["tidemark_storage_seconds_count{operation="+operation]
			if ours && !known {
				return fmt.Errorf("tidemark_storage_seconds lacks the operation of %s", name)
			}
		}
		for name := range types {
			if !slices.Contains(documented(t), name) {
				return fmt.Errorf("%s is not in docs/observability.md", name)
			}
		}
		return nil
	})
	code, out, err := invoke(t, nil, "bench", "p2p", "--url", url, "--pairs", "2", "--messages",
		"40")
	if code != exitOK || !strings.Contains(out, "× message") || !strings.Contains(out, "| append") {
		t.Errorf("bench: exit %d, %s\n%s", code, err, out)
	}
}
