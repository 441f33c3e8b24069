package sqlite

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
)

// OpenReader opens the database for reading, also while a server works on it. It takes no lock,
// changes no schema, begins no incarnation, and copies nothing from the log into the file. All
// methods that write return Conflict. Each statement is a transaction of its own, or a few are, so
// that the server's log can begin anew.
//
// NotFound: there is no database. Conflict: its schema is another one than this program's.
// Unavailable: the file cannot be used.
func OpenReader(ctx context.Context, config Config) (*Store, error) {
	if config.Readers <= 0 {
		config.Readers = defaultReaders
	}
	if config.CacheBytes <= 0 {
		config.CacheBytes = defaultCache
	}
	if err := ctx.Err(); err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the time for opening the database was over before it began; try again")
	}
	found, err := status(config.Path, migrations.SQLite)
	if err == nil {
		err = found.Fit()
	}
	if err != nil {
		return nil, err
	}
	path, err := resolve(config.Path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		path: path, pool: config.Readers, readers: make(chan *conn, config.Readers),
		health: health.New(),
	}
	if err = s.pooled(path, config); err == nil {
		err = s.read(ctx, func(c *conn) (err error) {
			s.lives, err = storedLives(c)
			return err
		})
	}
	if err == nil && len(s.lives) == 0 {
		err = tidemark.Errorf(tidemark.Conflict,
			"no server has opened the database yet; start one, or copy without --ahead")
	}
	if err != nil {
		s.closeAll()
		return nil, health.At(path, health.Public(err))
	}
	return s, nil
}

// readOnly is the error of writes to a store that OpenReader has returned.
func readOnly() error {
	return tidemark.Errorf(tidemark.Conflict, "the database is open for reading only")
}
