package wire

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// The size of pages (docs/limits.md, "Sizes").
const (
	// DefaultLimit is the size of a page for a caller who names none.
	DefaultLimit = 50
	// MaxLimit is the greatest size; larger ones are clamped to it.
	MaxLimit = 1_000
)

// maxEventID is the greatest id of an event that a client can name, so that JavaScript can hold it exactly.
const maxEventID = 1<<53 - 1

// ParseLimit returns the size of a page: DefaultLimit for "", at most MaxLimit. Less than 1, or no integer, is Invalid.
func ParseLimit(s string) (int, error) {
	if s == "" {
		return DefaultLimit, nil
	}
	//rule:bounded_input.limit-is-positive
	if !value(s).integer() || s[0] == '-' || strings.Trim(s, "0") == "" {
		return 0, tidemark.Errorf(tidemark.Invalid, "limit must be an integer of at least 1")
	}
	n, err := strconv.Atoi(s)
	//rule:bounded_input.limit-page-size
	if err != nil || n > MaxLimit {
		return MaxLimit, nil
	}
	return n, nil
}

// ParseSequence reads a sequence from a query, of at least least (0 or 1). What is no integer is Invalid; what is an integer
// but can be no sequence has the code given: Invalid for positions, InvalidSequence for `for_sequence`.
func ParseSequence(
	s, field string, least tidemark.Sequence, code tidemark.Code,
) (tidemark.Sequence, error) {
	if s == "" || s == "-" || !value(s).integer() {
		return 0, tidemark.Errorf(tidemark.Invalid, "%s must be an integer", field)
	}
	var n tidemark.Sequence
	if err := sequence(s, field, least, &n); err != nil {
		return 0, &tidemark.Error{Code: code, Detail: tidemark.DetailOf(err)}
	}
	return n, nil
}

// Stream is the query parameters that all streams share.
type Stream struct {
	Device tidemark.DeviceID
	// Session is the session to resume, "" for a new one. It may be of any form: the core does not
	// know it then. After is the number of the last event that the client has.
	Session tidemark.SessionID
	After   uint64
	// Statuses asks for a snapshot of statuses after caught_up.
	Statuses bool
}

// ParseStream reads the query parameters of a stream: device_id, session, after and statuses. On SSE
// the caller adds the position of Last-Event-ID.
func ParseStream(q url.Values) (Stream, error) {
	r := Stream{
		Device:   tidemark.DeviceID(q.Get("device_id")),
		Session:  tidemark.SessionID(q.Get("session")),
		Statuses: true,
	}
	if r.Device != "" {
		if err := tidemark.CheckID("device_id", r.Device); err != nil {
			return r, err
		}
	}
	if after := q.Get("after"); after != "" {
		n, err := strconv.ParseUint(after, 10, 64)
		if err != nil || n > maxEventID {
			return r, tidemark.Errorf(tidemark.Invalid,
				"after must be the id of an event, an integer from 0 to %d", uint64(maxEventID))
		}
		r.After = n
	}
	switch q.Get("statuses") {
	case "", "1", "true":
	case "0", "false":
		r.Statuses = false
	default:
		return r, tidemark.Errorf(tidemark.Invalid, "statuses must be 0 or 1")
	}
	return r, nil
}

// ParsePosition splits an SSE position `<session>.<id>` at the last dot. ok is false if it is none; such a position is
// unknown, not an error.
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
