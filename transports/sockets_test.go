package transports_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// overSocket sends raw bytes on a connection of its own and returns the first answer. closeSide
// closes the write side before that.
func overSocket(
	t *testing.T, s *transporttest.Stack, raw string, closeSide bool,
) (*http.Response, string) {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(wait.Hang)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, raw) // the server may refuse before it has read all
	if closeSide {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%.80q: %v", raw, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%.80q: %v", raw, err)
	}
	return res, string(body)
}

// TestBadInput_on_the_socket: net/http refuses what is not a request, in its own words. The server
// refuses a body that breaks off.
func TestBadInput_on_the_socket(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	before := settled(t, s)
	const post = "POST /api/v1/chats/team/messages HTTP/1.1\r\nHost: x\r\n" +
		"Authorization: Bearer dev:ann\r\nContent-Type: application/json\r\n"
	const body = `{"client_message_id":"s","content":"x"}`
	for _, tt := range []struct {
		name, raw string
		closeSide bool
		status    int
		detail    string // of a problem, or "" if net/http answers
	}{
		{"no request line", "HELLO\r\n\r\n", false, 400, ""},
		{"a binary one", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", false, 400, ""},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", false, 400, ""},
		{"two hosts", "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", false, 400, ""},
		{"a bad escape in the path", "GET /api/v1/chats/%zz HTTP/1.1\r\nHost: x\r\n\r\n", false,
			400, ""},
		{"another version", "GET /healthz HTTP/3.0\r\nHost: x\r\n\r\n", false, 505, ""},
		{"a header without a colon", "GET /healthz HTTP/1.1\r\nHost: x\r\nx\r\n\r\n", false, 400,
			""},
		{"a header name with a space", "GET /healthz HTTP/1.1\r\nHost: x\r\na b: c\r\n\r\n", false,
			400, ""},
		{"a control character in a header",
			"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-ID: \x01\r\n\r\n", false, 400, ""},
		{"headers of 64 KB",
			"GET /healthz HTTP/1.1\r\nHost: x\r\nx: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
			false, 431, ""},
		{"a path of 64 KB", "GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n",
			false, 431, ""},
		{"a length that is no number", post + "Content-Length: x\r\n\r\n" + body, false, 400, ""},
		{"a negative length", post + "Content-Length: -1\r\n\r\n" + body, false, 400, ""},
		{"two lengths", post + "Content-Length: 3\r\nContent-Length: 39\r\n\r\n" + body, false, 400,
			""},
		{"an unknown coding", post + "Transfer-Encoding: gzip\r\n\r\n" + body, false, 501, ""},
		{"a chunk whose size is no number",
			post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body + "\r\n0\r\n\r\n", false, 400,
			"could not be read to its end"},
		{"a chunk that breaks off", post + "Transfer-Encoding: chunked\r\n\r\n27\r\n" + body[:10],
			true, 400, "could not be read to its end"},
		{"a body that breaks off", post + "Content-Length: 39\r\n\r\n" + body[:10], true, 400,
			"could not be read to its end"},
		{"a length that is too small", post + "Content-Length: 5\r\n\r\n" + body, false, 400,
			"malformed"},
		{"a length of eight exabytes", post + "Content-Length: 9223372036854775807\r\n\r\n" + body,
			false, 413, "409600"},
		{"a smuggled prefix", post + "Content-Length: 0\r\n\r\n" + body, false, 400, "nothing"},
	} {
		res, got := overSocket(t, s, tt.raw, tt.closeSide)
		if res.StatusCode != tt.status || !strings.Contains(got, tt.detail) {
			t.Errorf("%s: %d %.300s, want %d with %q",
				tt.name, res.StatusCode, got, tt.status, tt.detail)
		}
		isProblem := res.Header.Get("Content-Type") == "application/problem+json"
		if isProblem != (tt.detail != "") {
			t.Errorf("%s: Content-Type %q", tt.name, res.Header.Get("Content-Type"))
		}
	}
	unchanged(t, s, before)
}

// escaped returns a text of the greatest length, in which each of its bytes is an escape of six.
func escaped() string { return strings.Repeat(`\u0041`, tidemark.MaxContent) }

// TestOddInput_is_accepted: input that looks odd but is allowed.
func TestOddInput_is_accepted(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	settled(t, s)
	long := strings.Repeat("i", 128)
	deep := strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)
	send := func(body string) exchange {
		return exchange{
			who:    "ann",
			method: "POST",
			path:   "/chats/team/messages",
			body:   body,
			status: 201,
		}
	}
	for i, tt := range []struct {
		exchange
		want string // a part of the answer
	}{
		// Of two fields with one name, the last counts.
		{send(`{"client_message_id":"%d","content":"a","content":"b"}`), `"content":"b"`},
		{send(`{"client_message_id":"%d","content":"a","unknown":{"client_message_id":1},"x":` +
			deep + `}`), `"content":"a"`},
		{send(`{"client_message_id":"%d","content":"a","chat_id":"elsewhere"}`),
			`"chat_id":"team"`},
		{send(`{"client_message_id":"%d","content":"a","attachments":null,"seen_sequence":null,` +
			`"content_type":null}`), `"content_type":"text/plain"`},
		{send(`{"client_message_id":"%d","content":"","attachments":[{"a":1,"a":2}]}`),
			`"attachments":[{"a":1,"a":2}]`},
		{send(`{"client_message_id":"%d","content":"a","attachments":[],"kind":"message",` +
			`"metadata":{"name":null}}`), `"attachments":[],"metadata":{"name":null}`},
		{
			send("\t{ \"client_message\\u005fid\" : \"%d\" " +
				",\r\n\"content\":\"\\ud83d\\udc4b\\/\" } \n"),
			`"content":"👋/"`,
		},
		{send(`{"client_message_id":"%d` + strings.Repeat("x", 126) + `","content":"a"}`),
			strings.Repeat("x", 126)},
		{send(`{"client_message_id":"%d","content":"` + escaped() + `"}`),
			strings.Repeat("A", tidemark.MaxContent)},
		{exchange{who: "ann", method: "POST", path: "/chats",
			body:   `{"type":"group","chat_id":"` + long + `","member_ids":["bob","bob","ann"]}`,
			status: 201}, `"member_count":2`},
		{exchange{who: "ann", method: "GET", path: "/chats/" + long, status: 200}, long},
		{exchange{who: "ann", method: "GET", path: "/chats/%74eam", status: 200},
			`"chat_id":"team"`},
		{exchange{who: "ann", method: "GET", path: "/chats?limit=1001", status: 200}, `"chats":[`},
		{exchange{who: "ann", method: "GET", path: "/chats?limit=99999999999999999999",
			status: 200}, `"chats":[`},
		{exchange{who: "ann", method: "GET", path: "/chats",
			header: [2]string{"If-None-Match", "*"}, status: 200}, `"chats":[`},
		{exchange{who: "ann", method: "GET", path: "/chats",
			header: [2]string{"Range", "bytes=0-1"}, status: 200}, `"pagination"`},
		{exchange{who: "ann", method: "GET", path: "/chats",
			header: [2]string{"Content-Type", "image/png"}, status: 200}, `"chats":[`},
		{exchange{who: "ann", method: "GET", path: "/chats",
			header: [2]string{"X-Request-ID", "a b"}, status: 200}, `"chats":[`},
		{exchange{who: "ann", method: "GET",
			path: "/poll?wait_seconds=99999999999999999999999&device_id=" + long, status: 200},
			`"events":[{`},
		{exchange{who: "ann", method: "POST", path: "/acks",
			body: `{"chats":[{"chat_id":"nowhere","last_acked_sequence":1},{"chat_id":"team",` +
				`"last_acked_sequence":0}]}`, status: 200},
			`"code":"INVALID_SEQUENCE"`},
		{exchange{who: "ann", method: "POST", path: "/sync",
			body: `{"chats":[{"chat_id":"team","last_acked_sequence":9007199254740991},` +
				`{"chat_id":"nowhere","last_acked_sequence":1}]}`, status: 200},
			`"reset":{"reason":"ahead","chat_id":"team","through":null}`},
	} {
		tt.body = strings.Replace(tt.body, "%d", fmt.Sprint(i), 1)
		res := tt.try(t, s)
		if raw, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(raw), tt.want) {
			t.Errorf("%s %s %.100s: %v, the answer lacks %s: %.300s",
				tt.method, tt.path, tt.body, err, tt.want, raw)
		}
		if got := res.Header.Get("X-Request-ID"); strings.Contains(got, " ") {
			t.Errorf("the request id %q was taken over", got)
		}
	}
}

// TestOddInput_escaped_frame_is_accepted: the limit of a text counts bytes, and not their escapes.
func TestOddInput_escaped_frame_is_accepted(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	team(s, t)
	ann := transporttest.DialWebSocket(t, s, nil, "ann")
	send := func(id, content string) refusal {
		return ask(t, ann, id, fmt.Sprintf(`{"type":"send_message","request_id":%q,"payload":`+
			`{"chat_id":"team","client_message_id":%q,"content":"%s"}}`, id, id, content))
	}
	if got := send("r1", escaped()); got != (refusal{}) {
		t.Errorf("%d escapes: %+v, want them accepted", tidemark.MaxContent, got)
	}
	if got := send("r2", escaped()+"A"); got.Code != tooLarge {
		t.Errorf("one byte more: %+v, want %s", got, tooLarge)
	}
	e := good()["listMessages"]
	e.path += "?limit=1"
	raw, err := io.ReadAll(e.try(t, s).Body)
	if err != nil || !strings.Contains(string(raw), strings.Repeat("A", tidemark.MaxContent)) {
		t.Errorf("%v, the text is not stored: %.200s", err, raw)
	}
}

// TestOddInput_unknown_parameters_of_streams_are_ignored: neither a name from a later version nor
// one that a parameter had before changes a stream. So it begins with a new session, without
// `reset`.
func TestOddInput_unknown_parameters_of_streams_are_ignored(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	for _, query := range []url.Values{
		{"from_a_later_version": {"1"}}, {"statuses": {"true"}}, {"statuses": {"maybe"}},
		{"session": {"nobody"}, "after": {"7"}}, {"after": {"x"}}, {"wait": {"x"}},
	} {
		for transport, types := range map[string]func() []string{
			"SSE": func() []string {
				c := transporttest.DialSSE(t, s, http.DefaultTransport, query,
					http.Header{"Authorization": {"Bearer dev:ann"}})
				return firstTypes(t, c)
			},
			"WebSocket": func() []string {
				return firstTypes(t, transporttest.DialWebSocket(t, s, query, "ann"))
			},
			"long-poll": func() []string {
				e := good()["poll"]
				e.path = "/poll?" + query.Encode()
				var page struct{ Events []struct{ Type string } }
				if err := json.NewDecoder(e.try(t, s).Body).Decode(&page); err != nil {
					t.Fatal(err)
				}
				var types []string
				for _, event := range page.Events {
					types = append(types, event.Type)
				}
				return types
			},
		} {
			want := []string{"session", "caught_up"}
			if got := types(); !slices.Equal(got, want) {
				t.Errorf("%s with %s begins with %q, want %q", transport, query.Encode(), got, want)
			}
		}
	}
}

// firstTypes returns the types of the first two events.
func firstTypes(t *testing.T, c interface {
	Next(ctx context.Context) (transporttest.Event, error)
}) (types []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Hang)
	defer cancel()
	for range 2 {
		event, err := c.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, string(event.Type))
	}
	return types
}
