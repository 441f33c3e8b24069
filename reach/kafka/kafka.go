package kafka

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

const (
	// defaultTimeout bounds a round trip with all that is tried in it.
	defaultTimeout = 15 * time.Second
	// groupEvents and groupBytes bound what is stored in one round trip. The records of a group fit
	// into one batch of a partition, with their keys and headers.
	groupEvents = 500
	groupBytes  = 512 << 10
	// stale is the age from which a message must be read again before it is stored.
	stale = 20 * time.Second
)

// errStale says that a message waited too long for the round trips of others.
var errStale = errors.New("the message must be read again")

// urlScheme begins the URL of an outlet.
const urlScheme = "kafka:"

// Config configures an outlet. Cluster, and either URL or Topic, are required.
type Config struct {
	Cluster Cluster
	// Topic, if it is not empty, gets all events in place of the two topics of URL, with the chat
	// as the key.
	Topic string
	// Headers are added to each record.
	Headers []kgo.RecordHeader
	// URL is kafka:PREFIX. The topics are PREFIX.messages and PREFIX.state.
	URL string
	// Content is "full" or "", or "none" for messages without content, attachments and metadata.
	Content string
	// Batch must be false: events are always combined.
	Batch bool
	// Timeout bounds a round trip with all that is tried in it. 0 is 15 s.
	Timeout time.Duration
}

// Outlet stores events in the topics of a prefix. It is safe for concurrent use.
type Outlet struct {
	prefix, topic string
	headers       []kgo.RecordHeader
	bare          bool
	timeout       time.Duration
	// start starts lane. Its one worker uses session.
	start   sync.Once
	lane    *batch.Batcher[outlet.Event, error]
	session session
}

var _ outlet.Each = (*Outlet)(nil)

// New returns an outlet. It connects to nothing. Invalid: a field of the configuration; the error
// names it.
func New(cfg Config) (*Outlet, error) {
	prefix, found := strings.CutPrefix(cfg.URL, urlScheme)
	if cfg.Topic != "" {
		prefix, found = cfg.Topic, true
	}
	switch {
	case len(cfg.Cluster.Brokers) == 0:
		return nil, tidemark.BadParam(tidemark.Invalid, "type",
			"is kafka, but the server was started without --kafka")
	//rule:bounded_input.names-of-topics
	case !found || !regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$`).MatchString(prefix):
		return nil, tidemark.BadParam(tidemark.Invalid, "url", "must be kafka:PREFIX, such as "+
			"kafka:tidemark, with a prefix of 1 to 200 of the characters A-Z a-z 0-9 . _ -")
	case !slices.Contains([]string{"", "full", "none"}, cfg.Content):
		return nil, tidemark.BadParam(tidemark.Invalid, "content", "must be full or none")
	case cfg.Batch:
		return nil, tidemark.BadParam(tidemark.Invalid, "batch",
			"must be false: Kafka gets single records, which are always combined")
	}
	o := &Outlet{
		prefix: prefix, topic: cfg.Topic, headers: cfg.Headers, bare: cfg.Content == "none",
		timeout: cmp.Or(cfg.Timeout, defaultTimeout), session: session{cluster: cfg.Cluster},
	}
	o.lane = batch.New(batch.Config{Name: "Kafka", Most: groupEvents}, o.run)
	return o, nil
}

// Limits implements outlet.Client.
func (o *Outlet) Limits() outlet.Limits {
	return outlet.Limits{Events: groupEvents, Bytes: groupBytes}
}

// Close implements outlet.Client. Deliveries that are under way end without an answer.
func (o *Outlet) Close() error {
	o.lane.Abort()
	o.session.close()
	return nil
}

// Deliver implements outlet.Client.
func (o *Outlet) Deliver(
	ctx context.Context, events []outlet.Event,
) (accepted int, refused *outlet.Refusal) {
	for i, why := range o.DeliverEach(ctx, events) {
		if why != nil {
			return i, why
		}
	}
	return len(events), nil
}

// DeliverEach implements outlet.Each.
func (o *Outlet) DeliverEach(ctx context.Context, events []outlet.Event) []*outlet.Refusal {
	o.start.Do(o.lane.Start)
	errs, err := o.lane.Do(ctx, events)
	refusals := make([]*outlet.Refusal, len(events))
	for i := range refusals {
		why := err
		if err == nil { // otherwise there are no errs
			why = errs[i]
		}
		if why != nil {
			refusals[i] = o.judge(&events[i], why)
		}
	}
	return refusals
}

// run stores the events of several calls, in groups. It returns an error for each event that is not
// stored, and for the later ones of its chat.
func (o *Outlet) run(ctx context.Context, collect func() []outlet.Event) ([]error, error) {
	//rule:bounded_use.bound-a-round-trip-of-kafka
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	w := work{events: collect(), failed: map[tidemark.ChatID]error{}}
	w.errs = make([]error, len(w.events))
	for i := range w.events {
		e := &w.events[i]
		//rule:redacted_stays.store-nothing-stale
		if !e.AsOf.IsZero() && time.Since(e.AsOf) >= stale {
			w.failed[e.Chat] = errStale
		}
	}
	for first := 0; first < len(w.events); {
		var group []int
		size := 0
		for ; first < len(w.events); first++ {
			if size += len(w.events[first].Data); len(group) > 0 &&
				(len(group) == groupEvents || size > groupBytes) {
				break
			}
			group = append(group, first)
		}
		o.store(ctx, &w, group)
	}
	return w.errs, nil
}

// work is what one round trip does. errs has an error for each event that is not stored, and failed
// the first one of each chat.
type work struct {
	events []outlet.Event
	errs   []error
	failed map[tidemark.ChatID]error
}

// store stores the events of a group, and sets their errors. If single records are refused, those
// that shared a batch with them are stored one after the other.
func (o *Outlet) store(ctx context.Context, w *work, group []int) {
	var records []*kgo.Record
	var places []int
	for _, at := range group {
		if w.failed[w.events[at].Chat] == nil {
			records, places = append(records, o.record(&w.events[at])), append(places, at)
		}
	}
	for i, err := range o.session.produce(ctx, records) {
		w.errs[places[i]] = err
	}
	for _, at := range group {
		chat := w.events[at].Chat
		//rule:told_in_order.refuse-later-records-of-the-chat
		if w.failed[chat] != nil {
			w.errs[at] = w.failed[chat]
			continue
		}
		if isOne(w.errs[at], ofRecord) && len(records) > 1 && ctx.Err() == nil {
			alone := []*kgo.Record{o.record(&w.events[at])}
			w.errs[at] = o.session.produce(ctx, alone)[0]
		}
		if w.errs[at] != nil {
			w.failed[chat] = w.errs[at]
		}
	}
}

// judge returns what follows from an error.
func (o *Outlet) judge(e *outlet.Event, err error) *outlet.Refusal {
	if errors.Is(err, errStale) {
		return &outlet.Refusal{Action: outlet.Later, Detail: err.Error()}
	}
	topic := o.record(e).Topic
	r := &outlet.Refusal{Detail: err.Error()}
	var answer *kerr.Error
	cause := o.session.connects.last()
	switch {
	case errors.As(err, &answer):
		r.Status = int(answer.Code)
		r.Detail = "Kafka answered for the topic " + topic + ": " + answer.Message + ": " +
			answer.Description
	case cause != nil:
		r.Detail = noAnswer{cause}.Error()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		r.Detail = "the topic " + topic + " does not exist; create it"
	}
	return r
}
