package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

// within is how long a broker may take for anything.
const within = time.Minute

// Place is a prefix of topics that only one test uses.
type Place struct {
	testing.TB
	Prefix string
	admin  *kgo.Client
	// brokers are the addresses.
	brokers []string
	options []kgo.Opt
}

// NewPlace returns a place on a cluster, without topics.
func NewPlace(t testing.TB, brokers []string, options ...kgo.Opt) *Place {
	t.Helper()
	options = append(options, kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(10*time.Millisecond))
	admin, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return &Place{
		TB: t, Prefix: "t" + strings.ToLower(rand.Text()[:10]), admin: admin, brokers: brokers,
		options: options,
	}
}

// Create creates the topics, with partitions and settings of the first one.
func (p *Place) Create(partitions int32, settings map[string]string) {
	p.Helper()
	p.create(".messages", partitions, settings)
	p.create(".state", partitions, map[string]string{"cleanup.policy": "compact"})
}

func (p *Place) create(end string, partitions int32, settings map[string]string) {
	p.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = p.Prefix+end, partitions, 1
	for name, value := range settings {
		setting := kmsg.NewCreateTopicsRequestTopicConfig()
		setting.Name, setting.Value = name, &value
		topic.Configs = append(topic.Configs, setting)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, topic)
	ctx, cancel := context.WithTimeout(p.Context(), within)
	defer cancel()
	answer, err := request.RequestWith(ctx, p.admin)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		p.Fatal(err)
	}
	// A broker answers before its own metadata have the topic.
	for !p.knows(ctx, topic.Topic, int(partitions)) {
		select {
		case <-ctx.Done():
			p.Fatalf("the topic %s is created, and does not come", topic.Topic)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Delete deletes a topic, and waits until the broker knows it no more.
func (p *Place) Delete(end string) {
	p.Helper()
	name := p.Prefix + end
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = &name
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.Topics, request.TopicNames = append(request.Topics, topic), []string{name}
	answer, err := request.RequestWith(p.Context(), p.admin)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		p.Fatal(err)
	}
	p.Until("the topic is deleted", func() bool {
		return len(p.partitions(p.Context(), name)) == 0
	})
}

// Drop deletes all records of a topic of one partition, as Kafka does when their retention has
// passed.
func (p *Place) Drop(end string) {
	p.Helper()
	partition := kmsg.NewDeleteRecordsRequestTopicPartition()
	partition.Offset = -1 // all
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = p.Prefix + end
	topic.Partitions = append(topic.Partitions, partition)
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(p.Context(), p.admin)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		p.Fatal(err)
	}
}

// knows reports whether the broker knows a leader of each partition.
func (p *Place) knows(ctx context.Context, topic string, partitions int) bool {
	p.Helper()
	led := 0
	for _, partition := range p.partitions(ctx, topic) {
		if partition.ErrorCode == 0 && partition.Leader >= 0 {
			led++
		}
	}
	return led == partitions
}

// Set changes a setting of the topic of messages.
func (p *Place) Set(name, value string) {
	p.Helper()
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value = name, &value
	topic := kmsg.NewIncrementalAlterConfigsRequestResource()
	topic.ResourceType, topic.ResourceName = kmsg.ConfigResourceTypeTopic, p.Prefix+".messages"
	topic.Configs = append(topic.Configs, setting)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, topic)
	answer, err := request.RequestWith(p.Context(), p.admin)
	if err == nil {
		err = kerr.ErrorForCode(answer.Resources[0].ErrorCode)
	}
	if err != nil {
		p.Fatal(err)
	}
}

// Open opens an outlet at the place, which ends with the test. Without a link, change sets the
// cluster.
func (p *Place) Open(link *Link, change func(*kafka.Config)) *kafka.Outlet {
	p.Helper()
	cfg := kafka.Config{URL: "kafka:" + p.Prefix}
	if link != nil {
		cfg.Cluster = kafka.Cluster{Brokers: p.brokers, Dial: link.Dial}
	}
	if change != nil {
		change(&cfg)
	}
	o, err := kafka.New(cfg)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := o.Close(); err != nil {
			p.Error(err)
		}
	})
	return o
}

// Read returns all records of a topic, in the order of each partition.
func (p *Place) Read(end string) []*kgo.Record {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), within)
	defer cancel()
	want := p.size(ctx, end)
	reader, err := kgo.NewClient(append(p.options, kgo.ConsumeTopics(p.Prefix+end),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		p.Fatal(err)
	}
	defer reader.Close()
	var records []*kgo.Record
	for int64(len(records)) < want {
		found := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			p.Fatalf("%d of %d records come in time: %v", len(records), want, found.Err())
		}
		records = append(records, found.Records()...)
	}
	return records
}

// size returns how many records a topic has.
func (p *Place) size(ctx context.Context, end string) (n int64) {
	p.Helper()
	request := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = p.Prefix + end
	for i := range len(p.partitions(ctx, topic.Topic)) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = int32(i), -1 // the end
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, p.admin)
	if err != nil {
		p.Fatal(err)
	}
	for _, topic := range answer.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				p.Fatal(err)
			}
			n += partition.Offset
		}
	}
	return n
}

// partitions returns what the broker knows of each partition of a topic.
func (p *Place) partitions(
	ctx context.Context, name string,
) []kmsg.MetadataResponseTopicPartition {
	p.Helper()
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, p.admin)
	if err != nil {
		p.Fatal(err)
	}
	return answer.Topics[0].Partitions
}

// Messages returns the stored sequences of each chat, in the order in which they are stored.
func (p *Place) Messages() map[tidemark.ChatID][]uint64 {
	p.Helper()
	found := map[tidemark.ChatID][]uint64{}
	for _, r := range p.Read(".messages") {
		var body struct {
			Data struct {
				Chat     tidemark.ChatID `json:"chat_id"`
				Sequence uint64          `json:"sequence"`
			} `json:"data"`
		}
		if err := json.Unmarshal(r.Value, &body); err != nil {
			p.Fatalf("%v in %s", err, r.Value)
		}
		chat := body.Data.Chat
		found[chat] = append(found[chat], body.Data.Sequence)
	}
	return found
}

// InOrder fails the test unless each chat has the messages 1 to n, each for the first time after
// all earlier ones. It returns how many came more than once.
func (p *Place) InOrder(chats []tidemark.ChatID, n uint64) (repeated int) {
	p.Helper()
	found := p.Messages()
	for _, chat := range chats {
		seen := uint64(0)
		for _, sequence := range found[chat] {
			switch {
			case sequence == seen+1:
				seen++
			case sequence <= seen:
				repeated++
			default:
				p.Errorf("message %d of %s is stored before message %d", sequence, chat, seen+1)
			}
		}
		if seen != n {
			p.Errorf("%s has %d messages, want %d", chat, seen, n)
		}
	}
	return repeated
}

// Message returns the event of a message, with a content of so many bytes.
func Message(chat tidemark.ChatID, sequence uint64, size int) outlet.Event {
	return outlet.Event{
		ID:   outlet.EventID(outlet.MessagePersisted, string(chat), fmt.Sprint(sequence)),
		Type: outlet.MessagePersisted, Chat: chat, Sequence: sequence,
		Time: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC),
		Data: fmt.Appendf(nil, `{"chat_id":%q,"sequence":%d,"content":%q}`, chat, sequence,
			noise(size)),
	}
}

// noise returns a text that cannot be compressed much.
func noise(size int) string {
	text := ""
	for len(text) < size {
		text += rand.Text()
	}
	return text[:size]
}
