// Package problem is the one form of every HTTP answer of 400 and above: application/problem+json (RFC 9457) with the
// code of the error, a detail that a person can act on, and the request's id. It holds the only table from code to HTTP status.
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

// The codes that only HTTP knows.
const (
	// MethodNotAllowed: the path exists, and not for this method; Allow names those that do.
	MethodNotAllowed tidemark.Code = "METHOD_NOT_ALLOWED"
	// UnsupportedMediaType: the body is not what its Content-Type should say.
	UnsupportedMediaType tidemark.Code = "UNSUPPORTED_MEDIA_TYPE"
)

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// Status returns the HTTP status of a code (docs/api.md, "Errors").
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
	case tidemark.Conflict, tidemark.Replaced:
		return http.StatusConflict
	case tidemark.Gone:
		return http.StatusGone
	case tidemark.TooLarge:
		return http.StatusRequestEntityTooLarge
	case UnsupportedMediaType:
		return http.StatusUnsupportedMediaType
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

// Write answers with the problem of err. The answer must not have begun. A HEAD gets the headers only.
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
		_, _ = w.Write(b) // nobody is left to be told
	}
}

// extended is an error whose problem has a member more.
type extended struct {
	error
	member string
	value  []byte
}

func (e *extended) Unwrap() error { return e.error }

// With returns err with a further member of its problem (RFC 9457 §3.2), whose value is JSON.
func With(err error, member string, value []byte) error {
	return &extended{error: err, member: member, value: value}
}

// delayed is an error that says when to try again.
type delayed struct {
	error
	wait time.Duration
}

func (d *delayed) Unwrap() error { return d.error }

// RetryAfter returns err with the time after which another attempt makes sense; Write rounds it up to seconds.
func RetryAfter(err error, wait time.Duration) error { return &delayed{error: err, wait: wait} }

// Delay returns what RetryAfter said, 0 if it said nothing.
func Delay(err error) time.Duration {
	var d *delayed
	if !errors.As(err, &d) {
		return 0
	}
	return d.wait
}

func retrySeconds(err error) int { return max(1, Seconds(Delay(err))) }

// Seconds rounds a delay up to the whole seconds of a Retry-After.
//
//rule:bounded_use.round-retry-after-up
func Seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// RequestID returns the id of the request that c handles; the server has put it into the answer's header before.
func RequestID(c echo.Context) string {
	return c.Response().Header().Get(echo.HeaderXRequestID)
}

// Handler returns the error handler of the echo instance: whatever a handler, a middleware or the router returns
// becomes a problem. Answers of 500 and above are logged with their cause. An answer that has begun is left as it is.
func Handler(logger *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		err = translate(err)
		status := Status(tidemark.CodeOf(err))
		if status >= http.StatusInternalServerError {
			level := slog.LevelError
			switch {
			case c.Request().Context().Err() != nil: // the client has gone: nothing is wrong here
				level = slog.LevelDebug
			case status == http.StatusServiceUnavailable:
				level = slog.LevelWarn
			}
			//rule:logs_hold_no_secret.failure-without-query
			logger.Log(c.Request().Context(), level, "a request failed", "method", c.Request().Method, "route", c.Path(),
				"status", status, "request_id", RequestID(c), "error", err)
		}
		if !c.Response().Committed {
			Write(c.Response(), c.Request(), RequestID(c), err)
		}
	}
}

// CodeOf returns the code that the error handler answers with.
func CodeOf(err error) tidemark.Code {
	code := tidemark.CodeOf(translate(err))
	if Status(code) == http.StatusInternalServerError {
		return tidemark.Internal
	}
	return code
}

// translate turns the errors of echo, its router and its binder into those of Tidemark.
func translate(err error) error {
	var known *tidemark.Error
	var he *echo.HTTPError
	if errors.As(err, &known) || !errors.As(err, &he) {
		return err
	}
	switch he.Code {
	case http.StatusNotFound:
		return tidemark.Errorf(tidemark.NotFound, "there is nothing at this path; the API is under /api/v1 and described at /openapi.yaml")
	case http.StatusMethodNotAllowed:
		return tidemark.Errorf(MethodNotAllowed, "the path does not take this method; the Allow header names those that it takes")
	case http.StatusRequestEntityTooLarge:
		return tidemark.Errorf(tidemark.TooLarge, "the body is too large")
	case http.StatusUnsupportedMediaType:
		return tidemark.Errorf(UnsupportedMediaType, "the body must be application/json")
	case http.StatusUnauthorized:
		return tidemark.Errorf(tidemark.Unauthenticated, "credentials are missing or not valid")
	case http.StatusTooManyRequests:
		return tidemark.Errorf(tidemark.Exhausted, "too many requests; try again later")
	case http.StatusServiceUnavailable:
		return tidemark.Errorf(tidemark.Unavailable, "the server cannot do this now; try again later")
	}
	if detail, ok := he.Message.(string); ok && he.Code < http.StatusInternalServerError {
		return tidemark.Errorf(tidemark.Invalid, "%s", detail)
	}
	return err
}
