package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func TestTypists_bounded_use_of_memory(t *testing.T) {
	var typists typists
	now := time.Now()
	allowed := func() (n int) {
		for i := range maxTypists + 50 {
			key := storage.StateKey{User: tidemark.UserID(fmt.Sprint("u", i)), Chat: "c"}
			if typists.allow(key, now) {
				n++
			}
		}
		return n
	}
	if n := allowed(); n != maxTypists {
		t.Errorf("%d are told at once, want %d", n, maxTypists)
	}
	if n := allowed(); n != 0 {
		t.Errorf("%d are told again at the same time", n)
	}
	now = now.Add(typingEvery)
	if n := allowed(); n != maxTypists || len(typists.last) != maxTypists {
		t.Errorf("later %d are told and %d remembered, want %d", n, len(typists.last), maxTypists)
	}
}
