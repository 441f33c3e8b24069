package storagetest

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var standingRules = []rule{
	{"Append_R_STANDS_version_grows_when_a_row_is_removed", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice, bob)
		send := func(chat tidemark.ChatID) storage.Appended {
			f.Helper()
			appended, err := storage.AppendOne(f.ctx, f.store, f.draft(chat, alice, "hello"))
			f.ok(err)
			return appended
		}
		told := send(other).RowsVersion != 0
		last := uint64(0)
		for range 3 {
			appended := send(c)
			f.equal("the version is told of every chat", appended.RowsVersion != 0, told)
			f.equal("the version grew", appended.RowsVersion > last, told)
			last = appended.RowsVersion
			f.mark(bob, c, 1)
			f.clear(bob, c, appended.Message.Sequence)
		}
	}},
	{"Append_R_STANDS_row_stands_while_the_version_stays", testRowsStand},
}

// testRowsStand sends as two nodes do that remember whether the row stands, while the user
// acknowledges and clears. After each message the row covers it, or the user has acknowledged it.
func testRowsStand(f *fixture) {
	r := rowsStand{fixture: f, alice: f.user("alice"), bob: f.user("bob")}
	r.chat = f.group("c", r.alice, r.bob)
	r.sending.Store(2)
	f.ok(concurrently(3, func(i int) error {
		if i == 2 {
			return r.acknowledge()
		}
		defer r.sending.Add(-1)
		return r.send(150)
	}))
	if r.told.Load() && r.remembered.Load() == 0 {
		f.Fatalf("no row was remembered, so this test shows nothing")
	}
}

type rowsStand struct {
	*fixture
	alice, bob tidemark.UserID
	chat       tidemark.ChatID
	// head is at most the head of the chat.
	head       atomic.Uint64
	sending    atomic.Int32
	told       atomic.Bool
	remembered atomic.Int64
}

// send sends messages. It marks one only if it does not know that the row stands.
func (r *rowsStand) send(messages int) error {
	var known uint64 // the version at which the row stood, or 0
	for range messages {
		appended, err := storage.AppendOne(r.ctx, r.store, r.draft(r.chat, r.alice, "hello"))
		if err != nil {
			return err
		}
		n, version := appended.Message.Sequence, appended.RowsVersion
		for old := r.head.Load(); old < uint64(n); old = r.head.Load() {
			r.head.CompareAndSwap(old, uint64(n))
		}
		if version != 0 {
			r.told.Store(true)
		}
		if known != 0 && known == version {
			r.remembered.Add(1)
		} else {
			_, err = r.store.Mark(r.ctx, []tidemark.PendingDelivery{
				{UserID: r.bob, ChatID: r.chat, FirstUndelivered: n},
			})
			if known = version; err != nil {
				return err
			}
		}
		if err := r.covered(n); err != nil {
			return err
		}
	}
	return nil
}

// covered returns an error unless the row covers a message, or the user has acknowledged it.
func (r *rowsStand) covered(n tidemark.Sequence) error {
	rows, _, err := r.store.PendingOf(r.ctx, r.bob, "", 10)
	if err != nil || len(rows) > 0 && rows[0].FirstUndelivered <= n {
		return err
	}
	states, err := r.store.States(r.ctx, []storage.StateKey{{User: r.bob, Chat: r.chat}})
	if err != nil || states[0].Acked >= n {
		return err
	}
	return fmt.Errorf("the rows %v do not cover message %d, and bob has acknowledged %d only",
		rows, n, states[0].Acked)
}

// acknowledge acknowledges and clears what was sent, after every few messages.
func (r *rowsStand) acknowledge() error {
	for last := uint64(0); r.sending.Load() > 0; {
		head := r.head.Load()
		if head < last+5 {
			runtime.Gosched()
			continue
		}
		last = head
		through := tidemark.Sequence(head)
		advanced, err := r.store.Advance(r.ctx, []storage.Advance{{
			User: r.bob, Chat: r.chat, Raise: tidemark.Raise{Acked: through}, Now: at(1),
		}})
		if err == nil {
			err = advanced[0].Err
		}
		if err == nil {
			_, err = r.store.Clear(r.ctx,
				[]storage.Clear{{User: r.bob, Chat: r.chat, Through: through}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
