package memory_test

import (
	"testing"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

func TestStore(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		s := memory.New()
		t.Cleanup(func() { s.Close() })
		return s
	})
}

func TestStore_restored(t *testing.T) {
	storagetest.RunRestored(t, func(*testing.T) storage.Store { return memory.New() },
		func(_ *testing.T, s storage.Store) storage.Store { return s.(*memory.Store).Copy() })
}
