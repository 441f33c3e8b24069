package bench

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
)

// sender is one user who sends to one chat, or to several in turn, with a fixed number of sends
// outstanding.
// It sends over the user's WebSocket, or by that many concurrent POSTs.
type sender struct {
	run      *run
	listener *listener
	// ticks is nil for the transport REST, which has no status updates.
	ticks *ticks
	// interval is the least time between two sends, 0 for none.
	interval time.Duration
	// slots contains a token for each send that is allowed now.
	slots chan struct{}
	// confirmed counts the messages that the server has confirmed, each once.
	confirmed atomic.Int64

	mu          sync.Mutex
	numbered    uint64                 // the number of the last message
	outstanding map[uint64]unconfirmed // by message number
	chats       []sentTo
	digest      uint64        // of everything confirmed
	next        time.Duration // when the next send is due
}

// unconfirmed is a message that the server has not confirmed yet.
type unconfirmed struct {
	sent time.Duration
	chat int
}

// sentTo is a chat, how many messages were sent to it, and the digest of those confirmed.
type sentTo struct {
	id            string
	count, digest uint64
}

func newSender(l *listener, chat string, outstanding int) *sender {
	s := &sender{
		run: l.run, listener: l, chats: []sentTo{{id: chat}},
		slots: make(chan struct{}, outstanding), outstanding: make(map[uint64]unconfirmed),
	}
	for range outstanding {
		s.slots <- struct{}{}
	}
	l.reply, l.reconnected = s.reply, s.resend
	return s
}

// start starts the goroutines that send until the budget is used up. It does not wait for them.
func (s *sender) start(b *budget) {
	if s.run.load.Transport == client.WebSocket {
		s.run.sending(func() error { return s.overSocket(b) })
		return
	}
	for range cap(s.slots) {
		conn := client.NewConn(s.listener.endpoint.URL, s.listener.endpoint.Token,
			&s.run.answerBytes, client.SmallBuffer)
		s.run.sending(func() error {
			defer conn.Close()
			return s.overREST(b, conn)
		})
	}
}

func (s *sender) overSocket(b *budget) error {
	for {
		select {
		case <-s.run.ctx.Done():
			return nil
		case <-s.slots:
		}
		if !s.pace(b) || !b.take() {
			s.slots <- struct{}{} // never blocks; another load may follow
			return nil
		}
		n, chat, sent := s.number()
		// An error needs no handling: the listener replaces a broken connection, and then sends
		// again what is outstanding.
		_ = s.listener.socket.Load().Write(client.OpText, s.frame(n, chat, sent))
	}
}

func (s *sender) overREST(b *budget, conn *client.Conn) error {
	for s.pace(b) && b.take() {
		n, chat, sent := s.number()
		path := "/api/v1/chats/" + chat + "/messages"
		id := s.id(n)
		body := client.AppendSend(nil, "", id, client.AppendContent(nil, sent, id, s.run.load.Size))
		answer, err := conn.Do(s.run.ctx, "POST", path, body, client.AnswerTimeout)
		if s.run.ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if _, err := s.confirm(n, client.ParseMessage(answer).Sequence); err != nil {
			return err
		}
	}
	return nil
}

// pace waits until the next send is due. It returns false if sending has ended.
func (s *sender) pace(b *budget) bool {
	if s.interval == 0 {
		return s.run.ctx.Err() == nil
	}
	s.mu.Lock()
	now := s.run.now()
	due := max(s.next, now)
	s.next = due + s.interval
	s.mu.Unlock()
	wait := time.NewTimer(due - now)
	defer wait.Stop()
	select {
	case <-s.run.ctx.Done():
		return false
	case <-b.done():
		return false
	case <-wait.C:
		return true
	}
}

// number begins a message to the chat whose turn it is.
func (s *sender) number() (n uint64, chat string, sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := int(s.numbered % uint64(len(s.chats)))
	s.numbered++
	sent = s.run.now()
	s.outstanding[s.numbered] = unconfirmed{sent: sent, chat: turn}
	s.chats[turn].count++
	return s.numbered, s.chats[turn].id, sent
}

// id returns the client message id of message n. It is unique in the run.
func (s *sender) id(n uint64) string {
	return s.listener.endpoint.User + "-" + strconv.FormatUint(n, 10)
}

func (s *sender) frame(n uint64, chat string, sent time.Duration) []byte {
	id := s.id(n)
	b := append(make([]byte, 0, s.run.load.Size+256), `{"type":"send_message","request_id":"`...)
	b = strconv.AppendUint(b, n, 10)
	b = append(b, `","payload":`...)
	b = client.AppendSend(b, chat, id, client.AppendContent(nil, sent, id, s.run.load.Size))
	return append(b, '}')
}

// reply handles the answer to a send over WebSocket. The listener's goroutine calls it.
func (s *sender) reply(e client.Event) {
	if string(e.Kind) == "problem" {
		s.run.fail(fmt.Errorf("a send was refused: %s", client.Shorten(e.Payload)))
		return
	}
	var n, sequence uint64
	o := client.NewObject(e.Payload)
	for {
		key, value, ok := o.Next()
		if !ok {
			break
		}
		switch string(key) {
		case "client_message_id":
			id := client.Text(value)
			n = client.Number(id[bytes.LastIndexByte(id, '-')+1:])
		case "sequence":
			sequence = client.Number(value)
		}
	}
	first, err := s.confirm(n, sequence)
	if err != nil {
		s.run.fail(err)
	}
	if first {
		s.slots <- struct{}{} // never blocks, because this send held a slot
	}
}

// confirm handles the confirmation of message n, and reports whether it is the first one.
// The confirmation of a re-send changes nothing.
func (s *sender) confirm(n, sequence uint64) (first bool, err error) {
	if sequence == 0 {
		return false, fmt.Errorf("the server confirmed message %s without a sequence", s.id(n))
	}
	now := s.run.now()
	s.mu.Lock()
	m, ok := s.outstanding[n]
	if ok {
		delete(s.outstanding, n)
		digest := client.DigestOf(s.id(n))
		s.digest += digest
		s.chats[m.chat].digest += digest
	}
	s.mu.Unlock()
	if !ok {
		return false, nil
	}
	s.confirmed.Add(1)
	s.run.confirmed.Add(now - m.sent)
	if s.ticks != nil {
		s.ticks.confirmed(sequence, m.sent, now)
	}
	return true, nil
}

// resend sends the outstanding messages again, with the same ids, over the new connection.
func (s *sender) resend() {
	socket := s.listener.socket.Load()
	if socket == nil {
		return
	}
	s.mu.Lock()
	outstanding := maps.Clone(s.outstanding)
	s.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(outstanding)) {
		m := outstanding[n]
		_ = socket.Write(client.OpText, s.frame(n, s.chats[m.chat].id, m.sent))
	}
}

// state returns how many messages were numbered, how many of them are unconfirmed, and the digest
// of the others.
func (s *sender) state() (numbered uint64, waiting int, digest uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbered, len(s.outstanding), s.digest
}

// budget limits how much all senders send: a number of messages, or the time until ctx ends.
type budget struct {
	messages int64 // 0 for as many as ctx allows
	taken    atomic.Int64
	ctx      context.Context
}

func (b *budget) done() <-chan struct{} { return b.ctx.Done() }

func (b *budget) take() bool {
	if b.ctx.Err() != nil {
		return false
	}
	return b.messages == 0 || b.taken.Add(1) <= b.messages
}
