package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	client "github.com/tidemark-im/tidemark/internal/redis"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/redis"
)

// cpuOf returns the CPU time that a Redis has used.
func cpuOf(b *testing.B, s *service.Server) time.Duration {
	b.Helper()
	info, _ := s.Do(b, "INFO", "cpu").(string)
	var seconds float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			seconds += n
		}
	}
	return time.Duration(seconds * float64(time.Second))
}

// BenchmarkRates_take measures the cost of sharing one user, with a thousand in a round trip.
func BenchmarkRates_take(b *testing.B) {
	server := service.Start(b)
	c, err := client.Open(client.Config{URL: server.URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	r := redis.NewRates(c)
	taken := make([]limit.Taken, 1_000)
	for i := range taken {
		taken[i] = limit.Taken{User: tidemark.UserID(fmt.Sprint("u", i)), N: 25}
	}
	before := cpuOf(b, server)
	users := 0
	for b.Loop() {
		if _, err := r.Take(b.Context(),
			limit.Bucket{
				Name: "sends", Rate: limit.Rate{PerSecond: 50, Burst: 500},
			}, taken); err != nil {
			b.Fatal(err)
		}
		users += len(taken)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(users), "ns/user")
	b.ReportMetric(float64((cpuOf(b, server)-before).Nanoseconds())/float64(users), "redis-ns/user")
}

// BenchmarkTickets_stream measures the cost of a ticket, from POST /tickets until its stream is
// open.
func BenchmarkTickets_stream(b *testing.B) {
	server := service.Start(b)
	c, err := client.Open(client.Config{URL: server.URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	s := redis.NewTickets(redis.TicketsConfig{Client: c})
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(b.Context())
	go func() { defer close(ended); s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	before := cpuOf(b, server)
	n := 0
	for b.Loop() {
		n++
		who := auth.Ticket{User: tidemark.UserID(fmt.Sprint("u", n))}
		name, _, err := s.Issue(b.Context(), who)
		if err == nil {
			_, err = s.Redeem(b.Context(), name, "")
		}
		if err != nil {
			b.Fatal(err)
		}
		s.Bind(b.Context(), name, who, "s")
		s.Leave(name, "s")
	}
	b.ReportMetric(float64((cpuOf(b, server)-before).Nanoseconds())/float64(n), "redis-ns/op")
}
