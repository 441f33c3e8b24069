package limit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// sends counts a send of a user with credentials of their own.
func sends(l *limit.Limiter, user tidemark.UserID) error {
	_, err := l.Send(server.Caller{User: user}, tidemark.KindMessage)
	return err
}

func TestSend_burst_then_rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{})
		taken := func() (n int) {
			for sends(l, "ann") == nil {
				n++
			}
			return n
		}
		if got := taken(); got != 500 {
			t.Errorf("%d at once, want 500", got)
		}
		if got := tidemark.CodeOf(sends(l, "ann")); got != tidemark.Exhausted {
			t.Errorf("code = %q", got)
		}
		if err := sends(l, "bob"); err != nil {
			t.Errorf("another user: %v", err)
		}
		time.Sleep(time.Second) // synctest's clock
		if got := taken(); got != 50 {
			t.Errorf("%d after a second, want 50", got)
		}
	})
}

func TestSend_nil_limits_nothing(t *testing.T) {
	var l *limit.Limiter
	for range 10_000 {
		if err := sends(l, "ann"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSend_forgetting_idle_users_forgives_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{
			User: limit.Rates{Sends: limit.Rate{PerSecond: 0.001, Burst: 1}}, MaxUsers: 3_000,
		})
		if sends(l, "ann") != nil || sends(l, "ann") == nil {
			t.Fatal("a burst of 1 is not 1")
		}
		time.Sleep(500 * time.Second) // the bucket is not full again
		for i := range 2_500 {
			if err := sends(l, tidemark.UserID(fmt.Sprint("u", i))); err != nil {
				t.Fatal(err)
			}
		}
		if sends(l, "ann") == nil {
			t.Error("ann was forgotten while her bucket was not full")
		}
	})
}

// A backend has rates of its own. What it does for a user costs the user nothing.
func TestTake_classes_and_kinds_are_apart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := server.Caller{User: "ann"}
		backend := server.Caller{User: "ann", Backend: true}
		l := limit.New(limit.Config{
			User: limit.Rates{
				Sends:  limit.Rate{PerSecond: 1, Burst: 9},
				Silent: limit.Rate{PerSecond: 1, Burst: 4},
				Calls:  limit.Rate{PerSecond: 1, Burst: 2},
			},
			Backend: limit.Rates{
				Sends:    limit.Rate{PerSecond: 1, Burst: 3},
				Statuses: limit.Unlimited,
			},
		})
		for _, tc := range []struct {
			what string
			take func() (limit.Quota, error)
			want int
		}{
			{
				"edits of a user", func() (limit.Quota, error) {
					return l.Send(ann, tidemark.KindEdit)
				}, 4,
			},
			{
				"sends of a user who has edited", func() (limit.Quota, error) {
					return l.Send(ann, tidemark.KindMessage)
				}, 9 - 4,
			},
			{
				"edits of a backend, which are sends", func() (limit.Quota, error) {
					return l.Send(backend, tidemark.KindEdit)
				}, 3,
			},
			{"calls of a user", func() (limit.Quota, error) { return l.Call(ann, 1) }, 2},
			{
				"large calls of a backend", func() (limit.Quota, error) {
					return l.Call(backend, limit.LargeCall)
				}, limit.BackendCallBurst / limit.LargeCall,
			},
			{
				"questions of a user about ten chats", func() (limit.Quota, error) {
					return l.Status(ann, 10)
				}, limit.StatusBurst / 10,
			},
		} {
			got := 0
			for ; got < 1_000_000; got++ {
				if _, err := tc.take(); err != nil {
					break
				}
			}
			if got != tc.want {
				t.Errorf("%s: %d at once, want %d", tc.what, got, tc.want)
			}
		}
		for range 100_000 {
			if _, err := l.Status(backend, 10); err != nil {
				t.Fatalf("questions of a backend without a limit: %v", err)
			}
		}
	})
}

// TestTake_says_what_is_limited: the names of buckets mean nothing to a user.
func TestTake_says_what_is_limited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Nothing is refilled while the test runs.
		one := limit.Rate{PerSecond: 1, Burst: 1}
		rates := limit.Rates{
			Sends: limit.Rate{PerSecond: 1, Burst: 2}, Silent: one, Calls: one, Statuses: one,
		}
		l := limit.New(limit.Config{User: rates, Backend: rates})
		for _, tc := range []struct {
			take func(server.Caller) (limit.Quota, error)
			want string
		}{
			{
				func(who server.Caller) (limit.Quota, error) {
					return l.Send(who, tidemark.KindPin)
				},
				"the limit of edits, redactions, reactions, pins and control messages together",
			},
			{
				func(who server.Caller) (limit.Quota, error) {
					return l.Send(who, tidemark.KindMessage)
				},
				"the limit of sends",
			},
			{
				func(who server.Caller) (limit.Quota, error) { return l.Call(who, 1) },
				"the limit of calls that send nothing",
			},
			{
				func(who server.Caller) (limit.Quota, error) { return l.Status(who, 1) },
				"the limit of delivery statuses",
			},
		} {
			for who, more := range map[server.Caller]string{
				{User: "ann"}:                " is 1 a second",
				{User: "ann", Backend: true}: " of a backend for one user is 1 a second",
			} {
				_, err := tc.take(who)
				for n := 0; err == nil && n < 10; n++ {
					_, err = tc.take(who)
				}
				if got := tidemark.DetailOf(err); !strings.HasPrefix(got, tc.want+more) {
					t.Errorf("got %q, want that it begins with %q", got, tc.want+more)
				}
			}
		}
	})
}

// A call that costs more than may be taken at once takes everything.
func TestTake_more_than_the_burst_waits_for_a_full_bucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := server.Caller{User: "ann"}
		l := limit.New(limit.Config{
			User: limit.Rates{Calls: limit.Rate{PerSecond: 1, Burst: 10}},
		})
		for i, tt := range []struct {
			pause time.Duration
			ok    bool
		}{{0, true}, {9 * time.Second, false}, {time.Second, true}} {
			time.Sleep(tt.pause) // synctest's clock
			if _, err := l.Call(ann, 100); (err == nil) != tt.ok {
				t.Errorf("call %d: %v", i, err)
			}
		}
	})
}

func TestSetRates_changes_only_what_changed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := server.Caller{User: "ann"}
		rates := limit.Rates{
			Sends: limit.Rate{PerSecond: 1, Burst: 2}, Calls: limit.Rate{PerSecond: 1, Burst: 10},
		}
		l := limit.New(limit.Config{User: rates})
		taken := func(take func() (limit.Quota, error)) (n int) {
			for ; n < 100; n++ {
				if _, err := take(); err != nil {
					break
				}
			}
			return n
		}
		send := func() (limit.Quota, error) { return l.Send(ann, tidemark.KindMessage) }
		call := func() (limit.Quota, error) { return l.Call(ann, 1) }
		if sends, calls := taken(send), taken(call); sends != 2 || calls != 10 {
			t.Fatalf("%d sends and %d calls at once, want 2 and 10", sends, calls)
		}
		rates.Sends.Burst = 7
		l.SetRates(rates, limit.Rates{})
		if sends, calls := taken(send), taken(call); sends != 7 || calls != 0 {
			t.Errorf("%d sends and %d calls after the change, want 7 and 0", sends, calls)
		}
		rates.Sends = limit.Unlimited
		l.SetRates(rates, limit.Rates{})
		if sends := taken(send); sends != 100 {
			t.Errorf("%d sends without a limit", sends)
		}
	})
}

func TestQuota_says_what_is_left(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{
			User: limit.Rates{Calls: limit.Rate{PerSecond: 4, Burst: 10}},
		})
		for i, want := range []string{
			`"calls";r=5;t=2`, `"calls";r=0;t=3`, `"calls";r=0;t=3`,
		} {
			quota, err := l.Call(server.Caller{User: "ann"}, limit.LargeCall)
			if (err != nil) != (i == 2) {
				t.Errorf("call %d: %v", i, err)
			}
			h := http.Header{}
			quota.Put(h)
			if h.Get("RateLimit") != want || h.Get("RateLimit-Policy") != `"calls";q=10;w=3` {
				t.Errorf("call %d: %v, want %s", i, h, want)
			}
		}
		h := http.Header{}
		(limit.Quota{}).Put(h)
		if len(h) > 0 {
			t.Errorf("without a limit: %v", h)
		}
	})
}

func TestRate_UnmarshalText(t *testing.T) {
	for _, tc := range []struct {
		text string
		want limit.Rate
	}{
		{"50", limit.Rate{PerSecond: 50, Burst: 500}},
		{"50:200", limit.Rate{PerSecond: 50, Burst: 200}},
		{"0.1", limit.Rate{PerSecond: 0.1, Burst: limit.LargeCall}},
		{"none", limit.Unlimited},
	} {
		var got limit.Rate
		if err := got.UnmarshalText([]byte(tc.text)); err != nil || got != tc.want {
			t.Errorf("%q: %v, %v, want %v", tc.text, got, err, tc.want)
		}
	}
	for _, text := range []string{
		"", "x", "0", "-1", "NaN", "Inf", "1e300", "50:", "50:x", "50:0", "50:4", "50:-1", ":5",
		"50:5000000000", "50:5:5", "None",
	} {
		var got limit.Rate
		err := got.UnmarshalText([]byte(text))
		if tidemark.CodeOf(err) != tidemark.Invalid || got != (limit.Rate{}) {
			t.Errorf("%q: %v, %v, want %s", text, got, err, tidemark.Invalid)
		}
	}
}
