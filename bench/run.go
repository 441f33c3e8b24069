package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// Load is what all modes have in common. The tags are those of the command line.
type Load struct {
	// URLs are the base URLs of the server's nodes. Users are spread over them in turn; those of a pair are on different ones.
	URLs []string `name:"url" default:"http://127.0.0.1:8080" help:"Base URL of the server; repeated, of each of its nodes: users are spread over them in turn, those of a pair on different ones."`
	// Transport is how the devices receive.
	Transport client.Transport `default:"websocket" enum:"websocket,sse,longpoll,rest" help:"How devices receive: ${enum}. Sends go over WebSocket, else by POST."`
	// Duration is how long is sent, or, in idle, held. Messages, if not 0, ends the sending after that many in all instead.
	Duration time.Duration `default:"10s" help:"How long to send, or to hold idle connections."`
	Messages int64         `default:"0" help:"Send this many messages in all, however long it takes, instead of for a duration."`
	// Rate, if not 0, is the number of sends per second, of all senders together.
	Rate float64 `default:"0" help:"Send this many messages a second in all; 0 sends as fast as the outstanding sends allow."`
	// Size is the length of a message's content in bytes. It is at least what its head needs, about 60.
	Size int `default:"200" help:"Bytes of content per message."`
	// A device acknowledges after AckEvery messages or AckInterval, whatever is first.
	AckEvery    int           `default:"10" help:"A device acknowledges after this many messages..."`
	AckInterval time.Duration `default:"50ms" help:"... or this long after the first of them."`
	// PIDs are the processes whose CPU and memory are reported: the server's, its database's.
	PIDs []int `name:"pid" help:"Report CPU and memory of this process; may be repeated."`
	// Redis, if not empty, is the address of the Redis that the nodes share, whose counts of commands are reported.
	Redis string `name:"redis" placeholder:"HOST:PORT" help:"Report which commands the Redis at this address has run, and how long that took it."`
	// Drain is how long after the last send everything must have arrived.
	Drain time.Duration `default:"30s" help:"How long after the last send everything must have arrived."`
	// Token returns the bearer token of a user. Required.
	Token func(user string) string `flags:"-"`
}

// Mode is one kind of load: Pairs, Group, Idle, Catchup, Storm.
type Mode interface {
	// describe names the mode and its settings.
	describe() (name, settings string)
	// prepare creates users and chats and connects; it is not measured.
	prepare(r *run) error
	// apply is what is measured. It returns when everything owed has arrived.
	apply(r *run) error
	// verify compares what arrived with what was sent, and adds the mode's figures. Nothing runs any more.
	verify(r *run, report *Report)
}

// settle is the time after the load in which what the server still does for it (coalesced writes, status updates) is counted.
const settle = 250 * time.Millisecond

// run is one run of one mode.
type run struct {
	load Load
	// targets are the nodes, at least one.
	targets []client.Target
	// id makes the names of users and chats unique, so that runs can be repeated on one server.
	id    string
	ctx   context.Context
	end   context.CancelCauseFunc
	began time.Time

	// streamBytes and answerBytes count what was received over streams, and as answers of other requests.
	streamBytes, answerBytes atomic.Int64
	reconnects               atomic.Int64
	// lastDelivery is when the last new message arrived, in nanoseconds of now.
	lastDelivery atomic.Int64
	// The latencies: from the send to each recipient, to the sender's confirmation, to his second tick.
	delivered, confirmed, ticked measure.Histogram

	goroutines sync.WaitGroup
	senders    sync.WaitGroup

	mu       sync.Mutex
	problems []string
	closers  []func()
}

// Run performs one run. The error says why it could not be measured at all; Report.Problems says what went wrong
// while it was. It returns when every goroutine and connection of the run has ended.
func Run(ctx context.Context, load Load, mode Mode) (*Report, error) {
	r, err := newRun(ctx, load)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	if err := mode.prepare(r); err != nil {
		return nil, r.explain(err)
	}
	before, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	if err := mode.apply(r); err != nil {
		r.fail(err)
	}
	if !signal.Pause(ctx, settle) {
		return nil, errors.New("the run was interrupted")
	}
	after, err := r.snapshot()
	if err != nil {
		return nil, errors.Join(err, r.explain(nil))
	}
	r.stop()
	report := newReport(r, mode, before, after)
	mode.verify(r, report)
	report.Problems = append(r.problems, report.Problems...)
	return report, nil
}

func newRun(ctx context.Context, load Load) (*run, error) {
	if len(load.URLs) == 0 {
		return nil, errors.New("a server's URL is required")
	}
	targets := make([]client.Target, len(load.URLs))
	for i, url := range load.URLs {
		var err error
		if targets[i], err = client.ParseTarget(url); err != nil {
			return nil, err
		}
	}
	if load.Token == nil {
		return nil, errors.New("bench: Load.Token is required")
	}
	if load.AckEvery < 1 || load.AckInterval <= 0 || load.Rate < 0 || load.Messages < 0 || load.Duration <= 0 {
		return nil, errors.New("acknowledgement threshold and interval and duration must be positive, rate and messages not negative")
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	r := &run{load: load, targets: targets, id: hex.EncodeToString(id[:]), began: time.Now()}
	r.ctx, r.end = context.WithCancelCause(ctx)
	return r, nil
}

// now is the time since the run began; it never goes back.
func (r *run) now() time.Duration { return time.Since(r.began) }

// node returns the n-th node, counted in turn.
func (r *run) node(n int) client.Target { return r.targets[n%len(r.targets)] }

// endpoint is a user of the n-th node, with large buffers.
func (r *run) endpoint(user string, n int) client.Endpoint {
	return client.Endpoint{Target: r.node(n), User: user, Token: r.load.Token(user), Received: &r.streamBytes, Buffer: client.LargeBuffer}
}

// goroutine starts f; its error ends the run.
func (r *run) goroutine(f func() error) {
	r.goroutines.Go(func() {
		if err := f(); err != nil {
			r.fail(err)
		}
	})
}

// sending starts f as a part of the sending, which awaitSent waits for.
func (r *run) sending(f func() error) {
	r.senders.Add(1)
	r.goroutine(func() error {
		defer r.senders.Done()
		return f()
	})
}

// fail notes a problem and ends the run.
func (r *run) fail(err error) {
	if r.ctx.Err() == nil {
		r.mu.Lock()
		r.problems = append(r.problems, err.Error())
		r.mu.Unlock()
	}
	r.end(err)
}

// explain returns why the run ended, if it has, else err.
func (r *run) explain(err error) error {
	if cause := context.Cause(r.ctx); cause != nil {
		return cause
	}
	return err
}

// closeLater has f called when every goroutine has ended.
func (r *run) closeLater(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closers = append(r.closers, f)
}

// stop ends every goroutine and connection. It may be called more than once.
func (r *run) stop() {
	r.end(errEnded)
	r.goroutines.Wait()
	r.mu.Lock()
	closers := r.closers
	r.closers = nil
	r.mu.Unlock()
	for _, f := range closers {
		f()
	}
}

var errEnded = errors.New("the run is over")

// await polls until open returns "" (nothing is left), and returns what is left after the drain time.
func (r *run) await(open func() string) error {
	deadline := time.NewTimer(r.load.Drain)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		left := open()
		if left == "" {
			return nil
		}
		select {
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		case <-deadline.C:
			return fmt.Errorf("%v after the last send %s", r.load.Drain, left)
		case <-poll.C:
		}
	}
}

// send runs the senders until the budget is used up, and waits for them.
func (r *run) send(senders []*sender) {
	ctx, cancel := r.ctx, func() {}
	if r.load.Messages == 0 {
		ctx, cancel = context.WithTimeout(r.ctx, r.load.Duration)
	}
	defer cancel()
	b := &budget{messages: r.load.Messages, ctx: ctx}
	for i, s := range senders {
		if r.load.Rate > 0 {
			s.interval = time.Duration(float64(len(senders)) / r.load.Rate * float64(time.Second))
			s.next = r.now() + s.interval*time.Duration(i)/time.Duration(len(senders))
		}
		s.start(b)
	}
	r.senders.Wait()
}

// parallel calls f(0) … f(n−1), at most limit at a time, and returns the first error. After an error, or the end of ctx, no
// further call begins.
func parallel(ctx context.Context, n, limit int, f func(i int) error) error {
	var next, failed atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, min(n, limit))
	for w := range errs {
		group.Go(func() {
			for failed.Load() == 0 && ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					errs[w] = err
					failed.Add(1)
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
