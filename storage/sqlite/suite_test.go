package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite/backup"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// durable is a store with the path of its file.
type durable struct {
	*Store
	path string
}

func openDurable(t *testing.T) storage.Store {
	path := filepath.Join(t.TempDir(), "tidemark.db")
	return durable{openTest(t, path), path}
}

func reopen(t *testing.T, s storage.Store) storage.Store {
	t.Helper()
	d := s.(durable)
	if err := d.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return durable{openTest(t, d.path), d.path}
}

func TestStore(t *testing.T) { storagetest.Run(t, openDurable) }

func TestStore_durable(t *testing.T) { storagetest.RunDurable(t, openDurable, reopen) }

// restored opens a copy of a database in another directory.
func restored(t *testing.T, s storage.Store) storage.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidemark.db")
	if _, err := backup.Write(s.(durable).path, path); err != nil {
		t.Fatal(err)
	}
	return durable{openTest(t, path), path}
}

func TestStore_restored(t *testing.T) { storagetest.RunRestored(t, openDurable, restored) }
