package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
	"github.com/tidemark-im/tidemark/test/chaos/cluster"
)

// fault is one fault, which is over when inject returns. inject returns how the fault showed, "" if
// it did not.
type fault struct {
	name   string
	inject func(b *testbed, r *rand.Rand) (shown string, err error)
}

// kindTally counts the faults of one kind and how they showed.
type kindTally struct {
	injected, shown int
	how             string
	whole           checker.Waits
}

// recovery bounds how long the store takes to notice that the database is back: none of its calls
// is longer.
const recovery = 5 * time.Second

// nodeFaults returns the faults of one node, or of its connections.
func nodeFaults() []fault {
	return []fault{
		{
			killed,
			func(b *testbed, r *rand.Rand) (string, error) {
				return kill(b, r, false, between(r, 0, 3))
			},
		},
		{
			"node killed, back under another name",
			func(b *testbed, r *rand.Rand) (string, error) {
				return kill(b, r, true, between(r, 0, 3))
			},
		},
		{
			"node killed in a burst of sends",
			func(b *testbed, r *rand.Rand) (string, error) { return burst(b, r, false) },
		},
		{
			"node killed between append and hand-over",
			func(b *testbed, r *rand.Rand) (string, error) { return burst(b, r, true) },
		},
		{
			"node killed, gone for long",
			func(b *testbed, r *rand.Rand) (string, error) {
				return kill(b, r, false, between(r, 10, 12))
			},
		},
		{
			"node frozen",
			func(b *testbed, r *rand.Rand) (string, error) {
				return freeze(b, r, between(r, 1, 5))
			},
		},
		{
			"node frozen beyond its lease",
			func(b *testbed, r *rand.Rand) (string, error) {
				return freeze(b, r, between(r, 10, 12))
			},
		},
		{"node stopped in good order", stop},
		{"clock of a node jumps", jump},
		{"node cut from Redis", func(b *testbed, r *rand.Rand) (string, error) {
			return cut(b, r, "redis", cluster.Both, between(r, 2, 13))
		}},
		{"node cannot be heard by Redis", func(b *testbed, r *rand.Rand) (string, error) {
			return cut(b, r, "redis", cluster.Out, between(r, 2, 13))
		}},
		{
			"node cannot hear Redis",
			func(b *testbed, r *rand.Rand) (string, error) {
				return cut(b, r, "redis", cluster.In, between(r, 2, 13))
			},
		},
		{"node cut from the database", func(b *testbed, r *rand.Rand) (string, error) {
			return cut(b, r, "database", cluster.Both, between(r, 2, 8))
		}},
		{"node cannot be heard by the database", func(b *testbed, r *rand.Rand) (string, error) {
			return cut(b, r, "database", cluster.Out, between(r, 2, 8))
		}},
		{"node cannot hear the database", func(b *testbed, r *rand.Rand) (string, error) {
			return cut(b, r, "database", cluster.In, between(r, 2, 8))
		}},
	}
}

// databaseFaults returns the faults of the database.
func databaseFaults() []fault {
	database := func(m *machine) *cluster.Link { return m.toDatabase }
	return []fault{
		{"Postgres killed", killPostgres},
		{"Postgres frozen", freezePostgres},
		{"Postgres slow", func(b *testbed, r *rand.Rand) (string, error) {
			return slow(b, r, database, askTLS, time.Duration(100+r.IntN(400))*time.Millisecond)
		}},
		{
			"connections to Postgres reset",
			func(b *testbed, r *rand.Rand) (string, error) { return reset(b, r, database, askTLS) },
		},
	}
}

// askTLS is a request of Postgres's protocol that is answered at once, before authentication.
const askTLS = "\x00\x00\x00\x08\x04\xd2\x16\x2f"

// long reports whether there is time for faults that take half a minute.
func (b *testbed) long() bool { return b.seconds >= 180 }

// delay returns a delay for Redis, which is now and then longer than any timeout.
func (b *testbed) delay(r *rand.Rand) time.Duration {
	if b.long() && r.IntN(3) == 0 {
		return 30 * time.Second
	}
	return between(r, 0.2, 2.2)
}

// pick reserves a random node for the caller until release. If the node has ended by itself, the
// test has failed, and pick starts the node again.
func (b *testbed) pick(r *rand.Rand) (m *machine, release func()) {
	m = b.nodes[r.IntN(len(b.nodes))]
	m.mu.Lock()
	if err := m.Died(); err != nil {
		b.t.Error(err)
		if err := b.restart(m); err != nil {
			b.t.Error(err)
		}
	}
	return m, m.mu.Unlock
}

// restart starts a node again, as a supervisor does. If the node ends because the database is away,
// restart repeats that for at most a minute.
func (b *testbed) restart(m *machine) error {
	var err error
	deadline := time.Now().Add(time.Minute)
	for ; time.Now().Before(deadline) && b.ctx.Err() == nil; pause(b.ctx, 100*time.Millisecond) {
		if err = m.Start(b.ctx); err == nil {
			return nil
		}
		if m.Runs() {
			_ = m.Kill()
		}
	}
	return err
}

func kill(b *testbed, r *rand.Rand, rename bool, gone time.Duration) (string, error) {
	m, release := b.pick(r)
	defer release()
	cut := b.interrupt(m)
	if err := m.Kill(); err != nil {
		return "", err
	}
	pause(b.ctx, gone)
	if rename {
		m.times++
		m.Name = fmt.Sprintf("%s-%d", strings.Split(m.Name, "-")[0], m.times)
	}
	if err := b.restart(m); err != nil {
		return "", err
	}
	return some(cut, "%d streams were cut off, the node was gone for %v", cut, gone), nil
}

// some describes how a fault showed, or returns "" if n is 0.
func some(n int, format string, args ...any) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// burst lets many users send to one node at a time, and kills the node meanwhile. Some of the
// messages are stored then, and no receiver was notified. If Redis is silent, that holds for all of
// them, as the node cannot look up the receivers' sessions.
//
// Half of the senders never try again. The burst does not show if all sends were answered in time,
// as by a node that has just noticed that a service is away.
func burst(b *testbed, r *rand.Rand, silent bool) (string, error) {
	m, release := b.pick(r)
	defer release()
	alive, late := time.Duration(5+r.IntN(25))*time.Millisecond, func(time.Duration) error {
		return nil
	}
	if silent && m.toRedis != nil {
		defer m.toRedis.Hold()()
		// It is less than a node waits for Redis.
		alive = time.Duration(100+r.IntN(300)) * time.Millisecond
		late = m.toRedis.Delay
	}
	if err := late(10 * time.Second); err != nil {
		return "", err
	}
	before := b.ledger.Tally().Unanswered
	var sends sync.WaitGroup
	for n := range 24 {
		id, seed := fmt.Sprintf("burst-%d-%d", r.Uint32(), n), r.Uint64()
		sends.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			b.once(id, "http://"+m.direct.Address(), (n+1)%2, random)
		})
	}
	pause(b.ctx, alive)
	b.interrupt(m)
	if err := errors.Join(m.Kill(), late(0)); err != nil {
		return "", err
	}
	sends.Wait()
	cut := b.ledger.Tally().Unanswered - before
	pause(b.ctx, between(r, 0, 2))
	return some(cut, "%d sends had no answer", cut), b.restart(m)
}

func freeze(b *testbed, r *rand.Rand, d time.Duration) (string, error) {
	m, release := b.pick(r)
	defer release()
	defer b.ledger.Outages.Begin(0)()
	if err := m.Freeze(b.ctx); err != nil {
		return "", err
	}
	silent := ""
	if !m.Answers(b.ctx) {
		silent = "it did not answer for " + d.String()
	}
	pause(b.ctx, d)
	return silent, m.Thaw()
}

func stop(b *testbed, r *rand.Rand) (string, error) {
	m, release := b.pick(r)
	defer release()
	had := b.interrupt(m)
	began := time.Now()
	if err := m.Stop(); err != nil {
		return "", errors.Join(err, b.restart(m))
	}
	took := time.Since(began).Round(time.Millisecond)
	pause(b.ctx, between(r, 0, 1))
	return some(had, "%d streams were ended within %v", had, took), b.restart(m)
}

func jump(b *testbed, r *rand.Rand) (string, error) {
	m, release := b.pick(r)
	defer release()
	was := m.Apart
	apart := was
	for (apart - was).Abs() < 5*time.Second {
		apart = time.Duration(r.IntN(480)-240) * time.Second
	}
	if err := m.SetClock(apart); err != nil {
		return "", err
	}
	got, err := m.Clock(b.ctx)
	pause(b.ctx, between(r, 0, 2))
	if err != nil {
		return "", err
	}
	if (got - apart).Abs() > 3*time.Second {
		return "", m.SetClock(was)
	}
	return fmt.Sprintf("from %v to %v from ours", was, apart), m.SetClock(was)
}

// cut drops the packets between a node and a service.
func cut(
	b *testbed, r *rand.Rand, service string, d cluster.Direction, lasts time.Duration,
) (string, error) {
	m, release := b.pick(r)
	defer release()
	if service == "database" {
		defer b.ledger.Outages.Begin(recovery)()
	}
	if m.host == nil {
		return cutStream(b, m, service, d, lasts)
	}
	outBefore, inBefore, err := m.host.Lost(service)
	if err != nil {
		return "", err
	}
	if err := m.host.Cut(service, d); err != nil {
		return "", err
	}
	pause(b.ctx, lasts)
	if err := m.host.Heal(); err != nil {
		return "", err
	}
	out, in, err := m.host.Lost(service)
	if err != nil {
		return "", err
	}
	out, in = out-outBefore, in-inBefore
	if d != cluster.In && out == 0 || d == cluster.In && in == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d packets from it and %d to it were lost in %v", out, in, lasts), nil
}

// cutStream stands for cut where there are no network namespaces.
func cutStream(
	b *testbed, m *machine, service string, d cluster.Direction, lasts time.Duration,
) (string, error) {
	link, say := m.toDatabase, askTLS
	if service == "redis" {
		link, say = m.toRedis, "PING\r\n"
	}
	if link == nil {
		return "", fmt.Errorf("nothing is between the node and %s", service)
	}
	if err := link.Cut(d); err != nil {
		return "", err
	}
	silent := ""
	if _, err := exchange(link.Address(), say, time.Second); err != nil {
		silent = fmt.Sprintf("nothing came through for %v", lasts)
	}
	pause(b.ctx, lasts)
	return silent, link.Heal()
}

// slow delays what a service answers to a node.
func slow(
	b *testbed, r *rand.Rand, to func(*machine) *cluster.Link, say string, by time.Duration,
) (string, error) {
	m := b.nodes[r.IntN(len(b.nodes))]
	defer to(m).Hold()()
	if err := to(m).Delay(by); err != nil {
		return "", err
	}
	took, err := exchange(to(m).Address(), say, 45*time.Second)
	pause(b.ctx, between(r, 1, 5))
	if err != nil || took < by/2 {
		return "", to(m).Delay(0)
	}
	return fmt.Sprintf("an answer took %v", took.Round(time.Millisecond)), to(m).Delay(0)
}

// reset resets the connections of a node to a service, repeatedly for a while.
func reset(b *testbed, r *rand.Rand, to func(*machine) *cluster.Link, say string) (string, error) {
	m := b.nodes[r.IntN(len(b.nodes))]
	defer to(m).Hold()()
	if err := to(m).Reset(); err != nil {
		return "", err
	}
	_, err := exchange(to(m).Address(), say, time.Second)
	pause(b.ctx, between(r, 0.2, 2))
	if err == nil {
		return "", to(m).Heal()
	}
	return err.Error(), to(m).Heal()
}

func killPostgres(b *testbed, r *rand.Rand) (string, error) {
	defer b.ledger.Outages.Begin(recovery)()
	before := b.db.PID()
	b.db.Kill(b.t)
	_, err := exchange(b.databaseAddress(), askTLS, time.Second)
	pause(b.ctx, between(r, 0, 2))
	b.db.Run(b.t)
	if err == nil || before == b.db.PID() {
		return "", nil
	}
	return "it refused connections, and is another process", nil
}

func freezePostgres(b *testbed, r *rand.Rand) (string, error) {
	defer b.ledger.Outages.Begin(recovery)()
	b.db.Freeze(b.t)
	_, err := exchange(b.databaseAddress(), askTLS, 500*time.Millisecond)
	d := between(r, 1, 5)
	pause(b.ctx, d)
	b.db.Thaw(b.t)
	if err == nil {
		return "", nil
	}
	return "it did not answer for " + d.String(), nil
}

func (b *testbed) databaseAddress() string {
	u, err := url.Parse(b.url)
	must(b.t, err)
	return u.Host
}
