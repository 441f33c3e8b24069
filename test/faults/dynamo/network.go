// Package dynamo is a network between a DynamoDB client and the service, which fails when and how a
// test chooses. It parses the calls, so that it can select among them. It fails as DynamoDB may: it
// throttles, leaves out a part of a batch, and returns older states. The service behind it must not
// check signatures, as no emulator does: some faults change the call.
package dynamo

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Network is an http.RoundTripper. It is safe for concurrent use by several clients.
type Network struct {
	under  http.RoundTripper
	prefix string
	// late is mostLate, except in the tests of this package.
	late time.Duration
	// delayed are calls that are performed after their callers have stopped waiting.
	delayed sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	faults []Fault
	calls  map[string]int
	fired  map[string]map[string]int
	// remembered are answers to eventual reads by request, the oldest first.
	remembered map[string][]answer
}

const (
	// staleness bounds how many answers old an eventual read may be. DynamoDB says that it is
	// usually less than a second; how many answers that is depends on the machine.
	staleness = 20
	// mostLate bounds how long after its caller has given up a call is performed.
	mostLate = time.Second
	// lateTime bounds such a call.
	lateTime = 10 * time.Second
)

// New makes a network without faults, for tables whose names begin with the prefix.
func New(seed uint64, prefix string) *Network {
	return &Network{
		under:      &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: 10 * time.Second},
		prefix:     prefix,
		late:       mostLate,
		random:     rand.New(rand.NewPCG(seed, 0)),
		calls:      map[string]int{},
		fired:      map[string]map[string]int{},
		remembered: map[string][]answer{},
	}
}

// Inject replaces the faults that happen from now on. Without arguments the network has none.
func (n *Network) Inject(faults ...Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = faults
}

// Wait waits until no call runs whose caller has given up. Call Inject() before.
func (n *Network) Wait() { n.delayed.Wait() }

// Close waits, and closes the idle connections.
func (n *Network) Close() {
	n.Wait()
	if t, ok := n.under.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// Fired returns how often each fault has happened to each kind of call.
func (n *Network) Fired() map[string]map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	fired := make(map[string]map[string]int, len(n.fired))
	for name, kinds := range n.fired {
		fired[name] = maps.Clone(kinds)
	}
	return fired
}

// Calls returns how many calls of each kind were made, including those with a fault.
func (n *Network) Calls() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.calls)
}

// RoundTrip implements http.RoundTripper.
func (n *Network) RoundTrip(request *http.Request) (*http.Response, error) {
	call, err := parse(request, n.prefix)
	if err != nil {
		return nil, err
	}
	fault := n.choose(call)
	if fault == nil {
		answered, err := n.perform(request.Context(), call.body, call)
		if err != nil {
			return nil, err
		}
		return answered.response(request), nil
	}
	response, fired, err := fault.do(n, call)
	if fired {
		n.count(fault.Name, call)
	}
	return response, err
}

// choose returns the fault for a call, nil for none. A fault happens to the first call of each
// kind, and then to its share of the calls.
func (n *Network) choose(call *Call) *Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls[call.Kind()]++
	for _, i := range n.random.Perm(len(n.faults)) {
		fault := &n.faults[i]
		first := fault.Percent > 0 && n.fired[fault.Name][call.Kind()] == 0
		if (fault.Of == nil || fault.Of(call)) &&
			(first || n.random.Float64()*100 < fault.Percent) {
			return fault
		}
	}
	return nil
}

func (n *Network) count(fault string, call *Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fired[fault] == nil {
		n.fired[fault] = map[string]int{}
	}
	n.fired[fault][call.Kind()]++
}

// below returns a random number from 0 to most-1.
func (n *Network) below(most int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.IntN(most)
}

// perform makes the call, perhaps with another body, and reads the whole answer.
func (n *Network) perform(ctx context.Context, body []byte, call *Call) (*answer, error) {
	request := call.request.Clone(ctx)
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	request.GetBody = nil
	response, err := n.under.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	given := &answer{status: response.StatusCode, header: response.Header, body: text}
	if !call.Writes && !call.Strong && given.status == http.StatusOK {
		n.remember(string(body), given)
	}
	return given, nil
}

// later performs the call after a while, for no caller.
func (n *Network) later(call *Call) {
	wait := time.Duration(1+n.below(int(n.late/time.Millisecond))) * time.Millisecond
	n.delayed.Go(func() {
		<-time.After(wait)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(call.request.Context()), lateTime)
		defer cancel()
		_, _ = n.perform(ctx, call.body, call)
	})
}

// remember keeps the answer to an eventual read.
func (n *Network) remember(asked string, given *answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.remembered) > 10_000 {
		clear(n.remembered)
	}
	kept := append(n.remembered[asked], *given)
	n.remembered[asked] = kept[max(0, len(kept)-staleness):]
}

// older returns an earlier answer to an eventual read that differs, nil if there is none.
func (n *Network) older(asked string, now *answer) *answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, given := range n.remembered[asked] {
		if !bytes.Equal(given.body, now.body) {
			return &n.remembered[asked][i]
		}
	}
	return nil
}
