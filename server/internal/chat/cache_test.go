package chat_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// TestPut_remembers_no_more_than_its_bounds: the messages of one chat, the chats, and the bytes of
// all chats are bounded.
func TestPut_remembers_no_more_than_its_bounds(t *testing.T) {
	const payload = 100
	for what, tt := range map[string]struct {
		cfg         chat.Config
		chats, puts int
		most        int64
	}{
		"messages of a chat": {
			chat.Config{Chats: 10, Bytes: 1 << 30, Messages: 4}, 1, 100, 4 * 2 * payload,
		},
		"bytes of all": {
			chat.Config{Chats: 10_000, Bytes: 50_000, Messages: 4}, 1_000, 4, 51_000,
		},
		"chats": {
			chat.Config{Chats: 10, Bytes: 1 << 30, Messages: 4}, 1_000, 4, 10 * 4 * 2 * payload,
		},
	} {
		c := chat.New(memory.New(), tt.cfg) // its storage is never read here
		for i := range tt.chats {
			id := tidemark.ChatID(fmt.Sprintf("c%d", i))
			for n := range tt.puts {
				m := tidemark.Message{
					ChatID: id, Sequence: tidemark.Sequence(n + 1), CreatedAt: time.Now(),
				}
				c.Put(c.Chat(id), &m, make([]byte, payload))
			}
		}
		if got := c.Bytes(); got == 0 || got > tt.most {
			t.Errorf("%s: got %d cached bytes, want 1 to %d", what, got, tt.most)
		}
	}
}

// large is a storage whose chats have a hundred members each.
type large struct{ chat.Storage }

func (large) Rosters(_ context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	rosters := make([]*tidemark.Roster, len(chats))
	for i, id := range chats {
		members := make([]tidemark.Member, 100)
		for j := range members {
			members[j] = tidemark.Member{
				UserID:    tidemark.UserID(fmt.Sprintf("u%03d", j)),
				Intervals: tidemark.Intervals{{From: 1}},
			}
		}
		rosters[i] = &tidemark.Roster{ChatID: id, Version: 1, Members: members}
	}
	return rosters, nil
}

// TestRosters_take_no_more_than_their_bound: a chat with many members counts for more than one with
// few. What is dropped, in whatever way, is counted no more.
func TestRosters_take_no_more_than_their_bound(t *testing.T) {
	const chats, most = 500, 200_000
	c := chat.New(large{}, chat.Config{Chats: 10_000, Bytes: 1, RosterBytes: most, Messages: 4})
	id := func(n int) tidemark.ChatID { return tidemark.ChatID(fmt.Sprintf("c%d", n)) }
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for n := range chats {
				ids := []tidemark.ChatID{id(n), id((n + 250) % chats)}
				if _, err := c.Rosters(t.Context(), ids); err != nil {
					t.Error(err)
				}
				switch n % 10 {
				case 3:
					c.ForgetRoster(id(n))
				case 5:
					c.Chat(id(n)).Invalidate(2)
				}
			}
		})
	}
	readers.Wait()
	if got := c.RosterBytes(); got < most/4 || got > most {
		t.Errorf("got %d cached bytes of rosters, want %d to %d", got, most/4, most)
	}
	c.Forget()
	if got := c.RosterBytes(); got != 0 {
		t.Errorf("got %d bytes after all was dropped, want 0", got)
	}
}

// olderEachRead returns an older roster with each read, as an eventually consistent store may.
type olderEachRead struct {
	chat.Storage
	version uint64
}

func (s *olderEachRead) Rosters(
	_ context.Context, chats []tidemark.ChatID,
) ([]*tidemark.Roster, error) {
	s.version--
	return []*tidemark.Roster{{ChatID: chats[0], Version: s.version}}, nil
}

// TestPeople_newest_roster_is_kept: a read that returns an older roster does not replace a newer
// one.
func TestPeople_newest_roster_is_kept(t *testing.T) {
	c := chat.New(&olderEachRead{version: 10}, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 4})
	for _, atLeast := range []uint64{0, 20, 20, 0} {
		p, err := c.Roster(t.Context(), "c", atLeast)
		if err != nil || p.Version != 9 {
			t.Errorf("Roster at least %d: got version %d, %v, want 9, the newest that was read",
				atLeast, p.Version, err)
		}
	}
}

// changing is a storage whose chat is deleted while its members are read for the first time.
type changing struct {
	chat.Storage
	cache *chat.Cache
}

func (s *changing) Rosters(
	_ context.Context, chats []tidemark.ChatID,
) ([]*tidemark.Roster, error) {
	if s.cache == nil {
		return []*tidemark.Roster{{ChatID: "c", State: tidemark.ChatDeleted, Version: 2}}, nil
	}
	s.cache.Chat("c").Invalidate(2)
	s.cache = nil
	bob := tidemark.Member{UserID: "bob", Intervals: tidemark.Intervals{{From: 1}}}
	return []*tidemark.Roster{{ChatID: "c", Version: 1, Members: []tidemark.Member{bob}}}, nil
}

// TestMember_deleted_is_gone_also_if_the_read_began_before: the roster of before is not kept.
func TestMember_deleted_is_gone_also_if_the_read_began_before(t *testing.T) {
	s := &changing{}
	c := chat.New(s, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 4})
	s.cache = c
	if _, _, err := c.Member(t.Context(), "bob", "c"); err != nil {
		t.Fatalf("while the chat is deleted: %v", err)
	}
	_, _, err := c.Member(t.Context(), "bob", "c")
	if tidemark.CodeOf(err) != tidemark.NotMember {
		t.Errorf("after it: %v, want NotMember", err)
	}
	if n := c.RosterBytes(); n < 0 {
		t.Errorf("the rosters have %d bytes", n)
	}
}

// oneMessage is a storage of one chat with one member, bob, and one message.
type oneMessage struct{ message tidemark.Message }

func (s oneMessage) Rosters(ctx context.Context, _ []tidemark.ChatID) ([]*tidemark.Roster, error) {
	bob := tidemark.Member{UserID: "bob", Intervals: tidemark.Intervals{{From: 1}}}
	return []*tidemark.Roster{{ChatID: "c", Version: 1, Members: []tidemark.Member{bob}}}, ctx.Err()
}

func (s oneMessage) Ranges(context.Context, []storage.Range) ([][]tidemark.Message, error) {
	return [][]tidemark.Message{{s.message}}, nil
}

// TestPages_of_a_membership_that_does_not_exist_are_read: a published message may name a membership
// version that storage never reaches. The page is then read from storage instead of waiting for
// that version.
func TestPages_of_a_membership_that_does_not_exist_are_read(t *testing.T) {
	stored := tidemark.Message{ChatID: "c", Sequence: 1, Content: "stored", MembersVersion: 1}
	c := chat.New(oneMessage{stored}, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 4})
	published := tidemark.Message{
		ChatID: "c", Sequence: 1, Content: "published", MembersVersion: 1 << 40,
	}
	c.Put(c.Chat("c"), &published, published.AppendJSON(nil))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pages, err := c.Pages(ctx,
		[]chat.Request{{User: "bob", Chat: "c", From: 1, To: 1, Limit: 10, Bytes: 1 << 20}}, nil)
	if err != nil || len(pages[0].Pieces) != 1 ||
		string(pages[0].Pieces[0].Payload) != string(stored.AppendJSON(nil)) {
		t.Errorf("got %+v, %v, want the stored message", pages, err)
	}
}
