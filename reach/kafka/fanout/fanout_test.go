package fanout_test

import (
	"bytes"
	cryptorand "crypto/rand"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/kafka/fanout"
	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/test/wait"
)

// The suite of each broker (kafkatest) has the tests that need no faults of a broker.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a fake cluster with a topic, and who gets what is handed over.
type scene struct {
	*kafkatest.Place
	cluster *kfake.Cluster
	to      kafkatest.Recipients
}

func newScene(t *testing.T) *scene {
	t.Helper()
	cluster, err := kfake.NewCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s := &scene{Place: kafkatest.NewPlace(t, cluster.ListenAddrs()), cluster: cluster}
	s.CreateFanout(2)
	return s
}

// counted returns how many messages a worker has handled in one way.
func counted(w *kafkatest.Worker, way string) int64 {
	return w.Counters()["fanout_messages_total{"+way+"}"]
}

// deliver delivers messages of a chat in one call, and fails the test if one is refused.
func (s *scene) deliver(w *kafkatest.Worker, chat tidemark.ChatID, sequences ...int) {
	s.Helper()
	var events []outlet.Event
	for _, n := range sequences {
		events = append(events, kafkatest.Stored(chat, tidemark.Sequence(n)))
	}
	if n, refused := w.Deliver(s.Context(), events); refused != nil {
		s.Fatalf("%d of %d messages are accepted: %+v", n, len(events), refused)
	}
}

// TestDeliver_R_LATER_hands_over_what_kafka_refuses, and leaves Kafka alone for a while. Nobody
// waits for it meanwhile.
func TestDeliver_R_LATER_hands_over_what_kafka_refuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.Worker(&kafkatest.Link{}, &s.to, nil)
	fault := s.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1,
	})
	s.deliver(w, "c", 1, 2, 3)
	if n, _ := s.to.Counts("c"); n != 3 {
		t.Errorf("%d messages are handed over, want 3", n)
	}
	hits := fault.Hits()
	began := time.Now()
	s.deliver(w, "c", 4)
	if took := time.Since(began); fault.Hits() != hits && took < time.Second {
		t.Error("Kafka is asked again at once")
	}
	fault.Remove()
	n := 5
	s.Until("Kafka is used again", func() bool {
		s.deliver(w, "c", n)
		n++
		return counted(w, "stored") > 0
	})
	s.Until("all are handed over", func() bool {
		got, _ := s.to.Counts("c")
		return got == n-1
	})
}

// TestDeliver_R_LATER_without_membership: where this process may not read the topic, nobody would
// hand over what it stored there.
func TestDeliver_R_LATER_without_membership(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	fault := s.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.GroupAuthorizationFailed, Count: -1,
	})
	w := s.StartWorker(&kafkatest.Link{}, &s.to, nil)
	s.Until("the group refuses it", func() bool { return fault.Hits() > 0 })
	s.deliver(w, "c", 1, 2)
	if n, _ := s.to.Counts("c"); n != 2 || counted(w, "stored") != 0 {
		t.Errorf("%d messages are handed over and %d stored, want 2 and 0", n, counted(w, "stored"))
	}
	fault.Remove()
	s.Until("it joins", func() bool { return w.Counters()["fanout_member"] == 1 })
}

// TestDeliver_without_brokers: a node with --fanout=direct hands over what others have left to it.
func TestDeliver_without_brokers(t *testing.T) {
	var to kafkatest.Recipients
	f, err := fanout.New(fanout.Config{Store: &to, HandOver: to.HandOver})
	if err != nil {
		t.Fatal(err)
	}
	f.Run(t.Context()) // It has nothing to do.
	events := []outlet.Event{kafkatest.Stored("c", 1), {Type: "outlet.test"}}
	if n, refused := f.Deliver(t.Context(), events); n != 2 {
		t.Errorf("%d events are accepted: %+v", n, refused)
	}
	if n, _ := to.Counts("c"); n != 1 {
		t.Errorf("%d messages are handed over, want 1", n)
	}
}

// TestDeliver_R_LATER_refuses_what_cannot_be_handed_over: it stays with the engine, which asks
// again soon. It is no failure of the outlet.
func TestDeliver_R_LATER_refuses_what_cannot_be_handed_over(t *testing.T) {
	var to kafkatest.Recipients
	f, err := fanout.New(fanout.Config{Store: &to, HandOver: to.HandOver})
	if err != nil {
		t.Fatal(err)
	}
	to.Refuse(tidemark.Errorf(tidemark.Unavailable, "the storage is away"))
	events := []outlet.Event{kafkatest.Stored("c", 1), kafkatest.Stored("c", 2)}
	for i, why := range f.DeliverEach(t.Context(), events) {
		if why == nil || why.Action != outlet.Later || why.After == 0 {
			t.Errorf("message %d: got %+v, want to be asked later", i+1, why)
		}
	}
	to.Refuse(nil)
	if n, refused := f.Deliver(t.Context(), events); n != 2 {
		t.Errorf("%d events are accepted: %+v", n, refused)
	}
}

// TestDeliver_a_message_too_large goes without Kafka, and leaves Kafka to the others.
func TestDeliver_a_message_too_large(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.Worker(&kafkatest.Link{}, &s.to, nil)
	fault := s.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: 1,
	})
	s.deliver(w, "large", 1)
	if n, _ := s.to.Counts("large"); n != 1 || fault.Hits() != 1 {
		t.Errorf("%d messages are handed over after %d refusals, want 1", n, fault.Hits())
	}
	s.deliver(w, "c", 1)
	if n := counted(w, "stored"); n != 1 {
		t.Errorf("%d messages are stored in Kafka, want 1", n)
	}
}

// TestRun_gives_up_what_is_no_message: the others of the topic are handed over.
func TestRun_gives_up_what_is_no_message(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.Worker(&kafkatest.Link{}, &s.to, nil)
	broken := kafkatest.Stored("c", 1)
	broken.Data = []byte(`{"chat_id":"c"}`)
	if _, refused := w.Deliver(t.Context(), []outlet.Event{broken}); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	s.deliver(w, "c", 2)
	s.Until("the next one is handed over", func() bool {
		n, _ := s.to.Counts("c")
		return n == 1 && counted(w, "dropped") == 1
	})
}

// TestRun_redacted_stays: a message that is redacted while a worker has it in hand is handed over
// as what is left of it. The topic never has the text.
func TestRun_redacted_stays(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	text := cryptorand.Text()
	s.to.Say(text)
	s.to.Refuse(tidemark.Errorf(tidemark.Unavailable, "refused by order of the test"))
	w := s.Worker(&kafkatest.Link{}, &s.to, nil)
	event := kafkatest.Stored("c", 1)
	event.Data = bytes.Replace(event.Data, []byte(`"content":"text"`),
		[]byte(`"content":"`+text+`"`), 1)
	if !bytes.Contains(event.Data, []byte(text)) {
		t.Fatalf("the event is %s", event.Data)
	}
	if _, refused := w.Deliver(t.Context(), []outlet.Event{event}); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	s.Until("it is in hand", func() bool { return w.Counters()["fanout_lag_microseconds"] > 0 })
	for _, r := range s.Read(".fanout") {
		if bytes.Contains(r.Value, []byte(text)) ||
			!bytes.Contains(r.Value, []byte(`"sequence":1`)) {
			t.Errorf("the topic has %s", r.Value)
		}
	}
	if n := counted(w, "stored"); n != 1 {
		t.Errorf("%d messages are stored in Kafka, want 1", n)
	}
	s.to.Say("")
	s.to.Refuse(nil)
	s.Until("it is handed over", func() bool {
		n, _ := s.to.Counts("c")
		return n == 1
	})
	if s.to.Told(text) > 0 || s.to.Told("") != 1 {
		t.Error("the text is handed over")
	}
}

// TestDeliver_redacted_stays_without_brokers: what a node hands over itself is read again, too.
// What the chat does not have is given up, and what cannot be read is refused.
func TestDeliver_redacted_stays_without_brokers(t *testing.T) {
	var to kafkatest.Recipients
	text := cryptorand.Text()
	to.Say(text)
	f, err := fanout.New(fanout.Config{
		Store: &to, HandOver: to.HandOver, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	events := []outlet.Event{kafkatest.Stored("c", 1)}
	to.Say("left")
	if n, refused := f.Deliver(t.Context(), events); n != 1 {
		t.Errorf("refused: %+v", refused)
	}
	if to.Told("left") != 1 {
		t.Error("the text is handed over")
	}
	to.Lack(tidemark.Errorf(tidemark.Unavailable, "the storage is away"))
	if _, refused := f.Deliver(t.Context(), events); refused == nil ||
		refused.Action != outlet.Later {
		t.Errorf("what cannot be read is refused by %+v", refused)
	}
	to.Lack(tidemark.Errorf(tidemark.NotFound, "there is no such message"))
	if _, refused := f.Deliver(t.Context(), events); refused != nil ||
		f.Counters()["fanout_messages_total{dropped}"] != 1 {
		t.Errorf("what is not there is refused by %+v", refused)
	}
}

// TestRun_ends_although_Kafka_is_silent: a node that stops does not wait for it.
func TestRun_ends_although_Kafka_is_silent(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	link := &kafkatest.Link{}
	w := s.Worker(link, &s.to, nil)
	s.deliver(w, "c", 1)
	link.Set(kafkatest.Silent)
	began := time.Now()
	w.Stop()
	if took := time.Since(began); took > wait.Hang {
		t.Errorf("the end took %v", took)
	}
}

// TestRun_R_LATER_tells_of_what_kafka_lost: a broker that lacks records which it had is no longer
// certain to have the others.
func TestRun_R_LATER_tells_of_what_kafka_lost(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var lost atomic.Int64
	w := s.Worker(&kafkatest.Link{}, &s.to, func(cfg *fanout.Config) {
		cfg.Lost = func() { lost.Add(1) }
	})
	s.deliver(w, "c", 1, 2)
	s.Until("they are handed over", func() bool {
		n, _ := s.to.Counts("c")
		return n == 2
	})
	fault := s.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetOutOfRange, Count: -1,
	})
	s.Until("it tells", func() bool { return lost.Load() > 0 })
	fault.Remove()
	s.deliver(w, "c", 3)
	s.Until("the next one is handed over", func() bool {
		n, _ := s.to.Counts("c")
		return n == 3
	})
}

// TestRun_R_LATER_commits_what_is_handed_over: a worker that ends with messages in hand leaves them
// to the next one.
func TestRun_R_LATER_commits_what_is_handed_over(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var first kafkatest.Recipients
	first.Refuse(tidemark.Errorf(tidemark.Unavailable, "refused by order of the test"))
	w := s.Worker(&kafkatest.Link{}, &first, nil)
	s.deliver(w, "c", 1, 2, 3)
	s.Until("it has them in hand", func() bool {
		return w.Counters()["fanout_lag_microseconds"] > 0
	})
	w.Stop()
	s.Worker(&kafkatest.Link{}, &s.to, nil)
	s.Until("the next one hands them over", func() bool {
		n, _ := s.to.Counts("c")
		return n == 3
	})
}

// TestRun_R_LATER_while_members_come_and_go: whatever partitions move to whom, each message is
// handed over.
func TestRun_R_LATER_while_members_come_and_go(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	steady := s.Worker(&kafkatest.Link{}, &s.to, nil)
	const chats, each = 5, 60
	var delivering sync.WaitGroup
	for n := range chats {
		delivering.Go(func() {
			for i := range each {
				s.deliver(steady, tidemark.ChatID(fmt.Sprint("c", n)), i+1)
				<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
			}
		})
	}
	for range 5 {
		w := s.Worker(&kafkatest.Link{}, &s.to, nil)
		<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond)
		w.Stop()
	}
	delivering.Wait()
	repeated := 0
	for n := range chats {
		s.Until("all are handed over", func() bool {
			got, again := s.to.Counts(tidemark.ChatID(fmt.Sprint("c", n)))
			repeated = max(repeated, again)
			return got == each
		})
	}
	t.Logf("at most %d repetitions in a chat; %d messages went without Kafka", repeated,
		counted(steady, "direct"))
	if counted(steady, "stored") < chats*each/2 {
		t.Error("most messages should go by way of Kafka")
	}
}
