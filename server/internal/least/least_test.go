package least

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var errDown = errors.New("storage is down")

// store answers with the number of the read. A read takes a time, and fails if failing is set.
type store struct {
	takes time.Duration

	mu      sync.Mutex
	reads   int
	failing bool
}

func (s *store) Summary(
	context.Context, tidemark.ChatID, tidemark.Sequence, tidemark.UserID,
) (storage.Summary, error) {
	s.mu.Lock()
	s.reads++
	n, failing := s.reads, s.failing
	s.mu.Unlock()
	time.Sleep(s.takes)
	if failing {
		return storage.Summary{}, errDown
	}
	return storage.Summary{Least: tidemark.Boundary{Acked: tidemark.Sequence(n)}}, nil
}

// since asks for what was read less than age ago, and returns the number of that read, or 0.
func since(t *testing.T, c *Cache, version uint64, age time.Duration) (tidemark.Sequence, bool) {
	t.Helper()
	v, err := c.Since(t.Context(), "c", version, time.Now().Add(-age))
	if err != nil {
		t.Fatal(err)
	}
	return v.Acked, v.Own
}

// TestCache_least_is_shared has questions at times after the first one.
func TestCache_least_is_shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(&store{}, time.Second, 10)
		begun := time.Now()
		for _, tc := range []struct {
			name    string
			at      time.Duration
			version uint64
			age     time.Duration
			want    tidemark.Sequence
			own     bool
		}{
			{"the first", 0, 1, time.Second, 1, true},
			{"at the same time, perhaps after it", 0, 1, 0, 0, false},
			{"half a second later, of the last second", 500, 1, time.Second, 1, false},
			{"of now", 500, 1, 0, 0, false},
			{"of an older version", 500, 0, time.Second, 1, false},
			{"of a newer version", 500, 2, time.Second, 0, false},
			{"a second later, of now", 1000, 1, 0, 2, true},
			{"of what came after the last question", 1001, 1, 400 * time.Millisecond, 2, false},
			{"of a newer version again", 2001, 2, time.Second, 3, true},
			{"of the older version, which is not known any more", 2002, 1, time.Second, 3, false},
		} {
			time.Sleep(time.Until(begun.Add(tc.at * time.Millisecond)))
			if got, own := since(t, c, tc.version, tc.age); got != tc.want || own != tc.own {
				t.Errorf("%s: got read %d, own %v, want %d, %v", tc.name, got, own, tc.want, tc.own)
			}
		}
	})
}

// TestCache_least_is_shared_while_it_is_read: a call during a read gets its result if that will
// do, else nothing.
func TestCache_least_is_shared_while_it_is_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: 3 * time.Second}
		c := New(s, time.Second, 10)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got, _ := since(t, c, 1, time.Second); got != 1 {
					t.Errorf("got read %d, want 1", got)
				}
			})
		}
		time.Sleep(2 * time.Second)
		if got, _ := since(t, c, 1, time.Second); got != 0 {
			t.Errorf("during a read of two seconds ago: got read %d, want none", got)
		}
		if got, _ := since(t, c, 2, 5*time.Second); got != 0 {
			t.Errorf("of a newer version, meanwhile: got read %d, want none", got)
		}
		all.Wait()
		if s.reads != 1 {
			t.Errorf("%d reads, want 1", s.reads)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all.Go(func() { since(t, c, 1, 0) })
		synctest.Wait()
		time.Sleep(time.Millisecond)
		if _, err := c.Since(ctx, "c", 1, time.Now().Add(-time.Second)); err == nil {
			t.Error("a caller who gave up has no error")
		}
		all.Wait()
	})
}

// TestCache_of_a_read_that_failed: what was read before counts as long as it will do.
func TestCache_of_a_read_that_failed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		c := New(s, time.Second, 10)
		since(t, c, 1, time.Second)
		time.Sleep(time.Second)
		s.failing = true
		if _, err := c.Since(t.Context(), "c", 2, time.Now()); !errors.Is(err, errDown) {
			t.Errorf("got %v, want the error of storage", err)
		}
		if got, _ := since(t, c, 2, 5*time.Second); got != 0 {
			t.Errorf("of the members of now: got read %d, want none", got)
		}
		s.failing = false
		time.Sleep(time.Second)
		if got, own := since(t, c, 2, 0); got != 3 || !own {
			t.Errorf("a second later: got read %d, want 3", got)
		}
	})
}

func TestCache_bounded_use(t *testing.T) {
	s := &store{}
	c := New(s, time.Hour, 8)
	for i := range 100 {
		chat := tidemark.ChatID(fmt.Sprint("c", i))
		if _, err := c.Since(t.Context(), chat, 1, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.chats) != 8 {
		t.Errorf("%d chats are kept, want 8", len(c.chats))
	}
}
