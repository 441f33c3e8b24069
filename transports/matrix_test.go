package transports_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
)

// membershipTable says who may do what in which chat. There is a row for each verb and kind of
// chat, and a column for each caller. key/X is a backend that calls for X. key is a backend that
// calls without a user.
//
// An outcome is the HTTP status. A letter after it is the code: N is NOT_A_MEMBER, D is DENIED, F
// is NOT_FOUND. After a slash comes the outcome of the single item of a list: ok, or the letter of
// its code. in and out say whether the list has the chat. Of a frame, ok means that it has its
// reply, and a letter is the code of the error. Silent frames have no reply: they took effect (+)
// or not (-). 1008 is the close code of a WebSocket that did not open.
const membershipTable = `
verb                chat     owner   member  former  stranger key/member key/stranger key
getChat             group    200     200     403N    403N     200        403N 200
getChat             direct   200     200     403N    403N     200        403N 200
getChat             large    200     200     403N    403N     200        403N 200
getChat             unknown  404F    404F    404F    404F     404F       404F 404F
updateChat          group    200     403D    403N    403N     200        200 200
updateChat          direct   403D    403D    403N    403N     403D       403D 403D
updateChat          large    200     403D    403N    403N     200        200 200
updateChat          unknown  404F    404F    404F    404F     404F       404F 404F
updateChat/policy   group    403D    403D    403N    403N    200        200 200
updateChat/policy   direct   403D    403D    403N    403N    200        200 200
updateChat/policy   large    403D    403D    403N    403N    200        200 200
updateChat/policy   unknown  404F    404F    404F    404F    404F       404F 404F
updateChat/reads    group    403D    403D    403N    403N    200        200 200
updateChat/reads    direct   403D    403D    403N    403N    200        200 200
updateChat/reads    large    403D    403D    403N    403N    200        200 200
updateChat/reads    unknown  404F    404F    404F    404F    404F       404F 404F
deleteChat          group    204     403D    403N    403N    204        204 204
deleteChat          direct   403D    403D    403N    403N    204        204 204
deleteChat          large    204     403D    403N    403N    204        204 204
deleteChat          unknown  404F    404F    404F    404F    404F       404F 404F
listMembers         group    200     200     403N    403N     200        403N 200
listMembers         direct   200     200     403N    403N     200        403N 200
listMembers         large    200     200     403N    403N     200        403N 200
listMembers         unknown  404F    404F    404F    404F     404F       404F 404F
addMembers          group    200     403D    403N    403N     200        200 200
addMembers          direct   403D    403D    403N    403N     403D       403D 403D
addMembers          large    200     403D    403N    403N     200        200 200
addMembers          unknown  404F    404F    404F    404F     404F       404F 404F
updateMember        group    200     403D    403N    403N     200        200 200
updateMember        direct   403D    403D    403N    403N     403D       403D 403D
updateMember        large    200     403D    403N    403N     200        200 200
updateMember        unknown  404F    404F    404F    404F     404F       404F 404F
removeMember        group    204     403D    403N    403N     204        204 204
removeMember        direct   403D    403D    403N    403N     403D       403D 403D
removeMember        large    204     403D    403N    403N     204        204 204
removeMember        unknown  404F    404F    404F    404F     404F       404F 404F
removeMember/self   group    204     204     204     204      204        204 204
removeMember/self   direct   403D    403D    204     204      403D       403D 403D
removeMember/self   large    204     204     204     204      204        204 204
removeMember/self   unknown  404F    404F    404F    404F     404F       404F 404F
putBan              group    204     403D    403N    403N     204        204 204
putBan              direct   403D    403D    403N    403N     403D       403D 403D
putBan              large    204     403D    403N    403N     204        204 204
putBan              unknown  404F    404F    404F    404F     404F       404F 404F
removeBan           group    204     403D    403N    403N     204        204 204
removeBan           direct   403D    403D    403N    403N     403D       403D 403D
removeBan           large    204     403D    403N    403N     204        204 204
removeBan           unknown  404F    404F    404F    404F     404F       404F 404F
listBans            group    200     403D    403N    403N     200        200 200
listBans            direct   403D    403D    403N    403N     403D       403D 403D
listBans            large    200     403D    403N    403N     200        200 200
listBans            unknown  404F    404F    404F    404F     404F       404F 404F
listMessages        group    200     200     403N    403N     200        403N 400
listMessages        direct   200     200     403N    403N     200        403N 400
listMessages        large    200     200     403N    403N     200        403N 400
listMessages        unknown  404F    404F    404F    404F     404F       404F 400
listReactions       group    200     200     403N    403N     200        403N 400
listReactions       direct   200     200     403N    403N     200        403N 400
listReactions       large    200     200     403N    403N     200        403N 400
listReactions       unknown  404F    404F    404F    404F     404F       404F 400
listPins            group    200     200     403N    403N     200        403N 400
listPins            direct   200     200     403N    403N     200        403N 400
listPins            large    200     200     403N    403N     200        403N 400
listPins            unknown  404F    404F    404F    404F     404F       404F 400
getAttachment       group    200     200     403N    403N     200        403N 400
getAttachment       direct   200     200     403N    403N     200        403N 400
getAttachment       large    200     200     403N    403N     200        403N 400
getAttachment       unknown  404F    404F    404F    404F     404F       404F 400
sendMessage         group    201     201     403N    403N     201        403N 400
sendMessage         direct   201     201     403N    403N     201        403N 400
sendMessage         large    201     201     403N    403N     201        403N 400
sendMessage         unknown  404F    404F    404F    404F     404F       404F 400
getDeliveryState    group    200     200     403N    403N     200        403N 400
getDeliveryState    direct   200     200     403N    403N     200        403N 400
getDeliveryState    large    200     200     403N    403N     200        403N 400
getDeliveryState    unknown  404F    404F    404F    404F     404F       404F 400
updateDeliveryState group    200     200     403N    403N     200        403N 400
updateDeliveryState direct   200     200     403N    403N     200        403N 400
updateDeliveryState large    200     200     403N    403N     200        403N 400
updateDeliveryState unknown  404F    404F    404F    404F     404F       404F 400
markUnread          group    200     200     403N    403N     200        403N 400
markUnread          direct   200     200     403N    403N     200        403N 400
markUnread          large    200     200     403N    403N     200        403N 400
markUnread          unknown  404F    404F    404F    404F     404F       404F 400
getDeliveryStatus   group    200     200     403N    403N     200        403N 200
getDeliveryStatus   direct   200     200     403N    403N     200        403N 200
getDeliveryStatus   large    200     200     403N    403N     200        403N 200
getDeliveryStatus   unknown  404F    404F    404F    404F     404F       404F 404F
sendTyping          group    204     204     403N    403N     204        403N 400
sendTyping          direct   204     204     403N    403N     204        403N 400
sendTyping          large    204     204     403N    403N     204        403N 400
sendTyping          unknown  404F    404F    404F    404F     404F       404F 400
listStatuses        group    200/ok  200/ok  200/N   200/N    200/ok     200/N 400
listStatuses        direct   200/ok  200/ok  200/N   200/N    200/ok     200/N 400
listStatuses        large    200/ok  200/ok  200/N   200/N    200/ok     200/N 400
listStatuses        unknown  200/F   200/F   200/F   200/F    200/F      200/F 400
getPresence         group    200/ok  200/ok  200/N   200/N   200/ok     200/N 400
getPresence         direct   200/ok  200/ok  200/N   200/N   200/ok     200/N 400
getPresence         large    200/ok  200/ok  200/N   200/N   200/ok     200/N 400
getPresence         unknown  200/F   200/F   200/F   200/F   200/F      200/F 400
putLook             group    204     204     403N    403N    204        403N 400
putLook             direct   204     204     403N    403N    204        403N 400
putLook             large    204     204     403N    403N    204        403N 400
putLook             unknown  404F    404F    404F    404F    404F       404F 400
acknowledge         group    200/ok  200/ok  200/N   200/N    200/ok     200/N 400
acknowledge         direct   200/ok  200/ok  200/N   200/N    200/ok     200/N 400
acknowledge         large    200/ok  200/ok  200/N   200/N    200/ok     200/N 400
acknowledge         unknown  200/F   200/F   200/F   200/F    200/F      200/F 400
sync                group    200/ok  200/ok  200/N   200/N    200/ok     200/N 400
sync                direct   200/ok  200/ok  200/N   200/N    200/ok     200/N 400
sync                large    200/ok  200/ok  200/N   200/N    200/ok     200/N 400
sync                unknown  200/F   200/F   200/F   200/F    200/F      200/F 400
sync/behind         group    out     in      out     out      in         out 400
sync/behind         direct   out     in      out     out      in         out 400
sync/behind         large    out     in      out     out      in         out 400
sync/behind         unknown  out     out     out     out      out        out 400
listChats           group    in      in      out     out      in         out 400
listChats           direct   in      in      out     out      in         out 400
listChats           large    in      in      out     out      in         out 400
listChats           unknown  out     out     out     out      out        out 400
listDeliveryStates  group    in      in      out     out      in         out 400
listDeliveryStates  direct   in      in      out     out      in         out 400
listDeliveryStates  large    in      in      out     out      in         out 400
listDeliveryStates  unknown  out     out     out     out      out        out 400
listPending         group    out     in      out     out      in         out 400
listPending         direct   out     in      out     out      in         out 400
listPending         large    out     in      out     out      in         out 400
listPending         unknown  out     out     out     out      out        out 400
createChat          group    409     409     409     409      409        409 409
createChat          direct   409     409     409     409      409        409 409
createChat          large    409     409     409     409      409        409 409
createChat          unknown  201     201     201     201      201        201 201
send_message        group    ok      ok      N       N        ok         N  1008
send_message        direct   ok      ok      N       N        ok         N  1008
send_message        large    ok      ok      N       N        ok         N  1008
send_message        unknown  F       F       F       F        F          F  1008
sync_request        group    ok/ok   ok/ok   ok/N    ok/N     ok/ok      ok/N 1008
sync_request        direct   ok/ok   ok/ok   ok/N    ok/N     ok/ok      ok/N 1008
sync_request        large    ok/ok   ok/ok   ok/N    ok/N     ok/ok      ok/N 1008
sync_request        unknown  ok/F    ok/F    ok/F    ok/F     ok/F       ok/F 1008
ack                 group    +       +       -       -        +          -  1008
ack                 direct   +       +       -       -        +          -  1008
ack                 large    +       +       -       -        +          -  1008
ack                 unknown  -       -       -       -        -          -  1008
read                group    +       +       -       -        +          -  1008
read                direct   +       +       -       -        +          -  1008
read                large    +       +       -       -        +          -  1008
read                unknown  -       -       -       -        -          -  1008
typing              group    +       +       -       -        +          -  1008
typing              direct   +       +       -       -        +          -  1008
typing              large    -       -       -       -        -          -  1008
typing              unknown  -       -       -       -        -          -  1008
look                group    ok      ok      N       N       ok         N    1008
look                direct   ok      ok      N       N       ok         N    1008
look                large    ok      ok      N       N       ok         N    1008
look                unknown  F       F       F       F       F          F    1008
ping                group    ok      ok      ok      ok       ok         ok 1008
SSE                 group    in      in      out     out      in         out 400
SSE                 direct   in      in      out     out      in         out 400
long-poll           group    in      in      out     out      in         out 400
long-poll           direct   in      in      out     out      in         out 400
WebSocket           group    in      in      out     out      in         out 1008
WebSocket           direct   in      in      out     out      in         out 1008
`

// call is a REST call of a table.
type call struct{ method, path, body string }

// chatCalls returns the REST calls of membershipTable. CHAT, SELF, OTHER (a member who is not the
// caller), and FILE (of a message) are placeholders.
func chatCalls() map[string]call {
	return map[string]call{
		"getChat":           {"GET", "/chats/CHAT", ""},
		"updateChat":        {"PATCH", "/chats/CHAT", `{"name":"other"}`},
		"updateChat/policy": {"PATCH", "/chats/CHAT", `{"keep_days":30,"hold":true}`},
		"updateChat/reads":  {"PATCH", "/chats/CHAT", `{"read_receipts":"off"}`},
		"deleteChat":        {"DELETE", "/chats/CHAT", ""},
		"listMembers":       {"GET", "/chats/CHAT/members", ""},
		"addMembers":        {"POST", "/chats/CHAT/members", `{"user_ids":["added"]}`},
		"updateMember": {"PATCH", "/chats/CHAT/members/OTHER",
			`{"role":"reader","metadata":{"a":1}}`},
		"removeMember":      {"DELETE", "/chats/CHAT/members/OTHER", ""},
		"removeMember/self": {"DELETE", "/chats/CHAT/members/SELF", ""},
		"putBan":            {"PUT", "/chats/CHAT/bans/OTHER", ""},
		"removeBan":         {"DELETE", "/chats/CHAT/bans/OTHER", ""},
		"listBans":          {"GET", "/chats/CHAT/bans", ""},
		"listMessages":      {"GET", "/chats/CHAT/messages", ""},
		"listReactions":     {"GET", "/chats/CHAT/messages/2/reactions", ""},
		"listPins":          {"GET", "/chats/CHAT/pins", ""},
		"sendMessage": {"POST", "/chats/CHAT/messages",
			`{"client_message_id":"m","content":"x"}`},
		"getDeliveryState": {"GET", "/chats/CHAT/delivery-state", ""},
		"updateDeliveryState": {"PATCH", "/chats/CHAT/delivery-state",
			`{"last_acked_sequence":2,"last_read_sequence":2}`},
		"markUnread":        {"PUT", "/chats/CHAT/delivery-state/unread", `{"from_sequence":1}`},
		"getDeliveryStatus": {"GET", "/chats/CHAT/delivery-status", ""},
		"sendTyping":        {"POST", "/chats/CHAT/typing", ""},
		"listStatuses":      {"GET", "/statuses?chat_id=CHAT", ""},
		"listPending":       {"GET", "/pending", ""},
		"getPresence":       {"GET", "/presence?chat_id=CHAT", ""},
		"putLook":           {"PUT", "/sessions/SESSION/look", `{"chat_ids":["CHAT"]}`},
		"acknowledge": {"POST", "/acks",
			`{"chats":[{"chat_id":"CHAT","last_acked_sequence":2}]}`},
		"sync": {"POST", "/sync",
			`{"chats":[{"chat_id":"CHAT","last_acked_sequence":1}]}`},
		"sync/behind":        {"POST", "/sync", `{}`},
		"getAttachment":      {"GET", "/attachments/FILE?chat_id=CHAT&sequence=2", ""},
		"listChats":          {"GET", "/chats", ""},
		"listDeliveryStates": {"GET", "/delivery-states", ""},
		"createChat": {"POST", "/chats",
			`{"type":"group","chat_id":"CHAT","member_ids":["OTHER"]}`},
	}
}

// clientFrames returns the payloads of the WebSocket frames of membershipTable.
func clientFrames() map[string]string {
	return map[string]string{
		"send_message": `{"client_message_id":"m","content":"x","chat_id":"CHAT"}`,
		"sync_request": `{"chats":[{"chat_id":"CHAT","last_acked_sequence":1}]}`,
		"ack":          `{"chat_id":"CHAT","last_acked_sequence":2}`,
		"read":         `{"chat_id":"CHAT","last_read_sequence":2}`,
		"typing":       `{"chat_id":"CHAT"}`,
		"look":         `{"chat_ids":["CHAT"]}`,
		"ping":         `{}`,
	}
}

// row is a line of a table.
type row struct {
	verb, object string
	want         map[string]string // by column
}

func rows(t *testing.T, table string) []row {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	columns := strings.Fields(lines[0])
	var all []row
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) != len(columns) {
			t.Fatalf("%q has %d fields, want %d", line, len(fields), len(columns))
		}
		r := row{fields[0], fields[1], make(map[string]string)}
		for i, want := range fields[2:] {
			r.want[columns[i+2]] = want
		}
		all = append(all, r)
	}
	return all
}

// cell is one cell of a table: a caller, a verb and a chat.
type cell struct {
	*people
	w     *matrix
	verb  string
	self  tidemark.UserID
	creds http.Header
	want  string
}

// other returns a member who is not the caller.
func (c *cell) other() tidemark.UserID {
	if c.reader == c.self {
		return c.member // of a direct chat
	}
	return c.reader
}

// fill replaces the placeholders of a call. For a caller without a user, self is another user.
func (c *cell) fill(s string) string {
	self := c.self
	if self == "" {
		self = c.other()
	}
	return strings.NewReplacer("CHAT", string(c.chat), "SELF", string(self),
		"OTHER", string(c.other()), "FILE", c.file).Replace(s)
}

func isStream(verb string) bool {
	return verb == "SSE" || verb == "long-poll" || verb == "WebSocket"
}

func TestMatrix_membership(t *testing.T) {
	w := newMatrix(t, stores.Open(t), 0)
	calls, client := chatCalls(), clientFrames()
	for _, r := range rows(t, membershipTable) {
		for column, want := range r.want {
			people := w.people(r.object)
			user, backend := people.user(column)
			creds := w.token(user)
			if backend {
				creds = w.key(user)
			}
			c := &cell{people: people, w: w, verb: r.verb, self: user, creds: creds, want: want}
			what := fmt.Sprintf("%s of a %s chat by %s", r.verb, r.object, column)
			if refused(want) && !isStream(r.verb) {
				c.checkUnchanged(what)
			}
			var got string
			if call, ok := calls[r.verb]; ok {
				got = c.rest(t, what, call)
			} else if payload, ok := client[r.verb]; ok {
				got = c.frame(what, payload)
			} else {
				got = c.stream(what)
			}
			w.cells++
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
	}
	w.end()
	t.Logf("%d cells", w.cells)
}

// refused reports whether nothing may have changed after an outcome.
func refused(want string) bool {
	return strings.HasPrefix(want, "4") || strings.HasSuffix(want, "/N") ||
		strings.HasSuffix(want, "/F") || want == "N" || want == "F" || want == "-" ||
		want == "out" || want == "1008"
}

// rest makes a call and returns its outcome.
func (c *cell) rest(t *testing.T, what string, call call) string {
	t.Helper()
	res, raw := c.w.do(call.method, transports.BasePath+c.fill(call.path), c.fill(call.body),
		c.creds)
	got := outcome(res, raw)
	if got == "409" || refused(got) || refused(c.want) {
		c.checkNoLeak(what, raw)
	}
	if res.StatusCode == http.StatusBadRequest {
		return got
	}
	var body struct {
		Chats, States, Results, Pending []json.RawMessage
	}
	switch c.verb {
	case "acknowledge", "sync", "sync/behind", "listChats", "listDeliveryStates", "listStatuses",
		"listPending", "getPresence":
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Fatalf("%s: %v in %s", what, err, raw)
		}
	default:
		return got
	}
	items := slices.Concat(body.Chats, body.States, body.Results, body.Pending)
	if c.verb == "acknowledge" || c.verb == "sync" || c.verb == "listStatuses" ||
		c.verb == "getPresence" {
		if len(items) < 1 {
			t.Fatalf("%s: no item in %s", what, raw)
		}
		return got + "/" + item(t, what, items[0])
	}
	return in(c.mentions(items...))
}

func in(yes bool) string {
	if yes {
		return "in"
	}
	return "out"
}

// mentions reports whether a text names the chat.
func (c *cell) mentions(texts ...json.RawMessage) bool {
	return slices.ContainsFunc(texts, func(text json.RawMessage) bool {
		return strings.Contains(string(text), fmt.Sprintf(`"chat_id":%q`, c.chat))
	})
}

// item returns the outcome of an item of a list. It checks that a refused item shows nothing of the
// chat.
func item(t *testing.T, what string, raw json.RawMessage) string {
	t.Helper()
	var v struct {
		Problem  *struct{ Code string }
		Head     int `json:"head_sequence"`
		Messages []json.RawMessage
		Gaps     []json.RawMessage
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v in %s", what, err, raw)
	}
	if v.Problem == nil {
		return "ok"
	}
	if v.Head != 0 || len(v.Messages)+len(v.Gaps) > 0 {
		t.Errorf("%s: the refusal shows something of the chat: %s", what, raw)
	}
	return letter(v.Problem.Code)
}

// checkNoLeak fails the test if an answer shows what only members may see.
func (c *cell) checkNoLeak(what string, raw []byte) {
	c.w.t.Helper()
	if strings.Contains(string(raw), canary) {
		c.w.t.Errorf("%s: the refusal shows something of the chat: %s", what, raw)
	}
}

// frame sends a frame and returns its outcome.
func (c *cell) frame(what, payload string) string {
	t := c.w.t
	t.Helper()
	var listener *server.Connection
	if c.verb == "typing" {
		var err error
		listener, err = c.w.core.Open(t.Context(), server.OpenRequest{User: c.other()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(listener.Detach)
	}
	conn, _, code := c.w.socket("", c.creds)
	if conn == nil {
		return fmt.Sprint(code)
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
	defer cancel()
	silent := c.verb == "ack" || c.verb == "read" || c.verb == "typing"
	sent := []string{
		fmt.Sprintf(`{"type":%q,"request_id":"r","payload":%s}`, c.verb, c.fill(payload)),
	}
	until := "r"
	if silent {
		sent, until = append(sent, `{"type":"ping","request_id":"p"}`), "p"
	}
	for _, frame := range sent {
		if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	var reply struct {
		Type      string
		RequestID string `json:"request_id"`
		Payload   struct {
			Code  string
			Chats []json.RawMessage
		}
	}
	for reply.RequestID != until {
		reply.RequestID = ""
		_, raw, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := json.Unmarshal(raw, &reply); err != nil {
			t.Fatalf("%s: %v in %s", what, err, raw)
		}
		if refused(c.want) && !c.insider() {
			c.checkNoLeak(what, raw)
		}
		if c.verb == "look" && reply.Type == string(tidemark.EventPresence) {
			return "ok"
		}
		if silent && reply.RequestID == "r" {
			t.Errorf("%s was answered: %s", what, raw)
		}
	}
	switch {
	case silent:
		return c.effect(what, listener)
	case reply.Type == "problem":
		return letter(reply.Payload.Code)
	case c.verb == "sync_request":
		return "ok/" + item(t, what, reply.Payload.Chats[0])
	}
	return "ok"
}

// insider reports whether the caller is a member, whose stream may show the chat.
func (c *cell) insider() bool { return c.self == c.owner || c.self == c.member }

// effect returns whether a silent frame took effect. That it did not is certain only once the
// server has stopped: then checkUnchanged compares the states, and effect looks for typing notices.
func (c *cell) effect(what string, listener *server.Connection) string {
	t := c.w.t
	t.Helper()
	moved := func() bool {
		state, err := c.w.core.DeliveryState(t.Context(), c.self, c.chat)
		return err == nil &&
			(c.verb == "ack" && state.Acked == 2 || c.verb == "read" && state.Read == 2)
	}
	if listener != nil {
		moved = func() bool { return sawTyping(t, listener, c.self) }
	}
	if c.want == "-" {
		c.w.refused = append(c.w.refused, func() {
			if moved() {
				t.Errorf("%s took effect", what)
			}
		})
		return "-"
	}
	for deadline := time.Now().Add(wait.Hang); !moved(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			return "-"
		}
	}
	return "+"
}

// sawTyping reports whether the session has a typing notice of a user.
func sawTyping(t *testing.T, c *server.Connection, who tidemark.UserID) bool {
	t.Helper()
	for {
		events, err := c.Next(context.Background(), nil, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if ev.Type == tidemark.EventTyping &&
				strings.Contains(string(ev.Payload), fmt.Sprintf("%q", who)) {
				return true
			}
		}
		if len(events) == 0 {
			return false
		}
	}
}

// stream opens a stream and returns whether a message of the chat arrives on it. The caller has a
// chat of their own. When its messages arrive, all earlier ones have arrived.
func (c *cell) stream(what string) string {
	t := c.w.t
	t.Helper()
	if c.self == "" {
		return c.w.open(c.verb, "", 0, "", c.creds)
	}
	own, _, err := c.w.core.CreateChat(t.Context(), server.Caller{User: c.self},
		server.CreateChatRequest{Type: tidemark.Group})
	if err != nil {
		t.Fatal(err)
	}
	read := c.w.reader(what, c.verb, c.creds)
	send := func(user tidemark.UserID, chat tidemark.ChatID, key string) {
		draft := tidemark.Draft{
			ChatID:          chat,
			ClientMessageID: key,
			Content:         "late",
			ContentType:     tidemark.DefaultContentType,
		}
		if _, err := c.w.core.Send(t.Context(), user, draft); err != nil {
			t.Fatal(err)
		}
	}
	send(c.owner, c.chat, "late")
	found := false
	// A session serves its chats in turn, so the second message comes after all from before the
	// first.
	for _, key := range []string{"first", "second"} {
		send(c.self, own.ID, key)
		for seen := ""; !strings.Contains(seen, fmt.Sprintf(`"client_message_id":%q`, key)); {
			seen = read()
			found = found || strings.Contains(seen, string(c.chat))
		}
	}
	return in(found)
}
