package stats

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark/server"
)

// figures are what a node knows of itself. Nodes of several versions exchange them as JSON: a field
// that a node does not know is left out or ignored.
type figures struct {
	Version   string        `json:"version"`
	StartedAt string        `json:"started_at"`
	Uptime    int64         `json:"uptime_seconds"`
	Totals    totals        `json:"totals"`
	Slowest   []slowSession `json:"slowest_sessions"`
}

// totals are the figures that can be summed over nodes. Each has the name of its metric. Those that
// end in _total only grow while the node lives.
type totals struct {
	Connections    connections `json:"connections"`
	Sessions       int64       `json:"sessions"`
	Connected      int64       `json:"sessions_connected"`
	Sends          int64       `json:"sends_total"`
	Duplicates     int64       `json:"sends_duplicate_total"`
	Deliveries     int64       `json:"deliveries_total"`
	Acks           int64       `json:"acks_total"`
	Moved          int64       `json:"advances_moved_total"`
	MarksWritten   int64       `json:"pending_rows_written_total"`
	ClearsTouched  int64       `json:"pending_rows_cleared_total"`
	RetryQueue     int64       `json:"retry_queue"`
	CatchUps       int64       `json:"catch_ups"`
	CatchUpsQueued int64       `json:"catch_ups_waiting"`
	Commits        histogram   `json:"commits"`
}

// connections are open streams by transport.
type connections struct {
	WebSocket int64 `json:"websocket"`
	SSE       int64 `json:"sse"`
	LongPoll  int64 `json:"longpoll"`
}

// totalsOf returns the totals from the counters of a node.
func totalsOf(counters map[string]int64, commits Histogram) totals {
	return totals{
		Connections: connections{
			WebSocket: counters["connections{websocket}"],
			SSE:       counters["connections{sse}"],
			LongPoll:  counters["connections{longpoll}"],
		},
		Sessions:       counters["sessions"],
		Connected:      counters["sessions_connected"],
		Sends:          counters["sends_total"],
		Duplicates:     counters["sends_duplicate_total"],
		Deliveries:     counters["deliveries_total"],
		Acks:           counters["acks_total"],
		Moved:          counters["advances_moved_total"],
		MarksWritten:   counters["pending_rows_written_total"],
		ClearsTouched:  counters["pending_rows_cleared_total"],
		RetryQueue:     counters["retry_queue"],
		CatchUps:       counters["catch_ups"],
		CatchUpsQueued: counters["catch_ups_waiting"],
		Commits:        newHistogram(commits),
	}
}

// plus returns the sum of two nodes.
func (t totals) plus(u totals) totals {
	return totals{
		Connections: connections{
			WebSocket: t.Connections.WebSocket + u.Connections.WebSocket,
			SSE:       t.Connections.SSE + u.Connections.SSE,
			LongPoll:  t.Connections.LongPoll + u.Connections.LongPoll,
		},
		Sessions:       t.Sessions + u.Sessions,
		Connected:      t.Connected + u.Connected,
		Sends:          t.Sends + u.Sends,
		Duplicates:     t.Duplicates + u.Duplicates,
		Deliveries:     t.Deliveries + u.Deliveries,
		Acks:           t.Acks + u.Acks,
		Moved:          t.Moved + u.Moved,
		MarksWritten:   t.MarksWritten + u.MarksWritten,
		ClearsTouched:  t.ClearsTouched + u.ClearsTouched,
		RetryQueue:     t.RetryQueue + u.RetryQueue,
		CatchUps:       t.CatchUps + u.CatchUps,
		CatchUpsQueued: t.CatchUpsQueued + u.CatchUpsQueued,
		//rule:stats_of_all_nodes.sum-buckets-before-percentiles
		Commits: t.Commits.plus(u.Commits, 1),
	}
}

// slowSession is a session whose client has left messages unacknowledged.
type slowSession struct {
	NodeID    string  `json:"node_id"`
	SessionID string  `json:"session_id"`
	UserID    string  `json:"user_id"`
	DeviceID  *string `json:"device_id"`
	Connected bool    `json:"connected"`
	Seconds   int64   `json:"unacknowledged_seconds"`
	Messages  int64   `json:"unacknowledged_messages"`
	Chats     int     `json:"unacknowledged_chats"`
	Unsent    int     `json:"unsent_chats"`
}

func newSlowSession(s server.SlowSession, now time.Time) slowSession {
	slow := slowSession{
		SessionID: string(s.Session), UserID: string(s.User), Connected: s.Connected,
		Seconds: max(0, int64(now.Sub(s.Since).Seconds())), Messages: s.Messages,
		Chats: s.Chats, Unsent: s.Unsent,
	}
	if device := string(s.Device); device != "" {
		slow.DeviceID = &device
	}
	return slow
}

// slowestOf returns the slowest sessions of all nodes.
func slowestOf(all []slowSession) []slowSession {
	slices.SortFunc(all, func(a, b slowSession) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(b.Messages, a.Messages),
			cmp.Compare(a.SessionID, b.SessionID))
	})
	return all[:min(len(all), MaxSlowest)]
}

// node is what the answer says of a node.
type node struct {
	NodeID string `json:"node_id"`
	// Status is "ok", or "unavailable" if there are no figures. Detail then says why.
	Status    string  `json:"status"`
	Detail    *string `json:"detail"`
	Version   *string `json:"version"`
	StartedAt *string `json:"started_at"`
	Uptime    *int64  `json:"uptime_seconds"`
	Totals    *totals `json:"totals"`

	// life names the life of the node. A restarted node counts from 0 again.
	life string
}

// answer is the body of GET /admin/stats, and the data of an event.
type answer struct {
	MeasuredAt string        `json:"measured_at"`
	Nodes      []node        `json:"nodes"`
	Totals     totals        `json:"totals"`
	Second     *rates        `json:"rates_1s"`
	TenSeconds *rates        `json:"rates_10s"`
	Slowest    []slowSession `json:"slowest_sessions"`
}

// sum returns the answer from what the nodes said.
func sum(said []server.NodeFigures, now time.Time) answer {
	a := answer{MeasuredAt: timeText(now), Nodes: make([]node, len(said)), Slowest: []slowSession{}}
	for i, of := range said {
		n := node{NodeID: string(of.ID), Status: "ok", life: string(of.ID) + "/" + of.Boot}
		var f figures
		err := of.Err
		if err == nil {
			err = json.Unmarshal(of.Figures, &f)
		}
		if err != nil {
			//rule:stats_of_all_nodes.report-silent-nodes
			n.Status, n.Detail = "unavailable", reason(err)
			a.Nodes[i] = n
			continue
		}
		n.Version, n.StartedAt, n.Uptime, n.Totals = &f.Version, &f.StartedAt, &f.Uptime, &f.Totals
		a.Nodes[i] = n
		//rule:stats_of_all_nodes.sum-over-nodes
		a.Totals = a.Totals.plus(f.Totals)
		for _, slow := range f.Slowest {
			slow.NodeID = string(of.ID)
			a.Slowest = append(a.Slowest, slow)
		}
	}
	a.Totals.Commits.measure()
	a.Slowest = slowestOf(a.Slowest)
	return a
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
