package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// spent returns the CPU time of a Postgres and its backends.
func spent(b *testing.B, pid int) time.Duration {
	b.Helper()
	const perSecond = 100 // clock ticks of Linux
	ticks := 0
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // from the third field on
		if fields[1] != strconv.Itoa(pid) && !strings.HasPrefix(string(text),
			strconv.Itoa(pid)+" ") {
			continue
		}
		for _, field := range fields[11:13] {
			n, _ := strconv.Atoi(field)
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / perSecond
}

// BenchmarkLookup reports what Postgres spends on the look-up of a user, if so many share a
// statement. BenchmarkOpen reports what it spends on the opening and closing of a session.
func BenchmarkLookup(b *testing.B) {
	server, r, a := benched(b)
	for _, size := range []int{1, 8, 64} {
		users := make([]tidemark.UserID, size)
		for i := range users {
			users[i] = tidemark.UserID(fmt.Sprint("user", i))
			q := bob(a)
			q.Lease.User = users[i]
			if _, err := r.Open(b.Context(), q); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprint(size, " users"), func(b *testing.B) {
			before := spent(b, server.PID())
			for b.Loop() {
				if _, err := r.Lookup(b.Context(), users); err != nil {
					b.Fatal(err)
				}
			}
			report(b, server, before, size)
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	server, r, a := benched(b)
	for _, size := range []int{1, 64} {
		b.Run(fmt.Sprint(size, " at once"), func(b *testing.B) {
			b.SetParallelism(size)
			before := spent(b, server.PID())
			b.RunParallel(func(p *testing.PB) {
				q := bob(a)
				q.Lease.User = tidemark.UserID(fmt.Sprintf("u%p", p))
				for p.Next() {
					if _, err := r.Open(b.Context(), q); err != nil {
						b.Error(err)
					}
					if err := r.Close(b.Context(), q.Lease, nil); err != nil {
						b.Error(err)
					}
				}
			})
			report(b, server, before, 1)
		})
	}
}

func benched(b *testing.B) (*service.Server, node, registry.Node) {
	b.Helper()
	server := service.Shared(b)
	url := server.Database(b)
	if err := postgres.Migrate(b.Context(), url, postgres.Up); err != nil {
		b.Fatal(err)
	}
	r := open(b, url, "")
	a := registry.Node{ID: "a", Boot: "1"}
	if err := r.Join(b.Context(), a, long); err != nil {
		b.Fatal(err)
	}
	return server, r, a
}

func report(b *testing.B, server *service.Server, before time.Duration, size int) {
	b.Helper()
	cpu := spent(b, server.PID()) - before
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N*size), "postgres-µs/user")
}
