package transports_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	"github.com/tidemark-im/tidemark/server/registry"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/metered"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/sse"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// nodes are nodes of one process that share a store, a registry and a bus.
type nodes struct {
	t        *testing.T
	store    storage.Store
	registry *registrymemory.Registry
	bus      *local.Bus
	keys     *auth.APIKeys
	key      string
	contract *apitest.Contract
}

// statsNode is a node with its own HTTP server.
type statsNode struct {
	*nodes
	core  *server.Server
	meter *metered.Meter
	url   string
}

func newNodes(t *testing.T) *nodes {
	t.Helper()
	w := &nodes{
		t: t, store: stores.Open(t), registry: registrymemory.New(), bus: local.New(),
		contract: apitest.Load(t),
	}
	w.key, w.keys = transporttest.APIKey(t, auth.ScopeStats)
	return w
}

// node starts a node. It finds the others within two seconds, and lives through a stall of four.
func (w *nodes) node(id tidemark.NodeID) *statsNode {
	w.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	core, err := server.New(server.Config{
		Storage: w.store, Registry: w.registry, Nodes: w.registry, Bus: w.bus, Node: id,
		Logger: quiet, NodeTTL: 6 * time.Second,
	})
	if err == nil {
		err = core.Start(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	n := &statsNode{nodes: w, core: core, meter: metered.New(quiet)}
	credentials := auth.New(auth.Config{Dev: true, APIKeys: w.keys})
	gate := limit.NewGate(limit.GateConfig{})
	events := sse.New(sse.Config{Server: core, Auth: credentials, Gate: gate})
	handler, err := transports.New(transports.Config{
		Server: core, Auth: credentials, Events: events.Handle, Version: "v-" + string(id),
		Counters:   []transports.CounterFunc{events.Counters, gate.Counters},
		Collectors: []prometheus.Collector{n.meter}, Logger: quiet,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	n.url = "http://" + listener.Addr().String() + transports.BasePath
	front, ctx, cancel := handler.HTTPServer(""), context.Background(), context.CancelFunc(nil)
	ctx, cancel = context.WithCancel(ctx)
	ended := make(chan struct{}, 2)
	go func() {
		_ = front.Serve(listener)
		ended <- struct{}{}
	}()
	go func() {
		handler.Run(ctx)
		ended <- struct{}{}
	}()
	w.t.Cleanup(func() {
		within, done := context.WithTimeout(context.Background(), wait.Hang)
		defer done()
		for _, stop := range []func(context.Context) error{
			events.Shutdown, front.Shutdown, core.Stop,
		} {
			if err := stop(within); err != nil {
				w.t.Errorf("stopping %s: %v", id, err)
			}
		}
		cancel()
		<-ended
		<-ended
	})
	return n
}

// call makes a call and compares it with the contract. who is a user, or "" for the operator.
func (n *statsNode) call(who, method, path, body string) []byte {
	n.t.Helper()
	credentials := "dev:" + who
	if who == "" {
		credentials = n.key
	}
	r, err := http.NewRequestWithContext(wait.Context(n.t), method, n.url+path,
		strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + credentials}}
	res, err := n.contract.Transport(n.t, http.DefaultTransport).RoundTrip(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		n.t.Fatalf("%s %s: %d %s, %v", method, path, res.StatusCode, text, err)
	}
	return text
}

// statsTotals are the figures that tests compare.
type statsTotals struct {
	Connections map[string]int64 `json:"connections"`
	Sessions    int64            `json:"sessions"`
	Connected   int64            `json:"sessions_connected"`
	Sends       int64            `json:"sends_total"`
	Duplicates  int64            `json:"sends_duplicate_total"`
	Deliveries  int64            `json:"deliveries_total"`
	Acks        int64            `json:"acks_total"`
	Moved       int64            `json:"advances_moved_total"`
	Marks       int64            `json:"pending_rows_written_total"`
	Clears      int64            `json:"pending_rows_cleared_total"`
	RetryQueue  int64            `json:"retry_queue"`
	CatchUps    int64            `json:"catch_ups"`
	Waiting     int64            `json:"catch_ups_waiting"`
	Commits     struct {
		Count int64
		P50   *int64 `json:"p50_microseconds"`
		P99   *int64 `json:"p99_microseconds"`
	} `json:"commits"`
}

type statsAnswer struct {
	Nodes []struct {
		ID      string `json:"node_id"`
		Status  string
		Version *string
		Totals  *statsTotals
	}
	Totals  statsTotals
	Rates   any `json:"rates_1s"`
	Slowest []struct {
		Node    string `json:"node_id"`
		Session string `json:"session_id"`
		User    string `json:"user_id"`
		Unacked int64  `json:"unacknowledged_messages"`
	} `json:"slowest_sessions"`
}

func (n *statsNode) stats() (a statsAnswer) {
	n.t.Helper()
	if err := json.Unmarshal(n.call("", "GET", "/admin/stats", ""), &a); err != nil {
		n.t.Fatal(err)
	}
	return a
}

// answered returns how many nodes are in the sums.
func (a statsAnswer) answered() (n int) {
	for _, node := range a.Nodes {
		if node.Status == "ok" {
			n++
		}
	}
	return n
}

// shows returns the nodes as "id status version: sends, deliveries, acknowledgements".
func (a statsAnswer) shows() (lines []string) {
	for _, n := range a.Nodes {
		line := n.ID + " " + n.Status
		if n.Totals != nil {
			line += fmt.Sprintf(" %s: %d, %d, %d", *n.Version, n.Totals.Sends, n.Totals.Deliveries,
				n.Totals.Acks)
		}
		lines = append(lines, line)
	}
	return lines
}

// listen opens an event stream, and returns how to count the events that came.
func (n *statsNode) listen(user string) (received func() int64) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, n.url+"/events", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer dev:"+user)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		n.t.Fatal(err)
	}
	var text strings.Builder
	events := make(chan int64, 1)
	events <- 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			k, err := res.Body.Read(buf)
			text.Write(buf[:k])
			<-events
			events <- int64(strings.Count(text.String(), "event: "))
			if err != nil {
				return
			}
		}
	}()
	n.t.Cleanup(func() {
		_ = res.Body.Close()
		<-done
	})
	return func() int64 {
		count := <-events
		events <- count
		return count
	}
}

// rows returns how many pending rows are stored for users.
func (w *nodes) rows(users ...tidemark.UserID) (n int64) {
	w.t.Helper()
	for _, user := range users {
		rows, _, err := w.store.PendingOf(w.t.Context(), user, "", 10)
		if err != nil {
			w.t.Fatal(err)
		}
		n += int64(len(rows))
	}
	return n
}

// TestStats_of_all_nodes_are_what_happened sends, delivers and acknowledges known numbers on three
// nodes. Each node tells the same sums. One that was killed is named, and is not in the sums.
func TestStats_of_all_nodes_are_what_happened(t *testing.T) {
	w := newNodes(t)
	a, b, c := w.node("a"), w.node("b"), w.node("c")
	everyone := []*statsNode{a, b, c}
	wait.Until(t, "the nodes know each other", func() bool {
		return len(a.stats().Nodes) == 3 && len(b.stats().Nodes) == 3 && len(c.stats().Nodes) == 3
	})
	a.call("alice", "POST", "/chats",
		`{"type":"group","chat_id":"team","member_ids":["bob","carol","dave"]}`)
	bob, carol := b.listen("bob"), c.listen("carol")
	wait.Until(t, "both have caught up", func() bool { return bob() >= 2 && carol() >= 2 })
	for i, from := range []*statsNode{a, a, a, a, b, b, c, c} { // the last one again
		key := min(i, 6)
		from.call("alice", "POST", "/chats/team/messages",
			fmt.Sprintf(`{"client_message_id":"m%d","content":"x"}`, key))
	}
	wait.Until(t, "all has arrived", func() bool { return bob() >= 2+7 && carol() >= 2+7 })
	b.call("bob", "PATCH", "/chats/team/delivery-state", `{"last_acked_sequence":7}`)
	b.call("bob", "PATCH", "/chats/team/delivery-state", `{"last_acked_sequence":6}`) // stale
	c.call("dave", "POST", "/acks", `{"chats":[{"chat_id":"team","last_acked_sequence":4}]}`)
	for range 50 {
		a.meter.Committed(1, 0, 800*time.Microsecond)
		b.meter.Committed(1, 0, 800*time.Microsecond)
	}
	c.meter.Committed(1, 0, 40*time.Millisecond)
	c.meter.Committed(1, 0, 40*time.Millisecond)

	var p50, p99 int64 = 1_000, 50_000
	want := statsTotals{
		Connections: map[string]int64{"websocket": 0, "sse": 2, "longpoll": 0},
		Sessions:    2, Connected: 2,
		Sends: 8, Duplicates: 1, Acks: 3,
		Clears: 1, // dave's row, which begins at 5 now
	}
	want.Commits.Count, want.Commits.P50, want.Commits.P99 = 102, &p50, &p99
	for _, n := range everyone {
		var got statsAnswer
		var atBob, atCarol int64
		// Another update may arrive later, so what counts is what was there with the answer.
		wait.Until(t, "the figures are at rest", func() bool {
			atBob, atCarol = bob(), carol()
			got = n.stats()
			return got.Totals.Deliveries == atBob+atCarol && bob() == atBob &&
				carol() == atCarol && len(got.Slowest) == 1 && got.answered() == 3
		})
		want.Deliveries, want.Moved = got.Totals.Deliveries, got.Totals.Moved
		want.Marks = w.rows("alice", "bob", "carol", "dave")
		if diff := cmp.Diff(want, got.Totals); diff != "" {
			t.Errorf("the sums (-want +got):\n%s", diff)
		}
		if want.Marks == 0 || got.Totals.Moved < 3 || got.Totals.Moved > 2+7 {
			t.Errorf("%d rows; %d watermarks moved, want bob's, dave's, and 1 to 7 of alice",
				want.Marks, got.Totals.Moved)
		}
		lines := []string{
			"a ok v-a: 4, 0, 0", fmt.Sprintf("b ok v-b: 2, %d, 2", atBob),
			fmt.Sprintf("c ok v-c: 2, %d, 1", atCarol),
		}
		if diff := cmp.Diff(lines, got.shows()); diff != "" {
			t.Errorf("the nodes (-want +got):\n%s", diff)
		}
		if got.Rates != nil {
			t.Errorf("a snapshot has the rates %v", got.Rates)
		}
		if slow := got.Slowest[0]; slow.Node != "c" || slow.User != "carol" || slow.Unacked != 7 {
			t.Errorf("the slowest session is %+v, want carol's", slow)
		}
	}
	killed := registry.Node{ID: "d", Boot: "1"}
	if err := w.registry.Join(t.Context(), killed, time.Hour); err != nil {
		t.Fatal(err)
	}
	var got statsAnswer
	wait.Until(t, "a knows d, which was killed", func() bool {
		got = a.stats()
		return len(got.Nodes) == 4 && got.answered() == 3
	})
	if d := got.Nodes[3]; d.ID != "d" || d.Status != "unavailable" || got.Totals.Sends != 8 {
		t.Errorf("d is %+v, and %d sends", d, got.Totals.Sends)
	}
}

// TestStats_operators_see_users_and_chats: a key with the scope stats alone sees the sessions,
// marks and pending rows of each user, and who is behind in each chat. It sees no message.
func TestStats_operators_see_users_and_chats(t *testing.T) {
	w := newNodes(t)
	a, b := w.node("a"), w.node("b")
	a.call("alice", "POST", "/chats",
		`{"type":"group","chat_id":"team","member_ids":["bob","dave"]}`)
	bob := b.listen("bob")
	a.call("alice", "POST", "/chats/team/messages",
		`{"client_message_id":"m","content":"a secret of alice"}`)
	wait.Until(t, "bob has it", func() bool { return bob() >= 3 })
	b.call("bob", "PATCH", "/chats/team/delivery-state", `{"last_acked_sequence":1}`)
	of := func(user, path string) string {
		r, err := http.NewRequestWithContext(wait.Context(t), http.MethodGet, a.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+w.key)
		if user != "" {
			r.Header.Set("X-User-ID", user)
		}
		res, err := w.contract.Transport(t, http.DefaultTransport).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		if strings.Contains(string(text), "secret") {
			t.Errorf("GET %s for %q shows a message: %s", path, user, text)
		}
		return fmt.Sprintf("%d %s", res.StatusCode, text)
	}
	// Authors acknowledge what they have sent a moment after it is stored.
	wait.Until(t, "only dave does not have it", func() bool {
		return strings.Contains(of("", "/chats/team/delivery-status"), `"pending_count":1`)
	})
	for _, tt := range []struct{ user, path, want string }{
		{"bob", "/sessions", `"node_id":"b"`},
		{"bob", "/delivery-states", `"last_acked_sequence":1`},
		{"dave", "/pending", `"first_undelivered_sequence":1`},
		{"", "/chats/team", `"head_sequence":1`},
		{"", "/chats/team", `"last_message":null`},
		{"", "/chats/team/delivery-status", `"user_id":"dave"`},
		{"", "/chats/nowhere/delivery-status", `404 {`},
		{"bob", "/chats/team", `403 {`},
		{"bob", "/chats", `403 {`},
		{"bob", "/chats/team/messages", `403 {`},
		{"bob", "/chats/team/delivery-status", `403 {`},
		{"bob", "/events", `403 {`},
		{"", "/chats/team/members", `403 {`},
	} {
		if got := of(tt.user, tt.path); !strings.Contains(got, tt.want) {
			t.Errorf("GET %s for %q: %s, want %s", tt.path, tt.user, got, tt.want)
		}
	}
	if own := b.call("bob", "GET", "/sessions", ""); !strings.Contains(string(own),
		`"node_id":null`) {
		t.Errorf("bob sees %s", own)
	}
}
