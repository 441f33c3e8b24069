package session

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage/memory"
)

func newHost() *Host {
	// The sessions are not served, so the store is not used.
	store := memory.New()
	return &Host{
		Latest:     NewLatest(nil, registry.Node{}),
		MaxChats:   16_384,
		Storage:    store,
		Watermarks: watermark.New(10),
		Log:        slog.Default(),
		Now:        time.Now,
		Chats:      chat.New(store, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 10}),
		Grace:      NewDeadlines(time.Second),
		Expiry:     NewDeadlines(time.Second),
		Arrivals:   NewDeadlines(time.Second),
	}
}

func leaseAt(node tidemark.NodeID) registry.Lease {
	return registry.Lease{User: "bob", Device: "phone", Node: node, Boot: "1", Session: "s"}
}

func news(chat tidemark.ChatID, sequence tidemark.Sequence, marked bool) Notification {
	return Notification{Chat: chat, Sequence: sequence, Marked: marked}
}

// An arriving session keeps the lowest and the highest sequence of each chat, in whatever order
// they arrive. It refuses a chat beyond its limit.
func TestArrival_keeps_the_least_and_the_greatest(t *testing.T) {
	r := newArrival("a")
	for _, n := range []Notification{news("b", 7, false), news("a", 3, true), news("b", 5, false),
		news("b", 6, true)} {
		if !r.arrival.collect(n, 2) {
			t.Errorf("collect(%v) = false, want true", n)
		}
	}
	if r.arrival.collect(news("c", 1, false), 2) {
		t.Error("collect of a third chat = true, want false")
	}
	got, _ := r.land()
	want := []Notification{
		news("a", 3, true), news("a", 3, true), news("b", 5, true), news("b", 7, true),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("land (-want +got):\n%s", diff)
	}
}

// At the end, what came without a row is marked, and what came with a row is followed.
func TestArrival_R_WAKESET_what_it_leaves_at_its_end(t *testing.T) {
	for _, tt := range []struct {
		name   string
		kept   []Notification
		rows   []tidemark.PendingDelivery
		follow []Notification
	}{
		{"nothing", nil, nil, nil},
		{
			"without a row",
			[]Notification{news("c", 4, false), news("c", 3, false)},
			[]tidemark.PendingDelivery{{UserID: "bob", ChatID: "c", FirstUndelivered: 3}}, nil,
		},
		{"with a row", []Notification{news("c", 3, true)}, nil, []Notification{news("c", 3, true)}},
		{
			"both", []Notification{news("c", 3, true), news("c", 4, false)},
			[]tidemark.PendingDelivery{{UserID: "bob", ChatID: "c", FirstUndelivered: 4}},
			[]Notification{news("c", 3, true)},
		},
	} {
		s := newHost().Arriving(leaseAt("b"), "a")
		for _, n := range tt.kept {
			if !s.Notify(n) {
				t.Errorf("%s: Notify(%v) = false", tt.name, n)
			}
		}
		got, ended := s.Ending(Closed).End()
		want := Left{Rows: tt.rows, Marked: tt.follow, Unlanded: true}
		if diff := cmp.Diff(want, got); !ended || diff != "" {
			t.Errorf("%s: ended %v (-want +got):\n%s", tt.name, ended, diff)
		}
		if s.Notify(news("c", 9, false)) {
			t.Errorf("%s: a session that did not arrive takes a notification", tt.name)
		}
	}
}

// Asked returns the Requests that came before it. Land returns all Requests, at most four.
func TestArrival_R_PASS_requests_before_and_after_the_registry_answered(t *testing.T) {
	s := newHost().Arriving(leaseAt("b"), "a")
	previous := registry.Node{ID: "a", Boot: "1"}
	request := func(i int) bus.Request { return bus.Request{ID: fmt.Sprint(i)} }
	if asked, arriving := s.Requested(request(1)); !arriving || asked != (registry.Node{}) {
		t.Errorf("Requested before the answer: %v, %v, want no node yet", asked, arriving)
	}
	if diff := cmp.Diff([]bus.Request{request(1)},
		s.Asked(previous, registry.Epoch{})); diff != "" {
		t.Errorf("Asked (-want +got):\n%s", diff)
	}
	for i := 2; i <= 5; i++ {
		if asked, arriving := s.Requested(request(i)); !arriving || asked != previous {
			t.Errorf("Requested(%d): %v, %v, want %v", i, asked, arriving, previous)
		}
	}
	if got := s.Arrived(context.Background()); got != Overtaken {
		t.Errorf("Arrived = %v, want Overtaken", got)
	}
	left, landed := s.Land("a", &Snapshot{User: "bob", Session: "s"})
	want := []bus.Request{request(2), request(3), request(4), request(5)}
	if diff := cmp.Diff(want, left.Requests); !landed || diff != "" {
		t.Errorf("Land: %v (-want +got):\n%s", landed, diff)
	}
	if _, arriving := s.Requested(request(6)); arriving {
		t.Error("a session that is here keeps a Request")
	}
}

// A resume that looks at an arrival after its end still learns that the session was overtaken.
func TestArrival_R_OVERTAKEN_after_the_end(t *testing.T) {
	for _, overtaken := range []bool{false, true} {
		s, want := newHost().Arriving(leaseAt("b"), "a"), Unlanded
		if overtaken {
			s.Requested(bus.Request{ID: "q"})
			want = Overtaken
		}
		s.Ending(Closed).End()
		if got := s.Arrived(context.Background()); got != want {
			t.Errorf("overtaken %v: Arrived = %v, want %v", overtaken, got, want)
		}
	}
}

// Only the requested Transfer lands, and only once. The Transfer of another arrival would use event
// numbers a second time.
func TestArrival_R_ARRIVAL_what_lands(t *testing.T) {
	h := newHost()
	older := h.New(leaseAt("a"), false)
	older.Notify(Notification{Chat: "c", Sequence: 3})
	frozen, ok := older.Freeze()
	if !ok || len(frozen.Unacknowledged) != 1 {
		t.Fatalf("Freeze: %v, %v, want the row of c", frozen.Unacknowledged, ok)
	}
	if again, ok := older.Freeze(); ok {
		t.Errorf("Freeze again: %v", again)
	}
	snapshot, err := ReadSnapshot(frozen.Text)
	if err != nil {
		t.Fatal(err)
	}
	foreign := *snapshot
	foreign.User = "eve"
	s := h.Arriving(leaseAt("b"), "a")
	for _, step := range []struct {
		what     string
		id       string
		snapshot *Snapshot
		landed   bool
		outcome  Outcome
	}{
		{"of another arrival", "x", snapshot, false, Undecided},
		{"of another user", "a", &foreign, false, Undecided},
		{"the one that was asked for", "a", snapshot, true, Landed},
		{"the same again", "a", snapshot, true, Landed},
		{"of another arrival, later", "x", snapshot, false, Landed},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, landed := s.Land(step.id, step.snapshot)
		if outcome := s.Arrived(ctx); landed != step.landed ||
			step.outcome != Landed && outcome == Landed {
			t.Errorf("a Transfer %s: landed %v, %v, want %v, %v",
				step.what, landed, outcome, step.landed, step.outcome)
		}
	}
	if n := h.Count.Landed.Load(); n != 1 {
		t.Errorf("%d landed, want 1", n)
	}
	s.Ending(Closed).End()
	if _, landed := s.Land("a", snapshot); landed {
		t.Error("a Transfer landed in a session that has ended")
	}
}

// A reconciliation counts after a move if the lease was held when the session was frozen, and the
// epoch has not changed.
func TestArrival_R_CONTINUITY_when_a_reconciliation_counts(t *testing.T) {
	epoch, other := registry.Epoch{Crashes: 1}, registry.Epoch{Crashes: 2}
	for _, tt := range []struct {
		name     string
		frozen   func(s *Session)
		taken    registry.Epoch
		noticed  registry.Epoch
		complete bool
	}{
		{"the lease was held", nil, epoch, registry.Epoch{}, true},
		{"the same epoch was noticed on the way", nil, epoch, epoch, true},
		{"another epoch was noticed on the way", nil, epoch, other, false},
		{"another epoch when the lease was taken", nil, other, registry.Epoch{}, false},
		{"the lease was being taken again", (*Session).LeaseLost, epoch, registry.Epoch{}, false},
		{
			"the session was reconciling",
			func(s *Session) { s.Reconcile(epoch, true) }, epoch, registry.Epoch{}, false,
		},
	} {
		h := newHost()
		older := h.New(leaseAt("a"), true)
		older.LeaseAnswered(LeaseAnswer{Granted: true, Epoch: epoch})
		older.reconcile.phase = idle // it is complete
		if tt.frozen != nil {
			tt.frozen(older)
		}
		frozen, _ := older.Freeze()
		snapshot, err := ReadSnapshot(frozen.Text)
		if err != nil {
			t.Fatal(err)
		}
		s := h.Arriving(leaseAt("b"), "a")
		s.LeaseAnswered(LeaseAnswer{Granted: true, Epoch: tt.taken})
		s.Asked(registry.Node{ID: "a", Boot: "1"}, tt.taken)
		if tt.noticed != (registry.Epoch{}) {
			s.Reconcile(tt.noticed, false)
		}
		if _, landed := s.Land("a", snapshot); !landed || s.reconcile.complete() != tt.complete {
			t.Errorf("%s: landed %v, complete %v, want %v",
				tt.name, landed, s.reconcile.complete(), tt.complete)
		}
		// If the reconciliation does not count, statuses and own states may be missing too.
		if listed := s.statuses.recent.uses == forStatuses|forOwn; listed == tt.complete {
			t.Errorf("%s: the recent chats are listed: %v", tt.name, listed)
		}
	}
}

// TestSession_own_state_reaches_devices_that_may_have_missed_it: after each interruption the
// session lists its recent chats, if its client wants statuses.
func TestSession_own_state_reaches_devices_that_may_have_missed_it(t *testing.T) {
	epoch, other := registry.Epoch{Crashes: 1}, registry.Epoch{Crashes: 2}
	for _, tt := range []struct {
		name   string
		happen func(s *Session)
		want   recentUse
	}{
		{"nothing", func(*Session) {}, 0},
		{"a look in the same epoch", func(s *Session) { s.Reconcile(epoch, true) }, 0},
		{"another epoch", func(s *Session) { s.Reconcile(other, false) }, forStatuses | forOwn},
		{"a lost lease", func(s *Session) {
			s.LeaseLost()
			s.LeaseAnswered(LeaseAnswer{Granted: true, Epoch: epoch})
		}, forStatuses | forOwn},
	} {
		for _, wants := range []bool{true, false} {
			s := newHost().New(leaseAt("a"), wants)
			s.LeaseAnswered(LeaseAnswer{Granted: true, Epoch: epoch})
			tt.happen(s)
			want := tt.want
			if !wants {
				want = 0
			}
			if got := s.statuses.recent.uses; got != want {
				t.Errorf("%s, wants statuses %v: recent %d, want %d", tt.name, wants, got, want)
			}
		}
	}
}

func TestArrival_of_a_snapshot_that_cannot_be_read(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `{"User": "bob"}`, `{"LastID":`} {
		if m, err := ReadSnapshot([]byte(text)); err == nil {
			t.Errorf("ReadSnapshot(%q) = %+v, want an error", text, m)
		}
	}
}
