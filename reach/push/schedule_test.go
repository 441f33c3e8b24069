package push

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// scene is a schedule with a clock of its own, and what is under way in it.
type scene struct {
	schedule
	now      time.Time
	underWay []*entry
}

func newScene() *scene {
	return &scene{now: time.Unix(1_000, 0), schedule: schedule{
		laneOf:  func(to Target) string { return to.App },
		entries: make(map[entryKey]*entry), lanes: make(map[string]*lane),
	}}
}

// put enqueues a notification; a text such as "a1 x" is that of device a, version 1, in lane x.
func (s *scene) put(text string) {
	var version, app string
	_, _ = fmt.Sscan(text, &version, &app)
	s.schedule.put(job{
		to:   Target{Device: tidemark.DeviceID(version[:1]), App: app},
		n:    Notification{Name: "n", Body: version},
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
func (s *scene) finish(r Result) {
	s.schedule.finish(s.now, s.underWay[0], r)
	s.underWay = s.underWay[1:]
}

// TestSchedule_steps_of_a_notification: what happens in each step, and what is sent after it.
func TestSchedule_steps_of_a_notification(t *testing.T) {
	retry := Result{Outcome: Retry}
	for name, tc := range map[string]struct {
		do   func(s *scene)
		want []string
	}{
		"queued":                 {func(s *scene) { s.put("a1") }, []string{"a1"}},
		"queued, a newer one":    {func(s *scene) { s.put("a1"); s.put("b1"); s.put("a2") }, []string{"a2", "b1"}},
		"sending":                {func(s *scene) { s.put("a1"); s.take() }, nil},
		"sending, a newer one":   {func(s *scene) { s.put("a1"); s.take(); s.put("a2") }, nil},
		"sent":                   {func(s *scene) { s.put("a1"); s.take(); s.finish(Result{Outcome: Sent}) }, nil},
		"sent, a newer one":      {func(s *scene) { s.put("a1"); s.take(); s.put("a2"); s.finish(Result{Outcome: Sent}) }, []string{"a2"}},
		"refused, a newer one":   {func(s *scene) { s.put("a1"); s.take(); s.put("a2"); s.finish(Result{Outcome: Refused}) }, []string{"a2"}},
		"dead, a newer one":      {func(s *scene) { s.put("a1"); s.take(); s.put("a2"); s.finish(Result{Outcome: DropTarget}) }, nil},
		"waiting":                {func(s *scene) { s.put("a1"); s.take(); s.finish(retry) }, nil},
		"waiting, the wait over": {func(s *scene) { s.put("a1"); s.take(); s.finish(retry); s.now = s.now.Add(time.Second) }, []string{"a1"}},
		"waiting, a newer one":   {func(s *scene) { s.put("a1"); s.take(); s.finish(retry); s.put("a2") }, nil},
		"waiting, a newer one, the wait over": {func(s *scene) {
			s.put("a1")
			s.take()
			s.finish(retry)
			s.put("a2")
			s.now = s.now.Add(time.Second)
		}, []string{"a2"}},
		"waiting, of another address": {func(s *scene) {
			s.put("a1")
			s.take()
			s.finish(retry)
			s.schedule.put(job{Target{Device: "a", Address: "new"}, Notification{Name: "n", Body: "a2"}, s.now})
		}, []string{"a2"}},
		"failed, a newer one, the wait over": {func(s *scene) {
			s.put("a1")
			s.take()
			s.put("a2")
			s.finish(retry)
			s.now = s.now.Add(time.Second)
		}, []string{"a2"}},
		"told to wait": {func(s *scene) {
			s.put("a1")
			s.take()
			s.finish(Result{Outcome: Retry, Wait: 9 * time.Second})
			s.now = s.now.Add(8 * time.Second)
		}, nil},
		"told to wait, the wait over": {func(s *scene) {
			s.put("a1")
			s.take()
			s.finish(Result{Outcome: Retry, Wait: 9 * time.Second})
			s.now = s.now.Add(9 * time.Second)
		}, []string{"a1"}},
		"told to wait for longer than ever": {func(s *scene) {
			s.put("a1")
			s.take()
			s.finish(Result{Outcome: Retry, Wait: MaxAge})
			s.now = s.now.Add(MaxAge)
		}, nil},
		"too old":              {func(s *scene) { s.put("a1"); s.now = s.now.Add(MaxAge) }, nil},
		"almost too old":       {func(s *scene) { s.put("a1"); s.now = s.now.Add(MaxAge - 1) }, []string{"a1"}},
		"too old, a newer one": {func(s *scene) { s.put("a1"); s.now = s.now.Add(MaxAge - 1); s.put("a2"); s.now = s.now.Add(1) }, []string{"a2"}},
		"lanes take turns":     {func(s *scene) { s.put("a1 x"); s.put("b1 x"); s.put("c1 x"); s.put("d1 y") }, []string{"a1", "d1", "b1", "c1"}},
	} {
		s := newScene()
		tc.do(s)
		if diff := cmp.Diff(tc.want, s.take()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		s.check(t)
	}
}

// TestSchedule_failing_lane_stops_alone: after five failures in a row a lane waits, then probes
// with one request. Another lane goes on.
func TestSchedule_failing_lane_stops_alone(t *testing.T) {
	s := newScene()
	for _, name := range []string{"a1 x", "b1 x", "c1 x", "d1 x", "e1 x"} {
		s.put(name)
	}
	for range s.take() {
		s.finish(Result{Outcome: Retry, Wait: 30 * time.Second})
	}
	s.put("f1 x")
	s.put("g1 y")
	if diff := cmp.Diff([]string{"g1"}, s.take()); diff != "" {
		t.Errorf("while lane x is stopped (-want +got):\n%s", diff)
	}
	s.finish(Result{Outcome: Sent})
	s.now = s.now.Add(30 * time.Second)
	if got := s.take(); len(got) != 1 {
		t.Fatalf("the probe is %v, want one request", got)
	}
	s.finish(Result{Outcome: Sent})
	if got := s.take(); len(got) != 5 {
		t.Errorf("after the probe %v are sent, want the other five", got)
	}
	s.check(t)
}

// TestSchedule_random_steps: whatever happens, bounds hold, nothing is sent beside another of its
// name, and every notification is accounted for.
func TestSchedule_random_steps(t *testing.T) {
	outcomes := []Outcome{Sent, Sent, Retry, Retry, DropTarget, Refused, Withheld}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := newScene()
		for range 400 {
			switch random.IntN(8) {
			case 0, 1, 2, 3:
				s.put(fmt.Sprintf("%c%d %c", 'a'+random.IntN(20), random.IntN(9), 'x'+random.IntN(3)))
			case 4:
				s.take()
			case 5, 6:
				if len(s.underWay) > 0 {
					s.finish(Result{
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
				s.finish(Result{Outcome: Sent})
			}
			s.now = s.now.Add(10 * time.Minute)
		}
		s.check(t)
		if len(s.entries) != 0 || len(s.lanes) != 0 || s.wheel.count != 0 || len(s.wheel.slots) != 0 {
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
		may := l.queue.Len() > 0 && l.breaker.allows(s.now) && l.inFlight < MaxInFlightOfLane
		if l.ready == nil && may && l.wait == nil {
			t.Errorf("lane %q is forgotten: %d wait", l.name, l.queue.Len())
		}
	}
}
