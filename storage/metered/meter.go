// Package metered measures a store: the time of each operation, its errors, and how many writes
// share a commit. It logs failures with the id of the request. It changes no arguments and no
// results.
//
// A call costs two readings of the clock and a few atomic additions.
package metered

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/tracing"
)

// Meter holds the metrics of a store. It implements prometheus.Collector. Create it with New. It is
// safe for concurrent use.
type Meter struct {
	log *slog.Logger
	// traced says that appends may be of traced messages, which then are exemplars of latencies.
	traced  bool
	seconds [operations]prometheus.Histogram
	errors  *prometheus.CounterVec
	commits prometheus.Histogram
	appends prometheus.Histogram
	raises  prometheus.Histogram
	units   *prometheus.CounterVec
	all     []prometheus.Collector
}

// New returns a Meter that logs failures to log.
func New(log *slog.Logger) *Meter {
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_storage_seconds",
		Help: "Duration of calls of the storage, by operation. A send waits for append.",
		Buckets: []float64{
			.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
		},
	}, []string{"operation"})
	batch := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    name,
			Help:    help,
			Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		})
	}
	m := &Meter{
		log: log,
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_storage_errors_total",
			Help: "Calls of the storage that failed, by operation and code. UNAVAILABLE and " +
				"INTERNAL are faults, the others answers.",
		}, []string{"operation", "code"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_commit_seconds",
			Help: "Duration of commits that stored messages or raised watermarks, from the first " +
				"statement until the data was on disk. Most of it is the disk's fsync, and with " +
				"Postgres also the round trip.",
			Buckets: []float64{
				.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
			},
		}),
		appends: batch("tidemark_commit_sends",
			"Messages in a commit, without commits that had none. Above 1, sends share commits."),
		raises: batch("tidemark_commit_acks",
			"Raises of watermarks in a commit, without commits that had none."),
	}
	m.units = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_dynamodb_request_units_total",
		Help: "Request units that DynamoDB bills, by the operation that used them. kind is read " +
			"or write. Other databases have none.",
	}, []string{"operation", "kind"})
	for op := range operations {
		m.seconds[op] = latency.WithLabelValues(op.String()).(prometheus.Histogram)
	}
	m.all = []prometheus.Collector{latency, m.errors, m.commits, m.appends, m.raises, m.units}
	return m
}

// Trace makes traced messages the exemplars of the latencies of appends. Call it before Store.
func (m *Meter) Trace() { m.traced = true }

// observe records how long a call took.
func (m *Meter) observe(ctx context.Context, op operation, took time.Duration) {
	// Other calls of a send have its trace only if a transport decided, so they have no exemplar.
	if m.traced && op == opAppend {
		span, _ := tracing.From(ctx)
		if with, ok := m.seconds[op].(prometheus.ExemplarObserver); ok && span.Valid() {
			with.ObserveWithExemplar(took.Seconds(),
				prometheus.Labels{"trace_id": span.Trace.String()})
			return
		}
	}
	m.seconds[op].Observe(took.Seconds())
}

// Committed records a commit: the number of messages and of raises of watermarks in it, and its
// duration. Backends in which calls do not share commits never call it.
func (m *Meter) Committed(sends, acks int, took time.Duration) {
	m.commits.Observe(took.Seconds())
	if sends > 0 {
		m.appends.Observe(float64(sends))
	}
	if acks > 0 {
		m.raises.Observe(float64(acks))
	}
}

// Consumed records the request units of DynamoDB that an operation used. Other backends never call
// it.
func (m *Meter) Consumed(operation string, reads, writes float64) {
	if reads > 0 {
		m.units.WithLabelValues(operation, "read").Add(reads)
	}
	if writes > 0 {
		m.units.WithLabelValues(operation, "write").Add(writes)
	}
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Meter) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(to)
	}
}

// done records a call that started at began and returned err.
func (m *Meter) done(ctx context.Context, op operation, began time.Time, err error) {
	took := time.Since(began)
	m.observe(ctx, op, took)
	if err == nil {
		return
	}
	code := tidemark.CodeOf(err)
	m.errors.WithLabelValues(op.String(), string(code)).Inc()
	level := slog.LevelWarn
	switch {
	case errors.Is(err, context.Canceled): // the caller no longer waits
		level = slog.LevelDebug
	case code == tidemark.Internal:
		level = slog.LevelError
	case code != tidemark.Unavailable: // an answer
		return
	}
	//rule:request_id_reaches_storage.log-request-id
	m.log.LogAttrs(ctx, level, "the storage failed",
		slog.String("operation", op.String()), slog.String("code", string(code)),
		slog.Duration("took", took), slog.String("request_id",
			tidemark.RequestIDOf(ctx)), slog.Any("error", err))
}

// operation is a method of storage.Store.
type operation int

const (
	opCreateChat operation = iota
	opChat
	opUpdateChat
	opChatsOf
	opHeads
	opAddMembers
	opRemoveMember
	opUpdateMember
	opRosters
	opAppend
	opSent
	opRanges
	opReactions
	opReactors
	opPins
	opAdvance
	opStates
	opStatesOf
	opStatesIn
	opSummary
	opUnread
	opUnreadOf
	opMarkUnread
	opSetReceipts
	opReceiptsOf
	opMark
	opClear
	opPendingOf
	opBehind
	opExpire
	opPolicies
	opFinishImport
	opDeleteChat
	opPurgeChat
	opChatsNaming
	opCloseDirect
	opEraseMessages
	opEraseMember
	opEraseUser
	opUsersNamed
	opPutBlock
	opRemoveBlock
	opBlocksOf
	opApart
	opBan
	opUnban
	opBansOf
	opShared
	opBacklogs
	opRewind
	opSettle
	opEachChat
	opMembersSince
	opDocuments
	opDocumentsOf
	opPutDocument
	opRecordAudit
	opFinishAudit
	opListAudit
	opRenameAudit
	opTrimAudit
	opCheck
	operations
)

// String returns the operation's label: the method's name in snake case.
func (op operation) String() string {
	return [operations]string{
		"create_chat", "chat", "update_chat", "chats_of", "heads", "add_members", "remove_member",
		"update_member", "rosters", "append", "sent", "ranges", "reactions", "reactors", "pins",
		"advance", "states", "states_of", "states_in", "summary", "unread", "unread_of",
		"mark_unread", "set_receipts", "receipts_of", "mark", "clear", "pending_of", "behind",
		"expire", "policies", "finish_import", "delete_chat", "purge_chat", "chats_naming",
		"close_direct", "erase_messages", "erase_member", "erase_user", "users_named", "put_block",
		"remove_block",
		"blocks_of", "apart", "ban", "unban", "bans_of", "shared", "backlogs", "rewind", "settle",
		"each_chat", "members_since", "documents", "documents_of", "put_document", "record_audit",
		"finish_audit", "list_audit", "rename_audit", "trim_audit", "check",
	}[op]
}

var _ storage.Store = (*Store)(nil)
