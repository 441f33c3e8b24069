package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/metered"
	"github.com/tidemark-im/tidemark/storage/sqlite"
)

// defaultDatabase is the file of `sqlite:` without a path.
const defaultDatabase = "tidemark.db"

// storeURL is where messages are kept.
type storeURL struct {
	scheme string
	path   string // of the SQLite file
}

const (
	schemeMemory = "memory"
	schemeSQLite = "sqlite"
)

// parseStore reads memory: or sqlite:PATH.
func parseStore(raw string) (storeURL, error) {
	scheme, rest, found := strings.Cut(raw, ":")
	switch {
	case found && scheme == schemeMemory:
		if rest != "" {
			return storeURL{}, usageError{fmt.Errorf("the store memory: takes nothing after the colon, got %q", rest)}
		}
		return storeURL{scheme: scheme}, nil
	case found && scheme == schemeSQLite:
		if rest == "" {
			rest = defaultDatabase
		}
		return storeURL{scheme: scheme, path: rest}, nil
	case found && (scheme == "postgres" || scheme == "postgresql" || scheme == "dynamodb"):
		// The rest may hold a password.
		return storeURL{}, usageError{fmt.Errorf("the store %s: is not in this build yet; use memory: or sqlite:PATH", scheme)}
	}
	return storeURL{}, usageError{fmt.Errorf("there is no such store; use memory: or sqlite:PATH (sqlite: is ./%s)", defaultDatabase)}
}

// openedStore is a store, and what it tells of itself.
type openedStore struct {
	storage.Store
	// failed, if not nil, is closed when the disk failed, so that nobody knows what is stored: the process must end (delivery.md §2).
	failed <-chan struct{}
	// committing, if not nil, is how long the present commit has been under way, 0 if there is none.
	committing func() time.Duration
}

// openStore opens the store, with its schema up to date and a meter before it.
func openStore(ctx context.Context, u storeURL, meter *metered.Meter) (openedStore, error) {
	if u.scheme == schemeMemory {
		return openedStore{Store: meter.Store(memory.New())}, nil
	}
	s, err := sqlite.Open(ctx, sqlite.Config{Path: u.path, Committed: meter.Committed})
	if err != nil {
		return openedStore{}, err
	}
	return openedStore{Store: meter.Store(s), failed: s.Failed(), committing: s.Committing}, nil
}
