package chat_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// What a node remembers is bounded: by messages of a chat, and by bytes of all.
func TestPut_remembers_no_more_than_its_bounds(t *testing.T) {
	const payload = 100
	for what, tt := range map[string]struct {
		cfg         chat.Config
		chats, puts int
		most        int64
	}{
		"messages of a chat": {chat.Config{Chats: 10, Bytes: 1 << 30, Messages: 4}, 1, 100, 4 * 2 * payload},
		"bytes of all":       {chat.Config{Chats: 10_000, Bytes: 50_000, Messages: 4}, 1_000, 4, 51_000},
		"chats":              {chat.Config{Chats: 10, Bytes: 1 << 30, Messages: 4}, 1_000, 4, 10 * 4 * 2 * payload},
	} {
		f := chat.New(memory.New(), tt.cfg) // The store plays no role: nothing is read.
		for i := range tt.chats {
			chat := tidemark.ChatID(fmt.Sprintf("c%d", i))
			for n := range tt.puts {
				f.Put(f.Chat(chat), &tidemark.Message{ChatID: chat, Sequence: tidemark.Sequence(n + 1)}, make([]byte, payload))
			}
		}
		if got := f.Bytes(); got == 0 || got > tt.most {
			t.Errorf("%s: %d bytes are remembered, want at most %d", what, got, tt.most)
		}
	}
}

// stale answers with older and older rosters, as an eventual read may.
type stale struct {
	chat.Storage
	version uint64
}

func (s *stale) Rosters(_ context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	s.version--
	return []*tidemark.Roster{{ChatID: chats[0], Version: s.version}}, nil
}

func TestPeople_newest_roster_is_kept(t *testing.T) {
	f := chat.New(&stale{version: 10}, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 4})
	for _, atLeast := range []uint64{0, 20, 20, 0} {
		p, err := f.Roster(t.Context(), "c", atLeast)
		if err != nil || p.Version != 9 {
			t.Errorf("Roster at least %d: got version %d, %v, want 9, the newest that was read", atLeast, p.Version, err)
		}
	}
}

// truth has one chat of bob's, with one message.
type truth struct{ message tidemark.Message }

func (s truth) Rosters(ctx context.Context, _ []tidemark.ChatID) ([]*tidemark.Roster, error) {
	bob := tidemark.Member{UserID: "bob", Intervals: tidemark.Intervals{{From: 1}}}
	return []*tidemark.Roster{{ChatID: "c", Version: 1, Members: []tidemark.Member{bob}}}, ctx.Err()
}

func (s truth) Ranges(context.Context, []storage.Range) ([][]tidemark.Message, error) {
	return [][]tidemark.Message{{s.message}}, nil
}

// TestPages_of_a_membership_that_does_not_exist_are_read: what a node was told may be wrong, and no page waits for ever for it to become right.
func TestPages_of_a_membership_that_does_not_exist_are_read(t *testing.T) {
	stored := tidemark.Message{ChatID: "c", Sequence: 1, Content: "stored", MembersVersion: 1}
	f := chat.New(truth{stored}, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 4})
	told := tidemark.Message{ChatID: "c", Sequence: 1, Content: "told", MembersVersion: 1 << 40}
	f.Put(f.Chat("c"), &told, told.AppendJSON(nil))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	pages, err := f.Pages(ctx, []chat.Request{{User: "bob", Chat: "c", From: 1, To: 1, Limit: 10, Bytes: 1 << 20}}, nil)
	if err != nil || len(pages[0].Pieces) != 1 || string(pages[0].Pieces[0].Payload) != string(stored.AppendJSON(nil)) {
		t.Errorf("%+v, %v, want what is stored", pages, err)
	}
}
