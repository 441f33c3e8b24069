// Package schema runs the migrations of the SQLite store. The caller holds the lock of the
// database. The migrations are in the folder "sqlite" of a file system.
package schema

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"

	"github.com/golang-migrate/migrate/v4"
	driver "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/tidemark-im/tidemark"
)

// PageSize is the page size of a new database in bytes. A usual message takes a quarter of a page,
// so it needs no overflow page.
const PageSize = 4096

// Up runs every migration of files that the database lacks. It creates the file if it is missing.
// The caller has checked that the database is not newer. Unavailable: the file cannot be used.
func Up(path string, files fs.FS) error {
	return with(path, files, func(m *migrate.Migrate) error {
		if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
			return err
		}
		return nil
	})
}

// Down reverts the latest migration, which files must have.
func Down(path string, files fs.FS) error {
	return with(path, files, func(m *migrate.Migrate) error { return m.Steps(-1) })
}

// with opens the database and runs do with its migrator.
func with(path string, files fs.FS, do func(*migrate.Migrate) error) (err error) {
	source, err := iofs.New(files, "sqlite")
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
	if err := do(m); err != nil {
		if tidemark.CodeOf(err) != tidemark.Internal {
			return err
		}
		return tidemark.Wrap(tidemark.Unavailable, err, "the migration of "+path+" failed")
	}
	return nil
}
