package wire

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                              0,
		"7":                             7 * time.Second,
		"-7":                            0,
		"soon":                          0,
		"86400":                         MaxWait,
		"99999999999999":                MaxWait,
		"Fri, 27 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Fri, 27 Nov 2026 11:00:30 GMT": 0,
		"Sat, 28 Nov 2026 12:00:30 GMT": MaxWait,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("RetryAfter(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestBusy_waits_at_least(t *testing.T) {
	answer := Answer{Status: 429, Header: http.Header{"Retry-After": {"5"}}}
	if got := Busy(answer, time.Now(), time.Minute).Wait; got != time.Minute {
		t.Errorf("the wait is %v, want a minute", got)
	}
	if got := Busy(answer, time.Now(), time.Second).Wait; got != 5*time.Second {
		t.Errorf("the wait is %v, want 5 s", got)
	}
}

// TestDo_another_protocol: a 101 makes the connection the body. No context ends its reads.
func TestDo_another_protocol(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n"+
			"Connection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, c) // until the client closes it
	}))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := Do(server.Client(), request)
	if err != nil || answer.Status != http.StatusSwitchingProtocols || len(answer.Body) > 0 {
		t.Errorf("got %+v, %v, want the status 101 only", answer, err)
	}
}

// TestLook says why a server cannot be used.
func TestLook(t *testing.T) {
	late := false
	start := func(http2 bool) *httptest.Server {
		server := httptest.NewUnstartedServer(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				if late {
					w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
				}
				w.WriteHeader(http.StatusNotFound)
			}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)
		return server
	}
	new, old := start(true), start(false)
	look := func(server *httptest.Server, want string) {
		t.Helper()
		err := Look(t.Context(), server.Client(), server.URL)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	look(new, "")
	look(old, "HTTP/2 is needed")
	late = true
	look(new, "the clock of this machine differs by -1h0m")
	new.Close()
	look(new, "cannot be reached")
}
