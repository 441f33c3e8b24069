package copying_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/copying"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

// onMemory reports whether the store of the tests is in memory, which is quick.
func onMemory() bool { kind := os.Getenv(stores.Variable); return kind == "" || kind == "memory" }

// runs is how many random worlds a test makes.
func runs() uint64 {
	switch os.Getenv(stores.Variable) {
	case "", "memory":
		return 25
	case "sqlite":
		return 2
	}
	return 1
}

// TestCopy_copy_equal_there_and_back: a world is copied to the store of the tests, from there to
// another one of its kind, and back into memory. All are equal.
func TestCopy_copy_equal_there_and_back(t *testing.T) {
	for seed := range runs() {
		w := newWorld(t, memories(), seed)
		w.begin()
		w.act(400)
		if seed%10 == 0 {
			w.rare()
		}
		there := w.on(stores.Open(t).(copying.Store), seed)
		w.move(there.store)
		w.same(fmt.Sprint("seed ", seed, ", there"), there.store)
		there.pending()
		beside := there.on(stores.Open(t).(copying.Store), seed)
		there.move(beside.store)
		there.same(fmt.Sprint("seed ", seed, ", beside"), beside.store)
		back := beside.on(memories(), seed)
		beside.move(back.store)
		beside.same(fmt.Sprint("seed ", seed, ", back"), back.store)
		w.sees(fmt.Sprint("seed ", seed), back)
	}
}

// TestCopy_copy_equal_goes_on: what happens in the copy later is what would have happened in the
// source, whose data the store of the tests has written.
func TestCopy_copy_equal_goes_on(t *testing.T) {
	for seed := range runs() {
		w := newWorld(t, stores.Open(t), seed)
		w.begin()
		w.act(400)
		copied := w.on(memories(), seed)
		if seed%2 == 1 {
			copied.store = stores.Open(t).(copying.Store)
		}
		w.move(copied.store)
		w.same(fmt.Sprint("seed ", seed), copied.store)
		source := w.on(w.store, seed)
		source.act(200)
		copied.act(200)
		source.sees(fmt.Sprint("seed ", seed), copied)
	}
}

// TestCopy_copy_equal_knows_a_resend: a message whose answer was lost before the move is not stored
// twice after it.
func TestCopy_copy_equal_knows_a_resend(t *testing.T) {
	w := newWorld(t, memories(), 1)
	w.begin()
	w.last = 300 // of the last days
	d := w.draft("direct", w.users[0])
	for w.last%3 != 0 {
		d = w.draft("direct", w.users[0])
	}
	_, err := storage.AppendOne(w.ctx, w.store, d)
	w.ok(err)
	to := stores.Open(t)
	w.move(to)
	again, err := storage.AppendOne(w.ctx, to, d)
	w.ok(err)
	if !again.Duplicate || again.Message.Sequence != 1 {
		t.Errorf("a resend was stored as %+v, want the first message", again)
	}
}

// TestCopy_copy_equal_shares_its_lives: clients that come from the source, or from a life of it
// before, learn that the target has all that they have.
func TestCopy_copy_equal_shares_its_lives(t *testing.T) {
	first := newWorld(t, memories(), 1)
	first.begin()
	_, err := storage.AppendOne(first.ctx, first.store, first.draft("direct", "u0"))
	first.ok(err)
	w := first.on(memories(), 1)
	first.move(w.store)
	_, err = storage.AppendOne(w.ctx, w.store, w.draft("direct", "u0"))
	w.ok(err)
	to := stores.Open(t)
	w.move(to)
	_, err = storage.AppendOne(w.ctx, to, w.draft("direct", "u0"))
	w.ok(err)
	got, err := to.Shared(w.ctx, []storage.Claim{
		{Chat: "direct", Incarnation: first.store.Incarnation(), Sequence: 3},
		{Chat: "direct", Incarnation: w.store.Incarnation(), Sequence: 3},
		{Chat: "direct", Incarnation: to.Incarnation(), Sequence: 3},
	})
	w.ok(err)
	if want := []tidemark.Sequence{1, 2, 3}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the lives share %v, want %v", got, want)
	}
}

// TestCopy_copy_equal_is_refused: a copy goes into an empty store, or goes on with itself.
func TestCopy_copy_equal_is_refused(t *testing.T) {
	w := newWorld(t, memories(), 1)
	w.begin()
	other := newWorld(t, memories(), 2)
	other.begin()
	copied := memories()
	w.move(copied)
	noted := memories()
	_, err := noted.PutDocument(w.ctx, storage.Document{Kind: "k", Name: "n", Value: []byte("1")})
	w.ok(err)
	for _, tt := range []struct {
		name     string
		from, to copying.Store
		want     string
	}{
		{"into itself", w.store, w.store, "are the same store"},
		{"into other data", w.store, other.store, "is not empty"},
		{"into a store with a document", w.store, noted, "is not empty"},
		{"into a copy of another source", other.store, copied, "a copy of another source"},
		{"again", w.store, copied, ""},
		{"from a copy", copied, memories(), ""},
	} {
		err := copying.New(copying.Config{From: tt.from, To: tt.to, Clock: time.Now}).Run(w.ctx)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil ||
			tidemark.CodeOf(err) != tidemark.Conflict || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestCopy_copy_equal_names_two_messages_with_a_key: a store that forgets keys may have two
// messages with one key. Others cannot hold them.
func TestCopy_copy_equal_names_two_messages_with_a_key(t *testing.T) {
	s := memories()
	messages := make([]storage.CopiedMessage, 2)
	for i := range messages {
		messages[i].Message = tidemark.Message{
			ChatID: "c", Sequence: tidemark.Sequence(i + 1), SenderID: "u", ClientMessageID: "k",
		}
	}
	err := s.PutChat(t.Context(), storage.CopiedChat{Chat: tidemark.Chat{ID: "c", Head: 2}})
	if err != nil {
		t.Fatal(err)
	}
	err = s.PutMessages(t.Context(), "c", messages)
	if tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("two messages with one key: got error %v, want a Conflict", err)
	}
}
