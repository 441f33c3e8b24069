package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// Pair is a master and its replica. They change places when the replica is promoted.
type Pair struct {
	Master, Replica *Server
}

// Detach ends replication. The replica has everything that the master got before, and receives
// nothing of what it gets afterwards. Detach lasts at most 8 s, after which Sentinel would not
// promote the replica. It ends when the replica is promoted.
func (p *Pair) Detach(t testing.TB) {
	t.Helper()
	told := p.Master.info("replication")
	wait(t, "the replica knows what the master does", func() (string, bool) {
		knows := p.Replica.info("replication")["slave_repl_offset"]
		return knows + " of " +
			told["master_repl_offset"], number(knows) >= number(told["master_repl_offset"])
	})
	// The master has no password, and refuses one.
	p.Replica.Do(t, "CONFIG", "SET", "masterauth", "nonsense")
	p.Replica.Do(t, "CLIENT", "KILL", "TYPE", "master")
	wait(t, "the replica is cut off", func() (string, bool) {
		role := p.Replica.info("replication")
		return role["master_link_status"], role["master_link_status"] == "down"
	})
}

// promoted waits until the replica has been promoted, and changes the places of the two.
func (p *Pair) promoted(t testing.TB) {
	t.Helper()
	wait(t, "the replica is promoted", func() (string, bool) {
		role := p.Replica.info("replication")["role"]
		return role, role == "master"
	})
	p.Replica.Do(t, "CONFIG", "SET", "masterauth", "")
	p.Master, p.Replica = p.Replica, p.Master
}

// joined waits until the replica has what the master has.
func (p *Pair) joined(t testing.TB) {
	t.Helper()
	wait(t, "the replica follows the master", func() (string, bool) {
		info := p.Replica.info("replication")
		return fmt.Sprint(info), info["role"] == "slave" &&
			info["master_port"] == fmt.Sprint(p.Master.port) && info["master_link_status"] == "up"
	})
}

// info returns a section of INFO. It is empty while the server does not answer.
func (s *Server) info(section string) map[string]string {
	reply, err := s.Ask("INFO", section)
	text, ok := reply.(string)
	if err != nil || !ok {
		return nil
	}
	return fields(text)
}

// number parses a number of INFO. It returns -1 if the text is none.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// fields parses lines of NAME:VALUE.
func fields(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			found[name] = value
		}
	}
	return found
}

// patience bounds each wait. If the machine stood still for two seconds, Sentinel does nothing for
// 30 s (it calls that TILT).
const patience = 5 * time.Minute

// wait waits until done reports true, for at most patience.
func wait(t testing.TB, what string, done func() (found string, ok bool)) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; process.Pause() {
		found, ok := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v, but %s", what, patience, found)
		}
	}
}
