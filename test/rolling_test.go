package test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// TestRolling_upgrade_loses_nothing begins with three nodes of an older program, on the frozen data
// of version 1. Under load and behind the proxy, the present program migrates the store, and then
// replaces the nodes, one at a time. Clients of every transport lose nothing, most of their
// sessions go on, and the messages of version 1 are answered as before.
func TestRolling_upgrade_loses_nothing(t *testing.T) {
	t.Parallel() // It waits more than it works.
	older, found := olderProgram(t)
	newer := build(t)
	store, shared := postgres.Start(t), redis.Start(t)
	r := &rolling{t: t, confirmed: map[string]int64{}}
	url := store.Database(t)
	data, err := os.ReadFile("../storage/postgres/testdata/v1.sql")
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(path.Base(url), "?")
	store.Exec(t, name, string(data))
	var addresses []string
	for n := range 3 {
		p := processOf(t, older)
		p.url, p.migrated, p.flags = url, found, []string{
			"--dev", "--redis", shared.URL(), "--node", fmt.Sprint("n", n+1),
		}
		p.start()
		t.Cleanup(p.stop)
		r.nodes = append(r.nodes, p)
		addresses = append(addresses, p.address)
	}
	// Nodes find each other by heartbeats, every three seconds. A proxy retries a failed node after
	// ten seconds, and here after two.
	r.url = balanced(t, []string{"fail_timeout=10s", "fail_timeout=2s"}, addresses...).url
	settle := 4 * time.Second
	<-time.After(settle)
	before := r.old()
	r.begin()
	r.more(50)
	r.migrate(newer, url)
	for _, p := range r.nodes {
		<-time.After(settle)
		r.more(50)
		p.stop()
		r.logs = append(r.logs, p.log.String())
		p.binary = newer
		p.start()
		r.connected()
	}
	r.more(50)
	r.end()
	r.check()
	if after := r.old(); !maps.Equal(before, after) {
		t.Errorf("the data of version 1 were\n%v\nand are\n%v", before, after)
	}
}

// migrate brings the store up to date with the new program, while the old nodes serve on it.
func (r *rolling) migrate(newer, url string) {
	r.t.Helper()
	cmd := exec.Command(newer, "migrate", "up", "--store", url)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("migrate up: %v\n%s", err, out)
	}
	r.more(50)
}

// old returns the messages that the users of the frozen data get, by user, chat and sequence, and
// the status of each answer.
func (r *rolling) old() map[string]string {
	r.t.Helper()
	found := map[string]string{}
	for _, name := range []string{"anna", "ben", "cleo", "emil"} {
		as := user{name: name, url: r.url}
		for _, chat := range []string{"direct", "group", "joined", "left", "crowd", "big"} {
			var page struct{ Messages []message }
			status, body, err := as.try(r.t.Context(), http.MethodGet,
				"/chats/"+chat+"/messages?limit=1000&after_sequence=0", nil)
			if err != nil || status >= http.StatusInternalServerError {
				r.t.Fatalf("%s in %s: %d: %v", name, chat, status, err)
			}
			key := name + "/" + chat
			found[key] = strconv.Itoa(status)
			if status != http.StatusOK {
				continue
			}
			if err := json.Unmarshal(body, &page); err != nil {
				r.t.Fatal(err)
			}
			for _, m := range page.Messages {
				found[key+"/"+strconv.FormatInt(m.Sequence, 10)] =
					fmt.Sprint(m.SenderID, m.ClientMessageID, m.Content)
			}
		}
	}
	if len(found) < 50 {
		r.t.Fatalf("the frozen data are %d things: %v", len(found), found)
	}
	return found
}

// olderProgram builds the program of the commit in upgrade-from, or of TIDEMARK_UPGRADE_FROM, in a
// worktree below .build, where the next run finds it compiled. If a shallow clone does not have the
// commit, and cannot fetch it, found is false: the program is the present one.
func olderProgram(t *testing.T) (binary string, found bool) {
	t.Helper()
	named, err := os.ReadFile("upgrade-from")
	if err != nil {
		t.Fatal(err)
	}
	commit := cmp.Or(os.Getenv("TIDEMARK_UPGRADE_FROM"), strings.TrimSpace(string(named)))
	source, err := filepath.Abs("../.build/before/" + commit)
	if err != nil {
		t.Fatal(err)
	}
	if shallow(t) {
		fetch := exec.Command("git", "fetch", "--quiet", "--depth=1", "origin", commit)
		if out, err := fetch.CombinedOutput(); err != nil {
			t.Logf("the nodes are upgraded from the present program, since this shallow clone "+
				"cannot fetch commit %s: %v\n%s", commit, err, out)
			return build(t), false
		}
	}
	// A worktree is whole if all of its files are there.
	worktree := exec.Command("bash", "-euo", "pipefail", "-c", `
		[ -e "$1/.git" ] && [ "$(git -C "$1" rev-parse HEAD)" = "$0" ] &&
			git -C "$1" diff --quiet HEAD && exit
		rm -rf "$1"
		git worktree add --quiet --force --force --detach "$1" "$0"`, commit, source)
	if out, err := worktree.CombinedOutput(); err != nil {
		t.Fatalf("no worktree of commit %s (of test/upgrade-from, or of TIDEMARK_UPGRADE_FROM): "+
			"%v\n%s", commit, err, out)
	}
	binary = filepath.Join(source, "bin", "tidemark")
	if err := compile(binary, source); err != nil {
		t.Fatalf("building %s: %v", commit, err)
	}
	return binary, true
}

// shallow reports whether the clone has only the latest commits.
func shallow(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--is-shallow-repository").CombinedOutput()
	if err != nil {
		t.Fatalf("the test builds an older commit, so it needs a clone of git: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out)) == "true"
}

// rolling is the load on a cluster whose nodes are replaced.
type rolling struct {
	t       *testing.T
	url     string
	nodes   []*process
	devices []*device
	cancel  context.CancelFunc
	running sync.WaitGroup
	sending sync.WaitGroup
	ending  flag
	logs    []string // of the older program

	mu        sync.Mutex // guards the fields below
	confirmed map[string]int64
	refused   map[int]int // answers other than 200 and 201, by status; 0 is none
}

const rollingChat = "rolling"

// begin starts four users with two devices of each transport, and six clients that send.
func (r *rolling) begin() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel, r.refused = cancel, map[int]int{}
	as := func(name string) user { return user{name: name, url: r.url} }
	names := []string{"alice", "bob", "carol", "dave"}
	// The older program answers by the contract of its own time, so this answer is not checked.
	status, body, err := as("alice").try(ctx, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": rollingChat, "member_ids": names[1:]})
	if err != nil || status != http.StatusCreated {
		r.t.Fatalf("creating the chat: %d: %s: %v", status, body, err)
	}
	for _, name := range names {
		for _, over := range []transport{
			overWebSocket, overSSE, overPoll, overWebSocket, overSSE, overPoll,
		} {
			d := newDevice(as(name), over)
			r.devices = append(r.devices, d)
			r.running.Go(func() { d.run(ctx) })
		}
	}
	for c := range 6 {
		r.sending.Go(func() {
			for n := 0; !r.ending.Load() && ctx.Err() == nil; n++ {
				r.send(ctx, as("alice"), fmt.Sprintf("c%d-%d", c, n))
			}
		})
	}
}

// send sends one message until it is confirmed, as every client does.
func (r *rolling) send(ctx context.Context, u user, id string) {
	for ctx.Err() == nil {
		status, body, _ := u.try(ctx, http.MethodPost, "/chats/"+rollingChat+"/messages",
			map[string]any{"client_message_id": id, "content": id})
		var m message
		r.mu.Lock()
		if (status == http.StatusCreated || status == http.StatusOK) &&
			json.Unmarshal(body, &m) == nil {
			r.confirmed[id] = m.Sequence
			r.mu.Unlock()
			<-time.After(10 * time.Millisecond)
			return
		}
		r.refused[status]++
		r.mu.Unlock()
		<-time.After(50 * time.Millisecond)
	}
}

// more waits until so many more messages have been confirmed.
func (r *rolling) more(n int) {
	r.t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.confirmed)
	}
	want := count() + n
	until(r.t, strconv.Itoa(n)+" more messages are confirmed",
		func() bool { return count() >= want }, func() string { return strconv.Itoa(count()) })
}

// connected waits until every device has caught up.
func (r *rolling) connected() {
	r.t.Helper()
	var waiting *device
	until(r.t, "every stream is connected", func() bool {
		for _, d := range r.devices {
			if waiting = d; d.over != overPoll && !d.caughtUp() {
				return false
			}
		}
		return true
	}, func() string { return waiting.name })
}

// reads reports whether a client whose session is gone reads that a member has everything. The
// ticks that a session has not sent end with it, and its client reads them.
func (d *device) reads(t *testing.T, name string, head int64) bool {
	t.Helper()
	d.mu.Lock()
	gone := d.resets["gone"]
	d.mu.Unlock()
	if gone == 0 {
		return false
	}
	var status struct {
		Members []struct {
			User  string `json:"user_id"`
			Acked int64  `json:"last_acked_sequence"`
		}
	}
	path := fmt.Sprintf("/chats/%s/delivery-status?for_sequence=%d", rollingChat, head)
	d.call(t, http.MethodGet, path, nil, &status)
	for _, m := range status.Members {
		if m.User == name {
			return m.Acked == head
		}
	}
	return false
}

func (r *rolling) end() {
	r.ending.Store(true)
	r.sending.Wait()
}

// check compares what is stored with what was confirmed, and what every device has with what is
// stored.
func (r *rolling) check() {
	t := r.t
	head, stored := int64(0), map[string]int64{}
	bob := user{name: "bob", url: r.url}
	for more := true; more; {
		var page struct {
			Messages   []message
			Pagination struct {
				HasMore bool `json:"has_more"`
			}
		}
		bob.call(t, http.MethodGet,
			fmt.Sprintf("/chats/%s/messages?limit=1000&after_sequence=%d", rollingChat, head), nil,
			&page)
		for _, m := range page.Messages {
			if m.Sequence != head+1 {
				t.Fatalf("after %d comes %d", head, m.Sequence)
			}
			if at, there := stored[m.ClientMessageID]; there {
				t.Errorf("%s is stored at %d and at %d", m.ClientMessageID, at, m.Sequence)
			}
			head, stored[m.ClientMessageID] = m.Sequence, m.Sequence
		}
		more = page.Pagination.HasMore
	}
	r.mu.Lock()
	if !maps.Equal(stored, r.confirmed) {
		t.Errorf("%d messages were confirmed, and %d are stored, or others",
			len(r.confirmed), len(stored))
	}
	r.mu.Unlock()
	opens, resumed, polls, gone := 0, 0, 0, 0
	for _, d := range r.devices {
		until(t, d.name+" has everything", func() bool { return d.heads()[rollingChat] == head },
			func() string { return fmt.Sprint(d.over, d.heads(), " of ", head) })
		// Ticks: the streams report that the others have every message. That alice has what they
		// sent changes no tick, and the own boundary comes on the node that wrote it only.
		for _, name := range []string{"bob", "carol", "dave"} {
			if name == d.name {
				continue
			}
			until(t, "the tick of "+name,
				func() bool {
					pushed, _ := d.observed()
					return pushed[rollingChat+"/"+name] == head || d.reads(t, name, head)
				},
				func() string { return fmt.Sprint(d.over) })
		}
		if _, faults := d.observed(); len(faults) > 0 {
			t.Error(strings.Join(faults, "; "))
		}
		d.mu.Lock()
		if d.over == overPoll {
			polls, gone = polls+1, gone+d.resets["gone"]
		} else {
			opens, resumed = opens+d.opens-1, resumed+d.resumed
		}
		d.mu.Unlock()
	}
	r.cancel()
	r.running.Wait()
	t.Logf("%d messages confirmed, each stored once, and received by all of %d devices; "+
		"%d times a stream was opened again, %d of them resumed; "+
		"%d polls were answered that their session is gone; "+
		"answers to sends that were not a confirmation, by status: %v",
		head, len(r.devices), opens, resumed, gone, r.refused)
	// On a busy machine a node may not be told in time where a session is, and the client opens a
	// new one. A program that cannot take over resumes few of the streams, and loses the sessions
	// of polls by the hundred: the proxy sends each poll to any node.
	if opens < len(r.nodes) || resumed*4 <= opens || gone >= 10*polls {
		t.Errorf("too few sessions went on; the logs of the older program:\n%s",
			strings.Join(r.logs, "\n"))
	}
}
