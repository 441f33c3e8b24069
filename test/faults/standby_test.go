package faults

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// The URL names both servers. While only the standby runs, writes are refused, and Check reports
// why. After its promotion the nodes begin anew, because the data may be of another life. The
// primary confirms a write only when the standby has it on disk, so nothing confirmed is lost.
func TestFault_primary_lost_and_standby_promoted(t *testing.T) {
	t.Parallel()
	primary := service.Start(t)
	at := database(t, primary)
	standby := service.StartCopy(t, primary, func(copied *service.Server) error {
		out, err := primary.Shell(fmt.Sprintf("pg_basebackup -h 127.0.0.1 -p %d -U tidemark -D "+
			"%s -R -X stream -c fast", primary.Port(), copied.Data())).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	primary.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Exec(t, "postgres", "SELECT pg_reload_conf()")
	conn := admin(t, primary, at)
	deadline := time.Now().Add(30 * time.Second)
	for state := ""; state != "sync"; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the standby is %q, and not synchronous", state)
		}
		must(t,
			conn.QueryRow(t.Context(),
				"SELECT coalesce(max(sync_state), '') FROM pg_stat_replication").Scan(&state))
	}

	u, err := url.Parse(at)
	must(t, err)
	u.Host = fmt.Sprintf("127.0.0.1:%d", standby.Port())
	_, err = postgres.Open(t.Context(), postgres.Config{URL: u.String()})
	if tidemark.CodeOf(err) != tidemark.Unavailable ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("opening a standby: %v, want Unavailable because it is read-only", err)
	}
	u.Host = fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", standby.Port(), primary.Port())
	h := newHistory(t, nodes(t, u.String())...)
	for node := range h.stores {
		h.beginAnew(node, u.String())
	}
	before := 0
	h.runAndReport(func() {
		<-time.After(500 * time.Millisecond)
		h.mu.Lock()
		before = h.confirmed
		h.mu.Unlock()
		primary.Kill(t)
		h.eventually("callers are told that there is only a standby", func() bool {
			return h.refusals("read-only") > 0 && h.says("read-only")
		})
		standby.Exec(t, "postgres", "SELECT pg_promote()")
	})
	t.Logf("%d messages were confirmed by the primary", before)
}
