package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/versions"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/schema"
)

// Direction says whether Migrate goes up or down.
type Direction string

// The directions of a migration.
const (
	// Up runs every migration that the database lacks.
	Up Direction = "up"
	// Down reverts the latest migration. It destroys the data that only the newer schema can store.
	// Reverting the first migration destroys all data.
	Down Direction = "down"
)

// Migrate changes the schema of the database at path. Up creates the file if it is missing. If a
// newer program made the schema and this program can use it, Up does nothing.
//
// Errors:
//   - Invalid: the direction; there is no migration to revert.
//   - Conflict: a server has the database open; an earlier migration failed half-way; the schema is
//     of a newer program.
//   - Unavailable: the file cannot be used.
func Migrate(path string, direction Direction) error {
	return migrate(path, direction, migrations.SQLite)
}

func migrate(path string, direction Direction, files fs.FS) error {
	path, err := resolve(path)
	if err != nil {
		return err
	}
	held, err := lock(path)
	if err != nil {
		return err
	}
	defer held.Close()
	closed := closedAs(path, held)
	found, err := look(path, files, false)
	if err != nil {
		return err
	}
	switch direction {
	case Up:
		err = raise(path, found, files)
	case Down:
		err = lower(path, found, files)
	default:
		return tidemark.Errorf(tidemark.Invalid, "a migration goes %q or %q, not %q",
			Up, Down, direction)
	}
	//rule:restore_is_noticed.migration-is-no-restore
	if closed != "" {
		noteAgain(held, path, closed)
	}
	return health.At(path, err)
}

// raise runs the migrations that the database lacks.
func raise(path string, found storage.Schema, files fs.FS) error {
	if !found.Upgradable() {
		return found.Fit()
	}
	return schema.Up(path, files)
}

// lower reverts the latest migration.
func lower(path string, found storage.Schema, files fs.FS) error {
	if found.Version == 0 {
		return tidemark.Errorf(tidemark.Invalid, "there is no schema to take down")
	}
	if err := errors.Join(found.Ended(), found.Reversible()); err != nil {
		return err
	}
	return schema.Down(path, files)
}

// Status returns the schema of the database at path. NotFound: there is no file. A server may have
// the database open.
func Status(path string) (storage.Schema, error) { return status(path, migrations.SQLite) }

func status(path string, files fs.FS) (storage.Schema, error) {
	if _, err := os.Stat(path); err != nil {
		return storage.Schema{}, tidemark.Wrap(tidemark.NotFound, err, "there is no database "+path)
	}
	path, err := resolve(path)
	if err != nil {
		return storage.Schema{}, err
	}
	return look(path, files, true)
}

// look returns the schema of the database. If the file is missing or empty, the version is 0.
func look(path string, files fs.FS, readOnly bool) (found storage.Schema, err error) {
	if found.Needed, err = versions.Newest(files, "sqlite"); err != nil {
		return found, err
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return found, nil
	}
	c, err := open(path, readOnly)
	if err == nil {
		defer c.close()
		err = c.readSchema(&found)
	}
	return found, health.At(path, health.Public(err))
}

// readSchema reads the schema of an open database. A migration changes schema_compatible in the
// same transaction as the rest. Errors: Conflict (the schema was damaged).
func (c *conn) readSchema(found *storage.Schema) error {
	for _, read := range []struct {
		table, text string
		into        func(*stmt)
	}{
		{"schema_migrations", "SELECT version, dirty FROM schema_migrations", func(row *stmt) {
			found.Version, found.Dirty = uint(max(row.integerAt(0), 0)), row.integerAt(1) != 0
		}},
		{"schema_compatible", "SELECT version FROM schema_compatible", func(row *stmt) {
			found.Compatible = uint(max(row.integerAt(0), 0))
		}},
	} {
		there, err := c.has(read.table)
		if err != nil {
			return err
		}
		if !there {
			break
		}
		row, err := c.prepare(read.text)
		if err != nil {
			return err
		}
		_, err = row.one(read.into)
		row.Finalize()
		if err != nil {
			return err
		}
	}
	if found.Version > 0 || found.Dirty {
		return found.Whole()
	}
	there, err := c.has("chats")
	if err == nil && there {
		err = tidemark.Errorf(tidemark.Conflict,
			"the database has tables and no version: it was damaged, or it is another program's; "+
				"restore a backup, or give Tidemark another --store")
	}
	return err
}

// has reports whether the database has a table.
func (c *conn) has(table string) (bool, error) {
	tables, err := c.prepare("SELECT 1 FROM sqlite_schema WHERE name = ?")
	if err != nil {
		return false, err
	}
	defer tables.Finalize()
	tables.string(1, table)
	return tables.one(func(*stmt) {})
}

// ensure creates the database, or updates its schema, if needed. It does not change a newer schema
// that this program can use. An existing file must be a database.
func ensure(path string, files fs.FS) error {
	found, err := look(path, files, false)
	if err != nil {
		return err
	}
	return raise(path, found, files)
}

// logBesideLink reports whether there is a log at a path that SQLite would not find, because the
// path is a link to another place.
func logBesideLink(link, real string) bool {
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		return false
	}
	beside, err := os.Stat(link + "-wal")
	if err != nil || beside.Size() == 0 {
		return false
	}
	log, err := os.Stat(real + "-wal")
	return err != nil || !os.SameFile(beside, log)
}

// resolve returns the absolute path, with symbolic links followed. So a database has one lock file,
// whichever path leads to it.
func resolve(path string) (string, error) {
	if path == "" {
		return "", tidemark.Errorf(tidemark.Invalid, "the path of the database is empty")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", tidemark.Wrap(tidemark.Invalid, err,
			"the path of the database cannot be made absolute")
	}
	directory := filepath.Dir(path)
	switch info, err := os.Stat(directory); {
	case err != nil:
		return "", tidemark.Wrap(tidemark.Unavailable, err,
			"the directory "+directory+
				" of the database does not exist or cannot be entered; create it")
	case !info.IsDir():
		return "", tidemark.Errorf(tidemark.Unavailable,
			"%s is not a directory, so the database cannot be in it", directory)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		//rule:confirmed_is_durable.refuse-log-beside-link
		if logBesideLink(path, real) {
			return "", tidemark.Errorf(tidemark.Unavailable,
				"%[1]s is a link to the database %[2]s, and the log %[1]s-wal is beside the link; "+
					"it may hold confirmed messages: put the database in the place of the link, "+
					"or move the log away", path, real)
		}
		return real, nil
	}
	if directory, err = filepath.EvalSymlinks(directory); err != nil {
		return "", tidemark.Wrap(tidemark.Unavailable, err,
			"the directory of the database cannot be found")
	}
	return filepath.Join(directory, filepath.Base(path)), nil
}
