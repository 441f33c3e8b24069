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
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// upgradeFrom is the commit that the nodes are upgraded from, unless TIDEMARK_UPGRADE_FROM names
// another.
const upgradeFrom = "5d194226c43df058bc2314375bb7495db906ac45"

// TestRolling_upgrade_loses_nothing replaces three nodes, one at a time, by another program, under
// load and behind the proxy. Clients of every transport lose nothing, and most of their sessions go
// on.
func TestRolling_upgrade_loses_nothing(t *testing.T) {
	t.Parallel() // It waits more than it works.
	older, newer := olderProgram(t), build(t)
	store, shared := postgres.Start(t), redis.Start(t)
	r := &rolling{t: t, confirmed: map[string]int64{}}
	url := store.Database(t)
	var addresses []string
	for n := range 3 {
		p := processOf(t, older)
		p.url, p.flags = url, []string{
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
	r.begin()
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
}

// olderProgram builds the program of the older commit. It is kept below .build, where the next run
// finds it compiled.
func olderProgram(t *testing.T) string {
	t.Helper()
	commit := cmp.Or(os.Getenv("TIDEMARK_UPGRADE_FROM"), upgradeFrom)
	source, err := filepath.Abs("../.build/before/" + commit)
	if err != nil {
		t.Fatal(err)
	}
	binary, flags := filepath.Join(source, "bin", "tidemark"), []string{}
	// A shallow clone lacks the commit.
	fetch := exec.Command("bash", "-euo", "pipefail", "-c",
		`mkdir -p "$1" && cd .. && git archive "$0" -- . ':!*_test.go' | tar -x -C "$1"`, commit,
		source)
	if out, err := fetch.CombinedOutput(); err != nil {
		t.Logf("the older program is the present one with another version, since there is no "+
			"commit %s here:\n%s", commit, out)
		source, flags = "..", []string{"-ldflags", "-X main.version=before"}
	}
	if err := compile(binary, source, flags...); err != nil {
		t.Fatalf("building %s: %v", commit, err)
	}
	return binary
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
