package main

import (
	"net"
	"syscall"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/transports/limit"
)

const (
	// reservedFiles is the number of files that are kept free for other uses than connections.
	// These are the database, its log, and connections that are refused because the limit is
	// reached.
	reservedFiles = 256
	// mostConnections is the default limit of connections, even if more files may be open.
	// They need about 1 GiB of memory (docs/internals/performance.md).
	mostConnections = 100_000
	// stuckAfter is how long a commit or checkpoint may take before /healthz is red, which asks for
	// a restart. Waiting for a lock of another program takes a second or two.
	// A large checkpoint on a slow disk takes several seconds.
	stuckAfter = 30 * time.Second
)

const day = 24 * time.Hour

// limitFlags are the limits that operators can change. docs/limits.md lists all limits.
type limitFlags struct {
	MaxConnections           int            `env:"TIDEMARK_MAX_CONNECTIONS" placeholder:"N" help:"Greatest number of connections; further ones get 503. 0: what the open-file limit allows, at most 100,000."`
	MaxConnectionsPerAddress int            `env:"TIDEMARK_MAX_CONNECTIONS_PER_ADDRESS" placeholder:"N" help:"Greatest number of connections per client address; further ones are closed. 0: no limit, which is right behind a proxy."`
	DrainDelay               *time.Duration `env:"TIDEMARK_DRAIN_DELAY" placeholder:"TIME" help:"How long /readyz is red before an orderly stop begins, so that load balancers notice. Default 1s, with --dev 0s."`
	DrainSpread              *time.Duration `env:"TIDEMARK_DRAIN_SPREAD" placeholder:"TIME" help:"Longest time in which an orderly stop sends streams to other nodes. Default 10s, but at most half of what the deadline leaves after the delay."`
	DrainDeadline            time.Duration  `env:"TIDEMARK_DRAIN_DEADLINE" placeholder:"TIME" help:"Longest time for an orderly stop in all. Default 15s."`
}

// coreFlags are the times and bounds of the core that operators can change.
type coreFlags struct {
	ResumeWindow    time.Duration `env:"TIDEMARK_RESUME_WINDOW" placeholder:"TIME" help:"How long a session stays after its connection has ended. Default 1m."`
	Grace           time.Duration `env:"TIDEMARK_GRACE" placeholder:"TIME" help:"How long a client may take to acknowledge a message before a pending row says that it is missing. Default 10s."`
	AckInterval     time.Duration `env:"TIDEMARK_ACK_INTERVAL" placeholder:"TIME" help:"Least time between two writes of acknowledgements that came over streams. Default 50ms."`
	StatusInterval  time.Duration `env:"TIDEMARK_STATUS_INTERVAL" placeholder:"TIME" help:"Least time between two status updates about one member of one chat. Default 100ms."`
	StatusFanout    int           `env:"TIDEMARK_STATUS_FANOUT" placeholder:"N" help:"Greatest number of members of a chat with status updates for each member, and with typing notices. Default 50."`
	AckBatch        int           `env:"TIDEMARK_ACK_BATCH" placeholder:"N" help:"Greatest number of acknowledgements in one call of the storage. Default 2000."`
	CommitBatch     int           `env:"TIDEMARK_COMMIT_BATCH" placeholder:"N" help:"Greatest number of writes that share a commit of SQLite or a statement of Postgres. Default 512."`
	LastSeen        bool          `env:"TIDEMARK_LAST_SEEN" help:"Keep when users were last seen: one write for each absence. Default: no."`
	KeepDays        int           `env:"TIDEMARK_KEEP_DAYS" placeholder:"DAYS" help:"Remove messages that are older than this many days, 8 at least. Default: messages are kept for ever."`
	AuditDays       *int          `env:"TIDEMARK_AUDIT_DAYS" placeholder:"DAYS" help:"Keep entries of the audit log for this many days; 0: write none. Default 400."`
	OpenChats       string        `env:"TIDEMARK_OPEN_CHATS" default:"members" enum:"members,backends" help:"Who creates chats: members (every user), or backends (API keys only)."`
	SessionsPerUser int           `env:"TIDEMARK_SESSIONS_PER_USER" placeholder:"N" help:"Greatest number of sessions of a user. Default 32."`
	Erasure         erasureFlags  `embed:""`
}

// check returns a usageError if a value is out of its range. Zero is the default.
func (f coreFlags) check() error {
	for _, given := range []struct {
		flag            string
		value, from, to time.Duration
	}{
		{"--resume-window", f.ResumeWindow, 5 * time.Second, time.Hour},
		{"--grace", f.Grace, time.Second, 5 * time.Minute},
		{"--ack-interval", f.AckInterval, 5 * time.Millisecond, 2 * time.Second},
		{"--status-interval", f.StatusInterval, 5 * time.Millisecond, 2 * time.Second},
	} {
		if given.value != 0 && (given.value < given.from || given.value > given.to) {
			return usagef("%s is %v; it must be %v to %v", given.flag, given.value, given.from,
				given.to)
		}
	}
	for _, given := range []struct {
		flag            string
		value, from, to int
	}{
		{"--sessions-per-user", f.SessionsPerUser, 1, 10_000},
		{"--keep-days", f.KeepDays, tidemark.MinKeepDays, tidemark.MaxKeepDays},
		{"--status-fanout", f.StatusFanout, 2, tidemark.PendingFanoutLimit},
		{"--ack-batch", f.AckBatch, 1, 10_000},
		{"--commit-batch", f.CommitBatch, 1, 512},
	} {
		if given.value != 0 && (given.value < given.from || given.value > given.to) {
			return usagef("%s is %d; it must be %d to %d", given.flag, given.value, given.from,
				given.to)
		}
	}
	if days := f.auditDays(); days < 0 || days > audit.MaxDays {
		return usagef("--audit-days is %d; it must be 0 to %d", days, audit.MaxDays)
	}
	return nil
}

// rateFlags are the rates of users. docs/limits.md says what they count.
type rateFlags struct {
	UserSends       limit.Rate `env:"TIDEMARK_USER_SENDS" placeholder:"RATE" help:"Sends of a user: PER_SECOND, PER_SECOND:AT_ONCE, or none. Default 50:500."`
	UserSilent      limit.Rate `env:"TIDEMARK_USER_SILENT" placeholder:"RATE" help:"Sends of a user that nobody is shown: edits, redactions, control messages. Default 1:60."`
	UserCalls       limit.Rate `env:"TIDEMARK_USER_CALLS" placeholder:"RATE" help:"Other calls of a user. Default 200:1000."`
	UserStatuses    limit.Rate `env:"TIDEMARK_USER_STATUSES" placeholder:"RATE" help:"Chats of which a user asks for the delivery status. Default 600:1200."`
	BackendSends    limit.Rate `env:"TIDEMARK_BACKEND_SENDS" placeholder:"RATE" help:"Sends of a backend for one user. Default 1000:5000."`
	BackendSilent   limit.Rate `env:"TIDEMARK_BACKEND_SILENT" placeholder:"RATE" help:"Such sends of a backend for one user. Default 1000:5000."`
	BackendCalls    limit.Rate `env:"TIDEMARK_BACKEND_CALLS" placeholder:"RATE" help:"Other calls of a backend for one user. Default 2000:10000."`
	BackendStatuses limit.Rate `env:"TIDEMARK_BACKEND_STATUSES" placeholder:"RATE" help:"Chats of which a backend asks for the delivery status, for one user. Default 2000:10000."`
}

// config returns the rates; those without a flag have their default.
func (f rateFlags) config() limit.Config {
	return limit.Config{
		User: limit.Rates{
			Sends: f.UserSends, Silent: f.UserSilent,
			Calls: f.UserCalls, Statuses: f.UserStatuses,
		},
		Backend: limit.Rates{
			Sends: f.BackendSends, Silent: f.BackendSilent,
			Calls: f.BackendCalls, Statuses: f.BackendStatuses,
		},
	}
}

// withDefaults returns the flags with defaults for those that are not set, or a usageError.
func (f limitFlags) withDefaults(dev bool) (limitFlags, error) {
	if f.MaxConnections < 0 || f.MaxConnectionsPerAddress < 0 {
		return f, usagef("--max-connections and --max-connections-per-address must be at least 0")
	}
	files := openFiles()
	if room := roomFor(files); files > 0 && uint64(f.MaxConnections) > room {
		return f, usagef("--max-connections is %d, but this process may open %d files, which are "+
			"enough for %d; raise that limit (LimitNOFILE=, ulimit -n), or omit the flag",
			f.MaxConnections, files, room)
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
		return f, usagef("--drain-deadline is %v, but must be longer than --drain-delay, which "+
			"is %v and a part of it", f.DrainDeadline, *f.DrainDelay)
	}
	left := f.DrainDeadline - *f.DrainDelay
	if f.DrainSpread == nil {
		spread := min(drainSpread, left/2)
		f.DrainSpread = &spread
	}
	if *f.DrainSpread < 0 || *f.DrainSpread >= left {
		return f, usagef("--drain-spread is %v, but --drain-deadline leaves only %v for it and "+
			"the steps after it; make the deadline longer", *f.DrainSpread, left)
	}
	return f, nil
}

// openFiles returns how many files the process may have open, or 0 if that is unknown.
// The Go runtime has already raised the limit as far as allowed.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

// connectionsFor returns the default limit of connections for a limit of open files.
// If the latter is 0, it is unknown.
func connectionsFor(files uint64) int {
	if files == 0 {
		return mostConnections
	}
	return int(min(roomFor(files), mostConnections))
}

// roomFor returns how many connections fit a limit of open files.
// With more, the process could neither accept connections nor open its database.
// Every call would then hang, instead of getting a 503.
func roomFor(files uint64) uint64 {
	return max(files-min(files, reservedFiles), files/2, 1)
}

// listen returns a listener that enforces the limits on connections.
func (f limitFlags) listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return limit.NewListener(l.(*net.TCPListener), limit.ListenerConfig{
		Connections: f.MaxConnections,
		PerAddress:  f.MaxConnectionsPerAddress,
	}), nil
}

// progress returns the check of /healthz that commits end. committing says how long the current
// commit takes. If it is nil, the store cannot say, and progress returns nil.
func progress(committing func() time.Duration) func() error {
	if committing == nil {
		return nil
	}
	return func() error {
		if d := committing(); d > stuckAfter {
			return tidemark.Errorf(tidemark.Unavailable, "a commit has taken %v: "+
				"the disk or the process hangs; look into the system's log, and restart the server",
				d.Round(time.Second))
		}
		return nil
	}
}
