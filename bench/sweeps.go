package bench

import (
	"cmp"
	"fmt"
)

// sweep is one kind of curve.
type sweep struct {
	// title says what grows, axis names it, and operation is what its cost is divided by.
	title, axis, operation string
	usual, short           []int
	// least is the least value that can be measured.
	least int
	// anew gives each point users and chats of its own. Otherwise what is there grows.
	anew bool
	// opens says that the operation is an open, and not a message.
	opens bool
	begin func() stepper
}

// stepper is the load of one curve. It applies the load more than once.
type stepper interface {
	// step brings the load to a value: it creates users, chats and messages, and connects.
	step(r *run, value int) error
	// apply applies the load for Load.Duration, and waits until everything expected has arrived.
	apply(r *run) error
	// operations returns how many messages or opens there were until now.
	operations() int64
	// verify adds what is wrong to a report. Every goroutine has ended then.
	verify(r *run, report *Report)
}

// sweeps returns the curves by name.
func sweeps() map[string]sweep {
	return map[string]sweep{
		"offline": {
			title: "a group with 10 online, others offline", axis: "members offline",
			operation: "message", anew: true, begin: func() stepper { return &offline{} },
			usual: []int{0, 1, 10, 50, 100, 250, 490, 499}, short: []int{0, 10, 50},
		},
		"online": {
			title: "a group whose members are all online", axis: "members online",
			operation: "message", anew: true, least: 2, begin: func() stepper { return &online{} },
			usual: []int{2, 10, 50, 51, 100, 500, 1000, 2000}, short: []int{2, 10, 51},
		},
		"history": {
			title: "50 pairs, and what they sent before", axis: "messages stored",
			operation: "message", least: 1, begin: func() stepper { return &history{} },
			usual: []int{1e4, 1e5, 1e6}, short: []int{1e3, 1e4},
		},
		"chats": {
			title: "up to 100 pairs, many chats in turn", axis: "chats in use",
			operation: "message", least: 1, begin: func() stepper { return &spread{} },
			usual: []int{1e2, 1e3, 1e4, 1e5}, short: []int{1e2, 1e3},
		},
		"rate": {
			title: "50 pairs, at a rate", axis: "messages a second", operation: "message",
			begin: func() stepper { return &rate{} },
			usual: []int{10, 20, 50, 200, 1000, 5000, 0}, short: []int{20, 200, 0},
		},
		"silent": {
			title: "a user with chats in which nothing is new", axis: "silent chats",
			operation: "open", opens: true,
			begin: func() stepper { return &opens{users: 2} },
			usual: []int{0, 10, 100, 1000, 2000, 5000}, short: []int{0, 10, 100},
		},
		"members": {
			title: "the members of one group", axis: "members", operation: "open", anew: true,
			opens: true, least: 2, begin: func() stepper { return &opens{chats: 1} },
			usual: []int{2, 10, 50, 51, 100, 500, 1000, 2000}, short: []int{2, 10, 51},
		},
	}
}

// compare orders values. For messages a second, 0 is as fast as possible, and comes last.
func (s sweep) compare(a, b int) int {
	if s.fastest(a) || s.fastest(b) {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// fastest reports whether a value says "as fast as possible".
func (s sweep) fastest(value int) bool { return value == 0 && s.axis == "messages a second" }

const (
	sweepPairs       = 50
	sweepOnline      = 10
	sweepOutstanding = 8
	spreadPairs      = 100
)

// offline is a group of which 10 members are online. One of them sends.
type offline struct{ Group }

func (o *offline) step(r *run, value int) error {
	o.Group = Group{
		Members: sweepOnline, Offline: value, Senders: 1, Outstanding: sweepOutstanding,
	}
	return o.prepare(r)
}

// online is a group with everybody online. One member sends.
type online struct{ Group }

func (o *online) step(r *run, value int) error {
	o.Group = Group{Members: value, Senders: 1, Outstanding: sweepOutstanding}
	return o.prepare(r)
}

func (g *Group) operations() (n int64) {
	for _, s := range g.senders {
		n += s.confirmed.Load()
	}
	return n
}

func (p *Pairs) operations() (n int64) {
	for _, pair := range p.pairs {
		n += pair.sender.confirmed.Load()
	}
	return n
}

// begin prepares the pairs once. Each sends a message, because the first one of a chat reads its
// members, and is not what is measured.
func (p *Pairs) begin(r *run) error {
	if p.pairs != nil {
		return nil
	}
	p.Pairs, p.Outstanding = sweepPairs, sweepOutstanding
	if err := p.prepare(r); err != nil {
		return err
	}
	for _, pair := range p.pairs {
		r.load.Messages = 1
		r.send([]*sender{pair.sender})
	}
	r.load.Messages = 0
	return nil
}

// rate is pairs that send at a rate.
type rate struct{ Pairs }

func (s *rate) step(r *run, value int) error {
	r.load.Rate = 0
	err := s.begin(r)
	r.load.Rate = float64(value)
	return err
}

// history is pairs with messages stored before.
type history struct{ Pairs }

func (h *history) step(r *run, value int) error {
	if err := h.begin(r); err != nil {
		return err
	}
	r.load.Messages = int64(value) - h.operations()
	if r.load.Messages <= 0 { // the points before it have stored as many
		r.load.Messages = 0
		return nil
	}
	err := h.apply(r)
	r.load.Messages = 0
	return err
}

// spread is pairs that send to many chats in turn, one message at a time. Several messages to one
// chat would share a call of the storage, and more of them with fewer chats. The chats are groups
// of two, because two users have only one direct chat.
type spread struct{ Pairs }

func (s *spread) step(r *run, value int) error {
	if s.pairs == nil {
		s.pairs = make([]*pair, min(value, spreadPairs))
		err := parallel(r.ctx, len(s.pairs), setupLimit, func(i int) error { return s.pair(r, i) })
		if err != nil {
			return err
		}
	}
	n := len(s.pairs)
	err := parallel(r.ctx, n, setupLimit, func(i int) error {
		p := s.pairs[i]
		from, to := p.sender.listener.endpoint.User, p.recipient.endpoint.User
		conn := r.connectAs(from)
		defer conn.Close()
		for k := len(p.sender.chats)*n + i; k < value; k += n {
			chat := r.name("c", k)
			if err := r.createChat(conn, "group", chat, []string{from, to}); err != nil {
				return err
			}
			p.sender.chats = append(p.sender.chats, sentTo{id: chat})
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The first message of a chat reads its members, and is not what is measured.
	r.load.Messages = int64(value)
	err = s.apply(r)
	r.load.Messages = 0
	return err
}

// pair connects both users of pair i.
func (s *spread) pair(r *run, i int) error {
	recipient := newListener(r, r.name("r", i), i+1)
	recipient.acknowledge()
	own := newListener(r, r.name("s", i), i)
	own.delivered = nil
	sender := newSender(own, "", 1)
	sender.chats = nil
	s.pairs[i] = &pair{
		chat: fmt.Sprintf("of pair %d", i), sender: sender, recipient: recipient,
	}
	if err := own.start(); err != nil {
		return err
	}
	return recipient.start()
}

func (s *spread) verify(_ *run, report *Report) {
	for _, p := range s.pairs {
		for _, chat := range p.sender.chats {
			p.recipient.check.Finish(chat.id, chat.count, chat.digest)
		}
		report.take(p.recipient.check)
	}
}
