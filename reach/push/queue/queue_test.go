package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a provider of tests. It answers as answer says, and records what it got.
type scripted struct {
	answer func(ctx context.Context, to push.Target, n push.Notification) push.Result

	mu      sync.Mutex
	got     []string
	at      []time.Time
	beside  int // requests under way, and the most there were
	highest int
}

func (p *scripted) Lane(to push.Target) string { return to.App }

func (p *scripted) Send(ctx context.Context, to push.Target, n push.Notification) push.Result {
	p.mu.Lock()
	p.got, p.at = append(p.got, n.Body), append(p.at, time.Now())
	p.beside++
	p.highest = max(p.highest, p.beside)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.beside--
		p.mu.Unlock()
	}()
	return p.answer(ctx, to, n)
}

// requests returns the bodies that it got, and when.
func (p *scripted) requests() (bodies []string, at []time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got, p.at
}

func always(r push.Result) func(context.Context, push.Target, push.Notification) push.Result {
	return func(context.Context, push.Target, push.Notification) push.Result { return r }
}

func hangs(ctx context.Context, _ push.Target, _ push.Notification) push.Result {
	<-ctx.Done()
	return push.Result{Outcome: push.Retry}
}

// running starts a queue in a bubble of testing/synctest.
func running(t *testing.T, p *scripted) *Queue {
	t.Helper()
	q := New(p)
	start(t, q)
	return q
}

// start runs a queue until the test ends.
func start(t *testing.T, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { q.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
}

func device(i int) push.Target {
	return push.Target{User: "bob", Device: tidemark.DeviceID(fmt.Sprint("d", i)), Address: "x"}
}

func note(body string) push.Notification {
	return push.Notification{Kind: push.Banner, Name: "n", Body: body}
}

// TestQueue_never_makes_a_caller_wait: while the provider hangs, all of MaxQueued and more are
// taken in no time, and the oldest are dropped.
func TestQueue_never_makes_a_caller_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{answer: hangs}
		q := running(t, p)
		for i := range push.MaxInFlight {
			q.Enqueue(device(i), note("first"))
		}
		synctest.Wait()
		began := time.Now()
		for i := range MaxQueued + 50 {
			q.Enqueue(device(1_000+i), note(fmt.Sprint(i)))
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("Enqueue took %v", waited)
		}
		synctest.Wait()
		counts, gauges := q.Stats()
		if gauges != (Gauges{MaxQueued, push.MaxInFlight, 0}) || counts.Dropped != 50 {
			t.Errorf("%d are queued, %d under way, %d dropped; want %d, %d, 50",
				gauges.Queued, gauges.InFlight, counts.Dropped, MaxQueued, push.MaxInFlight)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.highest != push.MaxInFlight {
			t.Errorf("%d requests were under way at once, want %d", p.highest, push.MaxInFlight)
		}
	})
}

// TestQueue_bounds_each_lane: one host that hangs leaves most requests to the others.
func TestQueue_bounds_each_lane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{}
		p.answer = func(ctx context.Context, to push.Target, n push.Notification) push.Result {
			if to.App == "slow.example" {
				return hangs(ctx, to, n)
			}
			return push.Result{Outcome: push.Sent}
		}
		q := running(t, p)
		for i := range 1_000 {
			to := device(i)
			to.App = "slow.example"
			q.Enqueue(to, note("slow"))
		}
		to := device(5_000)
		to.App = "quick.example"
		q.Enqueue(to, note("quick"))
		synctest.Wait()
		counts, gauges := q.Stats()
		if gauges.InFlight != push.MaxInFlightOfLane || counts.Sent != 1 {
			t.Errorf("%d are under way and %d sent, want %d and 1",
				gauges.InFlight, counts.Sent, push.MaxInFlightOfLane)
		}
	})
}

// TestQueue_bounds_all_lanes_together: many hosts get no more requests than one provider may.
func TestQueue_bounds_all_lanes_together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t, &scripted{answer: hangs})
		for i := range 300 {
			to := device(i)
			to.App = fmt.Sprintf("host%d.example", i)
			q.Enqueue(to, note("a"))
		}
		synctest.Wait()
		if _, gauges := q.Stats(); gauges.InFlight != push.MaxInFlight || gauges.Queued != 100 {
			t.Errorf("there are %+v, want %d under way", gauges, push.MaxInFlight)
		}
	})
}

// TestQueue_waits_as_told: Retry-After holds, and a wait beyond the age ends the notification.
func TestQueue_waits_as_told(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{}
		p.answer = func(context.Context, push.Target, push.Notification) push.Result {
			if got, _ := p.requests(); len(got) == 1 {
				return push.Result{Outcome: push.Retry, Wait: 90 * time.Second}
			}
			return push.Result{Outcome: push.Sent}
		}
		q := running(t, p)
		began := time.Now()
		q.Enqueue(device(1), note("a"))
		time.Sleep(2 * time.Minute)
		if _, at := p.requests(); len(at) != 2 || at[1].Sub(began) != 90*time.Second {
			t.Fatalf("the requests were at %v after %v, want a second after 90 s", at, began)
		}
		counts, _ := q.Stats()
		if counts.Sent != 1 || counts.Retried != 1 {
			t.Errorf("counts are %+v, want one sent and one retried", counts)
		}
	})
}

// TestQueue_gives_up_after_an_hour: a provider that never answers gets few requests, and memory is
// free after an hour.
func TestQueue_gives_up_after_an_hour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{answer: hangs}
		q := running(t, p)
		for i := range 1_000 {
			q.Enqueue(device(i), note("a"))
		}
		time.Sleep(MaxAge - time.Second)
		if _, gauges := q.Stats(); gauges.Stopped != 1 {
			t.Errorf("%d lanes are stopped, want 1", gauges.Stopped)
		}
		time.Sleep(2 * time.Minute)
		counts, gauges := q.Stats()
		if counts.Expired != 1_000 || gauges.Queued+gauges.InFlight != 0 {
			t.Errorf("%d expired, and %+v are left; want all 1,000, and none",
				counts.Expired, gauges)
		}
		// 200 at once, then one probe at a time: each takes 10 s, and the pause rises to a minute.
		if got, _ := p.requests(); len(got) > push.MaxInFlight+70 {
			t.Errorf("%d requests in an hour, want one probe at a time", len(got))
		}
	})
}

// TestQueue_latest_replaces: of ten of one name while one is under way, the last is sent.
func TestQueue_latest_replaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{answer: func(context.Context, push.Target, push.Notification) push.Result {
			time.Sleep(time.Second)
			return push.Result{Outcome: push.Sent}
		}}
		q := running(t, p)
		for i := range 10 {
			q.Enqueue(device(1), note(fmt.Sprint(i)))
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		got, _ := p.requests()
		if diff := cmp.Diff([]string{"0", "9"}, got); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// TestQueue_reports_what_somebody_must_act_on, and nothing else.
func TestQueue_reports_what_somebody_must_act_on(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := map[tidemark.DeviceID]push.Outcome{
			"d0": push.Sent, "d1": push.DropTarget, "d2": push.Refused, "d3": push.Withheld,
		}
		p := &scripted{}
		p.answer = func(_ context.Context, to push.Target, _ push.Notification) push.Result {
			return push.Result{Outcome: answers[to.Device]}
		}
		q := running(t, p)
		for i := range answers {
			var n int
			_, _ = fmt.Sscanf(string(i), "d%d", &n)
			q.Enqueue(device(n), note("a"))
		}
		synctest.Wait()
		got := make(map[tidemark.DeviceID]push.Outcome)
		reports, ok := q.Reports(t.Context())
		for _, r := range reports {
			got[r.To.Device] = r.Result.Outcome
		}
		want := map[tidemark.DeviceID]push.Outcome{"d1": push.DropTarget, "d2": push.Refused}
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if reports, ok := q.Reports(ended); ok {
			t.Errorf("reports come twice: %v", reports)
		}
	})
}

// TestQueue_many_callers is for the race detector: callers, requests, readers and the end of Run at
// once. Every notification is accounted for.
func TestQueue_many_callers(t *testing.T) {
	p := &scripted{answer: always(push.Result{Outcome: push.Refused})}
	q := New(p)
	ctx, cancel := context.WithCancel(t.Context())
	var running, callers sync.WaitGroup
	running.Go(func() { q.Run(ctx) })
	running.Go(func() {
		for {
			if _, ok := q.Reports(ctx); !ok {
				return
			}
			q.Stats()
		}
	})
	for i := range 8 {
		callers.Go(func() {
			for j := range 1_000 {
				q.Enqueue(device(i*10+j%10), note("a"))
			}
		})
	}
	callers.Wait()
	for deadline := time.Now().Add(time.Minute); ; {
		counts, gauges := q.Stats()
		if gauges.Queued+gauges.InFlight == 0 {
			if counts.Enqueued != 8_000 || counts.Refused+counts.Replaced != 8_000 {
				t.Errorf("counts are %+v, want 8,000 in all", counts)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute there are %+v", gauges)
		}
		<-time.After(time.Millisecond)
	}
	cancel()
	running.Wait()
}
