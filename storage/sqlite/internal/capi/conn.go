// Package capi wraps SQLite's C interface, as modernc.org/sqlite translates it, with Go's types and
// errors. It is the only package that handles C's memory. It knows no tables. Callers must make its
// calls in the right order.
package capi

import (
	"fmt"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// Conn is one connection to a database. Only one goroutine may use it at a time.
type Conn struct {
	tls *libc.TLS
	db  uintptr
	// log points to a Log, or is 0. The Log is in SQLite's memory, where the hook writes it.
	log uintptr
}

// Log is the state of the write-ahead log after the latest commit of this connection.
type Log struct {
	// Frames is the length of the log in pages.
	Frames int64
	// Commits counts the commits that wrote something.
	Commits int64
}

// Open opens the database file, which must exist. The error is a *Failure.
func Open(path string, readOnly bool) (*Conn, error) {
	flags := int32(lib.SQLITE_OPEN_READWRITE | lib.SQLITE_OPEN_NOMUTEX)
	if readOnly {
		flags = lib.SQLITE_OPEN_READONLY | lib.SQLITE_OPEN_NOMUTEX
	}
	c := &Conn{tls: libc.NewTLS()}
	name := c.alloc(path + "\x00\x00")
	handle := lib.Xsqlite3_malloc(c.tls, 8)
	rc := lib.Xsqlite3_open_v2(c.tls, name, handle, flags, 0)
	c.db = *(*uintptr)(pointer(handle))
	lib.Xsqlite3_free(c.tls, handle)
	lib.Xsqlite3_free(c.tls, name)
	if rc != lib.SQLITE_OK {
		err := c.failure(rc, "open "+path)
		c.Close()
		return nil, err
	}
	lib.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	// If the file may not be written, SQLite opens it for reading without an error.
	if !readOnly && lib.Xsqlite3_db_readonly(c.tls, c.db, 0) == 1 {
		err := c.failure(lib.SQLITE_READONLY, "open "+path)
		c.Close()
		return nil, err
	}
	if rc := c.keepPlans(); rc != lib.SQLITE_OK {
		err := c.failure(rc, "keep the plans of prepared statements")
		c.Close()
		return nil, err
	}
	return c, nil
}

// keepPlans turns on the query planner stability guarantee. Without it, SQLite plans a prepared
// statement again whenever a parameter that the planner read has a new value. For the lists, that
// was most of their cost.
func (c *Conn) keepPlans() (rc int32) {
	arguments := lib.Xsqlite3_malloc(c.tls, 2*8)
	defer lib.Xsqlite3_free(c.tls, arguments)
	return lib.Xsqlite3_db_config(c.tls, c.db, lib.SQLITE_DBCONFIG_ENABLE_QPSG,
		libc.VaList(arguments, int32(1), uintptr(0)))
}

// Close ends the connection, whose statements must be finalized. It must not be used afterwards.
// Close may be called again.
func (c *Conn) Close() {
	if c.tls == nil {
		return
	}
	lib.Xsqlite3_close_v2(c.tls, c.db)
	if c.log != 0 {
		lib.Xsqlite3_free(c.tls, c.log)
	}
	c.tls.Close()
	c.tls = nil
}

// WatchLog stops SQLite from running checkpoints within commits, because it would hide a failed
// fsync of a checkpoint. After this call, Log returns the state after each commit, and the caller
// must run Checkpoint.
func (c *Conn) WatchLog() {
	c.log = lib.Xsqlite3_malloc(c.tls, int32(unsafe.Sizeof(Log{})))
	*(*Log)(pointer(c.log)) = Log{}
	hook := func(_ *libc.TLS, at, _, _ uintptr, frames int32) int32 {
		log := (*Log)(pointer(at))
		log.Frames, log.Commits = int64(frames), log.Commits+1
		return lib.SQLITE_OK
	}
	lib.Xsqlite3_wal_hook(c.tls, c.db, *(*uintptr)(unsafe.Pointer(&struct {
		f func(*libc.TLS, uintptr, uintptr, uintptr, int32) int32
	}{hook})), c.log)
}

// KeepLog makes Close skip the checkpoint that SQLite otherwise runs with the last connection.
func (c *Conn) KeepLog() {
	arguments := lib.Xsqlite3_malloc(c.tls, 2*8)
	defer lib.Xsqlite3_free(c.tls, arguments)
	lib.Xsqlite3_db_config(c.tls, c.db, lib.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE,
		libc.VaList(arguments, int32(1), uintptr(0)))
}

// Log returns the state after the latest commit. WatchLog must have been called.
func (c *Conn) Log() Log { return *(*Log)(pointer(c.log)) }

// Checkpoint copies the log into the database file. With restart it waits until no reader needs the
// log, at most as long as BusyTimeout says. Then the log can restart. Without restart it does not
// wait. It is no error if another connection prevents the checkpoint.
func (c *Conn) Checkpoint(restart bool) error {
	mode := int32(lib.SQLITE_CHECKPOINT_PASSIVE)
	if restart {
		mode = lib.SQLITE_CHECKPOINT_RESTART
	}
	rc := lib.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, 0, mode, 0, 0)
	if rc != lib.SQLITE_OK && rc&0xff != lib.SQLITE_BUSY {
		return c.failure(rc, "checkpoint")
	}
	return nil
}

// BusyTimeout sets how long a call waits for a lock of another connection.
func (c *Conn) BusyTimeout(milliseconds int32) {
	lib.Xsqlite3_busy_timeout(c.tls, c.db, milliseconds)
}

// InTransaction reports whether a transaction is open. Some errors end it without a ROLLBACK.
func (c *Conn) InTransaction() bool { return lib.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// Changes returns the number of rows that the latest INSERT, UPDATE or DELETE changed.
func (c *Conn) Changes() int { return int(lib.Xsqlite3_changes(c.tls, c.db)) }

// Failure is an error of SQLite.
type Failure struct {
	// Code is the extended result code (sqlite.org/rescode.html).
	Code    int32
	Message string
	// During is the statement, or the other operation. It contains no parameter.
	During string
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("sqlite: %s (%d) during: %s", f.Message, f.Code, f.During)
}

// Primary returns the primary result code.
func (f *Failure) Primary() int32 { return f.Code & 0xff }

func (c *Conn) failure(code int32, during string) error {
	message := libc.GoString(lib.Xsqlite3_errstr(c.tls, code))
	if c.db != 0 && lib.Xsqlite3_extended_errcode(c.tls, c.db) == code {
		message = libc.GoString(lib.Xsqlite3_errmsg(c.tls, c.db))
	}
	return &Failure{Code: code, Message: message, During: during}
}

// alloc copies s to SQLite's memory.
func (c *Conn) alloc(s string) uintptr {
	p := lib.Xsqlite3_malloc(c.tls, int32(len(s)))
	if p == 0 {
		panic("sqlite: out of memory")
	}
	copy(unsafe.Slice((*byte)(pointer(p)), len(s)), s)
	return p
}

// pointer converts an address in SQLite's memory, which the garbage collector does not own.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
