package redis

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// Watched is a master, its replica, and the Sentinel that promotes the replica. It does so only
// during FailOver and Promoted: on a busy machine a master may be silent for longer than the second
// after which Sentinel is told to act.
type Watched struct {
	Pair
	Sentinel *Server
}

// StartSentinel starts all three for one test, and ends them with the test.
func StartSentinel(t testing.TB) *Watched {
	t.Helper()
	home, err := newHome()
	if err != nil {
		t.Fatal(err)
	}
	w, err := startWatched(home)
	if err != nil {
		t.Fatal(errors.Join(err, home.Close()))
	}
	ends(t, home, w.Master, w.Replica, w.Sentinel)
	w.joined(t)
	w.known(t)
	return w
}

func startWatched(home *process.Home) (w *Watched, err error) {
	w = &Watched{}
	if w.Master, err = start(home, "master"); err != nil {
		return nil, err
	}
	replicaOf := fmt.Sprint("replicaof 127.0.0.1 ", w.Master.port)
	if w.Replica, err = start(home, "replica", replicaOf); err != nil {
		return nil, err
	}
	w.Sentinel,
		err = startSentinel(home, "sentinel",
		fmt.Sprint("sentinel monitor tidemark 127.0.0.1 ", w.Master.port, " 1"),
		"sentinel down-after-milliseconds tidemark "+asleep,
		"sentinel failover-timeout tidemark 3000", "sentinel parallel-syncs tidemark 1")
	return w, err
}

// URL returns the URL of the first database of the present master.
func (w *Watched) URL() string { return "redis+sentinel://" + w.Sentinel.Address() + "/tidemark" }

// FailOver kills the master, and waits until the replica is Promoted.
func (w *Watched) FailOver(t testing.TB) {
	t.Helper()
	w.Master.Kill(t)
	w.Promoted(t)
}

// Promoted lets Sentinel promote the replica, after the master was killed, and waits until it has.
// That takes about 2 s. Then it starts the former master empty, as a replica that copies the new
// master.
func (w *Watched) Promoted(t testing.TB) {
	t.Helper()
	w.acts(t, awake)
	w.promoted(t)
	wait(t, "Sentinel names the new master", func() (string, bool) {
		reply, err := w.Sentinel.Ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "tidemark")
		return fmt.Sprint(reply, err), fmt.Sprint(reply) == fmt.Sprintf("[127.0.0.1 %d]",
			w.Master.port)
	})
	w.Replica.settings = append(usual(), fmt.Sprint("replicaof 127.0.0.1 ", w.Master.port))
	if err := w.Replica.configure(); err != nil {
		t.Fatal(err)
	}
	w.acts(t, asleep)
	w.Replica.RunEmpty(t)
	w.joined(t)
	w.known(t)
}

// How long a master is silent before Sentinel promotes its replica, in milliseconds.
const (
	awake  = "2000"
	asleep = "3600000"
)

// acts sets that time.
func (w *Watched) acts(t testing.TB, after string) {
	t.Helper()
	w.Sentinel.Do(t, "SENTINEL", "SET", "tidemark", "down-after-milliseconds", after)
}

// known waits until Sentinel knows the replica well enough to promote it.
func (w *Watched) known(t testing.TB) {
	t.Helper()
	wait(t, "Sentinel knows the replica", func() (string, bool) {
		reply, err := w.Sentinel.Ask("SENTINEL", "REPLICAS", "tidemark")
		replicas, _ := reply.([]any)
		for _, replica := range replicas {
			about := pairs(replica)
			if about["port"] == fmt.Sprint(w.Replica.port) && about["flags"] == "slave" &&
				about["master-link-status"] == "ok" {
				return "", true
			}
		}
		return fmt.Sprint(reply, err), false
	})
}

// pairs parses a reply of names and values.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	found := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		found[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return found
}
