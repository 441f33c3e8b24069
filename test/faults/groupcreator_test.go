package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// perStep is how many members a chat begins with, and how many join later. They are more than
	// fit into one transaction of any storage.
	perStep = 110
	// perStepLarge makes the chat Large when the second half of the members joins.
	perStepLarge = tidemark.PendingFanoutLimit/2 + 5
	// longCall bounds the calls that write an item for each of many members.
	longCall = 12 * time.Second
)

// groupCreator creates chats with many members, and direct chats from both sides, over all nodes.
// It repeats each stage of a chat until it is answered. So it knows what must be stored, whatever
// was refused before.
type groupCreator struct {
	*history
	name string
	// perStep is how many members join at a time.
	perStep int
	made    int
	// chat is the present chat, "" if it is finished. stage is the next stage, and asked how many
	// users it has asked about already. doubt reports that the present stage was refused once.
	chat         tidemark.ChatID
	stage, asked int
	doubt        bool
}

func (f *groupCreator) user(n int) tidemark.UserID {
	return tidemark.UserID(fmt.Sprintf("%s-%03d", f.name, n))
}

func (f *groupCreator) people(from, to int) (all []tidemark.UserID) {
	for n := from; n < to; n++ {
		all = append(all, f.user(n))
	}
	return all
}

// step performs the next stage of a chat.
func (f *groupCreator) step(ctx context.Context, w *worker) {
	w.node = w.random.IntN(len(w.stores))
	if f.chat == "" {
		f.made++
		f.chat = tidemark.ChatID(fmt.Sprint(f.name, "-", f.made))
		f.stage, f.asked = 0, 0
	}
	<-time.After(time.Duration(w.random.IntN(100)) * time.Millisecond)
	stages := []func(context.Context, *worker) bool{
		f.direct, f.create, f.add, f.remove, f.look, f.pending,
	}
	if !stages[f.stage](ctx, w) {
		f.doubt = true
		return
	}
	f.doubt = false
	if f.stage++; f.stage == len(stages) {
		f.chat = ""
	}
}

// finish performs the remaining stages of the present chat, after the fault. Each step has its own
// deadline: the stages of a Large chat are long.
func (f *groupCreator) finish(ctx context.Context, w *worker) {
	deadline := time.Now().Add(f.patience)
	for f.chat != "" && !f.over() {
		stage, asked := f.stage, f.asked
		if f.step(ctx, w); f.stage != stage || f.asked != asked {
			deadline = time.Now().Add(f.patience)
		}
		if time.Now().After(deadline) {
			f.broken("stage %d of the chat %s cannot be finished after the fault", f.stage, f.chat)
			return
		}
	}
}

func (f *groupCreator) create(ctx context.Context, w *worker) bool {
	return w.callWithin(ctx, longCall, longCall, "CreateChat", func(
		ctx context.Context, s storage.Store,
	) error {
		chat, created, err := s.CreateChat(ctx, storage.NewChat{
			ID:        f.chat,
			Type:      tidemark.Group,
			CreatedAt: time.Now(),
			Creator:   f.user(0),
			Members:   f.people(0, f.perStep),
		})
		if f.doubt && tidemark.CodeOf(err) == tidemark.Conflict {
			return nil // the refused call had stored it
		}
		if err == nil && (!created || chat.MemberCount != f.perStep || chat.MembersVersion != 1) {
			f.broken("%s was created: %v, with %d members at version %d",
				f.chat, created, chat.MemberCount, chat.MembersVersion)
		}
		return err
	})
}

func (f *groupCreator) add(ctx context.Context, w *worker) bool {
	return w.callWithin(ctx, longCall, longCall, "AddMembers", func(
		ctx context.Context, s storage.Store,
	) error {
		added, err := s.AddMembers(ctx, f.chat, f.people(f.perStep-10, 2*f.perStep),
			tidemark.Ordinary, time.Now())
		if err == nil && (added.Version != 2 || len(added.States) != f.perStep+10 ||
			!f.doubt && len(added.New) != f.perStep) {
			f.broken("%s has version %d with %d states of %d who came, of whom %d are new",
				f.chat, added.Version, len(added.States), f.perStep+10, len(added.New))
		}
		return err
	})
}

func (f *groupCreator) remove(ctx context.Context, w *worker) bool {
	return w.call(ctx, "RemoveMember", func(ctx context.Context, s storage.Store) error {
		removed, err := s.RemoveMember(ctx, f.chat, f.user(1), time.Now())
		if f.doubt && tidemark.CodeOf(err) == tidemark.NotMember {
			return nil
		}
		if err == nil && removed.Version != 3 {
			f.broken("%s has version %d after the second change of its members",
				f.chat, removed.Version)
		}
		return err
	})
}

// look reads the members: all of them, once, at the version after three changes.
func (f *groupCreator) look(ctx context.Context, w *worker) bool {
	return w.call(ctx, "Rosters", func(ctx context.Context, s storage.Store) error {
		rosters, err := s.Rosters(ctx, []tidemark.ChatID{f.chat})
		if err != nil {
			return err
		}
		if rosters[0] == nil {
			f.broken("%s is answered as if it did not exist", f.chat)
			return nil
		}
		var present []tidemark.UserID
		for _, m := range rosters[0].Members {
			present = append(present, m.UserID)
		}
		want := slices.Delete(f.people(0, 2*f.perStep), 1, 2)
		if !slices.Equal(present, want) || rosters[0].Version != 3 {
			f.broken("%s has %d members at version %d, want %d at version 3",
				f.chat, len(present), rosters[0].Version, len(want))
		}
		return nil
	})
}

// pending reads the pending rows of some users. Each member of a Large chat has one, which stands
// for its heads; no other user has.
func (f *groupCreator) pending(ctx context.Context, w *worker) bool {
	for ; ; f.asked++ {
		n := 1 + f.asked*(f.perStep/12)
		if n >= 2*f.perStep {
			return true
		}
		want := 2*f.perStep > tidemark.PendingFanoutLimit && n != 1
		if !w.call(ctx, "PendingOf", func(ctx context.Context, s storage.Store) error {
			rows, _, err := s.PendingOf(ctx, f.user(n), "", 1000)
			if err != nil {
				return err
			}
			stands := slices.ContainsFunc(rows, func(r storage.PendingRow) bool {
				return r.ChatID == f.chat && r.FirstUndelivered == 0
			})
			if stands != want {
				f.broken("the row of %s for the Large chat %s stands: %v, want %v",
					f.user(n), f.chat, stands, want)
			}
			return nil
		}) {
			return false
		}
	}
}

// direct creates the direct chat of two users from both sides, over two nodes. Both calls must
// return the same chat.
func (f *groupCreator) direct(ctx context.Context, w *worker) bool {
	pair := []tidemark.UserID{f.user(f.made), f.user(1000 + f.made)}
	ids := make([]tidemark.ChatID, 2)
	for side := range ids {
		w.node = (w.node + 1) % len(w.stores)
		if !w.call(ctx, "CreateChat", func(ctx context.Context, s storage.Store) error {
			id := fmt.Sprint(f.chat, "-direct-", side, "-", w.random.Uint32())
			chat, _, err := s.CreateChat(ctx, storage.NewChat{
				ID:        tidemark.ChatID(id),
				Type:      tidemark.Direct,
				CreatedAt: time.Now(),
				Creator:   pair[side],
				Members:   pair,
			})
			ids[side] = chat.ID
			return err
		}) {
			return false
		}
	}
	if ids[0] != ids[1] {
		w.broken("%v have two direct chats, %s and %s", pair, ids[0], ids[1])
	}
	return true
}
