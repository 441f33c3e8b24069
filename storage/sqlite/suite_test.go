package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark/storage"
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
