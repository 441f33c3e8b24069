package bench

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

// snapshot holds the measurements of the server and of the load generator at one moment.
type snapshot struct {
	at        time.Duration
	processes []measure.Process
	// metrics are the summed counters of all nodes, and those of their Redis.
	metrics     map[string]float64
	own         time.Duration // CPU of the load generator
	streamBytes int64
	answerBytes int64
}

// snapshot returns the measurements of now. It fails if a process cannot be read.
// It also works after the run has ended.
func (r *run) snapshot() (snapshot, error) {
	s := snapshot{
		at:          r.now(),
		own:         measure.OwnCPU(),
		streamBytes: r.streamBytes.Load(),
		answerBytes: r.answerBytes.Load(),
	}
	for _, pid := range r.load.PIDs {
		p, err := measure.ReadProcess(pid)
		if err != nil {
			return snapshot{}, err
		}
		s.processes = append(s.processes, p)
	}
	s.metrics = make(map[string]float64)
	for _, node := range r.nodes {
		metrics, err := r.metrics(node)
		if err != nil {
			return s, err
		}
		for name, value := range metrics {
			s.metrics[name] += value
		}
	}
	if r.load.Redis == "" {
		return s, nil
	}
	commands, err := measure.RedisCommands(context.WithoutCancel(r.ctx), r.load.Redis)
	maps.Copy(s.metrics, commands)
	return s, err
}

// metrics returns a node's counters.
// A node that refuses the request has none, nor has one that fails after the end of the run.
func (r *run) metrics(node client.URL) (map[string]float64, error) {
	body, err := r.metricsText(node)
	var no *client.Refused
	switch {
	case err == nil:
		return measure.ParseMetrics(body), nil
	case errors.As(err, &no), r.ctx.Err() != nil:
		return nil, nil
	}
	return nil, err
}

// metricsText returns a node's answer to GET /metrics.
func (r *run) metricsText(node client.URL) (string, error) {
	conn := client.NewConn(node, "", &r.answerBytes, client.LargeBuffer)
	defer conn.Close()
	body, err := conn.Do(context.WithoutCancel(r.ctx), "GET", "/metrics", nil, client.AnswerTimeout)
	return string(body), err
}

// cpu returns the user and system time of all processes between two snapshots.
func (s snapshot) cpu(after snapshot) time.Duration {
	var total time.Duration
	for i, p := range after.processes {
		total += p.CPU() - s.processes[i].CPU()
	}
	return total
}

// resident returns the growth of resident memory of all processes between two snapshots, in bytes.
func (s snapshot) resident(after snapshot) int64 {
	var total int64
	for i, p := range after.processes {
		total += p.Resident - s.processes[i].Resident
	}
	return total
}
