package importer_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
)

// serve starts a server on the store. It stops with the test.
func (w *world) serve() *server.Server {
	w.t.Helper()
	reg := registrymemory.New()
	s, err := server.New(server.Config{
		Storage: w.store, Registry: reg, Nodes: reg, Bus: local.New(),
		Logger: slog.New(slog.DiscardHandler),
	})
	w.ok(err)
	w.ok(s.Start(w.ctx))
	w.t.Cleanup(func() {
		if err := s.Stop(w.ctx); err != nil {
			w.t.Error(err)
		}
	})
	return s
}

// history returns what a user may see of a chat: the contents of messages, and gaps.
func (w *world) history(
	s *server.Server, user tidemark.UserID, chat tidemark.ChatID,
) (seen string, gaps int) {
	w.t.Helper()
	var all []string
	after := tidemark.Sequence(0)
	for {
		h, err := s.History(w.ctx, user, server.HistoryRequest{Chat: chat, After: &after, Limit: 3})
		w.ok(err)
		for i := range h.Messages {
			all = append(all, h.Messages[i].Content)
		}
		if gaps += len(h.Gaps); !h.HasMore {
			return strings.Join(all, ", "), gaps
		}
		after = h.Next
	}
}

// TestImport_import_once_is_served: a server answers about a moved chat what the source had.
func TestImport_import_once_is_served(t *testing.T) {
	w := newWorld(t)
	s := w.serve() // It runs beside the import.
	scene := manyChanges("")
	w.move(scene.records...)

	for _, tc := range []struct {
		user tidemark.UserID
		chat tidemark.ChatID
		want string
	}{
		{"a", "full", "says f1, says f2, says f3, says f4, says f5, (deleted)"},
		{"d", "full", "says f1, says f2, says f3, says f4, says f5, (deleted)"},
		{"a", "since", "says s2, says s4"},
		{"a", "direct", "says d1, says d2, says d3"},
		{"b", "direct", "says d1, says d2, says d3"},
	} {
		if got, _ := w.history(s, tc.user, tc.chat); got != tc.want {
			t.Errorf("%s sees %q of %s, want %q", tc.user, got, tc.chat, tc.want)
		}
	}
	for _, stranger := range []tidemark.UserID{"c", "e", "nobody"} {
		_, err := s.History(w.ctx, stranger, server.HistoryRequest{Chat: "full", Limit: 3})
		if tidemark.CodeOf(err) != tidemark.NotMember {
			t.Errorf("%s, who is no member, gets %v", stranger, err)
		}
	}
	for of, want := range map[string]string{
		"a full": "6 1 3", "b full": "6 3 2", "d full": "6 1 4", "a since": "4 4 0",
		"a direct": "3 1 2", "b direct": "3 3 0",
	} {
		user, chat, _ := strings.Cut(of, " ")
		view, err := s.Chat(w.ctx, server.Caller{User: tidemark.UserID(user)},
			tidemark.ChatID(chat))
		w.ok(err)
		got := fmt.Sprint(view.State.Acked, " ", view.State.Read, " ", view.Unread.Messages)
		if got != want {
			t.Errorf("%s: acknowledged, read and not read are %q, want %q", of, got, want)
		}
	}
	if view, err := s.Chat(w.ctx, server.Caller{User: "a"}, "full"); err != nil ||
		view.Role != tidemark.Owner || view.Name != "full" || view.MemberCount != 3 {
		t.Errorf("the owner sees %+v, %v", view, err)
	}
	sent, err := s.Send(w.ctx, "b", tidemark.Draft{
		ChatID: "full", ClientMessageID: "live", Content: "now",
	})
	if err != nil || sent.Message.Sequence != 7 {
		t.Errorf("the next message is %d, %v; want 7", sent.Message.Sequence, err)
	}
}
