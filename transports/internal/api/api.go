// Package api has what adapters share for each call: how long it may take, which data its answer is
// about, and what its path names.
package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"
)

// callTimeout is how long the core may take: for a call, to open a session, or to read the events
// of a poll. After that the answer is 503.
const callTimeout = 30 * time.Second

// IncarnationHeader names the data that an answer is about. A half-open stream may still be one of
// the data before a restore. Without the name its client would store restored messages among the
// lost ones.
const IncarnationHeader = "Tidemark-Incarnation"

// Detached returns a context for work that goes on if the client closes its side. It has the values
// of the request's context, and ends after 30 s.
func Detached(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), callTimeout)
}

// PathParam returns a parameter of the path, decoded as the generated handlers do it. Echo leaves
// it encoded if the path has an escape that it does not need, such as %3A.
func PathParam(c echo.Context, name string) string {
	value := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return value
	}
	if decoded, err := url.PathUnescape(value); err == nil {
		return decoded
	}
	return value // The parser of the path has refused it before.
}
