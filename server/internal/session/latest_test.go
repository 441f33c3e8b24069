package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/server/registry/memory"
)

func TestLatest_bounded_use(t *testing.T) {
	const most, each = 400_000, 100
	chats := make([]tidemark.ChatID, each)
	for i := range chats {
		chats[i] = tidemark.ChatID(fmt.Sprint("c", i))
	}
	node := registry.Node{ID: "a", Boot: "1"}
	r := memory.New()
	if err := r.Join(t.Context(), node, time.Hour); err != nil {
		t.Fatal(err)
	}
	l := session.NewLatest(r, node)
	known := 0
	user := func(i int) tidemark.UserID { return tidemark.UserID(fmt.Sprint("u", i)) }
	for i := range most/each + 100 {
		for range 2 {
			l.Begin(user(i))
			l.Listed(user(i), chats)
		}
	}
	for i := range most/each + 100 {
		if _, there := l.Of(user(i)); there {
			known++
		}
	}
	if known != most/each {
		t.Errorf("%d users with %d chats each are remembered, want %d", known, each, most/each)
	}
}
