package webpush

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/internal/wire"
	"github.com/tidemark-im/tidemark/reach/push/pushtest"
	"github.com/tidemark-im/tidemark/reach/push/pushtest/fakewebpush"
)

const subject = "mailto:operator@tidemark.im"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProvider(t *testing.T) {
	pushtest.Run(t, func(t *testing.T) pushtest.Scene { s, _ := connect(t, newKey(t)); return s })
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var local = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// connect connects a provider to a fake. Without a key it is UnifiedPush.
func connect(t *testing.T, key *ecdsa.PrivateKey) (pushtest.Scene, *fakewebpush.WebPush) {
	t.Helper()
	fake := &fakewebpush.WebPush{Device: pushtest.NewDevice(t)}
	if key != nil {
		fake.Key = &key.PublicKey
	}
	s := pushtest.Scene{Server: pushtest.Start(t, fake)}
	fake.Origin = s.Server.URL
	for _, path := range []string{"/push/a", "/push/b", "/push/c"} {
		fake.Paths = append(fake.Paths, path)
		s.Targets = append(s.Targets, push.Target{
			User: "bob", Device: "browser", Address: s.Server.URL + path, Key: fake.Device.Key(),
			Registered: pushtest.Registered(),
		})
	}
	p, err := New(Config{Key: key, Subject: subject, Allowed: local, TLS: s.Server.TLS})
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

// TestUnifiedPush_needs_no_key: a server without a VAPID key sends no Authorization.
func TestUnifiedPush_needs_no_key(t *testing.T) {
	s, _ := connect(t, nil)
	r := s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner))
	if r.Outcome != push.Sent {
		t.Fatalf("the result is %+v; the fake says %q", r, s.Server.Refusals())
	}
}

// TestSilence_is_withheld: browsers take the permission away after notifications without a banner.
func TestSilence_is_withheld(t *testing.T) {
	s, _ := connect(t, newKey(t))
	for _, kind := range []push.Kind{push.Badge, push.Clear} {
		r := s.Provider.Send(t.Context(), s.Targets[0], banner(kind))
		if r.Outcome != push.Withheld {
			t.Errorf("%s: the result is %+v, want Withheld", kind, r)
		}
	}
	if requests, _ := s.Server.Seen(); requests != 0 {
		t.Errorf("%d requests were made", requests)
	}
}

// TestTopic_replaces: the topic of a banner is its name.
func TestTopic_replaces(t *testing.T) {
	s, _ := connect(t, newKey(t))
	s.Provider.Send(t.Context(), s.Targets[0], banner(push.Banner))
	if got := s.Server.Received(); len(got) != 1 || got[0].Collapse != "bmFtZQ" {
		t.Errorf("%+v arrived, want the topic bmFtZQ", got)
	}
}

// TestEndpoint_of_a_private_network: users name endpoints, so a private address gets no request,
// nor does a host that is not listed.
func TestEndpoint_of_a_private_network(t *testing.T) {
	s, _ := connect(t, nil)
	address := s.Targets[0].Address
	byName := strings.Replace(address, "127.0.0.1", "localhost", 1)
	plain := strings.Replace(address, "https", "http", 1)
	listed := Config{Allowed: local, Hosts: []string{"push.example"}}
	for name, tc := range map[string]struct {
		config  Config
		address string
		want    string
	}{
		"loopback":  {Config{}, address, "allow its network"},
		"by name":   {Config{}, byName, "allow its network"},
		"metadata":  {Config{}, "https://169.254.169.254/latest", "allow its network"},
		"no TLS":    {Config{Allowed: local}, plain, "https://"},
		"not there": {listed, address, "ask its operator"},
	} {
		tc.config.TLS = s.Server.TLS
		p, err := New(tc.config)
		if err != nil {
			t.Fatal(err)
		}
		to := s.Targets[0]
		to.Address = tc.address
		r := p.Send(t.Context(), to, banner(push.Banner))
		if r.Outcome != push.Refused || !strings.Contains(r.Detail, tc.want) {
			t.Errorf("%s: the result is %+v, want Refused with %q", name, r, tc.want)
		}
	}
	if requests, connections := s.Server.Seen(); requests+connections != 0 {
		t.Errorf("%d requests over %d connections were made", requests, connections)
	}
}

// TestLane_is_the_host, so that one push service that fails stops no other.
func TestLane_is_the_host(t *testing.T) {
	s, _ := connect(t, nil)
	for address, want := range map[string]string{
		"https://push.example/a":      "push.example",
		"https://push.example:8443/a": "push.example:8443",
		"::":                          "unreadable",
	} {
		if got := s.Provider.Lane(push.Target{Address: address}); got != want {
			t.Errorf("Lane(%s) = %q, want %q", address, got, want)
		}
	}
}

// TestVAPID_token_is_kept_for_twelve_hours, for each origin, and at most maxTokens of them.
func TestVAPID_token_is_kept_for_twelve_hours(t *testing.T) {
	v, err := newVAPID(newKey(t), subject)
	if err != nil {
		t.Fatal(err)
	}
	start, never := time.Now(), time.Time{}
	get := func(origin string, now, after time.Time) string {
		t.Helper()
		header, err := v.authorization(origin, now, after)
		if err != nil {
			t.Fatal(err)
		}
		return header
	}
	first := get("https://a.example", start, never)
	if get("https://a.example", start.Add(tokenAge-1), never) != first {
		t.Error("the token changes before twelve hours")
	}
	if get("https://b.example", start, never) == first {
		t.Error("two origins have one token")
	}
	second := get("https://a.example", start.Add(tokenAge), never)
	if second == first {
		t.Error("the token is kept for more than twelve hours")
	}
	if get("https://a.example", start.Add(tokenAge+1), start.Add(tokenAge+1)) == second {
		t.Error("a refused token is not renewed")
	}
	for i := range 2 * maxTokens {
		get("https://"+strings.Repeat("x", i%60+1)+string(rune('a'+i/60))+".example", start, never)
	}
	if len(v.tokens) > maxTokens {
		t.Errorf("%d tokens are kept, want at most %d", len(v.tokens), maxTokens)
	}
}

func TestSubject_is_real(t *testing.T) {
	for subject, want := range map[string]bool{
		"mailto:operator@tidemark.im": true, "https://tidemark.im/contact": true,
		"": false, "operator@tidemark.im": false, "mailto:": false, "mailto:operator": false,
		"mailto:@tidemark.im": false, "mailto:a@localhost": false, "mailto:a@example.com": false,
		"mailto:a@mail.example.org": false, "https://localhost": false, "https://": false,
		"http://tidemark.im": false, "mailto: <a@tidemark.im>": false, "mailto:a@host.local": false,
		"https://server.invalid": false,
	} {
		if err := checkSubject(subject); (err == nil) != want {
			t.Errorf("checkSubject(%q) = %v, want it right: %t", subject, err, want)
		}
	}
}

// TestJudge_every_status, also those that RFC 8030 does not name.
func TestJudge_every_status(t *testing.T) {
	s, _ := connect(t, nil)
	for status, want := range map[int]push.Outcome{
		200: push.Sent, 201: push.Sent, 202: push.Sent, 204: push.Sent,
		301: push.Refused, 302: push.Refused, 307: push.Refused, 400: push.Refused,
		401: push.Refused, 403: push.Refused, 404: push.DropTarget, 405: push.Refused,
		410: push.DropTarget, 413: push.Refused, 415: push.Refused, 429: push.Retry,
		500: push.Retry, 502: push.Retry, 503: push.Retry, 504: push.Retry,
	} {
		got := s.Provider.(*Provider).judge(wire.Answer{Status: status, Header: http.Header{}})
		if got.Outcome != want || want != push.Sent && got.Detail == "" {
			t.Errorf("%d is %+v, want %s", status, got, want)
		}
	}
}
