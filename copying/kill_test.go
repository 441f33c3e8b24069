package copying_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/copying"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

// mortal is a target whose process ends at one of its calls.
type mortal struct {
	*storagetest.Faulty
	storage.CopySource
	target storage.CopyTarget
	die    func() error
	// members and messages are those of all calls.
	members  []storage.CopiedMember
	messages []storage.CopiedMessage
	// lost says that the last call has its effect.
	lost bool
}

func (m *mortal) call(do func() error) error {
	if !m.lost {
		if err := m.die(); err != nil {
			return err
		}
		return do()
	}
	if err := do(); err != nil {
		return err
	}
	return m.die()
}

func (m *mortal) PutLives(ctx context.Context, of []tidemark.Incarnation) error {
	return m.call(func() error { return m.target.PutLives(ctx, of) })
}

func (m *mortal) PutChat(ctx context.Context, c storage.CopiedChat) error {
	return m.call(func() error { return m.target.PutChat(ctx, c) })
}

func (m *mortal) PutMembers(
	ctx context.Context, id tidemark.ChatID, members []storage.CopiedMember,
) error {
	m.members = append(m.members, members...)
	return m.call(func() error { return m.target.PutMembers(ctx, id, members) })
}

func (m *mortal) PutMessages(
	ctx context.Context, id tidemark.ChatID, messages []storage.CopiedMessage,
) error {
	m.messages = append(m.messages, messages...)
	return m.call(func() error { return m.target.PutMessages(ctx, id, messages) })
}

func (m *mortal) DropChat(ctx context.Context, id tidemark.ChatID) error {
	return m.call(func() error { return m.target.DropChat(ctx, id) })
}

// kill copies the world to a store, and ends at the n-th call of the target. It reports whether
// there was one. With lost, the call has its effect.
func (w *world) kill(to copying.Store, n int, lost bool) (killed bool) {
	w.t.Helper()
	calls := 0
	die := func() error {
		if calls++; calls <= n {
			return nil
		}
		killed = true
		return tidemark.Errorf(tidemark.Unavailable, "the copy was killed")
	}
	faulty := storagetest.Fault(to)
	each := func(string) error { return die() }
	if faulty.Before = each; lost {
		faulty.Before, faulty.After = nil, each
	}
	c := copying.New(copying.Config{
		From: w.store, Clock: time.Now, Workers: 1,
		To: &mortal{Faulty: faulty, CopySource: to, target: to, die: die, lost: lost},
	})
	err := c.Run(w.ctx)
	if (err != nil) != killed || killed && tidemark.CodeOf(err) != tidemark.Unavailable {
		w.t.Fatalf("killed at call %d: %t, %v", n, killed, err)
	}
	return killed
}

// TestCopy_copy_equal_killed_at_every_call: whatever call of the target is the last one of a copy,
// and whether or not it had its effect, the next one ends with an equal store. Until then, no
// server works on it.
func TestCopy_copy_equal_killed_at_every_call(t *testing.T) {
	step := 1
	if !onMemory() {
		step = 67
	}
	w := newWorld(t, memories(), 3)
	w.begin()
	w.act(300)
	for _, lost := range []bool{false, true} {
		kills := 0
		for n := 0; ; n += step {
			to := stores.Open(t).(copying.Store)
			if !w.kill(to, n, lost) {
				break
			}
			kills++
			begun, err := to.DocumentsOf(w.ctx,
				[]storage.DocumentKey{{Kind: "copy", Name: "state"}})
			w.ok(err)
			err = copying.Complete(w.ctx, to)
			if begun[0].Version > 0 && err == nil && len(w.differences(to)) > 0 {
				t.Fatalf("killed at call %d (lost answer: %t), the copy is said to be complete",
					n, lost)
			}
			w.move(to)
			w.ok(copying.Complete(w.ctx, to))
			w.same("after a kill", to)
			if t.Failed() {
				t.Fatalf("killed at call %d (lost answer: %t)", n, lost)
			}
		}
		if kills*step < 40 {
			t.Errorf("only %d calls were the last ones", kills)
		}
	}
}

// TestCopy_copy_equal_goes_on_behind_what_is_copied: a copy that is run again does not begin anew.
func TestCopy_copy_equal_goes_on_behind_what_is_copied(t *testing.T) {
	w := newWorld(t, memories(), 4)
	w.begin()
	for range 5_000 {
		_, err := storage.AppendOne(w.ctx, w.store, w.draft("direct", "u0"))
		w.ok(err)
	}
	to := memories()
	counting := func(n int) (puts int) {
		m := &mortal{
			Faulty: storagetest.Fault(to), CopySource: to, target: to, lost: true,
		}
		m.die = func() error {
			if puts++; puts > n {
				return tidemark.Errorf(tidemark.Unavailable, "the copy was killed")
			}
			return nil
		}
		cfg := copying.Config{From: w.store, To: m, Clock: time.Now, Workers: 1}
		w.interrupted(copying.New(cfg).Run(w.ctx))
		return puts
	}
	if counting(11) != 12 {
		t.Fatal("the copy was not killed in the middle of the messages")
	}
	// 5,000 messages are ten pages. Eight of them are known to be there.
	if puts := counting(1_000); puts > 18 {
		t.Errorf("the second run wrote %d times, want 18 at most", puts)
	}
	w.same("after a kill", to)
}

// interrupted accepts that a copy was killed.
func (w *world) interrupted(err error) {
	w.t.Helper()
	if err != nil && tidemark.CodeOf(err) != tidemark.Unavailable {
		w.t.Fatal(err)
	}
}

// TestCopy_copy_equal_counts_own_messages: backends count what is unread with these numbers.
func TestCopy_copy_equal_counts_own_messages(t *testing.T) {
	w := newWorld(t, memories(), 6)
	w.begin()
	for i := range 9 {
		d := w.draft("direct", w.users[i%2])
		if i == 2 {
			d.Kind = tidemark.KindSystem
		}
		_, err := storage.AppendOne(w.ctx, w.store, d)
		w.ok(err)
	}
	_, err := w.store.Advance(w.ctx, []storage.Advance{
		{User: "u0", Chat: "direct", Raise: tidemark.Raise{Acked: 7, Read: 7}, Now: began},
	})
	w.ok(err)
	_, err = w.store.MarkUnread(w.ctx, "u0", "direct", 4)
	w.ok(err)
	m := w.copied()
	var got [4]int64
	for i := range m.members {
		if one := &m.members[i]; one.UserID == "u0" && one.Sent > 0 {
			got = [4]int64{one.Sent, int64(one.LastSent), one.SentRead, one.SentBefore}
		}
	}
	// The messages 1, 5, 7 and 9 count. 7 is read, and what is behind 3 is marked as unread.
	if want := [4]int64{4, 9, 3, 1}; got != want {
		t.Errorf("own messages: got %v, want %v", got, want)
	}
}

// copied copies a world to a store that remembers what it was given.
func (w *world) copied() *mortal {
	w.t.Helper()
	to := memories()
	m := &mortal{
		Faulty: storagetest.Fault(to), CopySource: to, target: to,
		die: func() error { return nil },
	}
	cfg := copying.Config{From: w.store, To: m, Clock: time.Now, Workers: 1}
	w.ok(copying.New(cfg).Run(w.ctx))
	return m
}

// TestCopy_copy_equal_names_what_stands: most backends have rows of the reactions and pins that
// stand, and of no others.
func TestCopy_copy_equal_names_what_stands(t *testing.T) {
	w := newWorld(t, memories(), 7)
	w.begin()
	for _, one := range []struct {
		kind  tidemark.Kind
		about tidemark.Sequence
		emoji string
	}{
		{tidemark.KindMessage, 0, ""},
		{tidemark.KindReact, 1, "👍"},
		{tidemark.KindReact, 1, "🌊"},
		{tidemark.KindPin, 1, ""},
		{tidemark.KindRedact, 2, ""},
	} {
		d := w.draft("group", "u0")
		if d.Kind = one.kind; one.about > 0 {
			d.Content, d.Relation = "", &tidemark.Relation{Sequence: one.about, Emoji: one.emoji}
		}
		_, err := storage.AppendOne(w.ctx, w.store, d)
		w.ok(err)
	}
	m := w.copied()
	var got []tidemark.Sequence
	for i := range m.messages {
		if m.messages[i].Stands {
			got = append(got, m.messages[i].Sequence)
		}
	}
	if want := []tidemark.Sequence{3, 4}; !slices.Equal(got, want) {
		t.Errorf("what stands: got %v, want %v", got, want)
	}
}
