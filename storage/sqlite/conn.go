package sqlite

import "github.com/tidemark-im/tidemark/storage/sqlite/internal/capi"

// A conn is one connection to the database, for one goroutine at a time, with its prepared statements. It speaks to SQLite directly and not through
// database/sql (README.md, Cost).
type conn struct {
	*capi.Conn
	// stmts are the prepared statements by their text, which is a constant of this package: they are few.
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

// close ends the connection. It must not be used afterwards. It may be called again.
func (c *conn) close() {
	for _, s := range c.stmts {
		s.Finalize()
	}
	c.stmts = nil
	c.Close()
}

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

// prepare is prepared for a statement that is not kept: its caller finalizes it.
func (c *conn) prepare(text string) (*stmt, error) {
	s, err := c.Prepare(text)
	if err != nil {
		return nil, err
	}
	return &stmt{s}, nil
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
	defer s.Finalize()
	return s.run()
}

// A stmt is a prepared statement, used in rounds: bind every parameter, then run, one or each, which resets.
type stmt struct{ *capi.Stmt }

// integer binds parameter i, from 1.
func (s *stmt) integer(i int, v int64) { s.BindInteger(i, v) }

// null binds parameter i, from 1.
func (s *stmt) null(i int) { s.BindNull(i) }

// string binds parameter i, from 1.
func (s *stmt) string(i int, v string) { s.BindString(i, v) }

// run steps to the end and resets.
func (s *stmt) run() error {
	return s.each(func(*stmt) bool { return true })
}

// one goes to the only row, hands it to scan and resets. It reports whether there was one.
func (s *stmt) one(scan func(*stmt)) (bool, error) {
	defer s.Reset()
	found, err := s.Step()
	if found {
		scan(s)
	}
	return found, err
}

// each hands every row to scan until that returns false, and resets.
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
