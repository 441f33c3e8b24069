package http_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	bushttp "github.com/tidemark-im/tidemark/server/bus/http"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/test/wait"
)

var (
	nodeA = registry.Node{ID: "a", Boot: "1"}
	own   = bus.Event{Own: &bus.Own{Chat: "c"}}
)

// count counts the events that a subscriber gets, and how often it missed some.
type count struct {
	mu             sync.Mutex
	events, missed int
}

func (c *count) subscribe(t *testing.T, b bus.Bus, node registry.Node) {
	t.Helper()
	stop, err := b.Subscribe(t.Context(), node, bus.Subscriber{
		Receive: func(bus.Event) { c.mu.Lock(); c.events++; c.mu.Unlock() },
		Missed:  func() { c.mu.Lock(); c.missed++; c.mu.Unlock() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

func (c *count) got() (events, missed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events, c.missed
}

// nobody returns an address where connections are refused.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silence returns an address where connections are accepted and nothing is answered.
func silence(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// stranger returns the address of a server that answers each post with a status.
func stranger(t *testing.T, status int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// TestPublish_to_a_node_that_is_not_there: NotFound is said only of a life that has to join again,
// because the publisher then forgets the sessions there. Of all others it complains.
func TestPublish_to_a_node_that_is_not_there(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// place returns the address that the registry gives for the node.
		place func(t *testing.T) string
		// gone says that the registry has no lease of the node.
		gone bool
		want tidemark.Code
	}{
		{"refused", nobody, false, tidemark.Unavailable},
		{"refused, and its lease has ended", nobody, true, tidemark.NotFound},
		{"silent", silence, false, tidemark.Unavailable},
		{"silent, and its lease has ended", silence, true, tidemark.NotFound},
		{"a server that says yes to everything", func(t *testing.T) string {
			return stranger(t, http.StatusNoContent)
		}, false, tidemark.Unavailable},
		{"a server that finds nothing", func(t *testing.T) string {
			return stranger(t, http.StatusNotFound)
		}, false, tidemark.Unavailable},
		{"a node with another secret", func(t *testing.T) string {
			b, address := open(t, newPeers(""), secret+"x")
			var c count
			c.subscribe(t, b, nodeA)
			t.Cleanup(func() {
				if n, _ := c.got(); n > 0 {
					t.Errorf("%d events with another secret were taken", n)
				}
			})
			return address
		}, false, tidemark.Unavailable},
		{"another node", func(t *testing.T) string {
			b, address := open(t, newPeers(""), secret)
			new(count).subscribe(t, b, registry.Node{ID: "b", Boot: "1"})
			return address
		}, false, tidemark.Unavailable},
		{"another life of it", func(t *testing.T) string {
			b, address := open(t, newPeers(""), secret)
			new(count).subscribe(t, b, registry.Node{ID: "a", Boot: "2"})
			return address
		}, false, tidemark.NotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			others := newPeers(tc.place(t))
			others.end(nodeA, tc.gone)
			b, _ := open(t, others, secret)
			err := bus.PublishOne(t.Context(), b, nodeA, own)
			if got := tidemark.CodeOf(err); got != tc.want {
				t.Errorf("Publish: %v, want %s", err, tc.want)
			}
			complained := others.complained(nodeA) > 0
			if want := tc.want == tidemark.Unavailable; complained != want {
				t.Errorf("it complained: %v, want %v", complained, want)
			}
		})
	}
}

// TestPublish_after_a_death: that a node has no lease is found out for each post, because it may
// join again at any moment.
func TestPublish_after_a_death(t *testing.T) {
	b, others := two(t)
	var c count
	c.subscribe(t, b, nodeA)
	address, _ := others.Address(t.Context(), nodeA)
	others.move(nobody(t))
	others.end(nodeA, true)
	for range 3 {
		err := bus.PublishOne(t.Context(), b, nodeA, own)
		if tidemark.CodeOf(err) != tidemark.NotFound {
			t.Fatalf("without a lease: %v", err)
		}
	}
	others.end(nodeA, false)
	others.move(address)
	// After failures a post has little time. A busy machine may need more, and post twice.
	wait.Until(t, "it is reached after it joined again", func() bool {
		err := bus.PublishOne(t.Context(), b, nodeA, own)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at once after it joined again: %v", err)
		}
		return err == nil
	})
	if n, _ := c.got(); n < 1 {
		t.Error("it got no event")
	}
}

// TestPublish_to_a_silent_node: a node that does not answer holds up nobody for long.
func TestPublish_to_a_silent_node(t *testing.T) {
	t.Parallel()
	others := newPeers(silence(t))
	b, _ := open(t, others, secret)
	began := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			err := bus.PublishOne(t.Context(), b, nodeA, own)
			if tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Errorf("Publish: %v", err)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took > wait.Hang/2 {
		t.Errorf("50 callers got their errors after %v", took)
	}
}

// TestComplained_of_a_slow_node: a node that answers late is not reached by publications once one
// has failed, and by a probe it is.
func TestComplained_of_a_slow_node(t *testing.T) {
	t.Parallel()
	slow, address := open(t, newPeers(""), secret)
	var c count
	c.subscribe(t, slow, nodeA)
	proxy := late(t, address, 600*time.Millisecond) // more than failedTime, less than postTime
	others := newPeers(nobody(t))
	b, _ := open(t, others, secret)
	_ = bus.PublishOne(t.Context(), b, nodeA, own)
	others.move(proxy)
	publish := func() bool { return bus.PublishOne(t.Context(), b, nodeA, own) == nil }
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if publish() {
			t.Fatal("a publication waited for a node that was not reached")
		}
	}
	wait.Until(t, "it reaches the node", func() bool {
		b.Complained(registry.Node{ID: "b", Boot: "1"}, false)
		return publish()
	})
}

// late returns the address of a proxy that passes each connection on after a time.
func late(t *testing.T, to string, after time.Duration) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		<-time.After(after)
		r.URL.Scheme, r.URL.Host, r.RequestURI = "http", to, ""
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer answer.Body.Close()
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
	}))
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String()
}

// TestPublish_that_its_caller_left: only the caller knows of it.
func TestPublish_that_its_caller_left(t *testing.T) {
	b, others := two(t)
	new(count).subscribe(t, b, nodeA)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := bus.PublishOne(ctx, b, nodeA, own)
	if tidemark.CodeOf(err) != tidemark.Unavailable || others.complained(nodeA) != 1 {
		t.Errorf("Publish: %v, with %d complaints, want one", err, others.complained(nodeA))
	}
}

// TestComplained: a node is degraded while others do not reach it, and has missed something then.
// Heartbeats that come early do not show that nobody complains any more.
func TestComplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// It is never started.
		b := bushttp.New(bushttp.Config{Secret: []byte(secret), Peers: newPeers("")})
		var c count
		c.subscribe(t, b, nodeA)
		for i, step := range []struct {
			after                time.Duration
			complained, degraded bool
			missed               int
		}{
			{3, false, false, 0}, {3, true, true, 0}, {3, true, true, 0},
			{3, false, true, 0}, {3, true, true, 0}, // one heartbeat between two complaints
			{3, false, true, 0}, {3, false, true, 0}, {3, false, false, 1}, {3, false, false, 1},
			{3, true, true, 1}, {1, false, true, 1}, {1, false, true, 1}, {1, false, true, 1},
			{4, false, false, 2},
		} {
			time.Sleep(step.after * time.Second)
			b.Complained(nodeA, step.complained)
			if err := b.Check(t.Context()); (err != nil) != step.degraded {
				t.Errorf("step %d: Check: %v", i, err)
			}
			if _, missed := c.got(); missed != step.missed {
				t.Errorf("step %d: it was told %d times that it missed something, want %d", i,
					missed, step.missed)
			}
		}
	})
}

// TestComplained_of_a_node_that_is_not_reached: with each heartbeat a node complains again of those
// that it still does not reach, also if it has nothing to publish.
func TestComplained_of_a_node_that_is_not_reached(t *testing.T) {
	self := registry.Node{ID: "b", Boot: "1"}
	others := newPeers(nobody(t))
	b, _ := open(t, others, secret)
	_ = bus.PublishOne(t.Context(), b, nodeA, own)
	for n := 2; n < 5; n++ {
		b.Complained(self, false)
		wait.Until(t, "it complains again", func() bool { return others.complained(nodeA) == n })
	}
	reached, address := open(t, newPeers(""), secret)
	var c count
	c.subscribe(t, reached, nodeA)
	others.move(address)
	// For a moment after a failure, publications are refused at once.
	wait.Until(t, "it reaches the node", func() bool {
		return bus.PublishOne(t.Context(), b, nodeA, own) == nil
	})
	before := others.complained(nodeA)
	b.Complained(self, false)
	b.Stop()
	if n := others.complained(nodeA) - before; n != 0 {
		t.Errorf("it complained %d times of a node that it reaches", n)
	}
	if n, _ := c.got(); n < 1 {
		t.Error("the node got no event")
	}
}

// TestComplained_of_a_node_that_has_ended: nobody complains of a node without a lease.
func TestComplained_of_a_node_that_has_ended(t *testing.T) {
	others := newPeers(nobody(t))
	b, _ := open(t, others, secret)
	_ = bus.PublishOne(t.Context(), b, nodeA, own)
	others.end(nodeA, true)
	b.Complained(nodeA, false)
	b.Stop()
	if n := others.complained(nodeA); n != 1 {
		t.Errorf("there were %d complaints, want 1", n)
	}
}

// TestReceive_refuses_what_is_no_post: what strangers send reaches no subscriber.
func TestReceive_refuses_what_is_no_post(t *testing.T) {
	b, address := open(t, newPeers(""), secret)
	var c count
	c.subscribe(t, b, nodeA)
	for _, tc := range []struct {
		method, path string
		header       http.Header
		want         int
	}{
		{http.MethodGet, "/", nil, http.StatusNotFound},
		{http.MethodPost, "/frames", nil, http.StatusNotFound},
		{http.MethodPost, "/frames", http.Header{
			"Tidemark-Node": {"a"}, "Tidemark-Boot": {"1"},
			"Tidemark-Code": {"00000000000000000000000000000000" +
				"00000000000000000000000000000000"},
		}, http.StatusUnauthorized},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, "http://"+address+tc.path,
			http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = tc.header
		r.Close = true
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != tc.want {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, response.StatusCode, tc.want)
		}
	}
	if n := b.Counters()["bus_malformed_total"]; n != 1 {
		t.Errorf("%d posts were counted as refused, want 1", n)
	}
	if n, _ := c.got(); n > 0 {
		t.Errorf("%d events were taken", n)
	}
}

// post posts a body to a node with the right code, and returns the status.
func post(t *testing.T, address string, node registry.Node, body string) (int, error) {
	t.Helper()
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("post\x00" + string(node.ID) + "\x00" + node.Boot + "\x00" + body))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+address+"/frames", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Tidemark-Node": {string(node.ID)}, "Tidemark-Boot": {node.Boot},
		"Tidemark-Code": {hex.EncodeToString(h.Sum(nil))},
	}
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	response.Body.Close()
	return response.StatusCode, nil
}

// TestReceive_of_what_cannot_be_read: the publisher of events that were not taken must know it.
func TestReceive_of_what_cannot_be_read(t *testing.T) {
	b, address := open(t, newPeers(""), secret)
	new(count).subscribe(t, b, nodeA)
	for _, tc := range []struct {
		name, body string
		want       int
	}{
		{"no frame", "", http.StatusUnprocessableEntity},
		{"another version", "\xff", http.StatusUnprocessableEntity},
		{"a frame that ends early", "\x01\x02\x7f", http.StatusUnprocessableEntity},
		{"an event without its fields", "\x01\x02\x00", http.StatusUnprocessableEntity},
		{"an event of a newer version", "\x01\xfe\x01?", http.StatusNoContent},
		{"no event", "\x01", http.StatusNoContent},
	} {
		if got, err := post(t, address, nodeA, tc.body); err != nil || got != tc.want {
			t.Errorf("%s: %d, %v; want %d", tc.name, got, err, tc.want)
		}
	}
}

// TestSubscribe_stop_after_a_panic: a call that panicked has ended.
func TestSubscribe_stop_after_a_panic(t *testing.T) {
	b, _ := two(t)
	stop, err := b.Subscribe(t.Context(), nodeA, bus.Subscriber{
		Receive: func(bus.Event) { panic(http.ErrAbortHandler) }, // which is not logged
	})
	if err != nil {
		t.Fatal(err)
	}
	err = bus.PublishOne(t.Context(), b, nodeA, own)
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("Publish: %v", err)
	}
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(wait.Hang):
		t.Fatal("stop did not return")
	}
}

// TestSubscribe_stop_waits_for_the_call_under_way: a call that has begun ends before stop returns.
func TestSubscribe_stop_waits_for_the_call_under_way(t *testing.T) {
	b, _ := two(t)
	began, goOn, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	stop, err := b.Subscribe(t.Context(), nodeA, bus.Subscriber{
		Receive: func(bus.Event) { close(began); <-goOn },
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = bus.PublishOne(t.Context(), b, nodeA, own) })
	<-began
	running.Go(func() { stop(); close(stopped) })
	select {
	case <-stopped:
		t.Error("stop returned during a call")
	case <-time.After(100 * time.Millisecond):
	}
	close(goOn)
	running.Wait()
}

var _ bushttp.Peers = (*peers)(nil)

// TestPublish_of_what_is_repeated: the asking node asks again, so a failure needs no complaint.
func TestPublish_of_what_is_repeated(t *testing.T) {
	others := newPeers(nobody(t))
	b, _ := open(t, others, secret)
	for _, e := range []bus.Event{
		{Seek: &bus.Seek{}}, {End: &bus.End{}}, {Done: &bus.Done{}}, {Typing: &tidemark.Typing{}},
	} {
		err := bus.PublishOne(t.Context(), b, nodeA, e)
		if tidemark.CodeOf(err) != tidemark.Unavailable || others.complained(nodeA) != 0 {
			t.Errorf("Publish: %v, with %d complaints, want none", err, others.complained(nodeA))
		}
	}
	_ = bus.PublishOne(t.Context(), b, nodeA, own)
	if n := others.complained(nodeA); n != 1 {
		t.Errorf("%d complaints of a change, want one", n)
	}
}
