package server_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

var update = flag.Bool("update", false, "rewrite the transcripts of the scenarios")

// TestScenarios runs the flows of the specification (testdata/*.txt) on the store of the test run.
// A scenario is a list of blocks, separated by empty lines. A block is a command, a line of four
// dashes, and the transcript that the command must give.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runScenario(t, file) })
		})
	}
}

func runScenario(t *testing.T, file string) {
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sc := &scenario{
		t:       t,
		store:   stores.Open(t),
		reg:     registrymemory.New(),
		bus:     local.New(),
		clients: map[string]*client{},
	}
	sc.boot()
	var got strings.Builder
	for _, block := range strings.Split(strings.TrimSpace(string(want)), "\n\n") {
		head, _, runs := strings.Cut(block, "\n----")
		got.WriteString(head)
		if runs {
			got.WriteString("\n----\n")
			for _, command := range strings.Split(head, "\n") {
				if !strings.HasPrefix(command, "#") {
					got.WriteString(sc.run(command))
				}
			}
		} else {
			got.WriteString("\n")
		}
		got.WriteString("\n")
	}
	sc.halt()
	transcript := strings.TrimSpace(got.String()) + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(transcript), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	wantLines, gotLines := strings.Split(string(want), "\n"), strings.Split(transcript, "\n")
	if diff := cmp.Diff(wantLines, gotLines); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// scenario is the state of a running scenario: a server and its clients by name. The name of a
// client whose connection was cut begins with "-".
type scenario struct {
	t       *testing.T
	store   storage.Store
	reg     *registrymemory.Registry
	bus     *local.Bus
	core    *core
	clients map[string]*client
}

func (sc *scenario) boot() {
	cfg := server.Config{
		Storage:  sc.store,
		Registry: sc.reg,
		Nodes:    sc.reg,
		Bus:      sc.bus,
		Logger:   quiet(),
	}
	s, err := server.New(cfg)
	if err != nil {
		sc.t.Fatal(err)
	}
	sc.core = &core{Server: s, t: sc.t, ctx: sc.t.Context()}
	if err := s.Start(sc.core.ctx); err != nil {
		sc.t.Fatal(err)
	}
}

func (sc *scenario) halt() {
	if err := sc.core.Stop(sc.core.ctx); err != nil {
		sc.t.Errorf("Stop: %v", err)
	}
	clear(sc.clients)
}

// run runs one command. It returns the command's answer, and then what every connected client
// received.
func (sc *scenario) run(command string) string {
	var out strings.Builder
	words := strings.Fields(command)
	result, err := sc.do(words[0], words[1:])
	var e *tidemark.Error
	switch {
	case errors.As(err, &e):
		fmt.Fprintf(&out, "%s\n", e.Code)
	case err != nil:
		sc.t.Fatalf("%s: %v", command, err)
	}
	for _, line := range result {
		fmt.Fprintln(&out, line)
	}
	settle()
	names := make([]string, 0, len(sc.clients))
	for name := range sc.clients {
		if !strings.HasPrefix(name, "-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, line := range sc.clients[name].drain() {
			fmt.Fprintf(&out, "  %s < %s\n", name, line)
		}
	}
	if out.Len() == 0 {
		return "ok\n"
	}
	return out.String()
}

func number(word string) tidemark.Sequence {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%q is no number", word))
	}
	return tidemark.Sequence(n)
}

func (sc *scenario) do(verb string, args []string) ([]string, error) {
	switch verb {
	case "direct", "group", "group-since-join":
		return sc.create(verb, args)
	case "add", "remove":
		return sc.member(verb, args)
	case "online", "resume":
		return nil, sc.connect(verb, args)
	case "offline", "drop", "forget":
		return nil, sc.disconnect(verb, args[0])
	case "wait":
		d, err := time.ParseDuration(args[0])
		time.Sleep(d)
		return nil, err
	case "restart":
		sc.halt()
		sc.reg, sc.bus = registrymemory.New(), local.New()
		sc.boot()
		return nil, nil
	case "send", "reply":
		return sc.send(args)
	case "ack", "read":
		a := server.Ack{Chat: tidemark.ChatID(args[1])}
		if verb == "ack" {
			a.Acked = number(args[2])
		} else {
			a.Read = number(args[2])
		}
		sc.clients[args[0]].Ack(a)
		return nil, nil
	case "patch":
		return sc.patch(args)
	default:
		return sc.ask(verb, args)
	}
}

// create creates a chat: direct CHAT USER USER, group CHAT USER…, group-since-join CHAT USER…
func (sc *scenario) create(verb string, args []string) ([]string, error) {
	r := server.CreateChatRequest{ChatID: tidemark.ChatID(args[0]), Type: tidemark.Group}
	if verb == "direct" {
		r.Type = tidemark.Direct
	}
	if verb == "group-since-join" {
		r.History = tidemark.HistorySinceJoin
	}
	for _, user := range args[1:] {
		r.MemberIDs = append(r.MemberIDs, tidemark.UserID(user))
	}
	chat, _, err := sc.core.CreateChat(sc.core.ctx, server.Caller{User: r.MemberIDs[0]}, r)
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("chat %s: %d members", chat.ID, chat.MemberCount)}, nil
}

// member adds or removes a member: add OWNER CHAT USER, remove CALLER CHAT USER
func (sc *scenario) member(verb string, args []string) ([]string, error) {
	caller := server.Caller{User: tidemark.UserID(args[0])}
	chat, user := tidemark.ChatID(args[1]), tidemark.UserID(args[2])
	if verb == "remove" {
		return nil, sc.core.RemoveMember(sc.core.ctx, caller, chat, user)
	}
	_, err := sc.core.AddMembers(sc.core.ctx, caller, chat, []tidemark.UserID{user}, "")
	return nil, err
}

// connect opens or resumes a session: online CLIENT, resume CLIENT [POSITION]. A client is USER or
// USER/DEVICE.
func (sc *scenario) connect(verb string, args []string) error {
	name := args[0]
	user, device, _ := strings.Cut(name, "/")
	r := openRequest{User: tidemark.UserID(user), Device: tidemark.DeviceID(device), Statuses: true}
	var last uint64
	if old := sc.clients["-"+name]; verb == "resume" && old != nil {
		r.Session, r.After, last = old.Session(), old.last, old.last
		if len(args) > 1 {
			r.After = uint64(number(args[1]))
		}
	}
	delete(sc.clients, "-"+name)
	conn, err := sc.core.Open(sc.core.ctx, r)
	if err != nil {
		return err
	}
	sc.clients[name] = &client{Connection: conn, t: sc.t, user: r.User, last: last}
	return nil
}

// disconnect ends a connection. offline CLIENT says goodbye. drop CLIENT cuts the connection, and
// the session stays. forget CLIENT cuts it and waits until the session has ended.
func (sc *scenario) disconnect(verb, name string) error {
	c := sc.clients[name]
	delete(sc.clients, name)
	switch verb {
	case "offline":
		return c.Close(sc.core.ctx)
	case "drop":
		c.Detach()
		// Under this name, run does not drain it, and resume finds it.
		sc.clients["-"+name] = c
		return nil
	default:
		c.Detach()
		time.Sleep(70 * time.Second)
		return nil
	}
}

// send sends a message: send USER CHAT TEXT… [seen=N] [key=ID]
func (sc *scenario) send(args []string) ([]string, error) {
	sc.core.sent++
	r := tidemark.Draft{
		ChatID: tidemark.ChatID(args[1]), ClientMessageID: fmt.Sprintf("m%d", sc.core.sent),
	}
	var text []string
	for _, word := range args[2:] {
		switch key, value, ok := strings.Cut(word, "="); {
		case ok && key == "seen":
			r.Seen = tidemark.SeenThrough(number(value))
		case ok && key == "key":
			r.ClientMessageID = value
		default:
			text = append(text, word)
		}
	}
	r.Content = strings.Join(text, " ")
	sent, err := sc.core.Send(sc.core.ctx, tidemark.UserID(args[0]), r)
	if err != nil {
		return nil, err
	}
	if sent.Duplicate {
		return []string{fmt.Sprintf("✓ %d (again)", sent.Message.Sequence)}, nil
	}
	return []string{fmt.Sprintf("✓ %d", sent.Message.Sequence)}, nil
}

// patch acknowledges by the API: patch USER CHAT acked=N read=N
func (sc *scenario) patch(args []string) ([]string, error) {
	a := server.Ack{Chat: tidemark.ChatID(args[1])}
	for _, word := range args[2:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "acked":
			a.Acked = number(value)
		case "read":
			a.Read = number(value)
		}
	}
	results, err := sc.core.Acknowledge(sc.core.ctx, tidemark.UserID(args[0]), []server.Ack{a})
	if err != nil {
		return nil, err
	}
	if results[0].Err != nil {
		return nil, results[0].Err
	}
	st := results[0].State
	return []string{fmt.Sprintf("acked %d, read %d", st.Acked, st.Read)}, nil
}
