package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

// Mixed is the mode mixed: what an installation does for hours. Pairs and groups write, and their
// devices receive over all transports. Devices of members who send nothing lose their connections
// again and again, so that messages wait for them. It samples the server's memory and goroutines,
// which must not grow. Load.Rate is required, so that runs of different lengths compare.
type Mixed struct {
	Pairs   int           `default:"50" help:"Number of pairs, of which one user sends."`
	Groups  int           `default:"5" help:"Number of groups, of which one member sends."`
	Members int           `default:"40" help:"Members of each group."`
	Each    time.Duration `default:"30s" help:"How long such a device stays connected, on average."`
	Away    time.Duration `default:"5s" help:"How long it is away then, on average. Every second time it comes back without its session."`
	Sample  time.Duration `default:"1m" help:"How often memory and goroutines are read."`

	pairs   Pairs
	groups  []*Group
	start   time.Duration
	samples []sample
}

// sample is the state of the server at one moment, all nodes and named processes together.
type sample struct {
	resident   int64 // bytes
	goroutines float64
}

func (m *Mixed) describe() (name, settings string) {
	return "mixed", fmt.Sprintf(
		"%d pairs, %d groups of %d, whose devices are connected for %v and away for %v",
		m.Pairs, m.Groups, m.Members, m.Each, m.Away)
}

func (m *Mixed) prepare(r *run) error {
	switch {
	case m.Pairs < 1, m.Groups < 1, m.Members < 2, m.Each <= 0, m.Away <= 0, m.Sample <= 0:
		return fmt.Errorf("--pairs and --groups must be at least 1, --members at least 2, and " +
			"--each, --away and --sample above 0")
	case r.load.Rate == 0:
		return fmt.Errorf("--rate is required")
	case r.load.Transport != client.WebSocket:
		return fmt.Errorf("--transport must be websocket: only those who send nothing use others")
	}
	shape := func(i int, l *listener) {
		l.transport = []client.Transport{client.WebSocket, client.SSE, client.LongPoll}[i%3]
		l.leaving = &leaving{
			each: m.Each, away: m.Away, random: rand.New(rand.NewPCG(uint64(i), 0)),
		}
	}
	m.pairs = Pairs{Pairs: m.Pairs, Outstanding: 8, shape: shape}
	if err := m.pairs.prepare(r); err != nil {
		return err
	}
	for i := range m.Groups {
		g := &Group{Members: m.Members, Senders: 1, Outstanding: 8, index: i, shape: shape}
		if err := g.prepare(r); err != nil {
			return err
		}
		m.groups = append(m.groups, g)
	}
	return nil
}

func (m *Mixed) apply(r *run) error {
	m.start = r.now()
	senders := m.pairs.senders()
	for _, g := range m.groups {
		senders = append(senders, g.senders...)
	}
	sampling, enough := context.WithCancel(r.ctx)
	r.goroutine(func() error { return m.sampleUntil(sampling, r) })
	r.send(senders)
	enough()
	return r.await(func() string {
		missing := m.pairs.missing()
		for _, g := range m.groups {
			if missing == "" {
				missing = g.missing()
			}
		}
		return missing
	})
}

// sampleUntil samples the server until ctx ends.
func (m *Mixed) sampleUntil(ctx context.Context, r *run) error {
	for sleep(ctx, m.Sample) == nil {
		var now sample
		for _, pid := range r.load.PIDs {
			p, err := measure.ReadProcess(pid)
			if err != nil {
				return err
			}
			now.resident += p.Resident
		}
		for _, node := range r.nodes {
			text, err := r.metricsText(node)
			if err != nil {
				return err
			}
			now.goroutines += measure.Goroutines(text)
		}
		m.samples = append(m.samples, now)
	}
	return nil
}

func (m *Mixed) verify(r *run, report *Report) {
	report.Transport = "websocket, sse and longpoll"
	sent, delivered, acks := m.pairs.finish(report)
	for _, g := range m.groups {
		s, d, a := g.finish(report)
		sent, delivered, acks = sent+s, delivered+d, acks+a
	}
	report.rates(sent, delivered, time.Duration(r.lastDelivery.Load())-m.start)
	report.add("acknowledgements written", float64(acks), "")
	report.perOperation("delivery", delivered)
	// The first quarter also fills caches.
	for i, name := range []string{"first", "second", "third", "last"} {
		var sum sample
		part := m.samples[len(m.samples)*i/4 : len(m.samples)*(i+1)/4]
		for _, s := range part {
			sum.resident += s.resident
			sum.goroutines += s.goroutines
		}
		if n := len(part); n > 0 {
			report.add("resident memory, mean of the "+name+" quarter",
				mib(sum.resident/int64(n)), "MiB")
			report.add("goroutines, mean of the "+name+" quarter", sum.goroutines/float64(n), "")
		}
	}
	report.latency("send → recipient", &r.delivered)
	report.latency("send → confirmed", &r.confirmed)
	report.latency("send → tick of all", &r.ticked)
}
