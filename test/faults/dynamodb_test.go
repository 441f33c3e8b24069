package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb"
	"github.com/tidemark-im/tidemark/test/faults/dynamo"
	dynamoservice "github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/wait"
)

const (
	// storeTime is how long a store on DynamoDB tries at least, unless the deadline of the caller
	// is earlier.
	storeTime = 5 * time.Second
	// longest bounds how long a call takes, whatever the deadline of its caller.
	longest = storeTime + grace
)

// tables is a history over two stores on the same tables, and the networks between the stores and
// DynamoDB.
type tables struct {
	*history
	networks []*dynamo.Network
}

// onDynamoDB makes tables, opens two stores and creates the chats: three that all workers use, and
// others more.
func onDynamoDB(t *testing.T, s *dynamoservice.Server, others int) *tables {
	t.Helper()
	at := s.Store(t)
	must(t, dynamodb.Migrate(t.Context(), at, dynamodb.Up))
	u, err := url.Parse(at)
	must(t, err)
	ts := &tables{}
	var stores []storage.Store
	for node := range 2 {
		network := dynamo.New(seed(t)+uint64(node), strings.TrimPrefix(u.Path, "/"))
		t.Cleanup(network.Close)
		store, err := dynamodb.Open(t.Context(), dynamodb.Config{URL: at, Transport: network})
		must(t, err)
		t.Cleanup(func() { must(t, store.Close()) })
		ts.networks, stores = append(ts.networks, network), append(stores, store)
	}
	chats := []tidemark.ChatID{"a", "B", "c"}
	for n := range others {
		chats = append(chats, tidemark.ChatID(fmt.Sprint("chat-", n)))
	}
	ts.history = newHistoryIn(t, chats, stores...)
	ts.pace = newPace()
	// Some callers set a deadline that is later than the store's own.
	ts.limits, ts.bound = append(ts.limits, time.Minute), longest
	ts.creators = []*groupCreator{{history: ts.history, name: "creator", perStep: perStep}}
	return ts
}

// inject injects faults on both nodes for TIDEMARK_FAULT_SECONDS (1 if it is not set), and until
// fired returns nil. Afterwards no call runs whose caller has given up.
func (ts *tables) inject(fired func() error, faults ...dynamo.Fault) {
	ts.t.Helper()
	for _, n := range ts.networks {
		n.Inject(faults...)
	}
	<-time.After(ts.seconds(1))
	var missing error
	wait.Poll(func() (int, bool) {
		calls, kinds := ts.counts()
		happened, reached := 0, 0
		for _, of := range kinds {
			happened, reached = happened+total(of), reached+len(of)
		}
		for _, n := range calls {
			reached += min(n, 50)
		}
		missing = fired()
		// As many as are enough for every case, and then another kind of call, or another call
		// of a rare kind: the fault may have missed it, or its caller had given up. Before the
		// rarest kind, a Large chat needs its members.
		members := min(calls["UpdateItem chat_memberships"], 10_000) / 20
		return min(happened, 100) + reached + members, missing == nil || ts.over() || ts.hasty()
	})
	for _, n := range ts.networks {
		n.Inject()
	}
	for _, n := range ts.networks {
		n.Wait()
	}
	ts.calm.Store(time.Now().UnixNano())
	if missing != nil {
		ts.t.Error(missing)
	}
	ts.t.Log(ts.report())
}

// hasty reports whether the stores refuse many calls that they could repeat.
func (ts *tables) hasty() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	n := total(ts.calls)
	return n > 120 && ts.early > n/6
}

// counts returns how many calls of each kind there were, and how often each fault has happened to
// each kind, over both networks.
func (ts *tables) counts() (calls map[string]int, fired map[string]map[string]int) {
	calls, fired = map[string]int{}, map[string]map[string]int{}
	for _, n := range ts.networks {
		for kind, count := range n.Calls() {
			calls[kind] += count
		}
		for name, kinds := range n.Fired() {
			if fired[name] == nil {
				fired[name] = map[string]int{}
			}
			for kind, count := range kinds {
				fired[name][kind] += count
			}
		}
	}
	return calls, fired
}

func (ts *tables) report() string {
	calls, fired := ts.counts()
	lines := []string{fmt.Sprintf("%d calls to DynamoDB: %v", total(calls), calls)}
	for _, name := range slices.Sorted(maps.Keys(fired)) {
		lines = append(lines, fmt.Sprintf("%d × %s: %v", total(fired[name]), name, fired[name]))
	}
	return strings.Join(lines, "\n")
}

// writesOfLarge is the kind of call by which rows for a Large chat are written.
const writesOfLarge = "BatchWriteItem pending_deliveries"

// writes returns the kinds of writes that the stores make under the load. Each fault of writes has
// to happen to each of them.
func writes() []string {
	return []string{
		"TransactWriteItems chat_counters idempotency_keys messages",
		"TransactWriteItems chat_counters chat_memberships delivery_state",
		"TransactWriteItems chat_counters chat_memberships delivery_state pending_deliveries",
		"TransactWriteItems chat_counters pending_deliveries",
		"UpdateItem chat_counters",
		"UpdateItem chat_memberships",
		"UpdateItem delivery_state",
		"UpdateItem pending_deliveries",
		"PutItem chat_counters",
	}
}

// requireFired returns an error unless a fault has happened so often, and to each of the kinds of
// calls.
func (ts *tables) requireFired(name string, least int, kinds ...string) func() error {
	return func() error {
		_, fired := ts.counts()
		if n := total(fired[name]); n < least {
			return fmt.Errorf("%q has happened %d times, want %d", name, n, least)
		}
		for _, kind := range kinds {
			if fired[name][kind] == 0 {
				return fmt.Errorf("%q has not happened to %s", name, kind)
			}
		}
		return nil
	}
}

// faultCase is a fault of DynamoDB, or of the network to it, and the requirements of a case about
// it.
type faultCase struct {
	fault dynamo.Fault
	// writes requires that the fault happens to every kind of write. transactions limits that to
	// the transactions.
	writes, transactions bool
	// large requires that the fault happens to the writes of Large chats.
	large bool
	// felt reports that callers with little time are often refused. They hardly notice other
	// faults.
	felt bool
	// reads reports that the fault happens only to certain reads, so that more reads are needed.
	reads bool
	// late reports that a call may take effect after it was confirmed.
	late bool
}

// least returns how often the fault has to happen. It is more than a few times, unless the selected
// calls are rare or slow.
func (d faultCase) least() int {
	if d.felt || d.reads || d.fault.Percent <= 30 && d.fault.Of != nil {
		return 5
	}
	return 30
}

// faults returns the fault as it is injected. The members of a Large chat are written by one
// UpdateItem each, by the thousand. Those meet it less often, so that Large chats come about.
func (d faultCase) faults() []dynamo.Fault {
	if !d.large || !d.writes {
		return []dynamo.Fault{d.fault}
	}
	update := func(c *dynamo.Call) bool { return c.On("UpdateItem", "") }
	others := func(c *dynamo.Call) bool { return !update(c) }
	return []dynamo.Fault{d.fault.For(update).At(d.fault.Percent / 5), d.fault.For(others)}
}

func faultCases() []faultCase {
	return []faultCase{
		{fault: dynamo.ReplyLost().For(dynamo.Writes), writes: true, large: true},
		{fault: dynamo.Forgotten(), transactions: true},
		{fault: dynamo.RequestLost(), writes: true},
		{fault: dynamo.Delayed().For(dynamo.Writes), writes: true, late: true},
		{fault: dynamo.Doubled().For(dynamo.Writes), writes: true, late: true},
		{fault: dynamo.Slow(50*time.Millisecond, 300*time.Millisecond), felt: true},
		{fault: dynamo.Slow(1600*time.Millisecond, 3*time.Second).At(3), felt: true},
		{fault: dynamo.Silent(), felt: true},
		{fault: dynamo.Cut()},
		{fault: dynamo.Truncated()},
		{fault: dynamo.Corrupted()},
		{fault: dynamo.Garbage()},
		{fault: dynamo.Throttled(), writes: true},
		{fault: dynamo.TransactionThrottled()},
		{fault: dynamo.TransactionConflict()},
		{fault: dynamo.Conflict().At(40)},
		{fault: dynamo.InProgress().At(40)},
		{fault: dynamo.InternalError()},
		{fault: dynamo.InternalErrorAfter().For(dynamo.Writes), writes: true},
		{fault: dynamo.Unavailable()},
		{fault: dynamo.PartialBatch(), large: true},
		{fault: dynamo.ShortPage().At(70)},
		{fault: dynamo.Stale(), reads: true},
		{fault: dynamo.Hole("messages", true), reads: true},
	}
}

func TestFault_DynamoDB_each_alone(t *testing.T) {
	t.Parallel()
	for _, tc := range faultCases() {
		t.Run(tc.fault.Name, func(t *testing.T) {
			t.Parallel()
			ts := onDynamoDB(t, dynamoservice.Shared(t), 0)
			ts.late = tc.late
			if tc.reads {
				ts.readers = 4
			}
			kinds := []string{}
			if tc.writes || tc.transactions {
				kinds = slices.DeleteFunc(writes(),
					func(kind string) bool {
						return !tc.writes && !strings.HasPrefix(kind,
							"Transact")
					})
			}
			if tc.large {
				ts.creators[0].perStep = perStepLarge
				kinds = append(kinds, writesOfLarge)
			}
			enough := ts.requireFired(tc.fault.Name, tc.least(), kinds...)
			ts.runAndReport(func() { ts.inject(enough, tc.faults()...) })
			if n := total(ts.calls); !tc.felt && ts.early > n/12 {
				t.Errorf("%d of %d calls were refused, though there was time to make them again",
					ts.early, n)
			}
		})
	}
}

// TestFault_DynamoDB_all_at_once injects all faults together: about every third call meets one of
// them.
func TestFault_DynamoDB_all_at_once(t *testing.T) {
	t.Parallel()
	ts := onDynamoDB(t, dynamoservice.Shared(t), 30)
	ts.late = true
	var faults []dynamo.Fault
	for _, d := range faultCases() {
		faults = append(faults, d.fault.At(max(0.5, d.fault.Percent/10)))
	}
	ts.runAndReport(func() {
		ts.inject(func() error {
			for _, f := range faults {
				if err := ts.requireFired(f.Name, 1)(); err != nil {
					return err
				}
			}
			return nil
		}, faults...)
	})
}

func TestFault_DynamoDB_killed_and_restarted(t *testing.T) {
	t.Parallel()
	s := dynamoservice.Start(t)
	ts := onDynamoDB(t, s, 10)
	ends := 0
	ts.runAndReport(func() {
		ends = ts.repeat(func(random *rand.Rand) {
			s.Kill(t)
			// Callers wait for a service that is back soon, and are refused by one that is not.
			if ends == 0 {
				ts.red()
				wait.Poll(func() (int,
					bool) {
					return 0, ts.refusals("cannot be reached") > 0 || ts.over()
				})
			} else {
				<-time.After(time.Duration(random.IntN(1000)) * time.Millisecond)
			}
			s.Run(t)
			ends++
		}, 200*time.Millisecond, 700*time.Millisecond)
	})
	t.Logf("killed %d times", ends)
	if ts.refusals("cannot be reached") == 0 {
		t.Error("no caller was told that DynamoDB cannot be reached")
	}
}

func TestFault_DynamoDB_that_hangs(t *testing.T) {
	t.Parallel()
	s := dynamoservice.Start(t)
	ts := onDynamoDB(t, s, 0)
	ts.repeatWindow = 2 * longest
	hangs := longest + 500*time.Millisecond // the first time longer than any call
	ts.runAndReport(func() {
		ts.repeat(func(*rand.Rand) {
			s.Freeze(t)
			// A stall of the machine does not count as time that a caller had.
			began, stood := time.Now(), ts.stalls.total()
			for time.Since(began)-ts.stalls.since(stood) < hangs {
			}
			ts.red()
			s.Thaw(t)
			hangs = time.Second
		}, 200*time.Millisecond, 700*time.Millisecond)
	})
	if ts.refused == 0 || ts.slowest < 4*time.Second {
		t.Errorf("%d calls were refused, the slowest took %v: nothing hung", ts.refused, ts.slowest)
	}
}
