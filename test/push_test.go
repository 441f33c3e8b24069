package test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/pushtest"
	"github.com/tidemark-im/tidemark/reach/push/pushtest/fakeapns"
	"github.com/tidemark-im/tidemark/reach/push/pushtest/fakefcm"
	"github.com/tidemark-im/tidemark/reach/push/pushtest/fakewebpush"
	"github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// providers are fakes of all providers, which speak TLS and HTTP/2, and the flags of a server that
// notifies by them.
type providers struct {
	apns, fcm, web *pushtest.Server
	browser        *fakewebpush.WebPush
	flags, env     []string
}

const (
	appOfTests = "im.tidemark.test"
	tokenAPNs  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	tokenFCM   = "dGVzdA12345678901234_b"
)

func startProviders(t *testing.T) *providers {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	apple := &fakeapns.APNs{
		Key: &key.PublicKey, KeyID: "ABC123DEFG", TeamID: "DEF123GHIJ", Topic: appOfTests,
		Tokens: []string{tokenAPNs}, Device: pushtest.NewDevice(t),
	}
	google := fakefcm.New(t)
	google.Tokens, google.Device = []string{tokenFCM}, pushtest.NewDevice(t)
	p := &providers{
		browser: &fakewebpush.WebPush{
			Device: pushtest.NewDevice(t), Paths: []string{"/push/a"},
		},
		apns: pushtest.Start(t, apple), fcm: pushtest.Start(t, google),
	}
	p.web = pushtest.Start(t, p.browser)
	p.browser.Origin = p.web.URL

	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var roots []byte
	for _, s := range []*pushtest.Server{p.apns, p.fcm, p.web} {
		roots = append(roots, s.CA...)
	}
	p.env = []string{"SSL_CERT_FILE=" + file("roots.pem", roots), "SSL_CERT_DIR=" + dir}
	p.flags = []string{
		"--push-subject", "mailto:operator@tidemark.im",
		"--push-apns-key", file("key.p8",
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"--push-apns-key-id", apple.KeyID, "--push-apns-team-id", apple.TeamID,
		"--push-apns-app", appOfTests, "--push-apns-url", p.apns.URL,
		"--push-fcm-account", file("account.json", google.Account(t, p.fcm.URL)),
		"--push-fcm-url", p.fcm.URL,
	}
	return p
}

// trust restricts the subscription of the browser to the server's key, as browsers do, and returns
// the key.
func (p *providers) trust(t *testing.T, u user) string {
	t.Helper()
	var server struct {
		VAPID string `json:"vapid_public_key"`
	}
	u.call(t, http.MethodGet, "/push", nil, &server)
	point, err := base64.RawURLEncoding.DecodeString(server.VAPID)
	if err != nil {
		t.Fatal(err)
	}
	vapid, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		t.Fatal(err)
	}
	p.web.Do(func() { p.browser.Key = vapid })
	return server.VAPID
}

// register registers a phone without a key at each provider of phones, and a browser.
func (p *providers) register(t *testing.T, u user) {
	t.Helper()
	p.trust(t, u)
	key := p.browser.Device.Key()
	for device, body := range map[string]map[string]any{
		"iphone":  {"platform": "apns", "app": appOfTests, "address": tokenAPNs},
		"android": {"platform": "fcm", "address": tokenFCM},
		"browser": {"platform": "webpush", "address": p.web.URL + "/push/a",
			"keys": map[string]string{
				"p256dh": base64.RawURLEncoding.EncodeToString(key.Public().Bytes()),
				"auth":   base64.RawURLEncoding.EncodeToString(key.Auth()),
			}},
	} {
		u.call(t, http.MethodPut, "/push/devices/"+device, body, nil)
	}
}

// next waits until each provider got a banner of the messages up to a sequence, and returns the
// last one by provider. There is one banner, and if several messages began at a time, one more for
// each three seconds since.
func (p *providers) next(
	t *testing.T, through int64, began time.Time,
) map[string]pushtest.Received {
	t.Helper()
	last, count := p.last(t, through)
	each := 1
	if !began.IsZero() {
		each += int(time.Since(began) / (3 * time.Second))
	}
	if most := len(last) * each; count > most {
		t.Errorf("%d notifications came, want at most %d: %+v", count, most, last)
	}
	return last
}

// last waits for the same, and returns how many notifications came.
func (p *providers) last(
	t *testing.T, through int64,
) (last map[string]pushtest.Received, count int) {
	t.Helper()
	last = map[string]pushtest.Received{}
	servers := map[string]*pushtest.Server{"apns": p.apns, "fcm": p.fcm, "web": p.web}
	eventually(t, fmt.Sprint("all providers are told of message ", through), func() bool {
		told := 0
		for name, s := range servers {
			for _, r := range s.Received() {
				last[name] = r
				count++
			}
			if int64(last[name].To) == through {
				told++
			}
		}
		return told == len(servers)
	}, func() string {
		return fmt.Sprintf("%+v; refused: %v %v %v", last, p.apns.Refusals(), p.fcm.Refusals(),
			p.web.Refusals())
	})
	return last, count
}

// ticks opens a stream of a user, and returns what waits until it has told something.
func ticks(t *testing.T, u user) (until func(what string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+u.bearer())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer response.Body.Close()
		scan := bufio.NewScanner(response.Body)
		for scan.Scan() {
			lines <- scan.Text()
		}
	}()
	return func(what string) {
		t.Helper()
		for deadline := time.After(wait.Hang); ; {
			select {
			case line := <-lines:
				if strings.Contains(line, what) {
					return
				}
			case <-deadline:
				t.Fatalf("the stream has not told %s", what)
			}
		}
	}
}

// TestPush_write_flow takes messages from a send to the locked devices of somebody who never opens
// the app, by providers of all kinds: it is stored, Kafka is told, a pending row stands, each
// device has one banner of the chat, which the next message replaces, and the handler of a device
// acknowledges it without a login. The sender's tick turns, and the row goes. When it is read
// elsewhere, the banners go, too.
func TestPush_write_flow(t *testing.T) {
	t.Parallel() // It waits more than it works.
	binary := build(t)
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(*testing.T) string { return "" },
		"postgres": func(t *testing.T) string { return postgres.Shared(t).Database(t) },
		"dynamodb": func(t *testing.T) string { return dynamodb.Shared(t).Store(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fakes := startProviders(t)
			p := processOf(t, binary)
			p.url = url(t)
			key, file := apiKey(t, binary, "--scope", "admin")
			topics := kfake.MustCluster(
				kfake.SeedTopics(24, "tidemark.messages", "tidemark.state"))
			t.Cleanup(topics.Close)
			p.flags, p.env = append([]string{
				"--dev", "--api-keys-file", file,
				"--kafka", "kafka://" + strings.Join(topics.ListenAddrs(), ","),
			}, fakes.flags...), fakes.env
			p.start()
			alice, bob := as(p.address, "alice"), as(p.address, "bob")
			chat := alice.direct(t, "bob")
			fakes.register(t, bob)
			whenPushes(t, p, fakes, alice, chat)
			inKafka(t, user{name: "operator", url: alice.url, token: key})
			live := ticks(t, alice)

			first := alice.send(t, chat, "Lunch at one?")
			record := recordOf(t, topics, fmt.Sprint(first.Sequence))
			if !strings.Contains(string(record.Value), `"Lunch at one?"`) {
				t.Errorf("Kafka has %s", record.Value)
			}
			pending := func() (chats int) {
				var page struct{ Pending []struct{} }
				bob.call(t, http.MethodGet, "/pending", nil, &page)
				return len(page.Pending)
			}
			if n := pending(); n != 1 {
				t.Errorf("%d chats are pending for Bob, want 1", n)
			}
			banners := fakes.next(t, first.Sequence, time.Time{})
			for provider, b := range banners {
				if b.Kind != push.Banner || b.Title != "alice" || b.Body != "Lunch at one?" ||
					b.From != b.To || int64(b.To) != first.Sequence || b.Token == "" {
					t.Errorf("by %s: %+v", provider, b)
				}
			}
			// The handler on the phone acknowledges. The app is never opened.
			handler := user{url: alice.url, client: http.DefaultClient}
			handler.call(t, http.MethodPost, "/push/acks",
				map[string]string{"ack_token": banners["apns"].Token}, nil)
			// Alice is told of her own watermark, too.
			live(fmt.Sprintf(`"user_id":"bob","last_acked_sequence":%d`, first.Sequence))
			if n := pending(); n != 0 {
				t.Errorf("%d chats are pending after the acknowledgement", n)
			}

			began := time.Now()
			for n := range 50 {
				alice.send(t, chat, fmt.Sprint("message ", n))
			}
			last := fakes.next(t, first.Sequence+50, began)
			for provider, b := range last {
				if b.Name != banners[provider].Name || b.Body != "message 49" || b.Token != "" ||
					int64(b.From) != first.Sequence+1 {
					t.Errorf("by %s, after 50 messages: %+v", provider, b)
				}
			}
			// Without a token the handler syncs by its own login.
			bob.ack(t, chat, first.Sequence+50)
			live(fmt.Sprintf(`"user_id":"bob","last_acked_sequence":%d`, first.Sequence+50))
			// Bob reads it elsewhere.
			bob.call(t, http.MethodPatch, "/chats/"+chat+"/delivery-state",
				map[string]any{"last_read_sequence": first.Sequence + 50}, nil)
			fakes.clears(t, first.Sequence+50)
		})
	}
}

// inKafka creates an outlet in Kafka, and waits until it is active.
func inKafka(t *testing.T, operator user) {
	t.Helper()
	made := outletOf{}
	eventually(t, "the outlet in Kafka is created", func() bool {
		status, _, err := operator.try(t.Context(), http.MethodPost, "/admin/outlets",
			map[string]string{"type": "kafka", "outlet_id": "log", "url": "kafka:tidemark"})
		return err == nil && status < 300 // While another one is being created, it is refused.
	}, func() string { return "it is not" })
	eventually(t, "the outlet in Kafka is active", func() bool {
		operator.call(t, http.MethodGet, "/admin/outlets/log", nil, &made)
		return made.State == "active"
	}, func() string { return made.State })
}

// whenPushes waits until messages are pushed: the outlet needs some seconds to become active. Then
// Bob has received and read everything.
func whenPushes(t *testing.T, p *process, fakes *providers, alice user, chat string) {
	t.Helper()
	var last message
	eventually(t, "the server notifies", func() bool {
		last = alice.send(t, chat, fmt.Sprint("test at ", time.Now().UnixNano()))
		<-time.After(4 * time.Second)
		return len(fakes.web.Received()) > 0
	}, func() string { return "it does not" })
	last = alice.send(t, chat, "the last test")
	fakes.last(t, last.Sequence)
	as(p.address, "bob").call(t, http.MethodPatch, "/chats/"+chat+"/delivery-state",
		map[string]any{"last_acked_sequence": last.Sequence,
			"last_read_sequence": last.Sequence}, nil)
	fakes.clears(t, last.Sequence)
}

// clears waits until the phones are told that all was read, up to a sequence.
func (p *providers) clears(t *testing.T, through int64) {
	t.Helper()
	var got []pushtest.Received
	count := map[push.Kind]int{}
	eventually(t, fmt.Sprint("the phones clear message ", through), func() bool {
		for _, r := range append(p.apns.Received(), p.fcm.Received()...) {
			got = append(got, r)
			if r.Badge == 0 && (r.Kind != push.Clear || int64(r.To) == through) {
				count[r.Kind]++
			}
		}
		return count[push.Clear] >= 2 && count[push.Badge] >= 1 // a repeated one counts again
	}, func() string { return fmt.Sprintf("%+v", got) })
}

// TestPush_of_the_guide runs the commands of docs/push.md against the program.
func TestPush_of_the_guide(t *testing.T) {
	t.Parallel() // It waits more than it works.
	fakes := startProviders(t)
	p := newProcess(t)
	p.flags, p.env = append(p.flags, fakes.flags...), fakes.env
	p.start()
	alice, bob := as(p.address, "alice"), as(p.address, "bob")
	chat := alice.direct(t, "bob")
	vapid := fakes.trust(t, bob)
	key := fakes.browser.Device.Key()
	token := ""
	run := func(block string) string {
		t.Helper()
		command := exec.Command("sh", "-ec", block)
		command.Env = append(environment(), "API=http://"+p.address+"/api/v1", "TOKEN=dev:bob",
			"ENDPOINT="+fakes.web.URL+"/push/a",
			"P256DH="+base64.RawURLEncoding.EncodeToString(key.Public().Bytes()),
			"AUTH="+base64.RawURLEncoding.EncodeToString(key.Auth()), "ACK_TOKEN="+token)
		out, err := command.CombinedOutput()
		if err != nil || strings.Contains(string(out), `"status"`) {
			t.Fatalf("%s\n%v: %s", block, err, out)
		}
		return string(out)
	}
	commands := shellBlocks(guide(t, "push.md"))
	if len(commands) != 5 {
		t.Fatalf("the guide has %d commands, want 5", len(commands))
	}
	get, register, drop, settings, acknowledge := commands[0], commands[1], commands[2],
		commands[3], commands[4]
	run(register)
	if got := run(get); !strings.Contains(got, vapid) || !strings.Contains(got, `"laptop"`) {
		t.Errorf("where Bob is notified: %s", got)
	}
	var last message
	received := pushtest.Received{}
	eventually(t, "Bob is notified, with a token", func() bool {
		bob.call(t, http.MethodPatch, "/chats/"+chat+"/delivery-state",
			map[string]any{"last_acked_sequence": alice.send(t, chat,
				fmt.Sprint(time.Now().UnixNano())).Sequence}, nil)
		last = alice.send(t, chat, fmt.Sprint(time.Now().UnixNano()))
		<-time.After(5 * time.Second)
		for _, received = range fakes.web.Received() {
			token = received.Token
		}
		return token != "" && int64(received.To) == last.Sequence
	}, func() string { return fmt.Sprintf("%+v", received) })
	run(acknowledge)
	var state struct {
		Acked int64 `json:"last_acked_sequence"`
	}
	bob.call(t, http.MethodGet, "/chats/"+chat+"/delivery-state", nil, &state)
	if state.Acked != last.Sequence {
		t.Errorf("acknowledged up to %d, want %d", state.Acked, last.Sequence)
	}
	if got := run(settings); !strings.Contains(got, `"preview":"sender"`) {
		t.Errorf("the settings: %s", got)
	}
	run(drop)
	if got := run(get); strings.Contains(got, `"laptop"`) {
		t.Errorf("after the end of the registration: %s", got)
	}
}
