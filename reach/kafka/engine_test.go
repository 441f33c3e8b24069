package kafka_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// scene is an engine with an outlet, on a fake cluster in the time of a synctest bubble.
type scene struct {
	*testing.T
	store  *memory.Store
	engine *reach.Engine
	place  *kafkatest.Place
	link   *kafkatest.Link
}

// newScene starts an engine. Its outlet, which is active, is named log.
func newScene(t *testing.T, settings map[string]string) *scene {
	network := &kfake.VirtualNetwork{}
	cluster := fake(t, kfake.ListenFn(network.Listen), kfake.Ports(9092, 9093, 9094))
	s := &scene{
		T: t, store: memory.New(), link: &kafkatest.Link{Dialer: network.DialContext},
		place: kafkatest.NewPlace(t, cluster.ListenAddrs(), kgo.Dialer(network.DialContext)),
	}
	s.place.Create(2, settings)
	s.engine = reach.New(reach.Config{
		Store: s.store, Log: slog.New(slog.DiscardHandler),
		Times: reach.Times{Poll: 30 * time.Second, Trust: 2 * time.Minute, Dead: 5 * time.Minute},
		Kinds: map[string]reach.Kind{
			"kafka": {Open: func(spec *reach.Spec, _ []string) (outlet.Client, error) {
				return kafka.New(kafka.Config{
					Cluster: kafka.Cluster{Brokers: cluster.ListenAddrs(), Dial: s.link.Dial},
					URL:     spec.URL, Content: spec.Content, Batch: spec.Batch,
				})
			}},
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.engine.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	made, err := s.engine.Create(ctx, reach.NewOutlet{
		ID: "log", Kind: "kafka", URL: "kafka:" + s.place.Prefix,
	})
	if err != nil || made.Secret != "" {
		t.Fatalf("the outlet is %+v, %v", made, err)
	}
	<-time.After(time.Hour)
	if info, err := s.engine.Outlet(ctx, "log"); err != nil || info.State != reach.Active {
		t.Fatalf("the outlet is %+v, %v", info, err)
	}
	return s
}

// chat creates a chat.
func (s *scene) chat(id tidemark.ChatID) {
	s.Helper()
	_, _, err := s.store.CreateChat(s.Context(), storage.NewChat{
		ID: id, Type: tidemark.Group, Creator: "alice", Members: []tidemark.UserID{"alice", "bob"},
		CreatedAt: time.Now(),
	})
	if err != nil {
		s.Fatal(err)
	}
}

// send sends a message, and gives the engine some time.
func (s *scene) send(chat tidemark.ChatID, content string) {
	s.Helper()
	id := rand.Text()
	_, err := storage.AppendOne(s.Context(), s.store, tidemark.Draft{
		ChatID: chat, SenderID: "alice", ClientMessageID: id, Content: content,
		ContentType: "text/plain", Kind: tidemark.KindMessage,
		MessageID: tidemark.MessageID(id), CreatedAt: time.Now(),
	})
	if err != nil {
		s.Fatal(err)
	}
	s.engine.Hint(chat)
	<-time.After(10 * time.Minute)
}

// TestEngine_record_too_large_is_parked: a message that is too large for the topic is parked after
// a day. Other chats do not wait for it, and its own chat goes on then. It is stored when an
// operator has raised the limit and sends it again.
func TestEngine_record_too_large_is_parked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, map[string]string{"max.message.bytes": "4000"})
		s.chat("a")
		s.chat("b")
		s.send("b", "before")
		s.send("b", noise(5_000))
		s.send("b", "after")
		began := time.Now()
		var parked []reach.Parked
		for n := uint64(1); len(parked) == 0 && time.Since(began) < 30*time.Hour; n++ {
			s.send("a", "meanwhile")
			if got := s.place.Messages()["a"]; uint64(len(got)) != n {
				t.Fatalf("the other chat has the messages %v, want %d", got, n)
			}
			var err error
			if parked, _, err = s.engine.ParkedEvents(t.Context(), "log", "", 10); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 23*time.Hour || len(parked) != 1 ||
			parked[0].Event.Sequence != 2 || parked[0].Status != int(kerr.MessageTooLarge.Code) {
			t.Fatalf("parked after %v: %+v", took, parked)
		}
		if got := s.place.Messages()["b"]; !slices.Equal(got, []uint64{1, 3}) {
			t.Errorf("its chat has the messages %v", got)
		}
		id := parked[0].Event.ID
		if why, err := s.engine.Resend(t.Context(), "log", id); err != nil || why == nil {
			t.Errorf("sent again: %+v, %v", why, err)
		}
		s.place.Set("max.message.bytes", "8000")
		if why, err := s.engine.Resend(t.Context(), "log", id); err != nil || why != nil {
			t.Errorf("sent again: %+v, %v", why, err)
		}
		if got := s.place.Messages()["b"]; !slices.Equal(got, []uint64{1, 3, 2}) {
			t.Errorf("its chat has the messages %v", got)
		}
	})
}

// TestEngine_brokers_away_for_hours: everything comes in order when they are back, and nothing is
// lost.
func TestEngine_brokers_away_for_hours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		chats := []tidemark.ChatID{"a", "b", "c"}
		for _, chat := range chats {
			s.chat(chat)
			s.send(chat, "before")
		}
		s.link.Set(kafkatest.Down)
		for range 3 {
			for _, chat := range chats {
				s.send(chat, "meanwhile")
			}
		}
		failures, err := s.engine.Failures(t.Context(), "log")
		if err != nil || len(failures) == 0 ||
			!strings.Contains(failures[0].Detail, "cannot be reached") {
			t.Errorf("the failures are %+v, %v", failures, err)
		}
		s.link.Set(kafkatest.Up)
		<-time.After(2 * time.Hour)
		for _, chat := range chats {
			s.send(chat, "after")
		}
		t.Logf("%d repetitions", s.place.InOrder(chats, 5))
		replayed := map[string]int{}
		for _, r := range s.place.Read(".messages") {
			replayed[r.Headers[4].Key+" "+string(r.Headers[4].Value)]++
		}
		if replayed["replay false"] != 6 || replayed["replay true"] != 9 {
			t.Errorf("there are %v, want replay for what waited", replayed)
		}
	})
}

// noise returns a text that cannot be compressed much.
func noise(size int) string {
	text := ""
	for len(text) < size {
		text += rand.Text()
	}
	return text[:size]
}
