package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	service "github.com/tidemark-im/tidemark/test/services/redis"
)

// spent is the CPU that this process and Redis have used, in microseconds, and the number of round
// trips.
type spent struct{ own, redis, trips float64 }

func spentSoFar(b *testing.B, s *service.Server, trips int64) spent {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	info, _ := s.Do(b, "INFO", "cpu").(string)
	main := 0.0
	for _, line := range strings.Fields(info) {
		name, value, _ := strings.Cut(line, ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds, _ := strconv.ParseFloat(value, 64)
			main += seconds * 1e6
		}
	}
	return spent{float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e3, main, float64(trips)}
}

func (s spent) report(b *testing.B, from spent) {
	b.Helper()
	n := float64(b.N)
	b.ReportMetric((s.own-from.own)/n, "own-µs/op")
	b.ReportMetric((s.redis-from.redis)/n, "redis-µs/op")
	b.ReportMetric((s.trips-from.trips)/n, "trips/op")
}

// BenchmarkLookup looks up one user for each of several concurrent callers, as messages of pairs
// do. It also looks up many users, as a message of a group does.
func BenchmarkLookup(b *testing.B) {
	server := service.Start(b)
	r, client := openWith(b, server.URL())
	n := node("a")
	if err := r.Join(b.Context(), n, long); err != nil {
		b.Fatal(err)
	}
	users := make([]tidemark.UserID, 1000)
	for i := range users {
		users[i] = tidemark.UserID(fmt.Sprint("user-", i))
		l := registry.Lease{
			User:    users[i],
			Device:  "a-device-of-usual-length",
			Node:    n.ID,
			Boot:    "0123456789abcdef",
			Session: "0123456789abcdefghijkl",
		}
		l.Boot = n.Boot
		if _, err := r.Open(b.Context(), registry.LeaseRequest{Lease: l, TTL: long}); err != nil {
			b.Fatal(err)
		}
	}
	for _, of := range []int{1, 100} {
		for _, callers := range []int{1, 8, 64} {
			b.Run(fmt.Sprint("of=", of, "/callers=", callers), func(b *testing.B) {
				before := spentSoFar(b, server, client.Counters()["redis_round_trips_total"])
				b.SetParallelism(max(callers/2, 1))
				b.ResetTimer()
				b.RunParallel(func(p *testing.PB) {
					for i := 0; p.Next(); i++ {
						from := i % (len(users) - of + 1)
						if _, err := r.Lookup(b.Context(), users[from:from+of]); err != nil {
							b.Error(err)
						}
					}
				})
				b.StopTimer()
				spentSoFar(b, server, client.Counters()["redis_round_trips_total"]).report(b,
					before)
			})
		}
	}
}

// BenchmarkSession opens and closes a session, and reads the epoch for it.
func BenchmarkSession(b *testing.B) {
	server := service.Start(b)
	r, client := openWith(b, server.URL())
	n := node("a")
	if err := r.Join(b.Context(), n, long); err != nil {
		b.Fatal(err)
	}
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			before := spentSoFar(b, server, client.Counters()["redis_round_trips_total"])
			b.SetParallelism(max(callers/2, 1))
			b.RunParallel(func(p *testing.PB) {
				for i := 0; p.Next(); i++ {
					l := lease(n, tidemark.UserID(fmt.Sprint("user-", i%1000)), "s")
					e, err := r.Epoch(b.Context())
					if err == nil {
						_, err = r.Open(b.Context(),
							registry.LeaseRequest{Lease: l, TTL: time.Minute})
					}
					if err == nil {
						err = r.Close(b.Context(), l, &e)
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
			b.StopTimer()
			spentSoFar(b, server, client.Counters()["redis_round_trips_total"]).report(b, before)
		})
	}
}

// BenchmarkRefresh prolongs a third of 6,000 sessions, as a heartbeat of a full node does.
func BenchmarkRefresh(b *testing.B) {
	server := service.Start(b)
	r, client := openWith(b, server.URL())
	n := node("a")
	if err := r.Join(b.Context(), n, long); err != nil {
		b.Fatal(err)
	}
	leases := make([]registry.Lease, 2_000)
	for i := range leases {
		leases[i] = lease(n, tidemark.UserID(fmt.Sprint("user-", i)), "0123456789abcdefghijkl")
	}
	for range 2 {
		if got, err := r.Refresh(b.Context(), n, long, leases, long); err != nil {
			b.Fatal(err)
		} else {
			for _, l := range got.Lost {
				if _, err := r.Open(
					b.Context(), registry.LeaseRequest{Lease: l, TTL: long},
				); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	before := spentSoFar(b, server, client.Counters()["redis_round_trips_total"])
	for b.Loop() {
		if got, err := r.Refresh(b.Context(), n, long, leases, long); err != nil ||
			len(got.Lost) > 0 {
			b.Fatal(len(got.Lost), err)
		}
	}
	spentSoFar(b, server, client.Counters()["redis_round_trips_total"]).report(b, before)
}
