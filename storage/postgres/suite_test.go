package postgres

import (
	"net/url"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// durable is a store with its URL.
type durable struct {
	*Store
	url string
}

// openNew opens a store on an empty database.
func openNew(t *testing.T) storage.Store {
	t.Helper()
	url := service.Shared(t).Database(t)
	if err := Migrate(t.Context(), url, Up); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	return durable{openTest(t, url), url}
}

// openTest opens a store that t closes.
func openTest(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url, Patience: wait.Hang})
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

func reopen(t *testing.T, s storage.Store) storage.Store {
	t.Helper()
	d := s.(durable)
	if err := d.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return durable{openTest(t, d.url), d.url}
}

func TestStore(t *testing.T) { storagetest.Run(t, openNew) }

func TestStore_durable(t *testing.T) { storagetest.RunDurable(t, openNew, reopen) }

// openTwo opens two stores on one empty database, as two nodes do.
func openTwo(t *testing.T) (storage.Store, storage.Store) {
	t.Helper()
	one := openNew(t).(durable)
	return one, openTest(t, one.url)
}

func TestStore_shared(t *testing.T) { storagetest.RunShared(t, openTwo) }

// TestStore_durable_when_the_server_crashes stops the server without a checkpoint before it opens
// the data again. In the model's histories it does so only the first few times, since each takes a
// second.
func TestStore_durable_when_the_server_crashes(t *testing.T) {
	server := service.Start(t)
	open := func(t *testing.T) storage.Store {
		t.Helper()
		url := server.Database(t)
		if err := Migrate(t.Context(), url, Up); err != nil {
			t.Fatalf("Migrate: %v", err)
		}
		return durable{openTest(t, url), url}
	}
	crashes := 0
	storagetest.RunDurable(t, open, func(t *testing.T, s storage.Store) storage.Store {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		if crashes++; crashes <= 6 {
			server.Stop(t, "immediate")
			server.Run(t)
		}
		return durable{openTest(t, s.(durable).url), s.(durable).url}
	})
	least := 6
	if testing.Short() { // rapid makes a fifth of its runs
		least = 3
	}
	if crashes < least {
		t.Errorf("the server crashed %d times, want at least %d", crashes, least)
	}
}

// restored opens a copy of a database. It closes the store on the first one, which a copy needs.
func restored(t *testing.T, s storage.Store) storage.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	from, err := url.Parse(s.(durable).url)
	if err != nil {
		t.Fatal(err)
	}
	server := service.Shared(t)
	to := server.Copy(t, strings.TrimPrefix(from.Path, "/"))
	return durable{openTest(t, to), to}
}

func TestStore_restored(t *testing.T) { storagetest.RunRestored(t, openNew, restored) }
