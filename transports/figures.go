package transports

import (
	"context"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-im/tidemark/transports/stats"
)

// newStats returns the adapter of GET /admin/stats. It shows what the metrics show, of all nodes.
func newStats(cfg Config) *stats.Adapter {
	counters := []func() map[string]int64{cfg.Server.Counters}
	for _, read := range cfg.Counters {
		counters = append(counters, read)
	}
	return stats.New(stats.Config{
		Server: cfg.Server, Auth: cfg.Auth, Limit: cfg.Limit, Counters: counters,
		Commits: commits(cfg.Collectors), Version: cfg.Version, Logger: cfg.Logger,
	})
}

// mountStats mounts GET /admin/stats. Only a stream lasts as long as its client wants.
func (h *Handler) mountStats() {
	h.echo.GET(BasePath+"/admin/stats", func(c echo.Context) error {
		if stats.Streams(c.Request()) {
			return h.stream(h.stats.Handle)(c)
		}
		return h.stats.Handle(c)
	})
}

// Run answers the questions of other nodes for the figures of this one, until ctx ends.
func (h *Handler) Run(ctx context.Context) { h.stats.Run(ctx) }

// commits returns how to read the commits of the store from its metrics.
func commits(collectors []prometheus.Collector) func() stats.Histogram {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	return func() stats.Histogram {
		families, _ := registry.Gather() // a family that fails is not in it
		for _, family := range families {
			if family.GetName() != "tidemark_commit_seconds" || len(family.GetMetric()) != 1 {
				continue
			}
			var h stats.Histogram
			read, below := family.GetMetric()[0].GetHistogram(), uint64(0)
			for _, b := range read.GetBucket() {
				h.Bounds = append(h.Bounds, b.GetUpperBound())
				h.Counts = append(h.Counts, b.GetCumulativeCount()-below)
				below = b.GetCumulativeCount()
			}
			h.Counts = append(h.Counts, read.GetSampleCount()-below)
			return h
		}
		return stats.Histogram{}
	}
}
