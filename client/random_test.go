package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

func fromEnvironment(t *testing.T, variable string, otherwise int) int {
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

// TestClient_skips_nothing_at_random makes TIDEMARK_CLIENT_RUNS runs (default 12, or 3 if short)
// with the seed TIDEMARK_SEED (default: the time). In each, a bot answers every message of some
// chats. Meanwhile, connections are cut, transports are blocked, answers are lost, the server
// restarts, handlers and saves fail, and the bot dies and comes back. In the end each message was
// handled in order, none was skipped, and each has one answer.
func TestClient_skips_nothing_at_random(t *testing.T) {
	t.Parallel() // It waits more than it works.
	seed := uint64(fromEnvironment(t, "TIDEMARK_SEED", int(time.Now().UnixNano())))
	otherwise := 12
	if testing.Short() {
		otherwise = 3
	}
	runs := fromEnvironment(t, "TIDEMARK_CLIENT_RUNS", otherwise)
	t.Logf("%d runs with TIDEMARK_SEED=%d", runs, seed)
	for n := range runs {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			r := &randomRun{t: t, random: rand.New(rand.NewPCG(seed, uint64(n)))}
			r.do()
		})
	}
}

// randomRun is one run.
type randomRun struct {
	t      *testing.T
	random *rand.Rand
	// blocked is a set of what the proxy refuses: 1 WebSocket, 2 SSE. One call in 4 × lossy is cut
	// off; 0 is none.
	blocked, lossy atomic.Int64
	failing        atomic.Bool
	kept           *cursors
	chats          []tidemark.ChatID
	bots           int

	mu      sync.Mutex // guards the fields below
	handled map[tidemark.ChatID][]tidemark.Message
}

func (r *randomRun) do() {
	o := transporttest.Options{Core: server.Config{
		ResumeWindow: 300 * time.Millisecond, AckInterval: time.Millisecond,
	}}
	o.Storage = stores.Open(r.t)
	s := transporttest.New(r.t, o)
	r.handled, r.kept = map[tidemark.ChatID][]tidemark.Message{}, &cursors{}
	r.kept.fails = func() error {
		if r.failing.Load() && rand.IntN(8) == 0 {
			return errors.New("the disk fails")
		}
		return nil
	}
	network := newNetwork(r.t, s.URL)
	url := proxied(r.t, network.URL, r.disturb)
	r.kept.saved = map[tidemark.ChatID]Cursor{}
	for range 3 {
		chat := s.Group(alice, bob)
		r.chats = append(r.chats, chat)
		r.kept.saved[chat] = Cursor{} // all of it
	}
	r.failing.Store(true)
	b := r.bot(url)
	sent := map[tidemark.ChatID]int{}
	for range 25 {
		chat := r.chats[r.random.IntN(len(r.chats))]
		count := r.random.IntN(30)
		s.Send(alice, chat, sent[chat]+1, count)
		sent[chat] += count
		switch r.random.IntN(9) {
		case 0, 1:
			network.cut()
		case 2:
			r.blocked.Store(r.random.Int64N(4))
			network.cut()
		case 3:
			r.lossy.Store(r.random.Int64N(4))
		case 4: // another process takes over; sessions are gone
			s = transporttest.New(r.t, o)
			network.lead(s.URL)
			network.cut()
		case 5: // the bot dies, or stops
			if r.random.IntN(2) == 0 {
				network.lead("")
				network.cut()
			}
			if err := b.stop(); err != nil {
				r.t.Fatal(err)
			}
			network.lead(s.URL)
			b = r.bot(url)
		}
		_ = signal.Pause(r.t.Context(), time.Duration(r.random.IntN(40))*time.Millisecond)
	}
	r.blocked.Store(0)
	r.lossy.Store(0)
	r.failing.Store(false)
	for _, chat := range r.chats {
		r.whole(s, chat, sent[chat])
	}
	if err := b.stop(); err != nil {
		r.t.Error(err)
	}
}

// bot starts a bot that answers each message once.
func (r *randomRun) bot(url string) *bot {
	b := newBot(r.t, url, stored(r.kept), func(c *Config) {
		c.Token = func(context.Context) (string, error) { return "dev:bob", nil }
		c.Device = "bot"
	})
	b.timing.first, b.timing.confirm = 200*time.Millisecond, 300*time.Millisecond
	b.timing.call, b.timing.wait = time.Second, time.Second
	b.answer = func(ctx context.Context, m tidemark.Message) error {
		if r.failing.Load() && rand.IntN(40) == 0 {
			return errors.New("the handler fails")
		}
		_, err := b.Send(ctx, Draft{
			ID: "echo-" + string(m.MessageID), ChatID: m.ChatID, Content: m.Content,
			Seen: tidemark.SeenThrough(0),
		})
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.handled[m.ChatID] = append(r.handled[m.ChatID], m)
		return nil
	}
	// An attempt of each process before this one may reach the server late, and replace this one.
	b.restarts = r.bots
	r.bots++
	return b.start()
}

// disturb answers in the server's place, or loses its answer.
func (r *randomRun) disturb(w http.ResponseWriter, q *http.Request) bool {
	switch path, blocked := q.URL.Path, r.blocked.Load(); {
	case strings.HasSuffix(path, "/ws") && blocked&1 != 0,
		strings.HasSuffix(path, "/events") && blocked&2 != 0:
		return blockedPage(w)
	case strings.HasSuffix(path, "/ws"), strings.HasSuffix(path, "/events"):
		return false
	}
	if n := r.lossy.Load(); n > 0 && rand.Int64N(4*n) == 0 {
		panic(http.ErrAbortHandler)
	}
	return false
}

// whole waits until everything of a chat is handled, answered and acknowledged, and checks it.
func (r *randomRun) whole(s *transporttest.Stack, chat tidemark.ChatID, sent int) {
	r.t.Helper()
	handled := func() []tidemark.Message {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.handled[chat])
	}
	wait.For(r.t, fmt.Sprintf("%d messages of %s are handled", sent, chat), func() (int, bool) {
		var contents []string
		for _, m := range handled() {
			contents = append(contents, m.Content)
		}
		slices.Sort(contents)
		n := len(slices.Compact(contents))
		return n, n == sent
	})
	wait.Until(r.t, "all is acknowledged", func() bool {
		all, err := s.Server.History(r.t.Context(), bob, server.HistoryRequest{
			Chat: chat, Limit: 1000,
		})
		last := len(all.Messages) - 1
		return err == nil && (last < 0 ||
			marks(r.t, s, bob, chat).Acked == all.Messages[last].Sequence)
	})
	// A message may be handled again, after the bot came back. In between nothing is skipped.
	through := 0
	for i, m := range handled() {
		n, err := strconv.Atoi(m.Content)
		if err != nil || n > through+1 {
			r.t.Fatalf("%s of %s was handled as the %dth, after %d", m.Content, chat, i, through)
		}
		through = max(through, n)
	}
	all, err := s.Server.History(r.t.Context(), bob, server.HistoryRequest{Chat: chat, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	answers := map[string]int{}
	for _, m := range all.Messages {
		if m.SenderID == bob {
			answers[m.Content]++
		}
	}
	for n := 1; n <= sent; n++ {
		if got := answers[fmt.Sprint(n)]; got != 1 {
			r.t.Errorf("message %d of %s has %d answers, want one", n, chat, got)
		}
	}
}
