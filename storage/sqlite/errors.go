package sqlite

import (
	"errors"

	lib "modernc.org/sqlite/lib"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/capi"
)

// primary returns the primary result code of an error of SQLite, 0 of any other.
func primary(err error) int32 {
	var f *capi.Failure
	if errors.As(err, &f) {
		return f.Primary()
	}
	return 0
}

// unknownOutcome reports whether a commit or checkpoint that failed so may have left the files in any state.
func unknownOutcome(err error) bool { return primary(err) == lib.SQLITE_IOERR }

// itemsFault reports whether an error of SQLite may lie in the item and not in the database: another one may succeed.
func itemsFault(err error) bool {
	switch primary(err) {
	case lib.SQLITE_CONSTRAINT, lib.SQLITE_TOOBIG, lib.SQLITE_MISMATCH, lib.SQLITE_RANGE:
		return true
	default:
		return false
	}
}

// public makes an error of SQLite one of the contract. Others stay as they are.
func public(err error) error {
	var f *capi.Failure
	if !errors.As(err, &f) {
		return err
	}
	switch f.Primary() {
	case lib.SQLITE_FULL:
		return tidemark.Wrap(tidemark.Unavailable, err, "the disk of the database is full; free some space")
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return tidemark.Wrap(tidemark.Unavailable, err, "the database is locked by another program; end it, or try again")
	case lib.SQLITE_READONLY, lib.SQLITE_PERM:
		return tidemark.Wrap(tidemark.Unavailable, err, "the database cannot be written; check the permissions of its file and directory")
	case lib.SQLITE_CANTOPEN:
		return tidemark.Wrap(tidemark.Unavailable, err, "the database file cannot be opened")
	case lib.SQLITE_IOERR:
		return tidemark.Wrap(tidemark.Unavailable, err, "the disk of the database failed")
	case lib.SQLITE_NOMEM, lib.SQLITE_INTERRUPT:
		return tidemark.Wrap(tidemark.Unavailable, err, "the database cannot serve the call now; try again")
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return tidemark.Wrap(tidemark.Internal, err, "the database is corrupt")
	default:
		return tidemark.Wrap(tidemark.Internal, err, "the database refused a statement")
	}
}
