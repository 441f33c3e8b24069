// Package kafkatest is the suite that the outlet for Kafka passes with each broker, and what tests
// of it share: a connection that fails, and a reader of topics.
package kafkatest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

// Run runs the suite with a cluster that has these brokers. It must not create topics by itself.
func Run(t *testing.T, brokers []string) {
	for name, test := range map[string]func(*testing.T, *Place){
		"events come as records":       records,
		"content none":                 bare,
		"a lost answer":                lostAnswer,
		"brokers away":                 away,
		"brokers silent":               silent,
		"slow":                         slow,
		"no topic":                     noTopic,
		"a record too large":           tooLarge,
		"told in order whatever fails": inOrder,
		"fan-out":                      handsOver,
		"fan-out without Kafka":        withoutKafka,
		"fan-out after a crash":        crashes,
		"fan-out of other data":        foreign,
		"fan-out of what is deleted":   deleted,
		"fan-out of a topic made anew": anew,
		"a topic made anew":            topicAnew,
		"what a topic lacks":           checked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, NewPlace(t, brokers))
		})
	}
}

// accept delivers events until all are accepted, as the engine does: a broker on a busy machine may
// not answer in time. It fails the test if that takes long. It returns how many records may be
// stored twice therefore.
func accept(t testing.TB, o *kafka.Outlet, events ...outlet.Event) (unclear int) {
	t.Helper()
	for end := time.Now().Add(within); ; {
		n, refused := o.Deliver(t.Context(), events)
		events = events[n:]
		if len(events) == 0 {
			return unclear
		}
		if refused == nil || refused.Action != outlet.Retry || refused.Status != 0 ||
			time.Now().After(end) {
			t.Fatalf("%d events are not accepted, %+v", len(events), refused)
		}
		unclear += len(events)
	}
}

// noAnswer is how an outlet says that it does not know whether a record is stored.
const noAnswer = "no answer in time"

// once fails the test if more than so many records are repeated.
func once(t testing.TB, repeated, unclear int) {
	t.Helper()
	if repeated > unclear {
		t.Errorf("%d records are stored twice, and %d were unclear", repeated, unclear)
	}
}

func records(t *testing.T, p *Place) {
	p.Create(3, nil)
	o := p.Open(&Link{}, nil)
	message := Message("c", 7, 10)
	member := outlet.Event{
		ID: "evt_m", Type: outlet.MemberChanged, Chat: "c", User: "bob", Sequence: 3,
		Time: message.Time, Data: []byte(`{"chat_id":"c","user_id":"bob"}`), Again: true,
	}
	chat := outlet.Event{
		ID: "evt_c", Type: outlet.ChatUpdated, Chat: "c", Sequence: 2, Time: message.Time,
		Data: []byte(`{"chat_id":"c","name":"Tea"}`),
	}
	test := outlet.Event{
		ID: "evt_t", Type: "outlet.test", Time: message.Time, Data: []byte(`{"outlet_id":"o"}`),
	}
	missed := outlet.Event{
		ID: "evt_p", Type: outlet.PendingCreated, Chat: "c", User: "bob", Sequence: 7,
		Time: message.Time, Data: []byte(`{"chat_id":"c","user_id":"bob"}`),
	}
	accept(t, o, chat, member, message, missed, test)
	wrote := map[string]string{}
	for _, r := range slices.Concat(p.Read(".messages"), p.Read(".state")) {
		var headers []string
		for _, h := range r.Headers {
			headers = append(headers, h.Key+"="+string(h.Value))
		}
		topic := strings.TrimPrefix(r.Topic, p.Prefix)
		wrote[topic+" "+string(r.Key)] = strings.Join(headers, " ") + " " + string(r.Value)
		if time.Since(r.Timestamp).Abs() > time.Hour {
			t.Errorf("the record has the time %v, not that of its storing", r.Timestamp)
		}
	}
	for place, e := range map[string]*outlet.Event{
		".messages c": &message, ".state c|bob": &member, ".state c": &chat, ".messages ": &test,
		".state c|bob|pending.created": &missed,
	} {
		want := fmt.Sprintf("id=%s type=%s sequence=%d schema=1 replay=%t %s", e.ID, e.Type,
			e.Sequence, e.Again, e.AppendBody(nil, false))
		if wrote[place] != want {
			t.Errorf("%s: %s\nwant %s", place, wrote[place], want)
		}
	}
	if len(wrote) != 5 {
		t.Errorf("there are the records %v, want 5", wrote)
	}
}

func bare(t *testing.T, p *Place) {
	p.Create(1, nil)
	o := p.Open(&Link{}, func(cfg *kafka.Config) { cfg.Content = "none" })
	accept(t, o, Message("c", 1, 10))
	got := p.Read(".messages")[0].Value
	if !bytes.Contains(got, []byte(`"content":null`)) {
		t.Errorf("the record is %s", got)
	}
}

// lostAnswer shows that a record whose answer was lost is stored once.
func lostAnswer(t *testing.T, p *Place) {
	p.Create(1, nil)
	link := &Link{}
	o := p.Open(link, nil)
	unclear := 0
	for n := range uint64(5) {
		link.Lose(int(n % 3))
		unclear += accept(t, o, Message("c", 2*n+1, 10), Message("c", 2*n+2, 10))
	}
	once(t, p.InOrder([]tidemark.ChatID{"c"}, 10), unclear)
}

// refuse returns why an event is refused.
func refuse(t testing.TB, o *kafka.Outlet, e outlet.Event) *outlet.Refusal {
	t.Helper()
	began := time.Now()
	n, why := o.Deliver(t.Context(), []outlet.Event{e})
	if why == nil || n != 0 || why.Action != outlet.Retry {
		t.Fatalf("%d events accepted, %+v", n, why)
	}
	if took := time.Since(began); took > within {
		t.Errorf("the refusal takes %v", took)
	}
	return why
}

func away(t *testing.T, p *Place) {
	p.Create(1, nil)
	link := &Link{}
	o := p.Open(link, func(cfg *kafka.Config) { cfg.Timeout = 2 * time.Second })
	unclear := accept(t, o, Message("c", 1, 10))
	link.Set(Down)
	for range 2 {
		if why := refuse(t, o, Message("c", 2, 10)); !strings.Contains(why.Detail,
			"cannot be reached") {
			t.Errorf("the refusal is %+v", why)
		}
	}
	link.Set(Up)
	unclear += accept(t, o, Message("c", 2, 10), Message("c", 3, 10))
	once(t, p.InOrder([]tidemark.ChatID{"c"}, 3), unclear)
}

// silent shows that a delivery ends if the brokers do not answer, and that the next ones succeed.
func silent(t *testing.T, p *Place) {
	p.Create(1, nil)
	link := &Link{}
	o := p.Open(link, func(cfg *kafka.Config) { cfg.Timeout = time.Second })
	accept(t, o, Message("c", 1, 10))
	link.Set(Silent)
	began := time.Now()
	why := refuse(t, o, Message("c", 2, 10))
	if took := time.Since(began); took < time.Second || took > within/2 {
		t.Errorf("it takes %v", took)
	}
	if !strings.Contains(why.Detail, noAnswer) {
		t.Errorf("the refusal is %+v", why)
	}
	link.Set(Up)
	accept(t, o, Message("c", 2, 10))
	p.InOrder([]tidemark.ChatID{"c"}, 2)
}

// slow shows that calls share round trips.
func slow(t *testing.T, p *Place) {
	p.Create(3, nil)
	link := &Link{}
	o := p.Open(link, nil)
	accept(t, o, Message("first", 1, 10))
	link.Delay(100 * time.Millisecond)
	before := link.Produced()
	var calls sync.WaitGroup
	var chats []tidemark.ChatID
	for i := range 50 {
		chat := tidemark.ChatID(fmt.Sprint("c", i))
		chats = append(chats, chat)
		calls.Go(func() { accept(t, o, Message(chat, 1, 10)) })
	}
	calls.Wait()
	if n := link.Produced() - before; n > 20 {
		t.Errorf("50 calls take %d round trips", n)
	}
	p.InOrder(chats, 1)
}

func noTopic(t *testing.T, p *Place) {
	o := p.Open(&Link{}, nil)
	why := refuse(t, o, Message("c", 1, 10))
	if want := "the topic " + p.Prefix + ".messages does not exist"; !strings.Contains(why.Detail,
		want) {
		t.Errorf("the refusal is %+v, want %q", why, want)
	}
	p.Create(1, nil)
	for end := time.Now().Add(within); ; <-time.After(50 * time.Millisecond) {
		n, why := o.Deliver(t.Context(), []outlet.Event{Message("c", 1, 10)})
		if n == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the topic is not found: %+v", why)
		}
	}
	p.InOrder([]tidemark.ChatID{"c"}, 1)
}

// topicAnew shows that an outlet goes on if its topic is deleted and created again.
func topicAnew(t *testing.T, p *Place) {
	p.Create(1, nil)
	o := p.Open(&Link{}, nil)
	accept(t, o, Message("c", 1, 10))
	p.Delete(".messages")
	p.create(".messages", 1, nil)
	for end := time.Now().Add(within); ; <-time.After(50 * time.Millisecond) {
		n, why := o.Deliver(t.Context(), []outlet.Event{Message("c", 1, 10)})
		if n == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the new topic is not used: %+v", why)
		}
	}
	p.InOrder([]tidemark.ChatID{"c"}, 1)
}

// checked shows that a check says what is wrong with a topic, and what to do.
func checked(t *testing.T, p *Place) {
	cluster := kafka.Cluster{Brokers: p.brokers}
	p.create(".good", 2, map[string]string{"retention.ms": "86400000"})
	p.create(".bad", 1, map[string]string{"retention.ms": "60000", "cleanup.policy": "compact"})
	for end, want := range map[string][]string{
		".good": nil,
		".none": {"the topic " + p.Prefix + ".none does not exist; create it"},
		".bad":  {"keeps messages for 1m0s only", "set cleanup.policy to delete"},
	} {
		found, err := cluster.Check(t.Context(), p.Prefix+end)
		if err == nil != (want == nil) {
			t.Errorf("%s: %v, want %q", end, err, want)
		}
		for _, words := range want {
			if err != nil && !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v, want %q", end, err, words)
			}
		}
		if want == nil && (!strings.HasSuffix(found.Fine, "has 2 partitions") ||
			len(found.Notes) != 1 || !strings.Contains(found.Notes[0], "has 1 replicas")) {
			t.Errorf("%s: %+v", end, found)
		}
	}
	nobody := kafka.Cluster{Brokers: []string{"127.0.0.1:1"}}
	if _, err := nobody.Check(t.Context(), ""); err == nil ||
		!strings.Contains(err.Error(), "check --kafka") {
		t.Errorf("nobody answers: %v", err)
	}
}

// tooLarge shows that a record that is too large for the topic holds up its own chat only, although
// it shares a batch with others.
func tooLarge(t *testing.T, p *Place) {
	p.Create(1, map[string]string{"max.message.bytes": "4000"})
	o := p.Open(&Link{}, nil)
	refusals := o.DeliverEach(t.Context(), []outlet.Event{
		Message("a", 1, 1_000), Message("b", 1, 10), Message("b", 2, 5_000), Message("a", 2, 1_000),
		Message("b", 3, 10), Message("a", 3, 1_000),
	})
	for i, why := range refusals {
		if refused := i == 2 || i == 4; refused != (why != nil) ||
			refused && why.Status != int(kerr.MessageTooLarge.Code) {
			t.Errorf("event %d: %+v", i, why)
		}
	}
	found := p.Messages()
	if !slices.Equal(found["a"], []uint64{1, 2, 3}) || !slices.Equal(found["b"], []uint64{1}) {
		t.Errorf("there are the messages %v", found)
	}
}

// inOrder delivers the messages of some chats while the connections fail at random.
func inOrder(t *testing.T, p *Place) {
	p.Create(2, nil)
	link := &Link{}
	o := p.Open(link, func(cfg *kafka.Config) { cfg.Timeout = 2 * time.Second })
	const least = 300
	// enough reports whether each kind of fault has happened.
	enough := func() bool {
		lost, cut, swallowed := link.Faults()
		return lost > 0 && cut > 0 && swallowed > 0
	}
	stop := make(chan struct{})
	var faults, chats sync.WaitGroup
	faults.Go(func() {
		for {
			link.Lose(rand.IntN(3))
			link.Set([]Mode{Up, Up, Down, Silent}[rand.IntN(4)])
			select {
			case <-stop:
				link.Lose(0)
				link.Set(Up)
				return
			case <-time.After(time.Duration(rand.IntN(100)) * time.Millisecond):
			}
			link.Set(Up)
			<-time.After(time.Duration(rand.IntN(100)) * time.Millisecond)
		}
	})
	names := []tidemark.ChatID{"a", "b", "c", "d"}
	stored := make([]uint64, len(names))
	for i, chat := range names {
		chats.Go(func() {
			end := time.Now().Add(within)
			for stored[i] < least || !enough() && time.Now().Before(end) {
				var events []outlet.Event
				for n := range 1 + rand.Uint64N(10) {
					events = append(events, Message(chat, stored[i]+n+1, rand.IntN(500)))
				}
				accepted, _ := o.Deliver(t.Context(), events)
				stored[i] += uint64(accepted)
				if t.Context().Err() != nil {
					return
				}
			}
			// What was not accepted last may be stored. One more delivery accepts it.
			for accepted := 0; accepted < 10 && t.Context().Err() == nil; {
				var events []outlet.Event
				for n := range uint64(10) {
					events = append(events, Message(chat, stored[i]+n+1, 10))
				}
				accepted, _ = o.Deliver(t.Context(), events)
				stored[i] += uint64(accepted)
			}
		})
	}
	chats.Wait()
	close(stop)
	faults.Wait()
	if !enough() {
		t.Error("not all kinds of faults happened")
	}
	repeated := 0
	for i, chat := range names {
		repeated += p.InOrder([]tidemark.ChatID{chat}, stored[i])
	}
	lost, cut, swallowed := link.Faults()
	t.Logf("%d answers lost, %d connections cut, %d requests swallowed: %d of %d messages repeated",
		lost, cut, swallowed, repeated, stored)
}
