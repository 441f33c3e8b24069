package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/golang-migrate/migrate/v4"
	driver "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
)

// Direction is where Migrate goes.
type Direction string

// The directions.
const (
	// Up runs every migration that the database lacks.
	Up Direction = "up"
	// Down reverts the latest migration. It destroys what only the newer schema can hold; reverting the first one destroys everything.
	Down Direction = "down"
)

// Schema says which schema a database has, and which one this program needs.
type Schema struct {
	// Version is 0 for an empty database.
	Version uint
	Needed  uint
	// Dirty reports that a migration failed half-way: the database needs a person.
	Dirty bool
}

// pageSize of a new database in bytes. A message of the usual size is in a quarter of a page, so that none needs an overflow page.
const pageSize = 4096

// Migrate changes the schema of the database at path, which no server may have open (Conflict). It creates the file if it is missing.
func Migrate(path string, direction Direction) error {
	path, err := resolve(path)
	if err != nil {
		return err
	}
	held, err := lock(path)
	if err != nil {
		return err
	}
	defer held.Close()
	return withMigrations(path, func(m *migrate.Migrate, s Schema) error {
		switch direction {
		case Up:
			return up(m, s, path)
		case Down:
			if s.Version == 0 {
				return tidemark.Errorf(tidemark.Invalid, "the database %s has no schema to take down", path)
			}
			return m.Steps(-1)
		default:
			return tidemark.Errorf(tidemark.Invalid, "a migration goes %q or %q, not %q", Up, Down, direction)
		}
	})
}

// Status returns the schema of the database at path, which must exist (NotFound). A server may have it open.
func Status(path string) (Schema, error) {
	if _, err := os.Stat(path); err != nil {
		return Schema{}, tidemark.Wrap(tidemark.NotFound, err, "there is no database "+path)
	}
	path, err := resolve(path)
	if err != nil {
		return Schema{}, err
	}
	c, err := open(path, true)
	if err != nil {
		return Schema{}, public(err)
	}
	defer c.close()
	schema, err := readSchema(c)
	return schema, public(err)
}

// readSchema returns the schema of an open database.
func readSchema(c *conn) (schema Schema, err error) {
	if schema.Needed, err = newest(); err != nil {
		return schema, err
	}
	tables, err := c.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations'")
	if err != nil {
		return schema, err
	}
	defer tables.Finalize()
	if found, err := tables.one(func(*stmt) {}); err != nil || !found {
		return schema, err
	}
	version, err := c.prepare("SELECT version, dirty FROM schema_migrations")
	if err != nil {
		return schema, err
	}
	defer version.Finalize()
	_, err = version.one(func(row *stmt) {
		schema.Version, schema.Dirty = uint(max(row.integerAt(0), 0)), row.integerAt(1) != 0
	})
	return schema, err
}

// current reports whether the database is there with the schema that this program needs, so that no migration has to look at it.
func current(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	c, err := open(path, false)
	if err != nil {
		return false
	}
	defer c.close()
	schema, err := readSchema(c)
	return err == nil && schema.Version == schema.Needed && !schema.Dirty
}

// resolve returns the absolute path with symbolic links followed, so that one database has one lock file whatever it is called.
func resolve(path string) (string, error) {
	if path == "" {
		return "", tidemark.Errorf(tidemark.Invalid, "the path of the database is empty")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", tidemark.Wrap(tidemark.Invalid, err, "the path of the database cannot be made absolute")
	}
	directory := filepath.Dir(path)
	switch info, err := os.Stat(directory); {
	case err != nil:
		return "", tidemark.Wrap(tidemark.Unavailable, err, "the directory "+directory+" of the database does not exist or cannot be entered; create it")
	case !info.IsDir():
		return "", tidemark.Errorf(tidemark.Unavailable, "%s is not a directory, so the database cannot be in it", directory)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	if directory, err = filepath.EvalSymlinks(directory); err != nil {
		return "", tidemark.Wrap(tidemark.Unavailable, err, "the directory of the database cannot be found")
	}
	return filepath.Join(directory, filepath.Base(path)), nil
}

// withMigrations runs do over a database that is locked already.
func withMigrations(path string, do func(*migrate.Migrate, Schema) error) (err error) {
	needed, err := newest()
	if err != nil {
		return err
	}
	source, err := iofs.New(migrations.SQLite, "sqlite")
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "the embedded migrations cannot be read")
	}
	// In a URI every character of a path can be written.
	uri := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{"_pragma": {
		fmt.Sprintf("page_size(%d)", pageSize), "journal_mode(wal)", "synchronous(full)", "busy_timeout(5000)",
	}}.Encode()}
	db, err := sql.Open("sqlite", uri.String())
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the database "+path+" cannot be opened")
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	target, err := driver.WithInstance(db, &driver.Config{})
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the database "+path+" cannot be opened; check that it is one, and its permissions")
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", target)
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "the migrations cannot be prepared")
	}
	defer m.Close()
	version, dirty, err := m.Version()
	if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
		return tidemark.Wrap(tidemark.Unavailable, err, "the schema version of "+path+" cannot be read")
	}
	if err := do(m, Schema{Version: version, Needed: needed, Dirty: dirty}); err != nil {
		if tidemark.CodeOf(err) != tidemark.Internal {
			return err
		}
		return tidemark.Wrap(tidemark.Unavailable, err, "the migration of "+path+" failed")
	}
	return nil
}

// up brings the schema to the newest version that this program knows.
func up(m *migrate.Migrate, s Schema, path string) error {
	switch {
	case s.Dirty:
		return tidemark.Errorf(tidemark.Conflict, "an earlier migration of %s to version %d failed half-way; restore a backup", path, s.Version)
	case s.Version > s.Needed:
		return tidemark.Errorf(tidemark.Conflict, "the database %s has schema version %d, and this program knows versions up to %d; run a newer program", path, s.Version, s.Needed)
	}
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return err
	}
	return nil
}

// newest returns the highest version of the embedded migrations.
func newest() (uint, error) {
	names, err := fs.Glob(migrations.SQLite, "sqlite/*.up.sql")
	if err != nil || len(names) == 0 {
		return 0, tidemark.Errorf(tidemark.Internal, "the embedded migrations are missing")
	}
	var version uint
	if _, err := fmt.Sscanf(filepath.Base(names[len(names)-1]), "%d_", &version); err != nil {
		return 0, tidemark.Wrap(tidemark.Internal, err, "the embedded migrations have no version")
	}
	return version, nil
}
