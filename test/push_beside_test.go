package test

import (
	"cmp"
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/reach/push/pushtest"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// manyRecipients is how many recipients TestPush_sends_beside_troubled_providers needs to measure.
const manyRecipients = 1_000

// TestPush_sends_beside_troubled_providers sends messages to users who are away, as many as
// TIDEMARK_PUSH_RECIPIENTS says. Their provider never answers. More sends are confirmed than
// requests to the provider have ended, so none waits for it.
//
// With 1,000 recipients or more, the test measures what sends cost (measure).
func TestPush_sends_beside_troubled_providers(t *testing.T) {
	t.Parallel() // Without many recipients it waits more than it works.
	n := fromEnvironment(t, "TIDEMARK_PUSH_RECIPIENTS", 30)
	fakes := startProviders(t)
	fakes.web.Do(func() {
		for i := range n {
			fakes.browser.Paths = append(fakes.browser.Paths, fmt.Sprint("/push/", i))
		}
	})
	with := startBeside(t, n, fakes)
	with.register(t, fakes)
	with.active(t)
	if n >= manyRecipients {
		measure(t, fakes, with, startBeside(t, n, nil))
		return
	}
	with.trouble(t, fakes, pushtest.Silent)
	with.send(t)
	with.asked(t, fakes, 0)
	with.send(t)
	if ended := with.ended(t); ended > n/2 {
		t.Errorf("%d sends were confirmed, and %d requests to the provider have ended", n, ended)
	}
}

const (
	// besideRounds is how often both servers are measured with each trouble, by besideSends sends
	// to each of them.
	besideRounds = 9
	besideSends  = 1_000
	// besideRate is how many sends each server gets in a second.
	besideRate = 200
	// besideRest is for how long it is looked whether the worker works.
	besideRest = 5 * time.Second
)

// measure logs what a send costs the gateway in CPU time, and its 99th percentile, beside those of
// a server without push. The provider first accepts all. Then a notification of each user waits for
// it, and it never answers, answers 429 or GOAWAY, or after five seconds, or 410.
//
// Gateways and workers are processes of their own, on Postgres. The sends to both servers alternate
// one by one, so both meet the same other programs, and the same work of the worker beside the
// sends. What the worker takes for each send is logged, too.
func measure(t *testing.T, fakes *providers, with, without *beside) {
	t.Helper()
	with.send(t) // So both know the chats and their members.
	without.send(t)
	var one, other []run
	for range besideRounds {
		a, b := alternate(t, without, without)
		one, other = append(one, a), append(other, b)
	}
	t.Logf("without push, and the same again: p99 %s", compare(one, other, p99))
	for i, trouble := range []pushtest.Trouble{
		pushtest.OK, pushtest.Silent, pushtest.Busy, pushtest.GoAwayAfter, pushtest.Slow,
		pushtest.Gone,
	} {
		before := with.trouble(t, fakes, trouble)
		switch {
		case i == 1: // What waits then, is sent again to each later trouble.
			with.send(t)
		case i > 1:
			with.restart(t)
		}
		if i > 0 {
			with.asked(t, fakes, before)
		}
		with.quiet(t)
		began, worker := time.Now(), with.worker(t)
		var got, plain []run
		for range besideRounds {
			one, other := alternate(t, with, without)
			got, plain = append(got, one), append(plain, other)
		}
		with.quiet(t)
		worker = with.worker(t) - worker
		asked, _ := fakes.web.Seen()
		if refusals := fakes.web.Refusals(); len(refusals) > 0 {
			t.Errorf("the provider refused %d notifications: %s", len(refusals), refusals[0])
		}
		t.Logf("%s: CPU of a send %s; p99 %s; CPU of the worker %.0f µs for each send; the "+
			"provider was asked %d times; %v", cmp.Or(trouble, "accepts all"),
			compare(got, plain, cpuOfSend), compare(got, plain, p99),
			float64(worker.Microseconds())/(besideRounds*besideSends), asked-before,
			time.Since(began).Round(time.Second))
	}
}

// alternate sends messages to both servers in turn, and returns what they took.
func alternate(t *testing.T, with, without *beside) (one, other run) {
	t.Helper()
	servers := [2]*beside{with, without}
	var cpu [2]time.Duration
	var took [2][]time.Duration
	for s, b := range servers {
		cpu[s], took[s] = cpuOf(t, b.nodes[0].process.Pid), make([]time.Duration, besideSends)
	}
	began := time.Now()
	each(t, besideSends, func(i int) {
		<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / besideRate)))
		for s := range servers {
			s = (s + i) % 2
			took[s][i] = servers[s].message(t)
		}
	})
	for s, b := range servers {
		cpu[s] = cpuOf(t, b.nodes[0].process.Pid) - cpu[s]
	}
	return run{cpu[0], took[0]}, run{cpu[1], took[1]}
}

// compare returns a figure of all runs with and without push, their ratio, and the least, the
// median and the greatest ratio of single runs.
func compare(with, without []run, figure func(...run) float64) string {
	var ratios []float64
	for i := range with {
		ratios = append(ratios, figure(with[i])/figure(without[i]))
	}
	slices.Sort(ratios)
	a, b := figure(with...), figure(without...)
	return fmt.Sprintf("%.0f µs, without push %.0f µs, ratio %.2f (single runs %.2f to %.2f, "+
		"median %.2f)", a, b, a/b, ratios[0], ratios[len(ratios)-1], ratios[len(ratios)/2])
}

// cpuOfSend returns the CPU time of the gateway for each send, in microseconds.
func cpuOfSend(runs ...run) float64 {
	var sum time.Duration
	sends := 0
	for _, r := range runs {
		sum, sends = sum+r.cpu, sends+len(r.took)
	}
	return float64(sum.Microseconds()) / float64(sends)
}

// p99 returns the time in microseconds in which 99 of 100 sends were confirmed.
func p99(runs ...run) float64 {
	var all []time.Duration
	for _, r := range runs {
		all = append(all, r.took...)
	}
	slices.Sort(all)
	return float64(all[len(all)*99/100].Microseconds())
}

// beside is a server whose users are away.
type beside struct {
	// nodes are the gateway, and the worker if it is a process of its own.
	nodes []*process
	chats []string
	key   string
	// sent counts messages.
	sent atomic.Int64
}

// startBeside starts a server with chats of alice and n others. fakes are its providers, or nil.
func startBeside(t *testing.T, n int, fakes *providers) *beside {
	t.Helper()
	binary := build(t)
	key, file := apiKey(t, binary, "--scope", "admin")
	b := &beside{nodes: []*process{processOf(t, binary)}, key: key}
	flags := []string{
		"--dev", "--api-keys-file", file, "--user-sends", "none", "--user-calls", "none",
		"--worker-timeout", "3s", "--public-metrics",
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
	each(t, len(b.chats), func(i int) {
		alice.quick(t, http.MethodPost, "/chats", map[string]any{
			"type": "group", "chat_id": fmt.Sprint("chat-", i),
			"member_ids": []string{fmt.Sprint("user-", i)},
		})
		b.chats[i] = fmt.Sprint("chat-", i)
	})
	return b
}

// trouble says how the provider answers from now on, and returns how often it was asked.
func (b *beside) trouble(t *testing.T, fakes *providers, trouble pushtest.Trouble) (asked int) {
	t.Helper()
	if fakes.web.Script(); trouble != pushtest.OK {
		fakes.web.Script(slices.Repeat([]pushtest.Trouble{trouble}, 100*len(b.chats))...)
	}
	asked, _ = fakes.web.Seen()
	return asked
}

// asked waits until the provider was asked more often than before.
func (b *beside) asked(t *testing.T, fakes *providers, before int) {
	t.Helper()
	eventually(t, "the provider is asked", func() bool {
		asked, _ := fakes.web.Seen()
		return asked > before
	}, func() string { return "it is not" })
}

// restart restarts the worker. It forgets how the provider has answered, and notifies again of what
// waits.
func (b *beside) restart(t *testing.T) {
	t.Helper()
	p := b.nodes[len(b.nodes)-1]
	p.stop()
	p.start()
}

// worker returns the CPU time of the worker.
func (b *beside) worker(t *testing.T) time.Duration {
	t.Helper()
	return cpuOf(t, b.nodes[len(b.nodes)-1].process.Pid)
}

// quiet waits until the worker has done what it can do now, for two minutes at most: a slow
// provider goes on to answer.
func (b *beside) quiet(t *testing.T) {
	t.Helper()
	for range 2 * time.Minute / besideRest {
		before := b.worker(t)
		<-time.After(besideRest)
		if b.worker(t)-before < besideRest/10 {
			return
		}
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

// each calls do n times, besideSenders of them at once.
func each(t *testing.T, n int, do func(i int)) {
	t.Helper()
	var running sync.WaitGroup
	for first := range besideSenders {
		running.Go(func() {
			for i := first; i < n && !t.Failed(); i += besideSenders {
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
	each(t, len(b.chats), func(i int) {
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

// run is what sends took: the CPU time of the gateway, and how long each was not confirmed.
type run struct {
	cpu  time.Duration
	took []time.Duration
}

// send sends a message to each user.
func (b *beside) send(t *testing.T) {
	t.Helper()
	each(t, len(b.chats), func(int) { b.message(t) })
}

// message sends a message to the next user, and returns how long that took.
func (b *beside) message(t *testing.T) time.Duration {
	t.Helper()
	n := int(b.sent.Add(1))
	began := time.Now()
	as(b.nodes[0].address, "alice").quick(t, http.MethodPost,
		"/chats/"+b.chats[n%len(b.chats)]+"/messages", map[string]any{
			"client_message_id": fmt.Sprint("m", n), "content": "a message",
		})
	return time.Since(began)
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
