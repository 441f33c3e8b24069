package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
)

// membersOf returns the roster of a chat as it is read with the boundaries.
func membersOf(id tidemark.ChatID, users ...tidemark.UserID) *chat.Roster {
	p := &chat.Roster{Roster: &tidemark.Roster{ChatID: id}, Users: users}
	for _, u := range users {
		p.Members = append(p.Members, tidemark.Member{UserID: u})
	}
	return p
}

// baselinesOf is what was read of a chat of members in which the user hides nothing.
func baselinesOf(id tidemark.ChatID, users ...tidemark.UserID) baselines {
	return baselines{
		members: map[tidemark.ChatID]*chat.Roster{id: membersOf(id, users...)},
		hides:   map[tidemark.ChatID]sight{id: seesAll},
	}
}

func TestStatuses_tick_monotone_nothing_is_ready_before_its_baseline(t *testing.T) {
	ann, all := statusKey{"c", "ann"}, statusKey{chat: "c"}
	five := tidemark.Boundary{Acked: 5}
	var s statuses
	s.raise(ann, five)
	s.raise(all, five)
	for _, key := range []statusKey{ann, all} {
		if got := s.pending[key].state; got != needBaseline {
			t.Errorf("%q: state %d, want needBaseline", key.user, got)
		}
	}
	read := baselinesOf("c", "ann")
	s.learn(read)
	s.settle([]statusKey{ann, all}, read)
	if got := s.pending[all].state; got != ready {
		t.Errorf("an aggregate: state %d, want ready", got)
	}
	if got := s.pending[ann].state; got != ready || len(s.unread) != 0 {
		t.Errorf("after its baseline: state %d, %d unread, want ready and none", got, len(s.unread))
	}
	delete(s.pending, ann)
	if s.raise(ann, five); s.pending[ann].state != ready {
		t.Error("the baseline of the chat is read again for the next update")
	}
}

// Without a baseline, the user is no member, or the chat is large.
func TestStatuses_of_a_chat_without_a_baseline_are_dropped(t *testing.T) {
	ann := statusKey{"c", "ann"}
	var s statuses
	s.raise(ann, tidemark.Boundary{Acked: 5})
	s.settle([]statusKey{ann}, baselines{})
	if len(s.pending)+len(s.order)+len(s.unread) != 0 {
		t.Errorf("got %+v, want nothing", s)
	}
}

// Neither a queued boundary nor an aggregate that was sent falls.
func TestStatuses_tick_monotone_a_boundary_never_falls(t *testing.T) {
	ann := statusKey{"c", "ann"}
	var s statuses
	s.raise(ann, tidemark.Boundary{Acked: 5, Read: 2})
	s.raise(ann, tidemark.Boundary{Acked: 4, Read: 3})
	if got, want := s.pending[ann].Boundary, (tidemark.Boundary{Acked: 5, Read: 3}); got != want {
		t.Errorf("waits %v, want %v", got, want)
	}
	for _, tt := range []struct {
		given, want tidemark.Sequence
		rose        bool
	}{{3, 3, true}, {2, 3, false}, {3, 3, false}, {4, 4, true}} {
		got, rose := s.aggregate("c", tidemark.Boundary{Acked: tt.given})
		if got.Acked != tt.want || rose != tt.rose {
			t.Errorf("aggregate %d: got %d, rose %v, want %d, %v",
				tt.given, got.Acked, rose, tt.want, tt.rose)
		}
	}
}

func TestStatuses_nothing_outside_membership_leave_drops_everything_of_the_chat(t *testing.T) {
	var s statuses
	for _, id := range []tidemark.ChatID{"c", "d"} {
		s.raise(statusKey{id, "ann"}, tidemark.Boundary{Acked: 5})
		s.refreshChat(id)
		s.aggregate(id, tidemark.Boundary{Acked: 5})
		s.learn(baselinesOf(id, "ann"))
	}
	s.leave("c")
	if len(s.pending) != 1 || len(s.order) != 1 || len(s.unread) != 1 || len(s.refresh) != 1 ||
		len(s.aggregates) != 1 || len(s.baselines.members) != 1 || s.left != 1 {
		t.Errorf("got %+v, want only chat d", s)
	}
}

func TestStatuses_bounded_use_what_does_not_fit_is_read_later(t *testing.T) {
	var s statuses
	for i := range maxStatuses {
		if !s.raise(statusKey{"c", tidemark.UserID(rune(i + 256))}, tidemark.Boundary{Acked: 1}) {
			t.Fatalf("boundary %d does not fit", i)
		}
	}
	if s.raise(statusKey{"d", "ann"}, tidemark.Boundary{Acked: 1}) || len(s.refresh) != 1 {
		t.Errorf("one too many: refresh %v, want d", s.refresh)
	}
}

func TestStatuses_bounded_use_of_own_states(t *testing.T) {
	var s statuses
	for i := range maxRefreshes + 2 {
		s.refreshOwn(tidemark.ChatID(fmt.Sprint("c", i)))
		s.refreshOwn("c0")
		s.addWritten(tidemark.ChatID(fmt.Sprint("c", i)))
		s.addWritten("c0")
	}
	if len(s.own) != maxRefreshes || len(s.written) != maxRefreshes {
		t.Errorf("%d and %d chats are kept, want %d, each once", len(s.own), len(s.written),
			maxRefreshes)
	}
	s.leave("c0")
	if st := s.due(); st.kind != stepOwn || len(st.ids) != recentChats || st.ids[0] != "c1" ||
		len(s.own) != maxRefreshes-1-recentChats {
		t.Errorf("after leaving c0: got %+v and %d kept, want c1 and the next", st, len(s.own))
	}
}

// TestStatuses_delivered_is_eventually_consistent_after_another_look: chats wait for the interval,
// and are then looked at with the latest time.
func TestStatuses_delivered_is_eventually_consistent_after_another_look(t *testing.T) {
	var s statuses
	early, late := time.UnixMilli(1), time.UnixMilli(2)
	s.lookLater([]lookAgain{{"c", early}, {"d", early}})
	if st := s.due(); st.kind != stepIdle {
		t.Errorf("before the interval is over: got %+v, want nothing", st)
	}
	s.lookLater([]lookAgain{{"c", late}})
	s.refreshChat("e")
	if got := s.unsent(); !slices.Equal(got, []tidemark.ChatID{"e", "c", "d"}) {
		t.Errorf("%v move along with the session, want e, c and d", got)
	}
	s.refresh = nil
	s.intervalOver()
	st := s.due()
	if st.kind != stepStatuses || !slices.Equal(st.ids, []tidemark.ChatID{"c", "d"}) ||
		st.again["c"] != late || st.again["d"] != early {
		t.Errorf("after it: got %+v, want c and d, each after its time", st)
	}
	s.lookLater([]lookAgain{{"c", late}, {"d", late}})
	s.intervalOver()
	s.lookLater([]lookAgain{{"c", late}})
	if s.leave("c"); len(s.again) != 1 || len(s.waiting) != 0 {
		t.Errorf("after leaving c: got %+v, want only d", s)
	}
}

func TestStatuses_bounded_use_of_looks(t *testing.T) {
	var s statuses
	for i := range maxRefreshes + 2 {
		s.lookLater([]lookAgain{{chat: tidemark.ChatID(fmt.Sprint("c", i))}})
	}
	if len(s.waiting) != maxRefreshes || s.waiting[0].chat != "c2" {
		t.Errorf("%d wait, from %s; want %d, from c2", len(s.waiting), s.waiting[0].chat,
			maxRefreshes)
	}
}

// After a new epoch the chats are listed in turn, unless the client asks for them.
func TestStatuses_turn(t *testing.T) {
	asks := func(s *statuses) { s.list(forStatuses, atOnce) }
	epoch := func(s *statuses) { s.missed(inTurn) }
	for _, tt := range []struct {
		name   string
		happen []func(s *statuses)
		due    bool
	}{
		{"nothing", nil, false},
		{"a client asks", []func(*statuses){asks}, true},
		{"a new epoch", []func(*statuses){epoch}, false},
		{"a client asks after the epoch", []func(*statuses){epoch, asks}, true},
		{"an epoch after the client asked", []func(*statuses){asks, epoch}, false},
	} {
		s := statuses{snapshot: true}
		for _, do := range tt.happen {
			do(&s)
		}
		if got := s.due().kind == stepRecent; got != tt.due {
			t.Errorf("%s: the list is due: %v, want %v", tt.name, got, tt.due)
		}
		if s.recent.turn = atOnce; (s.due().kind == stepRecent) != (tt.happen != nil) {
			t.Errorf("%s: the list is not due in its turn", tt.name)
		}
	}
}
