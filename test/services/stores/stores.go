// Package stores opens the store for the tests of the core and of the transports. The tests name no
// backend: the environment variable TIDEMARK_TEST_STORE does. `make backends` runs them once on
// each.
package stores

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
	"github.com/tidemark-im/tidemark/test/wait"
)

// Variable names the environment variable with the backend of a test: memory, which is the default,
// sqlite, postgres or dynamodb.
const Variable = "TIDEMARK_TEST_STORE"

// Open returns an empty store. It is closed when the test ends, after everything that the test
// registers with t.Cleanup from now on. A test in a bubble of testing/synctest must call Open
// within that bubble. Open is safe for concurrent use. The package's TestMain must use Main.
func Open(t testing.TB) storage.Store {
	t.Helper()
	var s storage.Store
	var err error
	switch kind := os.Getenv(Variable); kind {
	case "", "memory":
		s = memory.New()
	case "sqlite":
		s, err = sqlite.Open(context.Background(), sqlite.Config{
			Path: filepath.Join(t.TempDir(), "tidemark.db"),
		})
	case "postgres":
		s, err = postgres.Open(context.Background(), postgres.Config{
			URL: databases.take(t), Patience: wait.Hang,
		})
	case "dynamodb":
		s, err = dynamodb.Open(context.Background(), tables.take(t))
	default:
		t.Fatalf("%s is %q: there is no such store, only memory, sqlite, postgres and dynamodb",
			Variable, kind)
	}
	if err != nil {
		t.Fatalf("opening the store of the test: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store of the test: %v", err)
		}
	})
	return s
}

// Main is for TestMain. What it returns runs the tests. Before them it makes what the stores need
// and what cannot be made within a test.
func Main(m *testing.M) interface{ Run() int } { return runner{m} }

type runner struct{ *testing.M }

// Run implements goleak.TestingM.
func (r runner) Run() int {
	var err error
	switch os.Getenv(Variable) {
	case "postgres":
		if databases, err = openPool(); err == nil {
			defer databases.close()
		}
	case "dynamodb":
		if tables, err = openTables(); err == nil {
			defer tables.close()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return r.M.Run()
}
