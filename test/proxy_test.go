package test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/test/wait"
)

// The configurations in deploy/ for nginx, Caddy and HAProxy in front of the real server. Only
// names, ports, certificates, limits of connections and the places of logs are replaced.

func TestProxy_nginx(t *testing.T) {
	p := newProxy(t)
	config := p.derive("../deploy/nginx/tidemark.conf", map[string]string{
		"listen 80;":            "listen " + freeAddress(t) + ";",
		"listen 443 ssl http2;": "listen " + p.address + " ssl http2;",
		"server 127.0.0.1:8080": "server " + p.site.address,
		"/etc/letsencrypt/live/chat.example.org/fullchain.pem": p.certificate,
		"/etc/letsencrypt/live/chat.example.org/privkey.pem":   p.key,
		"/var/log/nginx/": p.dir + "/",
	})
	main := "daemon off;\nworker_processes 1;\npid " + p.dir +
		"/nginx.pid;\nevents { worker_connections 256; }\nhttp {\n"
	if os.Getuid() == 0 {
		main = "user root root;\n" + main // the directories of a test are for their owner
	}
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		main += kind + "_temp_path " + p.dir + "/" + kind + ";\n"
	}
	p.write("nginx.conf", main+"include "+config+";\n}\n")
	p.run("nginx", "-e", "stderr", "-p", p.dir, "-c", filepath.Join(p.dir, "nginx.conf"))
	p.waitsLongerThanTidemark(config, "proxy_read_timeout", "proxy_send_timeout")
	p.serves()
}

func TestProxy_caddy(t *testing.T) {
	p := newProxy(t)
	config := p.derive("../deploy/caddy/Caddyfile", map[string]string{
		"\n{\n": "\n{\n\tadmin off\n\tauto_https disable_redirects\n" +
			"\tdefault_bind 127.0.0.1\n",
		"chat.example.org {": "https://" + p.address +
			" {\n\ttls " + p.certificate + " " + p.key + "\n",
		"127.0.0.1:8080":  p.site.address,
		"/var/log/caddy/": p.dir + "/",
	})
	p.run("caddy", "run", "--adapter", "caddyfile", "--config", config)
	p.waitsLongerThanTidemark(config, "response_header_timeout")
	p.serves()
}

func TestProxy_haproxy(t *testing.T) {
	p := newProxy(t)
	p.down = http.StatusServiceUnavailable
	chain, err := os.ReadFile(p.certificate)
	must(t, err)
	key, err := os.ReadFile(p.key)
	must(t, err)
	config := p.derive("../deploy/haproxy/haproxy.cfg", map[string]string{
		"maxconn 20000":                     "maxconn 1000",
		"log /dev/log local0":               "log stdout format raw local0",
		"bind :80":                          "bind " + freeAddress(t),
		"bind :443 ":                        "bind " + p.address + " ",
		"/etc/haproxy/chat.example.org.pem": p.write("both.pem", string(chain)+string(key)),
		"server tidemark 127.0.0.1:8080 ":   "server tidemark " + p.site.address + " ",
	})
	p.run("haproxy", "-db", "-f", config)
	p.waitsLongerThanTidemark(config, "timeout client", "timeout server", "timeout tunnel")
	p.serves()
}

// proxy is a proxy in front of a site.
type proxy struct {
	t       *testing.T
	site    *site
	dir     string
	scheme  string
	address string
	log     *output
	client  *http.Client
	down    int // the status of an answer while nothing is behind the proxy

	certificate, key string // files
}

func newProxy(t *testing.T) *proxy {
	p := &proxy{
		t:       t,
		site:    newSite(t, "--public-metrics", "--attachments", "dir:"),
		dir:     t.TempDir(),
		scheme:  "https",
		address: freeAddress(t),
		log:     &output{},
		down:    http.StatusBadGateway,
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(),
		private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	p.certificate = p.write("chain.pem", string(chain))
	p.key = p.write("key.pem", string(pem.EncodeToMemory(&pem.Block{
		Type:  "PRIVATE KEY",
		Bytes: key,
	})))
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(chain)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: trusted},
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	p.client = &http.Client{Transport: transport}
	return p
}

func (p *proxy) write(name, content string) (path string) {
	p.t.Helper()
	path = filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// derive writes the configuration with words replaced; each word must occur.
func (p *proxy) derive(path string, words map[string]string) (derived string) {
	p.t.Helper()
	config, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	text := string(config)
	for from, to := range words {
		if !strings.Contains(text, from) {
			p.t.Fatalf("%s does not say %q", path, from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return p.write(filepath.Base(path), text)
}

// run starts the proxy until the test ends, and returns when it answers.
func (p *proxy) run(program string, args ...string) {
	p.t.Helper()
	cmd := exec.Command(unpacked(p.t, program), args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "HOME="+p.dir, "XDG_DATA_HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(wait.Hang):
			_ = cmd.Process.Kill()
			<-ended
			p.t.Errorf("%s did not end within 20 s of SIGTERM", program)
		}
		if p.t.Failed() {
			p.t.Logf("the log of %s:\n%s", program, p.log.String())
		}
	})
	until(p.t, program+" answers", func() bool {
		response, err := p.client.Get(p.url() + "/healthz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, p.log.String)
}

// unpacked returns the path of a program that scripts/unpack has found or unpacked.
func unpacked(t *testing.T, program string) string {
	t.Helper()
	for _, place := range []string{
		program, "/usr/sbin/" + program,
		"../.build/debian/usr/sbin/" + program, "../.build/debian/usr/bin/" + program,
	} {
		if path, err := exec.LookPath(place); err == nil {
			if path, err = filepath.Abs(path); err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	t.Fatalf("%s is missing. Run this, then the test again:\n  scripts/unpack %s %s",
		program, program, program)
	return ""
}

func (p *proxy) url() string { return p.scheme + "://" + p.address }

// waitsLongerThanTidemark reads timeouts in seconds from a configuration.
func (p *proxy) waitsLongerThanTidemark(config string, names ...string) {
	p.t.Helper()
	const longestPoll = 50 // docs/limits.md; serves checks a stream's heartbeat
	text, err := os.ReadFile(config)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, name := range names {
		found := regexp.MustCompile(`(?m)^\s*` + name + `\s+(\d+)s\b`).FindSubmatch(text)
		if found == nil {
			p.t.Errorf("%s does not set %s in seconds", config, name)
			continue
		}
		if got, _ := strconv.Atoi(string(found[1])); got < longestPoll+10 {
			p.t.Errorf("%s is %d s, want at least 10 s more than the longest poll, %d s",
				name, got, longestPoll)
		}
	}
}

// serves checks everything that the proxy could break, and at the end stops the server behind it.
func (p *proxy) serves() {
	t := p.t
	alice, bob := p.site.user("alice", p.url(), p.client), p.site.user("bob", p.url(), p.client)
	chat := alice.direct(t, "bob")
	var tickets []string
	ticket := func(u user) string {
		var answer struct{ Ticket string }
		u.call(t, http.MethodPost, "/tickets", map[string]any{}, &answer)
		tickets = append(tickets, answer.Ticket)
		return answer.Ticket
	}

	t.Run("a request keeps its id and a browser gets HTTP2", func(t *testing.T) {
		response, _ := p.ask(t, alice, http.MethodGet, "/api/v1/chats", "", "mine-1")
		if got := response.Header.Get("X-Request-ID"); got != "mine-1" || response.ProtoMajor != 2 {
			t.Errorf("X-Request-ID %q over %s, want mine-1 over HTTP/2.0", got, response.Proto)
		}
		response, _ = p.ask(t, alice, http.MethodGet, "/api/v1/chats", "", "")
		id := response.Header.Get("X-Request-ID")
		until(t, "the proxy's log has the id "+id,
			func() bool { return len(id) >= 10 && strings.Contains(p.logs(), id) }, p.logs)
	})
	t.Run("the page is there and the metrics are not", func(t *testing.T) {
		for path, want := range map[string]int{"/": 200, "/readyz": 200, "/metrics": 404} {
			response, _ := p.ask(t, alice, http.MethodGet, path, "", "")
			if response.StatusCode != want {
				t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
			}
		}
	})
	t.Run("a large body is refused", func(t *testing.T) { p.refusesLargeBodies(t, alice, chat) })
	t.Run("one session goes over all transports",
		func(t *testing.T) {
			p.carriesASession(t, alice, bob, chat,
				func() string { return ticket(bob) })
		})
	t.Run("its own page opens a socket and no other", func(t *testing.T) {
		// Tidemark compares the Origin with the Host. So the proxy must pass the Host on, with its
		// port.
		for origin, want := range map[string]websocket.StatusCode{
			p.url(): -1, "https://evil.example": 4403,
		} {
			conn, _, err := websocket.Dial(t.Context(), p.url()+"/api/v1/ws?ticket="+ticket(bob),
				&websocket.DialOptions{
					HTTPClient:   p.client,
					Subprotocols: []string{"tidemark.v1"},
					HTTPHeader:   http.Header{"Origin": {origin}},
				})
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = conn.Read(t.Context())
			if got := websocket.CloseStatus(err); got != want {
				t.Errorf("a page of %s: close code %d, want %d: %v", origin, got, want, err)
			}
			_ = conn.CloseNow()
		}
	})
	t.Run("a file goes up and down", func(t *testing.T) {
		tickets = append(tickets, p.carriesAFile(t, alice, bob, chat))
	})

	p.site.stop()
	response, _ := p.ask(t, alice, http.MethodGet, "/api/v1/events?ticket="+strayTicket, "", "")
	if response.StatusCode != p.down {
		t.Errorf("without the server: %s, want %d", response.Status, p.down)
	}
	p.logsNoSecret(append(tickets, strayTicket, alice.token, bob.token))
}

// strayTicket looks like a ticket, and arrives while Tidemark is down.
const strayTicket = "a-ticket-that-nobody-takes"

// ask makes one request with an id, if one is given, and returns the answer with its whole body.
func (p *proxy) ask(t *testing.T, u user, method, path, body, id string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, p.url()+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+u.bearer())
	request.Header.Set("Content-Type", "application/json")
	if id != "" {
		request.Header.Set("X-Request-ID", id)
	}
	response, err := p.client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response, string(answer)
}

// refusesLargeBodies: Tidemark refuses bodies above its limit, with a code. The proxy refuses those
// far above.
func (p *proxy) refusesLargeBodies(t *testing.T, u user, chat string) {
	for _, tc := range []struct {
		name string
		size int
		want string // in the answer
	}{{"by Tidemark", 200 << 10, `"code":"`}, {"by the proxy", 4 << 20, ""}} {
		body := `{"client_message_id":"large","content":"` + strings.Repeat("x", tc.size) + `"}`
		// A proxy sometimes answers 502 if Tidemark closes the connection during a request.
		for range 20 {
			response, answer := p.ask(t, u, http.MethodPost, "/api/v1/chats/"+chat+"/messages",
				body, "")
			if response.StatusCode != http.StatusRequestEntityTooLarge ||
				!strings.Contains(answer, tc.want) {
				t.Errorf("%s: %s: %s, want 413 and %q", tc.name, response.Status, answer, tc.want)
			}
		}
	}
}

// carriesASession opens a session over a WebSocket, continues it over SSE, then long-poll, then a
// WebSocket again. Alice sends during each transport and between them.
func (p *proxy) carriesASession(t *testing.T, alice, bob user, chat string, ticket func() string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*deadline)
	defer cancel()
	var want, got []string
	send := func() {
		want = append(want, fmt.Sprint("message ", len(want)+1))
		alice.send(t, chat, want[len(want)-1])
	}
	dial := func(query string) *websocket.Conn {
		conn, _, err := websocket.Dial(ctx, p.url()+"/api/v1/ws?ticket="+ticket()+query,
			&websocket.DialOptions{HTTPClient: p.client, Subprotocols: []string{"tidemark.v1"}})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	read := func(conn *websocket.Conn) (after int64) {
		f, m := next(t, conn, "message", func(message) bool { return true })
		got = append(got, m.Content)
		return f.ID
	}

	socket := dial("")
	_, opened := next(t, socket, "session", func(open) bool { return true })
	send()
	after := read(socket)
	_ = socket.CloseNow()
	send() // while no transport is open

	// SSE: pending messages arrive at once. Later ones arrive when they are sent, not when a buffer
	// is full.
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		p.url()+"/api/v1/events?ticket="+ticket(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Last-Event-ID", fmt.Sprintf("%s.%d", opened.Session, after))
	stream, err := p.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	events := lines(stream.Body)
	eventsUntil(t, events, &after, &got, len(want), 55)
	least := wait.Hang // of three: the machine may stand still during one
	for range 3 {
		send()
		sent := time.Now()
		eventsUntil(t, events, &after, &got, len(want), 55)
		least = min(least, time.Since(sent))
	}
	if least > 5*time.Second {
		t.Errorf("every event took %v and more: they were buffered", least)
	}
	stream.Body.Close()
	send()

	// Long-poll: one answer with pending messages, one that waits in vain, one that waits for a
	// message.
	poll := func(seconds int) (took time.Duration) {
		var answer struct {
			Events []struct {
				ID      int64
				Type    string
				Payload message
			}
		}
		began := time.Now()
		bob.call(t, http.MethodGet,
			fmt.Sprintf("/poll?session_id=%s&after_event_id=%d&wait_seconds=%d",
				opened.Session, after, seconds), nil, &answer)
		for _, e := range answer.Events {
			after = max(after, e.ID)
			if e.Type == "message" {
				got = append(got, e.Payload.Content)
			}
		}
		return time.Since(began)
	}
	for len(got) < len(want) && ctx.Err() == nil {
		poll(0)
	}
	for ctx.Err() == nil { // the remaining events may be statuses
		if poll(1) >= time.Second {
			break
		}
	}
	want = append(want, fmt.Sprint("message ", len(want)+1))
	text, done := want[len(want)-1], make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() { defer close(done); alice.send(t, chat, text) })
	for len(got) < len(want) {
		if poll(50) > wait.Hang {
			t.Error("a poll did not end with a message")
			break
		}
	}
	<-done

	socket = dial(fmt.Sprintf("&session_id=%s&after_event_id=%d", opened.Session, after))
	defer socket.CloseNow()
	_, again := next(t, socket, "session", func(open) bool { return true })
	if again.Session != opened.Session || !again.Resumed {
		t.Errorf("the last socket: session %s, resumed %v, want %s, true",
			again.Session, again.Resumed, opened.Session)
	}
	send()
	read(socket)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages, in order and once (-want +got):\n%s", diff)
	}
}

// lines sends the lines of a stream until it ends.
func lines(stream io.Reader) <-chan string {
	to := make(chan string, 1000)
	go func() { // ends with the stream, which its reader closes
		defer close(to)
		for scanner := bufio.NewScanner(stream); scanner.Scan(); {
			to <- scanner.Text()
		}
	}()
	return to
}

// eventsUntil reads Server-Sent Events until there are n messages. The heartbeat that the stream
// announces must be below the limit in seconds.
func eventsUntil(
	t *testing.T, events <-chan string, after *int64, messages *[]string, n, limit int,
) {
	t.Helper()
	timeout := time.After(deadline)
	for len(*messages) < n {
		select {
		case <-timeout:
			t.Fatalf("%d messages came over SSE, want %d", len(*messages), n)
		case line, more := <-events:
			if !more {
				t.Fatal("the stream ended")
			}
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				_, number, _ := strings.Cut(id, ".")
				*after, _ = strconv.ParseInt(number, 10, 64)
			}
			var payload struct {
				Sequence  int64
				Content   string
				Heartbeat int `json:"heartbeat_seconds"`
			}
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok || json.Unmarshal([]byte(data), &payload) != nil {
				continue
			}
			if payload.Sequence > 0 && payload.Content != "" {
				*messages = append(*messages, payload.Content)
			}
			if payload.Heartbeat > limit {
				t.Errorf("the heartbeat is %d s, which a proxy that waits %d s may not see",
					payload.Heartbeat, limit)
			}
		}
	}
}

// logsNoSecret checks that no log contains a ticket or token, and that the logs contain every
// stream.
func (p *proxy) logsNoSecret(secrets []string) {
	p.t.Helper()
	// The proxy logs a stream some time after it ends.
	named := func() bool {
		return strings.Contains(p.logs(), "/api/v1/events") &&
			strings.Contains(p.logs(), "/api/v1/ws")
	}
	until(p.t, "the logs name the streams", named, p.logs)
	logs := p.logs()
	for _, secret := range secrets {
		if strings.Contains(logs, secret) {
			p.t.Errorf("the logs hold a ticket or token: %s", secret)
		}
	}
}

// logs returns every log that the proxy wrote, and its standard output and error.
func (p *proxy) logs() string {
	files, err := filepath.Glob(filepath.Join(p.dir, "*.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	logs := p.log.String()
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		logs += string(content)
	}
	return logs
}
