// Package schema runs the migrations of the Postgres store.
package schema

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	driver "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
)

// Up runs every migration that the database lacks. It holds a lock in the database. If several
// processes run Up at once, one does the work, and the others find it done.
func Up(ctx context.Context, config pgx.ConnConfig) error {
	return with(ctx, config, (*migrate.Migrate).Up)
}

// Down reverts the latest migration, under the same lock as Up. It returns Invalid if there is
// none.
func Down(ctx context.Context, config pgx.ConnConfig) error {
	err := with(ctx, config, func(m *migrate.Migrate) error { return m.Steps(-1) })
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, migrate.ErrNilVersion) {
		return tidemark.Errorf(tidemark.Invalid, "there is no schema to take down")
	}
	return err
}

// with runs do with a migrator of the database, and returns the database's own errors.
func with(ctx context.Context, config pgx.ConnConfig, do func(*migrate.Migrate) error) error {
	source, err := iofs.New(migrations.Postgres, "postgres")
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
		return HalfWay(uint(max(dirty.Version, 0)))
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

// HalfWay returns a Conflict: a migration to a version has begun, and has not ended.
func HalfWay(version uint) error {
	return tidemark.Errorf(tidemark.Conflict,
		"a migration to version %d failed half-way, or has not ended yet; if it failed, repair "+
			"the schema by hand, or restore a backup", version)
}

// Querier is a connection to the database.
type Querier interface {
	QueryRow(ctx context.Context, text string, parameters ...any) pgx.Row
}

// tables counts Tidemark's tables that exist, and returns the name of one of them. It looks in the
// search path, as every other statement does.
const tables = `SELECT count(*), coalesce(min(name), '')
	FROM unnest('{chats,members,messages,delivery_state,pending_deliveries}'::text[]) AS t (name)
	WHERE to_regclass(name) IS NOT NULL`

const (
	ourTables       = 5
	undefinedColumn = "42703" // a condition (Postgres, Appendix A)
)

// Taken returns the name of a table that the first migration would create and that exists already,
// or "" if there is none. Call it before Read: if the table is Tidemark's own, Read then finds a
// version.
func Taken(ctx context.Context, c Querier) (table string, err error) {
	err = c.QueryRow(ctx, tables).Scan(nil, &table)
	return table, err
}

// Stranger returns a Conflict: a table with a name of ours belongs to another program. The other
// program may use the same migration library.
func Stranger(table string) error {
	return tidemark.Errorf(tidemark.Conflict,
		"the table %s is there already, and it is another program's; give Tidemark a database of "+
			"its own, or a schema (search_path)", table)
}

// Read returns the version of the database, 0 if it is empty, and whether a migration to it failed
// half-way. It returns Conflict if the version belongs to another program.
func Read(ctx context.Context, c Querier) (version uint, dirty bool, err error) {
	var there bool
	const exists = "SELECT to_regclass('schema_migrations') IS NOT NULL"
	if err := c.QueryRow(ctx, exists).Scan(&there); err != nil || !there {
		return 0, false, err
	}
	var found int64
	err = c.QueryRow(ctx, "SELECT version, dirty FROM schema_migrations").Scan(&found, &dirty)
	var other *pgconn.PgError
	switch newest, e := Newest(); {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, nil
	case errors.As(err, &other) && other.Code == undefinedColumn:
		return 0, false, Stranger("schema_migrations")
	case err != nil || e != nil:
		return 0, false, errors.Join(err, e)
	case !dirty && found > 0 && found <= int64(newest):
		var there int
		if err := c.QueryRow(ctx, tables).Scan(&there, nil); err != nil {
			return 0, false, err
		}
		if there < ourTables {
			return 0, false, Stranger("schema_migrations")
		}
	}
	return uint(max(found, 0)), dirty, nil
}

// Newest returns the highest version of the embedded migrations.
func Newest() (uint, error) {
	names, err := fs.Glob(migrations.Postgres, "postgres/*.up.sql")
	if err != nil || len(names) == 0 {
		return 0, tidemark.Errorf(tidemark.Internal, "the embedded migrations are missing")
	}
	var version uint
	if _, err := fmt.Sscanf(path.Base(names[len(names)-1]), "%d_", &version); err != nil {
		return 0, tidemark.Wrap(tidemark.Internal, err, "the embedded migrations have no version")
	}
	return version, nil
}
