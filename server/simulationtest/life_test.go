package simulationtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// life decides what expires in a run and what is deleted. Its zero value does nothing. It has dice
// of its own, so that the runs of seeds without it are as they would be if it did not exist.
type life struct {
	dice *rand.Rand
	// expiries and deletions say what happens in this run.
	expiries, deletions bool
	// lag is for how long the clocks of the nodes are behind. With it, what they store is old at
	// once, so that also what is under way may expire.
	lag time.Duration
	// days says that days pass while nodes and sessions live. Their leases are long, so that this
	// takes few steps.
	days bool
	// asked has the chats whose deletion was asked for.
	asked map[tidemark.ChatID]bool
	// missed has the deletions of which a node may not have been told: the labels of their acts.
	missed map[string]bool
	// messagesGone is when the messages of a deleted chat had been removed.
	messagesGone map[tidemark.ChatID]time.Time
}

// day is a time for which messages are kept.
const day = 24 * time.Hour

// purgeMembersAfter is how long after the messages the members of a deleted chat are removed
// (docs/retention.md).
const purgeMembersAfter = time.Minute

// live decides what happens in this run besides the rest. It also chooses where a node dies.
func (w *simulation) live(seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 19))
	l := life{
		expiries: dice.IntN(4) == 0, deletions: dice.IntN(5) == 0,
		asked: map[tidemark.ChatID]bool{}, missed: map[string]bool{},
		messagesGone: map[tidemark.ChatID]time.Time{},
	}
	if !l.expiries && !l.deletions {
		return
	}
	l.dice = dice
	if l.expiries && dice.IntN(2) == 0 {
		l.lag = storage.MinAge + day
	}
	l.days = l.expiries && l.lag == 0 && dice.IntN(3) > 0
	if l.days {
		w.enabled[jumps] = false
	}
	w.life = l
	kind := "Expire"
	if l.deletions && (!l.expiries || dice.IntN(2) == 0) {
		kind = "DeleteChat"
	}
	if dice.IntN(3) == 0 {
		w.crash.kind, w.crash.after = kind, 1
	}
}

// ttl is for how long leases are valid in this run.
func (w *simulation) ttl() time.Duration {
	if w.life.days {
		return 30*day + leaseTTL
	}
	return leaseTTL
}

// outlast lets so much time pass that leases and the grace period end.
func (w *simulation) outlast() {
	if w.life.days {
		w.sleepFor(2 * w.ttl())
		w.pass(grace)
	} else {
		w.pass(2*leaseTTL + grace)
	}
}

// sleepFor lets days pass. Nothing goes wrong and no device does anything meanwhile. So the nodes'
// calls need no order.
func (w *simulation) sleepFor(d time.Duration) {
	w.transcribe("%v pass", d)
	calm := w.calm
	w.calm = true
	defer func() { w.calm = calm }()
	w.pass(10 * time.Second)
	w.gate.setOpen(true)
	w.doze(d)
	synctest.Wait()
	w.gate.setOpen(false)
	w.settle()
}

// clock is the clock of the nodes.
func (w *simulation) clock() time.Time { return time.Now().Add(-w.life.lag) }

// ancient stores messages that are old, before anything else happens. The first one is 40 days old.
func (w *simulation) ancient() {
	dice := w.life.dice
	for _, chat := range w.chats {
		last := ""
		for i := range dice.IntN(6) {
			d := tidemark.Draft{
				ChatID: chat, SenderID: pickBy(dice, w.users[:2]),
				ClientMessageID: fmt.Sprintf("old-%d", i), Content: fmt.Sprintf("old %d", i),
				ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
				MessageID: tidemark.MessageID(fmt.Sprintf("%s-old-%d", chat, i)),
				CreatedAt: time.Now().UTC().Add(-time.Duration(40-6*i) * day),
			}
			if own := string(d.SenderID); own == last && dice.IntN(2) == 0 {
				// The message before it is the sender's own, and no relation.
				d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{
					Sequence: tidemark.Sequence(i),
				}
				last = ""
			} else {
				last = own
			}
			appended, err := w.raw.Append(context.Background(), []tidemark.Draft{d})
			if err != nil || appended[0].Err != nil {
				w.failf("Append: %v, %v", err, appended)
				return
			}
			w.truth.appended([]tidemark.Draft{d}, appended)
		}
	}
}

func pickBy[T any](dice *rand.Rand, of []T) T { return of[dice.IntN(len(of))] }

// age sometimes makes old messages expire, deletes a chat, or reads what is left.
func (w *simulation) age() {
	up := w.up()
	if w.life.dice == nil || len(up) == 0 {
		return
	}
	n := pickBy(w.life.dice, up)
	switch r := w.life.dice.IntN(120); {
	case r < 3 && w.life.expiries:
		w.expireSome(n)
	case r == 3 && w.life.deletions:
		w.remove(n)
	case r == 4 && w.life.deletions:
		w.purge(n, false)
	case r < 7:
		w.browse(n)
	case r < 9 && w.life.days && !w.quiet:
		w.count("days pass")
		w.sleepFor(time.Duration(4+w.life.dice.IntN(9)) * day)
		if w.life.dice.IntN(4) > 0 {
			for _, chat := range w.chats {
				w.expire(n, chat, storage.MinAge)
				w.settle()
			}
		}
	}
}

// expireSome removes old messages of some chat.
func (w *simulation) expireSome(n *node) {
	dice, age := w.life.dice, storage.MinAge
	if dice.IntN(2) == 0 {
		age += time.Duration(dice.IntN(34)) * day
	}
	w.expire(n, pickBy(dice, w.chats), age)
}

// expire removes the messages of a chat that are older than age in steps, as a sweeper does.
func (w *simulation) expire(n *node, chat tidemark.ChatID, age time.Duration) {
	limit, before := 1+w.life.dice.IntN(4), time.Now().Add(-age)
	w.act(n, fmt.Sprintf("expires %s, %d at once", chat, limit),
		func(ctx context.Context) func() {
			var err error
			for range 4 {
				var done storage.Expired
				done, err = gatedStore{n}.Expire(ctx, chat, before, limit)
				if err == nil && done.Removed < limit {
					break
				}
			}
			return func() { w.expect(err, tidemark.Unavailable) }
		})
}

// remove deletes a chat, or asks again for a deletion whose outcome is unknown. Only few chats are
// deleted, so that something is left.
func (w *simulation) remove(n *node) {
	dice := w.life.dice
	chat := pickBy(dice, w.chats)
	for _, other := range w.chats {
		if w.life.asked[other] && !w.truth.told[other] {
			chat = other
		}
	}
	if !w.life.asked[chat] && len(w.life.asked) > 0 && dice.IntN(4) > 0 {
		return
	}
	c := server.Caller{Backend: true}
	if chat != "ab" && dice.IntN(2) == 0 && !w.life.asked[chat] {
		c = server.Caller{User: "alice"}
	}
	w.erase(n, chat, c)
}

// erase deletes a chat.
func (w *simulation) erase(n *node, chat tidemark.ChatID, c server.Caller) {
	w.life.asked[chat] = true
	label := fmt.Sprintf("#%d", w.acts+1)
	w.act(n, fmt.Sprintf("deletes %s at %s", chat, n.id), func(ctx context.Context) func() {
		err := n.server.DeleteChat(ctx, c, chat)
		return func() {
			w.expect(err, w.orGone(chat, tidemark.Unavailable)...)
			if err != nil {
				return
			}
			if !w.truth.deleted[chat] {
				w.failf("deleted_is_gone: the deletion of %s was confirmed, and it is there", chat)
			}
			w.truth.told[chat] = w.truth.told[chat] || !w.life.missed[label]
		}
	})
}

// misses records that what an act publishes is not delivered before the act ends.
func (w *simulation) misses(ctx context.Context) {
	label, _ := ctx.Value(opKey{}).(string)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.missed != nil {
		w.life.missed[label] = true
	}
}

// purge removes what is left of deleted chats: the messages, and a minute later the members.
func (w *simulation) purge(n *node, all bool) {
	for _, chat := range w.chats {
		gone, since := w.life.messagesGone[chat]
		if !w.truth.deleted[chat] {
			continue
		}
		members := since && time.Since(gone) > purgeMembersAfter
		limit := 1 + w.life.dice.IntN(3)
		if all {
			limit = storage.MaxExpired
		}
		w.act(n, fmt.Sprintf("purges %s, members=%v", chat, members),
			func(ctx context.Context) func() {
				var done bool
				var err error
				for again := true; again; again = all && err == nil && !done {
					done, err = gatedStore{n}.PurgeChat(ctx, chat, limit, members)
				}
				return func() {
					w.expect(err, tidemark.Unavailable)
					if err == nil && done && !since {
						w.life.messagesGone[chat] = time.Now()
					}
				}
			})
	}
}

// browse reads the history of a chat, and checks it.
func (w *simulation) browse(n *node) {
	dice := w.life.dice
	chat, user := pickBy(dice, w.chats), pickBy(dice, w.users)
	after := tidemark.Sequence(dice.IntN(2))
	w.reads(n, user, server.HistoryRequest{Chat: chat, After: &after, Limit: 1 + dice.IntN(8)},
		func(server.History) {})
}

// reads reads a page of history upwards, and checks that it has no hole and nothing that was gone
// before.
func (w *simulation) reads(
	n *node, user tidemark.UserID, r server.HistoryRequest, then func(server.History),
) {
	floor, gone := w.truth.strict(r.Chat), w.truth.told[r.Chat]
	w.act(n, fmt.Sprintf("%s reads %s after %d at %s", user, r.Chat, *r.After, n.id),
		func(ctx context.Context) func() {
			page, err := n.server.History(ctx, user, r)
			return func() {
				w.expect(err, tidemark.Unavailable, tidemark.NotMember)
				if err != nil {
					return
				}
				if gone {
					w.failf("deleted_is_gone: %s reads %s", user, r.Chat)
				}
				w.truth.page(user, *r.After, page, floor, r.Chat)
				then(page)
			}
		})
}

// bury ends the deletions that were begun, when nothing goes wrong any more.
func (w *simulation) bury() {
	n := w.up()[0]
	for _, chat := range w.chats {
		if w.life.asked[chat] && !w.truth.told[chat] {
			w.erase(n, chat, server.Caller{Backend: true})
			w.settle()
			if !w.truth.told[chat] {
				w.failf("deleted_is_gone: %s cannot be deleted", chat)
			}
		}
	}
	if len(w.truth.deleted) == 0 {
		return
	}
	w.purge(n, true)
	w.settle()
	w.pass(purgeMembersAfter + time.Second)
	w.purge(n, true)
	w.settle()
}

// inspect checks at rest what users are told of their chats, and of those that are gone.
func (w *simulation) inspect() {
	if w.life.dice == nil {
		return
	}
	n := pickBy(w.life.dice, w.up())
	for _, chat := range w.chats {
		for _, user := range w.users {
			switch {
			case w.failed():
				return
			case w.truth.deleted[chat]:
				w.asksInVain(n, user, chat)
			case w.truth.member(user, chat):
				w.views(n, user, chat)
				w.scrolls(n, user, chat)
			}
			w.settle()
		}
	}
}

// views checks what a member is told of a chat.
func (w *simulation) views(n *node, user tidemark.UserID, chat tidemark.ChatID) {
	w.act(n, fmt.Sprintf("%s looks at %s", user, chat), func(ctx context.Context) func() {
		view, err := n.server.Chat(ctx, server.Caller{User: user}, chat)
		return func() {
			if w.expect(err); err != nil {
				return
			}
			if want := w.truth.unread(user, chat); view.Unread.Messages != want {
				w.failf("unread_exact: %s is told of %d unread messages in %s, and there are %d",
					user, view.Unread.Messages, chat, want)
			}
			if want := w.truth.floor(chat); view.Floor != want {
				w.failf("floor_recorded: %s is told that %s begins at %d, and it begins at %d",
					user, chat, view.Floor, want)
			}
		}
	})
}

// scrolls reads all of a chat in pages. Each page ends where the next one begins.
func (w *simulation) scrolls(n *node, user tidemark.UserID, chat tidemark.ChatID) {
	after, end := tidemark.Sequence(0), false
	for range 50 {
		w.reads(n, user, server.HistoryRequest{Chat: chat, After: &after, Limit: 3},
			func(h server.History) {
				end = !h.HasMore
				after = h.Next
			})
		w.settle()
		if end || w.failed() {
			break
		}
	}
	if head := w.truth.heads[chat]; !w.failed() && (!end || w.truth.through != head) {
		w.failf("sequence_gapless: %s reads %s up to %d, and its head is %d",
			user, chat, w.truth.through, head)
	}
	if w.truth.floor(chat) > 1 {
		w.count("checked sequence_gapless above a floor")
	}
}

// asksInVain checks that a deleted chat is gone for a user, and that a backend is told so.
func (w *simulation) asksInVain(n *node, user tidemark.UserID, chat tidemark.ChatID) {
	w.act(n, fmt.Sprintf("%s asks for %s in vain", user, chat), func(ctx context.Context) func() {
		after := tidemark.Sequence(0)
		_, shown := n.server.Chat(ctx, server.Caller{User: user}, chat)
		_, backend := n.server.Chat(ctx, server.Caller{Backend: true}, chat)
		_, read := n.server.History(ctx, user,
			server.HistoryRequest{Chat: chat, After: &after, Limit: 10})
		_, sent := n.server.Send(ctx, user, tidemark.Draft{
			ChatID: chat, ClientMessageID: "late", Content: "late",
		})
		list, listed := n.server.Chats(ctx, user, 100, "")
		return func() {
			for what, err := range map[string]error{"shown": shown, "read": read, "sent": sent} {
				if tidemark.CodeOf(err) != tidemark.NotMember {
					w.failf("deleted_is_gone: %s, %s for %s: %v", chat, what, user, err)
				}
			}
			if tidemark.CodeOf(backend) != tidemark.NotFound {
				w.failf("deleted_is_gone: %s for a backend: %v", chat, backend)
			}
			if w.expect(listed); slices.ContainsFunc(list.Chats, func(v server.ChatView) bool {
				return v.ID == chat
			}) {
				w.failf("deleted_is_gone: %s lists %s", user, chat)
			}
			w.count("checked deleted_is_gone")
		}
	})
}
