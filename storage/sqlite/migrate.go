package sqlite

import (
	"os"
	"path/filepath"

	"github.com/tidemark-im/tidemark"
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

// Schema describes the schema of a database.
type Schema struct {
	// Version is the version of the database, 0 if it is empty. Needed is the version of this
	// program.
	Version uint
	Needed  uint
	// Dirty reports that a migration failed half-way. An operator must repair the database.
	Dirty bool
}

// Migrate changes the schema of the database at path. It creates the file if it is missing.
// Conflict: a server has the database open.
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
	switch direction {
	case Up:
		return schema.Up(path)
	case Down:
		return schema.Down(path)
	default:
		return tidemark.Errorf(tidemark.Invalid, "a migration goes %q or %q, not %q",
			Up, Down, direction)
	}
}

// Status returns the schema of the database at path. NotFound: there is no file. A server may have
// the database open.
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
		return Schema{}, health.Public(err)
	}
	defer c.close()
	found, err := readSchema(c)
	return found, health.Public(err)
}

// readSchema returns the schema of an open database.
func readSchema(c *conn) (found Schema, err error) {
	if found.Needed, err = schema.Newest(); err != nil {
		return found, err
	}
	tables, err := c.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations'")
	if err != nil {
		return found, err
	}
	defer tables.Finalize()
	if there, err := tables.one(func(*stmt) {}); err != nil || !there {
		return found, err
	}
	version, err := c.prepare("SELECT version, dirty FROM schema_migrations")
	if err != nil {
		return found, err
	}
	defer version.Finalize()
	_, err = version.one(func(row *stmt) {
		found.Version, found.Dirty = uint(max(row.integerAt(0), 0)), row.integerAt(1) != 0
	})
	return found, err
}

// ensure creates the database, or updates its schema, if needed. An existing file must be a
// database.
func ensure(path string) error {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return schema.Up(path)
	}
	c, err := open(path, false)
	if err != nil {
		return err
	}
	found, err := readSchema(c)
	c.close()
	if err != nil || found.Version == found.Needed && !found.Dirty {
		return err
	}
	return schema.Up(path)
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
		return real, nil
	}
	if directory, err = filepath.EvalSymlinks(directory); err != nil {
		return "", tidemark.Wrap(tidemark.Unavailable, err,
			"the directory of the database cannot be found")
	}
	return filepath.Join(directory, filepath.Base(path)), nil
}
