package main

import (
	"context"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/copying"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/metered"
	"github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
)

// defaultDatabase is the file of `sqlite:` without a path.
const defaultDatabase = "tidemark.db"

// storeURL says where messages are stored.
type storeURL struct {
	scheme string
	path   string // of the SQLite file
	url    string // of Postgres or DynamoDB; it may contain a password
	name   string // the part that may be shown
}

const (
	schemeMemory   = "memory"
	schemeSQLite   = "sqlite"
	schemePostgres = "postgres"
	schemeDynamoDB = "dynamodb"
)

// parseStore parses memory:, sqlite:PATH, postgres://… or dynamodb://….
// Its errors show no part of the URL.
func parseStore(raw string) (storeURL, error) {
	scheme, rest, found := strings.Cut(raw, ":")
	switch {
	case found && scheme == schemeMemory:
		if rest != "" {
			return storeURL{}, usagef("the store memory: takes nothing after the colon")
		}
		return storeURL{scheme: scheme, name: raw}, nil
	case found && scheme == schemeSQLite:
		if rest == "" {
			rest = defaultDatabase
		}
		return storeURL{scheme: scheme, path: rest, name: rest}, nil
	case found && (scheme == schemePostgres || scheme == "postgresql"):
		return parsePostgres(raw, rest)
	case found && scheme == schemeDynamoDB:
		return parseDynamoDB(raw, rest)
	}
	return storeURL{}, usagef("there is no such store; use memory:, "+
		"sqlite:PATH (sqlite: is ./%s), postgres://HOST/DATABASE or dynamodb://REGION/PREFIX",
		defaultDatabase)
}

// parsePostgres finds the part of a URL that may be shown. The driver checks the rest of the URL.
func parsePostgres(raw, rest string) (storeURL, error) {
	rest, found := strings.CutPrefix(rest, "//")
	if !found {
		return storeURL{}, usagef("a store of Postgres is written " +
			"postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	// Like libpq, the driver expects the end of the password before the first slash.
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:]
	}
	place, _, _ := strings.Cut(rest, "?")
	if strings.Contains(place, "@") {
		return storeURL{}, usagef("the store's URL has an @ in its host or database; in a " +
			"password, an @ is written %%40, and a slash %%2F")
	}
	return storeURL{scheme: schemePostgres, url: raw, name: "postgres://" + place}, nil
}

// parseDynamoDB finds the part of a URL that may be shown. The store checks the rest of the URL.
func parseDynamoDB(raw, rest string) (storeURL, error) {
	rest, found := strings.CutPrefix(rest, "//")
	place, _, _ := strings.Cut(rest, "?")
	switch {
	case !found:
		return storeURL{}, usagef("a store of DynamoDB is written dynamodb://REGION/PREFIX, such " +
			"as dynamodb://eu-central-1/tidemark-")
	case strings.Contains(place, "@"):
		return storeURL{}, usagef("the store's URL has an @, as if it contained credentials; " +
			"give those of DynamoDB by the environment, a profile, or the role of the machine")
	}
	return storeURL{scheme: schemeDynamoDB, url: raw, name: "dynamodb://" + place}, nil
}

// openedStore is a store with the state of its disk.
type openedStore struct {
	storage.Store
	// failed, if not nil, is closed when the disk fails in a commit.
	// What is stored is then unknown, so the process must end (delivery.md §2).
	// Postgres and DynamoDB manage their disks themselves.
	failed <-chan struct{}
	// replaced, if not nil, is closed when the database has become another one, such as a promoted
	// standby. What the server knows is then of other data, so it begins anew.
	replaced <-chan struct{}
	// committing, if not nil, returns how long the current commit has taken, 0 if there is none.
	// It is nil for a store that a new process would not help.
	committing func() time.Duration
	// peers, if not nil, opens connections for what nodes share in the database (Store.Peers).
	peers func(ctx context.Context, n int) (postgres.Pool, error)
	// compares is server.Config.ComparesPerSecond, 0 for the default.
	compares int
}

// openWhole is openStore for a store that may be written: it is no target of a copy that is not
// complete.
func openWhole(
	ctx context.Context, u storeURL, migrate bool, most int, meter *metered.Meter,
) (openedStore, error) {
	s, err := openStore(ctx, u, migrate, most, meter)
	if err == nil {
		if err = copying.Complete(ctx, s); err != nil {
			_ = s.Close()
		}
	}
	return s, err
}

// openStore opens the store behind a meter. It brings SQLite's schema up to date. It does that for
// Postgres and DynamoDB only if migrate is set, because others may use them. most is the most
// writes that share a commit; 0 means the default.
func openStore(
	ctx context.Context, u storeURL, migrate bool, most int, meter *metered.Meter,
) (openedStore, error) {
	switch u.scheme {
	case schemeMemory:
		return openedStore{Store: meter.Store(memory.New())}, nil
	case schemePostgres:
		if migrate {
			if err := postgres.Migrate(ctx, u.url, postgres.Up); err != nil {
				return openedStore{}, err
			}
		}
		s, err := postgres.Open(ctx, postgres.Config{
			URL: u.url, Batch: most, Committed: meter.Committed,
		})
		if err != nil {
			return openedStore{}, err
		}
		return openedStore{
			Store: meter.Store(s), replaced: s.Replaced(), peers: s.Peers,
			compares: postgres.ComparesPerSecond,
		}, nil
	case schemeDynamoDB:
		if migrate {
			if err := dynamodb.Migrate(ctx, u.url, dynamodb.Up); err != nil {
				return openedStore{}, err
			}
		}
		s, err := dynamodb.Open(ctx, dynamodb.Config{
			URL:       u.url,
			Committed: meter.Committed,
			Consumed:  meter.Consumed,
		})
		if err != nil {
			return openedStore{}, err
		}
		return openedStore{Store: meter.Store(s)}, nil
	}
	s, err := sqlite.Open(ctx, sqlite.Config{
		Path: u.path, Batch: most, Committed: meter.Committed,
	})
	if err != nil {
		return openedStore{}, err
	}
	return openedStore{Store: meter.Store(s), failed: s.Failed(), committing: s.Committing}, nil
}
