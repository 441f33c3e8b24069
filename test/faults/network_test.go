package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// network is a proxy between the nodes and Postgres.
type network struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
	added int
}

// through starts a proxy, and returns it with the URL that leads through it.
func through(t *testing.T, at string) (*network, string) {
	t.Helper()
	u, err := url.Parse(at)
	must(t, err)
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil),
		zerolog.Nop()), "postgres", "127.0.0.1:0", u.Host)
	must(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	_, port, err := net.SplitHostPort(proxy.Listen)
	must(t, err)
	u.Host = net.JoinHostPort("127.0.0.1", port)
	return &network{t: t, proxy: proxy}, u.String()
}

// toxic adds a fault for what flows to Postgres (upstream) or from it (downstream). remove removes
// it.
func (n *network) toxic(kind, stream, attributes string) (remove func()) {
	n.t.Helper()
	n.added++
	name := fmt.Sprint(kind, n.added)
	toxic := fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"attributes":{%s}}`,
		name, kind, stream, attributes)
	_, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	must(n.t, err)
	return func() { must(n.t, n.proxy.Toxics.RemoveToxic(n.t.Context(), name)) }
}

// messagesBetween is how many messages are confirmed between two faults. A sender learns only then
// that an earlier call has stored their message.
const messagesBetween = 10

func TestFault_network(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// during adds faults, and removes them.
		during func(n *network, random *rand.Rand)
		// fired reports whether callers have met the fault.
		fired func(h *history) bool
	}{
		{"connections reset in mid-statement", func(n *network, random *rand.Rand) {
			remove := n.toxic("reset_peer",
				[]string{"upstream", "downstream"}[random.IntN(2)], `"timeout":0`)
			// The fault lasts longer than the store repeats a call.
			<-time.After(time.Duration(1500+random.IntN(1000)) * time.Millisecond)
			remove()
		}, func(h *history) bool { return h.refused > 0 }},
		{"replies of committed statements lost", func(n *network, random *rand.Rand) {
			// The request gets through. Of the reply, nothing or only the beginning does.
			remove := n.toxic("limit_data", "downstream",
				fmt.Sprintf(`"bytes":%d`, random.IntN(2)*random.IntN(2000)))
			<-time.After(2500 * time.Millisecond)
			remove()
		}, func(h *history) bool { return h.ambiguous > 0 }},
		{"requests cut in their middle", func(n *network, random *rand.Rand) {
			remove := n.toxic("limit_data", "upstream",
				fmt.Sprintf(`"bytes":%d`, 500+random.IntN(3000)))
			<-time.After(2 * time.Second)
			remove()
		}, func(h *history) bool { return h.refused > 0 }},
		{"300 ms of latency, more or less", func(n *network, _ *rand.Rand) {
			remove := n.toxic("latency", "downstream", `"latency":300,"jitter":200`)
			<-time.After(2 * time.Second)
			remove()
		}, func(h *history) bool { return h.slowest > 300*time.Millisecond }},
		{"a black hole", func(n *network, random *rand.Rand) {
			remove := n.toxic("timeout",
				[]string{"upstream", "downstream"}[random.IntN(2)], `"timeout":0`)
			<-time.After(time.Duration(5500+random.IntN(1000)) * time.Millisecond)
			remove()
		}, func(h *history) bool { return h.refused > 0 && h.slowest > 900*time.Millisecond }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			network, at := through(t, database(t, service.Start(t)))
			h := newHistory(t, nodes(t, at)...)
			times := 0
			h.runAndReport(func() {
				met := func() bool {
					h.mu.Lock()
					defer h.mu.Unlock()
					return tc.fired(h)
				}
				times = h.repeatUntil(met, func(random *rand.Rand) {
					tc.during(network, random)
					h.confirms(messagesBetween)
				}, 100*time.Millisecond, 500*time.Millisecond)
			})
			t.Logf("%d times", times)
		})
	}
}
