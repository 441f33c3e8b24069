package bench

import (
	"fmt"
	"syscall"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
)

// Idle is the mode idle: connections of distinct users that stay open and do nothing.
// It measures how much the server's resident memory grows for each.
// Start the server anew before a run, because it first reuses memory that an earlier load freed.
type Idle struct {
	Connections int `default:"1000" help:"Number of connections, each of its own user."`
	Ramp        int `default:"64" help:"How many connections are opened at a time."`

	listeners []*listener
	opened    time.Duration
}

// spareFiles is the number of file descriptors that the load generator needs for itself.
const spareFiles = 64

func (d *Idle) describe() (name, settings string) {
	return "idle", fmt.Sprintf("%d connections", d.Connections)
}

func (d *Idle) prepare(r *run) error {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err == nil && uint64(d.Connections)+spareFiles > limit.Cur {
		return fmt.Errorf("%d connections need more than the %d files that this process may open; "+
			"raise `ulimit -n`", d.Connections, limit.Cur)
	}
	if d.Connections < 1 || d.Ramp < 1 {
		return fmt.Errorf("--connections and --ramp must be at least 1")
	}
	if r.load.Transport == client.REST {
		return fmt.Errorf("the transport rest holds no connections; " +
			"choose websocket, sse or longpoll")
	}
	d.listeners = make([]*listener, d.Connections)
	for i := range d.listeners {
		d.listeners[i] = newListener(r, r.name("i", i), i)
		d.listeners[i].endpoint.Buffer = client.SmallBuffer
	}
	return nil
}

func (d *Idle) apply(r *run) error {
	start := r.now()
	err := parallel(r.ctx, d.Connections, d.Ramp,
		func(i int) error { return d.listeners[i].start() })
	if err != nil {
		return err
	}
	d.opened = r.now() - start
	return sleep(r.ctx, r.load.Duration)
}

func (d *Idle) verify(r *run, report *Report) {
	if n := r.reconnects.Load(); n > 0 {
		report.problem("%d connections were lost while they were idle", n)
	}
	report.add("connections opened per second", float64(d.Connections)/d.opened.Seconds(), "/s")
	report.add("held for", r.load.Duration.Seconds(), "s")
	if len(report.Processes) > 0 {
		grown := report.before.resident(report.after)
		report.add("resident memory per connection",
			float64(grown)/float64(d.Connections)/1024, "KiB")
	}
	report.perOperation("connection, opening and holding", int64(d.Connections))
}
