package sqlite

import "github.com/tidemark-im/tidemark/storage/sqlite/internal/capi"

// conn is one connection to the database with its prepared statements. Only one goroutine may use
// it at a time. It calls SQLite directly, without database/sql (README.md, Cost).
type conn struct {
	*capi.Conn
	// stmts holds the prepared statements by their text. The texts are constants of this package,
	// so there are few.
	stmts map[string]*stmt
}

// open opens the database file, which must exist.
func open(path string, readOnly bool) (*conn, error) {
	c, err := capi.Open(path, readOnly)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, stmts: make(map[string]*stmt)}, nil
}

// close ends the connection, which must not be used afterwards. close may be called again.
func (c *conn) close() {
	for _, s := range c.stmts {
		s.Finalize()
	}
	c.stmts = nil
	c.Close()
}

// prepared returns the statement of a constant text. It prepares it at the first use.
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

// prepare returns a statement that is not kept. The caller finalizes it.
func (c *conn) prepare(text string) (*stmt, error) {
	s, err := c.Prepare(text)
	if err != nil {
		return nil, err
	}
	return &stmt{s}, nil
}

// exec runs a prepared statement without parameters.
func (c *conn) exec(text string) error {
	s, err := c.prepared(text)
	if err != nil {
		return err
	}
	return s.run()
}

// pragma runs a statement whose text contains a file name or number. The statement is not kept.
func (c *conn) pragma(text string) error {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	defer s.Finalize()
	return s.run()
}

// stmt is a prepared statement. Each use has two steps: bind every parameter, then call run, one or
// each, which also resets.
type stmt struct{ *capi.Stmt }

// integer binds parameter i, from 1.
func (s *stmt) integer(i int, v int64) { s.BindInteger(i, v) }

// integerOrNull binds parameter i, from 1. 0 is NULL.
func (s *stmt) integerOrNull(i int, v int64) {
	if s.null(i); v != 0 {
		s.integer(i, v)
	}
}

// null binds parameter i, from 1.
func (s *stmt) null(i int) { s.BindNull(i) }

// string binds parameter i, from 1.
func (s *stmt) string(i int, v string) { s.BindString(i, v) }

// run executes the statement and resets it.
func (s *stmt) run() error {
	return s.each(func(*stmt) bool { return true })
}

// one passes the first row to scan, if there is one, and resets. found reports whether there was
// one.
func (s *stmt) one(scan func(*stmt)) (bool, error) {
	defer s.Reset()
	found, err := s.Step()
	if found {
		scan(s)
	}
	return found, err
}

// each passes every row to scan until scan returns false, and resets.
func (s *stmt) each(scan func(*stmt) bool) error {
	defer s.Reset()
	for {
		more, err := s.Step()
		if !more || err != nil {
			return err
		}
		if !scan(s) {
			return nil
		}
	}
}

// integerAt returns column i, from 0.
func (s *stmt) integerAt(i int) int64 { return s.ColumnInteger(i) }

// nullAt reports whether column i, from 0, is NULL.
func (s *stmt) nullAt(i int) bool { return s.ColumnNull(i) }

// stringAt returns a copy of column i, from 0.
func (s *stmt) stringAt(i int) string { return string(s.Column(i)) }

// bytesAt returns a copy of column i, from 0.
func (s *stmt) bytesAt(i int) []byte { return append([]byte(nil), s.Column(i)...) }
