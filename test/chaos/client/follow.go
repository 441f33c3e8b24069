package client

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/client"
	"github.com/tidemark-im/tidemark/test/chaos/checker"
)

// Follow keeps the device up to date by the Go client (package client), until ctx ends. The log is
// the client's CursorStore. Now and then the device stops, or dies without a farewell, and comes
// back with a new client.
func (d *Device) Follow(ctx context.Context) {
	d.ends = map[string]int{}
	f := &follower{device: d, incarnations: map[tidemark.ChatID]tidemark.Incarnation{}}
	for ctx.Err() == nil {
		f.live(ctx)
		away := max(d.Away, d.Leaves, 100*time.Millisecond)
		select {
		case <-ctx.Done():
		case <-d.StayConnected:
			wait(ctx, 20*time.Millisecond)
		case <-time.After(time.Duration(d.Random.Int64N(int64(away)))):
		}
	}
}

// errFails is what the handler returns at random.
var errFails = errors.New("the handler fails, as it does at random")

// follower is a device with the Go client.
type follower struct {
	device *Device
	client *client.Client
	// dead reports that no request leaves the device any more.
	dead atomic.Bool

	mu           sync.Mutex // guards the fields below
	incarnations map[tidemark.ChatID]tidemark.Incarnation
}

// live runs one client, until ctx ends or the device stops.
func (f *follower) live(ctx context.Context) {
	d := f.device
	transport := &http.Transport{DisableKeepAlives: true}
	f.dead.Store(false)
	var err error
	f.client, err = client.New(client.Config{
		URL: d.Base, User: tidemark.UserID(d.Log.User), Device: tidemark.DeviceID(d.Name),
		Token:   func(context.Context) (string, error) { return "dev:" + d.Log.User, nil },
		Cursors: f, HTTP: &http.Client{Transport: outgoing{f, transport}},
		Transports: [][]client.Transport{
			nil, {client.SSE, client.LongPoll}, {client.LongPoll},
		}[d.Random.IntN(3)],
		Logger: slog.New(watcher{f, slog.DiscardHandler}),
	})
	if err != nil {
		panic(err) // the configuration is our own
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if d.Stays > 0 {
		dies := d.Random.IntN(2) == 0
		timer := time.AfterFunc(time.Second+time.Duration(d.Random.Int64N(int64(d.Stays))), func() {
			select {
			case <-d.StayConnected:
			default:
				f.dead.Store(dies)
				stop()
			}
		})
		defer timer.Stop()
	}
	// After many failures the client may pause for 30 s, which is longer than the test waits. So
	// each starts anew once all is well.
	select {
	case <-d.StayConnected:
	default:
		var healed sync.WaitGroup
		defer healed.Wait()
		defer stop()
		healed.Go(func() {
			select {
			case <-d.StayConnected:
				stop()
			case <-ctx.Done():
			}
		})
	}
	defer d.Log.Disconnect()
	// A client of this device that died may have left a request behind, which is served later and
	// takes the device over. Its supervisor, which is Follow, starts it again.
	err = f.client.Run(ctx, f.handle)
	if tidemark.CodeOf(err) == tidemark.Replaced {
		d.note(err)
	} else if err != nil {
		d.Ledger.Complain(checker.Refused, "the client of %s ended: %v", d.Log.Name, err)
	}
}

// handle takes a message. It fails at random before it has taken one.
func (f *follower) handle(ctx context.Context, m tidemark.Message) error {
	d := f.device
	if rand.IntN(100) == 0 {
		return errFails
	}
	chat := string(m.ChatID)
	d.Log.Handled(chat, int64(m.Sequence), string(m.SenderID), m.ClientMessageID)
	if rand.IntN(4) == 0 {
		d.Ledger.Acknowledge(chat, d.Log.User, checker.Boundary{Read: int64(m.Sequence)})
		return f.client.Read(ctx, m.ChatID, m.Sequence)
	}
	return nil
}

// Load implements client.CursorStore.
func (f *follower) Load(context.Context) (map[tidemark.ChatID]client.Cursor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[tidemark.ChatID]client.Cursor{}
	for name, stored := range f.device.Log.Stored() {
		chat := tidemark.ChatID(name)
		all[chat] = client.Cursor{
			Sequence: tidemark.Sequence(stored), Incarnation: f.incarnations[chat],
		}
	}
	return all, nil
}

// Save implements client.CursorStore.
func (f *follower) Save(_ context.Context, chat tidemark.ChatID, c client.Cursor) error {
	f.device.Log.Saved(string(chat), int64(c.Sequence))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.incarnations[chat] = c.Incarnation
	return nil
}

// outgoing makes the requests of a follower. It records where a stream's connection begins.
type outgoing struct {
	f    *follower
	over *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (o outgoing) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.f.dead.Load() {
		return nil, errors.New("the device is dead")
	}
	for _, stream := range []string{"/ws", "/events", "/poll"} {
		if strings.HasSuffix(r.URL.Path, stream) {
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) {
					o.f.device.at(info.Conn.LocalAddr().String())
				},
			}))
		}
	}
	return o.over.RoundTrip(r)
}

// watcher notes what the client says about its streams.
type watcher struct {
	f *follower
	slog.Handler
}

// Enabled implements slog.Handler.
func (watcher) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (w watcher) Handle(_ context.Context, r slog.Record) error {
	said := map[string]slog.Value{}
	r.Attrs(func(a slog.Attr) bool {
		said[a.Key] = a.Value
		return true
	})
	d := w.f.device
	switch r.Message {
	case "the stream is open":
		over := said["transport"].String()
		d.Log.Attached(over, said["resumed"].Bool())
		for t := range Transports {
			if t.String() == over {
				d.open(t)
			}
		}
	case "the stream ended":
		d.Log.Disconnect()
		text, _, _ := strings.Cut(said["error"].String(), ": Get ")
		d.note(errors.New("client: " + text))
	}
	return nil
}
