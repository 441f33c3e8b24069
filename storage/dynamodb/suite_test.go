package dynamodb

import (
	"testing"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

// openNew opens a store on empty tables.
func openNew(t *testing.T) storage.Store {
	t.Helper()
	return openTest(t, newTables(t))
}

// newTables makes empty tables, and returns the URL of the store.
func newTables(t testing.TB) string {
	t.Helper()
	url := service.Shared(t).Store(t)
	if err := Migrate(t.Context(), url, Up); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	return url
}

// openTest opens a store that t closes.
func openTest(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url})
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
