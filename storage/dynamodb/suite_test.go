package dynamodb

import (
	"testing"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/wait"
)

// openNew opens a store on empty tables.
func openNew(t *testing.T) storage.Store {
	t.Helper()
	return openTest(t, newTables(t))
}

// newTables creates empty tables, and returns the URL of the store.
func newTables(t testing.TB) string {
	t.Helper()
	url := service.Shared(t).Store(t)
	if err := Migrate(t.Context(), url, Up); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	return url
}

// openTest opens a store that t closes. It is patient: slow_test.go and test/faults test the time
// limits. Its expressions may contain no reserved word.
func openTest(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url, Transport: newWordy(t), Patience: wait.Hang})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) { storagetest.Run(t, openNew) }

func TestStore_shared(t *testing.T) {
	storagetest.RunShared(t, func(t *testing.T) (storage.Store, storage.Store) {
		url := newTables(t)
		return openTest(t, url), openTest(t, url)
	})
}

// restored opens a store on copies of the tables of another store.
func restored(t *testing.T, s storage.Store) storage.Store {
	t.Helper()
	from, server := s.(durable).url, service.Shared(t)
	to := server.Store(t)
	if err := Migrate(t.Context(), to, Up); err != nil {
		t.Fatal(err)
	}
	server.Copy(t, from, to)
	return durable{openTest(t, to), to}
}

func TestStore_restored(t *testing.T) {
	storagetest.RunRestored(t, func(t *testing.T) storage.Store {
		url := newTables(t)
		return durable{openTest(t, url), url}
	}, restored)
}

// durable is a store with its URL.
type durable struct {
	*Store
	url string
}

// TestStore_durable_when_the_emulator_is_killed: confirmed data is in DynamoDB, and not in the
// store only. The test kills the emulator before each of the first few reopenings.
func TestStore_durable_when_the_emulator_is_killed(t *testing.T) {
	server := service.Start(t)
	open := func(t *testing.T) storage.Store {
		t.Helper()
		url := server.Store(t)
		if err := Migrate(t.Context(), url, Up); err != nil {
			t.Fatalf("Migrate: %v", err)
		}
		return durable{openTest(t, url), url}
	}
	kills := 0
	storagetest.RunDurable(t, open, func(t *testing.T, s storage.Store) storage.Store {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		if kills++; kills <= 20 {
			server.Kill(t)
			server.Run(t)
		}
		return durable{openTest(t, s.(durable).url), s.(durable).url}
	})
	if kills < 3 {
		t.Errorf("the emulator was killed %d times, want at least 3", kills)
	}
}
