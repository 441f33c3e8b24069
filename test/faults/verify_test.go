package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func getenv(variable string) string { return os.Getenv(variable) }

// settle sends a message to every chat over every node, and what was refused once more: then it is confirmed.
func (h *history) settle() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 60*time.Second)
	defer cancel()
	for node, store := range h.stores {
		w := &worker{history: h, number: 1000 + node, node: node, random: rand.New(rand.NewPCG(h.seed, uint64(1000+node)))}
		try := func(what string, do func() bool) {
			for deadline := time.Now().Add(h.patience); !do(); {
				if time.Now().After(deadline) {
					h.broken("%s over node %d: not within %v after the fault", what, node, h.patience)
					return
				}
				<-time.After(5 * time.Millisecond)
			}
		}
		try("Check", func() bool { return store.Check(ctx) == nil })
		for _, chat := range h.allChats() {
			s := w.compose(chat, fmt.Sprint("after-", node))
			try("sending to "+string(chat), func() bool { return w.append(ctx, []*send{s}) })
		}
		for again := range slices.Chunk(h.unsettled(), 100) {
			try("sending what was refused", func() bool { return w.append(ctx, again) })
		}
	}
	// Everybody has come and gone once more.
	w := &worker{history: h, number: 2000, random: rand.New(rand.NewPCG(h.seed, 2000))}
	for _, g := range h.guests {
		for range 10 {
			g.step(ctx, w)
		}
		if g.in && g.out {
			h.broken("the members of %s cannot be changed after the fault", g.chat)
		}
	}
	for _, f := range h.founders {
		f.finish(ctx, w)
	}
	for _, o := range h.owners {
		o.head = h.heads[o.chat]
		o.widen()
	}
}

func (h *history) unsettled() (sends []*send) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sends {
		if s.sequence == 0 {
			sends = append(sends, s)
		}
	}
	return sends
}

func (h *history) allChats() []tidemark.ChatID {
	chats := append([]tidemark.ChatID{}, h.chats...)
	for _, o := range h.owners {
		chats = append(chats, o.chat)
	}
	return chats
}

// verify compares what is stored, as each node reads it, with what was told.
func (h *history) verify() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 60*time.Second)
	defer cancel()
	for node, store := range h.stores {
		stored := map[string]tidemark.Sequence{}
		heads, err := store.Heads(ctx, h.allChats())
		must(h.t, err)
		for i, chat := range h.allChats() {
			last := tidemark.Sequence(0)
			for more := true; more; {
				pages, err := store.Ranges(ctx, []storage.Range{{Chat: chat, After: last, Limit: 1000}})
				must(h.t, err)
				for _, m := range pages[0] {
					if last++; m.Sequence != last {
						h.broken("%s: after %d comes %d", chat, last-1, m.Sequence)
						last = m.Sequence
					}
					key := string(chat) + "/" + m.ClientMessageID
					if stored[key] != 0 {
						h.broken("%s is stored at %d and at %d", key, stored[key], m.Sequence)
					}
					if s := h.sends[key]; s == nil || !m.SameAs(&s.draft) {
						h.broken("%s is stored at %d of %s, and nobody sent that", key, m.Sequence, chat)
					}
					stored[key] = m.Sequence
				}
				more = len(pages[0]) > 0
			}
			if last != heads[i] {
				h.broken("%s ends at %d, and its head is %d", chat, last, heads[i])
			}
		}
		for key, s := range h.sends {
			if s.sequence == 0 || stored[key] != s.sequence {
				h.broken("%s is confirmed at %d, and stored at %d (0: not at all) as node %d reads it", key, s.sequence, stored[key], node)
			}
		}
		for key, told := range h.raised {
			states, err := store.States(ctx, []storage.StateKey{key})
			must(h.t, err)
			if s := states[0]; s.Acked < told || s.Acked > h.heads[key.Chat] || s.Read > s.Acked {
				h.broken("%s's watermarks in %s are %d and %d; somebody was told %d, the head is %d", key.User, key.Chat, s.Acked, s.Read, told, h.heads[key.Chat])
			}
		}
		w := &worker{history: h, node: node, random: rand.New(rand.NewPCG(h.seed, uint64(2000+node)))}
		for _, o := range h.owners {
			if !o.look(ctx, w) {
				h.broken("the pending rows cannot be read over node %d", node)
			}
		}
		for _, g := range h.guests {
			if !g.look(ctx, w) {
				h.broken("the members cannot be read over node %d", node)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
