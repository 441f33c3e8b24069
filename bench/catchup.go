package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

// Catchup is the mode catchup: users who were offline connect and receive what they missed.
// It measures from the first connection to the last acknowledgement.
type Catchup struct {
	Clients int `default:"50" help:"Number of users."`
	Chats   int `default:"20" help:"Chats with something new, per user."`
	Missed  int `default:"50" help:"Missed messages per chat."`
	AtOnce  int `default:"0" help:"How many users catch up at a time; 0 is all of them at once."`
	// Visit makes each user connect and close cleanly once, before the messages are sent.
	Visit bool `default:"true" negatable:"" help:"Connect each user once before the sends."`

	// LivePairs write to each other at Load.Rate meanwhile.
	LivePairs int `default:"0" help:"Number of pairs that write meanwhile, at --rate."`

	clients []*returning
	live    *Pairs
	took    measure.Histogram
	start   time.Duration
	seconds time.Duration
}

// returning is one user who was offline and comes back.
type returning struct {
	listener *listener
	chats    []string
	digests  []uint64
}

func (c *Catchup) describe() (name, settings string) {
	atOnce := "all at once"
	if c.AtOnce > 0 {
		atOnce = fmt.Sprintf("%d at a time", c.AtOnce)
	}
	settings = fmt.Sprintf("%d clients %s, each %d chats × %d missed",
		c.Clients, atOnce, c.Chats, c.Missed)
	if c.LivePairs > 0 {
		settings += fmt.Sprintf(", while %d pairs write", c.LivePairs)
	}
	return "catchup", settings
}

func (c *Catchup) prepare(r *run) error {
	switch {
	case c.Clients < 1, c.Chats < 1, c.Missed < 1, c.AtOnce < 0, c.LivePairs < 0:
		return fmt.Errorf("--clients, --chats and --missed must be at least 1, " +
			"--at-once and --live-pairs at least 0")
	case c.LivePairs > 0 && r.load.Rate == 0:
		return fmt.Errorf("--live-pairs needs --rate")
	}
	c.clients = make([]*returning, c.Clients)
	for i := range c.clients {
		client := &returning{digests: make([]uint64, c.Chats)}
		for k := range c.Chats {
			client.chats = append(client.chats, r.name("c", i*c.Chats+k))
		}
		c.clients[i] = client
	}
	create := func(i int) error { return c.create(r, i) }
	if err := parallel(r.ctx, c.Clients, setupLimit, create); err != nil {
		return err
	}
	store := func(i int) error { return c.store(r, i) }
	if err := parallel(r.ctx, c.Clients*c.Chats, setupLimit, store); err != nil {
		return err
	}
	for i, client := range c.clients {
		client.listener = newListener(r, r.name("r", i), i)
		client.listener.delivered = nil
		client.listener.acknowledge()
	}
	if c.LivePairs > 0 {
		c.live = &Pairs{Pairs: c.LivePairs, Outstanding: 8}
		return c.live.prepare(r)
	}
	return nil
}

// create creates the chats of client i, who then connects and closes once if Visit is set.
func (c *Catchup) create(r *run, i int) error {
	user, feeder := r.name("r", i), r.name("f", i)
	conn := r.connectAs(feeder)
	defer conn.Close()
	for _, chat := range c.clients[i].chats {
		if err := r.createChat(conn, "group", chat, []string{feeder, user}); err != nil {
			return err
		}
	}
	if !c.Visit {
		return nil
	}
	s, err := client.DialSocket(r.ctx, r.endpoint(user, 0), client.Position{})
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err != nil {
			return fmt.Errorf("first visit of %s: %w", user, err)
		}
		if string(e.Kind) == "caught_up" {
			return nil
		}
	}
}

// store sends the messages that are missed in chat i, counted over all clients.
func (c *Catchup) store(r *run, i int) error {
	user, k := c.clients[i/c.Chats], i%c.Chats
	feeder := r.name("f", i/c.Chats)
	conn := r.connectAs(feeder)
	defer conn.Close()
	path := "/api/v1/chats/" + user.chats[k] + "/messages"
	for n := range c.Missed {
		id := fmt.Sprintf("%s-%d-%d", feeder, k, n+1)
		body := client.AppendSend(nil, "", id, client.AppendContent(nil, r.now(), id, r.load.Size))
		if _, err := conn.Do(r.ctx, "POST", path, body, client.AnswerTimeout); err != nil {
			return fmt.Errorf("store a missed message: %w", err)
		}
		user.digests[k] += client.DigestOf(id)
	}
	return nil
}

func (c *Catchup) apply(r *run) error {
	c.start = r.now()
	limit := c.AtOnce
	if limit == 0 {
		limit = c.Clients
	}
	live, enough := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	r.goroutine(func() error {
		defer close(ended)
		if c.live != nil {
			r.sendUntil(c.live.senders(), &budget{ctx: live})
		}
		return nil
	})
	err := parallel(r.ctx, c.Clients, limit,
		func(i int) error { return c.receive(r, c.clients[i]) })
	c.seconds = r.now() - c.start
	enough()
	<-ended
	if err != nil || c.live == nil {
		return err
	}
	return r.await(c.live.missing)
}

// receive connects one client, and returns when it has received and acknowledged everything.
func (c *Catchup) receive(r *run, client *returning) error {
	start := r.now()
	all := make(chan struct{})
	l := client.listener
	l.expected, l.all = int64(c.Chats*c.Missed), all
	if err := l.start(); err != nil {
		return err
	}
	late := time.NewTimer(r.load.Drain)
	defer late.Stop()
	select {
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-late.C:
		return fmt.Errorf("%s has %d of %d messages %v after connecting",
			l.endpoint.User, l.fresh.Load(), l.expected, r.load.Drain)
	case <-all:
	}
	c.took.Add(r.now() - start)
	l.acks.Hurry()
	return r.await(func() string {
		if l.acks.Idle() {
			return ""
		}
		return l.endpoint.User + " has not acknowledged everything"
	})
}

func (c *Catchup) verify(r *run, report *Report) {
	var delivered int64
	for _, client := range c.clients {
		for k, chat := range client.chats {
			client.listener.check.Finish(chat, uint64(c.Missed), client.digests[k])
		}
		report.take(client.listener.check)
		delivered += client.listener.fresh.Load()
	}
	report.Delivered = delivered
	report.add("clients caught up", float64(c.took.Count()), "")
	report.add("all caught up and acknowledged after", c.seconds.Seconds(), "s")
	report.add("delivered", float64(delivered), "messages")
	report.add("delivered per second", float64(delivered)/c.seconds.Seconds(), "/s")
	report.perOperation("client", int64(c.Clients))
	report.perOperation("delivery", delivered)
	report.latency("connect → has everything", &c.took)
	if c.live != nil {
		sent, _, _ := c.live.finish(report)
		report.add("live messages meanwhile", float64(sent), "messages")
		report.latency("live message: send → recipient", &r.delivered)
		report.latency("live message: send → tick", &r.ticked)
	}
}
