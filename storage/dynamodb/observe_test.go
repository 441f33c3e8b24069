package dynamodb

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// say appends a message, and waits until its turn is over. A message that comes earlier would
// follow at once, without a look at the counter.
func say(t *testing.T, s *Store, sender tidemark.UserID, n int) *tidemark.Message {
	t.Helper()
	a, err := storage.AppendOne(t.Context(), s, draft("c", sender, fmt.Sprint(n)))
	if err != nil || a.Duplicate {
		t.Fatal(a, err)
	}
	s.appends.Wait()
	return &a.Message
}

// Two users on two nodes write to each other in turn, and each node gets the messages of the other
// one. After the first time, neither reads anything. When the messages no longer come, a node loses
// one transaction, and then reads the counter again.
func TestAppend_in_turn_with_another_process_that_is_observed(t *testing.T) {
	s, counts, url := openCounted(t)
	other := openTest(t, url)
	createGroup(t, s, "c", "anna", "ben")
	for n, want := range []struct{ transactions, reads int }{
		{1, 1}, {2, 0}, {1, 1}, {1, 0}, {1, 0}, {1, 0}, // and from here on nothing is observed:
		{2, 0}, {1, 1}, {1, 1},
	} {
		var mine *tidemark.Message
		reads := 0
		transactions, _ := counts.during("TransactWriteItems", func() {
			mine = say(t, s, "anna", n)
			counts.mu.Lock()
			reads = counts.calls["GetItem"]
			counts.mu.Unlock()
		})
		if transactions != want.transactions || reads != want.reads {
			t.Errorf("message %d took %d transactions and %d reads, want %+v", n, transactions,
				reads, want)
		}
		other.Observe(mine)
		if theirs := say(t, other, "ben", n); n < 5 {
			s.Observe(theirs)
		}
	}
}

// A message that was observed may be acknowledged and read, and no read of DynamoDB is needed for
// that. One after it is refused.
func TestAdvance_watermark_bounded_by_counter_that_is_observed(t *testing.T) {
	s, counts, url := openCounted(t)
	other := openTest(t, url)
	createGroup(t, s, "c", "anna", "ben")
	say(t, s, "anna", 1)
	m := say(t, other, "ben", 2)
	advance := func(raise tidemark.Raise) (storage.Advanced, int) {
		t.Helper()
		var got []storage.Advanced
		reads, _ := counts.during("GetItem", func() {
			var err error
			got, err = s.Advance(t.Context(), []storage.Advance{
				{User: "anna", Chat: "c", Raise: raise, Now: time.UnixMilli(7)},
			})
			must(t, err)
		})
		counts.mu.Lock()
		defer counts.mu.Unlock()
		return got[0], reads + counts.calls["BatchGetItem"] + counts.calls["Query"]
	}
	s.Observe(m)
	for _, raise := range []tidemark.Raise{{Acked: 2}, {Read: 2}} {
		if got, reads := advance(raise); got.Err != nil || !got.Moved || reads != 0 {
			t.Errorf("%+v gives %+v after %d reads, want no read", raise, got, reads)
		}
	}
	got, reads := advance(tidemark.Raise{Acked: 3})
	if tidemark.CodeOf(got.Err) != tidemark.InvalidSequence || reads != 1 {
		t.Errorf("a message that does not exist gives %+v after %d reads", got, reads)
	}
}

// TestObserve_unread_exact_after_random_messages: what a process tells from messages of others is
// what their counter says. Who is not among the senders has the numbers in their delivery state.
// The counter may have further senders, or fewer.
func TestObserve_unread_exact_after_random_messages(t *testing.T) {
	t.Parallel()
	one, other := func() (*Store, *Store) {
		url := newTables(t)
		return openTest(t, url), openTest(t, url)
	}()
	var users []tidemark.UserID
	for i := range 20 {
		users = append(users, tidemark.UserID(fmt.Sprint("user", i)))
	}
	createGroup(t, one, "c", users...)
	random := rand.New(rand.NewPCG(1, 2))
	sent, followed := map[tidemark.UserID]int64{}, 0
	for n := 1; n <= 200; n++ {
		few := 4 + n/5 // so that the first senders are few, and later ones leave the counter
		d := draft("c", users[random.IntN(min(few, len(users)))], fmt.Sprint(n))
		switch random.IntN(8) {
		case 0:
			d.Kind = tidemark.KindSystem
		case 1:
			d.Mentions = tidemark.NewMentions(false, users[:1])
		case 2:
			if n > 1 {
				d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 1}
				d.ByBackend, d.Mentions = true, tidemark.NewMentions(false, users[:1])
			}
		}
		if d.Kind.Counts() {
			sent[d.SenderID]++
		}
		s := []*Store{one, other}[random.IntN(3)/2]
		a, err := storage.AppendOne(t.Context(), s, d)
		must(t, err)
		if random.IntN(10) > 0 {
			one.Observe(&a.Message)
		}
		stored, err := other.caller("test").Counter(t.Context(), "c")
		must(t, err)
		known, latest := one.known.Follow(&record.Counter{Chat: tidemark.Chat{
			ID: "c", MembersVersion: stored.MembersVersion,
		}})
		if !latest || known.Head != stored.Head {
			continue // It was not observed.
		}
		if s == other {
			followed++
		}
		for _, user := range users {
			got, listed := known.Senders.Of(user)
			if !listed {
				image, err := other.caller("test").imageOf(t.Context(), user, "c")
				must(t, err)
				got = image.Sender
			}
			if got.Sent != sent[user] {
				t.Fatalf("message %d: %s is %+v, and has sent %d", n, user, got, sent[user])
			}
		}
		type numbers struct {
			Uncounted                  int64
			LastUncounted, LastMention tidemark.Sequence
		}
		want := numbers{stored.Uncounted, stored.LastUncounted, stored.LastMention}
		got := numbers{known.Uncounted, known.LastUncounted, known.LastMention}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("message %d (-want +got):\n%s", n, diff)
		}
	}
	if followed < 30 {
		t.Errorf("only %d messages of the other process were followed", followed)
	}
	// What the process has written by that is exact as well.
	counts, err := other.Unread(t.Context(), keysIn("c", users))
	must(t, err)
	var all int64
	for _, n := range sent {
		all += n
	}
	for i, user := range users {
		if want := all - sent[user]; counts[i].Messages != want {
			t.Errorf("%s has %d unread messages, want %d", user, counts[i].Messages, want)
		}
	}
}

func keysIn(chat tidemark.ChatID, users []tidemark.UserID) []storage.StateKey {
	keys := make([]storage.StateKey, len(users))
	for i, user := range users {
		keys[i] = storage.StateKey{User: user, Chat: chat}
	}
	return keys
}
