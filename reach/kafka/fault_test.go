package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

// TestDeliver_told_in_order_by_one_batch_of_a_partition: a group of records is one batch of each
// partition, also of one whose place a new session does not know yet. So a part of it cannot fail
// alone.
func TestDeliver_told_in_order_by_one_batch_of_a_partition(t *testing.T) {
	cluster := fake(t)
	p := kafkatest.NewPlace(t, cluster.ListenAddrs())
	p.Create(2, nil)
	o := p.Open(&kafkatest.Link{}, nil)
	var mu sync.Mutex
	batches := map[string]int{}
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			for _, partition := range topic.Partitions {
				batches[fmt.Sprint(topic.TopicID, partition.Partition)]++
			}
		}
		return nil, nil, false
	})
	const rounds = 100
	for round := range rounds {
		var events []outlet.Event
		if round%2 == 0 {
			o = p.Open(&kafkatest.Link{}, nil)
		}
		for n := range o.Limits().Events {
			chat := tidemark.ChatID(fmt.Sprint("c", n%20, ".", round))
			events = append(events, kafkatest.Message(chat, uint64(n/20+1), 100))
		}
		if n, why := o.Deliver(t.Context(), events); why != nil {
			t.Fatalf("%d accepted, %+v", n, why)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(batches) != 2 {
		t.Errorf("%d partitions got something, want 2", len(batches))
	}
	for partition, n := range batches {
		if n != rounds {
			t.Errorf("the partition %s got %d batches, want %d", partition, n, rounds)
		}
	}
}

// TestDeliver_after_errors_of_a_partition: an error that may pass is retried, and others come back
// with their code. A message is stored once, and not before an earlier one.
func TestDeliver_after_errors_of_a_partition(t *testing.T) {
	for name, c := range map[string]struct {
		fault kfake.Fault
		// status is that of the refusal of the first delivery, 0 if it is accepted.
		status int
	}{
		"not the leader":     {kfake.Fault{Err: kerr.NotLeaderForPartition, Count: 3}, 0},
		"too few replicas":   {kfake.Fault{Err: kerr.NotEnoughReplicas, Count: -1}, 19},
		"stored by too few":  {kfake.Fault{Err: kerr.NotEnoughReplicasAfterAppend, Count: 2}, 0},
		"stored in too long": {kfake.Fault{Err: kerr.RequestTimedOut, Count: 2}, 0},
		"no permission":      {kfake.Fault{Err: kerr.TopicAuthorizationFailed}, 29},
		"invalid records":    {kfake.Fault{Err: kerr.InvalidRecord, Count: -1}, 87},
		"a gap":              {kfake.Fault{Err: kerr.OutOfOrderSequenceNumber}, 0},
		"unknown":            {kfake.Fault{Err: kerr.UnknownServerError}, -1},
		"no producer id": {kfake.Fault{
			Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true,
			Err: kerr.ClusterAuthorizationFailed,
		}, 31},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t)
			p := kafkatest.NewPlace(t, cluster.ListenAddrs())
			p.Create(1, nil)
			o := p.Open(&kafkatest.Link{}, nil)
			if c.fault.Keys == nil {
				c.fault.Keys = []kmsg.Key{kmsg.Produce}
			}
			fault := cluster.Fault(c.fault)
			events := []outlet.Event{
				kafkatest.Message("c", 1, 10), kafkatest.Message("c", 2, 10),
			}
			began := time.Now()
			accepted, why := o.Deliver(t.Context(), events)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it takes %v", took)
			}
			switch {
			case fault.Hits() == 0:
				t.Error("the fault did not happen")
			case c.status == 0 && why != nil:
				t.Errorf("the refusal is %+v", why)
			case c.status != 0 && (why == nil || accepted > 0 || why.Status != c.status):
				t.Errorf("%d accepted, the refusal is %+v, want the status %d", accepted, why,
					c.status)
			}
			fault.Remove()
			events = append(events[accepted:], kafkatest.Message("c", 3, 10))
			if _, why := o.Deliver(t.Context(), events); why != nil {
				t.Errorf("after the fault: %+v", why)
			}
			if repeated := p.InOrder([]tidemark.ChatID{"c"}, 3); repeated > 0 {
				t.Errorf("%d messages are stored twice", repeated)
			}
		})
	}
}

// TestDeliver_partition_that_fails_holds_up_its_own_chats: the chats of other partitions go on, and
// nothing of them is stored twice.
func TestDeliver_partition_that_fails_holds_up_its_own_chats(t *testing.T) {
	cluster := fake(t)
	p := kafkatest.NewPlace(t, cluster.ListenAddrs())
	p.Create(2, nil)
	o := p.Open(&kafkatest.Link{}, nil)
	fault := cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{0},
		Err: kerr.TopicAuthorizationFailed, Count: -1,
	})
	var events []outlet.Event
	var chats []tidemark.ChatID
	for i := range 20 {
		chat := tidemark.ChatID(fmt.Sprint("c", i))
		chats = append(chats, chat)
		events = append(events, kafkatest.Message(chat, 1, 10))
	}
	var left []outlet.Event
	for i, why := range o.DeliverEach(t.Context(), events) {
		if why != nil {
			left = append(left, events[i])
		}
	}
	if len(left) == 0 || len(left) == len(events) {
		t.Fatalf("%d of %d events are refused", len(left), len(events))
	}
	fault.Remove()
	if _, why := o.Deliver(t.Context(), left); why != nil {
		t.Fatalf("after the fault: %+v", why)
	}
	if repeated := p.InOrder(chats, 1); repeated > 0 {
		t.Errorf("%d messages are stored twice", repeated)
	}
}

// TestDeliver_told_in_order_whatever_brokers_answer delivers while requests fail in random ways, or
// are answered late. What is accepted is stored, for the first time after all earlier messages of
// its chat.
func TestDeliver_told_in_order_whatever_brokers_answer(t *testing.T) {
	errors := []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.TopicAuthorizationFailed, kerr.MessageTooLarge,
		kerr.UnknownTopicOrPartition, kerr.UnknownServerError, kerr.OutOfOrderSequenceNumber,
	}
	seed := rand.Uint64()
	for round := range uint64(4) {
		t.Run(fmt.Sprintf("%d.%d", seed, round), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, round))
			cluster := fake(t)
			p := kafkatest.NewPlace(t, cluster.ListenAddrs())
			p.Create(2, nil)
			link := &kafkatest.Link{}
			o := p.Open(link, func(cfg *kafka.Config) { cfg.Timeout = time.Second })
			var faults []*kfake.FaultHandle
			const last = 60
			chats := []tidemark.ChatID{"a", "b", "c", "d"}
			at := map[tidemark.ChatID]uint64{}
			waits := func(chat tidemark.ChatID) bool { return at[chat] < last }
			for step := 0; slices.ContainsFunc(chats, waits); step++ {
				if step < 100 && random.IntN(2) == 0 {
					faults = append(faults, cluster.Fault(kfake.Fault{
						Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{random.Int32N(2)},
						Err: errors[random.IntN(len(errors))], Count: 1 + random.IntN(2),
					}))
				}
				if step < 100 && random.IntN(10) == 0 {
					link.Lose(1)
				}
				var events []outlet.Event
				for _, chat := range chats {
					for n := range random.Uint64N(5) {
						if sequence := at[chat] + n + 1; sequence <= last {
							events = append(events,
								kafkatest.Message(chat, sequence, random.IntN(2_000)))
						}
					}
				}
				for i, why := range o.DeliverEach(t.Context(), events) {
					if why == nil {
						at[events[i].Chat] = events[i].Sequence
					}
				}
			}
			hits := int64(0)
			for _, f := range faults {
				hits += int64(f.Hits())
			}
			if hits < 5 {
				t.Errorf("%d faults happened, want 5 or more", hits)
			}
			t.Logf("%d faults, %d repetitions", hits, p.InOrder(chats, last))
		})
	}
}

// TestDeliver_without_an_answer: a delivery whose time is over, or whose outlet was closed, is
// refused like any other.
func TestDeliver_without_an_answer(t *testing.T) {
	o, err := kafka.New(kafka.Config{
		Cluster: kafka.Cluster{Brokers: fake(t).ListenAddrs()}, URL: "kafka:test",
	})
	if err != nil {
		t.Fatal(err)
	}
	events := []outlet.Event{kafkatest.Message("c", 1, 10), kafkatest.Message("c", 2, 10)}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n, why := o.Deliver(over, events); n != 0 || why == nil || why.Detail == "" {
		t.Errorf("after its time: %d accepted, %+v, want a refusal", n, why)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	for i, why := range o.DeliverEach(t.Context(), events) {
		if why == nil || why.Detail == "" {
			t.Errorf("after the end, event %d: %+v, want a refusal", i, why)
		}
	}
}
