package fcm

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/internal/wire"
	"github.com/tidemark-im/tidemark/reach/push/pushtest"
	"github.com/tidemark-im/tidemark/reach/push/pushtest/fakefcm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProvider(t *testing.T) {
	pushtest.Run(t, func(t *testing.T) pushtest.Scene { s, _ := connect(t, time.Now); return s })
}

// connect connects a provider to a fake.
func connect(t *testing.T, clock func() time.Time) (pushtest.Scene, *fakefcm.FCM) {
	t.Helper()
	fake := fakefcm.New(t)
	fake.Device = pushtest.NewDevice(t)
	s := pushtest.Scene{Server: pushtest.Start(t, fake)}
	for _, token := range []string{
		"dGVzdA12345678901234_a:APA91bHun4MxP5egoKMwt2KZFBaFUH", "dGVzdA12345678901234_b",
		"dGVzdA12345678901234_c:APA91bHun4MxP5egoKMwt2KZFBaFUH",
	} {
		fake.Tokens = append(fake.Tokens, token)
		s.Targets = append(s.Targets, push.Target{
			User: "bob", Device: "phone", Address: token, Key: fake.Device.Key(),
			Registered: pushtest.Registered(),
		})
	}
	p, err := New(Config{
		Account: fake.Account(t, s.Server.URL), URL: s.Server.URL, TLS: s.Server.TLS, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Provider = p
	t.Cleanup(p.Close)
	return s, fake
}

func banner(kind push.Kind) push.Notification {
	return push.Notification{
		Kind: kind, Name: "bmFtZQ", Chat: "c", From: 1, To: 1, Body: "Hello", Badge: 3,
		TTL: time.Hour, Urgency: push.High,
	}
}

// TestProvider_collapses_summaries_only: a banner has its tag in the data and no collapse key.
func TestProvider_collapses_summaries_only(t *testing.T) {
	s, _ := connect(t, time.Now)
	for kind, want := range map[push.Kind]string{
		push.Banner: "", push.Clear: "", push.Badge: "", push.Summary: summaryKey,
	} {
		if r := s.Provider.Send(t.Context(), s.Targets[0], banner(kind)); r.Outcome != push.Sent {
			t.Fatalf("%s: the result is %+v; the fake says %q", kind, r, s.Server.Refusals())
		}
		if got := s.Server.Received()[0]; got.Collapse != want || got.Name != "bmFtZQ" {
			t.Errorf("%s has the collapse key %q and the tag %q, want %q and bmFtZQ",
				kind, got.Collapse, got.Name, want)
		}
	}
}

// TestProvider_few_connections: many requests share them.
func TestProvider_few_connections(t *testing.T) {
	s, _ := connect(t, time.Now)
	var sends sync.WaitGroup
	for range push.MaxInFlight {
		sends.Go(func() { s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner)) })
	}
	sends.Wait()
	requests, connections := s.Server.Seen()
	if connections > maxConnections || requests != push.MaxInFlight {
		t.Errorf("%d requests took %d connections, want at most %d",
			requests, connections, maxConnections)
	}
}

// TestForm_one_summary_of_many: FCM drops everything above 100 messages.
func TestForm_one_summary_of_many(t *testing.T) {
	for unconfirmed, want := range map[int]push.Kind{
		0: push.Banner, 79: push.Banner, 80: push.Summary, 100: push.Summary,
	} {
		if got := Form(unconfirmed); got != want {
			t.Errorf("Form(%d) = %s, want %s", unconfirmed, got, want)
		}
	}
}

// TestLogin_once_for_many_and_early: 200 requests log in once, and again five minutes before the
// token ends.
func TestLogin_once_for_many_and_early(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	s, fake := connect(t, func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
	all := func(want int, when string) {
		t.Helper()
		var sends sync.WaitGroup
		for range push.MaxInFlight {
			sends.Go(func() {
				r := s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner))
				if r.Outcome != push.Sent {
					t.Errorf("%s: the result is %+v", when, r)
				}
			})
		}
		sends.Wait()
		s.Server.Do(func() {
			if fake.Logins != want {
				t.Errorf("%s: there were %d logins, want %d", when, fake.Logins, want)
			}
		})
	}
	pass := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
		s.Server.Do(func() { fake.Ahead += d })
	}
	all(1, "at first")
	pass(50 * time.Minute)
	all(1, "after 50 minutes")
	pass(6 * time.Minute)
	all(2, "after 56 minutes")
	pass(50 * time.Minute)
	all(2, "after 106 minutes")
}

// TestLogin_refused_says_what_to_do: it is tried again after a second, and not for each of many
// notifications.
func TestLogin_refused_says_what_to_do(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	s, fake := connect(t, func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
	for name, tc := range map[string]struct {
		answer *pushtest.Refusal
		want   push.Outcome
	}{
		"deleted key": {pushtest.Problem(400, `{"error":"invalid_grant"}`), push.Refused},
		"failure":     {pushtest.Problem(503, ``), push.Retry},
		"no token":    {pushtest.Problem(200, `{}`), push.Refused},
		"no JSON":     {pushtest.Problem(200, `hello`), push.Refused},
	} {
		before := 0
		s.Server.Do(func() { fake.Refusing, before = tc.answer, fake.Logins })
		for range 10 {
			r := s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner))
			if r.Outcome != tc.want || r.Detail == "" {
				t.Errorf("%s: the result is %+v, want %s", name, r, tc.want)
			}
		}
		s.Server.Do(func() {
			if got := fake.Logins - before; got != 1 {
				t.Errorf("%s: %d logins for ten notifications, want 1", name, got)
			}
		})
		mu.Lock()
		now = now.Add(time.Second)
		mu.Unlock()
	}
	s.Server.Do(func() { fake.Refusing = nil })
	r := s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner))
	if r.Outcome != push.Sent {
		t.Errorf("afterwards the result is %+v", r)
	}
}

// TestJudge_configuration: what an operator must do is said.
func TestJudge_configuration(t *testing.T) {
	s, _ := connect(t, time.Now)
	for name, tc := range map[string]struct {
		refusal *pushtest.Refusal
		want    string
	}{
		"permission": {pushtest.Problem(403,
			`{"error":{"status":"PERMISSION_DENIED","message":"x"}}`), "role"},
		"project": {pushtest.Problem(404, `{"error":{"status":"NOT_FOUND"}}`), "does not exist"},
		"token": {pushtest.Problem(400, `{"error":{"status":"INVALID_ARGUMENT"}}`),
			"the token that FCM gave it"},
		"other": {pushtest.Problem(418, `tea`), "report"},
	} {
		r := s.Provider.(*Provider).judge(answerOf(tc.refusal))
		if r.Outcome != push.Refused || !strings.Contains(r.Detail, tc.want) {
			t.Errorf("%s: the result is %+v, want Refused with %q", name, r, tc.want)
		}
	}
	if _, err := New(Config{Account: []byte("{}")}); err == nil ||
		!strings.Contains(err.Error(), "Service accounts") {
		t.Errorf("New without an account = %v", err)
	}
}

// TestJudge_quota_waits_a_minute: also if FCM says less, or nothing.
func TestJudge_quota_waits_a_minute(t *testing.T) {
	s, _ := connect(t, time.Now)
	for after, want := range map[string]time.Duration{
		"": time.Minute, "1": time.Minute, "90": 90 * time.Second,
	} {
		a := answerOf(pushtest.Problem(429, `{"error":{"status":"RESOURCE_EXHAUSTED"}}`))
		a.Header.Set("Retry-After", after)
		if r := s.Provider.(*Provider).judge(a); r.Outcome != push.Retry || r.Wait != want {
			t.Errorf("Retry-After %q: the result is %+v, want a wait of %v", after, r, want)
		}
	}
}

func answerOf(r *pushtest.Refusal) wire.Answer {
	return wire.Answer{Status: r.Status, Header: make(http.Header), Body: []byte(r.Body)}
}
