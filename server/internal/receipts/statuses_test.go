package receipts

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/least"
	"github.com/tidemark-im/tidemark/storage"
)

// every returns the same pause for each level.
func every(pause time.Duration) func(level) time.Duration {
	return func(level) time.Duration { return pause }
}

// TestStatuses_move_as_their_table_says follows the table above the type statuses.
func TestStatuses_move_as_their_table_says(t *testing.T) {
	const interval = time.Second
	const none = statusState(99)
	now := time.UnixMilli(1_000)
	r := &Receipts{statuses: newStatuses()}
	s, key := &r.statuses, statusKey{chat: "c", user: "bob"}
	raise := func(to tidemark.Sequence) {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.raiseLocked(key, 1, tidemark.Boundary{Acked: to}, "")
	}
	publish := func() (acked tidemark.Sequence) {
		due, _ := s.due(now, every(interval))
		for _, u := range due.updates["c"] {
			acked = u.Acked
		}
		return acked
	}
	for _, step := range []struct {
		event  string
		raise  tidemark.Sequence // 0: the loop looks what is due
		later  time.Duration
		want   statusState
		pushed tidemark.Sequence
	}{
		{"raised", 3, 0, waiting, 0},
		{"raised again", 2, 0, waiting, 0},
		{"published", 0, 0, paused, 3},
		{"nothing new", 0, interval / 2, paused, 0},
		{"raised in the pause", 4, 0, raised, 0},
		{"raised in the pause again", 5, 0, raised, 0},
		{"the pause goes on", 0, 0, raised, 0},
		{"the pause is over", 0, interval / 2, paused, 5},
		{"the next pause is over", 0, interval, none, 0},
	} {
		now = now.Add(step.later)
		pushed := tidemark.Sequence(0)
		if step.raise > 0 {
			raise(step.raise)
		} else {
			pushed = publish()
		}
		state := none
		if e := s.entries[key]; e != nil {
			state = e.state
		}
		if state != step.want || pushed != step.pushed {
			t.Fatalf("%s: state %d, published %d; want %d, %d",
				step.event, state, pushed, step.want, step.pushed)
		}
	}
}

func TestStatuses_beyond_the_bound_are_dropped_and_counted(t *testing.T) {
	r := &Receipts{statuses: newStatuses()}
	for i := range tidemark.Sequence(maxStatuses + 2) {
		key := statusKey{chat: "c", user: tidemark.UserID(fmt.Sprint("u", i))}
		r.raiseLocked(key, 1, tidemark.Boundary{}, "")
	}
	if n, dropped := len(r.statuses.entries), r.Count.UpdatesDropped.Load(); n != maxStatuses ||
		dropped != 2 {
		t.Errorf("%d are kept and %d dropped, want %d and 2", n, dropped, maxStatuses)
	}
}

func TestTell_bounded_use(t *testing.T) {
	r := &Receipts{told: make(map[tidemark.ChatID]aggregate)}
	for i := range maxTold + 2 {
		r.tell(tidemark.ChatID(fmt.Sprint("c", i)), aggregate{})
	}
	if len(r.told) != maxTold {
		t.Errorf("%d aggregates are kept, want %d", len(r.told), maxTold)
	}
}

// TestStatuses_pause_longer_in_larger_chats: up to the pause of an aggregate, and never beyond it.
func TestStatuses_pause_longer_in_larger_chats(t *testing.T) {
	for _, test := range []struct {
		interval time.Duration
		want     []time.Duration // of 0, 2, 5, 6, 20, 50 and 500 members, and of an aggregate
	}{
		{100 * time.Millisecond, []time.Duration{100, 100, 100, 200, 400, 1000, 1000, 1000}},
		{500 * time.Millisecond, []time.Duration{500, 500, 500, 1000, 1000, 1000, 1000, 1000}},
		{2 * time.Second, []time.Duration{2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000}},
	} {
		r := &Receipts{Config: Config{
			Least: least.New(nil, time.Second, 1), StatusInterval: test.interval,
		}}
		var got []time.Duration
		for _, members := range []int{0, 2, 5, 6, 20, 50, 500} {
			got = append(got, r.pauseOf(levelOf(members))/time.Millisecond)
		}
		got = append(got, r.pauseOf(aggregateLevel)/time.Millisecond)
		if !slices.Equal(got, test.want) {
			t.Errorf("every %v: got %v ms, want %v", test.interval, got, test.want)
		}
	}
}

// TestOwnChanged_own_state_reaches_devices_when_something_was_read has the raises of a user who
// read up to 5, as far as the node knows.
func TestOwnChanged_own_state_reaches_devices_when_something_was_read(t *testing.T) {
	for _, test := range []struct {
		name     string
		raise    tidemark.Raise
		read     tidemark.Sequence // afterwards
		unmarked bool
		unknown  bool
		want     bool
	}{
		{"a read", tidemark.Raise{Read: 7}, 7, false, false, true},
		{"a read, and nothing is known", tidemark.Raise{Read: 7}, 7, false, true, true},
		{"an acknowledgement", tidemark.Raise{Acked: 9}, 5, false, false, false},
		{"one, and nothing is known", tidemark.Raise{Acked: 9}, 5, false, true, false},
		{"an older read", tidemark.Raise{Acked: 9, Read: 4}, 5, false, false, false},
		{"a read below another node's", tidemark.Raise{Acked: 9, Read: 7}, 8, false, false, false},
		{"an own message", tidemark.Raise{Acked: 6, AckedFrom: 6, Read: 6}, 6, false, false, false},
		{"two of them", tidemark.Raise{Acked: 7, AckedFrom: 6, Read: 7}, 7, false, false, false},
		{"an own one that ends a mark", tidemark.Raise{Acked: 6, AckedFrom: 6, Read: 6}, 6, true,
			false, true},
		{"a reply", tidemark.Raise{Acked: 7, AckedFrom: 7, Read: 7}, 7, false, false, true},
		{"a reply that joins one", tidemark.Raise{Acked: 7, Read: 7}, 7, false, false,
			true},
	} {
		done := storage.Advanced{
			State: tidemark.DeliveryState{Read: test.read}, Moved: true, Unmarked: test.unmarked,
		}
		a := &storage.Advance{Raise: test.raise}
		known := tidemark.Sequence(5)
		if test.unknown {
			known = 0
		}
		if got := ownChanged(a, done, known); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

// TestOwnRun_published_if_a_tick_changes has the raises of a user who had acknowledged up to 8 and
// read up to 5 before the write, as far as the node knows.
func TestOwnRun_published_if_a_tick_changes(t *testing.T) {
	before := tidemark.Boundary{Acked: 8, Read: 5}
	for _, test := range []struct {
		name  string
		raise tidemark.Raise
		want  bool
	}{
		{"an acknowledgement", tidemark.Raise{Acked: 9}, false},
		{"a read", tidemark.Raise{Read: 9}, false},
		{"an own message", tidemark.Raise{Acked: 6, AckedFrom: 6, Read: 6}, true},
		{"two of them", tidemark.Raise{Acked: 7, AckedFrom: 6, Read: 7}, true},
		{"one that is read within", tidemark.Raise{
			Acked: 6, AckedFrom: 6, Read: 6, ReadWithinAcked: true,
		}, true},
		{"one of a bot, which reads nothing", tidemark.Raise{Acked: 9, AckedFrom: 9}, true},
		{"one after what was read before", tidemark.Raise{Acked: 9, AckedFrom: 9, Read: 5}, true},
		{"one that was read with another", tidemark.Raise{Acked: 9, AckedFrom: 9, Read: 6}, false},
		{"one after an acknowledgement whose answer was lost", tidemark.Raise{
			Acked: 10, AckedFrom: 10,
		}, false},
		{"a reply", tidemark.Raise{Acked: 7, AckedFrom: 7, Read: 7}, false},
		{"a reply that joins an acknowledgement", tidemark.Raise{Acked: 7, Read: 7}, false},
	} {
		if got := ownRun(&storage.Advance{Raise: test.raise}, before); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// TestStatuses_published_if_a_tick_changes_again: what could not be published follows, unless that
// can never succeed.
func TestStatuses_published_if_a_tick_changes_again(t *testing.T) {
	update := tidemark.StatusUpdate{ChatID: "c", UserID: "u", Boundary: tidemark.Boundary{Acked: 3}}
	for code, want := range map[tidemark.Code]int{tidemark.Unavailable: 1, tidemark.NotFound: 0} {
		r := &Receipts{Config: Config{
			Chats: chat.New(nil, chat.Config{Chats: 1, Bytes: 1, Messages: 1}),
		}, statuses: newStatuses()}
		r.raiseAgain([]tidemark.StatusUpdate{update}, tidemark.Errorf(code, "no roster"))
		due, _ := r.statuses.due(time.UnixMilli(1_000), func(level) time.Duration { return 0 })
		if len(due.updates["c"]) != want {
			t.Errorf("%s: got %v, want %d updates", code, due.updates, want)
		}
	}
}

// TestStatuses_own_state_reaches_devices_that_do_not_know_it: the only session that changed an own
// state is left out, until it was published.
func TestStatuses_own_state_reaches_devices_that_do_not_know_it(t *testing.T) {
	now := time.UnixMilli(1_000)
	r := &Receipts{statuses: newStatuses()}
	for _, test := range []struct {
		name string
		by   []tidemark.SessionID
		want tidemark.SessionID
	}{
		{"one session", []tidemark.SessionID{"phone"}, "phone"},
		{"one session twice, in the pause", []tidemark.SessionID{"phone", "phone"}, "phone"},
		{"another one, in the pause", []tidemark.SessionID{"laptop"}, "laptop"},
		{"two sessions", []tidemark.SessionID{"phone", "laptop"}, ""},
		{"a session and a backend", []tidemark.SessionID{"phone", ""}, ""},
		{"a backend and a session", []tidemark.SessionID{"", "phone"}, ""},
	} {
		for _, by := range test.by {
			r.raiseLocked(statusKey{"c", "bob", toUser}, 1, tidemark.Boundary{}, by)
		}
		r.raiseLocked(statusKey{chat: "c", user: "bob"}, 1, tidemark.Boundary{Acked: 1}, "")
		due, _ := r.statuses.due(now, every(time.Second))
		if now = now.Add(time.Second); len(due.own) == 0 {
			due, _ = r.statuses.due(now, every(time.Second))
		}
		if len(due.own) != 1 || due.own[0].by != test.want || len(due.updates["c"]) != 1 {
			t.Errorf("%s: got %+v, want an own state without %q, and a boundary", test.name, due,
				test.want)
		}
	}
}
