package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// intermittentMember joins a chat and leaves it, over all nodes, one call at a time. Joining and
// leaving are transactions of several statements, so a cut may leave them open for a while.
type intermittentMember struct {
	*history
	chat tidemark.ChatID
	name string
	// visits counts the joins. After some of them the member changes the name, since a user may
	// join only so often.
	visits int
	// in and out are the possible states: both, after a refused call. A refused call does not take
	// effect later: the next change of the members waits for it.
	in, out bool
}

func (g *intermittentMember) user() tidemark.UserID {
	return tidemark.UserID(fmt.Sprint(g.name, "-", g.visits/50))
}

// step joins, leaves or looks.
func (g *intermittentMember) step(ctx context.Context, w *worker) {
	w.node = w.random.IntN(len(w.stores))
	switch {
	case w.random.IntN(3) == 0:
		g.look(ctx, w)
	case g.in:
		if stranger, ok := g.leave(ctx, w); !ok {
			g.out = true
		} else {
			if stranger && !g.out {
				w.broken("%s left %s, and is refused as no member", g.user(), g.chat)
			}
			g.in, g.out = false, true
		}
	default:
		if g.visits++; g.visits%50 == 0 {
			g.in, g.out = false, true // another user
		}
		if w.call(ctx, "AddMembers", func(ctx context.Context, s storage.Store) error {
			_, err := s.AddMembers(ctx, g.chat, []tidemark.UserID{g.user()}, tidemark.Ordinary,
				time.Now())
			return err
		}) {
			g.in, g.out = true, false
		} else {
			g.in = true
		}
	}
	<-time.After(time.Duration(10+w.random.IntN(30)) * time.Millisecond)
}

// leave leaves the chat. stranger reports that the user was no member.
func (g *intermittentMember) leave(ctx context.Context, w *worker) (stranger, ok bool) {
	ok = w.call(ctx, "RemoveMember", func(ctx context.Context, s storage.Store) error {
		_, err := s.RemoveMember(ctx, g.chat, g.user(), time.Now())
		if stranger = tidemark.CodeOf(err) == tidemark.NotMember; stranger {
			return nil
		}
		return err
	})
	return stranger, ok
}

// look reads the members, and reports whether the call succeeded.
func (g *intermittentMember) look(ctx context.Context, w *worker) bool {
	var rosters []*tidemark.Roster
	if !w.call(ctx, "Rosters", func(ctx context.Context, s storage.Store) (err error) {
		rosters, err = s.Rosters(ctx, []tidemark.ChatID{g.chat})
		return err
	}) {
		return false
	}
	if rosters[0] == nil {
		w.broken("%s is answered as if it did not exist", g.chat)
		return true
	}
	_, in := rosters[0].Member(g.user())
	if in && !g.in || !in && !g.out {
		w.broken("%s is a member of %s: %v, and it can be so: %v, or not: %v",
			g.user(), g.chat, in, g.in, g.out)
	}
	return true
}
