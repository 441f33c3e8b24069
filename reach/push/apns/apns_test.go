package apns

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/pushtest"
	"github.com/tidemark-im/tidemark/reach/push/pushtest/fakeapns"
)

const app = "im.tidemark.test"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProvider(t *testing.T) {
	pushtest.Run(t, func(t *testing.T) pushtest.Scene { s, _ := connect(t); return s })
}

// connect connects a provider to a fake.
func connect(t *testing.T) (pushtest.Scene, Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeapns.APNs{
		Key: &key.PublicKey, KeyID: "ABC123DEFG", TeamID: "DEF123GHIJ", Topic: app,
		Device: pushtest.NewDevice(t),
	}
	s := pushtest.Scene{Server: pushtest.Start(t, fake)}
	for _, digit := range []string{"a", "b", "c"} {
		token := strings.Repeat(digit, 64)
		fake.Tokens = append(fake.Tokens, token)
		s.Targets = append(s.Targets, push.Target{
			User: "bob", Device: "phone", App: app, Address: token, Key: fake.Device.Key(),
			Registered: pushtest.Registered(),
		})
	}
	config := Config{
		Key: key, KeyID: fake.KeyID, TeamID: fake.TeamID, Apps: []string{app},
		URL: s.Server.URL, TLS: s.Server.TLS,
	}
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Provider = p
	t.Cleanup(p.Close)
	return s, config
}

// TestProvider_one_connection: all requests of a node share one, whatever Apple allows at a time.
func TestProvider_one_connection(t *testing.T) {
	s, _ := connect(t)
	done := make(chan push.Outcome)
	for range push.MaxInFlight {
		go func() {
			done <- s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner)).Outcome
		}()
	}
	for range push.MaxInFlight {
		if got := <-done; got != push.Sent {
			t.Fatalf("the outcome is %s", got)
		}
	}
	if requests, connections := s.Server.Seen(); connections != 1 || requests != push.MaxInFlight {
		t.Errorf("%d requests took %d connections, want one", requests, connections)
	}
}

func banner(kind push.Kind) push.Notification {
	return push.Notification{
		Kind: kind, Name: "bmFtZQ", Chat: "c", From: 1, To: 1, Body: "Hello", Badge: 3,
		TTL: time.Hour, Urgency: push.High,
	}
}

// TestProvider_nodes_share_the_token: a second node with the same key sends the same bytes, so
// Apple sees no renewal. The fake would answer 429.
func TestProvider_nodes_share_the_token(t *testing.T) {
	s, config := connect(t)
	other, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []push.Provider{s.Provider, other, s.Provider, other} {
		if r := p.Send(t.Context(), s.Targets[0], banner(push.Banner)); r.Outcome != push.Sent {
			t.Fatalf("the result is %+v; the fake says %q", r, s.Server.Refusals())
		}
	}
}

// TestLogin_same_bytes_in_each_step: a token changes every 40 minutes, and is never older.
func TestLogin_same_bytes_in_each_step(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC).Truncate(step)
	one := login{key: key, keyID: "K", teamID: "T"}
	tokens := make(map[string]bool)
	for at := time.Duration(0); at < 4*step; at += 7 * time.Minute {
		now := start.Add(at)
		fresh := login{key: key, keyID: "K", teamID: "T"} // a node that has just started
		token, err := one.current(now)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := fresh.current(now); err != nil || other != token {
			t.Errorf("after %v two nodes have different tokens: %v", at, err)
		}
		if age := now.Unix() - one.issued; age < 0 || age > int64(step/time.Second) {
			t.Errorf("after %v the token is %d s old", at, age)
		}
		tokens[token] = true
	}
	if len(tokens) != 4 {
		t.Errorf("there were %d tokens in four steps, want 4", len(tokens))
	}
}

// TestLogin_renews_once: a refused token has one successor, for all requests that were refused.
func TestLogin_renews_once(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC).Truncate(step)
	l := login{key: key, keyID: "K", teamID: "T"}
	old, err := l.current(now)
	if err != nil {
		t.Fatal(err)
	}
	apple := now.Add(65 * time.Minute)
	renewed, ok, err := l.renew(old, now, apple)
	if err != nil || !ok || renewed == old {
		t.Fatalf("renew = %t, %v", ok, err)
	}
	if again, ok, err := l.renew(old, now, apple); again != renewed || !ok || err != nil {
		t.Errorf("a second request gets another token: %t, %v", ok, err)
	}
	if got, err := l.current(now.Add(time.Minute)); got != renewed || err != nil {
		t.Errorf("the next request gets another token: %v", err)
	}
	if _, ok, _ := l.renew(renewed, now, apple.Add(time.Minute)); ok {
		t.Error("a new token that is refused has a successor")
	}
	if got, err := l.current(now.Add(step)); got == renewed || err != nil {
		t.Errorf("the token stays after its step: %v", err)
	}
}

// TestSilence_is_carried: APNs carries the badge at once, and a Clear in the background.
func TestSilence_is_carried(t *testing.T) {
	s, _ := connect(t)
	for _, kind := range []push.Kind{push.Badge, push.Clear} {
		r := s.Provider.Send(t.Context(), s.Targets[0], banner(kind))
		got := s.Server.Received()
		if r.Outcome != push.Sent || len(got) != 1 || got[0].Kind != kind || got[0].Badge != 3 ||
			got[0].Urgent != (kind == push.Badge) {
			t.Errorf("%s: the result is %+v, and %+v arrived", kind, r, got)
		}
	}
}

// TestBusy_for_one_device: only a limit of one device token leaves the others alone.
func TestBusy_for_one_device(t *testing.T) {
	s, _ := connect(t)
	for trouble, want := range map[pushtest.Trouble]bool{
		pushtest.Busy: true, pushtest.Failed: false, pushtest.Unavailable: false,
	} {
		s.Server.Script(trouble)
		r := s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner))
		if r.Outcome != push.Retry || r.OneTarget != want {
			t.Errorf("%s: the result is %+v, want it for one target: %t", trouble, r, want)
		}
	}
}

func TestClears_two_an_hour(t *testing.T) {
	now := time.Now()
	both, badge := []push.Kind{push.Badge, push.Clear}, []push.Kind{push.Badge}
	for name, tc := range map[string]struct {
		ago  []time.Duration
		want []push.Kind
	}{
		"none":             {nil, both},
		"one":              {[]time.Duration{time.Minute}, both},
		"two":              {[]time.Duration{time.Minute, 59 * time.Minute}, badge},
		"one and an older": {[]time.Duration{time.Minute, time.Hour}, both},
	} {
		var recent []time.Time
		for _, ago := range tc.ago {
			recent = append(recent, now.Add(-ago))
		}
		if diff := cmp.Diff(tc.want, Clears(recent, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSend_says_what_is_misconfigured, before a request.
func TestSend_says_what_is_misconfigured(t *testing.T) {
	s, _ := connect(t)
	for name, tc := range map[string]struct {
		change func(*push.Target)
		want   string
	}{
		"app":         {func(to *push.Target) { to.App = "im.other" }, "add its bundle id"},
		"environment": {func(to *push.Target) { to.Environment = "beta" }, "sandbox"},
	} {
		to := s.Targets[0]
		tc.change(&to)
		r := s.Provider.Send(t.Context(), to, banner(push.Banner))
		if r.Outcome != push.Refused || !strings.Contains(r.Detail, tc.want) {
			t.Errorf("%s: the result is %+v, want Refused with %q", name, r, tc.want)
		}
	}
	_, err := New(Config{})
	if err == nil || !strings.Contains(err.Error(), "developer.apple.com") {
		t.Errorf("New without a key = %v", err)
	}
}

// TestProvider_replaces_by_name: the collapse id of a banner is its name.
func TestProvider_replaces_by_name(t *testing.T) {
	s, _ := connect(t)
	for kind, want := range map[push.Kind]string{
		push.Banner: "bmFtZQ", push.Summary: "bmFtZQ", push.Badge: "", push.Clear: "",
	} {
		r := s.Provider.Send(t.Context(), s.Targets[0], banner(kind))
		got := s.Server.Received()
		if r.Outcome != push.Sent || len(got) != 1 || got[0].Collapse != want {
			t.Errorf("%s: the result is %+v, and %+v arrived; want the collapse id %q",
				kind, r, got, want)
		}
	}
}

// TestGone_has_a_time: Apple says since when a token is dead, and an app that was installed again
// since keeps its registration.
func TestGone_has_a_time(t *testing.T) {
	s, _ := connect(t)
	s.Server.Script(pushtest.Gone)
	r := s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner))
	if ago := time.Since(r.DeadSince); ago < 59*time.Minute || ago > 61*time.Minute {
		t.Errorf("the result is %+v, want a death an hour ago", r)
	}
	again := s.Targets[0]
	again.Registered = time.Now().Add(-time.Minute)
	if !r.Drops(s.Targets[0]) || r.Drops(again) {
		t.Errorf("it drops the old registration: %t, and the new one: %t; want only the old one",
			r.Drops(s.Targets[0]), r.Drops(again))
	}
}
