package transports

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tidemark-im/tidemark/tracing"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// CounterFunc returns counters by name, such as those of the core or of an adapter. A name that
// ends in _total only grows; any other is a gauge. Microseconds in a name are shown as seconds. A
// value of a label is written name{value}. A counter needs a row of metricTable and one in
// docs/observability.md; a test compares the three.
type CounterFunc func() map[string]int64

// metric is a row of metricTable. name has no prefix tidemark_. help says what the metric counts
// and why an operator looks at it. label is the name of its label, or "".
type metric struct{ name, help, label string }

// metricTable describes the counters of the core and the adapters.
var metricTable = []metric{
	{
		"sessions",
		"Sessions on this node, with and without a connection. Each has a lease in the " +
			"registry.", "",
	},
	{"sessions_connected", "Sessions that a connection reads. The others wait to be resumed.", ""},
	{"connections", "Open streams by transport. Of longpoll, the polls under way.", "transport"},
	{
		"cache_bytes",
		"Memory of the recent messages from which live sessions are served, in bytes.", "",
	},
	{"cache_roster_bytes", "Memory of the members of chats, in bytes.", ""},
	{"tickets", "Tickets that can be redeemed or are bound to a session.", ""},
	{"jwks_fetches_total", "Requests for the issuer's keys.", ""},
	{
		"jwks_failures_total",
		"Requests for the issuer's keys that failed. Known keys go on; without any, " +
			"tokens get 503.", "",
	},
	{
		"retry_queue",
		"What this node has still to do for stored messages: mark, notify, resolve. More " +
			"than 0 for long: storage fails.", "",
	},

	{"sends_total", "Messages confirmed to their senders, duplicates included.", ""},
	{"sends_duplicate_total", "Sends that had been stored before: clients that tried again.", ""},
	{"deliveries_total", "Events handed to connections.", ""},
	{
		"notifications_total",
		"Notifications to sessions of this node that a chat has a message.", "",
	},
	{
		"sessions_full_total",
		"Chats that a session had no room for, so that it reconciles. Rises when readers " +
			"are far too slow.", "",
	},

	{"acks_total", "Acknowledgements taken from streams, before they are combined.", ""},
	{
		"acks_refused_total",
		"Acknowledgements from streams that changed nothing, by reason. Clients with a " +
			"fault.", "reason",
	},
	{
		"acks_dropped_total",
		"Acknowledgements dropped because too many waited to be written. Clients send " +
			"them again.", "",
	},
	{"advances_total", "Raises of watermarks written, stale ones included.", ""},
	{"advances_moved_total", "Raises that moved a watermark.", ""},
	{"status_updates_total", "Status updates published, once for all members of a chat.", ""},
	{
		"status_updates_dropped_total",
		"Status updates dropped because too many were under way. Clients learn of them " +
			"when they ask.", "",
	},
	{
		"own_states_published_total",
		"Changes of what a user has read or marked as unread, published to their sessions.", "",
	},
	{"presence_chats", "Chats at which sessions of this node look.", ""},
	{"presence_batches_total", "Publications to other nodes about presence.", ""},
	{"presence_entries_total", "Users in them: those who came, left, or hid.", ""},
	{"presence_checks_total", "Users whose leases were looked up because of a look.", ""},
	{"presence_events_total", "Events about presence for sessions.", ""},
	{
		"presence_refused_total",
		"Looks without presence, because the node has too many members to watch.", "",
	},
	{"last_seen_written_total", "Times written at which users were last seen.", ""},
	{"last_seen_lost_total", "Such times that were not written.", ""},
	{"typing_total", "Typing notices taken from clients and published.", ""},
	{"hook_requests_total", "Requests that asked the hook about messages.", ""},
	{"hook_seconds_total", "Time of these requests together.", ""},
	{
		"hook_messages_total",
		"Messages about which the hook was asked, by its answer. Failed: it gave none that is " +
			"valid, so the policy decided.", "action",
	},
	{"hook_resting", "1 if the hook failed several times in a row and is not asked now.", ""},
	{
		"chats_deleted_total",
		"Deleted chats of which this process has removed all that was left.", "",
	},
	{
		"deletion_failures_total",
		"Attempts of this process to remove what is left of deleted chats that failed. They are " +
			"repeated.", "",
	},
	{"audit_entries_total", "Entries that this process has written to the audit log.", ""},
	{"audit_removed_total", "Old entries of the audit log that this process has removed.", ""},
	{
		"audit_failures_total",
		"Writes to the audit log that failed. A call whose entry cannot be written is refused.", "",
	},
	{"users_erased_total", "Users whom this process has erased.", ""},
	{
		"erasure_failures_total",
		"Attempts of this process to erase a user that failed. They are repeated.", "",
	},
	{
		"messages_expired_total",
		"Old messages that this process has removed (--keep-days).", "",
	},
	{
		"retention_failures_total",
		"Attempts of this process to remove old messages that failed. They are repeated.", "",
	},
	{
		"typing_dropped_total",
		"Typing notices dropped because a client did not take the earlier ones.", "",
	},

	{
		"marks_total",
		"Pending rows asked for, for members who are offline or did not acknowledge in time.", "",
	},
	{
		"pending_rows_written_total",
		"Pending rows created or lowered. The others stood already, and cost no write.", "",
	},
	{
		"pending_rows_known_total",
		"Pending rows that were known to stand, so storage was not asked for them.", "",
	},
	{"clears_total", "Pending rows looked for behind an acknowledgement.", ""},
	{"pending_rows_cleared_total", "Pending rows ended or trimmed.", ""},
	{
		"grace_expired_total",
		"Chats marked because a connected client did not acknowledge in time.", "",
	},

	{"opens_total", "Sessions opened.", ""},
	{"resumes_total", "Sessions resumed by a connection that knew its position.", ""},
	{
		"resets_total",
		"Resets sent to clients whose position is not known. After a restart each client " +
			"gets one.", "",
	},
	{
		"catch_ups",
		"Clients that open a session or read what they missed. Their number is bounded.", "",
	},
	{
		"catch_ups_waiting",
		"Clients that wait to catch up. Many for long: too many come back at once, or " +
			"storage is slow.", "",
	},
	{
		"catch_ups_refused_total",
		"Clients that waited too long to catch up and were told to come back later.", "",
	},
	{"rewinds_total", "Positions set back because what was sent may not have arrived.", ""},
	{"replaced_total", "Connections replaced by a newer one of their session.", ""},
	{
		"sessions_expired_total",
		"Sessions whose client did not come back within the resume window.", "",
	},
	{"pending_listings_total", "Pages of pending rows that sessions read to reconcile.", ""},
	{
		"latest_chats_known_total",
		"Snapshots whose chats the node remembered, so that it listed none.", "",
	},
	{
		"comparisons_total",
		"Pages of heads that sessions compared with watermarks to reconcile. Rises after " +
			"a restart.", "",
	},
	{"leases_lost_total", "Leases that the registry had lost and that were acquired again.", ""},
	{
		"transfers_total",
		"Moves of sessions between nodes, by step: asked for, taken, failed, and given " +
			"by this node.", "step",
	},
	{
		"publications_missed_total",
		"Times that publications to this node may have been lost, so that all sessions " +
			"reconciled.", "",
	},
	{"nodes", "Nodes that this one knows of, itself included.", ""},
	{"degraded", "1 while the node cannot reach the registry, or the bus does not reach it.", ""},
	{
		"epochs_total",
		"Times that a node died or the registry forgot, so that all sessions reconciled.", "",
	},

	{"attachments_announced_total", "Files whose upload was prepared.", ""},
	{"attachments_pinned_total", "Files that a message named for the first time.", ""},
	{"attachments_swept_total", "Files that were removed because no message named them.", ""},
	{
		"attachments_sweep_errors_total",
		"Searches for such files that failed, and are repeated. Growing: the store or the bucket " +
			"does not answer.", "",
	},
	{"outlets", "Outlets that get news from this node. Each node opens all of them.", ""},
	{
		"outlets_failing",
		"Outlets that refuse everything. What they miss waits for them, and is not lost.", "",
	},
	{"outlet_chats", "Chats whose news was delivered, and that are not yet settled.", ""},
	{
		"outlet_events_total",
		"Events by what became of them: accepted, or parked. And refused deliveries, and " +
			"deferred chats, whose news waits for one outlet alone.", "outcome",
	},
	{
		"outlet_hints_dropped_total",
		"News for which there was no room in the queue. The next look at the storage finds " +
			"them.", "",
	},
	{
		"outlet_hints_published_total",
		"Publications that told other nodes of news for outlets, several chats in each.", "",
	},
	{
		"outlet_hints_unpublished_total",
		"News of which other nodes were not told, because too many waited. They find them.", "",
	},
	{
		"fanout_messages_total",
		"With --fanout=kafka, messages that were stored in Kafka, and that were handed_over from " +
			"there; direct are those that this node handed over without Kafka, and dropped those " +
			"that cannot be handed over.", "way",
	},
	{
		"fanout_losses_total",
		"How often this node found that Kafka lacked messages for the fan-out which it had " +
			"confirmed. The sessions of all nodes looked for them.", "",
	},
	{
		"fanout_member",
		"Whether this node is a member of the group that hands messages over: 1 or 0. Without " +
			"membership it uses no Kafka.", "",
	},
	{
		"fanout_lag_seconds",
		"Age of the oldest message from Kafka that this node has in hand, and has not handed over.",
		"",
	},

	{
		"push_notifications_total",
		"Notifications by what became of them: sent, dead (the device is gone), refused, " +
			"replaced, expired, obsolete (read meanwhile). And attempts that are retried.",
		"outcome",
	},
	{
		"push_clears_total",
		"Banners of what was read on another device, by how it is told: sent, or next_banner.",
		"how",
	},
	{"push_waiting", "Notifications that wait for a provider, or are under way.", ""},

	{
		"trace_spans_total",
		"Spans by what became of them: sent to the collector, failed, because it did not take " +
			"them, or dropped without room in the queue.", "outcome",
	},
	{"trace_messages", "Traced messages whose recipients have not all acknowledged.", ""},
	{
		"trace_refused_total",
		"Messages that were not traced, because too many were in that second.", "",
	},
	{
		"trace_unfollowed_total",
		"Traced messages that were not followed to their recipients, because too many are " +
			"followed.", "",
	},

	{"cache_reads_total", "Pages of messages served from memory.", ""},
	{"range_reads_total", "Pages of messages read from storage: clients that are behind.", ""},
	{"range_messages_total", "Messages read from storage for streams.", ""},
	{
		"short_reads_total",
		"Pages that ended before a message that must exist: storage returned less than " +
			"it confirmed.", "",
	},

	{"retries_queued_total", "Entries ever made in the retry queue. See retry_queue.", ""},
	{
		"storage_failures_total",
		"Work of the core that a storage error delayed. Which calls failed is in " +
			"storage_errors.", "",
	},
	{"registry_errors_total", "Calls of the registry that failed.", ""},
	{
		"bus_errors_total",
		"Publications to nodes that failed. What they were for is retried or marked.", "",
	},
	{
		"transfer_seconds_total",
		"How long the sessions that were asked for took to arrive, in all.", "",
	},

	{
		"redis_round_trips_total",
		"Round trips to Redis, each for all calls that queued during the last one.", "",
	},
	{
		"redis_failures_total",
		"Round trips to Redis that failed as a whole. Meanwhile this node serves without " +
			"the others.", "",
	},
	{
		"bus_events_total",
		"Events for other nodes: messages and boundaries, one for all sessions of a node.", "",
	},
	{
		"bus_publications_total",
		"Publications that carried them, several events for one node in each.", "",
	},
	{"bus_published_bytes_total", "Size of these publications.", ""},
	{"bus_received_total", "Events that came from other nodes.", ""},
	{
		"bus_unreceived_total",
		"Publications that nobody received: their node has gone, and its users are marked.", "",
	},
	{
		"bus_missed_total",
		"Times that this node may have missed publications, so that all sessions reconciled.", "",
	},
	{
		"bus_unknown_total",
		"Events of a kind, or with fields, that only a newer node knows. Rises during an " +
			"upgrade.", "",
	},
	{"bus_malformed_total", "Publications that could not be read.", ""},
	{"bus_lag_seconds", "How long the last publication of this node to itself took.", ""},
	{
		"tickets_unavailable_total",
		"Tickets that could not be made, checked or prolonged, because Redis did not answer.", "",
	},
	{
		"rates_unpublished_total",
		"Times that other nodes were not told what users took. Each node limits alone " +
			"meanwhile.", "",
	},

	{
		"sse_errors_total",
		"Event streams that ended with a problem, by its code: refused after their head, or " +
			"ended later.", "code",
	},
	{
		"websocket_closes_total",
		"WebSocket connections that ended, by close code; 1006 is a connection that broke.", "code",
	},
	{
		"websocket_errors_total",
		"Frames refused, by code. Acknowledgements that are refused count, though they " +
			"get no answer.", "code",
	},
}

// counters exports the counters of the core and the adapters as Prometheus metrics.
type counters struct {
	read []CounterFunc
	// rows maps the names of counters to their metrics.
	rows map[string]row
}

type row struct {
	desc    *prometheus.Desc
	kind    prometheus.ValueType
	labeled bool
}

func newCounters(read []CounterFunc) counters {
	c := counters{read: read, rows: make(map[string]row)}
	for _, m := range metricTable {
		r := row{kind: prometheus.GaugeValue, labeled: m.label != ""}
		if strings.HasSuffix(m.name, "_total") {
			r.kind = prometheus.CounterValue
		}
		var labels []string
		if r.labeled {
			labels = []string{m.label}
		}
		r.desc = prometheus.NewDesc("tidemark_"+m.name, m.help, labels, nil)
		c.rows[m.name] = r
	}
	return c
}

// Describe implements prometheus.Collector.
func (c counters) Describe(to chan<- *prometheus.Desc) {
	for _, r := range c.rows {
		to <- r.desc
	}
}

// Collect implements prometheus.Collector. A counter without a row is an error of the scrape.
func (c counters) Collect(to chan<- prometheus.Metric) {
	for _, read := range c.read {
		for key, n := range read() {
			name, value, labeled := strings.Cut(strings.TrimSuffix(key, "}"), "{")
			shown := float64(n)
			if before, after, fine := strings.Cut(name, "_microseconds"); fine {
				name, shown = before+"_seconds"+after, shown/1e6
			}
			r, known := c.rows[name]
			switch {
			case !known || labeled != r.labeled:
				desc := prometheus.NewDesc("tidemark_"+name, "Not in the table.", nil, nil)
				to <- prometheus.NewInvalidMetric(desc, errNoRow(key))
			case labeled:
				to <- prometheus.MustNewConstMetric(r.desc, r.kind, shown, value)
			default:
				to <- prometheus.MustNewConstMetric(r.desc, r.kind, shown)
			}
		}
	}
}

type errNoRow string

// Error implements error.
func (e errNoRow) Error() string {
	return "the counter " + string(e) + " has no row in metricTable"
}

// traffic counts HTTP requests. Every label has a small set of values: a route is its template, and
// all paths without a route share one label.
type traffic struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	log      *slog.Logger
	// streams holds the routes with requests that last as long as the client wants.
	streams map[string]bool
	// tracer is nil if nothing is traced.
	tracer *tracing.Tracer
}

func newTraffic(log *slog.Logger, tracer *tracing.Tracer) *traffic {
	return &traffic{
		log: log, tracer: tracer,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_http_requests_total",
			Help: "HTTP requests by route, method and status. Streams count when they have " +
				"begun; a WebSocket is 101 even if it is closed with a code at once.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidemark_http_seconds",
			Help: "How long HTTP requests took, from their head to the end of the handler, " +
				"by route and method. Streams are left out.",
			Buckets: []float64{
				.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
			},
		}, []string{"route", "method"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_http_errors_total",
			Help: "HTTP requests answered with a problem, by its code. RATE_LIMITED is a caller " +
				"who is told to slow down.",
		}, []string{"code"}),
		streams: map[string]bool{
			BasePath + "/events": true, BasePath + "/poll": true, BasePath + "/ws": true,
			BasePath + "/admin/stats": true,
		},
	}
}

// noRoute is the label of requests that no route serves.
const noRoute = "none"

// watch is the middleware that counts requests. It logs a request at level debug, unless the error
// handler logs its failure. It calls the error handler itself, so that it knows the status.
func (t *traffic) watch(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began, request := time.Now(), c.Request()
		err := next(c)
		// The error handler asks the caller's context whether they have gone. That of a handler may
		// be detached from it, and has ended.
		c.SetRequest(request)
		span, _ := c.Get(traceKey).(requestTrace)
		if err != nil {
			c.Error(err)
			t.errors.WithLabelValues(string(problem.CodeOf(err))).Inc()
		}
		took := time.Since(began)
		route, method, status := routeOf(c, err), methodOf(c.Request()), c.Response().Status
		if err == nil && !c.Response().Committed && route == BasePath+"/ws" {
			//rule:metrics_documented.count-upgrades
			status = http.StatusSwitchingProtocols
		}
		t.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
		if !t.streams[route] {
			span.observe(t.seconds.WithLabelValues(route, method), took)
		}
		t.end(span, began, route, method, status)
		ctx := c.Request().Context()
		if status < http.StatusInternalServerError && t.log.Enabled(ctx, slog.LevelDebug) {
			//rule:logs_hold_no_secret.debug-without-headers
			t.log.LogAttrs(ctx, slog.LevelDebug, "a request", slog.String("method", method),
				slog.String("route", route), slog.Int("status", status),
				slog.Duration("took", took), slog.String("request_id", problem.RequestID(c)))
		}
		return nil
	}
}

// routeOf returns the route's template, or noRoute.
func routeOf(c echo.Context, err error) string {
	if path := c.Path(); path != "" && !errors.Is(err, echo.ErrNotFound) {
		return path
	}
	//rule:metrics_bounded.one-label-for-unknown-routes
	return noRoute
}

// methodOf returns the method, or "other" if the caller made it up.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions:
		return r.Method
	default:
		//rule:metrics_bounded.one-label-for-other-methods
		return "other"
	}
}

// newRegistry returns the registry of all metrics.
func (h *Handler) newRegistry(cfg Config) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidemark_build_info", Help: "Always 1. The label says which version runs.",
		ConstLabels: prometheus.Labels{"version": cfg.Version},
	})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build,
		newCounters(append([]CounterFunc{
			cfg.Server.Counters, cfg.Auth.Counters, cfg.Tracer.Counters,
		}, cfg.Counters...)),
		h.traffic.requests, h.traffic.seconds, h.traffic.errors,
	)
	registry.MustRegister(cfg.Collectors...)
	return registry
}

// scrapeLog logs scrapes that fail.
type scrapeLog struct{ *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) {
	l.Warn("the metrics could not be gathered", "error", fmt.Sprint(v...))
}

// netLog logs what net/http reports. The text becomes an attribute, so that the message is always
// the same. Errors of clients are at level debug. A failure to accept connections, for lack of
// files, is an error.
type netLog struct{ *slog.Logger }

// Write implements io.Writer.
func (l netLog) Write(p []byte) (int, error) {
	sentence := strings.TrimSpace(string(p))
	if strings.HasPrefix(sentence, "http: Accept error") {
		l.Error("a connection could not be accepted", "error", sentence)
	} else {
		l.Debug("net/http reports an error", "error", sentence)
	}
	return len(p), nil
}
