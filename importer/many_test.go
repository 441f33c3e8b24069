package importer_test

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestImport_import_once_of_many_members: they join in few calls, and nothing is pending.
func TestImport_import_once_of_many_members(t *testing.T) {
	w := newWorld(t)
	c := group("large", "owner")
	for n := range 1_500 {
		c.Members = append(c.Members, fmt.Sprint("u", n))
	}
	counted := storagetest.Count(w.store)
	cfg := w.config()
	cfg.Store = counted
	_, err := w.run(cfg, c, message("1", "owner", 1), importer.End{})
	w.ok(err)
	if n := counted.Snapshot().Calls["AddMembers"]; n != 2 {
		t.Errorf("AddMembers was called %d times, want 2", n)
	}
	if c := w.chat("large"); c.MemberCount != 1_501 || !c.Large {
		t.Errorf("the chat is %+v", c)
	}
	if s, _ := w.state("large", "u7"); s.Acked != 1 {
		t.Errorf("a member has acknowledged %d, want 1", s.Acked)
	}
}
