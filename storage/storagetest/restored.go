package storagetest

import (
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// RunRestored tests what a backend says of data that came from a copy (storage.Lives). restore
// returns a store on a copy of what s has now, as after a restored backup. It may close s, and it
// may be called several times for one store.
func RunRestored(
	t *testing.T, open func(t *testing.T) storage.Store,
	restore func(t *testing.T, s storage.Store) storage.Store,
) {
	for _, r := range []struct {
		name string
		test func(f *fixture, restore func())
	}{
		{"present_data_share_everything", testPresent},
		{"restored_data_share_what_they_have", testRestored},
		{"a_restore_of_a_restore", testRestoredTwice},
		{"what_has_expired_is_shared", testRestoredExpired},
		{"the_end_of_a_long_chat_is_found", testLongFork},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			f := newSuite(open(t)).fixture(t)
			r.test(f, func() { f.store = restore(t, f.store) })
		})
	}
	t.Run("a_life_that_the_data_do_not_know_shares_nothing", func(t *testing.T) {
		t.Parallel()
		testUnknownLife(newSuite(open(t)).fixture(t),
			func(s storage.Store) storage.Store { return restore(t, s) })
	})
}

// shares compares up to where the store shares the claims of an incarnation, for each sequence.
func (f *fixture) shares(
	what string, chat tidemark.ChatID, of tidemark.Incarnation,
	want map[tidemark.Sequence]tidemark.Sequence,
) {
	f.Helper()
	var claims []storage.Claim
	for sequence := range want {
		claims = append(claims,
			storage.Claim{Chat: chat, Incarnation: of, Sequence: sequence})
	}
	got, err := f.store.Shared(f.ctx, claims)
	f.ok(err)
	f.equal(what+": results", len(got), len(claims))
	for i, claim := range claims {
		if got[i] != want[claim.Sequence] {
			f.Errorf("%s: a claim up to %d is shared up to %d, want %d", what, claim.Sequence,
				got[i], want[claim.Sequence])
		}
	}
}

type sequences = map[tidemark.Sequence]tidemark.Sequence

func testPresent(f *fixture, _ func()) {
	c := f.group("c", f.user("alice"))
	f.send(c, f.user("alice"), 3)
	if !tidemark.ValidID(f.store.Incarnation()) {
		f.Errorf("the incarnation is %q, want an id", f.store.Incarnation())
	}
	f.equal("the incarnation again", f.store.Incarnation(), f.store.Incarnation())
	for _, of := range []tidemark.Incarnation{"", f.store.Incarnation()} {
		f.shares("the present one", c, of, sequences{0: 0, 2: 2, 3: 3, 9: 9})
	}
	f.shares("none", c, "unheard-of", sequences{0: 0, 1: 0, 3: 0, 9: 0})
	none, err := f.store.Shared(f.ctx, nil)
	f.ok(err)
	f.equal("results without claims", len(none), 0)
	_, err = f.store.Shared(f.ctx, make([]storage.Claim, storage.MaxBatch+1))
	f.equal("code of too many claims", tidemark.CodeOf(err), tidemark.Invalid)
}

func testRestored(f *fixture, restore func()) {
	alice := f.user("alice")
	c, idle := f.group("c", alice), f.group("idle", alice)
	f.send(c, alice, 5)
	f.send(idle, alice, 5)
	first := f.store.Incarnation()
	restore()
	if f.store.Incarnation() == first {
		f.Fatalf("restored data have the incarnation %s, as before", first)
	}
	want := sequences{0: 0, 1: 1, 5: 5, 6: 5, 9: 5, tidemark.MaxSequence: 5}
	f.shares("before the first message", c, first, want)
	f.send(c, alice, 2)
	later := f.group("later", alice)
	f.send(later, alice, 3)
	f.shares("after some messages", c, first, want)
	f.shares("a chat without messages since", idle, first, want)
	f.shares("a chat that is new", later, first, sequences{0: 0, 1: 0, 3: 0})
	f.shares("no chat", f.chat("none"), first, sequences{0: 0, 7: 0})
	f.shares("the present one", c, f.store.Incarnation(), sequences{5: 5, 7: 7, 9: 9})
	// Claims of several lives and chats in one call, one of them twice.
	shared, err := f.store.Shared(f.ctx, []storage.Claim{
		{Chat: c, Incarnation: first, Sequence: 7}, {Chat: idle, Sequence: 4},
		{Chat: later, Incarnation: first, Sequence: 2}, {Chat: c, Incarnation: first, Sequence: 7},
		{Chat: c, Incarnation: "unheard-of", Sequence: 7},
	})
	f.ok(err)
	f.equal("claims together", shared, []tidemark.Sequence{5, 4, 0, 5, 0})
}

func testRestoredTwice(f *fixture, restore func()) {
	alice := f.user("alice")
	c := f.group("c", alice)
	f.send(c, alice, 5)
	first := f.store.Incarnation()
	restore()
	f.send(c, alice, 3)
	second := f.store.Incarnation()
	restore()
	f.shares("before the first message, of the first", c, first, sequences{4: 4, 5: 5, 8: 5})
	f.shares("before the first message, of the second", c, second, sequences{5: 5, 8: 8, 9: 8})
	f.send(c, alice, 2)
	f.shares("the first", c, first, sequences{4: 4, 5: 5, 6: 5, 10: 5})
	f.shares("the second", c, second, sequences{4: 4, 6: 6, 8: 8, 9: 8, 10: 8})
	f.shares("the third", c, f.store.Incarnation(), sequences{6: 6, 9: 9, 10: 10})
}

func testLongFork(f *fixture, restore func()) {
	alice := f.user("alice")
	c := f.group("c", alice)
	f.flood(c, alice, 150)
	first := f.store.Incarnation()
	restore()
	f.flood(c, alice, 100)
	f.shares("a long chat", c, first, sequences{
		1: 1, 149: 149, 150: 150, 151: 150, 152: 150, 200: 150, 249: 150, 250: 150,
	})
}

func testUnknownLife(f *fixture, restore func(storage.Store) storage.Store) {
	alice := f.user("alice")
	c := f.group("c", alice)
	f.send(c, alice, 5)
	base := f.store
	first := base.Incarnation()
	f.store = restore(base)
	f.send(c, alice, 2)
	one := f.store.Incarnation()
	f.store = restore(base)
	f.send(c, alice, 2)
	if f.store.Incarnation() == one {
		f.Errorf("two copies have the incarnation %s", one)
	}
	f.shares("the other copy's", c, one, sequences{0: 0, 1: 0, 5: 0, 7: 0})
	f.shares("that of both", c, first, sequences{5: 5, 7: 5})
}

// testRestoredExpired: a client that was away while messages expired goes on at the floor.
func testRestoredExpired(f *fixture, restore func()) {
	alice := f.user("alice")
	c := f.group("c", alice)
	f.said(c, alice, 1, 2, 3, 8)
	d := f.group("d", alice)
	f.said(d, alice, 1)
	before := f.store.Incarnation()
	restore()
	f.said(c, alice, 9)
	f.expires(c, at(5), 10, 4, 3)
	f.said(d, alice, 2, 3, 8)
	f.expires(d, at(5), 10, 4, 3)
	f.shares("expired", c, before, sequences{1: 1, 3: 3, 4: 4, 5: 4, 9: 4})
	f.shares("expired, not known of what life", d, before, sequences{1: 1, 3: 3, 4: 3})
}
