// Package test contains the tests that concern several parts of the project, or the real binary.
package test

import (
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tidemark-im/tidemark"

// arrow says what the packages at a place may import besides the standard library. They are
// packages of this module, by their path in it, and other modules. A path that ends in /...
// includes everything below it.
type arrow struct {
	place  string
	own    []string
	others []string
}

// arrows returns ARCHITECTURE.md's diagram as a table. The first place that fits a package binds
// it. A package without an arrow is an error.
func arrows() []arrow {
	shared := []string{"transports/auth", "transports/limit", "transports/origin"}
	adapter := append(shared, "", "internal/signal", "server", "transports/internal/...")
	provider := []string{"", "reach/push", "reach/push/internal/..."}
	return []arrow{
		{place: ""},
		{place: "storage", own: []string{""}},
		{
			place: "reach",
			own: []string{
				"", "internal/batch", "internal/signal", "reach/internal/reread", "reach/outlet",
				"storage",
			},
		},
		{place: "reach/outlet", own: []string{""}},
		{place: "attachments", own: []string{"", "internal/signal", "storage"}},
		{place: "retention", own: []string{"", "internal/chores", "storage"}},
		{place: "deletion", own: []string{"", "internal/chores", "storage"}},
		{place: "audit", own: []string{"", "internal/chores", "storage"}},
		{
			place: "erasure", own: []string{"", "internal/chores", "internal/signal", "storage"},
		},
		{place: "attachments/dir", own: []string{"", "attachments"}},
		{
			place: "attachments/s3", own: []string{"", "attachments"},
			others: []string{"github.com/aws/aws-sdk-go-v2"},
		},
		{place: "importer", own: []string{"", "storage"}},
		{place: "copying", own: []string{"", "storage"}},
		{place: "importer/internal/input", own: []string{""}},
		{
			place: "importer/internal/files",
			own:   []string{"", "importer", "importer/internal/input"},
		},
		{place: "importer/jsonl", own: []string{"", "importer", "importer/internal/input"}},
		{place: "importer/tinode", own: []string{"", "importer"}},
		{
			place: "importer/tinode/postgres", own: []string{"", "importer", "importer/tinode"},
			others: []string{"github.com/jackc/pgx/v5"},
		},
		{
			place: "importer/stream",
			own:   []string{"", "importer", "importer/internal/files", "importer/internal/input"},
		},
		{place: "importer/sendbird", own: []string{"", "importer", "importer/internal/files"}},
		{
			place: "importer/twilio",
			own:   []string{"", "importer", "importer/internal/files", "importer/internal/input"},
		},
		{place: "reach/webhook", own: []string{"", "reach/internal/publicnet", "reach/outlet"}},
		{place: "reach/hook", own: []string{"", "reach/webhook"}},
		{
			place: "reach/kafka", own: []string{"", "internal/batch", "reach/outlet"},
			others: []string{"github.com/twmb/franz-go"},
		},
		{
			place:  "reach/kafka/fanout",
			own:    []string{"", "reach/internal/reread", "reach/kafka", "reach/outlet", "storage"},
			others: []string{"github.com/twmb/franz-go"},
		},
		{place: "storage/memory", own: []string{"", "storage", "storage/internal/lives"}},
		{
			place:  "storage/metered",
			own:    []string{"", "storage", "tracing"},
			others: []string{"github.com/prometheus/client_golang"},
		},
		{place: "storage/internal/lives", own: []string{"", "storage"}},
		{place: "storage/internal/...", own: []string{""}},
		{
			place: "storage/sqlite",
			own: []string{
				"",
				"internal/batch", "migrations", "storage", "storage/internal/...",
				"storage/sqlite/internal/...",
			},
			others: []string{"modernc.org/sqlite"},
		},
		{place: "storage/sqlite/backup", own: []string{"", "storage/sqlite/internal/capi"}},
		{
			place:  "storage/sqlite/internal/health",
			own:    []string{"", "storage/sqlite/internal/capi"},
			others: []string{"modernc.org/sqlite"},
		},
		{
			place:  "storage/sqlite/internal/schema",
			own:    []string{""},
			others: []string{"github.com/golang-migrate/migrate/v4"},
		},
		{
			place:  "storage/sqlite/internal/capi",
			others: []string{"modernc.org/sqlite", "modernc.org/libc"},
		},
		{
			place: "storage/postgres",
			own: []string{
				"", "internal/batch", "internal/signal", "migrations",
				"storage", "storage/internal/...", "storage/postgres/internal/...",
			},
			others: []string{"github.com/jackc/pgx/v5"},
		},
		{
			place:  "storage/postgres/internal/dsn",
			own:    []string{"", "storage/postgres/internal/standby"},
			others: []string{"github.com/jackc/pgx/v5"},
		},
		{
			place:  "storage/postgres/internal/standby",
			own:    []string{""},
			others: []string{"github.com/jackc/pgx/v5"},
		},
		{
			place:  "storage/postgres/internal/place",
			own:    []string{"", "storage/internal/lives"},
			others: []string{"github.com/jackc/pgx/v5"},
		},
		{
			place:  "storage/postgres/internal/schema",
			own:    []string{"", "storage", "storage/internal/versions"},
			others: []string{"github.com/jackc/pgx/v5", "github.com/golang-migrate/migrate/v4"},
		},
		{
			place: "storage/dynamodb",
			own: []string{
				"", "migrations", "storage", "storage/internal/...",
				"storage/dynamodb/internal/...",
			},
			others: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
		},
		{
			place:  "storage/dynamodb/internal/endpoint",
			own:    []string{""},
			others: []string{"github.com/aws/aws-sdk-go-v2"},
		},
		{
			place: "storage/dynamodb/internal/schema",
			own: []string{
				"", "internal/signal", "storage", "storage/dynamodb/internal/endpoint",
				"storage/internal/lives",
			},
			others: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
		},
		{
			place: "storage/dynamodb/internal/...",
			own: []string{
				"", "internal/batch", "internal/signal",
				"storage", "storage/internal/...", "storage/dynamodb/internal/call",
				"storage/dynamodb/internal/record",
			},
			others: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
		},
		{place: "migrations"},

		{
			place: "server",
			own: []string{
				"",
				"storage", "server/registry", "server/bus", "server/internal/...",
				"internal/signal", "tracing",
			},
			others: []string{"github.com/gofrs/uuid/v5"},
		},
		{place: "server/internal/pagetoken", own: []string{""}},
		{place: "server/internal/watermark", own: []string{"", "storage"}},
		{place: "server/internal/least", own: []string{"", "storage"}},
		{
			place: "server/internal/retry",
			own:   []string{"", "storage", "internal/signal", "server/registry"},
		},
		{place: "server/internal/chat", own: []string{"", "storage"}},
		{place: "server/internal/access", own: []string{"", "storage", "server/internal/chat"}},
		{
			place: "server/internal/ackbuffer",
			own:   []string{"", "storage", "internal/signal", "server/internal/watermark"},
		},
		{place: "server/internal/traced", own: []string{
			"", "internal/batch", "internal/signal", "server/bus", "server/registry", "tracing",
		}},
		{place: "server/internal/session", own: []string{
			"", "storage", "internal/signal", "server/bus", "server/registry",
			"server/internal/chat", "server/internal/least", "server/internal/traced",
			"server/internal/watermark",
		}},
		{place: "server/internal/leases", own: []string{
			"", "internal/signal", "server/bus", "server/registry", "server/internal/chat",
			"server/internal/session",
		}},
		{place: "server/internal/presence", own: []string{
			"", "storage", "internal/signal", "server/bus", "server/registry",
			"server/internal/chat", "server/internal/leases", "server/internal/session",
		}},
		{place: "server/internal/survey", own: []string{
			"", "server/bus", "server/registry", "server/internal/leases",
		}},
		{place: "server/internal/delivery", own: []string{
			"", "storage", "internal/signal", "server/bus", "server/registry",
			"server/internal/ackbuffer",
			"server/internal/chat", "server/internal/leases", "server/internal/retry",
			"server/internal/session", "server/internal/traced", "tracing",
		}},
		{place: "server/internal/receipts", own: []string{
			"", "storage", "internal/signal", "server/bus", "server/registry",
			"server/internal/ackbuffer",
			"server/internal/chat", "server/internal/delivery", "server/internal/least",
			"server/internal/retry",
			"server/internal/session", "server/internal/watermark",
		}},
		{place: "server/internal/sessions", own: []string{
			"", "storage", "internal/batch", "internal/signal", "server/bus", "server/registry",
			"server/internal/delivery",
			"server/internal/leases", "server/internal/receipts",
			"server/internal/retry", "server/internal/session",
		}},
		{place: "server/registry", own: []string{""}},
		{place: "server/registry/memory", own: []string{"", "server/registry"}},
		{
			place: "server/registry/redis",
			own:   []string{"", "internal/batch", "internal/redis", "server/registry"},
		},
		{
			place:  "server/registry/postgres",
			own:    []string{"", "internal/batch", "server/registry"},
			others: []string{"github.com/jackc/pgx/v5"},
		},
		{place: "server/bus", own: []string{"", "server/registry", "tracing"}},
		{
			place: "server/bus/http",
			own: []string{
				"", "internal/batch", "server/registry", "server/bus", "server/bus/internal/...",
			},
		},
		{place: "server/bus/local", own: []string{"", "server/registry", "server/bus"}},
		{
			place: "server/bus/redis",
			own: []string{
				"", "internal/batch", "internal/redis", "internal/signal",
				"server/registry", "server/bus", "server/bus/internal/...",
			},
		},
		{
			place: "server/bus/internal/frame",
			own:   []string{"", "server/registry", "server/bus", "tracing"},
		},
		{place: "internal/batch", own: []string{""}},
		{place: "internal/signal"},
		{place: "internal/chores", own: []string{"internal/signal"}},
		{
			place:  "internal/redis",
			own:    []string{"", "internal/batch"},
			others: []string{"github.com/redis/go-redis/v9"},
		},

		{
			place:  "transports",
			own:    []string{"", "audit", "server", "tracing", "transports/...", "web"},
			others: []string{"github.com/labstack/echo/v4", "github.com/prometheus/client_golang"},
		},
		{
			place: "transports/auth",
			own:   []string{"", "internal/signal", "server"},
			others: []string{
				"github.com/go-jose/go-jose/v4", "github.com/golang-jwt/jwt/v5",
			},
		},
		{
			place:  "transports/limit",
			own:    []string{"", "server", "transports/internal/problem"},
			others: []string{"golang.org/x/time"},
		},
		{
			place:  "transports/origin",
			own:    []string{"", "transports/internal/problem"},
			others: []string{"github.com/labstack/echo/v4"},
		},
		{
			place:  "transports/internal/...",
			own:    adapter,
			others: []string{"github.com/labstack/echo/v4"},
		},
		{
			place:  "transports/websocket",
			own:    append(adapter, "audit", "internal/batch"),
			others: []string{"github.com/labstack/echo/v4"},
		},
		{place: "transports/sse", own: adapter, others: []string{"github.com/labstack/echo/v4"}},
		{
			place:  "transports/longpoll",
			own:    adapter,
			others: []string{"github.com/labstack/echo/v4"},
		},
		{
			place:  "transports/rest",
			own:    append(adapter, "audit"),
			others: []string{"github.com/labstack/echo/v4", "github.com/oapi-codegen/runtime"},
		},
		{
			place:  "transports/erasure",
			own:    append(adapter, "audit", "erasure"),
			others: []string{"github.com/labstack/echo/v4"},
		},
		{
			place:  "transports/audit",
			own:    append(adapter, "audit"),
			others: []string{"github.com/labstack/echo/v4"},
		},
		{
			place:  "transports/outlets",
			own:    append(adapter, "audit", "reach", "reach/outlet"),
			others: []string{"github.com/labstack/echo/v4"},
		},
		{
			place:  "transports/push",
			own:    append(adapter, "reach/push", "reach/push/devices", "reach/push/pusher"),
			others: []string{"github.com/labstack/echo/v4"},
		},
		{
			place:  "transports/attachments",
			own:    append(adapter, "attachments", "attachments/dir"),
			others: []string{"github.com/labstack/echo/v4"},
		},
		{place: "transports/stats", own: adapter, others: []string{"github.com/labstack/echo/v4"}},
		{
			place: "transports/redis",
			own: append(shared, "", "internal/batch", "internal/redis",
				"transports/internal/tickets"),
		},
		{
			place:  "transports/postgres",
			own:    append(shared, "", "transports/internal/tickets"),
			others: []string{"github.com/jackc/pgx/v5"},
		},
		{place: "web"},
		{place: "tracing", others: []string{"golang.org/x/time"}},
		{
			place: "tracing/otlp", own: []string{"internal/signal", "tracing"},
			others: []string{"go.opentelemetry.io/proto/slim/otlp", "google.golang.org/protobuf"},
		},

		{
			place: "client",
			own:   []string{"", "internal/signal"},
			others: []string{
				"github.com/coder/websocket", "github.com/r3labs/sse/v2",
				"gopkg.in/cenkalti/backoff.v1",
			},
		},
		{place: "examples/...", own: []string{"", "client"}},
		{
			place:  "bench/internal/postgres",
			own:    []string{"bench/internal/measure", "bench/internal/yardstick"},
			others: []string{"github.com/jackc/pgx/v5"},
		},
		{
			place: "bench/internal/yardstick", own: []string{"bench/internal/measure"},
			others: []string{"golang.org/x/sys"},
		},
		{place: "bench/internal/measure", others: []string{"golang.org/x/sys"}},
		{place: "bench/...", own: []string{"bench/internal/...", "internal/signal"}},
		{place: "reach/push", own: []string{""}},
		{place: "reach/push/queue", own: []string{"", "internal/signal", "reach/push"}},
		{place: "reach/push/devices", own: []string{"", "reach/push", "storage"}},
		{
			place: "reach/push/pusher",
			own: []string{
				"", "internal/signal", "reach/internal/acktoken", "reach/internal/reread",
				"reach/outlet", "reach/push", "reach/push/devices", "reach/push/queue", "storage",
			},
		},
		{
			place: "reach/push/internal/...",
			own:   []string{"", "reach/push"},
		},
		{place: "reach/push/apns", own: provider},
		{
			place: "reach/push/fcm", own: provider,
			others: []string{"github.com/golang-jwt/jwt/v5"},
		},
		{place: "reach/push/webpush", own: append(provider, "reach/internal/publicnet")},
		{
			place: "reach/push/pushtest/...",
			own:   []string{"", "reach/push", "reach/push/pushtest"},
			others: []string{
				"github.com/golang-jwt/jwt/v5", "github.com/google/go-cmp",
			},
		},
		{
			place: "reach/internal/publicnet", own: []string{""},
			others: []string{"code.dny.dev/ssrf"},
		},
		{
			place: "reach/redis", own: []string{"", "internal/redis", "internal/signal"},
		},
		{place: "reach/internal/acktoken", own: []string{""}},
		{place: "reach/internal/reread", own: []string{"", "storage"}},

		{
			place: "cmd/tidemark",
			own: []string{
				"",
				"attachments", "attachments/...", "audit", "bench", "copying", "deletion",
				"erasure", "importer", "importer/...", "internal/redis", "internal/signal",
				"migrations", "reach", "reach/...", "retention", "server", "server/...", "storage",
				"storage/...", "tracing", "tracing/...", "transports", "transports/...", "web",
			},
			others: []string{
				"github.com/alecthomas/kong", "github.com/gofrs/uuid/v5",
				"github.com/golang-jwt/jwt/v5", "github.com/prometheus/client_golang",
				"gopkg.in/yaml.v3",
			},
		},
	}
}

// exempt reports whether a package may import anything: a conformance suite, or a package that runs
// the real binary.
func exempt(path string) bool {
	return strings.HasSuffix(path, "test") || within("test/...", path)
}

func TestArrows_hold(t *testing.T) {
	for _, pkg := range packages(t) {
		path := pkg.path()
		if exempt(path) {
			continue
		}
		i := slices.IndexFunc(arrows(), func(a arrow) bool { return within(a.place, path) })
		if i < 0 {
			t.Errorf("%s has no arrow: say in test/arrows_test.go what it may import",
				pkg.ImportPath)
			continue
		}
		rule := arrows()[i]
		for _, imported := range pkg.Imports {
			if !rule.allows(imported) {
				t.Errorf("%s imports %s, which its arrow does not allow", pkg.ImportPath, imported)
			}
		}
	}
}

// TestArrows_core_knows_no_transport binds the core and its inner packages. Its leaves may be
// clients of services.
func TestArrows_core_knows_no_transport(t *testing.T) {
	seen := make(map[string]bool)
	for _, pkg := range packages(t) {
		if path := pkg.path(); path != "server" && !within("server/internal/...", path) {
			continue
		}
		seen[pkg.path()] = true
		for _, imported := range pkg.Imports {
			if imported == "net/http" || strings.HasPrefix(imported, "net/http/") {
				t.Errorf("%s imports %s: the core knows no transport", pkg.ImportPath, imported)
			}
		}
	}
	for _, path := range []string{
		"server", "server/internal/session", "server/internal/delivery", "server/internal/sessions",
	} {
		if !seen[path] {
			t.Errorf("there is no package %s", path)
		}
	}
}

// TestArrows_nothing_waits_for_the_outside binds the core, storage and transports: what tells
// others, and what keeps files, is beside them, and they work without it. Only its own adapter
// knows it.
func TestArrows_nothing_waits_for_the_outside(t *testing.T) {
	seen := 0
	for _, pkg := range packages(t) {
		path := pkg.path()
		if within("reach/...", path) {
			seen++
		}
		if !within("server/...", path) && !within("storage/...", path) &&
			!within("transports/...", path) || exempt(path) {
			continue
		}
		for role, adapter := range map[string]string{
			"reach": "transports/outlets", "attachments": "transports/attachments",
		} {
			for _, imported := range pkg.Imports {
				if below(module+"/"+role, imported) && path != adapter &&
					(role != "reach" || path != "transports/push") {
					t.Errorf("%s imports %s: nothing in it may depend on %s", path, imported, role)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("there is no package below reach")
	}
}

// TestArrows_drivers_in_leaves_named_after_them binds the whole module, including cmd/.
func TestArrows_drivers_in_leaves_named_after_them(t *testing.T) {
	leaves := map[string][]string{
		"modernc.org/sqlite":           {"sqlite"},
		"github.com/jackc/pgx/v5":      {"postgres"},
		"github.com/redis/go-redis/v9": {"redis"},
		"github.com/aws/aws-sdk-go-v2": {"dynamodb", "s3"},
		"github.com/aws/smithy-go":     {"dynamodb"},
		"go.opentelemetry.io":          {"otlp"},
	}
	for _, pkg := range packages(t) {
		path := pkg.path()
		if exempt(path) {
			continue
		}
		for _, imported := range pkg.Imports {
			for driver, names := range leaves {
				leaf := slices.ContainsFunc(strings.Split(path, "/"),
					func(part string) bool { return slices.Contains(names, part) })
				if below(driver, imported) && !leaf {
					t.Errorf("%s imports %s, which belongs in a package called %v",
						pkg.ImportPath, imported, names)
				}
			}
		}
	}
}

func TestArrows_rules(t *testing.T) {
	rule := arrow{
		place:  "storage/x",
		own:    []string{"", "storage", "web/..."},
		others: []string{"example.org/driver"},
	}
	for _, tc := range []struct {
		imported string
		want     bool
	}{
		{"context", true},
		{"encoding/json", true},
		{module, true},
		{module + "/storage", true},
		{module + "/storage/memory", false},
		{module + "/web/app", true},
		{module + "/website", false},
		{"example.org/driver", true},
		{"example.org/driver/sub", true},
		{"example.org/driverless", false},
	} {
		if got := rule.allows(tc.imported); got != tc.want {
			t.Errorf("allows(%q) = %v, want %v", tc.imported, got, tc.want)
		}
	}
}

func (a arrow) allows(imported string) bool {
	if imported == module || strings.HasPrefix(imported, module+"/") {
		path := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		return slices.ContainsFunc(a.own, func(place string) bool { return within(place, path) })
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true // only the standard library has no dot there
	}
	return slices.ContainsFunc(a.others, func(other string) bool { return below(other, imported) })
}

// within reports whether a package's path in the module is the place, or is below a place that ends
// in /... .
func within(place, path string) bool {
	if parent, ok := strings.CutSuffix(place, "/..."); ok {
		return below(parent, path)
	}
	return place == path
}

func below(parent, path string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}
