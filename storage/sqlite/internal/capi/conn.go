// Package capi is SQLite's C interface, as modernc.org/sqlite translates it, with Go's types and errors. It alone handles C's memory. It knows no
// table, and how its calls are put together is its caller's affair.
package capi

import (
	"fmt"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// A Conn is one connection to a database, for one goroutine at a time.
type Conn struct {
	tls *libc.TLS
	db  uintptr
	// log points to a Log, or is 0. It lies in SQLite's memory, where the hook finds it.
	log uintptr
}

// A Log is what SQLite tells of the write-ahead log after a commit of this connection.
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
	// SQLite opens a file that may not be written for reading alone, and does not say so.
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

// keepPlans asks for the query planner stability guarantee. Without it SQLite plans a prepared statement anew whenever a parameter that was
// looked at in planning is bound to another value: for the listings that was most of their cost.
func (c *Conn) keepPlans() (rc int32) {
	arguments := lib.Xsqlite3_malloc(c.tls, 2*8)
	defer lib.Xsqlite3_free(c.tls, arguments)
	return lib.Xsqlite3_db_config(c.tls, c.db, lib.SQLITE_DBCONFIG_ENABLE_QPSG,
		libc.VaList(arguments, int32(1), uintptr(0)))
}

// Close ends the connection, whose statements must be finalized. It must not be used afterwards. Close may be called again.
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

// WatchLog takes the checkpoints out of the commits: SQLite would run them there, and keep a failed fsync of one to itself.
// From now on Log tells of each commit, and whoever commits calls Checkpoint.
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

// Log returns what is known of the latest commit. WatchLog must have been called.
func (c *Conn) Log() Log { return *(*Log)(pointer(c.log)) }

// Checkpoint copies the log into the database file. With restart it waits, as long as BusyTimeout says, until no reader needs the log, so that it
// starts anew; without it waits for nobody. That somebody was in the way is no error.
func (c *Conn) Checkpoint(restart bool) error {
	mode := int32(lib.SQLITE_CHECKPOINT_PASSIVE)
	if restart {
		mode = lib.SQLITE_CHECKPOINT_RESTART
	}
	if rc := lib.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, 0, mode, 0, 0); rc != lib.SQLITE_OK && rc&0xff != lib.SQLITE_BUSY {
		return c.failure(rc, "checkpoint")
	}
	return nil
}

// BusyTimeout sets how long a call waits for a lock that another connection holds.
func (c *Conn) BusyTimeout(milliseconds int32) {
	lib.Xsqlite3_busy_timeout(c.tls, c.db, milliseconds)
}

// InTransaction reports whether a BEGIN stands. Some errors end the transaction by themselves.
func (c *Conn) InTransaction() bool { return lib.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// Changes returns how many rows the latest INSERT, UPDATE or DELETE touched.
func (c *Conn) Changes() int { return int(lib.Xsqlite3_changes(c.tls, c.db)) }

// A Failure is an error of SQLite.
type Failure struct {
	// Code is the extended result code (sqlite.org/rescode.html).
	Code    int32
	Message string
	// During is the statement, or what else was attempted. It holds no parameter.
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

// alloc copies s to memory of SQLite.
func (c *Conn) alloc(s string) uintptr {
	p := lib.Xsqlite3_malloc(c.tls, int32(len(s)))
	if p == 0 {
		panic("sqlite: out of memory")
	}
	copy(unsafe.Slice((*byte)(pointer(p)), len(s)), s)
	return p
}

// pointer makes a pointer of an address in SQLite's memory, which the garbage collector does not own.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
