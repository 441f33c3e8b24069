package kafka

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// flushAgain is the time after which an unfinished Flush begins again.
const flushAgain = 20 * time.Millisecond

// session is the present producer, or none. Only connects and unqueued are safe for concurrent
// use.
type session struct {
	cluster  Cluster
	client   *kgo.Client
	connects connects
	unqueued unqueued
}

// connects notes the outcome of the last connect. It is a hook of the client.
type connects struct {
	mu  sync.Mutex
	err error
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (c *connects) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// last returns why the last connect failed, or nil.
func (c *connects) last() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// unqueued has the records that are not yet in the queue of a partition. It is a hook of the
// client.
type unqueued struct {
	mu   sync.Mutex
	left map[*kgo.Record]struct{}
	// empty is closed when left becomes empty.
	empty chan struct{}
}

// expect begins with new records, which must be at least one. The channel is closed when all are
// queued, or have failed.
func (u *unqueued) expect(records []*kgo.Record) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left, u.empty = make(map[*kgo.Record]struct{}, len(records)), make(chan struct{})
	for _, r := range records {
		u.left[r] = struct{}{}
	}
	return u.empty
}

// remove notes that a record is queued, or has failed. It may be called again for the same record.
func (u *unqueued) remove(r *kgo.Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, found := u.left[r]; !found {
		return
	}
	if delete(u.left, r); len(u.left) == 0 {
		close(u.empty)
	}
}

// OnProduceRecordPartitioned implements kgo.HookProduceRecordPartitioned.
func (u *unqueued) OnProduceRecordPartitioned(r *kgo.Record, _ int32) { u.remove(r) }

// produce stores records, which together must fit into one batch. It returns an error or nil for
// each. Of the records of one partition, all or none are stored. If ctx ends first, the session
// ends, and records under way may be stored or not.
func (s *session) produce(ctx context.Context, records []*kgo.Record) []error {
	errs := make([]error, len(records))
	if len(records) == 0 {
		return nil
	}
	if s.client == nil {
		client, err := s.cluster.client(&s.connects, &s.unqueued)
		if err != nil {
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
		s.client = client
	}
	// Nothing is sent before Flush. So no record of a partition can fail while its later ones are
	// not there yet, which would then be stored before it. For a new topic, the client first asks
	// for the partitions. So its records are queued some time after Produce.
	queued := s.unqueued.expect(records)
	var all sync.WaitGroup
	for i, r := range records {
		all.Add(1)
		s.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			errs[i] = err
			s.unqueued.remove(r)
			all.Done()
		})
	}
	//rule:told_in_order.flush-when-all-are-queued
	select {
	case <-queued:
	case <-ctx.Done():
	}
	flushed := ctx.Err()
	if flushed == nil {
		flushed = s.flush(ctx)
	}
	if flushed != nil {
		s.close() // It fails what waits.
	}
	all.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
		case flushed != nil:
			errs[i] = noAnswer{s.connects.last()}
		case !passes(err):
			s.close()
		}
	}
	return errs
}

// flush sends what is queued, and waits until all of it is answered or has failed, or ctx ends. The
// client sends what is queued at the partitions that it knows when its Flush begins. It may learn
// of the partitions of a new topic just after their records are queued. So Flush begins again.
func (s *session) flush(ctx context.Context) error {
	for {
		soon, cancel := context.WithTimeout(ctx, flushAgain)
		err := s.client.Flush(soon)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// close ends the session. The next one has another producer id.
func (s *session) close() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// noAnswer says that Kafka did not say in time what became of a record. cause is why the last
// connect failed, or nil.
type noAnswer struct{ cause error }

func (e noAnswer) Error() string {
	if e.cause != nil {
		return "Kafka cannot be reached: " + e.cause.Error()
	}
	return "Kafka gave no answer in time"
}

// ofTopic are errors about a topic, a partition or a record, which leave the session as it is.
// UnknownTopicID is none of them: after it, a client never uses a new topic of the old name.
var ofTopic = []error{
	kerr.UnknownTopicOrPartition, kerr.InvalidTopicException,
	kerr.TopicAuthorizationFailed, kerr.NotEnoughReplicas, kerr.NotLeaderForPartition,
	kerr.LeaderNotAvailable, kerr.PolicyViolation, kerr.KafkaStorageError,
	kerr.ThrottlingQuotaExceeded,
}

// ofRecord are errors about single records. Those beside them in a batch fail, too.
var ofRecord = []error{
	kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
	kerr.CorruptMessage,
}

// passes reports whether the session can go on after an error.
func passes(err error) bool { return isOne(err, ofTopic) || isOne(err, ofRecord) }

// isOne reports whether an error is one of a list.
func isOne(err error, list []error) bool {
	for _, one := range list {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
