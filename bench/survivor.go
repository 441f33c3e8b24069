package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/device"
)

// survivor is a device that comes back by the documented rules.
// It resumes its session at the last event that it has.
// It waits for as long as the server says, else it backs off.
// If the server does not know the session, it opens a new one and sends its cursors.
type survivor struct {
	run       *run
	storm     *Storm
	endpoint  client.Endpoint
	transport client.Transport
	chat      string
	check     *device.Checker
	rest      *client.Conn
	at        client.Position
	// cursors says that the session is new and needs the device's cursors.
	cursors bool
	// recovered says that the device has caught up with the new server.
	recovered bool

	// prefix is the contiguous prefix of its chat, acked the part that it acknowledged.
	prefix, acked uint64
	fresh         atomic.Int64
	caughtUp      atomic.Bool
	// bounds are the boundaries of other members, by user id.
	bounds map[string][2]uint64
	// ticksBack counts boundaries that fell.
	ticksBack int64
	// abrupt counts the connections that ended without a time to come back.
	abrupt int64
	// tries counts the attempts to come back.
	tries int64
}

// ackAfter is how many messages a survivor receives before it acknowledges them.
const ackAfter = 2

func newSurvivor(r *run, s *Storm, i int) *survivor {
	c := &survivor{
		run:       r,
		storm:     s,
		endpoint:  r.endpoint(r.name("d", i), i),
		chat:      s.chats[i/s.ChatSize].id,
		transport: []client.Transport{client.WebSocket, client.SSE, client.LongPoll}[i%3],
		bounds:    make(map[string][2]uint64),
	}
	c.endpoint.Buffer = client.SmallBuffer
	c.check = device.NewChecker(c.endpoint.User)
	c.rest = client.NewConn(c.endpoint.URL, c.endpoint.Token, &r.answerBytes, client.SmallBuffer)
	r.closeLater(c.rest.Close)
	return c
}

// live keeps a connection open until the run ends, and replaces it when it is lost.
func (c *survivor) live() error {
	for failures := 0; ; failures++ {
		came, err := c.connection()
		if c.run.ctx.Err() != nil {
			return nil
		}
		if came {
			failures = 0
		}
		var no *client.Refused
		if errors.As(err, &no) {
			switch no.Status {
			case 410:
				c.at, c.cursors, failures = client.Position{}, true, 0
				continue
			case 429, 500, 503:
			default:
				return fmt.Errorf("%s over %s: %w", c.endpoint.User, c.transport, err)
			}
		}
		c.check.Resumed()
		if sleep(c.run.ctx, c.pause(err, came, failures)) != nil {
			return nil
		}
		if c.storm.stopSent() > 0 {
			c.tries++
			c.storm.tried(c.run.now(), came)
		}
	}
}

// pause returns how long to wait before the next attempt.
// It is the time that the server gave, else a random part of a limit that doubles.
func (c *survivor) pause(err error, came bool, failures int) time.Duration {
	var later *client.Later
	if errors.As(err, &later) {
		wait := later.Wait
		if c.transport == client.LongPoll {
			wait += rand.N(time.Second) // Retry-After has whole seconds only
		}
		return wait
	}
	if came {
		c.abrupt++
	}
	return rand.N(min(500*time.Millisecond<<min(failures, 6), 30*time.Second))
}

// connection opens a connection and reads until it ends. came reports whether an event came.
func (c *survivor) connection() (came bool, err error) {
	returning := c.storm.stopped.Load() && !c.recovered
	s, err := c.endpoint.Open(c.run.ctx, c.transport, c.at)
	if err != nil {
		return false, err
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err != nil {
			return came, err
		}
		came = true
		if err := c.take(s, e); err != nil {
			return came, err
		}
		if returning && string(e.Kind) == "caught_up" && !c.recovered {
			c.recovered = true
			c.storm.caughtUp(c.run.now())
		}
	}
}

func (c *survivor) take(s client.Stream, e client.Event) error {
	c.at.After = max(c.at.After, e.ID)
	switch string(e.Kind) {
	case "session":
		session := string(client.Text(field(e.Payload, "session_id")))
		if session != c.at.Session {
			c.at = client.Position{Session: session, After: e.ID}
		}
		if c.cursors {
			return c.giveCursors()
		}
	case "reset":
		return c.giveCursors()
	case "message":
		return c.takeMessage(s, e.Payload)
	case "status_update":
		c.takeStatus(e.Payload)
	case "caught_up":
		c.caughtUp.Store(true)
	case "problem":
		return fmt.Errorf("the server sent a problem: %s", client.Shorten(e.Payload))
	}
	return nil
}

func (c *survivor) takeMessage(s client.Stream, payload []byte) error {
	m := client.ParseMessage(payload)
	_, digest, ok := client.ReadContent(m.Content)
	if !ok || string(m.Chat) != c.chat {
		c.check.Problem("%s got a message that the load never sent: %s",
			c.endpoint.User, client.Shorten(payload))
		return nil
	}
	prefix, fresh := c.check.Observe(m.Chat, m.Sequence, digest)
	c.prefix = prefix
	if fresh {
		c.fresh.Add(1)
	}
	if c.prefix >= c.acked+ackAfter {
		c.acknowledge(s)
	}
	return nil
}

// acknowledge acknowledges the prefix. If the acknowledgement is lost, the next one covers it.
func (c *survivor) acknowledge(s client.Stream) {
	c.acked = c.prefix
	body := c.states([]byte(`{"chats":[`))
	if socket, ok := s.(*client.Socket); ok {
		frame := append([]byte(`{"type":"ack","payload":`), body...)
		_ = socket.Write(client.OpText, append(frame, '}'))
		return
	}
	_, _ = c.rest.Do(c.run.ctx, "POST", "/api/v1/acks", body, client.AnswerTimeout)
}

func (c *survivor) states(b []byte) []byte {
	b = append(b, `{"chat_id":`...)
	b = client.AppendQuoted(b, c.chat)
	b = append(b, `,"last_acked_sequence":`...)
	b = strconv.AppendUint(b, c.prefix, 10)
	return append(b, "}]}"...)
}

// giveCursors sends the device's cursors to a new session.
func (c *survivor) giveCursors() error {
	body := append([]byte(`{"session_id":`), client.AppendQuoted(nil, c.at.Session)...)
	_, err := c.rest.Do(c.run.ctx, "POST", "/api/v1/sync",
		c.states(append(body, `,"chats":[`...)), client.AnswerTimeout)
	if err == nil {
		c.cursors, c.acked = false, c.prefix
		c.check.Rewound(c.chat)
	}
	return err
}

func (c *survivor) takeStatus(payload []byte) {
	user := string(client.Text(field(payload, "user_id")))
	now := [2]uint64{
		client.Number(field(payload, "last_acked_sequence")),
		client.Number(field(payload, "last_read_sequence")),
	}
	was := c.bounds[user]
	if now[0] < was[0] || now[1] < was[1] {
		c.ticksBack++
	}
	c.bounds[user] = [2]uint64{max(now[0], was[0]), max(now[1], was[1])}
}

// field returns the raw value of a field of an object, or nil.
func field(payload []byte, name string) []byte {
	o := client.NewObject(payload)
	for {
		key, value, ok := o.Next()
		if !ok || string(key) == name {
			return value
		}
	}
}

// persistent sends to its chats, one message at a time, and repeats each until it is confirmed.
type persistent struct {
	run    *run
	user   string
	chats  []*stormChat
	random *rand.Rand
	// repeated counts the sends that got no answer, or a temporary refusal.
	repeated int64
}

// send sends one message per interval until ctx ends.
func (p *persistent) send(ctx context.Context, interval time.Duration) error {
	conn := p.run.connectAs(p.user)
	defer conn.Close()
	due := time.NewTicker(interval)
	defer due.Stop()
	for n := 1; len(p.chats) > 0; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
		}
		if err := p.sendOne(conn, p.chats[p.random.IntN(len(p.chats))], n); err != nil {
			return err
		}
	}
	return nil
}

func (p *persistent) sendOne(conn *client.Conn, chat *stormChat, n int) error {
	id := p.user + "-" + strconv.Itoa(n)
	content := client.AppendContent(nil, p.run.now(), id, p.run.load.Size)
	body := client.AppendSend(nil, "", id, content)
	for failures := 0; ; failures++ {
		_, err := conn.Do(p.run.ctx, "POST", "/api/v1/chats/"+chat.id+"/messages",
			body, client.AnswerTimeout)
		if err == nil {
			chat.digest += client.DigestOf(id)
			chat.count.Add(1)
			return nil
		}
		var no *client.Refused
		if errors.As(err, &no) && no.Status < 500 && no.Status != 429 {
			return fmt.Errorf("send: %w", err)
		}
		p.repeated++
		if sleep(p.run.ctx, rand.N(100*time.Millisecond<<min(failures, 4))) != nil {
			return nil
		}
	}
}
