// Package problem writes every HTTP answer of status 400 and above as application/problem+json (RFC
// 9457). An answer holds the error's code, a detail that says what to do, and the request's id. The
// package has the only table from codes to HTTP statuses.
package problem

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
)

// The codes that exist only in HTTP.
const (
	// MethodNotAllowed means that the path exists, but not for this method. The Allow header
	// names the methods that it takes.
	MethodNotAllowed tidemark.Code = "METHOD_NOT_ALLOWED"
	// RangeNotSatisfiable means that the file has no byte of the Range.
	RangeNotSatisfiable tidemark.Code = "RANGE_NOT_SATISFIABLE"
	// PreconditionFailed means that If-Match names other bytes than the file has.
	PreconditionFailed tidemark.Code = "PRECONDITION_FAILED"
	// UnsupportedMediaType means that the Content-Type of the body is not accepted.
	UnsupportedMediaType tidemark.Code = "UNSUPPORTED_MEDIA_TYPE"
)

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// Status returns the HTTP status of a code (docs/api.md, "Errors"). Unknown codes are 500.
func Status(code tidemark.Code) int {
	switch code {
	case tidemark.Invalid:
		return http.StatusBadRequest
	case tidemark.Unauthenticated:
		return http.StatusUnauthorized
	case tidemark.NotMember, tidemark.Denied:
		return http.StatusForbidden
	case tidemark.NotFound:
		return http.StatusNotFound
	case MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case tidemark.Conflict, tidemark.Expired, tidemark.Replaced:
		return http.StatusConflict
	case tidemark.Gone:
		return http.StatusGone
	case PreconditionFailed:
		return http.StatusPreconditionFailed
	case tidemark.TooLarge:
		return http.StatusRequestEntityTooLarge
	case UnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case RangeNotSatisfiable:
		return http.StatusRequestedRangeNotSatisfiable
	case tidemark.InvalidSequence:
		//rule:bounded_input.invalid-is-422
		return http.StatusUnprocessableEntity
	case tidemark.Exhausted:
		//rule:bounded_use.rate-is-429
		return http.StatusTooManyRequests
	case tidemark.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// Write answers with the problem of err. The caller must not have begun the answer. A HEAD request
// gets the headers only.
func Write(w http.ResponseWriter, r *http.Request, requestID string, err error) {
	code := tidemark.CodeOf(err)
	status := Status(code)
	if status == http.StatusInternalServerError {
		code = tidemark.Internal
	}
	b := []byte(`{"type":"about:blank","title":`)
	b = tidemark.AppendString(b, http.StatusText(status))
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"code":`...)
	b = tidemark.AppendString(b, string(code))
	b = append(b, `,"detail":`...)
	//rule:nothing_leaks.detail-without-cause
	b = tidemark.AppendString(b, tidemark.DetailOf(err))
	b = append(b, `,"param":`...)
	if param := tidemark.ParamOf(err); param == "" {
		b = append(b, "null"...)
	} else {
		b = tidemark.AppendString(b, param)
	}
	b = append(b, `,"request_id":`...)
	b = tidemark.AppendString(b, requestID)
	var more *extended
	if errors.As(err, &more) {
		b = tidemark.AppendString(append(b, ','), more.member)
		b = append(append(b, ':'), more.value...)
	}
	b = append(b, '}')

	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="tidemark"`)
	//rule:bounded_input.send-retry-after
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(retrySeconds(err)))
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b) // if this fails, the client is gone
	}
}

// extended is an error whose problem has one more member.
type extended struct {
	error
	member string
	value  []byte
}

func (e *extended) Unwrap() error { return e.error }

// With returns err with one more member of its problem (RFC 9457 §3.2). The value must be JSON.
func With(err error, member string, value []byte) error {
	return &extended{error: err, member: member, value: value}
}

// delayed is an error that says when to retry.
type delayed struct {
	error
	wait time.Duration
}

func (d *delayed) Unwrap() error { return d.error }

// RetryAfter returns err with the time after which to retry. Write rounds it up to whole seconds.
func RetryAfter(err error, wait time.Duration) error { return &delayed{error: err, wait: wait} }

// Delay returns the time given to RetryAfter, or 0 if there is none.
func Delay(err error) time.Duration {
	var d *delayed
	if !errors.As(err, &d) {
		return 0
	}
	return d.wait
}

func retrySeconds(err error) int { return max(1, Seconds(Delay(err))) }

// Seconds rounds a delay up to the whole seconds of a Retry-After header.
//
//rule:bounded_use.round-retry-after-up
func Seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// RequestID returns the id of the request that c handles. The middleware of package transports has
// put it into the answer's header.
func RequestID(c echo.Context) string {
	return c.Response().Header().Get(echo.HeaderXRequestID)
}

// Handler returns the error handler of the echo instance. It turns every error of a handler, a
// middleware or the router into a problem. It logs answers of 500 and above with their cause. It
// does not touch an answer that has begun.
func Handler(logger *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		err = translate(err)
		status := Status(tidemark.CodeOf(err))
		if status >= http.StatusInternalServerError {
			level := slog.LevelError
			switch {
			case c.Request().Context().Err() != nil: // the client has gone
				level = slog.LevelDebug
			case status == http.StatusServiceUnavailable:
				level = slog.LevelWarn
			}
			//rule:logs_hold_no_secret.failure-without-query
			logger.Log(c.Request().Context(), level, "a request failed",
				"method", c.Request().Method, "route", c.Path(),
				"status", status, "request_id", RequestID(c), "error", err)
		}
		if !c.Response().Committed {
			Write(c.Response(), c.Request(), RequestID(c), err)
		}
	}
}

// CodeOf returns the code that Handler answers with.
func CodeOf(err error) tidemark.Code {
	code := tidemark.CodeOf(translate(err))
	if Status(code) == http.StatusInternalServerError {
		return tidemark.Internal
	}
	return code
}

// translate turns errors of echo, its router and its binder into errors of package tidemark.
func translate(err error) error {
	var known *tidemark.Error
	var he *echo.HTTPError
	if errors.As(err, &known) || !errors.As(err, &he) {
		return err
	}
	switch he.Code {
	case http.StatusNotFound:
		return tidemark.Errorf(tidemark.NotFound,
			"there is nothing at this path; the API is under /api/v1 and described at "+
				"/openapi.yaml")
	case http.StatusMethodNotAllowed:
		return tidemark.Errorf(MethodNotAllowed,
			"the path does not take this method; the Allow header names those that it takes")
	case http.StatusRequestEntityTooLarge:
		return tidemark.Errorf(tidemark.TooLarge, "the body is too large")
	case http.StatusUnsupportedMediaType:
		return tidemark.Errorf(UnsupportedMediaType, "the body must be application/json")
	case http.StatusUnauthorized:
		return tidemark.Errorf(tidemark.Unauthenticated, "credentials are missing or not valid")
	case http.StatusTooManyRequests:
		return tidemark.Errorf(tidemark.Exhausted, "too many requests; try again later")
	case http.StatusServiceUnavailable:
		return tidemark.Errorf(tidemark.Unavailable,
			"the server cannot do this now; try again later")
	}
	if detail, ok := he.Message.(string); ok && he.Code < http.StatusInternalServerError {
		return tidemark.Errorf(tidemark.Invalid, "%s", detail)
	}
	return err
}
