package webhook

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

// loopback is what the outlets of most tests may reach.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// request is what a receiver got.
type request struct {
	header http.Header
	body   []byte
	proto  string
}

// receiver is an HTTPS server that notes what it gets.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []request
}

// receive starts a receiver that answers with a handler, or with 204 if that is nil.
func receive(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, req *http.Request) {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Errorf("the receiver cannot read: %v", err)
			}
			r.mu.Lock()
			r.got = append(r.got, request{req.Header.Clone(), body, req.Proto})
			r.mu.Unlock()
			if answer == nil {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			answer(w, req)
		}))
	r.EnableHTTP2 = true
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

// outlet returns an outlet for the receiver, which is inside the allowed prefixes.
func (r *receiver) outlet(t *testing.T, change func(*Config)) *Outlet {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	cfg := Config{
		URL: r.URL, Secrets: []string{NewSecret()}, Roots: roots, Content: "full",
		Allow: loopback,
	}
	if change != nil {
		change(&cfg)
	}
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func events(n int) []outlet.Event {
	all := make([]outlet.Event, n)
	for i := range all {
		m := tidemark.Message{
			ChatID: "c", Sequence: tidemark.Sequence(i + 1), MessageID: "m", SenderID: "alice",
			Content: "a secret <text>", Kind: tidemark.KindMessage,
			Metadata: []byte(`{"secret":1}`), Attachments: []byte(`[{"secret":2}]`),
		}
		all[i] = outlet.Event{
			ID:   outlet.EventID(outlet.MessagePersisted, "c", fmt.Sprint(i)),
			Type: outlet.MessagePersisted, Chat: "c", Time: time.UnixMilli(1_700_000_000_123),
			Data: m.AppendJSON(nil),
		}
	}
	return all
}

// TestDeliver_signature_of_the_published_library: receivers that use it accept what comes, and
// nothing else.
func TestDeliver_signature_of_the_published_library(t *testing.T) {
	r := receive(t, nil)
	secrets := []string{NewSecret(), NewSecret()}
	o := r.outlet(t, func(c *Config) { c.Secrets = secrets })
	if n, refused := o.Deliver(t.Context(), events(1)); n != 1 || refused != nil {
		t.Fatalf("got %d, %+v", n, refused)
	}
	got := r.got[0]
	if got.proto != "HTTP/2.0" {
		t.Errorf("the request came by %s", got.proto)
	}
	for _, secret := range secrets { // While a secret is replaced, either one fits.
		hook, err := standard.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify(got.body, got.header); err != nil {
			t.Errorf("the library refuses the delivery: %v", err)
		}
		changed := bytes.Replace(got.body, []byte("alice"), []byte("mally"), 1)
		if hook.Verify(changed, got.header) == nil {
			t.Error("the library accepts a changed body")
		}
		header := got.header.Clone()
		header.Set("webhook-id", "evt_other")
		if hook.Verify(got.body, header) == nil {
			t.Error("the library accepts another id")
		}
	}
	stranger, err := standard.NewWebhook(NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	if stranger.Verify(got.body, got.header) == nil {
		t.Error("the library accepts another secret")
	}
	var body struct {
		ID, Type, Timestamp string
		Data                map[string]any
	}
	if err := json.Unmarshal(got.body, &body); err != nil {
		t.Fatal(err)
	}
	if body.ID != got.header.Get("webhook-id") || body.Type != "message.persisted" ||
		body.Timestamp != "2023-11-14T22:13:20.123Z" || body.Data["content"] != "a secret <text>" {
		t.Errorf("got the body %s", got.body)
	}
}

func TestDeliver_signature_of_Ed25519(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := receive(t, nil)
	o := r.outlet(t, func(c *Config) {
		c.Secrets = []string{"whsk_" + base64.StdEncoding.EncodeToString(private.Seed())}
	})
	o.Deliver(t.Context(), events(1))
	h := r.got[0].header
	encoded, found := strings.CutPrefix(h.Get("webhook-signature"), "v1a,")
	signature, err := base64.StdEncoding.DecodeString(encoded)
	signed := h.Get("webhook-id") + "." + h.Get("webhook-timestamp") + "." + string(r.got[0].body)
	if !found || err != nil || !ed25519.Verify(public, []byte(signed), signature) {
		t.Errorf("the signature %q does not fit", h.Get("webhook-signature"))
	}
}

func TestDeliver_batch_is_an_array_of_the_single_bodies(t *testing.T) {
	r := receive(t, nil)
	single, batch := r.outlet(t, nil), r.outlet(t, func(c *Config) { c.Batch = true })
	all := events(3)
	for i := range all {
		single.Deliver(t.Context(), all[i:i+1])
	}
	if n, refused := batch.Deliver(t.Context(), all); n != 3 || refused != nil {
		t.Fatalf("got %d, %+v", n, refused)
	}
	batch.Deliver(t.Context(), all)
	var bodies []string
	for _, got := range r.got[:3] {
		bodies = append(bodies, string(got.body))
	}
	if got, want := string(r.got[3].body), "["+strings.Join(bodies, ",")+"]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	id := r.got[3].header.Get("webhook-id")
	if id != r.got[4].header.Get("webhook-id") || !strings.HasPrefix(id, "evt_") {
		t.Errorf("the batch has the ids %s and %s", id, r.got[4].header.Get("webhook-id"))
	}
	if bytes.Contains(r.got[3].body, []byte("secret <")) == false {
		t.Error("the content is missing")
	}
}

func TestDeliver_content_none_webhook_content_none(t *testing.T) {
	r := receive(t, nil)
	for _, batch := range []bool{false, true} {
		o := r.outlet(t, func(c *Config) { c.Content, c.Batch = "none", batch })
		o.Deliver(t.Context(), events(1))
	}
	for _, got := range r.got {
		body := string(got.body)
		if strings.Contains(body, "secret") || !strings.Contains(body, "alice") {
			t.Errorf("got %s", got.body)
		}
	}
}

// TestDeliver_answers: what follows from each answer.
func TestDeliver_answers(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		header string
		events int
		want   outlet.Refusal
		detail string
	}{
		"server error":    {500, "", 1, outlet.Refusal{}, "500 Internal Server Error: oh\\x00 no"},
		"batch refused":   {422, "", 2, outlet.Refusal{Action: outlet.Split}, "422"},
		"event refused":   {422, "", 1, outlet.Refusal{}, "422"},
		"too large":       {413, "", 2, outlet.Refusal{Action: outlet.Split}, "413"},
		"error of batch":  {500, "", 2, outlet.Refusal{}, "500"},
		"gone":            {410, "", 2, outlet.Refusal{Action: outlet.Disable}, "wants no more"},
		"busy":            {429, "7", 2, outlet.Refusal{After: 7 * time.Second}, "429"},
		"away":            {503, "90", 1, outlet.Refusal{After: 90 * time.Second}, "503"},
		"failed, later":   {500, "90", 2, outlet.Refusal{After: 90 * time.Second}, "500"},
		"refused, later":  {422, "90", 1, outlet.Refusal{}, "422"},
		"away for a year": {503, "31536000", 1, outlet.Refusal{After: time.Hour}, "503"},
		"moved":           {301, "", 1, outlet.Refusal{}, "redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "https://example.com/new")
				if tc.header != "" {
					w.Header().Set("Retry-After", tc.header)
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, "oh\x00 no")
			})
			o := r.outlet(t, func(c *Config) { c.Batch = true })
			n, refused := o.Deliver(t.Context(), events(tc.events))
			if n != 0 || refused == nil {
				t.Fatalf("%d events were accepted", n)
			}
			if !strings.Contains(refused.Detail, tc.detail) {
				t.Errorf("got the detail %q, want %q in it", refused.Detail, tc.detail)
			}
			want := tc.want
			want.Status, want.Detail = tc.status, refused.Detail
			if diff := cmp.Diff(want, *refused); diff != "" {
				t.Errorf("the refusal (- want, + got):\n%s", diff)
			}
			if len(r.got) != 1 {
				t.Errorf("%d requests came", len(r.got))
			}
		})
	}
}

// TestDeliver_ends: a receiver that gives no whole answer holds a delivery no longer than it may,
// and an answer that does not end is a success or not by its status.
func TestDeliver_ends(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		hangs  bool
		want   string
	}{
		"no answer": {func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, true, "no answer within"},
		"endless answer": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
		}, false, "502"},
		"endless header": {func(w http.ResponseWriter, _ *http.Request) {
			for n := range 1000 {
				w.Header().Set(fmt.Sprint("X-", n), strings.Repeat("x", 100))
			}
		}, false, "cannot be reached"},
		"closed": {func(w http.ResponseWriter, _ *http.Request) {
			panic(http.ErrAbortHandler)
		}, false, "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receive(t, tc.answer)
			o := r.outlet(t, func(c *Config) {
				if tc.hangs {
					c.Timeout = short
				}
			})
			n, refused := o.Deliver(t.Context(), events(1))
			if n != 0 || refused == nil || !strings.Contains(refused.Detail, tc.want) {
				t.Fatalf("got %d, %+v, want %q", n, refused, tc.want)
			}
			checkDetail(t, refused.Detail)
		})
	}
}

// TestDeliver_webhooks_leave_by_public_addresses: a name may have any address at the time of the
// connection, and a redirect may lead anywhere.
func TestDeliver_webhooks_leave_by_public_addresses(t *testing.T) {
	inside := receive(t, nil)
	_, port, err := net.SplitHostPort(inside.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request came by http to an address that is not allowed")
	}))
	defer plain.Close()
	other := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, tc := range []struct {
		url   string
		allow []netip.Prefix
	}{
		{inside.URL, other},
		{"https://localhost:" + port, other},
		{"https://localhost", nil},
		{"https://169.254.169.254/latest/meta-data", nil},
		{"https://[::1]:" + port, other},
		{"https://[::1]", nil},
		{plain.URL, other},
	} {
		o := inside.outlet(t, func(c *Config) { c.URL, c.Allow = tc.url, tc.allow })
		n, refused := o.Deliver(t.Context(), events(1))
		if n != 0 || refused == nil || !strings.Contains(refused.Detail, "not public") {
			t.Fatalf("%s: got %d, %+v", tc.url, n, refused)
		}
		checkDetail(t, refused.Detail)
	}
	from := receive(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
	})
	if n, _ := from.outlet(t, nil).Deliver(t.Context(), events(1)); n != 0 {
		t.Error("a redirect was followed")
	}
	if len(inside.got) != 0 {
		t.Errorf("%d requests came to a private address", len(inside.got))
	}
}

func TestDeliver_http_inside_allowed_networks(t *testing.T) {
	got := 0
	plain := httptest.NewServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { got++ }))
	defer plain.Close()
	r := receive(t, nil)
	o := r.outlet(t, func(c *Config) { c.URL = plain.URL })
	if n, refused := o.Deliver(t.Context(), events(1)); n != 1 || got != 1 {
		t.Errorf("got %d, %+v", n, refused)
	}
}

func secrets(all ...string) func(*Config) {
	return func(c *Config) { c.Secrets = all }
}

func TestNew_refuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no URL":              {func(c *Config) { c.URL = "" }, "https"},
		"no host":             {func(c *Config) { c.URL = "https:///a" }, "no host"},
		"http":                {func(c *Config) { c.URL = "http://example.com" }, "https"},
		"a password":          {func(c *Config) { c.URL = "https://a:b@example.com" }, "user"},
		"a fragment":          {func(c *Config) { c.URL = "https://example.com/#a" }, "fragment"},
		"another port":        {func(c *Config) { c.URL = "https://example.com:8443" }, "use 443"},
		"no port":             {func(c *Config) { c.URL = "https://example.com:70000" }, "65535"},
		"other content":       {func(c *Config) { c.Content = "None" }, "full or none"},
		"no secret":           {secrets(), "missing"},
		"a short secret":      {secrets("whsec_c2hvcnQ="), "24 to 64"},
		"no base64":           {secrets("whsec_%%%"), "base64"},
		"an unknown secret":   {secrets("secret"), "whsec_"},
		"a short signing key": {secrets("whsk_c2hvcnQ="), "32 bytes"},
	} {
		cfg := Config{URL: "https://example.com/hook", Secrets: []string{NewSecret()}}
		tc.change(&cfg)
		_, err := New(cfg)
		if tidemark.CodeOf(err) != tidemark.Invalid || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// TestNew_bounds: what docs/webhooks.md promises if the configuration says nothing.
func TestNew_bounds(t *testing.T) {
	for batch, want := range map[bool]outlet.Limits{
		false: {Events: 1, Bytes: 256 << 10}, true: {Events: 100, Bytes: 256 << 10},
	} {
		o, err := New(Config{
			URL: "https://example.com", Secrets: []string{NewSecret()}, Batch: batch,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Limits(); got != want || o.timeout != 15*time.Second {
			t.Errorf("got %+v and %v, want %+v and 15 s", got, o.timeout, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "5", "-1", "1e9", "99999999999999999999",
		"Wed, 21 Oct 2026 07:28:00 GMT", "tomorrow"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if d := retryAfter(header, time.Unix(1_790_000_000, 0)); d < 0 || d > maxWait {
			t.Errorf("%q asks for %v", header, d)
		}
	})
}

// FuzzNew_url: whatever the text, an accepted URL is one that a delivery can use, and that no
// operator would have to allow.
func FuzzNew_url(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/a?b=c", "https://example.com:443", "https://example.com:", "http://a",
		"https://a:b@example.com", "https://[::1]:443/", "https://[fe80::1%25eth0]/", "https://a b",
		"https://example.com:8443", "https://example.com/#", "HTTPS://EXAMPLE.COM", "//a",
		"https:a", "https://example.com/\x00", "https://%31%32", "https://example.com:0443",
	} {
		f.Add(seed)
	}
	secrets := []string{NewSecret()}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := New(Config{URL: text, Secrets: secrets})
		if err != nil {
			if tidemark.CodeOf(err) != tidemark.Invalid {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		request, err := http.NewRequest(http.MethodPost, o.url, nil)
		if err != nil {
			t.Fatalf("%q was accepted, and cannot be used: %v", text, err)
		}
		u := request.URL
		if port := u.Port(); u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
			u.Fragment != "" || port != "" && port != "443" {
			t.Errorf("%q was accepted", text)
		}
	})
}
