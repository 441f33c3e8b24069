package importer_test

import (
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
)

// TestImport_erased_nowhere: a chat that names an erased user is refused, wherever it names them,
// and nothing of theirs is stored. The next chat is moved.
func TestImport_erased_nowhere(t *testing.T) {
	named := message("2", "alice", 2)
	named.Mentioned = []string{"zoe"}
	for name, records := range map[string][]importer.Record{
		"the members of a group": {group("a", "alice", "zoe"), message("1", "alice", 1)},
		"a direct chat": {
			importer.Chat{
				ID: "a", Type: tidemark.Direct, CreatedAt: began,
				Members: []string{"alice", "zoe"},
			},
			message("1", "zoe", 1),
		},
		"an author": {group("a", "alice"), message("1", "alice", 1), message("2", "zoe", 2)},
		"who joins": {group("a", "alice"), joins("zoe", 1), message("1", "alice", 2)},
		"a mention": {group("a", "alice"), message("1", "alice", 1), named},
		"who has read": {
			group("a", "alice"), message("1", "alice", 1), importer.Read{User: "zoe", Position: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config()
			cfg.Continue = true
			cfg.Erased = func(user tidemark.UserID) error {
				if user == "zoe" {
					return tidemark.Errorf(tidemark.Denied, "erased")
				}
				return nil
			}
			records = append(records, importer.End{},
				group("b", "alice"), message("1", "alice", 1), importer.End{})
			report, err := w.run(cfg, records...)
			if err == nil || report.Chats != 1 || report.RefusedChats != 1 ||
				report.Refused[0].Code != tidemark.Denied {
				t.Errorf("got %v, %+v", err, report)
			}
			naming, _, _, err := w.store.ChatsNaming(w.ctx, "zoe", "", 10)
			if w.ok(err); len(naming) != 0 {
				t.Errorf("%v name zoe", naming)
			}
		})
	}
}
