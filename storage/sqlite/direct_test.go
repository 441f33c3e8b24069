package sqlite

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

// The table and statements of BenchmarkDirect. The rows are like those of messages.
const (
	directTable = `CREATE TABLE example
		(n INTEGER PRIMARY KEY, a TEXT, b TEXT, c TEXT, d TEXT, e INTEGER)`
	directInsert = `INSERT INTO example (a, b, c, d, e) VALUES (?, ?, ?, ?, ?)`
	directOne    = `SELECT n, e FROM example WHERE n = ?`
	directPage   = `SELECT n, a, b, c, d, e FROM example WHERE n > ? ORDER BY n LIMIT 50`
)

// BenchmarkDirect compares this package's use of SQLite with database/sql. It measures one row by
// its key, a page of 50 rows, and an insert inside a transaction.
func BenchmarkDirect(b *testing.B) {
	c, db := directPair(b)
	id, content := newID(), strings.Repeat("message ", 25)
	do := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	insert := func(n int) {
		s, err := c.prepared(directInsert)
		do(err)
		s.string(1, id)
		s.string(2, id)
		s.string(3, id)
		s.string(4, content)
		s.integer(5, int64(n))
		do(s.run())
	}
	for n := range 1_000 {
		insert(n)
	}
	var sum int64
	compare(b, "one", func(int) {
		s, err := c.prepared(directOne)
		do(err)
		s.integer(1, 500)
		_, err = s.one(func(row *stmt) { sum += row.integerAt(0) + row.integerAt(1) })
		do(err)
	}, prepare(b, db, directOne, func(s *sql.Stmt, _ int) error {
		var n, e int64
		return s.QueryRow(500).Scan(&n, &e)
	}))
	compare(b, "page", func(int) {
		s, err := c.prepared(directPage)
		do(err)
		s.integer(1, 100)
		do(s.each(func(row *stmt) bool {
			sum += row.integerAt(0) + row.integerAt(5)
			for i := range 4 {
				sum += int64(len(row.stringAt(i + 1)))
			}
			return true
		}))
	}, prepare(b, db, directPage, func(s *sql.Stmt, _ int) error {
		rows, err := s.Query(100)
		do(err)
		defer rows.Close()
		for rows.Next() {
			var n, e int64
			var texts [4]string
			do(rows.Scan(&n, &texts[0], &texts[1], &texts[2], &texts[3], &e))
		}
		return rows.Err()
	}))
	do(c.exec("BEGIN"))
	b.Run("insert/direct", func(b *testing.B) { perOperation(b, insert) })
	do(c.exec("ROLLBACK"))
	exec := func(text string) {
		_, err := db.Exec(text)
		do(err)
	}
	exec("BEGIN")
	b.Run("insert/sql", func(b *testing.B) {
		perOperation(b, prepare(b, db, directInsert, func(s *sql.Stmt, n int) error {
			_, err := s.Exec(id, id, id, content, n)
			return err
		}))
	})
	exec("ROLLBACK")
}

// directPair opens one database with this package and with database/sql.
func directPair(b *testing.B) (*conn, *sql.DB) {
	path := filepath.Join(b.TempDir(), "direct.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1) // because a transaction belongs to one connection
	if _, err := db.Exec(directTable); err != nil {
		b.Fatal(err)
	}
	c, err := open(path, false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.close)
	return c, db
}

func prepare(b *testing.B, db *sql.DB, text string, run func(*sql.Stmt, int) error) func(int) {
	s, err := db.Prepare(text)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return func(n int) {
		if err := run(s, n); err != nil {
			b.Fatal(err)
		}
	}
}

func compare(b *testing.B, name string, direct, throughSQL func(int)) {
	b.Run(name+"/direct", func(b *testing.B) { perOperation(b, direct) })
	b.Run(name+"/sql", func(b *testing.B) { perOperation(b, throughSQL) })
}

// perOperation reports the CPU time of one call of do.
func perOperation(b *testing.B, do func(n int)) {
	b.ReportAllocs()
	before := cpuMicroseconds(b)
	b.ResetTimer()
	for n := range b.N {
		do(n)
	}
	b.StopTimer()
	b.ReportMetric((cpuMicroseconds(b)-before)/float64(b.N), "cpu-µs/op")
}
