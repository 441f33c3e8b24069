package bench

import (
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
)

// Group is the mode group: one chat with all members online, or some of them.
// It measures the fan-out, which is the cost of each delivery to the devices of all members.
// The senders' devices count too.
type Group struct {
	Members     int `default:"100" help:"Members of the chat who are online."`
	Offline     int `default:"0" help:"Further members, who are never online."`
	Senders     int `default:"1" help:"How many of the members send."`
	Outstanding int `default:"8" help:"Unconfirmed sends per sender."`

	chat      string
	listeners []*listener
	senders   []*sender
	start     time.Duration
	// index tells the groups of a run apart, of at most groupSize members each.
	index int
	// shape, if not nil, changes the device of member i, who sends nothing, before it connects.
	shape func(i int, l *listener)
}

const groupSize = 1_000_000

func (g *Group) describe() (name, settings string) {
	settings = fmt.Sprintf("%d members online, %d sending × %d outstanding",
		g.Members, g.Senders, g.Outstanding)
	if g.Offline > 0 {
		settings += fmt.Sprintf(", %d members offline", g.Offline)
	}
	return "group", settings
}

func (g *Group) prepare(r *run) error {
	if g.Senders < 1 || g.Outstanding < 1 || g.Members < 2 || g.Senders > g.Members ||
		g.Offline < 0 {
		return fmt.Errorf("--members must be at least 2, --senders and --outstanding at least 1, " +
			"--senders at most --members, and --offline at least 0")
	}
	g.chat = r.name("g", g.index)
	members := make([]string, g.Members+g.Offline)
	for i := range members {
		members[i] = r.name("m", g.index*groupSize+i)
	}
	conn := r.connectAs(members[0])
	defer conn.Close()
	if err := r.createChat(conn, "group", g.chat, members); err != nil {
		return err
	}
	g.listeners = make([]*listener, g.Members)
	for i, user := range members[:g.Members] {
		g.listeners[i] = newListener(r, user, i)
		g.listeners[i].endpoint.Chats = []string{g.chat}
		if g.shape != nil && i >= g.Senders {
			g.shape(i, g.listeners[i])
		}
	}
	for _, l := range g.listeners[:g.Senders] {
		s := newSender(l, g.chat, g.Outstanding)
		// Nobody has the second tick of a chat whose members are not all there.
		if r.load.Transport != client.REST && g.Offline == 0 {
			s.ticks = newTicks(l.endpoint.User, g.Members-1, &r.ticked)
			l.ticks = s.ticks
		}
		g.senders = append(g.senders, s)
	}
	return parallel(r.ctx, g.Members, setupLimit, func(i int) error {
		g.listeners[i].acknowledge()
		return g.listeners[i].start()
	})
}

func (g *Group) apply(r *run) error {
	g.start = r.now()
	r.send(g.senders)
	return r.await(g.missing)
}

// missing says what has not happened yet. It returns "" if nothing is missing.
func (g *Group) missing() string {
	for _, s := range g.senders {
		if _, waiting, _ := s.state(); waiting > 0 {
			return fmt.Sprintf("%d sends of %s are not confirmed",
				waiting, s.listener.endpoint.User)
		}
	}
	sent, _ := g.sent()
	for _, l := range g.listeners {
		if l.fresh.Load() < int64(sent) {
			return fmt.Sprintf("%s has %d of %d messages",
				l.endpoint.User, l.fresh.Load(), sent)
		}
		if !l.acks.Idle() {
			return fmt.Sprintf("%s has not acknowledged everything", l.endpoint.User)
		}
	}
	for _, s := range g.senders {
		if s.ticks != nil && s.ticks.open() > 0 {
			return fmt.Sprintf("%s has no second tick for %d messages",
				s.listener.endpoint.User, s.ticks.open())
		}
	}
	return ""
}

// sent returns the number and the digest of the messages that were sent.
func (g *Group) sent() (messages, digest uint64) {
	for _, s := range g.senders {
		numbered, _, d := s.state()
		messages += numbered
		digest += d
	}
	return messages, digest
}

func (g *Group) verify(r *run, report *Report) {
	sent, delivered, acks := g.finish(report)
	report.rates(sent, delivered, time.Duration(r.lastDelivery.Load())-g.start)
	report.add("acknowledgements written", float64(acks), "")
	report.perOperation("message", sent)
	report.perOperation("delivery", delivered)
	report.latency("send → recipient", &r.delivered)
	report.latency("send → confirmed", &r.confirmed)
	report.latency("send → tick of all", &r.ticked)
}

// finish compares what arrived with what was sent.
func (g *Group) finish(report *Report) (sent, delivered, acks int64) {
	head, digest := g.sent()
	for _, l := range g.listeners {
		l.check.Finish(g.chat, head, digest)
		report.take(l.check)
		delivered += l.fresh.Load()
		acks += l.acks.Writes()
	}
	for _, s := range g.senders {
		sent += s.confirmed.Load()
	}
	return sent, delivered, acks
}
