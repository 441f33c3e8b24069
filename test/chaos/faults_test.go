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

// fault is one thing that happens, and is over when strike returns. What strike returns is how it showed, "" if it did not.
type fault struct {
	name   string
	strike func(w *world, r *rand.Rand) (shown string, err error)
}

// kindTally is what became of the faults of one kind.
type kindTally struct {
	struck, shown int
	how           string
	whole         checker.Waits
}

// recovery is how long the store takes at most to notice that the database is back: no call of it is longer.
const recovery = 5 * time.Second

// nodeFaults are what happens to one node, or to its ways.
func nodeFaults() []fault {
	return []fault{
		{
			killed,
			func(w *world, r *rand.Rand) (string, error) {
				return kill(w, r, false, between(r, 0, 3))
			},
		},
		{
			"node killed, back under another name",
			func(w *world, r *rand.Rand) (string, error) {
				return kill(w, r, true, between(r, 0, 3))
			},
		},
		{
			"node killed in a burst of sends",
			func(w *world, r *rand.Rand) (string, error) { return burst(w, r, false) },
		},
		{
			"node killed between append and hand-over",
			func(w *world, r *rand.Rand) (string, error) { return burst(w, r, true) },
		},
		{
			"node killed, gone for long",
			func(w *world, r *rand.Rand) (string, error) {
				return kill(w, r, false, between(r, 10, 12))
			},
		},
		{
			"node frozen",
			func(w *world, r *rand.Rand) (string, error) { return freeze(w, r, between(r, 1, 5)) },
		},
		{
			"node frozen beyond its lease",
			func(w *world, r *rand.Rand) (string, error) {
				return freeze(w, r, between(r, 10, 12))
			},
		},
		{"node stopped in good order", stop},
		{"clock of a node jumps", jump},
		{"node cut from Redis", func(w *world, r *rand.Rand) (string, error) {
			return cut(w, r, "redis", cluster.Both, between(r, 2, 13))
		}},
		{"node cannot be heard by Redis", func(w *world, r *rand.Rand) (string, error) {
			return cut(w, r, "redis", cluster.Out, between(r, 2, 13))
		}},
		{
			"node cannot hear Redis",
			func(w *world, r *rand.Rand) (string, error) {
				return cut(w, r, "redis", cluster.In, between(r, 2, 13))
			},
		},
		{"node cut from the database", func(w *world, r *rand.Rand) (string, error) {
			return cut(w, r, "database", cluster.Both, between(r, 2, 8))
		}},
		{"node cannot be heard by the database", func(w *world, r *rand.Rand) (string, error) {
			return cut(w, r, "database", cluster.Out, between(r, 2, 8))
		}},
		{"node cannot hear the database", func(w *world, r *rand.Rand) (string, error) {
			return cut(w, r, "database", cluster.In, between(r, 2, 8))
		}},
	}
}

// databaseFaults are what happens to the database.
func databaseFaults() []fault {
	database := func(m *machine) *cluster.Link { return m.toDatabase }
	return []fault{
		{"Postgres killed", killPostgres},
		{"Postgres frozen", freezePostgres},
		{"Postgres slow", func(w *world, r *rand.Rand) (string, error) {
			return slow(w, r, database, askTLS, time.Duration(100+r.IntN(400))*time.Millisecond)
		}},
		{
			"connections to Postgres reset",
			func(w *world, r *rand.Rand) (string, error) { return reset(w, r, database, askTLS) },
		},
	}
}

// askTLS is a request of Postgres's protocol that is answered at once, before anybody says who he is.
const askTLS = "\x00\x00\x00\x08\x04\xd2\x16\x2f"

// long reports whether there is time for what takes half a minute.
func (w *world) long() bool { return w.seconds >= 180 }

// delay is by how much Redis is slow: longer than anybody waits for it, now and then.
func (w *world) delay(r *rand.Rand) time.Duration {
	if w.long() && r.IntN(3) == 0 {
		return 30 * time.Second
	}
	return between(r, 0.2, 2.2)
}

// pick returns a node, which is the caller's until release.
func (w *world) pick(r *rand.Rand) (m *machine, release func()) {
	m = w.nodes[r.IntN(len(w.nodes))]
	m.mu.Lock()
	return m, m.mu.Unlock
}

// restart starts a node again, as whoever supervises it does: if it ends since the database is away, once more.
func (w *world) restart(m *machine) error {
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && w.ctx.Err() == nil; pause(w.ctx, 100*time.Millisecond) {
		if err = m.Start(w.ctx); err == nil {
			return nil
		}
		if m.Runs() {
			_ = m.Kill()
		}
	}
	return err
}

func kill(w *world, r *rand.Rand, rename bool, gone time.Duration) (string, error) {
	m, release := w.pick(r)
	defer release()
	cut := w.interrupt(m)
	if err := m.Kill(); err != nil {
		return "", err
	}
	pause(w.ctx, gone)
	if rename {
		m.times++
		m.Name = fmt.Sprintf("%s-%d", strings.Split(m.Name, "-")[0], m.times)
	}
	if err := w.restart(m); err != nil {
		return "", err
	}
	return some(cut, "%d streams were cut off, the node was gone for %v", cut, gone), nil
}

// some is how something showed if it did so often enough.
func some(n int, format string, args ...any) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// burst lets many users send to one node at a time, and kills it meanwhile: some of the messages are stored then, and nobody was told; all of them, if Redis does not
// answer it, as it cannot look up whom to tell. Half of the senders never try again. It is repeated if all of them were answered in time, as by a node that has just
// found out that a service is away.
func burst(w *world, r *rand.Rand, silent bool) (string, error) {
	for tries := 1; ; tries++ {
		if cut, err := killMeanwhile(w, r, silent); err != nil || cut > 0 || tries == 3 {
			return some(cut, "%d sends had no answer", cut), err
		}
	}
}

// killMeanwhile is one attempt, and returns how many sends had no answer.
func killMeanwhile(w *world, r *rand.Rand, silent bool) (cut int, err error) {
	m, release := w.pick(r)
	defer release()
	alive, late := time.Duration(5+r.IntN(25))*time.Millisecond, func(time.Duration) error {
		return nil
	}
	if silent && m.toRedis != nil {
		defer m.toRedis.Hold()()
		alive, late = time.Duration(100+r.IntN(300))*time.Millisecond, m.toRedis.Delay // less than a node waits for Redis
	}
	if err := late(10 * time.Second); err != nil {
		return 0, err
	}
	before := w.ledger.Tally().Unanswered
	var sends sync.WaitGroup
	for n := range 24 {
		id, seed := fmt.Sprintf("burst-%d-%d", r.Uint32(), n), r.Uint64()
		sends.Go(func() { w.once(id, "http://"+m.direct.Address(), (n+1)%2, rand.New(rand.NewPCG(seed, 0))) })
	}
	pause(w.ctx, alive)
	w.interrupt(m)
	if err := errors.Join(m.Kill(), late(0)); err != nil {
		return 0, err
	}
	sends.Wait()
	cut = w.ledger.Tally().Unanswered - before
	pause(w.ctx, between(r, 0, 2))
	return cut, w.restart(m)
}

func freeze(w *world, r *rand.Rand, d time.Duration) (string, error) {
	m, release := w.pick(r)
	defer release()
	defer w.ledger.Dark.Begin(0)()
	if err := m.Freeze(w.ctx); err != nil {
		return "", err
	}
	silent := ""
	if !m.Answers(w.ctx) {
		silent = "it did not answer for " + d.String()
	}
	pause(w.ctx, d)
	return silent, m.Thaw()
}

func stop(w *world, r *rand.Rand) (string, error) {
	m, release := w.pick(r)
	defer release()
	had := w.interrupt(m)
	began := time.Now()
	if err := m.Stop(); err != nil {
		return "", errors.Join(err, w.restart(m))
	}
	took := time.Since(began).Round(time.Millisecond)
	pause(w.ctx, between(r, 0, 1))
	return some(had, "%d streams were ended within %v", had, took), w.restart(m)
}

func jump(w *world, r *rand.Rand) (string, error) {
	m, release := w.pick(r)
	defer release()
	was := m.Apart
	apart := time.Duration(r.IntN(480)-240) * time.Second
	if err := m.SetClock(apart); err != nil {
		return "", err
	}
	got, err := m.Clock(w.ctx)
	pause(w.ctx, between(r, 0, 2))
	if err != nil {
		return "", err
	}
	if off := got - apart; off < -3*time.Second || off > 3*time.Second || (apart-was).Abs() < 5*time.Second {
		return "", m.SetClock(was)
	}
	return fmt.Sprintf("from %v to %v from ours", was, apart), m.SetClock(was)
}

// cut loses the packets between a node and a service.
func cut(
	w *world, r *rand.Rand, service string, d cluster.Direction, lasts time.Duration,
) (string, error) {
	m, release := w.pick(r)
	defer release()
	if service == "database" {
		defer w.ledger.Dark.Begin(recovery)()
	}
	if m.host == nil {
		return cutStream(w, m, service, d, lasts)
	}
	outBefore, inBefore, err := m.host.Lost(service)
	if err != nil {
		return "", err
	}
	if err := m.host.Cut(service, d); err != nil {
		return "", err
	}
	pause(w.ctx, lasts)
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

// cutStream is cut where there are no network namespaces.
func cutStream(
	w *world, m *machine, service string, d cluster.Direction, lasts time.Duration,
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
	pause(w.ctx, lasts)
	return silent, link.Heal()
}

// slow delays what a service answers to a node.
func slow(
	w *world, r *rand.Rand, to func(*machine) *cluster.Link, say string, by time.Duration,
) (string, error) {
	m := w.nodes[r.IntN(len(w.nodes))]
	defer to(m).Hold()()
	if err := to(m).Delay(by); err != nil {
		return "", err
	}
	took, err := exchange(to(m).Address(), say, 45*time.Second)
	pause(w.ctx, between(r, 1, 5))
	if err != nil || took < by/2 {
		return "", to(m).Delay(0)
	}
	return fmt.Sprintf("an answer took %v", took.Round(time.Millisecond)), to(m).Delay(0)
}

// reset resets the connections of a node to a service, again and again for a while.
func reset(w *world, r *rand.Rand, to func(*machine) *cluster.Link, say string) (string, error) {
	m := w.nodes[r.IntN(len(w.nodes))]
	defer to(m).Hold()()
	if err := to(m).Reset(); err != nil {
		return "", err
	}
	_, err := exchange(to(m).Address(), say, time.Second)
	pause(w.ctx, between(r, 0.2, 2))
	if err == nil {
		return "", to(m).Heal()
	}
	return err.Error(), to(m).Heal()
}

func killPostgres(w *world, r *rand.Rand) (string, error) {
	defer w.ledger.Dark.Begin(recovery)()
	before := w.db.PID()
	w.db.Kill(w.t)
	_, err := exchange(w.databaseAddress(), askTLS, time.Second)
	pause(w.ctx, between(r, 0, 2))
	w.db.Run(w.t)
	if err == nil || before == w.db.PID() {
		return "", nil
	}
	return "it refused connections, and is another process", nil
}

func freezePostgres(w *world, r *rand.Rand) (string, error) {
	defer w.ledger.Dark.Begin(recovery)()
	w.db.Freeze(w.t)
	_, err := exchange(w.databaseAddress(), askTLS, 500*time.Millisecond)
	d := between(r, 1, 5)
	pause(w.ctx, d)
	w.db.Thaw(w.t)
	if err == nil {
		return "", nil
	}
	return "it did not answer for " + d.String(), nil
}

func (w *world) databaseAddress() string {
	u, err := url.Parse(w.url)
	must(w.t, err)
	return u.Host
}
