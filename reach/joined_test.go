package reach

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// counted counts the calls of a store by which chats are read.
type counted struct {
	Store
	backlogs, chats, ranges, rosters atomic.Int64
	// poor is a chat whose roster cannot be read.
	poor tidemark.ChatID
}

func (c *counted) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	c.backlogs.Add(1)
	return c.Store.Backlogs(ctx, q)
}

func (c *counted) Chat(ctx context.Context, id tidemark.ChatID) (tidemark.Chat, error) {
	c.chats.Add(1)
	return c.Store.Chat(ctx, id)
}

func (c *counted) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	c.ranges.Add(1)
	return c.Store.Ranges(ctx, ranges)
}

func (c *counted) Rosters(
	ctx context.Context, chats []tidemark.ChatID,
) ([]*tidemark.Roster, error) {
	c.rosters.Add(1)
	time.Sleep(time.Second)
	if slices.Contains(chats, c.poor) {
		return nil, tidemark.Errorf(tidemark.Internal, "the roster is damaged")
	}
	return c.Store.Rosters(ctx, chats)
}

// groups creates chats, and settles all their news.
func (w *world) groups(n int) (chats []tidemark.ChatID) {
	w.Helper()
	for range n {
		chats = append(chats, w.group())
	}
	found, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{Chats: chats})
	w.ok(err)
	var items []storage.Settlement
	for _, b := range found {
		items = append(items, storage.Settlement{Backlog: b, To: b.End})
	}
	_, err = w.store.Settle(w.ctx, items)
	w.ok(err)
	return chats
}

// TestTurn_reads_hinted_chats_together: the backlogs of hinted chats and their messages take one
// call each, and the chats are not read at all.
func TestTurn_reads_hinted_chats_together(t *testing.T) {
	w := newWorld(t)
	chats := w.groups(listed)
	store := &counted{Store: w.store}
	e := New(Config{Store: store})
	e.joined.start()
	defer e.joined.stop()
	e.hints.serving.Store(true)
	e.hints.work(allShards())
	e.own = allShards()
	e.list.Outlets = []Spec{{ID: "o", State: Active}} // It is not open, so its news waits.
	for _, c := range chats {
		w.send(c, &process{Engine: e})
	}
	if err := e.turn(w.ctx, false, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	e.running.Wait()
	got := [3]int64{store.backlogs.Load(), store.chats.Load(), store.ranges.Load()}
	if want := [3]int64{1, 0, 1}; got != want {
		t.Errorf("backlogs, chats and messages took %v calls, want %v", got, want)
	}
	if n := w.backlogs("o"); n != len(chats) {
		t.Errorf("the messages of %d chats wait, want %d", n, len(chats))
	}
	for _, c := range chats {
		if p := e.chats[c]; p.work != resting || p.to.Sequence != 1 {
			t.Fatalf("%s was worked on up to %v", c, p.to)
		}
	}
}

// TestJoined_calls_are_shared: what is asked for during a call is in the next one. A chat that
// cannot be read fails alone.
func TestJoined_calls_are_shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		chats := w.groups(50)
		store := &counted{Store: w.store}
		e := New(Config{Store: store})
		e.joined.start()
		defer e.joined.stop()
		ask := func() (failed []tidemark.ChatID) {
			answers := make(chan tidemark.ChatID)
			for _, c := range append(chats, chats[7]) {
				go func() {
					roster, err := e.joined.rosters.one(w.ctx, c)
					if err == nil && roster.ChatID == c {
						c = ""
					}
					answers <- c
				}()
			}
			for range len(chats) + 1 {
				if c := <-answers; c != "" {
					failed = append(failed, c)
				}
			}
			return failed
		}
		if failed := ask(); len(failed) > 0 {
			t.Errorf("%v were not read", failed)
		}
		if n := store.rosters.Load(); n > 2*joinedWorkers+2 {
			t.Errorf("%d rosters took %d calls", len(chats), n)
		}
		store.poor = chats[9]
		if failed := ask(); !slices.Equal(failed, []tidemark.ChatID{store.poor}) {
			t.Errorf("%v were not read, want %s", failed, store.poor)
		}
	})
}

// TestSince finds the first message of a time in many chats, with a call for each step of a binary
// search. A backlog begins no later than what may be undelivered to all outlets.
func TestSince(t *testing.T) {
	w := newWorld(t)
	const most = 16
	at := time.Now().Truncate(time.Millisecond)
	chats := w.groups(most + 1)
	want := map[tidemark.ChatID]storage.Position{}
	for cut, c := range chats { // is the number of the messages that are too old
		drafts := make([]tidemark.Draft, most)
		for n := range drafts {
			created := at.Add(-slack)
			if n < cut {
				created = created.Add(-time.Millisecond)
			}
			drafts[n] = tidemark.Draft{
				ChatID: c, SenderID: "alice", ClientMessageID: strconv.Itoa(n), Content: "x",
				ContentType: "text/plain", Kind: tidemark.KindMessage, CreatedAt: created,
				MessageID: tidemark.MessageID(string(c) + "-" + strconv.Itoa(n)),
			}
		}
		_, err := w.store.Append(w.ctx, drafts)
		w.ok(err)
		_, err = w.store.UpdateChat(w.ctx, c, storage.ChatChange{Name: new("name")})
		w.ok(err)
		found, _, err := w.store.Backlogs(w.ctx,
			storage.BacklogQuery{Chats: []tidemark.ChatID{c}})
		w.ok(err)
		to := found[0].End
		if cut%2 == 1 { // Two messages and the name may be undelivered.
			to = found[0].From
			to.Sequence = most - 2
		}
		_, err = w.store.Settle(w.ctx, []storage.Settlement{{Backlog: found[0], To: to}})
		w.ok(err)
		if to.Sequence = min(to.Sequence, tidemark.Sequence(cut)); cut < most {
			want[c] = to
		}
	}
	store := &counted{Store: w.store}
	open, err := New(Config{Store: store}).since(w.ctx, chats, at)
	w.ok(err)
	got := map[tidemark.ChatID]storage.Position{}
	for _, b := range open {
		got[b.Chat] = b.From
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if n := store.ranges.Load(); n > 6 {
		t.Errorf("%d chats of %d messages took %d calls", len(chats), most, n)
	}
}
