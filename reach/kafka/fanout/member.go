package fanout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// sessionTimeout is after which silence a member counts as dead, and others get its partitions.
	sessionTimeout = 10 * time.Second
	heartbeat      = 2 * time.Second
	// commitEvery is how often offsets are committed: what a crash repeats.
	commitEvery = time.Second
	// lookEvery is how often the topic is looked at. Partitions that are new are found then.
	lookEvery = 5 * time.Second
	// pollRecords bounds what is handed over at once, and pollBytes what is fetched of a broker.
	pollRecords = 500
	pollBytes   = 4 << 20
	// fetchWait is how long a broker waits for records, and answerWithin how much longer the client
	// waits for the answer to any request.
	fetchWait    = time.Second
	answerWithin = 3 * time.Second
	// leaveWithin bounds the last commit and the leaving of the group.
	leaveWithin = time.Second
	// logEvery is how often failed fetches are logged. Without Kafka there is one each second.
	logEvery = time.Minute
	// watchPause is the time between two attempts to find the topic.
	watchPause = time.Second
	// handOverPause is the time between two attempts to hand over.
	handOverPause = 250 * time.Millisecond
)

// member is what is known of the membership in the group. It is a hook of the client.
type member struct {
	mu sync.Mutex
	// in says that this process is a member of the group.
	in bool
	// failedUntil is until when a failed fetch counts, and logged when one was last logged.
	failedUntil, logged time.Time
	// oldest is the time of the oldest record in hand, or zero.
	oldest time.Time
}

// joined reports whether the process is a member of the group, and can fetch.
func (m *member) joined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.in && !time.Now().Before(m.failedUntil)
}

// set notes whether the process is a member.
func (m *member) set(in bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in = in
}

// failed notes that records could not be fetched, which counts for a while. It reports whether to
// log that.
func (m *member) failed(pause time.Duration) (log bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.failedUntil = now.Add(pause)
	if now.Sub(m.logged) < logEvery {
		return false
	}
	m.logged = now
	return true
}

// holds notes the time of the oldest record in hand. A zero time says that there is none.
func (m *member) holds(oldest time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.oldest = oldest
}

// lag returns the age of the oldest record in hand, or 0.
func (m *member) lag(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.oldest.IsZero() {
		return 0
	}
	return max(now.Sub(m.oldest), 0)
}

// OnGroupManageError implements kgo.HookGroupManageError.
func (m *member) OnGroupManageError(error) { m.set(false) }

// Run hands over the messages of this member's partitions until ctx ends. Then it leaves the group.
// If the topic is deleted and created anew, it joins the group of the new topic.
func (f *Fanout) Run(ctx context.Context) {
	if f.topic == nil {
		return
	}
	defer func() { _ = f.topic.Close() }() // It has nothing to lose.
	watcher, err := kgo.NewClient(append(f.cfg.Cluster.Options(), kgo.WithContext(ctx),
		kgo.RequestTimeoutOverhead(answerWithin))...)
	if err != nil {
		f.cfg.Log.Error("the fan-out cannot use Kafka; this node hands over itself", "error", err)
		return
	}
	defer watcher.Close()
	for ctx.Err() == nil {
		id, err := topicID(ctx, watcher, Topic(f.cfg.Prefix))
		if err == nil {
			err = f.serve(ctx, watcher, id)
		}
		if err != nil && ctx.Err() == nil {
			f.notFetched(Topic(f.cfg.Prefix), -1, err)
			select {
			case <-ctx.Done():
			case <-time.After(watchPause):
			}
		}
	}
}

// serve is a member of the group of the topic with an id, until the topic is another one or ctx
// ends.
func (f *Fanout) serve(ctx context.Context, watcher *kgo.Client, id topicIdentity) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	// The client ends by its own context: first it commits and leaves.
	whole, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	options := append(f.cfg.Cluster.Options(), kgo.WithContext(whole))
	client, err := kgo.NewClient(append(options, f.options(id)...)...)
	if err != nil {
		return err
	}
	f.positions.forgetAll()
	var watching sync.WaitGroup
	watching.Go(func() {
		f.watch(ctx, watcher, client, id)
		leave()
	})
	defer watching.Wait()
	for ctx.Err() == nil {
		fetched := client.PollRecords(ctx, pollRecords)
		if ctx.Err() != nil {
			break
		}
		fetched.EachError(f.notFetched)
		f.takePositions(client, fetched)
		records := fetched.Records()
		//rule:R_LATER.commit-after-hand-over
		if f.consume(ctx, records) {
			client.MarkCommitRecords(records...)
		}
	}
	f.member.set(false)
	ending, cancel := context.WithTimeout(whole, leaveWithin)
	defer cancel()
	_ = client.CommitMarkedOffsets(ending) // What is not committed is handed over again.
	_ = client.LeaveGroupContext(ending)   // Otherwise the others wait for sessionTimeout.
	//rule:stop_in_order.end-although-kafka-is-silent
	end()
	client.Close()
	return nil
}

// notFetched notes why records were not fetched.
func (f *Fanout) notFetched(topic string, partition int32, err error) {
	var loss *kgo.ErrDataLoss
	if errors.As(err, &loss) {
		f.positions.forget(partition)
		f.lost(err.Error(), "partition", partition)
		return
	}
	if f.member.failed(f.cfg.Pause) {
		f.cfg.Log.Warn("the messages for the fan-out cannot be fetched; trying again", "topic",
			Topic(f.cfg.Prefix), "error", err)
	}
}

// options returns those of the member of the group.
func (f *Fanout) options(id topicIdentity) []kgo.Opt {
	return []kgo.Opt{
		kgo.WithHooks(&f.member), kgo.ConsumeTopics(Topic(f.cfg.Prefix)),
		//rule:restore_is_noticed.a-group-for-each-incarnation
		kgo.ConsumerGroup(Topic(f.cfg.Prefix) + "." + string(f.cfg.Incarnation) + id.suffix()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeat),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitEvery),
		kgo.MetadataMaxAge(lookEvery), kgo.FetchMaxBytes(pollBytes),
		kgo.FetchMaxWait(fetchWait), kgo.RequestTimeoutOverhead(answerWithin),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			f.member.set(true)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, of map[string][]int32) {
			f.positions.forget(of[Topic(f.cfg.Prefix)]...)
			ctx, cancel := context.WithTimeout(ctx, leaveWithin)
			defer cancel()
			_ = c.CommitMarkedOffsets(ctx) // What is not committed is handed over again.
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, of map[string][]int32) {
			f.positions.forget(of[Topic(f.cfg.Prefix)]...)
			f.member.set(false)
		}),
	}
}

// consume hands over the messages of records. It returns false if ctx ended before all were.
func (f *Fanout) consume(ctx context.Context, records []*kgo.Record) bool {
	if len(records) == 0 {
		return true
	}
	oldest := records[0].Timestamp
	keys := make([]storage.MessageKey, 0, len(records))
	for _, r := range records {
		if r.Timestamp.Before(oldest) {
			oldest = r.Timestamp
		}
		if key, is := f.message(r); is {
			keys = append(keys, key)
		}
	}
	f.member.holds(oldest)
	defer f.member.holds(time.Time{})
	for len(keys) > 0 {
		keys = f.tryHandOver(ctx, keys)
		if len(keys) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(handOverPause):
		}
	}
	return true
}

// tryHandOver hands over messages, and returns those that have to be tried again.
func (f *Fanout) tryHandOver(
	ctx context.Context, keys []storage.MessageKey,
) (again []storage.MessageKey) {
	var last error
	for i, err := range f.handOver(ctx, keys) {
		switch {
		case err == nil:
			f.count.handedOver.Add(1)
		case tidemark.CodeOf(err) == tidemark.NotFound:
			f.drop(err, "chat", keys[i].Chat)
		default:
			again, last = append(again, keys[i]), err
		}
	}
	if last != nil && ctx.Err() == nil {
		f.cfg.Log.Warn("messages cannot be handed over now; trying again", "messages", len(again),
			"error", last)
	}
	return again
}

// message returns the key of the message of a record, or false for a record that is of no message
// of the data.
func (f *Fanout) message(r *kgo.Record) (storage.MessageKey, bool) {
	of := ""
	for _, header := range r.Headers {
		if header.Key == incarnation {
			of = string(header.Value)
		}
	}
	//rule:restore_is_noticed.foreign-records-are-skipped
	if of != string(f.cfg.Incarnation) {
		return storage.MessageKey{}, false
	}
	key, err := keyOf(r.Value)
	if err != nil {
		f.drop(err, "offset", r.Offset)
		return storage.MessageKey{}, false
	}
	return key, true
}
