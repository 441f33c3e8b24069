package queue

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
)

// scene is a schedule with a clock of its own, and what is under way in it.
type scene struct {
	schedule
	now      time.Time
	underWay []*entry
}

func newScene() *scene {
	return &scene{now: time.Unix(1_000, 0), schedule: schedule{
		laneOf:  func(to push.Target) string { return to.App },
		entries: make(map[entryKey]*entry), lanes: make(map[string]*lane),
	}}
}

// put enqueues a notification; a text such as "a1 x" is that of device a, version 1, in lane x.
func (s *scene) put(text string) {
	var version, app string
	_, _ = fmt.Sscan(text, &version, &app)
	s.schedule.put(job{
		to:   push.Target{Device: tidemark.DeviceID(version[:1]), App: app},
		n:    push.Notification{Name: "n", Body: version},
		came: s.now,
	})
}

// take returns the bodies of all that may be sent now.
func (s *scene) take() (bodies []string) {
	for e := s.schedule.take(s.now); e != nil; e = s.schedule.take(s.now) {
		s.underWay = append(s.underWay, e)
		bodies = append(bodies, e.n.Body)
	}
	return bodies
}

// finish ends the oldest request under way.
func (s *scene) finish(r push.Result) {
	s.schedule.finish(s.now, s.underWay[0], r, true)
	s.underWay = s.underWay[1:]
}

// do does what words say: a notification is put ("a1", or "a1/x" in lane x), what may be sent is
// taken ("take"), the oldest request under way ends with an outcome ("retry", or "retry:9s" with a
// wait), and time passes ("+1s").
func (s *scene) do(words string) {
	for word := range strings.FieldsSeq(words) {
		name, wait, _ := strings.Cut(word, ":")
		pause, _ := time.ParseDuration(wait)
		switch {
		case word == "take":
			s.take()
		case word[0] == '+':
			pause, _ = time.ParseDuration(word[1:])
			s.now = s.now.Add(pause)
		case len(name) > 4 || name == "sent":
			s.finish(push.Result{Outcome: push.Outcome(name), Wait: pause})
		default:
			s.put(strings.Replace(word, "/", " ", 1))
		}
	}
}

// TestSchedule_steps_of_a_notification: what happens in each step, and what is sent after it.
func TestSchedule_steps_of_a_notification(t *testing.T) {
	for _, tc := range []struct{ do, want string }{
		{"a1", "a1"},
		{"a1 b1 a2", "a2 b1"}, // it keeps its place
		{"a1 take", ""},
		{"a1 take a2", ""},
		{"a1 take sent", ""},
		{"a1 take a2 sent", "a2"},
		{"a1 take a2 a3 sent", "a3"},
		{"a1 take a2 refused", "a2"},
		{"a1 take a2 withheld", "a2"},
		{"a1 take a2 drop_target", ""},
		{"a1 take retry", ""},
		{"a1 take retry +999ms", ""},
		{"a1 take retry +1s", "a1"},
		{"a1 take retry a2", ""},
		{"a1 take retry a2 +1s", "a2"},
		{"a1 take a2 retry", ""},
		{"a1 take a2 retry +1s", "a2"},
		{"a1 take retry +1s take retry +1s", ""}, // the second wait is longer
		{"a1 take retry +1s take retry +2s", "a1"},
		{"a1 take retry:9s +8s", ""},
		{"a1 take retry:9s +9s", "a1"},
		{"a1 take retry:59m +59m", "a1"},
		{"a1 take retry:1h +1h", ""},
		{"a1 +1h", ""},
		{"a1 +59m59s", "a1"},
		{"a1 +59m59s a2 +1s", "a2"},
		{"a1 take retry +59m59s a2 +1s", "a2"},
		{"a1 take retry a2/y", ""},             // of the same address
		{"a1/x b1/x c1/x d1/y", "a1 d1 b1 c1"}, // lanes take turns
	} {
		s := newScene()
		s.do(tc.do)
		if got := strings.Join(s.take(), " "); got != tc.want {
			t.Errorf("%s: %q is sent, want %q", tc.do, got, tc.want)
		}
		s.check(t)
	}
}

// TestSchedule_badge_replaces_only_badges: a Clear replaces the banner that it is about.
func TestSchedule_badge_replaces_only_badges(t *testing.T) {
	s := newScene()
	put := func(kind push.Kind, name, body string) {
		n := push.Notification{Kind: kind, Name: name, Body: body}
		s.schedule.put(job{to: push.Target{Device: "a"}, n: n, came: s.now})
	}
	put(push.Banner, "n", "banner n")
	put(push.Banner, "m", "banner m")
	put(push.Badge, "n", "badge 1")
	put(push.Badge, "", "badge 2")
	put(push.Clear, "m", "clear m")
	want := []string{"banner n", "clear m", "badge 2"}
	if diff := cmp.Diff(want, s.take()); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	s.check(t)
}

// TestSchedule_clear_hides_no_unread: a banner of a later message stays, whether it waits or
// follows one under way.
func TestSchedule_clear_hides_no_unread(t *testing.T) {
	s := newScene()
	put := func(kind push.Kind, to tidemark.Sequence) {
		n := push.Notification{Kind: kind, Name: "n", To: to, Body: fmt.Sprint(kind, " ", to)}
		s.schedule.put(job{to: push.Target{Device: "a"}, n: n, came: s.now})
	}
	var got []string
	take := func() { got = append(got, s.take()...) }
	put(push.Banner, 5)
	put(push.Clear, 4)
	take()
	put(push.Clear, 4) // Banner 5 is under way.
	put(push.Banner, 7)
	put(push.Clear, 6)
	s.finish(push.Result{Outcome: push.Retry})
	put(push.Clear, 6)
	s.now = s.now.Add(time.Minute)
	take()
	put(push.Clear, 7)
	s.finish(push.Result{Outcome: push.Sent})
	take()
	if diff := cmp.Diff([]string{"banner 5", "banner 7", "clear 7"}, got); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if s.counts.Replaced != 5 {
		t.Errorf("%d are replaced, want 5", s.counts.Replaced)
	}
	s.check(t)
}

// TestSchedule_new_address_does_not_wait: the wait was for the old one.
func TestSchedule_new_address_does_not_wait(t *testing.T) {
	s := newScene()
	s.do("a1 take retry:9s")
	to := push.Target{Device: "a", Address: "new"}
	s.schedule.put(job{to: to, n: push.Notification{Name: "n", Body: "a2"}, came: s.now})
	if got := s.take(); len(got) != 1 || got[0] != "a2" {
		t.Errorf("%q is sent, want a2", got)
	}
	s.check(t)
}

// TestSchedule_failing_lane_stops_alone: after five failures in a row a lane waits, then probes
// with one request. Another lane goes on.
func TestSchedule_failing_lane_stops_alone(t *testing.T) {
	s := newScene()
	for _, name := range []string{"a1 x", "b1 x", "c1 x", "d1 x", "e1 x"} {
		s.put(name)
	}
	for range s.take() {
		s.finish(push.Result{Outcome: push.Retry, Wait: 30 * time.Second})
	}
	s.put("f1 x")
	s.put("g1 y")
	if diff := cmp.Diff([]string{"g1"}, s.take()); diff != "" {
		t.Errorf("while lane x is stopped (-want +got):\n%s", diff)
	}
	s.finish(push.Result{Outcome: push.Sent})
	s.now = s.now.Add(30 * time.Second)
	if got := s.take(); len(got) != 1 {
		t.Fatalf("the probe is %v, want one request", got)
	}
	s.finish(push.Result{Outcome: push.Sent})
	if got := s.take(); len(got) != 5 {
		t.Errorf("after the probe %v are sent, want the other five", got)
	}
	s.check(t)
}

// TestSchedule_one_target_stops_no_lane: a device that gets too much says nothing about others.
func TestSchedule_one_target_stops_no_lane(t *testing.T) {
	s := newScene()
	s.do("a1 b1 c1 d1 e1 f1")
	for range s.take() {
		s.finish(push.Result{Outcome: push.Retry, Wait: time.Hour / 2, OneTarget: true})
	}
	s.do("g1 +1s")
	if got := s.take(); len(got) != 1 || got[0] != "g1" {
		t.Errorf("%q is sent, want g1", got)
	}
	s.check(t)
}

// TestSchedule_random_steps: whatever happens, bounds hold, nothing is sent beside another of its
// name, and every notification is accounted for.
func TestSchedule_random_steps(t *testing.T) {
	outcomes := []push.Outcome{
		push.Sent, push.Sent, push.Retry, push.Retry, push.DropTarget, push.Refused, push.Withheld,
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := newScene()
		for range 400 {
			switch random.IntN(8) {
			case 0, 1, 2, 3:
				s.put(fmt.Sprintf("%c%d %c",
					'a'+random.IntN(20), random.IntN(9), 'x'+random.IntN(3)))
			case 4:
				s.take()
			case 5, 6:
				if len(s.underWay) > 0 {
					s.finish(push.Result{
						Outcome: outcomes[random.IntN(len(outcomes))],
						Wait:    time.Duration(random.IntN(4)) * 10 * time.Second,
					})
				}
			case 7:
				s.now = s.now.Add(time.Duration(random.IntN(100)*random.IntN(100)) * time.Second)
			}
			s.check(t)
		}
		for range 100 {
			s.take()
			for len(s.underWay) > 0 {
				s.finish(push.Result{Outcome: push.Sent})
			}
			s.now = s.now.Add(10 * time.Minute)
		}
		s.check(t)
		if len(s.entries)+len(s.lanes)+s.wheel.count+len(s.wheel.slots) != 0 {
			t.Errorf("at the end there are %d entries, %d lanes, %d waits: seed %d",
				len(s.entries), len(s.lanes), s.wheel.count, seed)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// check checks what holds between two steps.
func (s *scene) check(t *testing.T) {
	t.Helper()
	newer, keys := 0, make(map[entryKey]bool)
	for _, e := range s.underWay {
		if keys[e.key] {
			t.Errorf("two requests of %v are under way", e.key)
		}
		keys[e.key] = true
		if e.newer != nil {
			newer++
		}
	}
	c := s.counts
	ended := c.Sent + c.Dead + c.Refused + c.Withheld + c.Replaced + c.Dropped + c.Expired
	if have := uint64(s.ages.Len() + s.inFlight + newer); c.Enqueued != ended+have {
		t.Errorf("of %d notifications %d have ended and %d are there: %+v",
			c.Enqueued, ended, have, c)
	}
	if s.inFlight != len(s.underWay) || len(s.entries) != s.ages.Len()+s.inFlight {
		t.Errorf("%d under way, want %d; %d entries, want %d", s.inFlight, len(s.underWay),
			len(s.entries), s.ages.Len()+s.inFlight)
	}
	for _, l := range s.lanes {
		may := l.queue.Len() > 0 && l.breaker.allows(s.now) && l.inFlight < push.MaxInFlightOfLane
		if l.ready == nil && may && l.wait == nil {
			t.Errorf("lane %q is forgotten: %d wait", l.name, l.queue.Len())
		}
	}
}
