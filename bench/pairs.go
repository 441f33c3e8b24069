package bench

import (
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
)

// Pairs is the mode p2p: pairs of users, one of whom sends.
// It measures the whole life of a message: stored, confirmed, delivered, acknowledged and ticked.
// The message also goes to the sender's own device.
type Pairs struct {
	Pairs       int `default:"50" help:"Number of pairs."`
	Outstanding int `default:"8" help:"Unconfirmed sends per sender."`
	// Together puts both users of a pair on one node.
	// The difference to a run without it is the cost of crossing nodes.
	Together bool `help:"With several nodes: both users of a pair are on the same one."`

	pairs []*pair
	start time.Duration
	// shape, if not nil, changes the recipient of pair i before it connects.
	shape func(i int, l *listener)
}

type pair struct {
	chat      string
	sender    *sender
	recipient *listener
}

func (p *Pairs) describe() (name, settings string) {
	settings = fmt.Sprintf("%d pairs × %d outstanding", p.Pairs, p.Outstanding)
	if p.Together {
		settings += ", each on one node"
	}
	return "p2p", settings
}

func (p *Pairs) prepare(r *run) error {
	if p.Pairs < 1 || p.Outstanding < 1 {
		return fmt.Errorf("--pairs and --outstanding must be at least 1")
	}
	p.pairs = make([]*pair, p.Pairs)
	return parallel(r.ctx, p.Pairs, setupLimit, func(i int) error {
		from, to, chat := r.name("ps", i), r.name("pr", i), r.name("pc", i)
		conn := r.connectAs(from)
		defer conn.Close()
		if err := r.createChat(conn, "direct", chat, []string{from, to}); err != nil {
			return err
		}
		other := i + 1
		if p.Together {
			other = i
		}
		recipient := newListener(r, to, other)
		recipient.endpoint.Chats = []string{chat}
		if p.shape != nil {
			p.shape(i, recipient)
		}
		recipient.acknowledge()
		own := newListener(r, from, i)
		s := newSender(own, chat, p.Outstanding)
		if r.load.Transport != client.REST {
			s.ticks = newTicks(from, 1, &r.ticked)
			own.ticks, own.delivered = s.ticks, nil
			// The sender's own device gets the sender's messages and ticks.
			if err := own.start(); err != nil {
				return err
			}
		}
		p.pairs[i] = &pair{chat: chat, sender: s, recipient: recipient}
		return recipient.start()
	})
}

func (p *Pairs) apply(r *run) error {
	p.start = r.now()
	r.send(p.senders())
	return r.await(p.missing)
}

func (p *Pairs) senders() []*sender {
	senders := make([]*sender, len(p.pairs))
	for i, pair := range p.pairs {
		senders[i] = pair.sender
	}
	return senders
}

// missing says what has not happened yet. It returns "" if nothing is missing.
func (p *Pairs) missing() string {
	for _, pair := range p.pairs {
		if missing := pair.missing(); missing != "" {
			return missing
		}
	}
	return ""
}

// missing says what has not happened yet. It returns "" if nothing is missing.
func (p *pair) missing() string {
	numbered, waiting, _ := p.sender.state()
	switch {
	case waiting > 0:
		return fmt.Sprintf("%d sends to chat %s are not confirmed", waiting, p.chat)
	case p.recipient.fresh.Load() < int64(numbered):
		return fmt.Sprintf("%s has %d of %d messages",
			p.recipient.endpoint.User, p.recipient.fresh.Load(), numbered)
	case !p.recipient.acks.Idle():
		return fmt.Sprintf("%s has not acknowledged everything", p.recipient.endpoint.User)
	case p.sender.ticks == nil:
		return ""
	case p.sender.listener.fresh.Load() < int64(numbered):
		return fmt.Sprintf("the own device of %s has %d of %d messages",
			p.sender.listener.endpoint.User, p.sender.listener.fresh.Load(), numbered)
	case p.sender.ticks.open() > 0:
		return fmt.Sprintf("%s has no second tick for %d messages",
			p.sender.listener.endpoint.User, p.sender.ticks.open())
	}
	return ""
}

func (p *Pairs) verify(r *run, report *Report) {
	sent, delivered, acks := p.finish(report)
	report.rates(sent, delivered, time.Duration(r.lastDelivery.Load())-p.start)
	report.add("acknowledgements written", float64(acks), "")
	report.perOperation("message, both devices", sent)
	report.latency("send → recipient", &r.delivered)
	report.latency("send → confirmed", &r.confirmed)
	report.latency("send → tick", &r.ticked)
}

// finish compares what arrived with what was sent.
func (p *Pairs) finish(report *Report) (sent, delivered, acks int64) {
	for _, pair := range p.pairs {
		numbered, _, digest := pair.sender.state()
		pair.recipient.check.Finish(pair.chat, numbered, digest)
		report.take(pair.recipient.check)
		if pair.sender.ticks != nil {
			pair.sender.listener.check.Finish(pair.chat, numbered, digest)
			report.take(pair.sender.listener.check)
		}
		sent += pair.sender.confirmed.Load()
		delivered += pair.recipient.fresh.Load()
		acks += pair.recipient.acks.Writes()
	}
	return sent, delivered, acks
}
