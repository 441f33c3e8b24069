// Package metered puts a meter in front of a store: how long each operation takes, which errors there are, and how much shares a commit. It
// logs what fails, with the id of the request that it failed for. It decides nothing: what goes in and what comes out is the store's.
//
// A call costs two looks at the clock and a few atomic adds.
package metered

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Meter is what is known of a store's work. It implements prometheus.Collector. Use New; it is safe for concurrent use.
type Meter struct {
	log     *slog.Logger
	seconds [operations]prometheus.Histogram
	errors  *prometheus.CounterVec
	commits prometheus.Histogram
	appends prometheus.Histogram
	raises  prometheus.Histogram
	units   *prometheus.CounterVec
	all     []prometheus.Collector
}

// New returns a Meter whose failures go to log.
func New(log *slog.Logger) *Meter {
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_storage_seconds",
		Help: "How long calls of the storage took, by operation. What a send waits for is append.",
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
			Help: "Calls of the storage that failed, by operation and code. UNAVAILABLE and INTERNAL are faults, the others answers.",
		}, []string{"operation", "code"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_commit_seconds",
			Help: "How long the commits of a database took that stored messages or raised watermarks, from their first statement until they were on disk. Mostly the disk's fsync, with Postgres the round trip too.",
			Buckets: []float64{
				.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
			},
		}),
		appends: batch("tidemark_commit_sends", "Messages in one of these commits, of those that had any. More than 1 is what sharing them saves."),
		raises:  batch("tidemark_commit_acks", "Raises of watermarks in one of these commits, of those that had any."),
	}
	m.units = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_dynamodb_request_units_total",
		Help: "Request units that DynamoDB bills, by the operation of the storage that spent them: kind is read or write. Of that database only.",
	}, []string{"operation", "kind"})
	for op := range operations {
		m.seconds[op] = latency.WithLabelValues(op.String()).(prometheus.Histogram)
	}
	m.all = []prometheus.Collector{latency, m.errors, m.commits, m.appends, m.raises, m.units}
	return m
}

// Committed takes in a commit: how many messages and raises of watermarks were in it, and how long it took. Backends whose commits are not shared by
// several calls never call it.
func (m *Meter) Committed(sends, acks int, took time.Duration) {
	m.commits.Observe(took.Seconds())
	if sends > 0 {
		m.appends.Observe(float64(sends))
	}
	if acks > 0 {
		m.raises.Observe(float64(acks))
	}
}

// Consumed takes in request units of DynamoDB that an operation spent. Other backends never call it.
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

// done takes in a call that began at a time and has ended with err.
func (m *Meter) done(ctx context.Context, op operation, began time.Time, err error) {
	took := time.Since(began)
	m.seconds[op].Observe(took.Seconds())
	if err == nil {
		return
	}
	code := tidemark.CodeOf(err)
	m.errors.WithLabelValues(op.String(), string(code)).Inc()
	level := slog.LevelWarn
	switch {
	case errors.Is(err, context.Canceled): // nobody waits for it any more
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
	opRenameChat
	opChatsOf
	opHeads
	opAddMembers
	opRemoveMember
	opRosters
	opAppend
	opRanges
	opAdvance
	opStates
	opStatesOf
	opStatesIn
	opSummary
	opMark
	opClear
	opPendingOf
	opBehind
	opCheck
	operations
)

// String is the operation as a label: the method's name in snake case.
func (op operation) String() string {
	return [operations]string{
		"create_chat", "chat", "rename_chat", "chats_of", "heads", "add_members", "remove_member",
		"rosters", "append", "ranges",
		"advance", "states", "states_of", "states_in", "summary", "mark", "clear", "pending_of",
		"behind", "check",
	}[op]
}

var _ storage.Store = (*Store)(nil)
