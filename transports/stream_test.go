package transports_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/rest"
	"github.com/tidemark-im/tidemark/transports/sse"
)

// startSSE starts an api with the adapter of /events, which shares its authentication.
func startSSE(t *testing.T) *api {
	t.Helper()
	o := dev()
	var adapter *sse.Adapter
	o.adapters = func(a *api, auth *auth.Authenticator) {
		adapter = sse.New(sse.Config{Server: a.core, Auth: auth})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
			defer cancel()
			if err := adapter.Shutdown(ctx); err != nil {
				t.Errorf("stopping SSE: %v", err)
			}
		})
	}
	o.events = func(c echo.Context) error { return adapter.Handle(c) }
	return start(t, o)
}

// firstPosition reads an event stream up to its first position.
func firstPosition(t *testing.T, res *http.Response) string {
	t.Helper()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if position, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			return position
		}
	}
	t.Fatalf("the stream ended without an event: %v", lines.Err())
	return ""
}

func TestTicket_same_url_reconnects_with_its_position_only(t *testing.T) {
	a := startSSE(t)
	ticket := get[rest.Ticket](a.as("ann"), 201, "POST", "/tickets", "").Ticket
	other := get[rest.Ticket](a.as("ann"), 201, "POST", "/tickets", "").Ticket
	url := "/api/v1/events?ticket="

	first := fetch(t, a, "GET", url+ticket, nil)
	if first.StatusCode != 200 {
		t.Fatalf("opening: %d", first.StatusCode)
	}
	position := firstPosition(t, first)
	if r := (as{api: a}).do("GET", "/events?ticket="+ticket, ""); r.StatusCode != 401 {
		t.Errorf("a second session: %d %s", r.StatusCode, r.body)
	}
	again := fetch(t, a, "GET", url+ticket, map[string]string{"Last-Event-ID": position})
	if again.StatusCode != 200 {
		t.Fatalf("resuming: %d", again.StatusCode)
	}
	session, _, _ := strings.Cut(position, ".")
	if got := firstPosition(t, again); !strings.HasPrefix(got, session+".") {
		t.Errorf("resumed %s, and got %s", position, got)
	}
	elsewhere := fetch(t, a, "GET", url+other, nil)
	foreign := firstPosition(t, elsewhere)
	with := (as{api: a}).with("Last-Event-ID", foreign)
	if r := with.do("GET", "/events?ticket="+ticket, ""); r.StatusCode != 401 {
		t.Errorf("the position of another session: %d %s", r.StatusCode, r.body)
	}
}
