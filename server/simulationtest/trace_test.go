package simulationtest

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// traces has straight runs, which the browser client's fake server repeats
// (web/client/test/simulation/traces.test.ts).
const traces = "testdata/traces.jsonl"

// traceSeeds is how many straight runs it has. Each kind of request and event is in one of them.
const traceSeeds = 8

// frame is a request, an answer or an event.
type frame map[string]any

// trace records what devices ask, and what they are answered.
type trace struct {
	began time.Time
	lines bytes.Buffer
	// reads is the device whose last request was to read, or "".
	reads string
}

func (tr *trace) line(device, dir string, f frame) {
	line, err := json.Marshal(frame{
		"t": time.Since(tr.began).Milliseconds(), "device": device, "dir": dir, "frame": f,
	})
	if err != nil {
		panic(err) // frames have only names and numbers
	}
	tr.lines.Write(append(line, '\n'))
}

// asks records a request. A nil trace records nothing.
func (tr *trace) asks(device string, f frame) {
	if tr == nil {
		return
	}
	again := f["type"] == "read" && tr.reads == device
	if tr.reads = ""; f["type"] == "read" {
		tr.reads = device
	}
	if !again {
		tr.line(device, "out", f)
	}
}

// answer records an answer, or the code of an error.
func (tr *trace) answer(device string, f frame, err error) {
	if tr == nil {
		return
	}
	if err != nil {
		f = frame{"code": tidemark.CodeOf(err)}
	}
	tr.line(device, "in", f)
}

// events records a page of events, without what no two servers give alike, such as times and random
// ids, and without the fields of messages that these runs do not use.
func (tr *trace) events(device string, events []tidemark.Event) {
	if tr == nil {
		return
	}
	for _, e := range events {
		var payload frame
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			panic(err) // the server wrote it
		}
		maps.DeleteFunc(payload, func(name string, _ any) bool {
			return slices.Contains([]string{
				"message_id", "session_id", "event_id", "incarnation", "created_at", "acked_at",
				"read_at", "heartbeat_seconds", "content_type", "kind", "relation", "revision",
				"mentions", "attachments", "metadata",
			}, name)
		})
		tr.line(device, "in", frame{"type": e.Type, "id": e.ID, "payload": payload})
	}
}

func traceSeen(seen tidemark.Seen) any {
	if !seen.Stated {
		return nil
	}
	return seen.Through
}

func traceCursors(cursors []server.Cursor) []frame {
	all := []frame{}
	for _, c := range cursors {
		all = append(all, frame{"chat": c.Chat, "acked": c.Acked})
	}
	return all
}

func traceRefused(answer server.SyncResponse) []frame {
	all := []frame{}
	for _, c := range answer.Chats {
		all = append(all, frame{"chat": c.Chat, "reset": c.Reset, "code": tidemark.CodeOf(c.Err)})
	}
	return all
}

// readOn lets the device that has just read go on until nothing more comes. How events are cut into
// pages is not determined.
func (w *simulation) readOn() {
	for _, d := range w.devices {
		for w.trace.reads == d.name() && d.conn != nil && !d.idle {
			d.read(-1)
			w.settle()
		}
		if w.trace.reads == d.name() && d.conn != nil {
			d.current.rests = append(d.current.rests, d.current.last)
		}
	}
	w.trace.reads = ""
}

// straight does one run on one node, where only clients misbehave. Each act ends, and has all its
// effects, before the next one begins. So every answer is determined.
func straight(t *testing.T, seed uint64) (lines []byte, failure string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := &simulation{
			dice:    rand.New(rand.NewPCG(seed, 4)),
			raw:     memory.New(),
			reg:     registrymemory.New(),
			log:     slog.New(slog.DiscardHandler),
			enabled: map[fault]bool{},
			counts:  map[string]int{},
			trace:   &trace{began: time.Now()},
		}
		w.truth = newTruth(w)
		defer w.cleanUp()
		for _, f := range []fault{
			badAcks, oldPositions, vanishing, cuts, comings, restAcks, closes,
		} {
			w.enabled[f] = w.roll(2) == 0
		}
		w.found()
		w.boot("a")
		w.settle()
		for _, d := range w.devices {
			d.lazy, d.until = 0, 0
		}
		for range 150 {
			w.client()
			w.settle()
			w.readOn()
			w.pass(authorRetry + 200*time.Millisecond)
			if w.roll(20) == 0 {
				w.pass(resumeWindow + 2*time.Second)
			}
		}
		lines, failure = w.trace.lines.Bytes(), w.failure
	})
	return lines, failure
}

// The committed traces are those of the present core. TIDEMARK_UPDATE=1 writes them. TIDEMARK_TRACE
// names another file to write, with TIDEMARK_TRACE_RUNS runs.
func TestTraces_are_those_of_the_core(t *testing.T) {
	var got bytes.Buffer
	for seed := range number(t, "TIDEMARK_TRACE_RUNS", traceSeeds) {
		lines, failure := straight(t, seed)
		if failure != "" {
			t.Fatalf("seed %d: %s", seed, failure)
		}
		got.Write(lines)
		got.WriteByte('\n')
	}
	if file := os.Getenv("TIDEMARK_TRACE"); file != "" {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if os.Getenv("TIDEMARK_UPDATE") != "" {
		if err := os.WriteFile(traces, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(traces)
	if err != nil {
		t.Fatal(err)
	}
	present, committed := bytes.Split(got.Bytes(), []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range max(len(present), len(committed)) {
		var now, before []byte
		if i < len(present) {
			now = present[i]
		}
		if i < len(committed) {
			before = committed[i]
		}
		if !bytes.Equal(now, before) {
			t.Fatalf("%s is not what the core does now: run TIDEMARK_UPDATE=1 go test -run Traces "+
				"./server/simulationtest; the first difference is line %d:\n-%s\n+%s",
				traces, i+1, before, now)
		}
	}
}
