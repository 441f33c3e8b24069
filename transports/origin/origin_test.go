package origin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/origin"
)

func policy(t *testing.T, loopback bool, allow ...string) *origin.Policy {
	t.Helper()
	p, err := origin.New(origin.Config{Allow: allow, Loopback: loopback})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func request(method, host, from string) *http.Request {
	r := httptest.NewRequest(method, "/api/v1/chats", nil)
	r.Host = host
	if from != "" {
		r.Header.Set("Origin", from)
	}
	return r
}

// Each row: the policy, the host and origin of the request, whether Check allows it, and the
// Access-Control-Allow-Origin of the answer.
func TestPolicy_who_may(t *testing.T) {
	const app, evil = "https://app.example.com", "https://evil.example.com"
	list, all := policy(t, false, app, "capacitor://localhost"), policy(t, false, "*")
	none, dev, devList := (*origin.Policy)(nil), policy(t, true), policy(t, true, app)
	for _, tt := range []struct {
		what   string
		p      *origin.Policy
		host   string
		origin string
		may    bool
		cors   string
	}{
		{"no page", list, "tide.example.com", "", true, ""},
		{"a page of the list", list, "tide.example.com", app, true, app},
		{"an app of the list", list, "tide.example.com", "capacitor://localhost", true,
			"capacitor://localhost"},
		{"a page of another port", list, "tide.example.com", app + ":8443", false, ""},
		{"a page of another scheme", list, "tide.example.com", "http://app.example.com", false, ""},
		{"a page below", list, "tide.example.com", "https://x.app.example.com", false, ""},
		{"a page beside", list, "tide.example.com", "https://app.example.com.evil.org", false, ""},
		{"a foreign page", list, "tide.example.com", evil, false, ""},
		{"a page without an origin", list, "tide.example.com", "null", false, ""},
		{"its own page", list, "tide.example.com", "https://tide.example.com", true, ""},
		{"its own page, with a port", list, "tide.example.com:8080", "http://TIDE.example.com:8080",
			true, ""},
		{"a page of another port of its host", list, "tide.example.com:8080",
			"http://tide.example.com:8081", false, ""},
		{"null where there is no host", list, "", "null", false, ""},
		{"a foreign page, without a list", none, "tide.example.com", evil, false, ""},
		{"its own page, without a list", none, "tide.example.com", "https://tide.example.com", true,
			""},
		{"any page", all, "tide.example.com", evil, true, "*"},
		{"any page without an origin", all, "tide.example.com", "null", true, "*"},

		{"dev: no page", dev, "127.0.0.1:8080", "", true, ""},
		{"dev: its own page", dev, "localhost:8080", "http://localhost:8080", true,
			"http://localhost:8080"},
		{"dev: a page of another port", dev, "localhost:8080", "http://127.0.0.1:5173", true,
			"http://127.0.0.1:5173"},
		{"dev: a page of IPv6", dev, "[::1]:8080", "http://[::1]:5173", true, "http://[::1]:5173"},
		{"dev: a foreign page", dev, "localhost:8080", evil, false, ""},
		{"dev: a page without an origin", dev, "localhost:8080", "null", false, ""},
		{"dev: a name that begins so", dev, "localhost:8080", "http://localhost.evil.org", false,
			""},
		{"dev: a foreign name of the server", dev, "rebound.evil.org:8080", "", false, ""},
		{"dev: a foreign name, and a page of it", dev, "rebound.evil.org:8080",
			"http://rebound.evil.org:8080", false, ""},
		{"dev: an address of the network", dev, "192.0.2.1:8080", "", false, ""},
		{"dev: no name at all", dev, "", "", false, ""},
		{"dev: a page of the list", devList, "localhost", app, true, app},
	} {
		err := tt.p.Check(request("GET", tt.host, tt.origin))
		if (err == nil) != tt.may || err != nil && tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("%s: Check = %v, want it allowed: %v", tt.what, err, tt.may)
		}
		rec := httptest.NewRecorder()
		called := false
		guarded := tt.p.Middleware(func(echo.Context) error { called = true; return nil })
		err = guarded(echo.New().NewContext(request("GET", tt.host, tt.origin), rec))
		if refused := !tt.may && strings.HasPrefix(tt.what, "dev:"); called == refused ||
			(err != nil) != refused {
			t.Errorf("%s: called %v, %v", tt.what, called, err)
		}
		h := rec.Header()
		if got := h.Get("Access-Control-Allow-Origin"); got != tt.cors ||
			h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: the answer allows %q, want %q: %v", tt.what, got, tt.cors, h)
		}
		if varies := tt.p != none && tt.p != all; (h.Get("Vary") == "Origin") != varies {
			t.Errorf("%s: Vary %q", tt.what, h.Get("Vary"))
		}
	}
}

func TestNew_takes_origins_only(t *testing.T) {
	for _, bad := range []string{
		"", "null", "app.example.com", "https://app.example.com/", "https://App.example.com",
		"HTTPS://app.example.com", "https://a@app.example.com",
		"https://app.example.com?x", "https://app.example.com:443", "http://app.example.com:80",
		"https://", "//app.example.com", "https://%zz",
		"https://*.example.com", "https://ümlaut.example.com",
		"https://a.example.com,https://b.example.com",
	} {
		_, err := origin.New(origin.Config{Allow: []string{bad}})
		if tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	policy(t, false, "https://app.example.com", "http://localhost:5173",
		"https://app.example.com:80", "capacitor://localhost", "https://[2001:db8::1]:8443", "*")
}

func TestCheck_refuses_what_a_foreign_page_loads(t *testing.T) {
	dev, all := policy(t, true), policy(t, true, "*")
	for _, tt := range []struct {
		what, path, site string
		p                *origin.Policy
		may              bool
	}{
		{"an image of a foreign page", "/api/v1/poll?ticket=dev:ann", "cross-site", dev, false},
		{"an image of a page of another port", "/api/v1/poll", "same-site", dev, false},
		{"a link to the page", "/", "cross-site", dev, true},
		{"the page's own request", "/api/v1/poll", "same-origin", dev, true},
		{"what the user typed", "/openapi.yaml", "none", dev, true},
		{"a program", "/api/v1/poll", "", dev, true},
		{"a page, if all may", "/api/v1/poll", "cross-site", all, true},
		{"a page, beside credentials that nobody guesses", "/api/v1/poll", "cross-site",
			policy(t, false), true},
	} {
		r := httptest.NewRequest("GET", tt.path, nil)
		r.Host = "localhost:8080"
		if tt.site != "" {
			r.Header.Set("Sec-Fetch-Site", tt.site)
		}
		if err := tt.p.Check(r); (err == nil) != tt.may {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}
