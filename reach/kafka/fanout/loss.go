package fanout

import (
	"context"
	"encoding/base64"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka drops records of which nobody has read a thing: when their retention has passed, or with
// their topic. The client says nothing of that. So this process compares where it has to go on with
// where the partition begins, and the topic with the one that it knows.

// positions are the offsets after the last records of this member's partitions. Where none is
// known, the committed offset says where to go on.
type positions struct {
	mu   sync.Mutex
	next map[int32]int64
}

// forget forgets partitions: others may read them, or their records have begun anew.
func (p *positions) forget(partitions ...int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, partition := range partitions {
		delete(p.next, partition)
	}
}

// forgetAll forgets all partitions.
func (p *positions) forgetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = map[int32]int64{}
}

// reach notes that a partition is read from an offset up to another one, and where that should have
// begun: there, or at the committed offset. found is false if neither is known.
func (p *positions) reach(
	partition int32, from, to int64, committed map[int32]kgo.EpochOffset,
) (want int64, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	want, found = p.next[partition]
	if at, is := committed[partition]; !found && is {
		want, found = at.Offset, true
	}
	if !found || from >= want {
		p.next[partition] = to
	}
	return want, found
}

// takePositions notes what was fetched, and tells if records before it are missing.
func (f *Fanout) takePositions(client *kgo.Client, fetched kgo.Fetches) {
	committed := client.CommittedOffsets()[Topic(f.cfg.Prefix)]
	fetched.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		first, last := p.Records[0].Offset, p.Records[len(p.Records)-1].Offset
		want, found := f.positions.reach(p.Partition, first, last+1, committed)
		//rule:R_LATER.look-for-gaps
		if found && first > want {
			f.lost("records were deleted before a worker had read them", "partition", p.Partition,
				"offset", want, "records", first-want)
		}
	})
}

// lost tells that Kafka lacks records which it had confirmed.
func (f *Fanout) lost(why string, about ...any) {
	f.count.losses.Add(1)
	f.cfg.Log.Error("Kafka has lost messages that it had confirmed; the sessions of all nodes "+
		"look for them", append([]any{"topic", Topic(f.cfg.Prefix), "error", why}, about...)...)
	//rule:R_LATER.reconcile-what-kafka-lost
	f.cfg.Lost()
}

// topicIdentity is the id that Kafka gives to a topic. One of the same name that is created later
// has another one. It is zero before Kafka 2.8.
type topicIdentity [16]byte

// suffix returns the end of the group's name. Each topic has a group of its own: offsets that were
// committed for an older topic would make the group skip records of the new one.
func (id topicIdentity) suffix() string {
	if id == (topicIdentity{}) {
		return ""
	}
	return "." + base64.RawURLEncoding.EncodeToString(id[:])
}

// topicID returns the identity of a topic. kerr.UnknownTopicOrPartition: there is none.
func topicID(ctx context.Context, client *kgo.Client, name string) (topicIdentity, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	switch {
	case err != nil:
		return topicIdentity{}, err
	case len(answer.Topics) != 1:
		return topicIdentity{}, kerr.UnknownTopicOrPartition
	}
	return answer.Topics[0].TopicID, kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}

// watch looks at the topic until ctx ends, or the topic is another one. A topic that is not there
// twice counts as deleted.
func (f *Fanout) watch(ctx context.Context, watcher, member *kgo.Client, id topicIdentity) {
	for missing := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
		now, err := topicID(ctx, watcher, Topic(f.cfg.Prefix))
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing++
		case err != nil:
			continue
		default:
			missing = 0
		}
		//rule:R_LATER.look-at-the-topic
		if missing > 1 || err == nil && now != id {
			f.lost("the topic was deleted")
			return
		}
		if missing == 0 {
			f.lookAtStarts(ctx, watcher, member)
		}
	}
}

// lookAtStarts tells if partitions of this member begin behind where it has to go on.
func (f *Fanout) lookAtStarts(ctx context.Context, watcher, member *kgo.Client) {
	committed := member.CommittedOffsets()[Topic(f.cfg.Prefix)]
	if len(committed) == 0 {
		return
	}
	request := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = Topic(f.cfg.Prefix)
	for n := range committed {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = n, -2 // the start
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer, err := request.RequestWith(ctx, watcher)
	if err != nil {
		return // The next look tries again.
	}
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 {
				continue
			}
			want, found := f.positions.reach(p.Partition, p.Offset, p.Offset, committed)
			//rule:R_LATER.look-at-starts
			if found && p.Offset > want {
				f.lost("records were deleted before a worker had read them", "partition",
					p.Partition, "offset", want, "records", p.Offset-want)
			}
		}
	}
}
