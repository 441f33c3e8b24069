package bench

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
)

// opens is users who connect, catch up, wait for their snapshot of statuses and close, again and
// again. Nothing is new to them. Either the chats of two users grow, or the members of one chat. A
// user has one session at a time: a session beside another one has no proof of a clean close, and
// compares all chats.
type opens struct {
	// Of users and chats, one is given, and the other grows.
	users, chats int
	// made is how many chats there are.
	made   int
	opened atomic.Int64
	// news counts messages that arrived: the chats were not silent.
	news atomic.Int64
	// growing says that the first point has shown which of both grows.
	growChats, known bool
}

const (
	openers = 16
	// quiet is how long a stream that has caught up brings nothing, before it is closed.
	quiet = 20 * time.Millisecond
	// acksPerCall is how many chats one acknowledgement of the setup names.
	acksPerCall = 100
)

func (o *opens) step(r *run, value int) error {
	if !o.known {
		o.known, o.growChats = true, o.chats == 0
	}
	if o.growChats {
		o.chats = value
	} else {
		o.users = value
	}
	from := o.made
	o.made = o.chats
	if o.chats > from {
		if err := o.create(r, from); err != nil {
			return err
		}
	}
	return sleep(r.ctx, settle) // until the acknowledgements are written
}

// create creates the chats from a number on. Each has one message, which all have acknowledged.
func (o *opens) create(r *run, from int) error {
	members := make([]string, o.users)
	for i := range members {
		members[i] = r.name("u", i)
	}
	calls := (o.chats - from + acksPerCall - 1) / acksPerCall
	err := parallel(r.ctx, calls, setupLimit, func(i int) error {
		conn := r.connectAs(members[0])
		defer conn.Close()
		for k := from + i*acksPerCall; k < min(o.chats, from+(i+1)*acksPerCall); k++ {
			chat, id := r.name("c", k), r.name("m", k)
			if err := r.createChat(conn, "group", chat, members); err != nil {
				return err
			}
			body := client.AppendSend(nil, "", id,
				client.AppendContent(nil, r.now(), id, r.load.Size))
			_, err := conn.Do(r.ctx, "POST", "/api/v1/chats/"+chat+"/messages", body,
				client.AnswerTimeout)
			if err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return parallel(r.ctx, calls*o.users, setupLimit, func(i int) error {
		user, first := members[i/calls], from+i%calls*acksPerCall
		conn := r.connectAs(user)
		defer conn.Close()
		body := []byte(`{"chats":[`)
		for k := first; k < min(o.chats, first+acksPerCall); k++ {
			if k > first {
				body = append(body, ',')
			}
			body = append(body, `{"chat_id":`...)
			body = client.AppendQuoted(body, r.name("c", k))
			body = append(body, `,"last_acked_sequence":1}`...)
		}
		return r.post(conn, "/api/v1/acks", append(body, ']'))
	})
}

func (o *opens) apply(r *run) error {
	end := r.now() + r.load.Duration
	at := min(openers, o.users)
	return parallel(r.ctx, at, at, func(i int) error {
		for n := i; r.now() < end && r.ctx.Err() == nil; n += at {
			if n >= o.users {
				n = i
			}
			if err := o.open(r, n); err != nil {
				return err
			}
			o.opened.Add(1)
		}
		return nil
	})
}

// open opens the stream of a user, and closes it when nothing more comes.
func (o *opens) open(r *run, n int) error {
	start := r.now()
	user := r.name("u", n)
	s, err := client.DialSocket(r.ctx, r.endpoint(user, n), client.Position{})
	if err != nil {
		return err
	}
	caughtUp := make(chan struct{})
	var last atomic.Int64
	var failed error // valid once ended is closed
	ended := make(chan struct{})
	go func() { // ends when s is closed
		defer close(ended)
		failed = o.read(r, s, caughtUp, &last)
	}()
	timeout := time.NewTimer(client.AnswerTimeout)
	defer timeout.Stop()
	select {
	case <-caughtUp:
	case <-ended:
		s.Close()
		return fmt.Errorf("%s did not catch up: %w", user, failed)
	case <-timeout.C:
		s.Close()
		<-ended
		return fmt.Errorf("%s got no caught_up within %v", user, client.AnswerTimeout)
	}
	r.delivered.Add(r.now() - start)
	for left := quiet; left > 0 && err == nil; left = time.Duration(last.Load()) + quiet - r.now() {
		err = sleep(r.ctx, left)
	}
	s.Leave(ended)
	return err
}

// read reads a stream until it ends. last is when the last event came.
func (o *opens) read(
	r *run, s client.Stream, caughtUp chan<- struct{}, last *atomic.Int64,
) error {
	caught := false
	for {
		e, err := s.Next()
		if err != nil {
			return err
		}
		last.Store(int64(r.now()))
		switch string(e.Kind) {
		case "message":
			o.news.Add(1)
		case "caught_up":
			if !caught {
				caught = true
				close(caughtUp)
			}
		}
	}
}

func (o *opens) operations() int64 { return o.opened.Load() }

func (o *opens) verify(_ *run, report *Report) {
	if n := o.news.Load(); n > 0 {
		report.problem("the chats were not silent: opens brought %s messages",
			strconv.FormatInt(n, 10))
	}
}
