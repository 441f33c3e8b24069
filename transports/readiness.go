package transports

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// readyTimeout is how long the dependencies may take to answer.
const readyTimeout = 2 * time.Second

// dependency is a service that the server uses.
type dependency struct {
	name string
	// needed is true if the server cannot work without the dependency.
	needed bool
	// check returns nil if the dependency is available.
	check func(ctx context.Context) error
}

// dependencies returns the dependencies in the order of the answer.
func (h *Handler) dependencies(degraded func() error) []dependency {
	all := []dependency{{name: "store", needed: true, check: h.server.Ready}}
	if h.auth.HasIssuer() {
		all = append(all, dependency{
			name:   "issuer",
			needed: true,
			check:  func(context.Context) error { return h.auth.Ready() },
		})
	}
	if degraded != nil {
		all = append(all, dependency{
			name:  "redis",
			check: func(context.Context) error { return degraded() },
		})
	}
	return all
}

// ready answers 503 while a needed dependency is missing, and once the server is about to stop, so
// that load balancers send no more clients. A node that cannot reach the others is still useful: it
// stores and confirms. All nodes may be in that state at the same time.
func (h *Handler) ready(c echo.Context) error {
	if h.leaving.Load() || h.draining.Err() != nil {
		return errStopping()
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyTimeout)
	defer cancel()
	failures := make([]error, len(h.needs))
	var asking sync.WaitGroup
	for i, d := range h.needs {
		asking.Go(func() { failures[i] = d.check(ctx) })
	}
	asking.Wait()
	status := "ok"
	var missing error
	for i, err := range failures {
		switch {
		case err == nil:
		//rule:stop_in_order.ready-without-optional-service
		case !h.needs[i].needed:
			status = "degraded"
		case missing == nil:
			missing = tidemark.Wrap(tidemark.Unavailable, err,
				"the server is not ready: "+tidemark.DetailOf(err))
		}
	}
	told := h.states(failures)
	//rule:stop_in_order.not-ready-without-store
	if missing != nil {
		return problem.With(missing, "dependencies", told)
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	b := append([]byte(`{"status":"`+status+`","dependencies":`), told...)
	return c.Blob(http.StatusOK, "application/json", append(b, '}'))
}

// states returns the JSON of the state of each dependency.
func (h *Handler) states(failures []error) []byte {
	b := []byte{'{'}
	for i, err := range failures {
		if i > 0 {
			b = append(b, ',')
		}
		b = tidemark.AppendString(b, h.needs[i].name)
		if err == nil {
			b = append(b, `:{"status":"ok"}`...)
			continue
		}
		b = append(b, `:{"status":"unavailable","detail":`...)
		b = append(tidemark.AppendString(b, tidemark.DetailOf(err)), '}')
	}
	return append(b, '}')
}
