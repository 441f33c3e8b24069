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

// TestFrozen: memory is the executable specification, so it says what the other stores must say of
// the frozen data.
func TestFrozen(t *testing.T) {
	copied := func(_ *testing.T, s storage.Store) storage.Store { return s.(*memory.Store).Copy() }
	s, lives := storagetest.WriteFrozen(t, memory.New(), copied)
	storagetest.RunFrozen(t, copied(t, s), lives)
}
