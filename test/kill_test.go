package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestKill_confirmed_is_durable kills the server with SIGKILL under load, TIDEMARK_KILL_RUNS times (3 if it is not set), and starts it on the same file: every message that was
// confirmed is there once, at the sequence that was confirmed, no sequence is missing, and no watermark went back (confirmed_is_durable, sequence_gapless, watermark_monotonic).
func TestKill_confirmed_is_durable(t *testing.T) {
	runs := 3
	if text := os.Getenv("TIDEMARK_KILL_RUNS"); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TIDEMARK_KILL_RUNS is not a number: %v", err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d runs with seed %d", runs, seed)
	k := &killed{t: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, 1)), confirmed: map[string]uint64{}, acked: map[string]uint64{}}
	k.binary = filepath.Join(k.dir, "tidemark")
	if out, err := exec.Command("go", "build", "-o", k.binary, module+"/cmd/tidemark").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	k.start()
	for _, chat := range killChats {
		if status, body := k.call(http.MethodPost, "/chats", "alice", `{"type":"group","chat_id":"`+chat+`","member_ids":["bob"]}`); status != http.StatusCreated {
			t.Fatalf("creating %s: %d %s", chat, status, body)
		}
	}
	for run := range runs {
		k.load(run)
		k.start()
		k.check()
	}
	k.kill()
	t.Logf("%d messages confirmed, %d sends without an answer", len(k.confirmed), k.unanswered)
	if len(k.confirmed) == 0 || k.unanswered == 0 {
		t.Error("no message was confirmed, or no send was cut off: the runs show nothing")
	}
}

var killChats = []string{"k0", "k1", "k2"}

// killed is a server that is killed and started again on one file, and what its clients were told.
type killed struct {
	t       *testing.T
	dir     string
	binary  string
	random  *rand.Rand
	address string
	process *exec.Cmd
	log     bytes.Buffer

	mu         sync.Mutex
	confirmed  map[string]uint64 // by chat/client_message_id
	acked      map[string]uint64 // by chat
	unanswered int
}

func (k *killed) start() {
	k.t.Helper()
	k.address = freeAddress(k.t)
	k.log.Reset()
	k.process = exec.Command(k.binary, "serve", "--dev", "--listen", k.address, "--store", "sqlite:"+filepath.Join(k.dir, "kill.db"))
	k.process.Stdout, k.process.Stderr = &k.log, &k.log
	if err := k.process.Start(); err != nil {
		k.t.Fatal(err)
	}
	process := k.process
	k.t.Cleanup(func() { _ = process.Process.Kill() })
	if err := waitReady(k.t.Context(), "http://"+k.address+"/readyz", make(chan error, 1)); err != nil {
		k.t.Fatalf("%v\n%s", err, k.log.String())
	}
}

func (k *killed) kill() {
	_ = k.process.Process.Kill()
	_ = k.process.Wait()
}

// call makes one request; status 0 means that there was no answer.
func (k *killed) call(method, path, user, body string) (status int, answer []byte) {
	request, err := http.NewRequest(method, "http://"+k.address+"/api/v1"+path, bytes.NewBufferString(body))
	if err != nil {
		panic(err) // the test's own words
	}
	request.Header.Set("Authorization", "Bearer dev:"+user)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

// load sends and acknowledges from eight clients until the server is killed, at a random moment.
func (k *killed) load(run int) {
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for n := 0; ; n++ {
				if !k.send(killChats[(c+n)%len(killChats)], fmt.Sprintf("r%d-c%d-%d", run, c, n)) {
					return
				}
			}
		})
	}
	time.AfterFunc(time.Duration(30+k.random.IntN(300))*time.Millisecond, func() { _ = k.process.Process.Kill() })
	clients.Wait()
	_ = k.process.Wait()
}

// send sends one message, acknowledges it as bob, and notes what was answered. It reports whether the server answers.
func (k *killed) send(chat, id string) bool {
	status, body := k.call(http.MethodPost, "/chats/"+chat+"/messages", "alice", `{"client_message_id":"`+id+`","content":"`+id+`"}`)
	var message struct{ Sequence uint64 }
	confirmed := status == http.StatusCreated && json.Unmarshal(body, &message) == nil
	k.mu.Lock()
	if confirmed {
		k.confirmed[chat+"/"+id] = message.Sequence
	} else {
		k.unanswered++
	}
	k.mu.Unlock()
	if !confirmed {
		return false
	}
	var state struct {
		Acked uint64 `json:"last_acked_sequence"`
	}
	status, body = k.call(http.MethodPatch, "/chats/"+chat+"/delivery-state", "bob", fmt.Sprintf(`{"last_acked_sequence":%d}`, message.Sequence))
	if status != http.StatusOK || json.Unmarshal(body, &state) != nil {
		return false
	}
	k.mu.Lock()
	k.acked[chat] = max(k.acked[chat], state.Acked)
	k.mu.Unlock()
	return true
}

// check compares what is stored with what was answered.
func (k *killed) check() {
	k.t.Helper()
	stored := map[string]uint64{}
	for _, chat := range killChats {
		next := uint64(1)
		for more := true; more; {
			var page struct {
				Messages []struct {
					Sequence        uint64
					ClientMessageID string `json:"client_message_id"`
				}
				Pagination struct {
					HasMore bool `json:"has_more"`
				}
			}
			status, body := k.call(http.MethodGet, fmt.Sprintf("/chats/%s/messages?limit=1000&after_sequence=%d", chat, next-1), "bob", "")
			if status != http.StatusOK || json.Unmarshal(body, &page) != nil {
				k.t.Fatalf("reading %s: %d %s", chat, status, body)
			}
			for _, m := range page.Messages {
				if m.Sequence != next {
					k.t.Fatalf("%s: after %d comes %d", chat, next-1, m.Sequence)
				}
				if at, twice := stored[chat+"/"+m.ClientMessageID]; twice {
					k.t.Errorf("%s is stored at %d and at %d", m.ClientMessageID, at, m.Sequence)
				}
				stored[chat+"/"+m.ClientMessageID] = m.Sequence
				next++
			}
			more = page.Pagination.HasMore
		}
		var state struct {
			Acked uint64 `json:"last_acked_sequence"`
		}
		status, body := k.call(http.MethodGet, "/chats/"+chat+"/delivery-state", "bob", "")
		if status != http.StatusOK || json.Unmarshal(body, &state) != nil || state.Acked < k.acked[chat] {
			k.t.Errorf("bob's watermark in %s: %d %s, but he was told %d", chat, status, body, k.acked[chat])
		}
	}
	for id, sequence := range k.confirmed {
		if stored[id] != sequence {
			k.t.Errorf("%s was confirmed as %d, and is stored as %d (0: not at all)", id, sequence, stored[id])
		}
	}
}
