package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// standby makes a standby of the server, as the guide says.
func (o *operator) standby() *postgres.Server {
	o.t.Helper()
	o.run("## Standby")
	return postgres.StartCopy(o.t, o.server, func(copied *postgres.Server) error {
		script := strings.ReplaceAll(o.block("On the standby, as `postgres`"),
			"/var/lib/postgresql/15/main", copied.Data())
		script = strings.ReplaceAll(script, "host=db1.example.org port=5432",
			fmt.Sprintf("host=127.0.0.1 port=%d", o.server.Port()))
		if out, err := copied.Shell(script, "PGPASSWORD=third").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// both returns the guide's URL of the server and its standby.
func (o *operator) both(standby *postgres.Server) string {
	o.t.Helper()
	first, second := fmt.Sprintf("127.0.0.1:%d", o.server.Port()), fmt.Sprintf("127.0.0.1:%d",
		standby.Port())
	return strings.NewReplacer("db1.example.org:5432", first, "db2.example.org:5432",
		second).Replace(o.block("Give Tidemark both hosts"))
}

// TestOperations_postgres_asynchronous_standby_lacks_the_last shows what the guide admits of a
// promotion without synchronous_standby_names. The rest of the data is whole, devices that have
// more get a reset, and the chat goes on.
func TestOperations_postgres_asynchronous_standby_lacks_the_last(t *testing.T) {
	t.Parallel()
	o := newOperator(t, postgres.Start(t))
	o.roles()
	standby := o.standby()
	p := processOf(t, o.binary)
	p.url, p.migrated = o.both(standby), true
	s := siteOf(p)
	alice, bob := s.user("alice", "http://"+s.address, nil), s.user("bob", "http://"+s.address, nil)
	alice.call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "b0", "member_ids": []string{"bob"}}, nil)
	all := map[string]int64{}
	send := func(n int) {
		id := fmt.Sprint("b0/m", n)
		all[id] = alice.send(t, "b0", id).Sequence
	}
	for n := range 5 {
		send(n)
	}
	until(t, "the standby has the first ones", func() bool {
		return o.ask("SELECT bool_and(replay_lsn >= pg_current_wal_lsn()) FROM "+
			"pg_stat_replication") == "t"
	}, func() string { return o.ask("TABLE pg_stat_replication") })
	standby.Stop(t, "fast")
	for n := range 5 {
		send(5 + n)
	}
	o.server.Kill(t)
	standby.Run(t)
	o.run("### Promotion", "STANDBY="+standby.URL("postgres"))
	s.stop()
	s.start()
	left := s.storedIn(bob, "b0")
	if len(left) < 5 || len(left) == len(all) {
		t.Fatalf("%d messages are left of %d: the test shows nothing", len(left), len(all))
	}
	for id, sequence := range left {
		if all[id] != sequence {
			t.Errorf("%s is stored as %d, and was confirmed as %d", id, sequence, all[id])
		}
	}
	s.wantReset(bob, "b0", all)
}

// TestOperations_postgres_standby_is_promoted: with a synchronous standby no confirmed message is
// lost with the server. Tidemark goes on by itself at the promoted one.
func TestOperations_postgres_standby_is_promoted(t *testing.T) {
	t.Parallel()
	o := newOperator(t, postgres.Start(t))
	o.roles()
	standby := o.standby()
	o.run("Then let each commit wait")
	until(t, "the standby is synchronous",
		func() bool { return o.ask("SELECT sync_state FROM pg_stat_replication") == "sync" },
		func() string { return o.ask("TABLE pg_stat_replication") })

	p := processOf(t, o.binary)
	p.url = o.both(standby)
	p.migrated = true
	p.serve()
	f := newFaulty(t, p)
	w := writePersistently(t, p, 3)
	until(t, "the load runs", func() bool { return w.size() >= 100 },
		func() string { return fmt.Sprint(w.size(), " confirmed") })
	// The standby does not answer. So no message that only one server has is confirmed, however
	// often it is sent.
	standby.Freeze(t)
	var acks sync.WaitGroup
	end := func() {}
	for round := range 2 {
		acks.Go(func() {
			status, body, err := f.as("frank").try(t.Context(), http.MethodPatch,
				"/chats/c/delivery-state", map[string]any{"last_acked_sequence": 3})
			if detail := f.problem(status, body); err != nil || detail == "" {
				t.Errorf("without the standby an acknowledgement was answered %d %s, %v",
					status, body, err)
			}
		})
		if status, detail := f.send("frozen"); status != http.StatusServiceUnavailable {
			t.Errorf("without the standby a send was answered %d %s", status, detail)
		}
		acks.Wait()
		if round == 0 { // and the operator cancels what hangs
			end = o.cancelWaits()
		}
	}
	if status, detail := f.ready(); status != http.StatusServiceUnavailable {
		t.Errorf("without the standby /readyz is %d %s", status, detail)
	}
	end()
	standby.Thaw(t)
	until(t, "sends are confirmed again",
		func() bool { status, _ := f.send("thawed"); return status < 300 },
		func() string { return "" })

	o.server.Kill(t)
	f.refuses(false)
	before := w.size()
	o.run("### Promotion", "STANDBY="+standby.URL("postgres"))
	f.recovers()
	until(t, "the load goes on", func() bool { return w.size() >= before+100 },
		func() string { return fmt.Sprint(w.size(), " confirmed, of ", before) })
	w.check()
}

// cancelWaits repeatedly cancels statements that wait for a standby, until end is called.
func (o *operator) cancelWaits() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			o.ask("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = " +
				"'SyncRep'")
		}
	})
	return func() { cancel(); running.Wait() }
}

// persistentWriters send to chats of their own until the test ends, each message until it is
// confirmed.
type persistentWriters struct {
	t         *testing.T
	p         *process
	chats     []string
	confirmed ledger
	end       func()
}

func writePersistently(t *testing.T, p *process, n int) *persistentWriters {
	t.Helper()
	w := &persistentWriters{t: t, p: p, confirmed: ledger{messages: map[string]int64{}}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(w.end)
	for i := range n {
		chat := fmt.Sprint("w", i)
		w.chats = append(w.chats, chat)
		as(p.address, "alice").call(t, http.MethodPost, "/chats",
			map[string]any{"type": "group", "chat_id": chat, "member_ids": []string{"bob"}}, nil)
		running.Go(func() { w.run(ctx, chat) })
	}
	return w
}

func (w *persistentWriters) size() int { return w.confirmed.size() }

func (w *persistentWriters) run(ctx context.Context, chat string) {
	for n := 1; ctx.Err() == nil; <-time.After(5 * time.Millisecond) {
		id := fmt.Sprint(chat, "-m", n)
		status, body, err := as(w.p.address, "alice").try(ctx, http.MethodPost,
			"/chats/"+chat+"/messages", map[string]any{"client_message_id": id, "content": id})
		switch {
		case err == nil && status < 300:
			var m message
			if err := json.Unmarshal(body, &m); err != nil || m.Sequence != int64(n) {
				w.t.Errorf("%s was confirmed with %s, %v; want %d", id, body, err, n)
				return
			}
			w.confirmed.mu.Lock()
			w.confirmed.messages[id] = m.Sequence
			w.confirmed.mu.Unlock()
			n++
		case err == nil && status != http.StatusServiceUnavailable:
			w.t.Errorf("%s was answered %d %s", id, status, body)
			return
		}
	}
}

// check ends the writers. It checks that each confirmed message is stored once, and nothing else
// but messages being sent.
func (w *persistentWriters) check() {
	w.t.Helper()
	w.end()
	messages, _ := w.confirmed.copy()
	stored := (&site{w.p}).storedIn(as(w.p.address, "bob"), w.chats...)
	for id, sequence := range messages {
		if stored[id] != sequence {
			w.t.Errorf("%s was confirmed as %d, and is stored as %d (0: not at all)",
				id, sequence, stored[id])
		}
	}
	if more := len(stored) - len(messages); more < 0 || more > len(w.chats) {
		w.t.Errorf("%d messages are stored, and %d were confirmed", len(stored), len(messages))
	}
	w.t.Logf("%d messages confirmed, none lost", len(messages))
}
