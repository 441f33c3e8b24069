package redis

import (
	"strconv"
	"sync"
	"testing"
)

// numbers are the free and used databases of the shared server.
var numbers struct {
	sync.Mutex
	lent [databases]bool
}

// Database returns the URL of an empty database of this process's server. It is emptied when the
// test ends. Keys and scripts belong to the database. Publications, FLUSHALL and settings concern
// all databases.
func Database(t testing.TB) string {
	t.Helper()
	s, n := Shared(t), take()
	if n < 0 {
		t.Fatalf("more than %d tests have a database", databases)
	}
	t.Cleanup(func() {
		if err := s.flush(n); err != nil {
			t.Errorf("emptying the database of the test: %v", err)
		}
		numbers.Lock()
		defer numbers.Unlock()
		numbers.lent[n] = false
	})
	return s.url(n)
}

func take() int {
	numbers.Lock()
	defer numbers.Unlock()
	for n, lent := range numbers.lent {
		if !lent {
			numbers.lent[n] = true
			return n
		}
	}
	return -1
}

// flush empties a database. A connection begins in the first one, and a transaction keeps the
// selected one.
func (s *Server) flush(database int) error {
	_, err := s.Ask("EVAL", "redis.call('SELECT', ARGV[1]); return redis.call('FLUSHDB')", "0",
		strconv.Itoa(database))
	return err
}
