package chat

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestCache_takes_nothing_old: what may expire at any time is not kept in memory.
func TestCache_takes_nothing_old(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil, Config{Chats: 10, Bytes: 1 << 20, Messages: 10})
		put := func(m *tidemark.Message) int64 {
			c.Put(c.Chat(m.ChatID), m, []byte("{}"))
			return c.Bytes()
		}
		old := time.Now()
		time.Sleep(maxAge + time.Second)
		if n := put(&tidemark.Message{ChatID: "c", Sequence: 1, CreatedAt: old}); n != 0 {
			t.Errorf("an old message takes %d bytes", n)
		}
		edit := &tidemark.Message{
			ChatID: "d", Sequence: 2, CreatedAt: time.Now(), Kind: tidemark.KindEdit,
			Relation: &tidemark.Relation{
				Sequence: 1,
				Target:   &tidemark.Message{ChatID: "d", Sequence: 1, CreatedAt: old},
			},
		}
		if n := put(edit); n != 0 {
			t.Errorf("an edit of an old message takes %d bytes", n)
		}
		if n := put(&tidemark.Message{ChatID: "e", Sequence: 1, CreatedAt: time.Now()}); n == 0 {
			t.Error("a new message is not kept")
		}
		c.Age()
		if c.Bytes() == 0 {
			t.Error("a new message was dropped")
		}
		time.Sleep(maxAge + time.Second)
		c.Age()
		if n := c.Bytes(); n != 0 {
			t.Errorf("%d bytes are left of what is old", n)
		}
	})
}
