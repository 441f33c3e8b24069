package transports_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// TestScopes_caller_does_only_what_they_may_with_a_key makes every call with a key of each scope. A
// key does what its scope allows, and gets 403 for all else.
func TestScopes_caller_does_only_what_they_may_with_a_key(t *testing.T) {
	needs := map[string]auth.Scope{
		"createChat": auth.ScopeChats, "updateChat": auth.ScopeChats,
		"addMembers": auth.ScopeChats, "removeMember": auth.ScopeChats,
		"updateMember": auth.ScopeChats,
		"sendMessage":  auth.ScopeSend, "sendTyping": auth.ScopeSend,
		"createToken": auth.ScopeTokens,
	}
	open := []string{"health", "ready", "metrics", "openapi"} // for everybody
	for _, scope := range auth.Scopes {
		t.Run(string(scope), func(t *testing.T) {
			key, keys := transporttest.APIKey(t, scope)
			s := transporttest.New(t, transporttest.Options{Auth: auth.Config{APIKeys: keys}})
			s.Backend = key
			team(s, t)
			requests := good()
			for _, operation := range inOrder(requests) {
				e := requests[operation]
				if slices.Contains(open, operation) {
					continue
				}
				need := needs[operation]
				if need == "" {
					need = auth.ScopeAct
				}
				if e.who = "backend"; need != scope {
					e.status, e.code = http.StatusForbidden, "DENIED"
				}
				e.try(t, s)
			}
			header := http.Header{"Authorization": {"Bearer " + key}, "X-User-ID": {"ann"}}
			c, _, err := websocket.Dial(t.Context(), strings.Replace(s.URL, "http", "ws", 1)+"/ws",
				&websocket.DialOptions{HTTPHeader: header})
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = c.Read(t.Context())
			if opened := err == nil; opened != (scope == auth.ScopeAct) {
				t.Errorf("a WebSocket: %v", err)
			}
			if scope == auth.ScopeAct {
				frame := `{"type":"send_message","request_id":"r","payload":{"chat_id":"team",` +
					`"client_message_id":"w","content":"x"}}`
				if err := c.Write(t.Context(), websocket.MessageText, []byte(frame)); err != nil {
					t.Fatal(err)
				}
				answer := ""
				for !strings.Contains(answer, `"request_id":"r"`) {
					_, raw, err := c.Read(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					answer = string(raw)
				}
				if !strings.Contains(answer, `"DENIED"`) {
					t.Errorf("a frame without its scope: %s", answer)
				}
			}
			_ = c.CloseNow()
		})
	}
}
