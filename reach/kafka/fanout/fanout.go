package fanout

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/internal/reread"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// defaultWithin bounds the storing in Kafka.
	defaultWithin = time.Second
	// defaultPause is for how long nothing is stored in Kafka after it refused, or gave no answer.
	// What comes meanwhile is handed over directly.
	defaultPause = 5 * time.Second
	// againAfter is when the engine asks again for messages that could not be handed over.
	againAfter = time.Second
	// incarnation is the header that names the data from which a record comes.
	incarnation = "incarnation"
)

// Config configures a Fanout. Store, HandOver and Log are required.
type Config struct {
	// Cluster is that of the topic. Without brokers, everything is handed over directly.
	Cluster kafka.Cluster
	// Prefix begins the names of the topic, PREFIX.fanout, and of the group.
	Prefix string
	// Incarnation is that of the data. Records of another one are of messages that the data lack.
	Incarnation tidemark.Incarnation
	// Store has the messages. Those in Kafka lack their content, so each is read before it is
	// handed over.
	Store Store
	// HandOver hands over messages that are stored, and returns the error of each.
	HandOver func(ctx context.Context, messages []tidemark.Message) []error
	// Lost is called when Kafka has lost records, perhaps of messages that are not handed over. The
	// sessions of all nodes must look for them. nil: nobody is told.
	Lost func()
	// Within is how long Kafka may take to store messages. What has no answer then is handed over
	// directly. 0 is 1 s.
	Within time.Duration
	// Pause is for how long Kafka is left alone after a failure. 0 is 5 s.
	Pause time.Duration
	Log   *slog.Logger
}

// Store is what a Fanout reads.
type Store = reread.Store

// Fanout is the outlet, and the member of the group. It is safe for concurrent use. Call New, and
// then Run once.
type Fanout struct {
	cfg Config
	// topic is nil without brokers.
	topic     *kafka.Outlet
	member    member
	positions positions
	// pausedUntil is until when Kafka is left alone, in Unix nanoseconds.
	pausedUntil atomic.Int64
	count       struct{ stored, direct, handedOver, dropped, losses atomic.Int64 }
}

var _ outlet.Each = (*Fanout)(nil)

// Topic returns the name of the topic for a prefix.
func Topic(prefix string) string { return prefix + ".fanout" }

// New returns a Fanout. It connects to nothing.
func New(cfg Config) (*Fanout, error) {
	f := &Fanout{cfg: cfg}
	f.cfg.Pause = cmp.Or(cfg.Pause, defaultPause)
	f.cfg.Within = cmp.Or(cfg.Within, defaultWithin)
	if cfg.Lost == nil {
		f.cfg.Lost = func() {}
	}
	if len(cfg.Cluster.Brokers) == 0 {
		return f, nil
	}
	var err error
	f.topic, err = kafka.New(kafka.Config{
		Cluster: cfg.Cluster, Topic: Topic(cfg.Prefix), Timeout: f.cfg.Within,
		//rule:redacted_stays.no-text-in-the-topic
		Content: "none",
		//rule:restore_is_noticed.records-name-their-data
		Headers: []kgo.RecordHeader{{Key: incarnation, Value: []byte(cfg.Incarnation)}},
	})
	return f, err
}

// Limits implements outlet.Client.
func (f *Fanout) Limits() outlet.Limits { return outlet.Limits{Events: 500, Bytes: 512 << 10} }

// Close implements outlet.Client. It does nothing: the end of Run closes the connections.
func (f *Fanout) Close() error { return nil }

// Deliver implements outlet.Client.
func (f *Fanout) Deliver(
	ctx context.Context, events []outlet.Event,
) (accepted int, refused *outlet.Refusal) {
	for i, why := range f.DeliverEach(ctx, events) {
		if why != nil {
			return i, why
		}
	}
	return len(events), nil
}

// DeliverEach implements outlet.Each. A message is accepted when Kafka has stored it, or when it is
// handed over.
func (f *Fanout) DeliverEach(ctx context.Context, events []outlet.Event) []*outlet.Refusal {
	refusals := make([]*outlet.Refusal, len(events))
	var messages []outlet.Event
	var at []int
	for i := range events {
		if events[i].Type == outlet.MessagePersisted {
			messages, at = append(messages, events[i]), append(at, i)
		}
	}
	if len(messages) == 0 {
		return refusals
	}
	if f.usable() {
		messages, at = f.store(ctx, messages, at)
	}
	//rule:R_LATER.hand-over-what-kafka-refuses
	for j, why := range f.direct(ctx, messages) {
		refusals[at[j]] = why
	}
	return refusals
}

// usable reports whether Kafka is likely to store what comes, and the group to hand it over.
func (f *Fanout) usable() bool {
	//rule:R_LATER.produce-only-as-a-member
	return f.topic != nil && f.member.joined() && time.Now().UnixNano() >= f.pausedUntil.Load()
}

// store stores messages in Kafka. It returns what is not stored, or perhaps not.
func (f *Fanout) store(
	ctx context.Context, messages []outlet.Event, at []int,
) (left []outlet.Event, leftAt []int) {
	var failed *outlet.Refusal
	for j, why := range f.topic.DeliverEach(ctx, messages) {
		if why == nil {
			f.count.stored.Add(1)
			continue
		}
		left, leftAt = append(left, messages[j]), append(leftAt, at[j])
		if why.Status != int(kerr.MessageTooLarge.Code) {
			failed = why
		}
	}
	if failed != nil && f.pausedUntil.Swap(time.Now().Add(f.cfg.Pause).UnixNano()) == 0 {
		f.cfg.Log.Warn("Kafka does not take messages for the fan-out; this node hands them over "+
			"itself until it does", "topic", Topic(f.cfg.Prefix), "error", failed.Detail)
	} else if failed == nil && f.pausedUntil.Swap(0) != 0 {
		f.cfg.Log.Info("Kafka takes messages for the fan-out again")
	}
	return left, leftAt
}

// direct hands messages over here, and returns why each is not. If one is not, the later ones of
// its chat are not either.
func (f *Fanout) direct(ctx context.Context, events []outlet.Event) []*outlet.Refusal {
	refusals := make([]*outlet.Refusal, len(events))
	keys := make([]storage.MessageKey, len(events))
	for i := range events {
		keys[i] = storage.MessageKey{
			Chat: events[i].Chat, Sequence: tidemark.Sequence(events[i].Sequence),
		}
	}
	failed := map[tidemark.ChatID]*outlet.Refusal{}
	for i, err := range f.handOver(ctx, keys) {
		chat := keys[i].Chat
		switch {
		case failed[chat] != nil:
		case err == nil:
			f.count.direct.Add(1)
		case tidemark.CodeOf(err) == tidemark.NotFound:
			f.drop(err, "chat", chat)
		default:
			// It is no failure of the outlet: that would delay other chats, and in the end disable
			// it.
			failed[chat] = &outlet.Refusal{
				Action: outlet.Later, After: againAfter, Detail: err.Error(),
			}
		}
		refusals[i] = failed[chat]
	}
	return refusals
}

// handOver hands messages over as they are now, and returns the error of each.
func (f *Fanout) handOver(ctx context.Context, keys []storage.MessageKey) []error {
	errs := make([]error, len(keys))
	if len(keys) == 0 {
		return errs
	}
	var messages []tidemark.Message
	var at []int
	//rule:redacted_stays.hand-over-as-it-is-now
	for i, found := range reread.Messages(ctx, f.cfg.Store, keys) {
		if errs[i] = found.Err; found.Err == nil {
			messages, at = append(messages, found.Message), append(at, i)
		}
	}
	if len(messages) > 0 {
		for j, err := range f.cfg.HandOver(ctx, messages) {
			errs[at[j]] = err
		}
	}
	return errs
}

// drop gives up a message that can never be handed over.
func (f *Fanout) drop(err error, key string, what any) {
	f.count.dropped.Add(1)
	f.cfg.Log.Error("a message cannot be handed over, and is given up", key, what, "error", err)
}

// Counters returns the figures of this process.
func (f *Fanout) Counters() map[string]int64 {
	joined := int64(0)
	if f.member.joined() {
		joined = 1
	}
	return map[string]int64{
		"fanout_messages_total{stored}":      f.count.stored.Load(),
		"fanout_messages_total{direct}":      f.count.direct.Load(),
		"fanout_messages_total{handed_over}": f.count.handedOver.Load(),
		"fanout_messages_total{dropped}":     f.count.dropped.Load(),
		"fanout_losses_total":                f.count.losses.Load(),
		"fanout_member":                      joined,
		"fanout_lag_microseconds":            f.member.lag(time.Now()).Microseconds(),
	}
}
