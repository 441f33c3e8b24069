package transports_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// public returns the operations that need no credentials.
func public() []string {
	return []string{"health", "ready", "metrics", "openapi", "acknowledgePush"}
}

// needNoUser returns the operations that an API key may call without a user, by the contract.
func needNoUser(contract *apitest.Contract) map[string]bool {
	userless := make(map[string]bool)
	for _, call := range contract.Calls() {
		if call.Extensions["x-user"] == "optional" {
			userless[call.OperationID] = true
		}
	}
	return userless
}

// scopesOf returns the scopes of which a key needs one to call for a user.
func scopesOf(operation string) []auth.Scope {
	switch operation {
	case "createChat", "updateChat", "deleteChat", "addMembers", "removeMember", "updateMember",
		"listBans", "putBan", "removeBan":
		return []auth.Scope{auth.ScopeChats}
	case "sendMessage", "sendTyping", "createAttachment":
		return []auth.Scope{auth.ScopeSend}
	case "createToken":
		return []auth.Scope{auth.ScopeTokens}
	case "getStats":
		return []auth.Scope{auth.ScopeStats}
	case "getSuspension", "putSuspension", "deleteSuspension", "signOutUser", "signOut":
		return []auth.Scope{auth.ScopeModerate}
	case "listOutlets", "createOutlet", "getOutlet", "updateOutlet", "deleteOutlet",
		"createOutletSecret", "testOutlet", "replayOutlet", "listOutletFailures",
		"listParkedEvents", "resendParkedEvent":
		return []auth.Scope{auth.ScopeAdmin}
	case "listAudit":
		return []auth.Scope{auth.ScopeAudit}
	case "startErasure", "getErasure":
		return []auth.Scope{auth.ScopeErase}
	case "exportUser":
		return []auth.Scope{auth.ScopeExport, auth.ScopeErase}
	case "listSessions", "listPending", "listDeliveryStates":
		return []auth.Scope{auth.ScopeAct, auth.ScopeStats}
	}
	return []auth.Scope{auth.ScopeAct}
}

// scopesWithoutUser returns the scopes of which a key needs one to call for itself.
func scopesWithoutUser(operation string) []auth.Scope {
	scopes := scopesOf(operation)
	if slices.Contains(scopes, auth.ScopeAdmin) || slices.Contains(scopes, auth.ScopeModerate) ||
		slices.Contains(scopes, auth.ScopeErase) || slices.Contains(scopes, auth.ScopeAudit) {
		return scopes
	}
	switch operation {
	case "createToken":
		return []auth.Scope{auth.ScopeTokens}
	case "getStats", "getDeliveryStatus":
		return []auth.Scope{auth.ScopeStats}
	case "getChat":
		return []auth.Scope{auth.ScopeChats, auth.ScopeStats}
	}
	return []auth.Scope{auth.ScopeChats}
}

// TestScopes_caller_does_only_what_they_may_with_a_key makes every call with a key of each scope. A
// key does what its scope allows, and gets 403 for all else.
func TestScopes_caller_does_only_what_they_may_with_a_key(t *testing.T) {
	for _, scope := range auth.Scopes {
		t.Run(string(scope), func(t *testing.T) {
			key, keys := transporttest.APIKey(t, scope)
			s := transporttest.New(t, transporttest.Options{Auth: auth.Config{APIKeys: keys}})
			s.Backend = key
			team(s, t)
			requests := good()
			for _, operation := range inOrder(requests) {
				e := requests[operation]
				if slices.Contains(public(), operation) {
					continue
				}
				if e.who = "backend"; !slices.Contains(scopesOf(operation), scope) {
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

// TestScopes_caller_does_only_what_they_may_without_a_user makes every call with a key of each
// scope, and without a user. The calls that the contract marks with x-user need the scope chats,
// tokens or stats. All others are refused, whatever the scope is.
func TestScopes_caller_does_only_what_they_may_without_a_user(t *testing.T) {
	for _, scope := range auth.Scopes {
		t.Run(string(scope), func(t *testing.T) {
			key, keys := transporttest.APIKey(t, scope)
			s := transporttest.New(t, transporttest.Options{Auth: auth.Config{APIKeys: keys}})
			s.Backend = key
			before := settled(t, s)
			userless := needNoUser(apitest.Load(t))
			requests := good()
			for _, operation := range inOrder(requests) {
				e := requests[operation]
				if slices.Contains(public(), operation) {
					continue
				}
				if operation == "createToken" {
					e.body = `{"user_id":"ann"}`
				}
				e.who = "key"
				switch {
				case !userless[operation]:
					e.status, e.code = http.StatusBadRequest, "INVALID"
				case !slices.Contains(scopesWithoutUser(operation), scope):
					e.status, e.code = http.StatusForbidden, "DENIED"
				}
				res := e.try(t, s)
				if e.status == http.StatusBadRequest && problemOf(t, res).Param != "X-User-ID" {
					t.Errorf("%s: the problem names %q", operation, problemOf(t, res).Param)
				}
			}
			if scope != auth.ScopeChats {
				unchanged(t, s, before)
			}
		})
	}
}

// TestTokens_name_their_user: in the body, in the header, or in both.
func TestTokens_name_their_user(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	for _, tt := range []struct {
		who, body, param string
		status           int
	}{
		{"key", `{"user_id":"bob"}`, "", 201},
		{"backend", `{}`, "", 201},
		{"backend", `{"user_id":"ann"}`, "", 201},
		{"backend", `{"user_id":"bob"}`, "user_id", 400},
		{"key", `{}`, "user_id", 400},
		{"key", `{"user_id":null}`, "user_id", 400},
		{"ann", `{"user_id":"ann"}`, "", 403},
		{"ann", `{"user_id":"bob"}`, "", 403},
	} {
		res := exchange{who: tt.who, method: "POST", path: "/tokens", body: tt.body,
			status: tt.status}.try(t, s)
		if res.StatusCode != http.StatusCreated {
			if got := problemOf(t, res).Param; got != tt.param {
				t.Errorf("%s, %s: the problem names %q, want %q", tt.who, tt.body, got, tt.param)
			}
			continue
		}
		var made struct{ Token string }
		if err := json.NewDecoder(res.Body).Decode(&made); err != nil {
			t.Fatal(err)
		}
		user := "ann"
		if tt.who == "key" {
			user = "bob"
		}
		bearer := [2]string{"Authorization", "Bearer " + made.Token}
		exchange{method: "GET", path: "/chats", status: 200, header: bearer}.try(t, s)
		for other, status := range map[string]int{user: 200, "eve": 403} {
			r := exchange{method: "GET", path: "/chats", header: bearer}.request(t, s)
			r.Header.Set("X-User-ID", other)
			res, err := s.Transport(t).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != status {
				t.Errorf("the token of %s, used for %s: %d, want %d", user, other,
					res.StatusCode, status)
			}
		}
	}
}

// TestLimits_a_key_without_a_user_pays_itself: its calls cost no user anything.
func TestLimits_a_key_without_a_user_pays_itself(t *testing.T) {
	rates := limit.Rates{Calls: limit.Rate{PerSecond: 0.001, Burst: 2 * limit.LargeCall}}
	s := transporttest.New(t, transporttest.Options{Limit: limit.New(limit.Config{Backend: rates})})
	create := exchange{who: "key", method: "POST", path: "/chats",
		body: `{"type":"group","chat_id":"team","member_ids":["ann"]}`, status: 201}
	create.try(t, s)
	create.status = 200
	create.try(t, s)
	create.status, create.code = 429, "RATE_LIMITED"
	create.try(t, s)
	exchange{who: "backend", method: "GET", path: "/chats/team", status: 200}.try(t, s)
	exchange{who: "ann", method: "GET", path: "/chats/team", status: 200}.try(t, s)
}

// TestScopes_keys_that_manage_chats_read_nothing: a key that may not read for users gets no content
// and no marks of theirs in the answers of the calls that it may make.
func TestScopes_keys_that_manage_chats_read_nothing(t *testing.T) {
	for _, scopes := range [][]auth.Scope{
		{auth.ScopeChats}, {auth.ScopeChats, auth.ScopeAct},
	} {
		key, keys := transporttest.APIKey(t, scopes...)
		s := transporttest.New(t, transporttest.Options{Auth: auth.Config{APIKeys: keys}})
		chat := s.Group("alice", "bob")
		s.Send("alice", chat, 1, 1)
		if _, _, err := s.Server.CreateChat(t.Context(), server.Caller{User: "alice"},
			server.CreateChatRequest{
				Type: tidemark.Direct, MemberIDs: []tidemark.UserID{"bob"},
			}); err != nil {
			t.Fatal(err)
		}
		for _, call := range [][3]string{
			{"PATCH", "/chats/" + string(chat), `{"name":"n"}`},
			{"POST", "/chats", `{"type":"direct","member_ids":["bob"]}`},
		} {
			request, err := http.NewRequestWithContext(t.Context(), call[0], s.URL+call[1],
				strings.NewReader(call[2]))
			if err != nil {
				t.Fatal(err)
			}
			request.Header = http.Header{
				"Authorization": {"Bearer " + key}, "X-User-Id": {"alice"},
				"Content-Type": {"application/json"},
			}
			res, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d %s %v", call[1], res.StatusCode, body, err)
			}
			var view map[string]any
			if err := json.Unmarshal(body, &view); err != nil {
				t.Fatal(err)
			}
			own := 0
			for _, field := range []string{
				"role", "last_read_sequence", "unread_count", "peer", "last_message",
			} {
				if view[field] != nil {
					own++
				}
			}
			if reads := len(scopes) > 1; reads != (own > 0) {
				t.Errorf("a key with %v, %s: %s", scopes, call[1], body)
			}
		}
	}
}
