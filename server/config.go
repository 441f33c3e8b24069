package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/tracing"
)

// Storage is the part of the storage contract that the core uses.
type Storage interface {
	storage.Chats
	storage.Members
	storage.Messages
	storage.Annotations
	storage.Deliveries
	storage.Receipts
	storage.Unreads
	storage.Pending
	storage.Blocks
	storage.Bans
	storage.Lives
	// DeleteChat is that of storage.Deletions.
	DeleteChat(ctx context.Context, chat tidemark.ChatID, now time.Time) (storage.Deleted, error)
	// CloseDirect is that of storage.Erasures.
	CloseDirect(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time) (
		storage.Removed, error)
}

// Attachments keeps the files that messages name.
type Attachments interface {
	// Pin keeps files from now on, because a send is about to store a message that names them. All
	// their bytes must be there. Each is the sender's own, or one of seen. After an error, some may
	// be pinned. If no message is stored under the key of the only send that named a file, the file
	// may be removed a day later.
	//
	// Errors: Denied (a file does not exist, or is another user's), Invalid (its bytes are not
	// there), Unavailable.
	Pin(ctx context.Context, send storage.SendKey, files, seen []string) error
}

// Audit records who did what to others (package audit).
type Audit interface {
	// Note records a call that has had its effect.
	Note(ctx context.Context, operation string, target storage.AuditTarget)
}

// Workers hand over messages that other nodes have stored.
type Workers = delivery.Workers

// Config configures a Server. Storage, Registry, Nodes and Bus are required. Elsewhere a zero value
// means the default.
type Config struct {
	Storage  Storage
	Registry registry.Registry
	Nodes    registry.Nodes
	Bus      bus.Bus
	// Attachments is nil if messages may name no files.
	Attachments Attachments
	// Deletions removes what is left of deleted chats. nil: nothing is removed.
	Deletions Deletions
	// Erasures knows who was erased. nil: nobody.
	Erasures Erasures
	// Audit records redactions of others' messages. nil: nothing is recorded.
	Audit Audit
	// Documents keeps who hides, when users were last seen, who is suspended, and who has signed
	// out. nil: nobody can do so.
	Documents storage.Documents
	// Reviewer, if not nil, is asked about each message before it is stored.
	Reviewer Reviewer
	// LastSeen writes to Documents when users were last seen, one write for each absence.
	LastSeen bool

	// Workers, if not nil, may hand over what this node stores. Then Send confirms a message when
	// it is stored.
	Workers Workers

	// OnlyBackendsOpen says that users create no chats, and only backends do.
	OnlyBackendsOpen bool

	// Node is this process's name among the processes that share the registry. Default "node".
	Node tidemark.NodeID
	// Logger gets the log, which never contains message text or tokens. Default slog.Default().
	Logger *slog.Logger

	// Tracer traces messages. nil: none is traced.
	Tracer *tracing.Tracer

	// Clock returns the time of day, which dates messages and watermarks. It may jump. Only one
	// decision uses it: how far back a session that may have missed something reconciles, with ten
	// minutes of slack. All periods are measured by the monotonic clock. Default time.Now.
	Clock func() time.Time

	// Heartbeat is the longest time that the server sends nothing on a stream. Default 20 s.
	Heartbeat time.Duration
	// ResumeWindow is how long a session stays after its connection has ended. Default 60 s.
	ResumeWindow time.Duration
	// Grace is how long a client may take to acknowledge messages of which its session was
	// notified. After that a pending row is marked. Under a steady stream it takes at most twice as
	// long. Default 10 s.
	Grace time.Duration
	// NodeTTL is how long a node may go without a heartbeat before it counts as dead. A node sends
	// one every third of NodeTTL. Default 9 s.
	NodeTTL time.Duration
	// LeaseTTL is how long a session's lease stands without a refresh. Leases are refreshed every
	// third of LeaseTTL. Default 60 s.
	LeaseTTL time.Duration
	// AckInterval is the least time between two writes of coalesced acknowledgements. Default 50
	// ms.
	AckInterval time.Duration
	// StatusInterval is the least time between two status updates about one member of a chat of up
	// to five members. In a chat of n members it is n/5 times that, but at most AggregateInterval.
	// Default 100 ms.
	StatusInterval time.Duration
	// AggregateInterval is the least time between two reads of the least boundary of a chat above
	// StatusFanout, for updates and for sessions that open. Default 1 s.
	AggregateInterval time.Duration
	// WrittenInterval is how long after a write of a user's watermarks their own sessions get a
	// status update, which confirms it. Default 4 s, so that clients know before they repeat.
	WrittenInterval time.Duration
	// AckBatch is the most raises of watermarks in one call to storage. Default 2,000.
	AckBatch int
	// ComparesPerSecond is how many sessions may begin to compare in a second after a node died.
	// Each compares the heads of all chats of its user. A store whose concurrent comparisons share
	// a statement can take more. Default 2,000.
	ComparesPerSecond int
	// StatusFanout is the most members of a chat with a status update for each member, and with
	// typing notices. A larger chat has one update for all. Default tidemark.StatusFanoutLimit.
	StatusFanout int
	// AuthorRetry is the pause before an author's run that was not contiguous is tried once more.
	// Default 1 s.
	AuthorRetry time.Duration

	// SessionsPerUser bounds the sessions of one user, on all nodes as far as the registry knows.
	// Default 32.
	SessionsPerUser int
	// SessionChats bounds the chats that one session remembers. Beyond it the session reconciles
	// with storage once there is room. Default 16,384.
	SessionChats int
	// HotChats bounds the chats whose roster and last messages are kept in memory. Default 50,000.
	HotChats int
	// TailBytes bounds the encoded messages kept in memory for all chats, and RosterBytes the
	// rosters. Default 64 MiB, and 128 MiB.
	TailBytes, RosterBytes int
	// TailMessages bounds the messages kept in memory for one chat. Default 256.
	TailMessages int
	// KnownStates bounds the remembered watermarks. Default 100,000.
	KnownStates int
}

func (c Config) withDefaults() (Config, error) {
	if c.Storage == nil || c.Registry == nil || c.Nodes == nil || c.Bus == nil {
		return c, tidemark.Errorf(tidemark.Internal,
			"server.Config needs Storage, Registry, Nodes and Bus")
	}
	if c.Node == "" {
		c.Node = "node"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	defaultTo(&c.Heartbeat, 20*time.Second)
	defaultTo(&c.ResumeWindow, time.Minute)
	defaultTo(&c.Grace, 10*time.Second)
	defaultTo(&c.NodeTTL, 9*time.Second)
	defaultTo(&c.LeaseTTL, time.Minute)
	defaultTo(&c.AckInterval, 50*time.Millisecond)
	defaultTo(&c.StatusInterval, 100*time.Millisecond)
	defaultTo(&c.AggregateInterval, time.Second)
	defaultTo(&c.WrittenInterval, 4*time.Second)
	defaultTo(&c.AckBatch, 2_000)
	defaultTo(&c.ComparesPerSecond, 2_000)
	defaultTo(&c.StatusFanout, tidemark.StatusFanoutLimit)
	defaultTo(&c.AuthorRetry, time.Second)
	defaultTo(&c.SessionsPerUser, 32)
	defaultTo(&c.SessionChats, 16_384)
	defaultTo(&c.HotChats, 50_000)
	defaultTo(&c.TailBytes, 64<<20)
	defaultTo(&c.RosterBytes, 128<<20)
	defaultTo(&c.TailMessages, 256)
	defaultTo(&c.KnownStates, 100_000)
	return c, nil
}

func defaultTo[T ~int | ~int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// checker is a store that can also report whether it can serve now.
type checker interface {
	Check(ctx context.Context) error
}
