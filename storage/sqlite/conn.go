package sqlite

import (
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// A conn is one connection to the database, for one goroutine at a time. It speaks to SQLite directly and not through
// database/sql: a step through that costs as much as the work that SQLite does for it (see README.md, Cost).
type conn struct {
	tls *libc.TLS
	db  uintptr
	// stmts are the prepared statements by their text, which is a constant of this package: they are few.
	stmts map[string]*stmt
	// wal points to a walLog, or is 0. It lies in SQLite's memory, where the hook finds it.
	wal uintptr
}

// A walLog is what SQLite tells after a commit of this connection.
type walLog struct {
	// frames is the length of the write-ahead log in pages.
	frames int64
	// commits counts the commits that wrote something.
	commits int64
}

// open opens the database file, which must exist.
func open(path string, readOnly bool) (*conn, error) {
	flags := int32(lib.SQLITE_OPEN_READWRITE | lib.SQLITE_OPEN_NOMUTEX)
	if readOnly {
		flags = lib.SQLITE_OPEN_READONLY | lib.SQLITE_OPEN_NOMUTEX
	}
	c := &conn{tls: libc.NewTLS(), stmts: make(map[string]*stmt)}
	name := c.alloc(path + "\x00\x00")
	handle := lib.Xsqlite3_malloc(c.tls, 8)
	rc := lib.Xsqlite3_open_v2(c.tls, name, handle, flags, 0)
	c.db = *(*uintptr)(pointer(handle))
	lib.Xsqlite3_free(c.tls, handle)
	lib.Xsqlite3_free(c.tls, name)
	if rc != lib.SQLITE_OK {
		err := c.failure(rc, "open "+path)
		c.close()
		return nil, err
	}
	lib.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	return c, nil
}

// close ends the connection. It must not be used afterwards. It may be called again.
func (c *conn) close() {
	if c.tls == nil {
		return
	}
	for _, s := range c.stmts {
		s.finalize()
	}
	lib.Xsqlite3_close_v2(c.tls, c.db)
	if c.wal != 0 {
		lib.Xsqlite3_free(c.tls, c.wal)
	}
	c.tls.Close()
	c.tls = nil
}

// watchLog takes the checkpoints out of the commits: SQLite would run them there, and keep a failed fsync of one to itself.
// From now on log tells of each commit, and whoever commits calls checkpoint.
func (c *conn) watchLog() {
	c.wal = lib.Xsqlite3_malloc(c.tls, int32(unsafe.Sizeof(walLog{})))
	*(*walLog)(pointer(c.wal)) = walLog{}
	hook := func(_ *libc.TLS, wal, _, _ uintptr, frames int32) int32 {
		log := (*walLog)(pointer(wal))
		log.frames, log.commits = int64(frames), log.commits+1
		return lib.SQLITE_OK
	}
	lib.Xsqlite3_wal_hook(c.tls, c.db, *(*uintptr)(unsafe.Pointer(&struct {
		f func(*libc.TLS, uintptr, uintptr, uintptr, int32) int32
	}{hook})), c.wal)
}

// log returns what is known of the latest commit.
func (c *conn) log() walLog { return *(*walLog)(pointer(c.wal)) }

// checkpoint copies the log into the database file. In mode lib.SQLITE_CHECKPOINT_PASSIVE it waits for nobody.
func (c *conn) checkpoint(mode int32) error {
	if rc := lib.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, 0, mode, 0, 0); rc != lib.SQLITE_OK && rc&0xff != lib.SQLITE_BUSY {
		return c.failure(rc, "checkpoint")
	}
	return nil
}

func (c *conn) busyTimeout(milliseconds int32) { lib.Xsqlite3_busy_timeout(c.tls, c.db, milliseconds) }

// inTransaction reports whether a BEGIN stands. Some errors end the transaction by themselves.
func (c *conn) inTransaction() bool { return lib.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// prepared returns the statement of a constant text, prepared at its first use.
func (c *conn) prepared(text string) (*stmt, error) {
	if s, ok := c.stmts[text]; ok {
		return s, nil
	}
	s, err := c.prepare(text)
	if err != nil {
		return nil, err
	}
	c.stmts[text] = s
	return s, nil
}

func (c *conn) prepare(text string) (*stmt, error) {
	source := c.alloc(text + "\x00")
	handle := lib.Xsqlite3_malloc(c.tls, 8)
	rc := lib.Xsqlite3_prepare_v3(c.tls, c.db, source, int32(len(text)+1), lib.SQLITE_PREPARE_PERSISTENT, handle, 0)
	p := *(*uintptr)(pointer(handle))
	lib.Xsqlite3_free(c.tls, handle)
	lib.Xsqlite3_free(c.tls, source)
	if rc != lib.SQLITE_OK {
		return nil, c.failure(rc, text)
	}
	return &stmt{c: c, p: p, text: text}, nil
}

// exec runs a prepared statement without parameters to its end.
func (c *conn) exec(text string) error {
	s, err := c.prepared(text)
	if err != nil {
		return err
	}
	return s.run()
}

// pragma sets an option that a file name or a number is part of. The statement is not kept.
func (c *conn) pragma(text string) error {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	defer s.finalize()
	return s.run()
}

func (c *conn) changes() int { return int(lib.Xsqlite3_changes(c.tls, c.db)) }

// alloc copies s to memory of SQLite.
func (c *conn) alloc(s string) uintptr {
	p := lib.Xsqlite3_malloc(c.tls, int32(len(s)))
	if p == 0 {
		panic("sqlite: out of memory")
	}
	copy(unsafe.Slice((*byte)(pointer(p)), len(s)), s)
	return p
}

// pointer makes a pointer of an address in SQLite's memory, which the garbage collector does not own.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// arenaSize is what a statement keeps for its parameters.
const arenaSize = 1024

// A stmt is a prepared statement. It is used in rounds: bind every parameter, step through the rows, reset.
type stmt struct {
	c    *conn
	p    uintptr
	text string
	// arena holds the text parameters of this round, used of its bytes are taken; what does not fit is in big.
	arena uintptr
	used  int
	big   []uintptr
}

func (s *stmt) finalize() {
	s.reset()
	lib.Xsqlite3_finalize(s.c.tls, s.p)
	if s.arena != 0 {
		lib.Xsqlite3_free(s.c.tls, s.arena)
	}
}

// integer binds parameter i, from 1.
func (s *stmt) integer(i int, v int64) { lib.Xsqlite3_bind_int64(s.c.tls, s.p, int32(i), v) }

// null binds parameter i, from 1.
func (s *stmt) null(i int) { lib.Xsqlite3_bind_null(s.c.tls, s.p, int32(i)) }

// string binds parameter i, from 1.
func (s *stmt) string(i int, v string) {
	lib.Xsqlite3_bind_text(s.c.tls, s.p, int32(i), s.place(v), int32(len(v)), 0)
}

// place copies v to where it stays until reset.
func (s *stmt) place(v string) uintptr {
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

// step goes to the next row and reports whether there is one.
func (s *stmt) step() (bool, error) {
	switch rc := lib.Xsqlite3_step(s.c.tls, s.p); rc {
	case lib.SQLITE_ROW:
		return true, nil
	case lib.SQLITE_DONE:
		return false, nil
	default:
		return false, s.c.failure(rc, s.text)
	}
}

// reset ends the round. The parameters stay bound to memory that is free now: each round binds them all.
func (s *stmt) reset() {
	lib.Xsqlite3_reset(s.c.tls, s.p)
	for _, p := range s.big {
		lib.Xsqlite3_free(s.c.tls, p)
	}
	s.used, s.big = 0, nil
}

// run steps to the end and resets.
func (s *stmt) run() error {
	defer s.reset()
	for {
		if more, err := s.step(); !more || err != nil {
			return err
		}
	}
}

// one goes to the only row, hands it to scan and resets. It reports whether there was one.
func (s *stmt) one(scan func(*stmt)) (bool, error) {
	defer s.reset()
	found, err := s.step()
	if found {
		scan(s)
	}
	return found, err
}

// each hands every row to scan until that returns false, and resets.
func (s *stmt) each(scan func(*stmt) bool) error {
	defer s.reset()
	for {
		more, err := s.step()
		if !more || err != nil {
			return err
		}
		if !scan(s) {
			return nil
		}
	}
}

// integerAt returns column i, from 0.
func (s *stmt) integerAt(i int) int64 { return lib.Xsqlite3_column_int64(s.c.tls, s.p, int32(i)) }

// nullAt reports whether column i, from 0, is NULL.
func (s *stmt) nullAt(i int) bool {
	return lib.Xsqlite3_column_type(s.c.tls, s.p, int32(i)) == lib.SQLITE_NULL
}

// stringAt returns a copy of column i, from 0.
func (s *stmt) stringAt(i int) string { return string(s.bytes(i)) }

// bytesAt returns a copy of column i, from 0.
func (s *stmt) bytesAt(i int) []byte { return append([]byte(nil), s.bytes(i)...) }

func (s *stmt) bytes(i int) []byte {
	p := lib.Xsqlite3_column_text(s.c.tls, s.p, int32(i))
	if p == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(p)), lib.Xsqlite3_column_bytes(s.c.tls, s.p, int32(i)))
}
