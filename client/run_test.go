package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

func TestRun_handles_and_acknowledges(t *testing.T) {
	overEvery(t, func(t *testing.T, over Transport) {
		s := transporttest.New(t, quick())
		chat := s.Group(alice, bob)
		s.Send(alice, chat, 1, 3)
		b := newBot(t, s.URL, only(over)).start()
		b.gets(chat, 1, 3)
		own := Draft{ChatID: chat, Content: "own", Seen: tidemark.SeenThrough(0)}
		if _, err := b.Send(t.Context(), own); err != nil {
			t.Fatal(err)
		}
		s.Send(alice, chat, 4, 12)
		b.gets(chat, 1, 15) // without the own message
		isAcked(t, s, bob, chat, 16)
		if got := marks(t, s, bob, chat).Read; got != 0 {
			t.Errorf("read is %d, want 0: handling reads nothing", got)
		}
		if err := b.Read(t.Context(), chat, 16); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "bob has read", func() bool { return marks(t, s, bob, chat).Read == 16 })
		if err := b.stop(); err != nil {
			t.Errorf("Run ended with %v", err)
		}
		if sessions, err := s.Server.Sessions(t.Context(), bob); err != nil || len(sessions) > 0 {
			t.Errorf("sessions %v are left, %v", sessions, err)
		}
	})
}

func TestRun_message_arrives_as_it_was_sent(t *testing.T) {
	s := transporttest.New(t, quick())
	a := newBot(t, s.URL, func(c *Config) {
		c.User = alice
		c.Token = func(context.Context) (string, error) { return s.Backend, nil }
	})
	chat, err := a.CreateChat(t.Context(), NewChat{
		Type: tidemark.Group, ID: "g", Members: []tidemark.UserID{bob}, Name: "G",
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newBot(t, s.URL).start()
	sent, err := a.Send(t.Context(), Draft{
		ChatID: chat.ID, Content: "é <b>\u2028", ContentType: "text/markdown",
		Attachments: []byte(`[{"name":"a"}]`), Metadata: []byte(`{"k":1}`),
		Kind: tidemark.KindSystem, Mentions: tidemark.NewMentions(true, []tidemark.UserID{bob}),
		Seen: tidemark.SeenThrough(0), SendBy: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the message arrives", func() bool { return len(b.contents(chat.ID)) == 1 })
	b.mu.Lock()
	got := b.handled[0]
	b.mu.Unlock()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", sent) {
		t.Errorf("got %+v\nwant %+v", got, sent)
	}
	if sent.Sequence != 1 || sent.SenderID != alice || !sent.Mentions.All ||
		string(sent.Metadata) != `{"k":1}` || sent.CreatedAt.IsZero() {
		t.Errorf("sent %+v", sent)
	}
	members, err := b.Members(t.Context(), chat.ID)
	if err != nil || len(members) != 2 || members[0].UserID != alice {
		t.Errorf("members %+v, %v", members, err)
	}
	history, more, err := b.History(t.Context(), chat.ID, 0, 10)
	if err != nil || more || len(history) != 1 || history[0].MessageID != sent.MessageID {
		t.Errorf("history %+v, %v, %v", history, more, err)
	}
}

func TestRun_resumes_after_a_cut(t *testing.T) {
	t.Parallel() // It waits more than it works.
	overEvery(t, func(t *testing.T, over Transport) {
		s := transporttest.New(t, quick())
		n := newNetwork(t, s.URL)
		chat := s.Group(alice, bob)
		b := newBot(t, n.URL, only(over)).start()
		for i := range 4 {
			s.Send(alice, chat, 10*i+1, 5)
			b.gets(chat, 1, 10*i+5)
			n.cut()
			s.Send(alice, chat, 10*i+6, 5)
			b.gets(chat, 1, 10*i+10)
		}
		isAcked(t, s, bob, chat, 40)
		sessions, err := s.Server.Sessions(t.Context(), bob)
		if err != nil || len(sessions) != 1 {
			t.Errorf("bob has %d sessions, %v; want the first one", len(sessions), err)
		}
	})
}

// TestClient_never_stuck_behind_a_proxy: a proxy refuses WebSockets with a page of its own, or
// holds back what a stream sends. The client finds the transport that works.
func TestClient_never_stuck_behind_a_proxy(t *testing.T) {
	t.Parallel() // It waits more than it works.
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
	for _, tc := range []struct {
		name         string
		socket, poll func(http.ResponseWriter, *http.Request) bool
		events       func(http.ResponseWriter, *http.Request) bool
		want         string
		// first is how long the client waits for the first event, if not for long.
		first time.Duration
	}{
		{
			name: "WebSocket is refused", want: "sse",
			socket: func(w http.ResponseWriter, _ *http.Request) bool { return blockedPage(w) },
		},
		{name: "WebSocket is held back", want: "sse", socket: hang, first: 5 * time.Second},
		{
			name: "WebSocket is refused, SSE held back", want: "longpoll",
			socket: func(w http.ResponseWriter, _ *http.Request) bool { return blockedPage(w) },
			events: hang, first: 300 * time.Millisecond,
		},
		{
			name: "WebSocket and SSE are answered with 200", want: "longpoll",
			socket: portal, events: portal,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := transporttest.New(t, quick())
			chat := s.Group(alice, bob)
			url := proxied(t, s.URL, func(w http.ResponseWriter, r *http.Request) bool {
				switch f := tc.socket; {
				case strings.HasSuffix(r.URL.Path, "/ws") && f != nil:
					return f(w, r)
				case strings.HasSuffix(r.URL.Path, "/events") && tc.events != nil:
					return tc.events(w, r)
				}
				return false
			})
			b := newBot(t, url)
			if tc.first > 0 {
				b.timing.first = tc.first
			}
			b.start()
			s.Send(alice, chat, 1, 5)
			b.gets(chat, 1, 5)
			isAcked(t, s, bob, chat, 5)
			if got := b.streams(); !slices.Equal(got, []string{tc.want}) {
				t.Errorf("streams over %v, want one over %s", got, tc.want)
			}
		})
	}
}

// portal answers as a captive portal does.
func portal(w http.ResponseWriter, _ *http.Request) bool {
	w.Header().Set("Content-Type", "text/html")
	_, _ = w.Write([]byte("<h1>Log in</h1>"))
	return true
}

// TestRun_server_restarts: another server on the same data takes over. It knows no session.
func TestRun_server_restarts(t *testing.T) {
	overEvery(t, func(t *testing.T, over Transport) {
		o := quick()
		o.Storage = stores.Open(t)
		first := transporttest.New(t, o)
		second := transporttest.New(t, o)
		n := newNetwork(t, first.URL)
		chat := first.Group(alice, bob)
		b := newBot(t, n.URL, only(over)).start()
		first.Send(alice, chat, 1, 25)
		b.gets(chat, 1, 25)
		n.lead("")
		n.cut()
		second.Send(alice, chat, 26, 10)
		n.lead(second.URL)
		b.gets(chat, 1, 35)
		second.Send(alice, chat, 36, 10)
		b.gets(chat, 1, 45)
		isAcked(t, second, bob, chat, 45)
	})
}

// TestClient_acks_handled_only: what was not handled, or not saved, is not acknowledged, and comes
// again. Another chat does not wait for it.
func TestClient_acks_handled_only(t *testing.T) {
	t.Parallel() // It waits more than it works.
	overEvery(t, func(t *testing.T, over Transport) {
		t.Parallel()
		s := transporttest.New(t, quick())
		poison, other := s.Group(alice, bob), s.Group(alice, bob)
		kept := &cursors{}
		b := newBot(t, s.URL, only(over), stored(kept))
		var mu sync.Mutex
		tries, healed := 0, false
		b.answer = func(_ context.Context, m tidemark.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if m.ChatID == poison && m.Content == "3" {
				if tries++; !healed {
					return errors.New("poison")
				}
			}
			return nil
		}
		b.start()
		s.Send(alice, poison, 1, 100) // more than fits into the chat's queue
		s.Send(alice, other, 1, 100)
		b.gets(other, 1, 100)
		b.gets(poison, 1, 2)
		if err := b.Read(t.Context(), poison, 50); err != nil {
			t.Fatal(err)
		}
		isAcked(t, s, bob, other, 100)
		wait.Until(t, "it was tried again", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return tries > 2
		})
		wait.Until(t, "what was handled is read", func() bool {
			return marks(t, s, bob, poison).Read == 2
		})
		if got := marks(t, s, bob, poison); got.Acked != 2 || got.Read != 2 {
			t.Errorf("marks of the poisoned chat are %+v, want 2", got)
		}
		if got := kept.of(poison).Sequence; got != 2 {
			t.Errorf("the cursor is %d, want 2", got)
		}
		mu.Lock()
		healed = true
		mu.Unlock()
		b.gets(poison, 1, 100)
		isAcked(t, s, bob, poison, 100)
		wait.Until(t, "bob has read", func() bool { return marks(t, s, bob, poison).Read == 50 })
	})
}

func TestClient_acks_handled_and_saved(t *testing.T) {
	s := transporttest.New(t, quick())
	chat := s.Group(alice, bob)
	broken, failed := true, 0
	kept := &cursors{}
	kept.fails = func() error {
		if broken {
			failed++
			return errors.New("the disk is full")
		}
		return nil
	}
	b := newBot(t, s.URL, stored(kept)).start()
	s.Send(alice, chat, 1, 2)
	b.gets(chat, 1, 1)
	wait.Until(t, "it was not saved twice", func() bool {
		kept.mu.Lock()
		defer kept.mu.Unlock()
		return failed > 1
	})
	if got := marks(t, s, bob, chat).Acked; got != 0 {
		t.Errorf("acknowledged %d, and nothing was saved", got)
	}
	kept.mu.Lock()
	broken = false
	kept.mu.Unlock()
	b.gets(chat, 1, 2) // the first one is not handled again
	isAcked(t, s, bob, chat, 2)
}

// TestRun_goes_on_from_its_cursor: a new process begins after what the last one has saved, whether
// the server's watermark is above or below that.
func TestRun_goes_on_from_its_cursor(t *testing.T) {
	overEvery(t, func(t *testing.T, over Transport) {
		s := transporttest.New(t, quick())
		chat, quiet := s.Group(alice, bob), s.Group(alice, bob)
		s.Send(alice, chat, 1, 10)
		s.Send(alice, quiet, 1, 10)
		kept := &cursors{}
		b := newBot(t, s.URL, only(over), stored(kept)).start()
		b.gets(chat, 1, 10)
		b.gets(quiet, 1, 10)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		s.Send(alice, chat, 11, 10)
		s.Send(alice, quiet, 11, 10)
		s.Acknowledge(bob, quiet, 20) // by another device
		again := newBot(t, s.URL, only(over), stored(kept)).start()
		again.gets(chat, 11, 20)
		again.gets(quiet, 11, 20) // although no message comes any more
	})
}

// TestClient_memory_is_bounded: a handler that is slower than the stream gets everything, in order
// and once, and what waits for it has a bound.
func TestClient_memory_is_bounded(t *testing.T) {
	s := transporttest.New(t, quick())
	var chats []tidemark.ChatID
	for range 30 {
		chats = append(chats, s.Group(alice, bob))
	}
	b := newBot(t, s.URL)
	release := make(chan struct{})
	b.answer = func(context.Context, tidemark.Message) error {
		<-release
		return nil
	}
	b.start()
	const each = 150
	for _, chat := range chats {
		s.Send(alice, chat, 1, each)
	}
	in := func() (queued, seen int) {
		box := b.running().inbox
		box.mu.Lock()
		defer box.mu.Unlock()
		for _, c := range box.chats {
			seen += int(c.progress.seen)
			if len(c.queue) > mostOfChat {
				t.Errorf("%d entries of one chat are queued", len(c.queue))
			}
		}
		return box.queued, seen
	}
	wait.For(t, "the stream has brought everything", func() (int, bool) {
		_, seen := in()
		return seen, seen == len(chats)*each
	})
	if queued, _ := in(); queued > mostQueued {
		t.Errorf("%d messages are queued, at most %d may be", queued, mostQueued)
	}
	close(release)
	for _, chat := range chats {
		b.gets(chat, 1, each)
		isAcked(t, s, bob, chat, each)
	}
	if queued, _ := in(); queued != 0 {
		t.Errorf("%d messages count as queued at the end", queued)
	}
}

// TestClient_stays_replaced: two clients with one device would replace each other for ever.
func TestClient_stays_replaced(t *testing.T) {
	overEvery(t, func(t *testing.T, over Transport) {
		s := transporttest.New(t, quick())
		chat := s.Group(alice, bob)
		device := func(c *Config) { c.Device = "one" }
		first := newBot(t, s.URL, only(over), device).start()
		s.Send(alice, chat, 1, 1)
		first.gets(chat, 1, 1)
		second := newBot(t, s.URL, only(over), device).start()
		if err := first.end(); tidemark.CodeOf(err) != tidemark.Replaced {
			t.Errorf("Run ended with %v, want REPLACED", err)
		}
		s.Send(alice, chat, 2, 1)
		wait.Until(t, "the second one goes on", func() bool {
			return slices.Contains(second.contents(chat), "2")
		})
		if got := first.streams(); len(got) != 1 {
			t.Errorf("the first one opened streams over %v, want one", got)
		}
		if err := s.Server.EndSessions(t.Context(), bob, ""); err != nil {
			t.Fatal(err)
		}
		if err := second.end(); tidemark.CodeOf(err) != tidemark.Replaced {
			t.Errorf("after the end of the sessions Run ended with %v, want REPLACED", err)
		}
	})
}

// TestRun_is_not_replaced_by_its_own_repetition: net/http repeats a poll whose connection breaks
// without an answer. The server may serve the first one last, and says then to the second one that
// it was replaced.
func TestRun_is_not_replaced_by_its_own_repetition(t *testing.T) {
	s := transporttest.New(t, quick())
	chat := s.Group(alice, bob)
	var polls atomic.Int32
	url := proxied(t, s.URL, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/poll") || r.URL.Query().Get("session_id") == "":
			return false
		case polls.Add(1) == 1:
			panic(http.ErrAbortHandler)
		case polls.Load() == 2:
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"code":"REPLACED","detail":"a newer connection has it"}`)
			return true
		}
		return false
	})
	b := newBot(t, url, only(LongPoll)).start()
	wait.Until(t, "the second poll is made again", func() bool { return polls.Load() >= 2 })
	s.Send(alice, chat, 1, 1)
	b.gets(chat, 1, 1)
	if err := b.stop(); err != nil {
		t.Errorf("Run ended with %v", err)
	}
}

func TestRun_one_at_a_time(t *testing.T) {
	s := transporttest.New(t, quick())
	b := newBot(t, s.URL).start()
	wait.Until(t, "it is open", func() bool { return len(b.streams()) == 1 })
	if err := b.Run(t.Context(), b.handle); tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("a second Run ended with %v, want CONFLICT", err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.start() // a Run may follow another one
	wait.Until(t, "it is open again", func() bool { return len(b.streams()) == 2 })
}

func TestMessages_acknowledged_when_the_next_is_asked_for(t *testing.T) {
	overEvery(t, func(t *testing.T, over Transport) {
		s := transporttest.New(t, quick())
		chat := s.Group(alice, bob)
		s.Send(alice, chat, 1, 5)
		b := newBot(t, s.URL, only(over))
		var got []string
		for m, err := range b.Messages(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, m.Content); len(got) == 3 {
				break
			}
		}
		if want := numbers(1, 3); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		isAcked(t, s, bob, chat, 2) // not the one at which the loop ended
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got = nil
		for m, err := range b.Messages(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, m.Content); m.Content == "5" {
				cancel()
			}
		}
		if want := numbers(3, 5); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		isAcked(t, s, bob, chat, 5)
	})
}
