package client

import (
	"errors"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestConnection_table follows the table of connection. Each line is an attempt: whether its
// session came, how long it lived then, how it ended, and what follows.
func TestConnection_table(t *testing.T) {
	const never = time.Duration(-1)
	type attempt struct {
		over   Transport
		opened time.Duration // after the begin; never
		lived  time.Duration
		f      failure
		want   next
		down   bool // the server answers another call
	}
	hint := failure{ending: busy, after: 3 * time.Second}
	for name, attempts := range map[string][]attempt{
		"pauses grow, and start over after a live minute": {
			{over: WebSocket, opened: never, f: failure{ending: busy}, want: within(500)},
			{over: WebSocket, opened: 0, f: failure{ending: lost}, want: within(1000)},
			{
				over: WebSocket, opened: 0, lived: minute, f: failure{ending: lost},
				want: within(500),
			},
			{over: WebSocket, opened: 0, f: failure{ending: lost}, want: within(1000)},
			{over: WebSocket, opened: 0, f: hint, want: next{exactly: 3 * time.Second}},
			{over: WebSocket, opened: 0, f: failure{ending: lost}, want: within(2000)},
		},
		"blocked goes down at once, lost at the second time, and busy never": {
			{over: WebSocket, opened: never, f: hint, want: next{exactly: 3 * time.Second}},
			{over: WebSocket, opened: never, f: failure{ending: lost}, want: within(500)},
			{
				over: WebSocket, opened: never, f: failure{ending: lost}, down: true,
				want: check(1000),
			},
			{
				over: SSE, opened: never, f: failure{ending: blocked}, down: true,
				want: check(2000),
			},
			{over: LongPoll, opened: never, f: failure{ending: blocked}, want: within(4000)},
			{over: LongPoll, opened: 0, f: failure{ending: lost}, want: within(8000)},
		},
		"a better transport is probed, each time later": {
			{
				over: WebSocket, opened: never, f: failure{ending: blocked}, down: true,
				want: check(500),
			},
			{over: SSE, opened: 0, lived: firstProbe, f: failure{ending: moved}},
			{over: WebSocket, opened: never, f: failure{ending: blocked}}, // back at once
			{over: SSE, opened: 0, lived: firstProbe, f: failure{ending: lost}, want: within(500)},
			{over: SSE, opened: 0, lived: 3 * firstProbe, f: failure{ending: moved}},
			{
				over: WebSocket, opened: 0, lived: minute, f: failure{ending: lost},
				want: within(500),
			},
			{over: WebSocket, opened: 0, f: failure{ending: moved}},
		},
		"two silences go down": {
			{over: WebSocket, opened: 0, f: failure{ending: silent}, want: within(500)},
			{over: WebSocket, opened: 0, f: failure{ending: lost}, want: within(1000)},
			{over: WebSocket, opened: 0, f: failure{ending: silent}, want: within(2000)},
			{over: WebSocket, opened: 0, f: failure{ending: silent}},
			{over: SSE, opened: 0, f: failure{ending: moved}},
		},
		"fresh tokens are refused": {
			{over: WebSocket, opened: 0, f: failure{ending: unauthenticated}},
			{
				over: WebSocket, opened: never, f: failure{ending: unauthenticated},
				want: next{exactly: 5 * time.Second},
			},
			{over: WebSocket, opened: 0, f: failure{ending: unauthenticated}},
			{
				over: WebSocket, opened: never, f: failure{ending: unauthenticated},
				want: next{exactly: 5 * time.Second},
			},
			{
				over: WebSocket, opened: never, f: failure{ending: unauthenticated},
				want: next{exactly: 30 * time.Second},
			},
			{
				over: WebSocket, opened: never, f: failure{ending: unauthenticated},
				want: next{over: true},
			},
		},
		"the session is gone": {
			{over: WebSocket, opened: 0, f: failure{ending: gone}, want: next{fresh: true}},
			{
				over: WebSocket, opened: never, f: failure{ending: gone},
				want: next{within: firstPause, fresh: true},
			},
		},
		"replaced by another client": {
			{over: WebSocket, opened: 0, f: failure{ending: replaced}, want: next{over: true}},
		},
		"replaced by an attempt that was given up, once": {
			{over: WebSocket, opened: never, f: failure{ending: lost}, want: within(500)},
			{
				over: WebSocket, opened: 0, f: failure{ending: replaced},
				want: next{within: time.Second, fresh: true},
			},
			{over: WebSocket, opened: 0, f: failure{ending: replaced}, want: next{over: true}},
		},
		"replaced long after an attempt that was given up": {
			{over: WebSocket, opened: never, f: failure{ending: lost}, want: within(500)},
			{
				over: WebSocket, opened: 0, lived: abandonedLife + 1, f: failure{ending: replaced},
				want: next{over: true},
			},
		},
		"refused": {
			{over: WebSocket, opened: never, f: failure{ending: refused}, want: next{over: true}},
		},
	} {
		now := time.Now()
		c := connection{transports: []Transport{WebSocket, SSE, LongPoll}}
		for i, a := range attempts {
			if over := c.begin(now); over != a.over {
				t.Errorf("%s, attempt %d: over %s, want %s", name, i, over, a.over)
			}
			if a.opened != never {
				c.sessionCame(now)
				now = now.Add(a.lived)
			}
			a.f.err = tidemark.Errorf(tidemark.Unavailable, "x")
			if got := c.ended(&a.f, now); got != a.want {
				t.Errorf("%s, attempt %d: got %+v, want %+v", name, i, got, a.want)
			}
			if a.down {
				c.descend(now)
			}
		}
	}
}

func within(ms int) next { return next{within: time.Duration(ms) * time.Millisecond} }

func check(ms int) next {
	n := within(ms)
	n.check = true
	return n
}

func TestProgress_table(t *testing.T) {
	p := begin(5)
	for _, tc := range []struct {
		from, to tidemark.Sequence
		want     place
	}{{1, 5, again}, {5, 6, due}, {6, 6, due}, {6, 9, due}, {7, 7, beyond}, {3, 4, again}} {
		if got := p.place(tc.from, tc.to); got != tc.want {
			t.Errorf("place(%d, %d) = %v, want %v", tc.from, tc.to, got, tc.want)
		}
	}
	p.receive(8)
	p.see(10)
	p.read = 9
	if a, some := p.due(false); !some || a != (acked{Acked: 5, Read: 5}) {
		t.Errorf("due %+v, want what is handled", a)
	}
	p.say(acked{Acked: 5, Read: 5}, false)
	if _, some := p.due(false); some {
		t.Error("something is due by frame after it was said")
	}
	if a, some := p.due(true); !some || a.Acked != 5 {
		t.Errorf("due by a call is %+v, want what no call has confirmed", a)
	}
	p.finish(7)
	want := progress{said: 5, done: 7, received: 8, seen: 10, read: 9, readSaid: 5}
	if p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
	p.unsay()
	if a, _ := p.due(false); a != (acked{Acked: 7, Read: 7}) {
		t.Errorf("due after a lost connection %+v, want all", a)
	}
	if !p.behind() {
		t.Error("8 of 10 is not behind")
	}
	p.rewind(3)
	if want := (progress{done: 3, received: 3, seen: 3, read: 3}); p != want {
		t.Errorf("rewound %+v, want %+v", p, want)
	}
}

// TestClient_skips_nothing_at_the_end_of_a_stream: only whole blocks arrive, however the bytes do.
func TestClient_skips_nothing_at_the_end_of_a_stream(t *testing.T) {
	text := ":\n\nid: S.1\ndata: {}\n\n\n\nid: S.2\ndata: {\"a\":1}\n\nid: S.3\ndata: {\"hal"
	want := text[:strings.LastIndex(text, "id: S.3")]
	for size := 1; size < len(text); size++ {
		heard := 0
		body := &wholeBlocks{
			ReadCloser: io.NopCloser(&portions{text, size, errors.New("cut")}),
			heard:      func() { heard++ },
		}
		got, err := io.ReadAll(body)
		if string(got) != want || err == nil || heard != (len(text)+size-1)/size {
			t.Fatalf("in portions of %d: got %q, %v, %d signs of life", size, got, err, heard)
		}
	}
	long := &wholeBlocks{
		ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", 2*maxEvent))),
		heard:      func() {},
	}
	if got, err := io.ReadAll(long); len(got) > 0 || err == nil {
		t.Errorf("of an endless block come %d bytes and %v", len(got), err)
	}
}

// portions is a reader that gives a few bytes at a time, and then an error.
type portions struct {
	text string
	size int
	err  error
}

func (p *portions) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, p.err
	}
	n := copy(b, p.text[:min(p.size, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

func TestAnswered_table(t *testing.T) {
	own := func(code string) string { return `{"code":"` + code + `","detail":"d"}` }
	for _, tc := range []struct {
		status int
		body   string
		want   ending
	}{
		{400, own("INVALID"), refused},
		{401, own("UNAUTHENTICATED"), unauthenticated},
		{403, own("DENIED"), refused},
		{403, "<h1>", blocked},
		{404, own("NOT_FOUND"), refused},
		{404, "{}", blocked},
		{301, "", blocked},
		{408, own("INVALID"), lost},
		{409, own("REPLACED"), replaced},
		{409, own("CONFLICT"), refused},
		{410, own("SESSION_GONE"), gone},
		{413, "too large", refused},
		{418, own("SOMETHING_NEW"), refused},
		{425, own("INVALID"), lost},
		{429, own("RATE_LIMITED"), busy},
		{500, own("INTERNAL"), lost},
		{500, own("SOMETHING_NEW"), lost},
		{502, "bad gateway", blocked},
		{503, own("UNAVAILABLE"), busy},
	} {
		f := answered(tc.status, http.Header{}, []byte(tc.body))
		if f == nil || f.ending != tc.want {
			t.Errorf("%d %s: got %+v, want %v", tc.status, tc.body, f, tc.want)
		}
	}
	if f := answered(201, http.Header{}, nil); f != nil {
		t.Errorf("201 is %v", f)
	}
	for value, want := range map[string]time.Duration{
		"": 0, "2": 2 * time.Second, "86400": mostHint, "Fri, 31 Dec 1999 23:59:59 GMT": 0,
	} {
		got := retryAfter(http.Header{"Retry-After": {value}})
		if got < want || got > want+time.Second {
			t.Errorf("Retry-After %q is %v, want %v", value, got, want)
		}
	}
}

func TestNew_refuses(t *testing.T) {
	token := func() (c Config) {
		c = Config{URL: "http://h", User: bob}
		c.Token = newBot(t, "http://h").cfg.Token
		return c
	}
	for name, edit := range map[string]func(*Config){
		"URL":        func(c *Config) { c.URL = "chat.example.com" },
		"User":       func(c *Config) { c.User = "a b" },
		"Token":      func(c *Config) { c.Token = nil },
		"Device":     func(c *Config) { c.Device = "a b" },
		"Transports": func(c *Config) { c.Transports = []Transport{"pigeon"} },
	} {
		cfg := token()
		edit(&cfg)
		_, err := New(cfg)
		if tidemark.CodeOf(err) != tidemark.Invalid || tidemark.ParamOf(err) != name {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c, err := New(token())
	if err != nil || c.base != "http://h/api/v1" || c.cfg.Device == "" {
		t.Errorf("got %+v, %v", c, err)
	}
}

// TestClient_does_not_bring_the_server: what imports the client gets neither the server nor a
// database.
func TestClient_does_not_bring_the_server(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tidemark-im/tidemark"
	var own []string
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, module) {
			own = append(own, name)
		}
		for _, other := range []string{"sqlite", "pgx", "aws", "redis", "echo", "prometheus"} {
			if strings.Contains(name, other) {
				t.Errorf("the client imports %s", name)
			}
		}
	}
	want := []string{module, module + "/internal/signal", module + "/client"}
	if slices.Sort(own); !slices.Equal(own, slices.Sorted(slices.Values(want))) {
		t.Errorf("the client imports %v of this module, want %v", own, want)
	}
}
