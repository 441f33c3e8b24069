package wire

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// The sizes of pages, in elements (docs/limits.md, "Sizes").
const (
	// DefaultLimit is the size of a page if the caller names none.
	DefaultLimit = 50
	// MaxLimit is the greatest size of a page. Larger requests get it.
	MaxLimit = 1_000
)

// maxEventID is the greatest event id that a client can name: the greatest integer that JavaScript
// holds exactly.
const maxEventID = 1<<53 - 1

// ParseLimit returns the size of a page: DefaultLimit for "", and at most MaxLimit. It returns
// Invalid for less than 1 and for anything but an integer.
func ParseLimit(s string) (int, error) {
	if s == "" {
		return DefaultLimit, nil
	}
	//rule:bounded_input.limit-is-positive
	if !value(s).integer() || s[0] == '-' || strings.Trim(s, "0") == "" {
		return 0, tidemark.BadParam(tidemark.Invalid, "limit", "must be an integer of at least 1")
	}
	n, err := strconv.Atoi(s)
	//rule:bounded_input.limit-page-size
	if err != nil || n > MaxLimit {
		return MaxLimit, nil
	}
	return n, nil
}

// ParsePage returns the size of the page for which a query asks. Invalid: as ParseLimit, and an
// empty limit.
func ParsePage(q url.Values) (int, error) {
	if q.Has("limit") && q.Get("limit") == "" {
		return 0, tidemark.BadParam(tidemark.Invalid,
			"limit", "is empty; it must be an integer of at least 1")
	}
	return ParseLimit(q.Get("limit"))
}

// ParseSequence returns the sequence of a query parameter, which must be at least least (0 or 1).
// It returns Invalid if s is not an integer. If the integer is out of range, it returns code:
// Invalid for positions, InvalidSequence for `for_sequence`.
func ParseSequence(
	s, field string, least tidemark.Sequence, code tidemark.Code,
) (tidemark.Sequence, error) {
	if s == "" || s == "-" || !value(s).integer() {
		return 0, tidemark.BadParam(tidemark.Invalid, field, "must be an integer")
	}
	var n tidemark.Sequence
	if err := sequence(s, field, least, &n); err != nil {
		return 0, &tidemark.Error{Code: code, Detail: tidemark.DetailOf(err)}
	}
	return n, nil
}

// Stream holds the query parameters that all streams share.
type Stream struct {
	Device tidemark.DeviceID
	// Session is the session to resume, or "" for a new one. Its form is not checked: the core
	// finds no session of a wrong form. After is the id of the last event that the client has.
	Session tidemark.SessionID
	After   uint64
	// Statuses asks for status_update events, and for the current statuses after caught_up.
	Statuses bool
}

// ParseStream returns the query parameters of a stream: device_id, session_id, after_event_id
// and status_updates. For SSE, the caller adds the position of Last-Event-ID.
func ParseStream(q url.Values) (Stream, error) {
	r := Stream{
		Device:   tidemark.DeviceID(q.Get("device_id")),
		Session:  tidemark.SessionID(q.Get("session_id")),
		Statuses: true,
	}
	if r.Device != "" {
		if err := tidemark.CheckID("device_id", r.Device); err != nil {
			return r, err
		}
	}
	if after := q.Get("after_event_id"); after != "" {
		n, err := strconv.ParseUint(after, 10, 64)
		if err != nil || n > maxEventID {
			return r, tidemark.BadParam(tidemark.Invalid,
				"after_event_id", "must be the id of an event, an integer from 0 to %d",
				uint64(maxEventID))
		}
		r.After = n
	}
	if flag := q.Get("status_updates"); flag != "" {
		var err error
		if r.Statuses, err = ParseFlag(flag, "status_updates"); err != nil {
			return r, err
		}
	}
	return r, nil
}

// ParseFlag returns a flag of the query. Error: Invalid.
func ParseFlag(s, field string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, tidemark.BadParam(tidemark.Invalid, field, "must be true or false")
}

// ParseOwn returns whether a WebSocket client wants the confirmations of the messages that it sends
// in place of their events (`own`).
func ParseOwn(q url.Values) (confirm bool, err error) {
	switch q.Get("own") {
	case "", "event":
		return false, nil
	case "confirm":
		return true, nil
	}
	return false, tidemark.BadParam(tidemark.Invalid, "own", "must be event or confirm")
}

// ParsePosition splits an SSE position `<session>.<id>` at the last dot. ok is false if s is not a
// position. The caller treats that as an unknown position and not as an error.
func ParsePosition(s string) (session tidemark.SessionID, id uint64, ok bool) {
	//rule:resume_lossless.position-at-last-dot
	dot := strings.LastIndexByte(s, '.')
	if dot <= 0 {
		return "", 0, false
	}
	id, err := strconv.ParseUint(s[dot+1:], 10, 64)
	if err != nil || s[dot+1] == '+' {
		return "", 0, false
	}
	return tidemark.SessionID(s[:dot]), id, true
}

// AppendPosition appends the SSE position of an event of a session.
func AppendPosition(b []byte, session tidemark.SessionID, id uint64) []byte {
	b = append(b, session...)
	b = append(b, '.')
	return strconv.AppendUint(b, id, 10)
}
