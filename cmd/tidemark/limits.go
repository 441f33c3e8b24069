package main

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports"
)

const (
	// reservedFiles is how many files the process keeps for other things than connections: the database, its log, and clients that are told that it is full.
	reservedFiles = 256
	// mostConnections is the bound if the operating system would allow more: about 1 GiB of memory (docs/internals/performance.md).
	mostConnections = 100_000
	// stuckAfter is how long a commit or checkpoint may take before /healthz says that the process has to be started again. A lock of another program is
	// waited for for a second or two, and a large checkpoint on a slow disk takes some.
	stuckAfter = 30 * time.Second
)

// limitFlags are the limits of serve that an operator may want to change. docs/limits.md has all limits.
type limitFlags struct {
	MaxConnections           int            `env:"TIDEMARK_MAX_CONNECTIONS" placeholder:"N" help:"Connections at a time; further ones are answered 503. 0: what the limit of open files allows, at most 100,000."`
	MaxConnectionsPerAddress int            `env:"TIDEMARK_MAX_CONNECTIONS_PER_ADDRESS" placeholder:"N" help:"Connections at a time from one client address; further ones are closed. 0: no limit, which is right behind a proxy."`
	DrainDelay               *time.Duration `env:"TIDEMARK_DRAIN_DELAY" placeholder:"TIME" help:"How long /readyz is red before an orderly stop begins, for load balancers to notice. Default 1s, with --dev 0s."`
	DrainSpread              *time.Duration `env:"TIDEMARK_DRAIN_SPREAD" placeholder:"TIME" help:"In what time streams are sent to other nodes in an orderly stop, if there are some: at most 100 a second, unless that takes longer. Default 10s, but no more than half of what the deadline leaves after the delay."`
	DrainDeadline            time.Duration  `env:"TIDEMARK_DRAIN_DEADLINE" placeholder:"TIME" help:"How long an orderly stop may take in all. Default 15s."`
}

// withDefaults checks the flags and fills in what they leave open.
func (f limitFlags) withDefaults(dev bool) (limitFlags, error) {
	if f.MaxConnections < 0 || f.MaxConnectionsPerAddress < 0 {
		return f, usageError{fmt.Errorf("--max-connections and --max-connections-per-address are numbers from 0 on")}
	}
	files := openFiles()
	if room := roomFor(files); files > 0 && uint64(f.MaxConnections) > room {
		return f, usageError{fmt.Errorf("--max-connections is %d, but this process may open %d files, which is enough for %d: raise that limit (LimitNOFILE=, ulimit -n), or leave the flag out",
			f.MaxConnections, files, room)}
	}
	if f.MaxConnections == 0 {
		f.MaxConnections = connectionsFor(files)
	}
	if f.DrainDeadline == 0 {
		f.DrainDeadline = drainWithin
	}
	if f.DrainDelay == nil {
		delay := min(drainDelay, f.DrainDeadline/10)
		if dev {
			delay = 0
		}
		f.DrainDelay = &delay
	}
	if *f.DrainDelay < 0 || f.DrainDeadline <= *f.DrainDelay {
		return f, usageError{fmt.Errorf("--drain-deadline is %v, and has to be longer than --drain-delay, which is %v and a part of it", f.DrainDeadline, *f.DrainDelay)}
	}
	left := f.DrainDeadline - *f.DrainDelay
	if f.DrainSpread == nil {
		spread := min(drainSpread, left/2)
		f.DrainSpread = &spread
	}
	if *f.DrainSpread < 0 || *f.DrainSpread >= left {
		return f, usageError{fmt.Errorf("--drain-spread is %v, and --drain-deadline leaves %v for it and for everything behind it: make the deadline longer", *f.DrainSpread, left)}
	}
	return f, nil
}

// openFiles returns how many files the process may have open, 0 if that is not known. The runtime has raised the limit as far as it may.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

// connectionsFor is how many connections a process holds that may open so many files, 0 for no limit, if nothing else is said.
func connectionsFor(files uint64) int {
	if files == 0 {
		return mostConnections
	}
	return int(min(roomFor(files), mostConnections))
}

// roomFor is how many connections so many files are enough for. With more, the process could neither accept nor open its database any more, and every call would
// hang instead of being answered 503.
func roomFor(files uint64) uint64 {
	return max(files-min(files, reservedFiles), files/2, 1)
}

// listen listens within the limits.
func (f limitFlags) listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return transports.NewListener(l.(*net.TCPListener), transports.ListenerConfig{Connections: f.MaxConnections, PerAddress: f.MaxConnectionsPerAddress}), nil
}

// progress returns what /healthz asks: whether the store's commits come to their end. A store that does not tell is believed.
func progress(committing func() time.Duration) func() error {
	if committing == nil {
		return nil
	}
	return func() error {
		if d := committing(); d > stuckAfter {
			return tidemark.Errorf(tidemark.Unavailable, "a commit has been under way for %v: the disk hangs, or the process does", d.Round(time.Second))
		}
		return nil
	}
}
