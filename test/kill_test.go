package test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/storage/sqlite/waltest"
)

// TestKill_confirmed_is_durable kills the server with SIGKILL under load, TIDEMARK_KILL_RUNS times
// (3 if it is not set). Every other time it tears the end of the log behind its last commit. Then
// it starts the server on the same file.
//
// Every message that was confirmed, over HTTP or a WebSocket, is stored once, at its sequence, and
// no sequence is missing. No watermark that a client received has fallen. The devices on both kinds
// of streams get everything. A user who was offline gets exactly what they had not acknowledged.
// (Rules: confirmed_is_durable, sequence_gapless, watermark_monotonic, resume_lossless,
// pending_or_delivered.)
func TestKill_confirmed_is_durable(t *testing.T) {
	t.Parallel() // It waits more than it works.
	runs := killRuns(t)
	k := newCrashTest(t, newProcess(t))
	t.Logf("%d runs with TIDEMARK_SEED=%d", runs, k.seed)
	for run := range runs {
		k.load(run, func() {
			if err := k.server.process.Kill(); err != nil {
				t.Error(err)
			}
		})
		k.server.wait()
		if run%2 == 1 {
			k.tear()
		}
		k.server.start()
		k.check()
		if t.Failed() {
			t.Fatalf("run %d (TIDEMARK_SEED=%d)", run, k.seed)
		}
	}
	k.stop()
	t.Logf("%d kills, %d of them with a torn log: %d messages confirmed, %d of them over a "+
		"WebSocket; lost %d, twice %d, gaps %d, watermarks back %d; %d sends without an answer; "+
		"%d watermarks reported; the offline user got %d messages; "+
		"the streams were opened %d times",
		runs, k.torn, len(k.confirmed), k.overSocket, k.lost, k.twice, k.gaps, k.back,
		k.unanswered, k.watermarks, k.caughtUp, k.opens())
	if k.overSocket == 0 || k.overSocket == len(k.confirmed) || k.unanswered == 0 ||
		k.watermarks == 0 || k.caughtUp == 0 || runs > 1 && k.torn == 0 {
		t.Error("something of this did not happen: the runs show nothing")
	}
}

// TestKill_stopped_process_goes_on stops the server with SIGSTOP under load for
// TIDEMARK_HANG_SECONDS (3 if it is not set), as on a machine that swaps or is moved. Clients time
// out and come back; nothing is lost.
func TestKill_stopped_process_goes_on(t *testing.T) {
	t.Parallel() // It waits more than it works.
	seconds := hangSeconds(t)
	k := newCrashTest(t, newProcess(t))
	k.load(0, func() {
		for _, signal := range []os.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			if err := k.server.process.Signal(signal); err != nil {
				t.Error(err)
			}
			if signal == syscall.SIGSTOP {
				<-time.After(time.Duration(seconds) * time.Second)
			}
		}
		k.goesOn()
	})
	k.check()
	k.stop()
	t.Logf("stopped for %d s: %d messages confirmed, lost %d, twice %d, gaps %d, "+
		"watermarks back %d; %d sends without an answer", seconds, len(k.confirmed),
		k.lost, k.twice, k.gaps, k.back, k.unanswered)
}

// goesOn ends the load when stopped requests have been answered, and new sends as well.
func (k *crashTest) goesOn() {
	k.t.Helper()
	before := k.confirmations()
	until(k.t, "sends are confirmed again", func() bool { return k.confirmations() > before+50 },
		func() string { return fmt.Sprint(k.confirmations(), " after ", before) })
	k.ending.Store(true)
}

// hangSeconds returns for how long a process hangs.
func hangSeconds(t *testing.T) int { return fromEnvironment(t, "TIDEMARK_HANG_SECONDS", 3) }

// killRuns returns how often a process is killed.
func killRuns(t *testing.T) int { return fromEnvironment(t, "TIDEMARK_KILL_RUNS", 3) }

func fromEnvironment(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is not a number: %v", variable, err)
	}
	return n
}

// seedOf returns TIDEMARK_SEED, or another seed each time.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TIDEMARK_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("TIDEMARK_SEED is not a number: %v", err)
		}
	}
	return seed
}

var killChats = []string{"k0", "k1", "k2"}

// crashTest is a server that is killed and started again on one file, and what its clients sent
// and received. It may also be several servers on one database.
type crashTest struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	// server is the first of the nodes, and mostly the only one.
	server  *process
	nodes   []*process
	turn    atomic.Uint64 // of the nodes
	devices []*device
	moving  []*device // the devices that reconnect elsewhere
	running sync.WaitGroup
	cancel  context.CancelFunc
	ending  flag

	mu         sync.Mutex
	confirmed  map[string]int64 // by chat/client_message_id
	reported   map[string]int64 // acknowledged watermarks by chat/user that a client received
	overSocket int
	unanswered int
	reasons    map[string]int // of answers 503, by detail
	why        map[string]int // other outcomes without a confirmation
	slowest    time.Duration  // of the answers over HTTP

	lost, twice, gaps, back    int
	torn, watermarks, caughtUp int
	dora                       map[string]int64 // what dora acknowledged
	again                      bool             // dora may get a part of that again
}

func newCrashTest(t *testing.T, nodes ...*process) *crashTest {
	t.Helper()
	seed := seedOf(t)
	k := &crashTest{
		t:         t,
		seed:      seed,
		random:    rand.New(rand.NewPCG(seed, 1)),
		server:    nodes[0],
		nodes:     nodes,
		confirmed: map[string]int64{},
		reported:  map[string]int64{},
		dora:      map[string]int64{},
		reasons:   map[string]int{},
		why:       map[string]int{},
	}
	for _, node := range nodes {
		node.start()
	}
	for _, chat := range killChats {
		k.as("alice").call(t, http.MethodPost, "/chats",
			map[string]any{"type": "group", "chat_id": chat,
				"member_ids": []string{"bob", "carol", "dora"}}, nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	k.cancel = cancel
	// Two devices of bob, one of carol, one of the sender; dora is offline.
	k.devices = []*device{
		newDevice(k.as("bob"), overWebSocket), newDevice(k.as("bob"), overSSE),
		newDevice(k.as("carol"), overSSE), newDevice(k.as("alice"), overWebSocket),
	}
	if len(nodes) > 1 {
		k.devices = append(k.devices, newDevice(k.as("bob"), overPoll),
			newDevice(k.as("carol"), overPoll))
		moving := []string{overWebSocket: "carol", overSSE: "alice", overPoll: "bob"}
		for over, name := range moving {
			k.moving = append(k.moving, newDevice(k.as(name), transport(over)))
		}
		for _, d := range k.moving {
			for _, node := range nodes {
				d.elsewhere = append(d.elsewhere, as(node.address, d.name).url)
			}
		}
	}
	k.devices = append(k.devices, k.moving...)
	for _, d := range k.devices {
		k.running.Go(func() { d.run(ctx) })
	}
	return k
}

// as returns a user, of each node in turn.
func (k *crashTest) as(name string) user {
	return as(k.nodes[k.turn.Add(1)%uint64(len(k.nodes))].address, name)
}

func (k *crashTest) stop() {
	k.cancel()
	k.running.Wait()
	for _, node := range k.nodes {
		node.stop()
	}
}

func (k *crashTest) opens() (n int) {
	for _, d := range k.devices {
		d.mu.Lock()
		n += d.opens
		d.mu.Unlock()
	}
	return n
}

func (k *crashTest) confirmations() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.confirmed)
}

// load sends from six clients over HTTP and two over WebSockets, until the server answers no more.
// At a random moment it calls planned.
func (k *crashTest) load(run int, planned func()) {
	k.ending.Store(false)
	ctx, cancel := context.WithTimeout(k.t.Context(), 5*time.Minute)
	defer cancel()
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			name := fmt.Sprintf("r%d-c%d-", run, c)
			if c >= 6 {
				k.socket(ctx, killChats[c%len(killChats)], name)
				return
			}
			next := func(n int) bool {
				return k.send(ctx, killChats[(c+n)%len(killChats)], name+strconv.Itoa(n))
			}
			for n := 0; !k.ending.Load() && next(n); n++ {
				<-time.After(2 * time.Millisecond) // the pipelines always have something under way
			}
		})
	}
	if run == 0 {
		// Even on a slow machine, some messages are confirmed and can be lost.
		until(k.t, "messages are confirmed over HTTP and over WebSockets", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.overSocket > 0 && k.overSocket < len(k.confirmed)
		}, func() string { return fmt.Sprint(k.confirmations(), " confirmed") })
	}
	<-time.After(time.Duration(30+k.random.IntN(300)) * time.Millisecond)
	planned()
	clients.Wait()
}

// send sends one message over HTTP, acknowledges every other one as carol, and notes the answer. It
// reports whether the server answers.
func (k *crashTest) send(ctx context.Context, chat, id string) bool {
	status, body := k.ask(ctx, "alice", http.MethodPost, "/chats/"+chat+"/messages", map[string]any{
		"client_message_id": id, "content": id,
	})
	var m message
	confirmed := status == http.StatusCreated && json.Unmarshal(body, &m) == nil
	if !k.note(confirmed, chat, id, m.Sequence) {
		return status != 0 // a hung server answers 503 to requests that took too long
	}
	if m.Sequence%2 == 0 {
		return true
	}
	var s state
	status, body = k.ask(ctx, "carol", http.MethodPatch, "/chats/"+chat+"/delivery-state",
		map[string]any{"last_acked_sequence": m.Sequence})
	if status != http.StatusOK || json.Unmarshal(body, &s) != nil {
		return status != 0
	}
	k.noteWatermarks(map[string]int64{chat + "/carol": s.Acked})
	return true
}

// ask makes a request. A refusal must be 503 with a reason.
func (k *crashTest) ask(
	ctx context.Context, name, method, path string, body any,
) (status int, answer []byte) {
	began := time.Now()
	status, answer, err := k.as(name).try(ctx, method, path, body)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.why[err.Error()]++
	}
	if status != 0 {
		k.slowest = max(k.slowest, time.Since(began))
	}
	var p problem
	switch {
	case status < 300:
	case status != http.StatusServiceUnavailable || json.Unmarshal(answer, &p) != nil ||
		p.Detail == "":
		k.t.Errorf("%s %s: got %d %s, want 503 with a reason", method, path, status, answer)
	default:
		k.reasons[p.Detail]++
	}
	return status, answer
}

// note notes the answer to a send.
func (k *crashTest) note(confirmed bool, chat, id string, sequence int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !confirmed {
		k.unanswered++
		return false
	}
	k.confirmed[chat+"/"+id] = sequence
	return true
}

// failed notes that a send over a WebSocket was not confirmed.
func (k *crashTest) failed(chat, why string) {
	k.note(false, chat, "", 0)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.why[why]++
}

// noteWatermarks notes watermarks that a client received.
func (k *crashTest) noteWatermarks(watermarks map[string]int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, w := range watermarks {
		k.reported[key] = max(k.reported[key], w)
	}
}

// socket sends over a WebSocket, twenty messages before it waits for an answer.
func (k *crashTest) socket(ctx context.Context, chat, name string) {
	url := strings.Replace(k.as("alice").url, "http://", "ws://", 1) + "/api/v1/ws?ticket=dev:alice"
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		Subprotocols: []string{"tidemark.v1"},
	})
	if err != nil {
		return // killed before it was connected
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	sent, answered := 0, 0
	for ; !k.ending.Load() || answered < sent; answered++ {
		for ; sent < answered+20 && !k.ending.Load(); sent++ {
			id := name + strconv.Itoa(sent)
			payload := map[string]any{"chat_id": chat, "client_message_id": id, "content": id}
			frame := map[string]any{"type": "send_message", "request_id": id, "payload": payload}
			if err := wsjson.Write(ctx, conn, frame); err != nil {
				k.failed(chat, err.Error())
				return
			}
		}
		for f := (frame{}); f.Type != "send_message_ack" && f.Type != "problem"; {
			if err := wsjson.Read(ctx, conn, &f); err != nil {
				k.failed(chat, err.Error())
				return
			}
			if f.Type == "problem" {
				k.failed(chat, string(f.Payload))
			}
			if f.Type != "send_message_ack" {
				continue
			}
			var m message
			if json.Unmarshal(f.Payload, &m) != nil ||
				!k.note(true, m.ChatID, m.ClientMessageID, m.Sequence) {
				return
			}
			k.mu.Lock()
			k.overSocket++
			k.mu.Unlock()
		}
	}
	// The session is over, and its result does not count.
	_ = conn.Close(websocket.StatusNormalClosure, "")
}

// tear damages the log behind its last commit, as a power cut in the middle of the next one does.
func (k *crashTest) tear() {
	path := k.server.database() + "-wal"
	commits, err := waltest.Commits(path)
	if err != nil {
		k.t.Fatal(err)
	}
	if len(commits) == 0 {
		return
	}
	how, err := waltest.Tear(path, commits[len(commits)-1], k.random)
	if err != nil {
		k.t.Fatalf("%s: %v", how, err)
	}
	k.torn++
}

// check compares what is stored with the answers, and waits until all devices have it.
func (k *crashTest) check() {
	k.t.Helper()
	for _, d := range k.devices {
		pushed, faults := d.observed()
		k.noteWatermarks(pushed)
		for _, fault := range faults {
			k.t.Error(fault)
		}
	}
	heads, stored := k.stored()
	for _, d := range k.devices {
		until(k.t, d.name+" has everything", func() bool {
			for chat, head := range d.heads() {
				if head > heads[chat] {
					// A refused message may be stored late.
					heads, stored = k.stored()
				}
			}
			return maps.Equal(d.heads(), heads)
		}, func() string { return fmt.Sprint(d.heads(), " of ", heads) })
	}
	for id, sequence := range k.confirmed {
		if stored[id] != sequence {
			k.lost++
			k.t.Errorf("%s was confirmed as %d, and is stored as %d (0: not at all)",
				id, sequence, stored[id])
		}
	}
	for key, reported := range k.reported {
		chat, name, _ := strings.Cut(key, "/")
		var s state
		k.as(name).call(k.t, http.MethodGet, "/chats/"+chat+"/delivery-state", nil, &s)
		if s.Acked < reported {
			k.back++
			k.t.Errorf("%s's watermark in %s is %d, but a client received %d",
				name, chat, s.Acked, reported)
		}
	}
	k.watermarks = len(k.reported)
	k.online(heads)
}

// stored reads all chats: their heads, and the sequences of the messages by chat/client_message_id.
func (k *crashTest) stored() (heads, stored map[string]int64) {
	k.t.Helper()
	heads, stored = map[string]int64{}, map[string]int64{}
	for _, chat := range killChats {
		heads[chat] = k.read(chat, stored)
	}
	return heads, stored
}

// read reads a chat as bob, and returns its head.
func (k *crashTest) read(chat string, stored map[string]int64) int64 {
	k.t.Helper()
	next := int64(1)
	for more := true; more; {
		var page struct {
			Messages   []message
			Pagination struct {
				HasMore bool `json:"has_more"`
			}
		}
		k.as("bob").call(k.t, http.MethodGet,
			fmt.Sprintf("/chats/%s/messages?limit=1000&after_sequence=%d", chat, next-1), nil,
			&page)
		for _, m := range page.Messages {
			if m.Sequence != next {
				k.gaps++
				k.t.Fatalf("%s: after %d comes %d", chat, next-1, m.Sequence)
			}
			if at, there := stored[chat+"/"+m.ClientMessageID]; there {
				k.twice++
				k.t.Errorf("%s is stored at %d and at %d", m.ClientMessageID, at, m.Sequence)
			}
			stored[chat+"/"+m.ClientMessageID] = m.Sequence
			next++
		}
		more = page.Pagination.HasMore
	}
	return next - 1
}

// online connects dora, who was offline, for a moment. Dora gets what they had not acknowledged,
// and nothing else.
func (k *crashTest) online(heads map[string]int64) {
	k.t.Helper()
	d := newDevice(k.as("dora"), transport(k.random.IntN(3)))
	ctx, cancel := context.WithCancel(k.t.Context())
	var reading sync.WaitGroup
	reading.Go(func() { d.connect(ctx) })
	until(k.t, "dora has caught up",
		d.caughtUp, func() string { return fmt.Sprint(d.heads(), " of ", heads) })
	cancel()
	reading.Wait()
	from, got := d.from, d.heads()
	late := heads
	for chat, head := range got {
		if head > late[chat] {
			// A refused message may be stored late.
			late, _ = k.stored()
		}
	}
	want := map[string]int64{}
	for chat, head := range heads {
		if max(head, min(got[chat], late[chat])) > k.dora[chat] {
			want[chat] = k.dora[chat]
			k.caughtUp += int(head - k.dora[chat])
		}
	}
	if k.again {
		for chat := range from {
			from[chat] = max(from[chat], k.dora[chat])
			if _, owed := want[chat]; !owed {
				delete(from, chat)
				delete(got, chat)
			}
		}
	}
	if diff := cmp.Diff(want, from); diff != "" {
		k.t.Errorf("what dora had before the first message they got, for each chat with "+
			"some (-want +got):\n%s", diff)
	}
	for chat, head := range got {
		if head < heads[chat] || head > late[chat] {
			k.t.Errorf("dora got %s up to %d, want %d to %d", chat, head, heads[chat], late[chat])
		}
		// An acknowledgement on the stream may be lost with it. This one is answered.
		k.as("dora").ack(k.t, chat, head)
		k.dora[chat] = head
		k.noteWatermarks(map[string]int64{chat + "/dora": head})
	}
}
