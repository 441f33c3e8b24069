package test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// quickProgram is the program whose background jobs wait for a twentieth of the time, and which
// writes its heap into a file when it is asked (internal/chores, cmd/tidemark/heapdump.go).
var quickProgram = sync.OnceValues(func() (string, error) {
	if overlay := os.Getenv("TIDEMARK_OVERLAY"); overlay != "" { // of test/mutate
		path := overlay + ".program"
		return path, compile(path, ".", "-tags", "quickjobs", "-overlay", overlay)
	}
	path, err := filepath.Abs("../.build/test/tidemark-quick")
	if err != nil {
		return "", err
	}
	return path, compile(path, ".", "-tags", "quickjobs")
})

// buildQuick returns the path of that program.
func buildQuick(t *testing.T) (binary string) {
	t.Helper()
	binary, err := quickProgram()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// The fates of texts. A text of kept stays, and shows that the searches find what is there.
const (
	edited   = "edited"
	redacted = "redacted"
	expired  = "expired"
	deleted  = "deleted"
	erased   = "erased"
	kept     = "kept"
)

// gone are the fates after which a text is nowhere.
var gone = []string{edited, redacted, expired, deleted, erased}

// canarySite is one server of one or two nodes on one store. Its users write texts of each fate.
type canarySite struct {
	t     *testing.T
	nodes []*process
	// words has what the texts of each fate begin with. It is nowhere else.
	words map[string]string
	// count is how many texts of a fate there are.
	count int
	// sequences are those of alice's texts in the chat "team".
	sequences map[string]int64
	key       string
	place     canaryPlace
	hook      *canaryHook
	// streams are those of bob and carol, and of zoe.
	streams  []*rawStream
	load     sync.WaitGroup
	stopLoad context.CancelFunc
	// devices are alice's, one of each transport. They run until holds.
	devices     []*device
	stopDevices context.CancelFunc
	running     sync.WaitGroup
	ledger      []string // the flags
	// zoe is the id of the user who is erased, and direct their chat with bob.
	zoe, direct string
	// private is the last message there.
	private int64
}

// canaryPlace is where a server stores: how its bytes are searched, copied and restored.
type canaryPlace interface {
	// url is that of the store.
	url() string
	// tables returns which tables have a text, by an own connection.
	tables(text string) []string
	// bytes returns which files have a text, after what docs/privacy.md says.
	bytes(texts map[string]string) []string
	// copy returns another place with a copy of the data.
	copy() canaryPlace
	// disconnect ends the connections of nodes, which have the last bytes in their buffers.
	disconnect()
}

// TestCanaries_erased_nowhere_after_their_time writes random texts under load. TIDEMARK_CANARIES
// (12) are of each fate: edited, redacted, expired, erased, or of a deleted chat. Later none is
// in an answer, a stream, an event of a webhook, a table, an index, a file of the database or
// the heap of a node. A restored backup lacks those of an erased user before it serves.
// Meanwhile nothing is missing, and no tick falls.
// (Rules: erased_nowhere, deleted_is_gone, floor_recorded, redacted_stays, sequence_gapless,
// unread_exact, tick_monotone.)
func TestCanaries_erased_nowhere_after_their_time(t *testing.T) {
	t.Parallel() // It waits more than it works.
	binary := buildQuick(t)
	for name, of := range map[string]struct {
		nodes int
		place func(t *testing.T) canaryPlace
	}{
		"sqlite": {1, func(t *testing.T) canaryPlace {
			return &canaryFile{t: t, binary: binary, path: filepath.Join(t.TempDir(), "a.db")}
		}},
		"postgres": {2, func(t *testing.T) canaryPlace {
			// Segments that are recycled keep what they had until they are written over.
			server := postgres.Start(t, "wal_recycle = off", "min_wal_size = 32MB",
				"autovacuum = off")
			return &canaryDatabase{t: t, server: server, of: server.Database(t)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCanarySite(t, binary, of.nodes, of.place(t))
			began := time.Now()
			took := func(what string) { t.Logf("%s: %v", what, time.Since(began)) }
			s.write()
			s.finds("before", gone...)
			copied := s.place.copy()
			took("all texts are written")
			s.meet()
			took("all texts have met their fates")
			s.finds("afterwards")
			s.searchEvents()
			s.endLoad()
			s.holds()
			took("answers and events")
			s.searchHeaps()
			took("heaps")
			for _, p := range s.nodes {
				s.searchLog(p)
			}
			s.searchStore()
			s.searchRestored(binary, copied)
		})
	}
}

// newCanarySite imports a chat with old texts, and starts the nodes.
func newCanarySite(t *testing.T, binary string, nodes int, place canaryPlace) *canarySite {
	t.Helper()
	s := &canarySite{
		t: t, words: map[string]string{}, sequences: map[string]int64{},
		count: fromEnvironment(t, "TIDEMARK_CANARIES", 12), place: place,
		hook: newCanaryHook(t),
	}
	for _, fate := range append([]string{kept}, gone...) {
		s.words[fate] = randomWord()
	}
	s.zoe = "zoe-" + randomWord()
	first := processOf(t, binary)
	key, keys := apiKey(t, binary, "--scope", "admin,chats,erase,export")
	s.key = key
	put(t, filepath.Join(first.dir, "ledger.key"), strings.Repeat("k", 32))
	s.ledger = []string{
		"--ledger", filepath.Join(first.dir, "ledger"),
		"--ledger-key-file", filepath.Join(first.dir, "ledger.key"), "--api-keys-file", keys,
	}
	s.importOld(first)
	for n := range nodes {
		p := processOf(t, binary)
		p.url = place.url()
		// The rests of jobs must be longer than the grace period.
		// A session that is resumed late is there, however slow the machine is.
		p.flags = append([]string{"--dev", "--grace", "1s", "--resume-window", "1h"}, s.ledger...)
		p.env = []string{"HEAP_DUMP=" + filepath.Join(p.dir, "heap")}
		if nodes > 1 {
			p.flags = append(p.flags, "--cluster", "postgres", "--cluster-listen", "127.0.0.1:0",
				"--node", fmt.Sprint("n", n))
			p.env = append(p.env, "TIDEMARK_CLUSTER_SECRET="+strings.Repeat("s", 32))
		}
		p.start()
		s.nodes = append(s.nodes, p)
	}
	return s
}

// randomWord returns a word that is nowhere else.
func randomWord() string {
	letters := make([]byte, 20)
	for i := range letters {
		letters[i] = byte('a' + rand.IntN(26))
	}
	return string(letters)
}

// text returns the nth text of a fate.
func (s *canarySite) text(fate string, n int) string { return fmt.Sprint(s.words[fate], "-", n) }

// importOld imports the chat "old", whose texts expire.
func (s *canarySite) importOld(p *process) {
	s.t.Helper()
	var b strings.Builder
	b.WriteString(`{"type":"tidemark","version":1}
{"type":"chat","chat_id":"old","chat_type":"group","created_at":"2024-01-01T00:00:00Z",` +
		`"member_ids":["alice","bob","carol","late"]}` + "\n")
	for n := range s.count {
		text := s.text(expired, n)
		fmt.Fprintf(&b, `{"type":"message","message_id":%q,"sender_id":"alice","created_at":`+
			`"2024-01-02T00:00:00Z","content":%q,"metadata":{"about":%q},"attachments":`+
			`[{"name":%q}],"mentions":{"user_ids":["bob"]}}`+"\n", text, text, text, text)
	}
	b.WriteString(`{"type":"end"}` + "\n")
	path := filepath.Join(p.dir, "old.jsonl")
	put(s.t, path, b.String())
	for _, args := range [][]string{
		{"migrate", "up", "--store", s.place.url()},
		{"import", "--from", "jsonl", "--store", s.place.url(), path},
	} {
		if said, err := p.command(args...); err != nil {
			s.t.Fatalf("%q: %v: %s", args, err, said)
		}
	}
}

// node returns a node by its number, of those that there are.
func (s *canarySite) node(n int) *process { return s.nodes[n%len(s.nodes)] }

// as returns a user at a node.
func (s *canarySite) as(n int, name string) user {
	// A connection that stays open has the last bytes of a request in its buffer.
	return user{
		name: name, url: "http://" + s.node(n).address,
		client: &http.Client{
			Timeout: deadline, Transport: &http.Transport{DisableKeepAlives: true},
		},
	}
}

// backend returns the operator, at a node.
func (s *canarySite) backend(n int) user {
	u := s.as(n, "backend")
	u.token = s.key
	return u
}

// say sends a message that has its text wherever a message can have one.
func (s *canarySite) say(u user, chat, id, text string, more map[string]any) (m message) {
	s.t.Helper()
	body := map[string]any{
		"client_message_id": id, "content": text, "metadata": map[string]any{"about": text},
		"attachments": []any{map[string]any{"name": text}},
	}
	for name, value := range more {
		body[name] = value
	}
	u.call(s.t, http.MethodPost, "/chats/"+chat+"/messages", body, &m)
	return m
}

// change sends a message that changes another one.
func (s *canarySite) change(u user, chat, kind string, sequence int64, more map[string]any) {
	s.t.Helper()
	relation := map[string]any{"sequence": sequence}
	body := map[string]any{
		"client_message_id": fmt.Sprint(kind, "-", sequence), "kind": kind, "relation": relation,
	}
	for name, value := range more {
		if name == "emoji" {
			relation[name] = value
			continue
		}
		body[name] = value
	}
	u.call(s.t, http.MethodPost, "/chats/"+chat+"/messages", body, nil)
}

// write makes the chats, opens the streams, begins the load, and writes the texts.
func (s *canarySite) write() {
	t := s.t
	t.Helper()
	alice, zoe := s.as(0, "alice"), s.as(1, s.zoe)
	for _, chat := range []string{"team", "doomed"} {
		alice.call(t, http.MethodPost, "/chats", map[string]any{
			"type": "group", "chat_id": chat,
			"member_ids": []string{"bob", "carol", "late", s.zoe},
		}, nil)
	}
	s.direct = zoe.direct(t, "bob")
	s.hook.create(t, s.backend(0))
	s.streams = []*rawStream{
		newRawStream(t, s.as(0, "bob")), newRawStream(t, s.as(1, "carol")),
		newRawStream(t, zoe),
	}
	s.begin()
	for n := range s.count {
		at := s.as(n, "alice")
		for _, fate := range []string{edited, redacted} {
			text := s.text(fate, n)
			s.sequences[text] = s.say(at, "team", fmt.Sprint(fate, n), text, nil).Sequence
		}
		s.say(at, "team", fmt.Sprint("k", n), s.text(kept, n), map[string]any{
			"mentions": map[string]any{"user_ids": []string{s.zoe}},
		})
		s.say(at, "doomed", s.text(deleted, n), s.text(deleted, n), nil)
		own := s.say(zoe, "team", s.text(erased, n), s.text(erased, n), nil)
		s.private = s.say(zoe, s.direct, fmt.Sprint("d", n), s.text(erased, s.count+n),
			nil).Sequence
		s.change(zoe, "team", "react", own.Sequence, map[string]any{"emoji": "👍"})
		// The text of an edit is in the message that it changes, and goes with that.
		s.change(at, "old", "edit", int64(n+1), map[string]any{
			"content": s.text(expired, s.count+n),
		})
	}
	s.change(alice, "team", "pin", 2, nil)
	// All of this is under way nowhere when the texts meet their fates.
	last := func(fate string) string { return s.text(fate, s.count-1) }
	edit, private := s.text(expired, 2*s.count-1), s.text(erased, 2*s.count-1)
	s.streams[0].has(t, last(edited), last(redacted), last(deleted), last(erased), edit, private)
	s.streams[1].has(t, last(edited), last(redacted), last(deleted), last(erased), edit)
	s.streams[2].has(t, last(edited), last(redacted), last(deleted), last(erased), private)
	s.hook.has(t, last(edited), last(redacted), last(deleted), last(erased), edit, private)
	s.settle()
	s.streams[1].cut() // It is resumed later, from its first event on.
}

// settle waits until nodes have stored what they write later of the user who is erased: what the
// user has read, and what waits for them. The quick program erases without long rests, so a machine
// that stalls could write that when the erasure has ended.
func (s *canarySite) settle() {
	t := s.t
	t.Helper()
	zoe := s.as(1, s.zoe)
	// This answer comes when the marks of the author are stored, too: all are of one row.
	zoe.ack(t, "team", 5)
	zoe.ack(t, s.direct, s.private)
	var waiting []byte
	eventually(t, "what waits for the user is stored", func() bool {
		var err error
		_, waiting, err = zoe.try(t.Context(), http.MethodGet, "/pending", nil)
		must(t, err)
		return bytes.Contains(waiting, []byte(`"team"`)) &&
			bytes.Contains(waiting, []byte(`"doomed"`))
	}, func() string { return string(waiting) })
}

// begin begins to send texts that stay, until endLoad. Each is longer than a connection's buffer.
func (s *canarySite) begin() {
	var ctx context.Context
	ctx, s.stopLoad = context.WithCancel(context.Background())
	running, stop := context.WithCancel(context.Background())
	s.stopDevices = stop
	s.t.Cleanup(s.endLoad) // also if the test fails: what sends may not outlive it
	s.t.Cleanup(func() {
		stop()
		s.running.Wait()
	})
	for _, over := range []transport{overWebSocket, overSSE, overPoll} {
		d := newDevice(s.as(int(over), "alice"), over)
		s.devices = append(s.devices, d)
		s.running.Go(func() { d.run(running) })
	}
	for n, chat := range []string{"team", "old"} {
		s.load.Go(func() {
			fell, answers := s.as(n+1, "bob").ticksOf(ctx, chat)
			if len(fell) > 0 || answers == 0 {
				s.t.Errorf("%s: of %d answers, ticks fell in %q", chat, answers, fell)
			}
		})
		s.load.Go(func() {
			u := s.as(n, "alice")
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(100 * time.Millisecond):
				}
				u.call(s.t, http.MethodPost, "/chats/"+chat+"/messages", map[string]any{
					"client_message_id": fmt.Sprint("load-", i),
					"content":           s.words[kept] + strings.Repeat(" more", 1_000),
				}, nil)
			}
		})
	}
}

func (s *canarySite) endLoad() {
	s.stopLoad()
	s.load.Wait()
}

// holds checks that nothing is missing in the chats that are left, to no user and no device.
func (s *canarySite) holds() {
	t := s.t
	t.Helper()
	for n := range s.nodes {
		for _, name := range []string{"alice", "bob", "carol", "late"} {
			for _, chat := range []string{"team", "old"} {
				s.as(n, name).holds(t, chat)
			}
		}
		s.as(n, "bob").holds(t, s.direct)
	}
	for _, d := range s.devices {
		for _, chat := range []string{"team", "old"} {
			var c struct {
				Head int64 `json:"head_sequence"`
			}
			s.as(0, "bob").call(t, http.MethodGet, "/chats/"+chat, nil, &c)
			until(t, "a device has all of "+chat, func() bool { return d.heads()[chat] == c.Head },
				func() string { return fmt.Sprint(d.how(), d.heads(), " of ", c.Head) })
		}
		if _, faults := d.observed(); len(faults) > 0 {
			t.Error(strings.Join(faults, "; "))
		}
	}
	s.stopDevices()
	s.running.Wait()
}

// meet lets each text meet its fate, and waits until that has ended.
func (s *canarySite) meet() {
	t := s.t
	t.Helper()
	for n := range s.count {
		at := s.as(n, "alice")
		s.change(at, "team", "edit", s.sequences[s.text(edited, n)],
			map[string]any{"content": "better"})
		s.change(at, "team", "redact", s.sequences[s.text(redacted, n)], nil)
	}
	operator := s.backend(0)
	operator.call(t, http.MethodPatch, "/chats/old", map[string]any{"keep_days": 8}, nil)
	operator.call(t, http.MethodDelete, "/chats/doomed", nil, nil)
	operator.call(t, http.MethodPost, "/users/"+s.zoe+"/erasure", nil, nil)
	var erasure struct{ State string }
	eventually(t, "the user is erased, the chat is deleted, and old messages have expired",
		func() bool {
			s.backend(1).call(t, http.MethodGet, "/users/"+s.zoe+"/erasure", nil, &erasure)
			return erasure.State == "erased" && s.sum("tidemark_chats_deleted_total") == 1 &&
				s.sum("tidemark_messages_expired_total") >= s.count
		}, func() string {
			return fmt.Sprint(erasure, " ", s.sum("tidemark_chats_deleted_total"), " deleted, ",
				s.sum("tidemark_messages_expired_total"), " expired")
		})
}

// sum adds a metric of all nodes.
func (s *canarySite) sum(name string) (sum int) {
	for _, p := range s.nodes {
		n, err := strconv.Atoi(metricOf(s.t, p.address, name))
		must(s.t, err)
		sum += n
	}
	return sum
}
