package transports

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemark-im/tidemark"
)

// readyTimeout is how long the parts may take to say that they are ready.
const readyTimeout = 2 * time.Second

// mountOperation mounts what operators and their tools ask: alive, ready, metrics, and the description of the API.
func (h *Handler) mountOperation() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		counters{h.server.Counters},
		counters{h.auth.Counters},
	)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	get := func(path string, handle echo.HandlerFunc) {
		h.echo.Match([]string{http.MethodGet, http.MethodHead}, path, handle)
	}
	get("/healthz", healthy)
	get("/readyz", h.ready)
	get("/metrics", echo.WrapHandler(metrics))
	get("/openapi.yaml", func(c echo.Context) error {
		return c.Blob(http.StatusOK, "application/yaml", tidemark.OpenAPI)
	})
}

func healthy(c echo.Context) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
}

// ready answers 503 from the moment in which the shutdown begins, so that load balancers send nobody any more.
func (h *Handler) ready(c echo.Context) error {
	if h.draining.Err() != nil {
		return errStopping()
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyTimeout)
	defer cancel()
	if err := h.auth.Ready(); err != nil {
		return err
	}
	if err := h.server.Ready(ctx); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the server is not ready: "+tidemark.DetailOf(err))
	}
	return healthy(c)
}

// counters are the core's counters as Prometheus metrics, named tidemark_….
type counters struct{ read func() map[string]int64 }

// Describe implements prometheus.Collector. Describing nothing makes the collector an unchecked one: which counters there are
// is the core's matter.
func (counters) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c counters) Collect(to chan<- prometheus.Metric) {
	for name, n := range c.read() {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(name, "_total") {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc("tidemark_"+name, "The delivery core's counter "+name+".", nil, nil)
		to <- prometheus.MustNewConstMetric(desc, kind, float64(n))
	}
}
