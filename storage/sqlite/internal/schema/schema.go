// Package schema runs the migrations of the SQLite store. The caller holds the lock of the
// database.
package schema

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"

	"github.com/golang-migrate/migrate/v4"
	driver "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
)

// PageSize is the page size of a new database in bytes. A usual message takes a quarter of a page,
// so it needs no overflow page.
const PageSize = 4096

// Up updates the schema to the newest version that this program knows. It creates the file if it is
// missing.
//
// Conflict: an earlier migration failed half-way, or the schema is newer than this program.
// Unavailable: the file cannot be used.
func Up(path string) error {
	needed, err := Newest()
	if err != nil {
		return err
	}
	return with(path, func(m *migrate.Migrate, version uint, dirty bool) error {
		switch {
		case dirty:
			return tidemark.Errorf(tidemark.Conflict,
				"an earlier migration of %s to version %d failed half-way; restore a backup", path,
				version)
		case version > needed:
			return tidemark.Errorf(tidemark.Conflict,
				"the database %s has schema version %d, and this program knows versions up to "+
					"%d; run a newer program", path, version, needed)
		}
		if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
			return err
		}
		return nil
	})
}

// Down reverts the latest migration. Invalid: there is none.
func Down(path string) error {
	return with(path, func(m *migrate.Migrate, version uint, _ bool) error {
		if version == 0 {
			return tidemark.Errorf(tidemark.Invalid, "the database %s has no schema to take down",
				path)
		}
		return m.Steps(-1)
	})
}

// with opens the database and runs do with the version of its schema, 0 if it is empty.
func with(path string, do func(m *migrate.Migrate, version uint, dirty bool) error) (err error) {
	source, err := iofs.New(migrations.SQLite, "sqlite")
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "the embedded migrations cannot be read")
	}
	// A URI can represent every character of a path.
	uri := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{"_pragma": {
		fmt.Sprintf("page_size(%d)", PageSize), "journal_mode(wal)", "synchronous(full)",
		"busy_timeout(5000)",
	}}.Encode()}
	db, err := sql.Open("sqlite", uri.String())
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the database "+path+" cannot be opened")
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	target, err := driver.WithInstance(db, &driver.Config{})
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the database "+path+
			" cannot be opened; check that it is one, its permissions, and the space on its disk")
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", target)
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "the migrations cannot be prepared")
	}
	defer m.Close()
	version, dirty, err := m.Version()
	if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"the schema version of "+path+" cannot be read")
	}
	if err := do(m, version, dirty); err != nil {
		if tidemark.CodeOf(err) != tidemark.Internal {
			return err
		}
		return tidemark.Wrap(tidemark.Unavailable, err, "the migration of "+path+" failed")
	}
	return nil
}

// Newest returns the highest version of the embedded migrations.
func Newest() (uint, error) {
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
