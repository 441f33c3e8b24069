package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
)

func getenv(variable string) string { return os.Getenv(variable) }

// settle sends a message to every chat over every node, and repeats what was refused until it is
// confirmed.
func (h *history) settle() {
	h.t.Helper()
	ctx := h.t.Context()
	for node := range h.stores {
		store := h.store(node)
		w := &worker{
			history: h,
			number:  1000 + node,
			node:    node,
			random:  rand.New(rand.NewPCG(h.seed, uint64(1000+node))),
		}
		try := func(what string, do func() bool) {
			for deadline := time.Now().Add(h.patience); !do() && !h.over(); {
				if time.Now().After(deadline) {
					h.broken("%s over node %d: not within %v after the fault",
						what, node, h.patience)
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
		h.resend(ctx, w)
	}
	// Each intermittent member has joined and left once more.
	w := &worker{history: h, number: 2000, random: rand.New(rand.NewPCG(h.seed, 2000))}
	for _, g := range h.intermittents {
		steps := 0
		if _, ok := wait.Poll(func() (int, bool) {
			g.step(ctx, w)
			steps++
			return 0, steps >= 10 && !(g.in && g.out) || h.over()
		}); !ok {
			h.broken("the members of %s cannot be changed after the fault", g.chat)
		}
	}
	for _, f := range h.creators {
		f.finish(ctx, w)
	}
	for _, o := range h.soleWriters {
		o.head = h.heads[o.chat]
		o.widen()
	}
}

// resend repeats what was refused until all of it is confirmed. It sends many messages in a call,
// and fewer if that exceeds a caller's deadline.
func (h *history) resend(ctx context.Context, w *worker) {
	many, all := 100, h.unsettled()
	if _, ok := wait.Poll(func() (int, bool) {
		left := h.unsettled()
		if len(left) > 0 && !w.append(ctx, left[:min(len(left), many)]) {
			many = max(many/2, 1)
		}
		return len(all) - len(left), len(left) == 0 || h.over()
	}); !ok {
		h.broken("sending what was refused over node %d: %d messages are not confirmed",
			w.node, len(h.unsettled()))
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
	for _, o := range h.soleWriters {
		chats = append(chats, o.chat)
	}
	return chats
}

// verify compares what is stored, as each node reads it, with the answers.
func (h *history) verify() {
	h.t.Helper()
	ctx := h.t.Context()
	for node := range h.stores {
		store := h.store(node)
		stored := map[string]tidemark.Sequence{}
		var heads []tidemark.Sequence
		insist(h.t, func() (err error) {
			heads, err = store.Heads(ctx, h.allChats())
			return err
		})
		for i, chat := range h.allChats() {
			last := tidemark.Sequence(0)
			for more := true; more; {
				var pages [][]tidemark.Message
				insist(h.t, func() (err error) {
					pages, err = store.Ranges(ctx, []storage.Range{
						{Chat: chat, After: last, Limit: 1000},
					})
					return err
				})
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
						h.broken("%s is stored at %d of %s, and nobody sent that",
							key, m.Sequence, chat)
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
				h.broken("%s is confirmed at %d, and stored at %d (0: not at all) as node %d "+
					"reads it", key, s.sequence, stored[key], node)
			}
		}
		for key, told := range h.raised {
			var states []tidemark.DeliveryState
			insist(h.t, func() (err error) {
				states, err = store.States(ctx, []storage.StateKey{key})
				return err
			})
			if s := states[0]; s.Acked < told || s.Acked > h.heads[key.Chat] || s.Read > s.Acked {
				h.broken("%s's watermarks in %s are %d and %d; a caller got %d, the head is "+
					"%d", key.User, key.Chat, s.Acked, s.Read, told, h.heads[key.Chat])
			}
		}
		w := &worker{
			history: h,
			node:    node,
			random:  rand.New(rand.NewPCG(h.seed, uint64(2000+node))),
		}
		for _, o := range h.soleWriters {
			if _, ok := wait.Poll(func() (int, bool) { return 0, o.look(ctx, w) }); !ok {
				h.broken("the pending rows cannot be read over node %d", node)
			}
		}
		for _, g := range h.intermittents {
			if _, ok := wait.Poll(func() (int, bool) { return 0, g.look(ctx, w) }); !ok {
				h.broken("the members cannot be read over node %d", node)
			}
		}
	}
}

// insist repeats a call while it is refused as Unavailable: there is no fault yet or no more, and
// the machine may be busy.
func insist(t *testing.T, call func() error) {
	t.Helper()
	var err error
	wait.Poll(func() (int, bool) {
		err = call()
		return 0, tidemark.CodeOf(err) != tidemark.Unavailable
	})
	must(t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
