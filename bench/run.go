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

// Load holds the settings that all modes share. The tags describe the flags of the command line.
type Load struct {
	// URLs are the base URLs of the server's nodes, at least one. Users take them in turn.
	// Those of a pair are on different nodes, unless Pairs.Together is set.
	URLs []string `name:"url" default:"http://127.0.0.1:8080" help:"URL of a node; repeatable."`
	// Transport is how the devices receive. With WebSocket they also send over it, else by POST.
	Transport client.Transport `default:"websocket" enum:"websocket,sse,longpoll,rest" help:"How devices receive: ${enum}. Unless it is websocket, they send by POST."`
	// Duration is how long senders send, or how long idle connections are held.
	Duration time.Duration `default:"10s" help:"How long to send, or to hold idle connections."`
	// Messages, if not 0, replaces Duration: sending ends after so many messages in all.
	Messages int64 `default:"0" help:"Send this many messages in all, instead of for a duration."`
	// Rate, if not 0, is the number of sends per second, of all senders together.
	Rate float64 `default:"0" help:"Messages per second in all; 0: as fast as possible."`
	// Size is the length of a message's content in bytes. The content's head needs about 60.
	Size int    `default:"200" help:"Bytes of content per message."`
	Own  string `default:"event" enum:"event,confirm" help:"What a WebSocket gets for its own messages."`
	// A device acknowledges after AckEvery messages or after AckInterval, whichever comes first.
	AckEvery    int           `default:"10" help:"Acknowledge after this many messages..."`
	AckInterval time.Duration `default:"50ms" help:"... or this long after the first of them."`
	// PIDs are the processes whose CPU and memory are reported, such as the server and its
	// database.
	PIDs []int `name:"pid" help:"Report CPU and memory of this process; repeatable."`
	// Redis, if not empty, is the address of the nodes' Redis. Its command counts are reported.
	Redis string `name:"redis" placeholder:"HOST:PORT" help:"Report the commands of this Redis."`
	// Postgres, if not empty, is the URL of the nodes' database. The yardstick then has the cost of
	// a row there.
	Postgres string `name:"postgres" placeholder:"URL" help:"Also measure what a row costs in this Postgres, by an insert into a schema of its own."`
	// YardstickDir is where the yardstick syncs a file. It should be on the disk of the database.
	YardstickDir string `placeholder:"DIR" help:"Where fdatasync is measured: on the disk of the database; default: the current directory."`
	// Drain is the longest wait for arrivals after the last send. Then the run fails.
	Drain time.Duration `default:"30s" help:"Longest wait for arrivals after the last send."`
	// Token returns the bearer token of a user. Required.
	Token func(user string) string `kong:"-"`
}

// Mode is one kind of load: Pairs, Group, Mixed, Idle, Catchup or Storm.
type Mode interface {
	// describe returns the mode's name and its settings.
	describe() (name, settings string)
	// prepare creates users and chats, and connects. It is not measured.
	prepare(r *run) error
	// apply applies the load that is measured. It returns when everything expected has arrived.
	apply(r *run) error
	// verify compares what arrived with what was sent, and adds the mode's figures.
	// When it is called, every goroutine of the run has ended.
	verify(r *run, report *Report)
}

// settle is the time between the end of the load and the second snapshot.
// The server's late work, such as coalesced writes and status updates, is counted within it.
const settle = 250 * time.Millisecond

// run is one run of one mode.
type run struct {
	load Load
	// nodes are the server's nodes, at least one.
	nodes []client.URL
	// id makes the names of users and chats unique, so that a server can serve many runs.
	id    string
	ctx   context.Context
	end   context.CancelCauseFunc
	began time.Time

	// streamBytes counts the bytes received over streams, answerBytes those of other answers.
	streamBytes, answerBytes atomic.Int64
	reconnects               atomic.Int64
	// lastDelivery is when the last new message arrived, in nanoseconds of now.
	lastDelivery atomic.Int64
	// The latencies from a send to a recipient, to the confirmation, and to the second tick.
	delivered, confirmed, ticked measure.Histogram

	goroutines sync.WaitGroup
	senders    sync.WaitGroup

	mu       sync.Mutex
	problems []string
	closers  []func()
}

// Run performs one run, and returns when every goroutine and connection of it has ended.
// The error says why nothing could be measured. Report.Problems says what went wrong meanwhile.
func Run(ctx context.Context, load Load, mode Mode) (*Report, error) {
	r, err := newRun(ctx, load)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	var y Yardstick
	if y.Start, err = load.reading(ctx); err != nil {
		return nil, err
	}
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
	if y.End, err = load.reading(ctx); err != nil {
		return nil, err
	}
	report.compare(&y)
	report.Problems = append(append([]string{}, r.problems...), report.Problems...) // never null
	return report, nil
}

func newRun(ctx context.Context, load Load) (*run, error) {
	if len(load.URLs) == 0 {
		return nil, errors.New("a server's URL is required")
	}
	nodes := make([]client.URL, len(load.URLs))
	for i, url := range load.URLs {
		var err error
		if nodes[i], err = client.ParseURL(url); err != nil {
			return nil, err
		}
	}
	if load.Token == nil {
		return nil, errors.New("bench: Load.Token is required")
	}
	if load.AckEvery < 1 || load.AckInterval <= 0 || load.Rate < 0 || load.Messages < 0 ||
		load.Duration <= 0 {
		return nil, errors.New("--ack-every, --ack-interval and --duration must be above 0, " +
			"--rate and --messages at least 0")
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	r := &run{load: load, nodes: nodes, id: hex.EncodeToString(id[:]), began: time.Now()}
	r.ctx, r.end = context.WithCancelCause(ctx)
	return r, nil
}

// now returns the time since the run began. It never goes back.
func (r *run) now() time.Duration { return time.Since(r.began) }

// node returns node n, modulo the number of nodes.
func (r *run) node(n int) client.URL { return r.nodes[n%len(r.nodes)] }

// endpoint returns a user of the n-th node, with large buffers.
func (r *run) endpoint(user string, n int) client.Endpoint {
	return client.Endpoint{
		URL:      r.node(n),
		User:     user,
		Token:    r.load.Token(user),
		Received: &r.streamBytes,
		Buffer:   client.LargeBuffer,
		Confirm:  r.load.Own == "confirm",
	}
}

// goroutine starts f as a goroutine of the run. An error of f ends the run.
func (r *run) goroutine(f func() error) {
	r.goroutines.Go(func() {
		if err := f(); err != nil {
			r.fail(err)
		}
	})
}

// sending starts f as one of the goroutines that send. send waits for them.
func (r *run) sending(f func() error) {
	r.senders.Add(1)
	r.goroutine(func() error {
		defer r.senders.Done()
		return f()
	})
}

// fail records err as a problem and ends the run. It records nothing once the run has ended.
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

// closeLater registers f to be called when every goroutine has ended.
func (r *run) closeLater(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closers = append(r.closers, f)
}

// stop ends every goroutine and connection of the run. It may be called more than once.
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

// await polls until missing returns "", which means that nothing is missing.
// After Load.Drain it returns an error that says what is missing.
func (r *run) await(missing func() string) error {
	deadline := time.NewTimer(r.load.Drain)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		left := missing()
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

// send runs the senders until the budget is used up, and returns when all of them have ended.
func (r *run) send(senders []*sender) {
	ctx, cancel := r.ctx, func() {}
	if r.load.Messages == 0 {
		ctx, cancel = context.WithTimeout(r.ctx, r.load.Duration)
	}
	defer cancel()
	r.sendUntil(senders, &budget{messages: r.load.Messages, ctx: ctx})
}

// sendUntil is send with a budget of the caller.
func (r *run) sendUntil(senders []*sender, b *budget) {
	for i, s := range senders {
		s.interval = 0
		if r.load.Rate > 0 {
			s.interval = time.Duration(float64(len(senders)) / r.load.Rate * float64(time.Second))
			s.next = r.now() + s.interval*time.Duration(i)/time.Duration(len(senders))
		}
		s.start(b)
	}
	r.senders.Wait()
}

// parallel calls f(0) … f(n−1), at most limit at a time, and returns an error if a call failed.
// It begins no further call after an error, or after the end of ctx.
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
