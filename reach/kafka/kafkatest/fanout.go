package kafkatest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/kafka/fanout"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// Recipients notes which messages are handed over. It is safe for concurrent use.
type Recipients struct {
	mu sync.Mutex
	// text is what all messages say, and told what those said that were handed over.
	text string
	told map[string]int
	// times has how often each message was handed over.
	times map[tidemark.ChatID]map[tidemark.Sequence]int
	// refuse, if not nil, is the answer to each message, and lack why none can be read.
	refuse, lack error
}

// Refuse sets the answer to each message; nil takes them.
func (r *Recipients) Refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

// Lack sets why no message can be read. NotFound: the chats have none.
func (r *Recipients) Lack(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lack = why
}

// Say changes what all messages say.
func (r *Recipients) Say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = text
}

// Told returns how many messages were handed over that say a text.
func (r *Recipients) Told(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[text]
}

// HandOver is for fanout.Config.
func (r *Recipients) HandOver(_ context.Context, messages []tidemark.Message) []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := make([]error, len(messages))
	for i := range messages {
		if errs[i] = r.refuse; errs[i] != nil {
			continue
		}
		chat := messages[i].ChatID
		if r.times == nil {
			r.times = map[tidemark.ChatID]map[tidemark.Sequence]int{}
			r.told = map[string]int{}
		}
		if r.times[chat] == nil {
			r.times[chat] = map[tidemark.Sequence]int{}
		}
		r.times[chat][messages[i].Sequence]++
		r.told[messages[i].Content]++
	}
	return errs
}

// Ranges is that of a store that has every message of every chat.
func (r *Recipients) Ranges(
	_ context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pages := make([][]tidemark.Message, len(ranges))
	switch {
	case tidemark.CodeOf(r.lack) == tidemark.NotFound:
		return pages, nil
	case r.lack != nil:
		return nil, r.lack
	}
	for i, one := range ranges {
		for n := range one.Limit {
			m := stored(one.Chat, one.After+1+tidemark.Sequence(n))
			m.Content = r.text
			pages[i] = append(pages[i], m)
		}
	}
	return pages, nil
}

// Heads is that of such a store.
func (r *Recipients) Heads(
	_ context.Context, chats []tidemark.ChatID,
) ([]tidemark.Sequence, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	heads := make([]tidemark.Sequence, len(chats))
	for i := range heads {
		if r.lack == nil {
			heads[i] = tidemark.MaxSequence
		}
	}
	return heads, nil
}

// Chat is that of such a store. Nothing has expired in it.
func (r *Recipients) Chat(_ context.Context, id tidemark.ChatID) (tidemark.Chat, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return tidemark.Chat{ID: id, Floor: 1}, r.lack
}

// Counts returns how many messages of a chat were handed over, and how many repetitions there were.
func (r *Recipients) Counts(chat tidemark.ChatID) (messages, repeated int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.times[chat] {
		messages, repeated = messages+1, repeated+n-1
	}
	return messages, repeated
}

// Worker is a Fanout that runs.
type Worker struct {
	*fanout.Fanout
	// Stop ends it, and waits.
	Stop func()
}

// CreateFanout creates the topic of the fan-out.
func (p *Place) CreateFanout(partitions int32) {
	p.Helper()
	p.create(".fanout", partitions, nil)
}

// Worker starts a member of the group, which ends with the test, and waits until it has joined.
func (p *Place) Worker(link *Link, to *Recipients, change func(*fanout.Config)) *Worker {
	p.Helper()
	w := p.StartWorker(link, to, change)
	p.Until("the worker joins", func() bool { return w.Counters()["fanout_member"] == 1 })
	return w
}

// StartWorker is Worker, and does not wait.
func (p *Place) StartWorker(link *Link, to *Recipients, change func(*fanout.Config)) *Worker {
	p.Helper()
	cfg := fanout.Config{
		Cluster: kafka.Cluster{Brokers: p.brokers, Dial: link.Dial}, Prefix: p.Prefix,
		Incarnation: "1-a", Store: to, HandOver: to.HandOver, Within: within, Pause: time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	f, err := fanout.New(cfg)
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	w := &Worker{Fanout: f, Stop: func() {
		cancel()
		<-ended
	}}
	p.Cleanup(w.Stop)
	return w
}

// Until waits until something holds.
func (p *Place) Until(what string, holds func() bool) {
	p.Helper()
	for end := time.Now().Add(within); !holds(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("it does not happen in time: %s", what)
		}
	}
}

func stored(chat tidemark.ChatID, sequence tidemark.Sequence) tidemark.Message {
	return tidemark.Message{
		ChatID: chat, Sequence: sequence, MessageID: "m", SenderID: "alice", Content: "text",
		ClientMessageID: "k", ContentType: tidemark.DefaultContentType, MembersVersion: 1,
		Kind: tidemark.KindMessage, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}

// Stored returns the event of a message that has just been stored.
func Stored(chat tidemark.ChatID, sequence tidemark.Sequence) outlet.Event {
	m := stored(chat, sequence)
	return outlet.Event{
		ID:   outlet.EventID(outlet.MessagePersisted, string(chat), fmt.Sprint(sequence)),
		Type: outlet.MessagePersisted, Chat: chat, Sequence: uint64(sequence), Time: m.CreatedAt,
		Data: m.AppendJSON(nil),
	}
}

// take delivers messages of a chat, from the nth on, one after the other. All must be accepted.
func take(t *testing.T, w *Worker, chat tidemark.ChatID, first, n int) {
	t.Helper()
	for sequence := first; sequence < first+n; sequence++ {
		event := Stored(chat, tidemark.Sequence(sequence))
		if _, refused := w.Deliver(t.Context(), []outlet.Event{event}); refused != nil {
			t.Fatalf("message %d is refused: %+v", sequence, refused)
		}
	}
}

// handsOver: what Kafka has stored is handed over once, by whichever worker has the partition. What
// one has committed, its successor does not repeat.
func handsOver(t *testing.T, p *Place) {
	p.CreateFanout(3)
	var to Recipients
	a := p.Worker(&Link{}, &to, nil)
	p.Worker(&Link{}, &to, nil)
	const chats, each = 6, 20
	for n := range chats {
		take(t, a, tidemark.ChatID(fmt.Sprint("c", n)), 1, each)
	}
	p.Until("all are handed over", func() bool {
		all := 0
		for n := range chats {
			got, _ := to.Counts(tidemark.ChatID(fmt.Sprint("c", n)))
			all += got
		}
		return all == chats*each
	})
	if n := a.Counters()["fanout_messages_total{direct}"]; n > 0 {
		t.Logf("%d messages were handed over without Kafka", n)
	}
	if a.Counters()["fanout_messages_total{stored}"] == 0 {
		t.Error("none was stored in Kafka")
	}
	a.Stop()
	var others Recipients
	b := p.Worker(&Link{}, &others, nil)
	take(t, b, "d", 1, each)
	p.Until("the next ones are handed over", func() bool {
		ours, _ := others.Counts("d")
		theirs, _ := to.Counts("d")
		return ours+theirs >= each
	})
	for n := range chats {
		if got, _ := others.Counts(tidemark.ChatID(fmt.Sprint("c", n))); got > 0 {
			t.Errorf("%d messages of c%d are handed over again", got, n)
		}
	}
}

// withoutKafka: while brokers are away, or silent, messages are handed over all the same, within
// the time that the engine waits. Afterwards they go by way of Kafka again.
func withoutKafka(t *testing.T, p *Place) {
	p.CreateFanout(1)
	var to Recipients
	link := &Link{}
	w := p.Worker(link, &to, func(cfg *fanout.Config) { cfg.Within = time.Second })
	n := 1
	for _, mode := range []Mode{Down, Silent} {
		chat := tidemark.ChatID(fmt.Sprint("mode", mode))
		link.Set(mode)
		began := time.Now()
		take(t, w, chat, 1, 3)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("mode %d: three messages took %v", mode, took)
		}
		if got, _ := to.Counts(chat); got != 3 {
			t.Errorf("mode %d: %d messages are handed over, want 3", mode, got)
		}
		link.Set(Up)
		p.Until("Kafka is used again", func() bool {
			before := w.Counters()["fanout_messages_total{stored}"]
			take(t, w, "after", n, 1)
			n++
			return w.Counters()["fanout_messages_total{stored}"] > before
		})
	}
	p.Until("all are handed over", func() bool {
		got, _ := to.Counts("after")
		return got == n-1
	})
}

// crashes: a worker dies without a word, with messages in hand. Another one hands them over.
func crashes(t *testing.T, p *Place) {
	p.CreateFanout(2)
	var dead, living Recipients
	dead.Refuse(tidemark.Errorf(tidemark.Unavailable, "refused by order of the test"))
	link := &Link{}
	a := p.Worker(link, &dead, nil)
	const chats = 8
	for n := range chats {
		event := Stored(tidemark.ChatID(fmt.Sprint("c", n)), 1)
		// A broker that is slow for a moment is passed by, and then the recipients refuse.
		p.Until("Kafka takes the message", func() bool {
			_, refused := a.Deliver(t.Context(), []outlet.Event{event})
			return refused == nil
		})
	}
	p.Until("the worker has them in hand", func() bool {
		return a.Counters()["fanout_lag_microseconds"] > 0
	})
	link.Set(Down)
	a.Stop()
	p.Worker(&Link{}, &living, nil)
	for n := range chats {
		p.Until("the other worker hands them over", func() bool {
			got, _ := living.Counts(tidemark.ChatID(fmt.Sprint("c", n)))
			return got == 1
		})
	}
}

// foreign: records of other data, and what is no record of ours, are skipped.
func foreign(t *testing.T, p *Place) {
	p.CreateFanout(1)
	var to, others Recipients
	other := p.Worker(&Link{}, &others, func(cfg *fanout.Config) { cfg.Incarnation = "2-b" })
	take(t, other, "theirs", 1, 3)
	w := p.Worker(&Link{}, &to, nil)
	take(t, w, "ours", 1, 3)
	p.Until("ours are handed over", func() bool {
		got, _ := to.Counts("ours")
		return got == 3
	})
	p.Until("theirs are handed over to them", func() bool {
		got, _ := others.Counts("theirs")
		return got == 3
	})
	if got, _ := to.Counts("theirs"); got > 0 {
		t.Errorf("%d messages of other data are handed over", got)
	}
}

// unread leaves two messages in the topic that no worker has handed over, after one of which the
// offset is committed.
func unread(p *Place) {
	p.Helper()
	p.CreateFanout(1)
	var to Recipients
	w := p.Worker(&Link{}, &to, nil)
	p.byKafka(w, &to, "c", 1)
	to.Refuse(tidemark.Errorf(tidemark.Unavailable, "refused by order of the test"))
	p.byKafka(w, &to, "unread", 2)
	w.Stop()
}

// byKafka delivers messages of a chat until so many are stored in Kafka, and handed over unless
// they are refused.
func (p *Place) byKafka(w *Worker, to *Recipients, chat tidemark.ChatID, n int64) {
	p.Helper()
	before := w.Counters()["fanout_messages_total{stored}"]
	sequence := tidemark.Sequence(0)
	p.Until("messages go by way of Kafka", func() bool {
		sequence++
		_, _ = w.Deliver(p.Context(), []outlet.Event{Stored(chat, sequence)})
		return w.Counters()["fanout_messages_total{stored}"] >= before+n
	})
	to.mu.Lock()
	refused := to.refuse != nil
	to.mu.Unlock()
	p.Until("they are in hand", func() bool {
		if refused {
			return w.Counters()["fanout_lag_microseconds"] > 0
		}
		got, _ := to.Counts(chat)
		return got == int(sequence)
	})
}

// losses counts how often a worker tells that Kafka has lost something.
func losses(n *atomic.Int64) func(*fanout.Config) {
	return func(cfg *fanout.Config) { cfg.Lost = func() { n.Add(1) } }
}

// deleted: the retention of records has passed before a worker has read them. The next worker tells
// once, be it that a record follows or not. What follows is handed over.
func deleted(t *testing.T, p *Place) {
	unread(p)
	p.Drop(".fanout")
	var to Recipients
	var told atomic.Int64
	w := p.Worker(&Link{}, &to, losses(&told))
	p.Until("the worker tells", func() bool { return told.Load() > 0 })
	p.byKafka(w, &to, "next", 3)
	w.Stop()
	w = p.Worker(&Link{}, &to, losses(&told))
	p.byKafka(w, &to, "last", 1)
	if n := told.Load(); n != 1 {
		t.Errorf("the workers told %d times, want 1", n)
	}
	to.Refuse(tidemark.Errorf(tidemark.Unavailable, "refused by order of the test"))
	p.byKafka(w, &to, "unread", 1)
	w.Stop()
	p.Drop(".fanout")
	to.Refuse(nil)
	w = p.Worker(&Link{}, &to, nil)
	p.byKafka(w, &to, "behind", 1)
	if n := w.Counters()["fanout_losses_total"]; n != 1 {
		t.Errorf("after a record behind those that are missing the worker told %d times, want 1", n)
	}
}

// anew: the topic is deleted, with messages that no worker has read, and created again. Workers
// tell, and use the new topic.
func anew(t *testing.T, p *Place) {
	p.CreateFanout(1)
	var to Recipients
	var told atomic.Int64
	w := p.Worker(&Link{}, &to, losses(&told))
	p.byKafka(w, &to, "c", 5)
	to.Refuse(tidemark.Errorf(tidemark.Unavailable, "refused by order of the test"))
	p.byKafka(w, &to, "unread", 1)
	p.Delete(".fanout")
	to.Refuse(nil)
	take(t, w, "without", 1, 1)
	p.CreateFanout(1)
	p.Until("the worker tells", func() bool { return told.Load() > 0 })
	p.Until("the worker joins the new group", func() bool {
		return w.Counters()["fanout_member"] == 1
	})
	p.byKafka(w, &to, "new", 3)
	if n := told.Load(); n != 1 {
		t.Errorf("the worker told %d times, want 1", n)
	}
}
