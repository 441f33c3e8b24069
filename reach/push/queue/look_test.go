package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/reach/push"
)

// TestQueue_looks_again_at_what_waited: what leaves at once is not looked at. What has waited is
// looked at before each attempt, and does not leave if it is not needed any more.
func TestQueue_looks_again_at_what_waited(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []push.Outcome
		looks   []string // what each look returns
		want    []string
		counts  Counts
	}{
		"at once": {
			[]push.Outcome{push.Sent}, nil, []string{"text"}, Counts{Enqueued: 1, Sent: 1},
		},
		"not needed": {
			[]push.Outcome{push.Retry}, []string{"no"}, []string{"text"},
			Counts{Enqueued: 1, Retried: 1, Obsolete: 1},
		},
		"changed": {
			[]push.Outcome{push.Retry, push.Retry, push.Sent}, []string{"a", "b"},
			[]string{"text", "a", "b"}, Counts{Enqueued: 1, Sent: 1, Retried: 2},
		},
		"unknown, and then known": {
			[]push.Outcome{push.Retry, push.Sent}, []string{"", "c"}, []string{"text", "c"},
			Counts{Enqueued: 1, Sent: 1, Retried: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers, looks := tc.answers, tc.looks
				p := &scripted{answer: func(
					context.Context, push.Target, push.Notification,
				) push.Result {
					outcome := answers[0]
					answers = answers[1:]
					return push.Result{Outcome: outcome}
				}}
				q := New(p)
				q.LookAgain(func(
					_ context.Context, _ push.Target, n push.Notification,
				) (push.Notification, bool, error) {
					n.Body = looks[0]
					looks = looks[1:]
					if n.Body == "" {
						return n, true, errors.New("the store is away")
					}
					return n, n.Body != "no", nil
				})
				start(t, q)
				q.Enqueue(device(1), note("text"))
				time.Sleep(time.Minute)
				bodies, _ := p.requests()
				if diff := cmp.Diff(tc.want, bodies); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if counts, _ := q.Stats(); counts != tc.counts || len(looks) > 0 {
					t.Errorf("counted %+v, want %+v; %d looks are left", counts, tc.counts,
						len(looks))
				}
			})
		})
	}
}

// TestQueue_a_look_is_no_probe: while a provider is away, what is not needed does not count as an
// answer of it.
func TestQueue_a_look_is_no_probe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{answer: always(push.Result{Outcome: push.Retry})}
		q := New(p)
		q.LookAgain(func(
			_ context.Context, _ push.Target, n push.Notification,
		) (push.Notification, bool, error) {
			return n, n.Body == "needed", nil
		})
		start(t, q)
		for i := range failuresToOpen {
			q.Enqueue(device(i), note("needed"))
		}
		synctest.Wait()
		for i := range 100 {
			q.Enqueue(device(100+i), note("not needed"))
		}
		time.Sleep(10 * time.Second)
		if _, gauges := q.Stats(); gauges.Stopped != 1 {
			t.Error("the breaker is closed")
		}
		if bodies, _ := p.requests(); len(bodies) > failuresToOpen+5 {
			t.Errorf("%d requests in ten seconds", len(bodies))
		}
		if counts, _ := q.Stats(); counts.Obsolete != 100 {
			t.Errorf("%d were obsolete, want 100", counts.Obsolete)
		}
	})
}
