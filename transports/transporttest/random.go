package transporttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// randomWorkers is how many runs RunRandomResume executes at the same time.
const randomWorkers = 8

// RunRandomResume runs clients that are cut at random points. A client returns over a random
// transport, sometimes after its session has ended. It names the last event that it kept, or an
// earlier one. RunRandomResume fails unless every message arrives at least once and in order per
// chat, and no boundary falls (delivery.md §5: resume_lossless, session_in_order, tick_monotone).
// It logs the seed, which determines every choice of run n.
func RunRandomResume(t *testing.T, runs int, seed uint64) {
	t.Logf("%d runs with TIDEMARK_SEED=%d", runs, seed)
	s := New(t, Options{Core: server.Config{
		ResumeWindow: 60 * time.Millisecond, Grace: 20 * time.Millisecond,
		AckInterval: time.Millisecond, StatusInterval: 2 * time.Millisecond,
	}})
	var total [randomWorkers]tally
	t.Run("workers", func(t *testing.T) {
		for w := range randomWorkers {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for n := w; n < runs; n += randomWorkers {
					run := randomRun{
						t:     t,
						stack: s,
						name:  fmt.Sprintf("run %d of TIDEMARK_SEED=%d", n, seed),
						n:     n,
					}
					run.random = rand.New(rand.NewPCG(seed, uint64(n)))
					run.do()
					total[w].add(run.tally)
				}
			})
		}
	})
	var sum tally
	for _, one := range total {
		sum.add(one)
	}
	t.Logf("%d cuts, %d resumed, %d in the same session, %d sessions that had ended, %d resets, "+
		"%d of them in the same session, %d messages, %d of them again, %d status updates",
		sum.cuts, sum.resumed, sum.same, sum.ended, sum.resets, sum.forgotten, sum.messages,
		sum.again, sum.statuses)
	happened := sum.cuts > 0 && sum.resumed > 0 && sum.ended > 0 && sum.resets > 0 &&
		sum.again > 0 && sum.statuses > 0
	if runs >= 100 && !happened {
		t.Error("something that the runs are about never happened")
	}
	// How many sessions had ended depends on the speed of the machine.
	if sum.same >= 50 && sum.forgotten*5 > sum.same {
		t.Errorf("%d of %d resumptions of sessions that had not ended got a reset: sessions "+
			"forget too much", sum.forgotten, sum.same)
	}
}

// tally counts what happened, to notice runs in which nothing does. same counts the connections
// that went on with the session of the one before, and forgotten the resets on these.
type tally struct {
	cuts, resumed, same, ended, resets, forgotten, messages, again, statuses int
}

func (a *tally) add(b tally) {
	a.cuts += b.cuts
	a.resumed += b.resumed
	a.same += b.same
	a.ended += b.ended
	a.resets += b.resets
	a.forgotten += b.forgotten
	a.messages += b.messages
	a.again += b.again
	a.statuses += b.statuses
}

// randomRun is one run: a sender, and one device of a receiver, in two chats.
type randomRun struct {
	tally
	t      *testing.T
	stack  *Stack
	name   string
	n      int
	random *rand.Rand

	sender, user tidemark.UserID
	chats        [2]tidemark.ChatID
	total        [2]tidemark.Sequence
	// stored is what the device keeps over every cut: how many messages of each chat it has without
	// a hole. at is where its session goes on.
	stored [2]tidemark.Sequence
	at     Position
	// goesOn says that the connection goes on with the session of the one before it.
	goesOn bool
	// boundaries is the last status update of each member and chat.
	boundaries map[string]tidemark.Boundary
	// lost is true for a chat whose position was unknown. Until the cursor takes effect, messages
	// may come that do not follow what is stored.
	lost [2]bool
}

func (r *randomRun) do() {
	r.sender = tidemark.UserID(fmt.Sprintf("sender-%d", r.n))
	r.user = tidemark.UserID(fmt.Sprintf("user-%d", r.n))
	r.boundaries = map[string]tidemark.Boundary{}
	r.at = Position{User: r.user}
	for i := range r.chats {
		r.chats[i] = tidemark.ChatID(fmt.Sprintf("run-%d-%d", r.n, i))
		r.total[i] = tidemark.Sequence(1 + r.random.IntN(20))
		_, _, err := r.stack.Server.CreateChat(context.Background(), server.Caller{User: r.sender},
			server.CreateChatRequest{
				ChatID: r.chats[i], Type: tidemark.Group, MemberIDs: []tidemark.UserID{r.user},
			})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	sent := make(chan struct{})
	pauses := rand.New(rand.NewPCG(r.random.Uint64(), 1))
	go func() {
		defer close(sent)
		r.send(pauses)
	}()
	defer func() { <-sent }()
	for !r.complete() {
		r.connect()
	}
	<-sent
}

// send sends all messages of the run, in random order of the chats and with random pauses.
func (r *randomRun) send(random *rand.Rand) {
	var next [2]tidemark.Sequence
	for next != r.total {
		i := random.IntN(2)
		if next[i] == r.total[i] {
			continue
		}
		next[i]++
		if random.IntN(4) == 0 {
			<-time.After(time.Duration(random.IntN(5)) * time.Millisecond)
		}
		_, err := r.stack.Server.Send(context.Background(), r.sender, tidemark.Draft{
			ChatID: r.chats[i], ClientMessageID: fmt.Sprint(next[i]), Content: fmt.Sprint(next[i]),
		})
		if err != nil {
			r.t.Errorf("%s: %v", r.name, err)
			return
		}
	}
}

func (r *randomRun) complete() bool { return r.stored == r.total }

// connect connects over a random transport and reads until everything has come or until a cut.
func (r *randomRun) connect() {
	d := dialers()[r.random.IntN(3)]
	if r.random.IntN(12) == 0 { // long enough for the session to end
		<-time.After(80 * time.Millisecond)
	}
	at := r.at
	if r.random.IntN(8) == 0 && at.After > 0 { // the device kept an earlier id
		at.After -= min(at.After, uint64(1+r.random.IntN(4)))
	}
	c := d.Dial(r.t, r.stack, at)
	defer func() {
		c.Cut()
		r.cuts++
	}()
	if at.Session != "" {
		r.resumed++
	}
	r.goesOn = at.Session != ""
	first := true
	for left := r.random.IntN(12); left >= 0 && !r.complete(); left-- {
		ctx, cancel := context.WithTimeout(context.Background(), waitTime)
		ev, err := c.Next(ctx)
		cancel()
		switch {
		case errors.Is(err, ErrGone):
			r.ended++
			r.at = Position{User: r.user}
			return
		case err != nil:
			r.t.Fatalf("%s: over %s after %d: %v; stored %v of %v",
				r.name, d.Name, at.After, err, r.stored, r.total)
		}
		r.take(ev)
		if first && r.goesOn {
			r.same++
		}
		first = false
		if r.random.IntN(3) == 0 {
			i := r.random.IntN(2)
			if r.stored[i] > 0 {
				c.Ack(r.chats[i], r.stored[i])
			}
		}
	}
}

// take handles an event as a device does.
func (r *randomRun) take(ev Event) {
	switch ev.Type {
	case tidemark.EventSession:
		session := tidemark.SessionID(field[string](r.t, ev, "session_id"))
		r.goesOn = session == r.at.Session
		if !r.goesOn {
			if r.at.Session != "" {
				r.ended++
			}
			r.at = Position{User: r.user, Session: session}
		}
	case tidemark.EventReset:
		if r.goesOn {
			r.forgotten++
		}
		r.reset()
	case tidemark.EventMessage:
		r.message(field[string](r.t, ev, "chat_id"),
			tidemark.Sequence(field[float64](r.t, ev, "sequence")))
	case tidemark.EventStatus:
		r.statuses++
		key := field[string](r.t, ev, "chat_id") + " " + field[string](r.t, ev, "user_id")
		b := tidemark.Boundary{
			Acked: tidemark.Sequence(field[float64](r.t, ev, "last_acked_sequence")),
			Read:  tidemark.Sequence(field[float64](r.t, ev, "last_read_sequence")),
		}
		if before := r.boundaries[key]; before.Merge(b) != b {
			r.t.Fatalf("%s: the boundaries of %s fell from %v to %v", r.name, key, before, b)
		}
		r.boundaries[key] = b
	}
	r.at.After = max(r.at.After, ev.ID)
}

// reset sends the device's cursors, as a client does after a reset.
func (r *randomRun) reset() {
	r.resets++
	r.lost = [2]bool{true, true}
	sync := server.SyncRequest{Session: r.at.Session, Limit: 50}
	for i, chat := range r.chats {
		sync.Cursors = append(sync.Cursors, server.Cursor{Chat: chat, Acked: r.stored[i]})
	}
	if _, err := r.stack.Server.Sync(context.Background(), r.user, sync); err != nil &&
		tidemark.CodeOf(err) != tidemark.Gone {
		r.t.Fatalf("%s: sync: %v", r.name, err)
	}
}

func (r *randomRun) message(chat string, sequence tidemark.Sequence) {
	for i := range r.chats {
		if string(r.chats[i]) != chat {
			continue
		}
		switch {
		case sequence == r.stored[i]+1:
			r.stored[i]++
			r.messages++
			r.lost[i] = false
		case sequence <= r.stored[i]:
			r.again++
		case !r.lost[i]:
			r.t.Fatalf("%s: message %d of %s came, but the device has only the first %d",
				r.name, sequence, chat, r.stored[i])
		}
	}
}
