package chat_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// stored is a storage of one chat with one member, bob. Each message has the same content.
type stored struct {
	oneMessage
	head    tidemark.Sequence
	content string
	// reads and rosters count the reads of messages and of rosters.
	reads, rosters int
	// edits says that all messages are edits of the first one.
	edits bool
	// reading, if not nil, is called when messages have been read, before they are returned.
	reading func()
}

func (s *stored) message(n tidemark.Sequence, content string) tidemark.Message {
	m := tidemark.Message{
		ChatID: "c", Sequence: n, Content: content, MembersVersion: 1, CreatedAt: time.Now(),
		Kind: tidemark.KindMessage, MessageID: "m", SenderID: "bob",
	}
	if s.edits {
		m.Kind, m.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 1}
	}
	return m
}

func (s *stored) Ranges(_ context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	s.reads++
	pages := make([][]tidemark.Message, len(ranges))
	for i, r := range ranges {
		for n := r.After + 1; n <= s.head; n++ {
			pages[i] = append(pages[i], s.message(n, s.content))
		}
	}
	if s.reading != nil {
		s.reading()
	}
	return pages, nil
}

// Rosters calls reading, too.
func (s *stored) Rosters(
	ctx context.Context, chats []tidemark.ChatID,
) ([]*tidemark.Roster, error) {
	rosters, err := s.oneMessage.Rosters(ctx, chats)
	s.rosters++
	if s.reading != nil {
		s.reading()
	}
	return rosters, err
}

// termed is a cache of a node that has met others, in its first term.
func termed(s chat.Storage) *chat.Cache {
	c := chat.New(s, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 8})
	trust(c)
	return c
}

func trust(c *chat.Cache) { c.TrustUntil(time.Now().Add(24*time.Hour), 24*time.Hour) }

// wantPage checks the messages from one sequence to another, as bob gets them, and how often they
// were read from storage.
func (s *stored) wantPage(
	t *testing.T, what string, c *chat.Cache, from, to tidemark.Sequence, content string, reads int,
) {
	t.Helper()
	before := s.reads
	pages, err := c.Pages(t.Context(), []chat.Request{
		{User: "bob", Chat: "c", From: from, To: to, Limit: 10, Bytes: 1 << 20},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, piece := range pages[0].Pieces {
		var m struct{ Content string }
		if err := json.Unmarshal(piece.Payload, &m); err != nil {
			t.Fatal(err)
		}
		got += m.Content
	}
	if got != content || s.reads-before != reads {
		t.Errorf("%s: got %q with %d reads of storage, want %q with %d",
			what, got, s.reads-before, content, reads)
	}
}

func TestR_WIPE_an_earlier_term_is_not_served(t *testing.T) {
	for what, next := range map[string]func(c *chat.Cache){
		"after an epoch": func(c *chat.Cache) { c.Forget() },
		"after a time without trust": func(c *chat.Cache) {
			c.TrustUntil(time.Time{}, 0)
			trust(c)
		},
	} {
		s := &stored{head: 1, content: "stub"}
		c := termed(s)
		m := s.message(1, "text")
		c.Stored(c.Chat("c"), &m, m.AppendJSON(nil), c.Term())
		s.wantPage(t, "in its term", c, 1, 1, "text", 0)
		next(c)
		s.wantPage(t, what, c, 1, 1, "stub", 1)
		s.wantPage(t, what+", once it was read", c, 1, 1, "stub", 0)
	}
}

// TestR_WIPE_a_page_from_before_a_term_is_not_kept: a relation may have been missed since it was
// read.
func TestR_WIPE_a_page_from_before_a_term_is_not_kept(t *testing.T) {
	for _, edits := range []bool{false, true} {
		s := &stored{head: 2, content: "text", edits: edits}
		c := termed(s)
		s.reading = c.Forget
		s.wantPage(t, "while the term ends", c, 2, 2, "text", 1)
		s.content, s.reading = "stub", nil
		s.wantPage(t, "in the next term", c, 2, 2, "stub", 1)
	}
}

func TestR_WIPE_what_follows_in_a_term_is_kept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stored{head: 3, content: "s"}
		var c *chat.Cache
		put := func(n tidemark.Sequence) {
			m := s.message(n, "p")
			c.Put(c.Chat("c"), &m, m.AppendJSON(nil))
		}
		c = termed(s)
		put(2)
		s.wantPage(t, "before anything is known of the chat", c, 2, 3, "ss", 1)

		c = termed(s)
		s.wantPage(t, "nothing after the end", c, 4, 4, "", 1)
		put(2)
		s.wantPage(t, "from before the end", c, 2, 3, "ss", 1)
		c = termed(s)
		s.wantPage(t, "nothing after the end", c, 4, 4, "", 1)
		put(4)
		s.wantPage(t, "from after the end", c, 4, 4, "p", 0)

		c = termed(s)
		before := c.Term()
		own := s.message(4, "o")
		c.Stored(c.Chat("c"), &own, own.AppendJSON(nil), before)
		put(5)
		s.wantPage(t, "after a message of this node", c, 4, 5, "op", 0)
		c.Forget()
		c.Stored(c.Chat("c"), &own, own.AppendJSON(nil), before)
		put(5)
		s.head = 5
		s.wantPage(t, "after a message of an earlier term", c, 4, 5, "ss", 1)

		c = termed(s)
		time.Sleep(time.Minute)
		put(2)
		s.wantPage(t, "a minute later", c, 2, 2, "p", 0)
		old := s.message(3, "p")
		time.Sleep(11 * time.Minute)
		c.Put(c.Chat("c"), &old, old.AppendJSON(nil))
		s.wantPage(t, "long after it was stored", c, 3, 3, "s", 1)
	})
}

// TestR_WIPE_a_term_does_not_come_back: a node that has met no other one was away, and others came
// and went meanwhile.
func TestR_WIPE_a_term_does_not_come_back(t *testing.T) {
	s := &stored{head: 1, content: "stub"}
	c := chat.New(s, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 8})
	trustAlone := func() { c.TrustUntil(time.Now().Add(time.Hour), 0) }
	trustAlone()
	before, m := c.Term(), s.message(1, "text")
	c.TrustUntil(time.Time{}, 0)
	c.Forget()
	trustAlone()
	c.Stored(c.Chat("c"), &m, m.AppendJSON(nil), before)
	s.wantPage(t, "what was stored before", c, 1, 1, "stub", 1)
}

// TestRoster_from_before_a_term_is_read_again: a change of members may have been missed since it
// was read.
func TestRoster_from_before_a_term_is_read_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stored{head: 1}
		c := termed(s)
		s.reading = func() {
			time.Sleep(time.Second)
			c.Forget()
		}
		for _, want := range []int{1, 2, 2} {
			if _, err := c.Roster(t.Context(), "c", 0); err != nil {
				t.Fatal(err)
			}
			if s.rosters != want {
				t.Errorf("%d reads of the roster, want %d", s.rosters, want)
			}
			s.reading = nil
		}
	})
}

// TestR_WIPE_a_node_that_meets_another_one begins a term: it may not know the messages of the other
// one.
func TestR_WIPE_a_node_that_meets_another_one_begins_a_term(t *testing.T) {
	c := chat.New(&stored{}, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 8})
	until := time.Now().Add(time.Hour)
	c.TrustUntil(until, 0)
	alone := c.Term()
	c.TrustUntil(until, 0)
	if got := c.Term(); got != alone {
		t.Errorf("term %d while it is alone, want %d", got, alone)
	}
	c.TrustUntil(until, time.Minute)
	met := c.Term()
	c.TrustUntil(until, time.Minute)
	if got := c.Term(); met == alone || got != met {
		t.Errorf("terms %d and then %d after it met another node, want a new one", met, got)
	}
}

// TestRelate_keeps_what_comes_after: a relation changes earlier messages only.
func TestRelate_keeps_what_comes_after(t *testing.T) {
	s := &stored{head: 4, content: "s"}
	c := chat.New(s, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 8})
	for n := range tidemark.Sequence(4) {
		m := s.message(n+1, "p")
		c.Put(c.Chat("c"), &m, m.AppendJSON(nil))
	}
	before := c.Bytes()
	c.Relate("c", 3)
	if got := c.Bytes(); got != before/2 {
		t.Errorf("got %d bytes after the relation, want half of %d", got, before)
	}
	s.wantPage(t, "from the relation on", c, 3, 4, "pp", 0)
	s.wantPage(t, "before it", c, 1, 4, "ssss", 1)
}

// TestPut_alone: a node that never met another one keeps all it is given.
func TestPut_alone(t *testing.T) {
	c := chat.New(memory.New(), chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 8})
	c.TrustUntil(time.Now().Add(time.Hour), 0)
	m := tidemark.Message{
		ChatID: "c", Sequence: 7, CreatedAt: time.Now().Add(-3 * 24 * time.Hour),
	}
	c.Put(c.Chat("c"), &m, m.AppendJSON(nil))
	if c.Bytes() == 0 {
		t.Error("nothing is cached")
	}
}

// TestPages_at_the_end_of_a_chat_read_no_roster: a request that asks where a chat ends finds
// nothing there as a rule. If all that is known to follow is missing, the floor is read once.
func TestPages_at_the_end_of_a_chat_read_no_roster(t *testing.T) {
	s := &stored{head: 1, content: "stub"}
	c := termed(s)
	s.wantPage(t, "the first page", c, 1, 1, "stub", 1)
	for what, want := range map[string]struct {
		request chat.Request
		rosters int
	}{
		"where the chat ends": {chat.Request{OpenEnded: true}, 0},
		"what must be there":  {chat.Request{To: 2}, 1},
	} {
		before := s.rosters
		r := want.request
		r.User, r.Chat, r.From, r.Limit, r.Bytes = "bob", "c", 2, 10, 1<<20
		pages, err := c.Pages(t.Context(), []chat.Request{r}, nil)
		if err != nil || len(pages[0].Pieces) > 0 || pages[0].End != r.OpenEnded {
			t.Errorf("%s: got %+v, %v", what, pages, err)
		}
		if got := s.rosters - before; got != want.rosters {
			t.Errorf("%s: %d rosters were read, want %d", what, got, want.rosters)
		}
	}
}
