package test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// A restoration is a server whose data are replaced by older ones.
type restoration struct {
	p *process
	// backup copies the data, and lets what follows be lost.
	backup func()
	// restore puts the copy in place. The server serves it afterwards.
	restore func()
}

// TestRestore_is_noticed_over_every_transport: devices lose exactly what the restored data lack,
// and get exactly what they have, whether the devices were connected or come back later. Nothing
// counts as delivered that only a lost message of the same sequence was.
func TestRestore_is_noticed_over_every_transport(t *testing.T) {
	t.Parallel() // It waits more than it works.
	binary := build(t)
	for name, make := range map[string]func(t *testing.T, p *process) restoration{
		"sqlite, copied over":                                restoredBy("cp"),
		"sqlite, renamed over":                               restoredBy("mv"),
		"sqlite, renamed over under a server that is killed": renamedUnder,
		"postgres, dumped":                                   dumped,
		"postgres, promoted":                                 promoted,
		"dynamodb":                                           copiedTables,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			make(t, processOf(t, binary)).run(t)
		})
	}
}

// restoredBy replaces the file of a server that was stopped.
func restoredBy(command string) func(t *testing.T, p *process) restoration {
	return func(t *testing.T, p *process) restoration {
		file := filepath.Join(t.TempDir(), "copy.db")
		return restoration{p, backupTo(p, file), func() {
			p.stop()
			shell(t, command, file, p.database())
			p.start()
		}}
	}
}

// renamedUnder replaces the file of a server that runs, and is then killed. As it says at the next
// start, the log of the file before is moved away.
func renamedUnder(t *testing.T, p *process) restoration {
	file := filepath.Join(t.TempDir(), "copy.db")
	return restoration{p, backupTo(p, file), func() {
		shell(t, "mv", file, p.database())
		must(t, p.process.Kill())
		_ = p.wait()
		shell(t, "mv", p.database()+"-wal", p.database()+"-wal.old")
		p.start()
	}}
}

func backupTo(p *process, file string) func() {
	return func() {
		shell(p.t, p.binary, "backup", "--store", "sqlite:"+p.database(), "--to", file)
	}
}

func shell(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// dumped restores a dump into the same database.
func dumped(t *testing.T, p *process) restoration {
	server := postgres.Shared(t)
	p.url = server.Database(t)
	run := func(script string) {
		t.Helper()
		if out, err := server.Shell(script, "URL="+p.url).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	file := " " + rand.Text() + ".dump"
	return restoration{p, func() { run(`pg_dump "$URL" --format=custom --file` + file) }, func() {
		p.stop()
		run(`pg_restore --clean --if-exists --exit-on-error --dbname="$URL"` + file)
		run("rm" + file)
		p.start()
	}}
}

// promoted promotes a standby that lacks the last messages. The server goes on by itself.
func promoted(t *testing.T, p *process) restoration {
	o := newOperator(t, postgres.Start(t))
	o.roles()
	standby := o.standby()
	p.url, p.migrated = o.both(standby), true
	return restoration{p, func() {
		until(t, "the standby has all", func() bool {
			return o.ask("SELECT bool_and(replay_lsn >= pg_current_wal_lsn()) FROM "+
				"pg_stat_replication") == "t"
		}, func() string { return o.ask("TABLE pg_stat_replication") })
		standby.Stop(t, "fast")
	}, func() {
		o.server.Kill(t)
		standby.Run(t)
		o.run("### Promotion", "STANDBY="+standby.URL("postgres"))
		// The server notices when it connects again, which a probe makes it do. The answer to a
		// probe may be that of one a moment before.
		until(t, "the server has begun anew", func() bool {
			ready := waitReady(t.Context(), "http://"+p.address+"/readyz", p.ended)
			return ready == nil && strings.Contains(p.log.String(), "the server begins anew")
		}, p.log.String)
	}}
}

// copiedTables serves a copy of the tables under another prefix.
func copiedTables(t *testing.T, p *process) restoration {
	server := dynamodb.Shared(t)
	p.url = server.Store(t)
	to := server.Store(t)
	return restoration{p, func() {
		other := processOf(t, p.binary)
		other.url = to
		other.start()
		other.stop()
		server.Copy(t, p.url, to)
	}, func() {
		p.stop()
		p.url = to
		p.start()
	}}
}

const inBackup, lost, anew = 5, 5, 7

func (r restoration) run(t *testing.T) {
	r.p.start()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	begin := func(d *device) (end func()) {
		ctx, cancel := context.WithCancel(ctx)
		var one sync.WaitGroup
		running.Go(func() { one.Wait() })
		one.Go(func() { d.run(ctx) })
		return func() { cancel(); one.Wait() }
	}
	alice := as(r.p.address, "alice")
	var devices []*device
	var users []string
	for n, over := range []transport{overWebSocket, overSSE, overPoll} {
		for _, when := range []string{"connected", "away"} {
			name := fmt.Sprint(when, n)
			devices = append(devices, newDevice(as(r.p.address, name), over))
			users = append(users, name)
		}
	}
	alice.call(t, http.MethodPost, "/chats", map[string]any{
		"type": "group", "chat_id": "c", "member_ids": append(users, "nobody"),
	}, nil)
	keys, sent := []string{}, 0
	send := func(n int) {
		for range n {
			sent++
			keys = append(keys, alice.send(t, "c", fmt.Sprint("m", sent)).ClientMessageID)
		}
	}
	wantStored := func(what string, devices []*device) {
		t.Helper()
		for _, d := range devices {
			until(t, fmt.Sprintf("%s: %s has stored %q", what, d.name, keys),
				func() bool { return slices.Equal(d.chat("c"), keys) },
				func() string { return fmt.Sprintf("%q; %s", d.chat("c"), d.how()) })
		}
	}
	acked := func(sequence, want int) {
		t.Helper()
		path := fmt.Sprint("/chats/c/delivery-status?for_sequence=", sequence)
		var status struct {
			Summary struct {
				Delivered int `json:"delivered_count"`
			} `json:"delivery_summary"`
		}
		until(t, fmt.Sprintf("%d have received %d", want, sequence), func() bool {
			alice.call(t, http.MethodGet, path, nil, &status)
			return status.Summary.Delivered == want
		}, func() string { return fmt.Sprintf("%+v", status) })
	}
	var away []*device
	var leave []func()
	for i, d := range devices {
		if end := begin(d); i%2 == 1 {
			away, leave = append(away, d), append(leave, end)
		}
	}
	send(inBackup)
	wantStored("before the backup", devices)
	acked(inBackup, len(devices)+1)
	r.backup()
	send(lost)
	wantStored("before the restore", devices)
	acked(inBackup+lost, len(devices)+1)
	for _, end := range leave {
		end()
	}
	r.restore()
	keys = keys[:inBackup]
	send(anew)
	var connected []*device
	for i, d := range devices {
		if i%2 == 0 {
			connected = append(connected, d)
		}
	}
	wantStored("of the connected ones", connected)
	// Those who are away have another message of this number.
	acked(inBackup+lost, len(connected)+1)
	for _, d := range away {
		begin(d)
	}
	wantStored("of those who come back", away)
	acked(inBackup+anew, len(devices)+1)
	for _, d := range devices {
		if _, faults := d.observed(); len(faults) > 0 {
			t.Errorf("%q", faults)
		}
		if d.losses() != 1 {
			t.Errorf("%s lost something foreign %d times, want once", d.name, d.losses())
		}
	}
}
