package health

import (
	"errors"
	"fmt"
	"strings"

	lib "modernc.org/sqlite/lib"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/capi"
)

// primary returns the primary result code of an error of SQLite, and 0 for any other error.
func primary(err error) int32 {
	var f *capi.Failure
	if errors.As(err, &f) {
		return f.Primary()
	}
	return 0
}

// UnknownOutcome reports whether a commit or checkpoint with this error may have left the files in
// any state.
//
//rule:confirmed_is_durable.full-index-is-known-outcome
func UnknownOutcome(err error) bool { return primary(err) == lib.SQLITE_IOERR && !Full(err) }

// Full reports whether the disk is full. The log's index reports that with a code of its own.
func Full(err error) bool {
	var f *capi.Failure
	return errors.As(err, &f) &&
		(f.Primary() == lib.SQLITE_FULL || f.Code == lib.SQLITE_IOERR_SHMSIZE)
}

// corrupt reports whether the files contain data that neither SQLite nor this package wrote.
func corrupt(err error) bool {
	p := primary(err)
	return p == lib.SQLITE_CORRUPT || p == lib.SQLITE_NOTADB
}

// Missing returns the error for a message that must exist but does not.
func Missing(chat tidemark.ChatID, sequence tidemark.Sequence) error {
	return &capi.Failure{
		Code:    lib.SQLITE_CORRUPT,
		Message: fmt.Sprintf("message %d of chat %s is missing", sequence, chat),
		During:  "reading a range",
	}
}

// ItemsFault reports whether the cause of an error of SQLite may be one item. Then other items may
// succeed.
func ItemsFault(err error) bool {
	switch primary(err) {
	case lib.SQLITE_CONSTRAINT, lib.SQLITE_TOOBIG, lib.SQLITE_MISMATCH, lib.SQLITE_RANGE:
		return true
	default:
		return false
	}
}

// Public converts an error of SQLite to one of the contract. It returns other errors as they are.
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

// At adds the path of the database to an error of Open, unless the error already names it.
func At(path string, err error) error {
	detail := tidemark.DetailOf(err)
	if err == nil || strings.Contains(detail, path) {
		return err
	}
	return &tidemark.Error{
		Code:   tidemark.CodeOf(err),
		Detail: path + ": " + detail,
		Err:    errors.Unwrap(err),
	}
}
