package transports_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/transports"
	auditcall "github.com/tidemark-im/tidemark/transports/audit"
	"github.com/tidemark-im/tidemark/transports/auth"
	erasures "github.com/tidemark-im/tidemark/transports/erasure"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// erasuresOf returns the calls that erase and export users, and that of the audit log.
func erasuresOf(
	t testing.TB, store storage.Store, core *server.Server, auth *auth.Authenticator,
	limit *limit.Limiter,
) transports.Mount {
	t.Helper()
	register, err := erasure.OpenRegister(t.Context(), store, nil, slog.New(slog.DiscardHandler),
		time.Now)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := audit.New(audit.Config{
		Store: store, Days: 1, Logger: slog.New(slog.DiscardHandler), Clock: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	calls := erasures.New(erasures.Config{
		Server: core, Register: register, Auth: auth, Limit: limit, Audit: entries,
		Exporter: &erasure.Exporter{Store: store, Clock: time.Now},
	})
	listed := auditcall.New(auditcall.Config{
		Server: core, Log: entries, Auth: auth, Limit: limit,
	})
	return func(e *echo.Echo, base string) {
		calls.Mount(e, base)
		listed.Mount(e, base)
	}
}

// TestErasure_erased_nowhere_in_requests: who was erased is refused, and so is everybody who names
// them.
func TestErasure_erased_nowhere_in_requests(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	team(s, t)
	group := `{"type":"group","client_chat_id":"k","member_ids":["yan"]}`
	send := `{"client_message_id":"c9","content":"x","mentions":{"user_ids":["yan"]}}`
	for _, e := range []exchange{
		{who: "yan", method: "GET", path: "/chats"},
		{who: "yan", method: "POST", path: "/tickets"},
		{who: "yan", method: "GET", path: "/poll?wait_seconds=0"},
		{who: "key", method: "POST", path: "/tokens", body: `{"user_id":"yan"}`},
		{who: "ann", method: "POST", path: "/chats/team/members", body: `{"user_ids":["yan"]}`},
		{who: "ann", method: "POST", path: "/chats", body: group},
		{who: "key", method: "POST", path: "/chats", body: group},
		{who: "ann", method: "POST", path: "/chats",
			body: `{"type":"direct","member_ids":["yan"]}`},
		{who: "ann", method: "POST", path: "/chats/team/messages", body: send},
		{who: "ann", method: "POST", path: "/users/bob/erasure"},
		{who: "ann", method: "GET", path: "/users/ann/export"},
	} {
		e.status, e.code = http.StatusForbidden, "DENIED"
		detail := problemOf(t, e.try(t, s)).Detail
		if strings.Contains(e.path+e.body, "yan") && !strings.Contains(detail, "was erased") {
			t.Errorf("%s %s says %q", e.method, e.path, detail)
		}
	}
	key := exchange{who: "ann", method: "GET", path: "/chats", status: http.StatusForbidden}
	r := key.request(t, s)
	r.Header.Set("Authorization", "Bearer "+s.Backend)
	r.Header.Set("X-User-ID", "yan")
	res, err := s.Transport(t).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a backend that calls for them: %d, want 403", res.StatusCode)
	}
	exchange{who: "key", method: "GET", path: "/users/yan/erasure", status: 200}.try(t, s)
}
