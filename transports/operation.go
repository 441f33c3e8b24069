package transports

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/http/pprof"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
)

// Debug returns a handler for operators only: /metrics, and the profiles of the process below
// /debug/pprof/. A profile shows code paths and addresses, never data. But taking one costs CPU, so
// serve it only on an address that others cannot reach.
func (h *Handler) Debug() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h.metrics)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// mountOperation mounts the paths for operators: health, readiness, metrics unless they are
// private, and the description of the API.
func (h *Handler) mountOperation(cfg Config) {
	get := func(path string, handle echo.HandlerFunc) {
		h.echo.Match([]string{http.MethodGet, http.MethodHead}, path, handle)
	}
	get("/healthz", h.healthy)
	get("/readyz", h.ready)
	if !cfg.PrivateMetrics {
		get("/metrics", behind(cfg.MetricsToken, echo.WrapHandler(h.metrics)))
	}
	get("/openapi.yaml", func(c echo.Context) error {
		return c.Blob(http.StatusOK, "application/yaml", tidemark.OpenAPI)
	})
}

// behind returns next for callers who show a token in the Authorization header. If the token is
// empty, it returns next.
func behind(token string, next echo.HandlerFunc) echo.HandlerFunc {
	if token == "" {
		return next
	}
	// The hashes have one length, so the comparison takes the same time whatever is sent.
	want := sha256.Sum256([]byte("Bearer " + token))
	return func(c echo.Context) error {
		got := sha256.Sum256([]byte(c.Request().Header.Get("Authorization")))
		//rule:metrics_private.metrics-need-their-token
		if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			return tidemark.Errorf(tidemark.Unauthenticated,
				"metrics need the token that their operator chose; send Authorization: "+
					"Bearer <token>")
		}
		return next(c)
	}
}

// healthy answers 503 if the process makes no progress and so needs a restart.
func (h *Handler) healthy(c echo.Context) error {
	if h.alive != nil {
		if err := h.alive(); err != nil {
			return err
		}
	}
	return fine(c)
}

func fine(c echo.Context) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
}
