package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage is the roles of the storage contract that the core uses.
type Storage interface {
	storage.Chats
	storage.Members
	storage.Messages
	storage.Deliveries
	storage.Pending
	Check(ctx context.Context) error
}

// Config configures a Server. Storage, Registry, Nodes and Bus are required; every other field has a working default.
type Config struct {
	Storage  Storage
	Registry registry.Registry
	Nodes    registry.Nodes
	Bus      bus.Bus
	// Node is this process's name. Default: "node".
	Node tidemark.NodeID
	// Logger default: slog.Default(). Never given message text or tokens.
	Logger *slog.Logger
	// Heartbeat is the longest silence on a stream; adapters send a ping or comment. Default 20 s.
	Heartbeat time.Duration
	// ResumeWindow is how long a session outlives its connection. Default 60 s.
	ResumeWindow time.Duration
	// Grace is how long after a wake a client may take to acknowledge before a pending row is marked. Default 10 s.
	Grace time.Duration
	// LeaseTTL: leases are refreshed every third of it. Default 60 s.
	LeaseTTL time.Duration
	// AckInterval is the least time between two writes of coalesced acknowledgements. Default 50 ms.
	AckInterval time.Duration
	// StatusInterval is the least time between two status updates about one member of one chat. Default 100 ms.
	StatusInterval time.Duration
	// SessionsPerUser is the greatest number of sessions of one user on this node. Default 32.
	SessionsPerUser int
}

// Server is the delivery core.
type Server struct{}

func New(cfg Config) (*Server, error)             { panic("stub") }
func (s *Server) Start(ctx context.Context) error { panic("stub") } // starts the goroutines it owns
func (s *Server) Stop(ctx context.Context) error  { panic("stub") } // closes every session cleanly (marks), stops the goroutines, waits
func (s *Server) Ready(ctx context.Context) error { panic("stub") }
func (s *Server) Heartbeat() time.Duration        { panic("stub") }
func (s *Server) Counters() map[string]int64      { panic("stub") } // name -> value; "…_total" are counters, others gauges

// Caller is who asks.
type Caller struct {
	User tidemark.UserID
	// Backend: authenticated by an API key, acting for User; may do what an owner may.
	Backend bool
}

type CreateChatRequest struct {
	ChatID    tidemark.ChatID // "" = the server gives one
	Type      tidemark.ChatType
	Name      string
	History   tidemark.HistoryMode // "" = full
	MemberIDs []tidemark.UserID    // the caller is added if he is not among them
}

// ChatView is a chat as one member sees it (wire.md "Chat").
type ChatView struct {
	tidemark.Chat
	State  tidemark.DeliveryState // the caller's own, raw
	Unread int64
	Last   *tidemark.Message
}

type ChatPage struct {
	Chats      []ChatView
	NextCursor string // "" = no more
}

type MemberPage struct {
	Members    []tidemark.Member
	NextCursor string
}

func (s *Server) CreateChat(ctx context.Context, c Caller, r CreateChatRequest) (chat ChatView, created bool, err error) {
	panic("stub")
}
func (s *Server) Chats(ctx context.Context, user tidemark.UserID, limit int, cursor string) (ChatPage, error) {
	panic("stub")
}
func (s *Server) Chat(ctx context.Context, c Caller, chat tidemark.ChatID) (ChatView, error) {
	panic("stub")
}
func (s *Server) RenameChat(ctx context.Context, c Caller, chat tidemark.ChatID, name string) (ChatView, error) {
	panic("stub")
}
func (s *Server) Members(ctx context.Context, c Caller, chat tidemark.ChatID, limit int, cursor string) (MemberPage, error) {
	panic("stub")
}
func (s *Server) AddMembers(ctx context.Context, c Caller, chat tidemark.ChatID, users []tidemark.UserID) (MemberPage, error) {
	panic("stub")
}
func (s *Server) RemoveMember(ctx context.Context, c Caller, chat tidemark.ChatID, user tidemark.UserID) error {
	panic("stub")
}

// SendRequest: Draft without SenderID, MessageID, CreatedAt (the server sets them).
type SendRequest struct {
	Draft tidemark.Draft
	// Seen is `seen_sequence`, 0 if the client states none.
	Seen tidemark.Sequence
}
type Sent struct {
	Message   tidemark.Message
	Duplicate bool
}

func (s *Server) Send(ctx context.Context, user tidemark.UserID, r SendRequest) (Sent, error) {
	panic("stub")
}

type HistoryRequest struct {
	Chat          tidemark.ChatID
	After, Before *tidemark.Sequence // both nil = newest page; both set = Invalid
	Limit         int                // 1..1000
}
type History struct {
	Messages []tidemark.Message // ascending
	Gaps     []tidemark.Gap
	HasMore  bool              // in the direction of the request
	Next     tidemark.Sequence // the after_sequence (or before_sequence) of the next page
}

func (s *Server) History(ctx context.Context, user tidemark.UserID, r HistoryRequest) (History, error) {
	panic("stub")
}

// Ack raises the caller's watermarks; 0 leaves one. Adapters refuse an explicit value <= 0 with INVALID_SEQUENCE themselves.
type Ack struct {
	Chat  tidemark.ChatID
	Acked tidemark.Sequence
	Read  tidemark.Sequence
}
type AckResult struct {
	State tidemark.DeliveryState
	Err   error
}
type StatePage struct {
	States     []tidemark.DeliveryState
	NextCursor string
}
type DeliveryStatusRequest struct {
	Chat        tidemark.ChatID
	ForSequence *tidemark.Sequence
	Limit       int
	Cursor      string
}
type DeliveryStatus struct {
	Chat       tidemark.Chat
	Sequence   tidemark.Sequence
	Summary    storage.Summary
	Members    []tidemark.DeliveryState // to be shown by their Exposed() boundary
	NextCursor string
}

func (s *Server) Acknowledge(ctx context.Context, user tidemark.UserID, acks []Ack) ([]AckResult, error) {
	panic("stub")
}
func (s *Server) DeliveryState(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID) (tidemark.DeliveryState, error) {
	panic("stub")
}
func (s *Server) DeliveryStates(ctx context.Context, user tidemark.UserID, limit int, cursor string) (StatePage, error) {
	panic("stub")
}
func (s *Server) DeliveryStatus(ctx context.Context, user tidemark.UserID, r DeliveryStatusRequest) (DeliveryStatus, error) {
	panic("stub")
}

type Cursor struct {
	Chat  tidemark.ChatID
	Acked tidemark.Sequence // 0 allowed: nothing yet
}
type SyncRequest struct {
	Cursors  []Cursor
	Session  tidemark.SessionID // "" = answer with messages; else set that session's positions
	Limit    int                // messages per chat, 1..1000
	Statuses bool
}
type SyncChat struct {
	Chat     tidemark.ChatID
	Head     tidemark.Sequence
	Messages []tidemark.Message
	Gaps     []tidemark.Gap
	HasMore  bool
	Reset    tidemark.ResetReason // "" or "ahead"
	Err      error                // NotMember, NotFound
}
type SyncResponse struct {
	Chats    []SyncChat // empty when Session was given, but for resets and errors
	Statuses []tidemark.StatusUpdate
	HasMore  bool // more messages in a chat listed, or more chats behind: call again with the new cursors
}

func (s *Server) Sync(ctx context.Context, user tidemark.UserID, r SyncRequest) (SyncResponse, error) {
	panic("stub")
}

// OpenRequest opens a session, or resumes one.
type OpenRequest struct {
	User    tidemark.UserID
	Device  tidemark.DeviceID  // "" = one per session
	Session tidemark.SessionID // "" = a new session
	After   uint64             // the last event id the client saw; with Session
	// Statuses: send status snapshots and updates (?statuses=0 turns it off).
	Statuses bool
	// Poll: long-poll rules: an unknown, expired or foreign session is a Gone error instead of a new session with `reset`;
	// no `open` event when a session is resumed.
	Poll bool
}

// Connection is one connection's hold on a session. A newer connection of the session fences it off. Its methods may be called from one reading and one writing goroutine.
type Connection struct{}

// Open returns at once; the first Next yields the `open` event. Errors: Exhausted (too many sessions), Gone (Poll), Unavailable (stopping).
func (s *Server) Open(ctx context.Context, r OpenRequest) (*Connection, error) { panic("stub") }

func (c *Connection) Session() tidemark.SessionID { panic("stub") }

// Next appends the events that are due to buf, at most a page (64 events or 64 KiB, at least one event), and returns at once if there is any. Otherwise
// it waits for one if wait is true, or returns buf as it is. Payloads stay valid for ever and must not be changed. It returns Replaced once a newer
// connection owns the session, Gone when the session has ended, Unavailable when the server is stopping, ctx.Err() when ctx ends first.
func (c *Connection) Next(ctx context.Context, buf []tidemark.Event, wait bool) ([]tidemark.Event, error) {
	panic("stub")
}

// Ack takes acknowledgements and reads, fire-and-forget, coalesced; bad ones are counted and dropped. It does not block on storage.
func (c *Connection) Ack(acks ...Ack) { panic("stub") }

// Send is Server.Send for the session's user.
func (c *Connection) Send(ctx context.Context, r SendRequest) (Sent, error) { panic("stub") }

// Sync is Server.Sync for the session's user. The request's Session may name this session.
func (c *Connection) Sync(ctx context.Context, r SyncRequest) (SyncResponse, error) { panic("stub") }

// Typing tells the other members' sessions; ephemeral, errors are dropped.
func (c *Connection) Typing(ctx context.Context, chat tidemark.ChatID) { panic("stub") }

// Confirm says that the client has everything up to an event id (long-poll's next `after` does this by itself at Open).
func (c *Connection) Confirm(after uint64) { panic("stub") }

// Detach says that the connection is gone: the session waits for ResumeWindow for another one. Idempotent; does nothing if fenced.
func (c *Connection) Detach() { panic("stub") }

// Close ends the session cleanly at once (the client said goodbye, e.g. WebSocket close 1000): marks what is unacknowledged, releases the lease. Idempotent; only detaches if fenced.
func (c *Connection) Close(ctx context.Context) error { panic("stub") }
