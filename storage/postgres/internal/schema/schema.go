// Package schema runs the migrations of the Postgres store. They are in the folder "postgres" of a
// file system.
package schema

import (
	"context"
	"errors"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	driver "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/versions"
)

// ErrNewer reports that the latest migration of the database is not among the files.
var ErrNewer = fs.ErrNotExist

// Up runs every migration of files that the database lacks. It holds a lock in the database. If
// several processes run Up at once, one does the work, and the others find it done. It returns
// ErrNewer if a newer program was quicker.
func Up(ctx context.Context, config pgx.ConnConfig, files fs.FS) error {
	return with(ctx, config, files, (*migrate.Migrate).Up)
}

// Down reverts the latest migration, under the same lock as Up. It returns ErrNewer like Up.
func Down(ctx context.Context, config pgx.ConnConfig, files fs.FS) error {
	return with(ctx, config, files, func(m *migrate.Migrate) error { return m.Steps(-1) })
}

// with runs do with a migrator of the database, and returns the database's own errors.
func with(
	ctx context.Context, config pgx.ConnConfig, files fs.FS, do func(*migrate.Migrate) error,
) error {
	source, err := iofs.New(files, "postgres")
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "the embedded migrations cannot be read")
	}
	if config.RuntimeParams["search_path"], err = home(ctx, config); err != nil {
		return err
	}
	db := stdlib.OpenDB(config)
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	target, err := driver.WithInstance(db, &driver.Config{})
	if err != nil {
		return cause(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "pgx5", target)
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "the migrations cannot be prepared")
	}
	defer m.Close()
	err = do(m)
	var dirty migrate.ErrDirty
	switch {
	case errors.As(err, &dirty):
		// No other process holds the lock, so that migration has ended: it failed.
		return storage.Schema{Version: uint(max(dirty.Version, 0)), Dirty: true}.Ended()
	case errors.Is(err, migrate.ErrNoChange):
		return nil
	default:
		return cause(err)
	}
}

// home returns the schema that has the tables, at any place in the search path. If there are no
// tables, it returns the schema where they will be created. A schema that is created earlier in the
// path later must not get a second set of tables.
func home(ctx context.Context, config pgx.ConnConfig) (name string, err error) {
	c, err := pgx.ConnectConfig(ctx, &config)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close(ctx) }()
	const text = `SELECT quote_ident(coalesce((SELECT n.nspname
		FROM pg_class AS t JOIN pg_namespace AS n ON n.oid = t.relnamespace
		WHERE t.oid = to_regclass('schema_migrations')), current_schema(), ''))`
	if err = c.QueryRow(ctx, text).Scan(&name); err == nil && name == `""` {
		err = tidemark.Errorf(tidemark.Conflict,
			"the search_path names no schema that exists and that the role may use; create "+
				"the schema, or grant the role its use")
	}
	return name, err
}

// cause returns the database's error that golang-migrate has wrapped. errors.As does not find it.
func cause(err error) error {
	var value database.Error
	var pointer *database.Error
	switch {
	case errors.As(err, &value) && value.OrigErr != nil:
		return value.OrigErr
	case errors.As(err, &pointer) && pointer.OrigErr != nil:
		return pointer.OrigErr
	default:
		return err
	}
}

// Querier is a connection to the database.
type Querier interface {
	QueryRow(ctx context.Context, text string, parameters ...any) pgx.Row
}

// tables selects the name of one of Tidemark's tables that exist, or "". It looks in the search
// path, as every other statement does.
const tables = `SELECT coalesce(min(name), '')
	FROM unnest('{chats,members,messages,delivery_state,pending_deliveries}'::text[]) AS t (name)
	WHERE to_regclass(name) IS NOT NULL`

// Conditions that Read expects (Postgres, Appendix A).
const (
	undefinedColumn = "42703"
	undefinedTable  = "42P01"
)

// Taken returns the name of a table that the first migration would create and that exists already,
// or "" if there is none. Call it before Read: if the table is Tidemark's own, Read then finds a
// version.
func Taken(ctx context.Context, c Querier) (table string, err error) {
	err = c.QueryRow(ctx, tables).Scan(&table)
	return table, err
}

// Stranger returns a Conflict: a table with a name of ours belongs to another program. The other
// program may use the same migration library.
func Stranger(table string) error {
	return tidemark.Errorf(tidemark.Conflict,
		"the table %s is there already, and it is another program's; give Tidemark a database of "+
			"its own, or a schema (search_path)", table)
}

// Read returns the schema of the database. A migration changes schema_compatible in the same
// transaction as the rest. Errors: Conflict (the table of versions is another program's, or was
// damaged; a newer program's migration is under way and may break this program).
func Read(ctx context.Context, c Querier, files fs.FS) (found storage.Schema, err error) {
	if found.Needed, err = versions.Newest(files, "postgres"); err != nil {
		return found, err
	}
	var there bool
	const exists = "SELECT to_regclass('schema_migrations') IS NOT NULL"
	if err := c.QueryRow(ctx, exists).Scan(&there); err != nil || !there {
		return found, err
	}
	var version, compatible int64
	err = c.QueryRow(ctx, "SELECT version, dirty FROM schema_migrations").
		Scan(&version, &found.Dirty)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return found, nil
	case condition(err) == undefinedColumn:
		return found, Stranger("schema_migrations")
	case err != nil:
		return found, err
	case version <= 0:
		return found, nil
	}
	found.Version = uint(version)
	// The look comes first: if the migration ends after it, the new row is read.
	if found.Dirty && found.Version > found.Needed {
		if err := contracting(ctx, c, found.Version); err != nil {
			return found, err
		}
	}
	err = c.QueryRow(ctx, "SELECT version FROM schema_compatible").Scan(&compatible)
	if err != nil && condition(err) != undefinedTable && !errors.Is(err, pgx.ErrNoRows) {
		return found, err
	}
	found.Compatible = uint(max(compatible, 0))
	return found, found.Whole()
}

// contracting returns a Conflict if a migration is under way that changes schema_compatible. Such a
// migration does so first, and the lock is held until it ends. If it has failed, nobody holds it.
func contracting(ctx context.Context, c Querier, version uint) error {
	var locked bool
	const text = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND relation = to_regclass('schema_compatible') AND granted AND mode IN
		('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))`
	err := c.QueryRow(ctx, text).Scan(&locked)
	//rule:schema_fits.refuse-during-contract
	if err == nil && locked {
		err = tidemark.Errorf(tidemark.Conflict,
			"a newer program's migration to version %d is under way, and takes away what older "+
				"programs need; start this program again when the migration has ended", version)
	}
	return err
}

// condition returns the condition of an error of Postgres, or "" if it is another error.
func condition(err error) string {
	var said *pgconn.PgError
	if !errors.As(err, &said) {
		return ""
	}
	return said.Code
}
