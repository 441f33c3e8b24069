package transports_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/reachtest"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// retryRounds is how many requests of an operation are tried until an answer arrives.
const retryRounds = 12

// retried is a POST whose answers are lost.
type retried struct {
	who, path string
	// body has the number of the round in place of %d.
	body string
	// same names the fields that all answers to one request have in common.
	same []string
	// effect returns what retryRounds requests have done. last is the last answer.
	effect func(c *caller, last []byte) string
	want   string
	// rounds is how many requests are tried, 0 for retryRounds. again is the status of a repetition
	// if it says that there is nothing more to do, else 0.
	rounds, again int
}

// retries returns each POST of the contract. The chat is team, of ann, bob and cid, and has
// retryRounds messages.
func retries() map[string]retried {
	return map[string]retried{
		"createChat": {
			who: "ann", path: "/chats", same: []string{"chat_id"},
			body: `{"type":"group","member_ids":["bob"],"client_chat_id":"r%d"}`,
			effect: func(c *caller, _ []byte) string {
				var list struct{ Chats []struct{} }
				c.get("/chats?limit=100", &list)
				return fmt.Sprint(len(list.Chats), " chats")
			},
			want: fmt.Sprint(1+retryRounds, " chats"),
		},
		"addMembers": {
			who: "ann", path: "/chats/team/members", body: `{"user_ids":["r%d"],"role":"admin"}`,
			effect: func(c *caller, _ []byte) string {
				var list struct {
					Version int `json:"members_version"`
					Members []struct{}
				}
				c.get("/chats/team/members?limit=100", &list)
				return fmt.Sprintf("%d members, version %d", len(list.Members), list.Version)
			},
			want: fmt.Sprintf("%d members, version %d", 3+retryRounds, 1+retryRounds),
		},
		"sendMessage": {
			who: "ann", path: "/chats/team/messages", same: []string{"message_id", "sequence"},
			body:   `{"client_message_id":"r%d","content":"x"}`,
			effect: func(c *caller, _ []byte) string { return fmt.Sprint("head ", c.head()) },
			want:   fmt.Sprint("head ", 2*retryRounds),
		},
		"sendTyping": {
			who: "ann", path: "/chats/team/typing",
			effect: func(c *caller, _ []byte) string { return fmt.Sprint("head ", c.head()) },
			want:   fmt.Sprint("head ", retryRounds),
		},
		"createAttachment": {
			who: "ann", path: "/attachments",
			body: `{"name":"cat.png","type":"image/png","size":1,"sha256":"` +
				strings.Repeat("0a", 32) + `"}`,
			effect: func(_ *caller, last []byte) string {
				return fmt.Sprint(bytes.Contains(last, []byte(`"method":"PUT"`)))
			},
			want: "true",
		},
		"acknowledge": {
			who: "bob", path: "/acks", same: []string{"results"},
			body: `{"chats":[{"chat_id":"team","last_acked_sequence":%[1]d,` +
				`"last_read_sequence":%[1]d}]}`,
			effect: func(c *caller, _ []byte) string { return c.marks() },
			want:   fmt.Sprintf("acked %[1]d, read %[1]d", retryRounds),
		},
		"sync": {
			who: "bob", path: "/sync", same: []string{"chats"},
			body:   `{"chats":[{"chat_id":"team","last_acked_sequence":%d}]}`,
			effect: func(c *caller, _ []byte) string { return c.marks() },
			want:   fmt.Sprintf("acked %d, read 0", retryRounds),
		},
		"createTicket": {
			who: "ann", path: "/tickets",
			effect: func(c *caller, last []byte) string {
				var made struct{ Ticket string }
				c.decode(last, &made)
				return c.status("/poll?wait_seconds=0&ticket="+url.QueryEscape(made.Ticket), "")
			},
			want: "200",
		},
		"acknowledgePush": {
			who: "bob", path: "/push/acks", body: ackBody("bob", "team", 1),
			effect: func(c *caller, _ []byte) string { return c.marks() },
			want:   "acked 1, read 0",
		},
		"createToken": {
			who: "backend", path: "/tokens", body: `{"ttl_seconds":60}`,
			effect: func(c *caller, last []byte) string {
				var made struct{ Token string }
				c.decode(last, &made)
				return c.status("/chats", "Bearer "+made.Token)
			},
			want: "200",
		},
		"startErasure": {
			who: "backend", path: "/users/zoe/erasure", same: []string{"asked_at", "step"},
			effect: func(c *caller, _ []byte) string {
				var one struct{ State string }
				c.get("/users/zoe/erasure", &one)
				return one.State
			},
			want: "erasing",
		},
		"signOut": {
			who: "bob", path: "/sign-out", same: []string{"user_id"},
			effect: func(c *caller, last []byte) string {
				var made struct {
					User string `json:"user_id"`
				}
				c.decode(last, &made)
				return made.User
			},
			want: "bob",
		},
		"signOutUser": {
			who: "backend", path: "/users/zoe/sign-out", same: []string{"user_id"},
			effect: func(c *caller, last []byte) string {
				var made struct {
					User string `json:"user_id"`
				}
				c.decode(last, &made)
				return made.User
			},
			want: "zoe",
		},
		"createOutlet": {
			who: "backend", path: "/admin/outlets", same: []string{"outlet_id", "created_at"},
			body:   `{"type":"webhook","url":"https://hook.example.com/"}`,
			effect: func(c *caller, _ []byte) string { return fmt.Sprint(c.outlets(), " outlets") },
			want:   "4 outlets", rounds: 1,
		},
		"createOutletSecret": {
			who: "backend", path: "/admin/outlets/crm/secret", same: []string{"outlet_id"},
			effect: func(c *caller, last []byte) string {
				var made struct{ Secret string }
				c.decode(last, &made)
				return made.Secret[:6]
			},
			want: "whsec_", rounds: 1,
		},
		"testOutlet": {
			who: "backend", path: "/admin/outlets/crm/test", same: []string{"accepted", "detail"},
			effect: func(c *caller, last []byte) string { return string(last) },
			want:   `{"accepted":true,"status":null,"detail":""}`,
		},
		"replayOutlet": {
			who: "backend", path: "/admin/outlets/crm/replay", body: `{"chat_id":"team"}`,
			effect: func(c *caller, last []byte) string {
				var crm struct {
					Waiting int `json:"waiting_chats"`
				}
				c.get("/admin/outlets/crm", &crm)
				return fmt.Sprint(crm.Waiting, " waiting")
			},
			want: "1 waiting",
		},
		"resendParkedEvent": {
			who: "backend", rounds: 1, again: http.StatusNotFound,
			path: "/admin/outlets/crm/parked/" + reachtest.ParkedEvent + "/resend",
			effect: func(c *caller, _ []byte) string {
				var page struct{ Parked []struct{} }
				c.get("/admin/outlets/crm/parked", &page)
				return fmt.Sprint(len(page.Parked), " parked")
			},
			want: "0 parked",
		},
	}
}

// retriesWithoutUser returns the POSTs that an API key may make without a user.
func retriesWithoutUser() map[string]retried {
	known := retries()
	create, add, token := known["createChat"], known["addMembers"], known["createToken"]
	create.who, add.who, token.who = "key", "key", "key"
	count := create.effect
	create.effect = func(c *caller, last []byte) string {
		return count(&caller{c.t, c.s, "bob"}, last)
	}
	token.body = `{"user_id":"ann","ttl_seconds":60}`
	alone := map[string]retried{
		"createChat": create, "addMembers": add, "createToken": token,
	}
	for operation, r := range known {
		if strings.HasPrefix(r.path, "/admin/") || strings.HasPrefix(r.path, "/users/") {
			r.who = "key"
			alone[operation] = r
		}
	}
	return alone
}

// TestRetry_every_POST_has_one_effect sends each POST of the contract again and again. The first
// tries are cut at a random moment. What was asked for must have happened once.
func TestRetry_every_POST_has_one_effect(t *testing.T) {
	known, alone := retries(), retriesWithoutUser()
	contract := apitest.Load(t)
	userless := needNoUser(contract)
	for _, call := range contract.Calls() {
		if call.Method != http.MethodPost {
			continue
		}
		r, ok := known[call.OperationID]
		if !ok {
			t.Errorf("no retry of %s", call.OperationID)
			continue
		}
		t.Run(call.OperationID, func(t *testing.T) { r.run(t) })
		if r, ok := alone[call.OperationID]; ok {
			t.Run(call.OperationID+"_without_a_user", func(t *testing.T) { r.run(t) })
		} else if userless[call.OperationID] {
			t.Errorf("no retry of %s without a user", call.OperationID)
		}
	}
}

func (r *retried) run(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	exchange{who: "ann", method: "POST", path: "/chats", status: 201,
		body: `{"type":"group","chat_id":"team","member_ids":["bob","cid"]}`}.try(t, s)
	s.Send("ann", "team", 1, retryRounds)
	c := &caller{t, s, r.who}
	var last []byte
	rounds := cmp.Or(r.rounds, retryRounds)
	for round := range rounds {
		e := exchange{who: r.who, method: http.MethodPost, path: r.path, body: r.body}
		if strings.Contains(r.body, "%") {
			e.body = fmt.Sprintf(r.body, round+1)
		}
		for range 1 + rand.IntN(2) {
			cut(t, s, e)
		}
		if r.again != 0 {
			c.until(e, r.again)
			continue
		}
		first := c.whole(e)
		if last = c.whole(e); !bytes.Equal(c.fields(first, r.same), c.fields(last, r.same)) {
			t.Errorf("the answers to %s differ:\n%s\n%s", e.body, first, last)
		}
	}
	if got := r.effect(c, last); got != r.want {
		t.Errorf("after %d requests: %s, want %s", rounds, got, r.want)
	}
}

// cut makes an exchange on a connection that ends at a random moment: within the request, while the
// server works, or after its answer.
func cut(t *testing.T, s *transporttest.Stack, e exchange) {
	t.Helper()
	r := e.request(t, s)
	var raw bytes.Buffer
	if err := r.Write(&raw); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text := raw.Bytes()
	if rand.IntN(4) == 0 {
		text = text[:rand.IntN(len(text))]
	}
	if _, err := conn.Write(text); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(3000)) * time.Microsecond))
	_, _ = io.Copy(io.Discard, conn)
	if rand.IntN(2) == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0) // the server gets a reset
	}
}

// caller makes calls of one user.
type caller struct {
	t   *testing.T
	s   *transporttest.Stack
	who string
}

// whole makes an exchange that must succeed, and returns its body.
func (c *caller) whole(e exchange) []byte {
	c.t.Helper()
	res := e.send(c.t, c.s)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		c.t.Fatalf("%s %s: %d %s, %v", e.method, e.path, res.StatusCode, body, err)
	}
	return body
}

// until makes an exchange again and again, until its answer has a status. The earlier ones succeed.
func (c *caller) until(e exchange, status int) {
	c.t.Helper()
	for range 3 {
		res := e.send(c.t, c.s)
		_ = res.Body.Close()
		switch {
		case res.StatusCode == status:
			return
		case res.StatusCode >= 300:
			c.t.Fatalf("%s %s: %d", e.method, e.path, res.StatusCode)
		}
	}
	c.t.Errorf("%s %s never gets %d", e.method, e.path, status)
}

// outlets returns how many outlets there are.
func (c *caller) outlets() int {
	c.t.Helper()
	var list struct{ Outlets []struct{} }
	c.get("/admin/outlets", &list)
	return len(list.Outlets)
}

// fields returns some fields of an object.
func (c *caller) fields(body []byte, names []string) []byte {
	if len(names) == 0 {
		return nil
	}
	var all map[string]json.RawMessage
	c.decode(body, &all)
	var some []byte
	for _, name := range names {
		if all[name] == nil {
			c.t.Errorf("no %s in %s", name, body)
		}
		some = append(some, all[name]...)
	}
	return some
}

func (c *caller) decode(body []byte, to any) {
	c.t.Helper()
	if err := json.Unmarshal(body, to); err != nil {
		c.t.Fatalf("%v in %s", err, body)
	}
}

func (c *caller) get(path string, to any) {
	c.t.Helper()
	c.decode(c.whole(exchange{who: c.who, method: http.MethodGet, path: path}), to)
}

// head returns the last sequence of team.
func (c *caller) head() tidemark.Sequence {
	var chat struct {
		Head tidemark.Sequence `json:"head_sequence"`
	}
	c.get("/chats/team", &chat)
	return chat.Head
}

// marks returns the caller's watermarks in team.
func (c *caller) marks() string {
	var state struct {
		Acked int `json:"last_acked_sequence"`
		Read  int `json:"last_read_sequence"`
	}
	c.get("/chats/team/delivery-state", &state)
	return fmt.Sprintf("acked %d, read %d", state.Acked, state.Read)
}

// status returns the status of a GET with other credentials.
func (c *caller) status(path, credentials string) string {
	c.t.Helper()
	e := exchange{method: http.MethodGet, path: path}
	if credentials != "" {
		e.header = [2]string{"Authorization", credentials}
	}
	res := e.send(c.t, c.s)
	_ = res.Body.Close()
	return fmt.Sprint(res.StatusCode)
}

// request returns the request of an exchange.
func (e exchange) request(t *testing.T, s *transporttest.Stack) *http.Request {
	t.Helper()
	root := strings.TrimSuffix(s.URL, transports.BasePath)
	r, err := http.NewRequestWithContext(t.Context(), e.method, root+e.full(),
		strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	switch e.who {
	case "":
	case "backend":
		r.Header.Set("Authorization", "Bearer "+s.Backend)
		r.Header.Set("X-User-ID", "ann")
	case "key":
		r.Header.Set("Authorization", "Bearer "+s.Backend)
	default:
		r.Header.Set("Authorization", "Bearer dev:"+e.who)
	}
	if e.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if e.header[0] != "" {
		r.Header.Set(e.header[0], e.header[1])
	}
	return r
}
