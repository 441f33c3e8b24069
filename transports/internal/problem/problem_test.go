package problem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

type body struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
}

// serve answers one request by an echo instance with the error handler. It returns the answer, its
// problem, and the log.
func serve(t *testing.T, r *http.Request, mount func(e *echo.Echo)) (*http.Response, body, string) {
	t.Helper()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	e := echo.New()
	e.HTTPErrorHandler = problem.Handler(logger)
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Header().Set(echo.HeaderXRequestID, "req-1")
			return next(c)
		}
	}, problem.Recover(logger))
	mount(e)
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, r)
	var b body
	if rec.Body.Len() > 0 {
		if err := json.Unmarshal(rec.Body.Bytes(), &b); err != nil {
			t.Fatalf("%v in %s", err, rec.Body)
		}
	}
	return rec.Result(), b, log.String()
}

func failing(err error) func(e *echo.Echo) {
	return func(e *echo.Echo) { e.GET("/", func(echo.Context) error { return err }) }
}

func TestHandler_status_of_every_code(t *testing.T) {
	tests := []struct {
		err    error
		status int
		code   string
	}{
		{tidemark.Errorf(tidemark.Invalid, "d"), 400, "INVALID"},
		{tidemark.Errorf(tidemark.Unauthenticated, "d"), 401, "UNAUTHENTICATED"},
		{tidemark.Errorf(tidemark.NotMember, "d"), 403, "NOT_A_MEMBER"},
		{tidemark.Errorf(tidemark.Denied, "d"), 403, "DENIED"},
		{tidemark.Errorf(tidemark.NotFound, "d"), 404, "NOT_FOUND"},
		{tidemark.Errorf(tidemark.Conflict, "d"), 409, "CONFLICT"},
		{tidemark.Errorf(tidemark.Replaced, "d"), 409, "REPLACED"},
		{tidemark.Errorf(tidemark.Gone, "d"), 410, "SESSION_GONE"},
		{tidemark.Errorf(tidemark.TooLarge, "d"), 413, "TOO_LARGE"},
		{tidemark.Errorf(problem.UnsupportedMediaType, "d"), 415, "UNSUPPORTED_MEDIA_TYPE"},
		{tidemark.Errorf(problem.RangeNotSatisfiable, "d"), 416, "RANGE_NOT_SATISFIABLE"},
		{tidemark.Errorf(problem.PreconditionFailed, "d"), 412, "PRECONDITION_FAILED"},
		{tidemark.Errorf(tidemark.InvalidSequence, "d"), 422, "INVALID_SEQUENCE"},
		{tidemark.Errorf(tidemark.Exhausted, "d"), 429, "RATE_LIMITED"},
		{tidemark.Errorf(tidemark.Internal, "d"), 500, "INTERNAL"},
		{tidemark.Errorf(tidemark.Unavailable, "d"), 503, "UNAVAILABLE"},
		{fmt.Errorf("wrapped: %w", tidemark.Errorf(tidemark.NotFound, "d")), 404, "NOT_FOUND"},
		{context.Canceled, 503, "UNAVAILABLE"},
		{errors.New("a secret"), 500, "INTERNAL"},
		{tidemark.Errorf("NEW_CODE", "d"), 500, "INTERNAL"},
		{echo.NewHTTPError(400, "parameter x"), 400, "INVALID"},
		{echo.ErrStatusRequestEntityTooLarge, 413, "TOO_LARGE"},
		{echo.ErrUnsupportedMediaType, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{echo.ErrUnauthorized, 401, "UNAUTHENTICATED"},
		{echo.ErrTooManyRequests, 429, "RATE_LIMITED"},
		{echo.ErrServiceUnavailable, 503, "UNAVAILABLE"},
		{echo.ErrBadGateway, 500, "INTERNAL"},
	}
	for _, tt := range tests {
		res, got, _ := serve(t, httptest.NewRequest("GET", "/", nil), failing(tt.err))
		want := body{
			Type:      "about:blank",
			Title:     http.StatusText(tt.status),
			Status:    tt.status,
			Code:      tt.code,
			Detail:    got.Detail,
			RequestID: "req-1",
		}
		if got != want || res.StatusCode != tt.status || got.Detail == "" ||
			strings.Contains(got.Detail, "secret") {
			t.Errorf("%v: %d %+v, want %+v", tt.err, res.StatusCode, got, want)
		}
		if ct := res.Header.Get("Content-Type"); ct != problem.ContentType {
			t.Errorf("%v: Content-Type %q", tt.err, ct)
		}
		if has := res.Header.Get("Retry-After") != ""; has != (tt.status == 429 ||
			tt.status == 503) {
			t.Errorf("%v: Retry-After %q", tt.err, res.Header.Get("Retry-After"))
		}
		if has := res.Header.Get("WWW-Authenticate") != ""; has != (tt.status == 401) {
			t.Errorf("%v: WWW-Authenticate %q", tt.err, res.Header.Get("WWW-Authenticate"))
		}
	}
}

func TestHandler_router_errors(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		status       int
		code         string
	}{{"GET", "/nowhere", 404, "NOT_FOUND"}, {"POST", "/", 405, "METHOD_NOT_ALLOWED"}} {
		res, got, _ := serve(t, httptest.NewRequest(tt.method, tt.path, nil), failing(nil))
		if res.StatusCode != tt.status || got.Code != tt.code {
			t.Errorf("%s %s: %d %+v", tt.method, tt.path, res.StatusCode, got)
		}
		if tt.status == 405 && !strings.Contains(res.Header.Get("Allow"), "GET") {
			t.Errorf("Allow = %q", res.Header.Get("Allow"))
		}
	}
}

func TestHandler_head_has_no_body(t *testing.T) {
	res, _, _ := serve(t, httptest.NewRequest("HEAD", "/nowhere", nil), failing(nil))
	if res.StatusCode != 404 || res.ContentLength < 10 ||
		res.Header.Get("Content-Type") != problem.ContentType {
		t.Errorf("%d, length %d, %v", res.StatusCode, res.ContentLength, res.Header)
	}
	if n, _ := res.Body.Read(make([]byte, 1)); n != 0 {
		t.Error("a HEAD got a body")
	}
}

func TestRetryAfter_rounded_up(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		0: "1", time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2",
		time.Minute: "60",
	} {
		err := problem.RetryAfter(tidemark.Errorf(tidemark.Exhausted, "d"), wait)
		if res, _, _ := serve(t, httptest.NewRequest("GET", "/", nil),
			failing(err)); res.Header.Get("Retry-After") != want {
			t.Errorf("after %v: %q, want %q", wait, res.Header.Get("Retry-After"), want)
		}
	}
}

func TestRecover_panic_is_answered_and_logged(t *testing.T) {
	res, got, log := serve(t, httptest.NewRequest("GET", "/?ticket=secret", nil),
		func(e *echo.Echo) {
			e.GET("/", func(echo.Context) error { panic("boom") })
		})
	if res.StatusCode != 500 || got.Code != "INTERNAL" || got.RequestID != "req-1" ||
		strings.Contains(got.Detail, "boom") {
		t.Errorf("%d %+v", res.StatusCode, got)
	}
	for _, want := range []string{"boom", "req-1", "problem_test.go"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
	if strings.Contains(log, "secret") {
		t.Errorf("the log has the ticket: %s", log)
	}
}

func TestRecover_abort_passes(t *testing.T) {
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recovered %v", p)
		}
	}()
	serve(t, httptest.NewRequest("GET", "/", nil), func(e *echo.Echo) {
		e.GET("/", func(echo.Context) error { panic(http.ErrAbortHandler) })
	})
	t.Error("the panic was swallowed")
}

func TestHandler_begun_answer_is_left(t *testing.T) {
	e := echo.New()
	e.HTTPErrorHandler = problem.Handler(slog.New(slog.DiscardHandler))
	e.GET("/", func(c echo.Context) error {
		_ = c.String(200, "begun")
		return tidemark.Errorf(tidemark.Internal, "too late")
	})
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if rec.Code != 200 || rec.Body.String() != "begun" {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
}
