package capi

import (
	"unsafe"

	lib "modernc.org/sqlite/lib"
)

// arenaSize is the number of bytes that a statement keeps for its parameters.
const arenaSize = 1024

// Stmt is a prepared statement. Each use has three steps: bind every parameter, step through the
// rows, and reset.
type Stmt struct {
	c    *Conn
	p    uintptr
	text string
	// arena holds the text parameters of this use, in its first used bytes. big holds those that do
	// not fit.
	arena uintptr
	used  int
	big   []uintptr
}

// Prepare compiles a statement that is kept for a long time. The error is a *Failure.
func (c *Conn) Prepare(text string) (*Stmt, error) {
	source := c.alloc(text + "\x00")
	handle := lib.Xsqlite3_malloc(c.tls, 8)
	rc := lib.Xsqlite3_prepare_v3(c.tls, c.db, source, int32(len(text)+1),
		lib.SQLITE_PREPARE_PERSISTENT, handle, 0)
	p := *(*uintptr)(pointer(handle))
	lib.Xsqlite3_free(c.tls, handle)
	lib.Xsqlite3_free(c.tls, source)
	if rc != lib.SQLITE_OK {
		return nil, c.failure(rc, text)
	}
	return &Stmt{c: c, p: p, text: text}, nil
}

// Finalize frees the statement, which must not be used afterwards.
func (s *Stmt) Finalize() {
	s.Reset()
	lib.Xsqlite3_finalize(s.c.tls, s.p)
	if s.arena != 0 {
		lib.Xsqlite3_free(s.c.tls, s.arena)
	}
}

// Replans returns how often SQLite has planned the statement again since it was prepared.
func (s *Stmt) Replans() int {
	return int(lib.Xsqlite3_stmt_status(s.c.tls, s.p, lib.SQLITE_STMTSTATUS_REPREPARE, 0))
}

// Steps returns how many steps of SQLite's virtual machine the statement has taken since the last
// call of Steps.
func (s *Stmt) Steps() int {
	return int(lib.Xsqlite3_stmt_status(s.c.tls, s.p, lib.SQLITE_STMTSTATUS_VM_STEP, 1))
}

// BindInteger binds parameter i, from 1.
func (s *Stmt) BindInteger(i int, v int64) { lib.Xsqlite3_bind_int64(s.c.tls, s.p, int32(i), v) }

// BindNull binds parameter i, from 1.
func (s *Stmt) BindNull(i int) { lib.Xsqlite3_bind_null(s.c.tls, s.p, int32(i)) }

// BindString binds parameter i, from 1.
func (s *Stmt) BindString(i int, v string) {
	lib.Xsqlite3_bind_text(s.c.tls, s.p, int32(i), s.place(v), int32(len(v)), 0)
}

// place copies v to SQLite's memory, where it stays until Reset.
func (s *Stmt) place(v string) uintptr {
	if s.arena == 0 {
		s.arena = lib.Xsqlite3_malloc(s.c.tls, arenaSize)
	}
	if s.arena == 0 || len(v) > arenaSize-1-s.used {
		p := s.c.alloc(v + "\x00")
		s.big = append(s.big, p)
		return p
	}
	p := s.arena + uintptr(s.used)
	copy(unsafe.Slice((*byte)(pointer(p)), len(v)), v)
	s.used += len(v)
	return p
}

// Step goes to the next row, and reports whether there is one. The error is a *Failure.
func (s *Stmt) Step() (bool, error) {
	switch rc := lib.Xsqlite3_step(s.c.tls, s.p); rc {
	case lib.SQLITE_ROW:
		return true, nil
	case lib.SQLITE_DONE:
		return false, nil
	default:
		return false, s.c.failure(rc, s.text)
	}
}

// Reset ends a use of the statement. The parameters stay bound to freed memory, so each use must
// bind all of them.
func (s *Stmt) Reset() {
	lib.Xsqlite3_reset(s.c.tls, s.p)
	for _, p := range s.big {
		lib.Xsqlite3_free(s.c.tls, p)
	}
	s.used, s.big = 0, nil
}

// ColumnInteger returns column i, from 0.
func (s *Stmt) ColumnInteger(i int) int64 {
	return lib.Xsqlite3_column_int64(s.c.tls, s.p, int32(i))
}

// ColumnNull reports whether column i, from 0, is NULL.
func (s *Stmt) ColumnNull(i int) bool {
	return lib.Xsqlite3_column_type(s.c.tls, s.p, int32(i)) == lib.SQLITE_NULL
}

// Column returns column i, from 0, as text in SQLite's memory. It is valid until the next Step or
// Reset.
func (s *Stmt) Column(i int) []byte {
	p := lib.Xsqlite3_column_text(s.c.tls, s.p, int32(i))
	if p == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(p)), lib.Xsqlite3_column_bytes(s.c.tls, s.p, int32(i)))
}
