package health

import (
	"errors"
	"fmt"
	"strings"

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

// UnknownOutcome reports whether a commit or checkpoint that failed so may have left the files in any state.
//
//rule:confirmed_is_durable.full-index-is-known-outcome
func UnknownOutcome(err error) bool { return primary(err) == lib.SQLITE_IOERR && !Full(err) }

// Full reports whether there is no space. The log's index asks for its space in another way than the files do.
func Full(err error) bool {
	var f *capi.Failure
	return errors.As(err, &f) &&
		(f.Primary() == lib.SQLITE_FULL || f.Code == lib.SQLITE_IOERR_SHMSIZE)
}

// corrupt reports whether the files hold what SQLite, or this package, cannot have written.
func corrupt(err error) bool {
	p := primary(err)
	return p == lib.SQLITE_CORRUPT || p == lib.SQLITE_NOTADB
}

// Missing is the error for a message that must exist and is not there.
func Missing(chat tidemark.ChatID, sequence tidemark.Sequence) error {
	return &capi.Failure{
		Code:    lib.SQLITE_CORRUPT,
		Message: fmt.Sprintf("message %d of chat %s is missing", sequence, chat),
		During:  "reading a range",
	}
}

// ItemsFault reports whether an error of SQLite may lie in the item and not in the database: another one may succeed.
func ItemsFault(err error) bool {
	switch primary(err) {
	case lib.SQLITE_CONSTRAINT, lib.SQLITE_TOOBIG, lib.SQLITE_MISMATCH, lib.SQLITE_RANGE:
		return true
	default:
		return false
	}
}

// Public makes an error of SQLite one of the contract. Others stay as they are.
func Public(err error) error {
	var f *capi.Failure
	if !errors.As(err, &f) {
		return err
	}
	const unavailable = tidemark.Unavailable
	switch f.Primary() {
	case lib.SQLITE_FULL:
		return tidemark.Wrap(unavailable, err, "the disk of the database is full; free some space")
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return tidemark.Wrap(unavailable, err,
			"the database is locked by another program; end it, or try again")
	case lib.SQLITE_READONLY, lib.SQLITE_PERM, lib.SQLITE_AUTH:
		return tidemark.Wrap(unavailable, err,
			"the database cannot be written; check the permissions of its file and directory, "+
				"and that its file system is not read-only")
	case lib.SQLITE_CANTOPEN:
		return tidemark.Wrap(unavailable, err,
			"the database file cannot be opened; check its permissions, and the space on its disk")
	case lib.SQLITE_IOERR:
		if Full(err) {
			return tidemark.Wrap(unavailable, err,
				"the disk of the database is full; free some space")
		}
		return tidemark.Wrap(unavailable, err,
			"the disk of the database failed; look into the system's log")
	case lib.SQLITE_NOMEM, lib.SQLITE_INTERRUPT:
		return tidemark.Wrap(unavailable, err, "the database cannot serve the call now; try again")
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return tidemark.Wrap(unavailable, err,
			"the database is corrupt; stop the server and restore a backup")
	default:
		return tidemark.Wrap(tidemark.Internal, err, "the database refused a statement")
	}
}

// At says which database an error of the opening is about.
func At(path string, err error) error {
	detail := tidemark.DetailOf(err)
	if strings.Contains(detail, path) {
		return err
	}
	return &tidemark.Error{
		Code:   tidemark.CodeOf(err),
		Detail: path + ": " + detail,
		Err:    errors.Unwrap(err),
	}
}
