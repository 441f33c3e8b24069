package test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/reach/push/pushtest"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// manyRecipients is how many recipients TestPush_sends_beside_troubled_providers needs to measure.
const manyRecipients = 1_000

// TestPush_sends_beside_troubled_providers sends messages to users who are away, as many as
// TIDEMARK_PUSH_RECIPIENTS says. Their provider answers after five seconds, with 429, 410 or
// GOAWAY, or never. More sends are confirmed than requests to the provider have ended, so none
// waits for it.
//
// With 1,000 recipients or more, gateways and workers are processes of their own, on Postgres. Then
// the test logs what a send costs the gateway in CPU time, and its 99th percentile, beside those of
// a server without push, in alternating runs. All of them begin with a new gateway.
func TestPush_sends_beside_troubled_providers(t *testing.T) {
	t.Parallel() // Without many recipients it waits more than it works.
	n := fromEnvironment(t, "TIDEMARK_PUSH_RECIPIENTS", 30)
	fakes := startProviders(t)
	fakes.web.Do(func() {
		for i := range n {
			fakes.browser.Paths = append(fakes.browser.Paths, fmt.Sprint("/push/", i))
		}
	})
	with, without := startBeside(t, n, fakes), (*beside)(nil)
	if n >= manyRecipients {
		without = startBeside(t, n, nil)
	}
	with.register(t, fakes)
	with.active(t)
	for _, trouble := range []pushtest.Trouble{
		pushtest.Slow, pushtest.Busy, pushtest.GoAwayAfter, pushtest.Silent, pushtest.Gone,
	} {
		if without == nil && trouble != pushtest.Silent {
			continue
		}
		fakes.web.Script(slices.Repeat([]pushtest.Trouble{trouble}, 100*n)...)
		before, _ := fakes.web.Seen()
		with.send(t)
		eventually(t, "the provider is asked", func() bool {
			asked, _ := fakes.web.Seen()
			return asked > before
		}, func() string { return "it is not" })
		if without == nil {
			with.send(t)
			if ended := with.ended(t); ended > n/2 {
				t.Errorf("%d sends were confirmed, and %d requests to the provider have ended", n,
					ended)
			}
			continue
		}
		without.send(t) // So both know the chats and their members.
		plain, got := without.send(t), with.send(t)
		asked, _ := fakes.web.Seen()
		if refusals := fakes.web.Refusals(); len(refusals) > 0 {
			t.Errorf("the provider refused %d notifications: %s", len(refusals), refusals[0])
		}
		t.Logf("%s: %v with push, %v without: CPU %.2f, p99 %.2f of it; the provider was asked %d "+
			"times", trouble, got, plain, got.cpu/plain.cpu, float64(got.p99)/float64(plain.p99),
			asked-before)
		without.restart(t)
		with.restart(t)
		with.register(t, fakes)
	}
}

// beside is a server whose users are away.
type beside struct {
	// nodes are the gateway, and the worker if it is a process of its own.
	nodes []*process
	chats []string
	key   string
	round int
}

// startBeside starts a server with chats of alice and n others. fakes are its providers, or nil.
func startBeside(t *testing.T, n int, fakes *providers) *beside {
	t.Helper()
	binary := build(t)
	key, file := apiKey(t, binary, "--scope", "admin")
	b := &beside{nodes: []*process{processOf(t, binary)}, key: key}
	flags := []string{
		"--dev", "--api-keys-file", file, "--user-sends", "none", "--user-calls", "none",
		"--worker-timeout", "2s", "--public-metrics",
	}
	if fakes != nil {
		flags = append(flags, "--push-subject", "mailto:operator@tidemark.im")
	}
	b.nodes[0].flags = flags
	if n >= manyRecipients {
		b.nodes = append(b.nodes, processOf(t, binary))
		url, shared := postgres.Shared(t).Database(t), redis.Database(t)
		for i, p := range b.nodes {
			p.url, p.flags = url, append(flags[:len(flags):len(flags)], "--redis", shared,
				"--node", fmt.Sprint("n", i), "--roles", []string{"gateway", "worker"}[i])
		}
	}
	for _, p := range b.nodes {
		if fakes != nil {
			p.env = fakes.env
		}
		p.start()
	}
	b.chats = make([]string, n)
	alice := as(b.nodes[0].address, "alice")
	b.each(t, func(i int) {
		alice.quick(t, http.MethodPost, "/chats", map[string]any{
			"type": "group", "chat_id": fmt.Sprint("chat-", i),
			"member_ids": []string{fmt.Sprint("user-", i)},
		})
		b.chats[i] = fmt.Sprint("chat-", i)
	})
	return b
}

// restart restarts the nodes, so that nothing waits for a provider in memory.
func (b *beside) restart(t *testing.T) {
	t.Helper()
	for _, p := range b.nodes {
		p.stop()
		p.start()
	}
}

// besideClient keeps as many connections as there are senders.
var besideClient = &http.Client{
	Timeout: deadline, Transport: &http.Transport{MaxIdleConnsPerHost: besideSenders},
}

const besideSenders = 16

// quick is call without a comparison with openapi.yaml.
func (u user) quick(t *testing.T, method, path string, body any) {
	t.Helper()
	u.client = besideClient
	if status, answer, err := u.try(t.Context(), method, path, body); err != nil || status >= 300 {
		t.Errorf("%s %s was answered %d %s, %v", method, path, status, answer, err)
	}
}

// each calls do for each chat, besideSenders of them at once.
func (b *beside) each(t *testing.T, do func(i int)) {
	t.Helper()
	var running sync.WaitGroup
	for first := range besideSenders {
		running.Go(func() {
			for i := first; i < len(b.chats) && !t.Failed(); i += besideSenders {
				do(i)
			}
		})
	}
	running.Wait()
}

// register registers a browser of each user.
func (b *beside) register(t *testing.T, fakes *providers) {
	t.Helper()
	fakes.trust(t, as(b.nodes[0].address, "bob"))
	key := fakes.browser.Device.Key()
	keys := map[string]string{
		"p256dh": base64.RawURLEncoding.EncodeToString(key.Public().Bytes()),
		"auth":   base64.RawURLEncoding.EncodeToString(key.Auth()),
	}
	b.each(t, func(i int) {
		as(b.nodes[0].address, fmt.Sprint("user-", i)).quick(t, http.MethodPut,
			"/push/devices/browser", map[string]any{
				"platform": "webpush", "address": fmt.Sprint(fakes.web.URL, "/push/", i),
				"keys": keys,
			})
	})
}

// active waits until messages are notified.
func (b *beside) active(t *testing.T) {
	t.Helper()
	operator := user{name: "operator", url: "http://" + b.nodes[0].address, token: b.key}
	eventually(t, "the outlet push is active", func() bool {
		_, answer, err := operator.try(t.Context(), http.MethodGet, "/admin/outlets", nil)
		return err == nil && strings.Contains(string(answer), `"state":"active"`)
	}, func() string { return "it is not" })
}

// run is what sends took.
type run struct {
	// cpu is the CPU time of the gateway for each send, in microseconds.
	cpu float64
	p99 time.Duration
}

func (r run) String() string {
	return fmt.Sprintf("%.0f µs, p99 %v", r.cpu, r.p99.Round(10*time.Microsecond))
}

// send sends a message to each user, at most 400 a second.
func (b *beside) send(t *testing.T) run {
	t.Helper()
	b.round++
	took := make([]time.Duration, len(b.chats))
	alice := as(b.nodes[0].address, "alice")
	before := cpuOf(t, b.nodes[0].process.Pid)
	began := time.Now()
	b.each(t, func(i int) {
		<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / 400)))
		at := time.Now()
		alice.quick(t, http.MethodPost, "/chats/"+b.chats[i]+"/messages", map[string]any{
			"client_message_id": fmt.Sprint("m", b.round), "content": "a message",
		})
		took[i] = time.Since(at)
	})
	cpu := cpuOf(t, b.nodes[0].process.Pid) - before
	slices.Sort(took)
	return run{
		cpu: float64(cpu.Microseconds()) / float64(len(took)), p99: took[len(took)*99/100],
	}
}

// cpuOf returns the CPU time of a process.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks := 0
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

var retried = regexp.MustCompile(`(?m)^tidemark_push_notifications_total\{.*retried.*\} (\d+)`)

// ended returns how many requests to providers have failed or timed out.
func (b *beside) ended(t *testing.T) int {
	t.Helper()
	response, err := http.Get("http://" + b.nodes[len(b.nodes)-1].address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, match := range retried.FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(match[1]))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if !strings.Contains(string(text), "tidemark_push_notifications_total") {
		t.Errorf("the metrics have nothing about notifications: %s", text)
	}
	return total
}
