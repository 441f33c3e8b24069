package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
)

// The SQLSTATE codes that this package tells apart (Postgres, Appendix A).
const (
	uniqueViolation     = "23505"
	serializationFailed = "40001"
	deadlockDetected    = "40P01"
	lockNotAvailable    = "55P03"
	readOnlyTransaction = "25006"
	diskFull            = "53100"
	tooManyConnections  = "53300"
	queryCanceled       = "57014"
	noPrivilege         = "42501"
	undefinedTable      = "42P01"
	undefinedColumn     = "42703"
	idleInTransaction   = "25P03" // between two statements of a transaction
)

// unreached is the error of a call that got no connection. The database has not seen the call.
type unreached struct{ cause error }

func (e *unreached) Error() string { return "no connection to the database: " + e.cause.Error() }

func (e *unreached) Unwrap() error { return e.cause }

// A hole is a message that must exist and is missing.
type hole struct {
	chat     tidemark.ChatID
	sequence tidemark.Sequence
}

func (e *hole) Error() string {
	return fmt.Sprintf("message %d of chat %s is missing", e.sequence, e.chat)
}

// condition returns the SQLSTATE of an error, or "" if the error has none.
func condition(err error) string {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return said.Code
	}
	return ""
}

// class returns the first two characters of the SQLSTATE.
func class(err error) string {
	if code := condition(err); len(code) == 5 {
		return code[:2]
	}
	return ""
}

// readOnly reports whether the server accepts no writes. Either it refused one, or the check of a
// new connection found it read-only.
func readOnly(err error) bool {
	return condition(err) == readOnlyTransaction || errors.Is(err, pgconn.ErrReadOnlyConnection)
}

// notPerformed reports whether an error means that nothing was changed, and that another attempt
// may succeed.
func notPerformed(err error) bool {
	var e *unreached
	switch condition(err) {
	//rule:bounded_use.try-again-after-silence
	case serializationFailed, deadlockDetected, idleInTransaction:
		return true
	case "":
		return errors.As(err, &e)
	default:
		return readOnly(err) || errors.As(err, &e) && class(err) != "28"
	}
}

// mayRepeat reports whether another attempt may succeed. The call must be safe to repeat, since the
// first attempt may have been performed.
func mayRepeat(err error) bool {
	var e *tidemark.Error
	var h *hole
	switch {
	case notPerformed(err):
		return true
	case errors.As(err, &e), errors.As(err, &h):
		return false
	}
	switch class(err) {
	case "": // The connection broke.
		return true
	case "08", "57":
		return condition(err) != queryCanceled
	default:
		return false
	}
}

// itemsFault reports whether the cause of an error may be one item, or the chat it names. The other
// items of the batch may succeed without it.
func itemsFault(err error) bool {
	switch class(err) {
	case "22", "23", "54":
		return true
	default:
		return condition(err) == lockNotAvailable
	}
}

// public returns err as a *tidemark.Error, the only errors that storage.Store allows. It returns
// such an error as it is.
func public(err error) error {
	var e *tidemark.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	const unavailable = tidemark.Unavailable
	var h *hole
	var never *unreached
	said := condition(err)
	switch {
	case errors.As(err, &h):
		return tidemark.Wrap(unavailable, err,
			"the database is corrupt; stop the server and restore a backup")
	case said == diskFull:
		return tidemark.Wrap(unavailable, err, "the disk of the database is full; free some space")
	case said == tooManyConnections:
		return tidemark.Wrap(unavailable, err,
			"the database has no connection left; raise its max_connections, or lower "+
				"pool_writers and pool_readers")
	case readOnly(err):
		return tidemark.Wrap(unavailable, err,
			"the database is read-only: it is a standby, or default_transaction_read_only is on")
	case said == lockNotAvailable:
		return tidemark.Wrap(unavailable, err,
			"something holds a lock in the database: another program, or a commit that waits for "+
				"the disk; try again")
	case said == idleInTransaction:
		return tidemark.Wrap(unavailable, err,
			"the database ended a transaction in which the server was silent; try again")
	case said == queryCanceled:
		return tidemark.Wrap(unavailable, err,
			"the database cancelled a statement that took too long; try again")
	case said == noPrivilege:
		return tidemark.Wrap(unavailable, err,
			"the role may not use the tables of the database; grant it SELECT, INSERT, UPDATE "+
				"and DELETE")
	case said == undefinedTable, said == undefinedColumn:
		return tidemark.Wrap(unavailable, err,
			"the database lacks the schema that this program needs; run tidemark migrate up")
	case class(err) == "28", class(err) == "3D":
		return tidemark.Wrap(unavailable, err, "the database refused the connection: "+words(err))
	case slices.Contains([]string{"53", "57", "58", "40", "08"}, class(err)):
		return tidemark.Wrap(unavailable, err,
			"the database cannot serve the call now: "+words(err))
	case class(err) == "XX":
		return tidemark.Wrap(unavailable, err, "the database reports damage; look into its log")
	case said != "" && errors.As(err, &never):
		return tidemark.Wrap(unavailable, err, "the database refused the connection: "+words(err))
	case said != "":
		return tidemark.Wrap(tidemark.Internal, err, "the database refused a statement")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return tidemark.Wrap(unavailable, err, "the database did not answer in time; try again")
	case errors.As(err, &never):
		return tidemark.Wrap(unavailable, err,
			"the database cannot be reached; check that it runs, and the network")
	default:
		//rule:confirmed_is_durable.broken-connection-is-temporary
		return tidemark.Wrap(unavailable, err, "the connection to the database broke; try again")
	}
}

// words returns the database's message.
func words(err error) string {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return said.Message
	}
	return err.Error()
}
