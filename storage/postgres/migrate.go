package postgres

import (
	"context"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/dsn"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/schema"
)

// Direction says what Migrate does: Up or Down.
type Direction string

// The directions.
const (
	// Up runs every migration that the database lacks.
	Up Direction = "up"
	// Down reverts the latest migration. It destroys the data that only the newer schema can hold.
	// Reverting the first migration destroys everything.
	Down Direction = "down"
)

// Migrate changes the schema of the database. It holds a lock in the database. If several processes
// run Migrate at once, one does the work, and the others find it done. Servers may run meanwhile. A
// server that cannot use the new schema is refused when it next opens the store. If a newer program
// made the schema and this program can use it, Up does nothing.
//
// Errors:
//   - Invalid: the direction; the URL, also one with a pooler in transaction mode, which does not
//     keep the lock; no migration to revert.
//   - Conflict: an earlier migration failed half-way; the schema is of a newer program.
//   - Unavailable: the database cannot be reached, or the role may not change it.
func Migrate(ctx context.Context, url string, direction Direction) error {
	return migrate(ctx, url, direction, migrations.Postgres)
}

func migrate(ctx context.Context, url string, direction Direction, files fs.FS) error {
	run, known := map[Direction]func(context.Context, pgx.ConnConfig, fs.FS) error{
		Up:   schema.Up,
		Down: schema.Down,
	}[direction]
	if !known {
		return tidemark.Errorf(tidemark.Invalid, "a migration goes %q or %q, not %q",
			Up, Down, direction)
	}
	t, err := dsn.Parse(url, 0, 0)
	if err != nil {
		return err
	}
	if t.Pooler {
		return tidemark.Errorf(tidemark.Invalid,
			"a migration holds a lock from one statement to the next, which a pooler in "+
				"transaction mode does not keep; give the address of the database itself")
	}
	found, table, err := look(ctx, t, files)
	if err != nil {
		return err
	}
	switch empty := found.Version == 0 && !found.Dirty; {
	case empty && direction == Down:
		return tidemark.Errorf(tidemark.Invalid, "there is no schema to take down")
	case empty && table != "":
		return t.Named(schema.Stranger(table))
	}
	// Another process may be migrating a dirty schema.
	//rule:confirmed_is_durable.migration-under-way
	if found.Version > found.Needed {
		err := found.Reversible()
		if direction == Up {
			err = found.Fit()
		}
		if err != nil {
			err = t.Named(err)
		}
		return err
	}
	settings := t.Config.ConnConfig.Copy()
	// An index of a large table takes long, and a second process waits for the lock. The timeouts
	// of the URL and the role are meant for serving.
	settings.RuntimeParams["statement_timeout"], settings.RuntimeParams["lock_timeout"] = "0", "0"
	err = run(ctx, *settings, files)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, schema.ErrNewer):
		return migrate(ctx, url, direction, files) // which finds the newer schema
	case condition(err) == noPrivilege:
		err = tidemark.Wrap(tidemark.Unavailable, err,
			"the role may not change the schema: "+words(err)+
				"; migrate as the role that owns the database")
	}
	return t.Named(public(err))
}

// Status returns the schema of the database. Errors: Invalid (the URL), Unavailable.
func Status(ctx context.Context, url string) (storage.Schema, error) {
	return status(ctx, url, migrations.Postgres)
}

func status(ctx context.Context, url string, files fs.FS) (storage.Schema, error) {
	t, err := dsn.Parse(url, 0, 0)
	if err != nil {
		return storage.Schema{}, err
	}
	found, _, err := look(ctx, t, files)
	return found, err
}

// look returns the schema of the database, and the name of a table that existed before the first
// migration, "" if there is none.
func look(
	ctx context.Context, t *dsn.DSN, files fs.FS,
) (found storage.Schema, table string, err error) {
	pool, err := t.Pool(ctx, 1, nil)
	if err != nil {
		return storage.Schema{}, "", err
	}
	defer pool.Close()
	err = attempts(ctx, pool, mayRepeat, func(ctx context.Context, c *conn) (err error) {
		if table, err = schema.Taken(ctx, c); err == nil {
			found, err = schema.Read(ctx, c, files)
		}
		return err
	})
	if err != nil {
		return storage.Schema{}, "", t.Named(err)
	}
	return found, table, nil
}

// promises returns an error unless the database can store every text, and confirms a commit only
// when it is on disk.
func promises(ctx context.Context, c *conn) error {
	var readOnly, fsync, commit, encoding string
	const text = `SELECT current_setting('transaction_read_only'), current_setting('fsync'),
		current_setting('synchronous_commit'), current_setting('server_encoding')`
	err := c.QueryRow(ctx, text).Scan(&readOnly, &fsync, &commit, &encoding)
	switch {
	case err != nil:
		return err
	case readOnly == "on":
		return tidemark.Errorf(tidemark.Unavailable,
			"the database is read-only: it is a standby, or default_transaction_read_only is on")
	//rule:confirmed_is_durable.refuse-fsync-off
	case fsync == "off":
		return tidemark.Errorf(tidemark.Conflict,
			"fsync is off in the database, so a confirmed message could be lost; turn it on in "+
				"postgresql.conf")
	case encoding != "UTF8":
		return tidemark.Errorf(tidemark.Conflict,
			"the database has the encoding %s, which cannot hold every text; create it with "+
				"ENCODING 'UTF8' TEMPLATE template0", encoding)
	//rule:confirmed_is_durable.refuse-commit-off
	case commit == "off":
		return tidemark.Errorf(tidemark.Conflict,
			"synchronous_commit is off in the database, so a confirmed message could be lost; "+
				"turn it on in postgresql.conf, or for the role: "+
				"ALTER ROLE … SET synchronous_commit = on")
	}
	return nil
}
