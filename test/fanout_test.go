package test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
	"github.com/tidemark-im/tidemark/test/services/kafka"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// metricOf returns the value of a metric of a node with --dev, or "" if there is none.
func metricOf(t *testing.T, address, name string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+address+"/metrics", nil)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	for line := range strings.Lines(string(body)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fanouts returns how many messages nodes have handled in one way.
func fanouts(t *testing.T, way string, nodes ...*process) (n int) {
	t.Helper()
	for _, p := range nodes {
		of, err := strconv.Atoi(metricOf(t, p.address,
			`tidemark_fanout_messages_total{way="`+way+`"}`))
		must(t, err)
		n += of
	}
	return n
}

// byKafka sends until messages go by way of Kafka to one of some nodes.
func byKafka(t *testing.T, sender user, chat string, nodes ...*process) {
	t.Helper()
	before := fanouts(t, "handed_over", nodes...)
	eventually(t, "messages go by way of Kafka", func() bool {
		sender.send(t, chat, fmt.Sprint("does Kafka take me? ", time.Now().UnixNano()))
		return fanouts(t, "handed_over", nodes...) > before
	}, func() string { return "they do not" })
}

// TestFanout_by_kafka: a message goes from the node that stores it to Kafka, and from there to its
// reader. Its tick comes. Without Kafka it comes, too.
func TestFanout_by_kafka(t *testing.T) {
	t.Parallel() // It waits more than it works.
	topics := kfake.MustCluster(kfake.SeedTopics(4, "tidemark.fanout"))
	t.Cleanup(topics.Close)
	p := newProcess(t)
	p.flags = append(p.flags, "--worker-timeout", "6s", "--fanout", "kafka",
		"--kafka", "kafka://"+strings.Join(topics.ListenAddrs(), ","))
	alice, bob := as(p.serve(), "alice"), as(p.address, "bob")
	chat := alice.direct(t, "bob")
	byKafka(t, alice, chat, p)
	a, b := dial(t, alice), dial(t, bob)
	arrives := func(text string) {
		t.Helper()
		sent := alice.send(t, chat, text)
		next(t, b, "message", func(m message) bool { return m.Content == text })
		write(t, b, "ack", "", map[string]any{
			"chat_id": chat, "last_acked_sequence": sent.Sequence,
		})
		next(t, a, "status_update", func(s state) bool {
			return s.UserID == "bob" && s.Acked == sent.Sequence
		})
	}
	stored, direct := fanouts(t, "stored", p), fanouts(t, "direct", p)
	for n := range 20 {
		arrives(fmt.Sprint("by Kafka ", n))
	}
	// On a busy machine Kafka may not answer in time. What it stored then goes both ways.
	handed := func() int {
		return fanouts(t, "stored", p) - stored + fanouts(t, "direct", p) - direct
	}
	// A message is counted after it was handed over.
	eventually(t, "20 messages were handed over", func() bool { return handed() >= 20 },
		func() string { return fmt.Sprint(handed(), " were") })
	topics.Close()
	direct = fanouts(t, "direct", p)
	arrives("without Kafka")
	eventually(t, "a message was handed over without Kafka", func() bool {
		return fanouts(t, "direct", p) > direct
	}, func() string { return "none was" })
}

// TestFanout_survives_the_death_of_kafka: two nodes share the hand-over, and Kafka is killed with
// SIGKILL under load, and comes back. Every confirmed message reaches its reader, and its tick
// comes.
func TestFanout_survives_the_death_of_kafka(t *testing.T) {
	t.Parallel() // It waits more than it works.
	broker := kafka.Start(t)
	place := kafkatest.NewPlace(t, []string{broker.Address()})
	place.CreateFanout(4)
	binary := build(t)
	url, shared := postgres.Shared(t).Database(t), redis.Database(t)
	var nodes []*process
	for n := range 2 {
		p := processOf(t, binary)
		p.url = url
		p.flags = []string{
			"--dev", "--redis", shared, "--node", fmt.Sprint("n", n), "--worker-timeout", "6s",
			"--fanout", "kafka:" + place.Prefix, "--kafka", "kafka://" + broker.Address(),
		}
		p.serve()
		nodes = append(nodes, p)
	}
	alice, bob := as(nodes[0].address, "alice"), as(nodes[1].address, "bob")
	chat := alice.direct(t, "bob")
	byKafka(t, alice, chat, nodes...)
	a, b := dial(t, alice), dial(t, bob)
	sent := make(chan message, 10_000)
	messages := 0
	// load sends until some messages more have gone one way. A busy Kafka may not answer in time:
	// then they go without it for a while.
	load := func(way string, more int) {
		enough := fanouts(t, way, nodes...) + more
		eventually(t, "messages go the way "+way, func() bool {
			for range 10 {
				sent <- alice.send(t, chat, fmt.Sprint("message ", messages))
				messages++
				<-time.After(10 * time.Millisecond)
			}
			return fanouts(t, way, nodes...) >= enough
		}, func() string { return "they do not" })
	}
	go func() {
		defer close(sent)
		load("stored", 50)
		broker.Kill(t)
		load("direct", 100)
		broker.Run(t)
		load("stored", 50)
	}()
	for m := range sent {
		next(t, b, "message", func(got message) bool { return got.Content == m.Content })
		write(t, b, "ack", "", map[string]any{"chat_id": chat, "last_acked_sequence": m.Sequence})
		next(t, a, "status_update", func(s state) bool {
			return s.UserID == "bob" && s.Acked == m.Sequence
		})
	}
	t.Logf("%d messages came", messages)
}

// TestFanout_rolls_in_both_directions: nodes change from direct to kafka and back, one after the
// other. Each confirmed message reaches its reader. In the end the outlet can be deleted.
func TestFanout_rolls_in_both_directions(t *testing.T) {
	// It is not parallel: its Kafka is in this process, and the workers give it little time.
	topics := kfake.MustCluster(kfake.SeedTopics(4, "tidemark.fanout"))
	t.Cleanup(topics.Close)
	binary := build(t)
	key, file := apiKey(t, binary, "--scope", "admin")
	url, shared := postgres.Shared(t).Database(t), redis.Database(t)
	var nodes [2]*process
	start := func(n int, how string) {
		t.Helper()
		p := processOf(t, binary)
		p.url = url
		p.flags = []string{
			"--dev", "--redis", shared, "--node", fmt.Sprint("n", n), "--worker-timeout", "6s",
			"--fanout", how, "--kafka", "kafka://" + strings.Join(topics.ListenAddrs(), ","),
			"--api-keys-file", file,
		}
		p.serve()
		nodes[n] = p
	}
	start(0, "direct")
	start(1, "direct")
	chat := as(nodes[0].address, "alice").direct(t, "bob")
	told := 0
	arrive := func() {
		t.Helper()
		for from := range nodes {
			b := dial(t, as(nodes[1-from].address, "bob"))
			next(t, b, "session", func(open) bool { return true })
			for range 10 {
				told++
				text := fmt.Sprint("message ", told)
				as(nodes[from].address, "alice").send(t, chat, text)
				next(t, b, "message", func(m message) bool { return m.Content == text })
			}
			must(t, b.CloseNow())
		}
	}
	roll := func(n int, how string) {
		t.Helper()
		nodes[n].stop()
		start(n, how)
		arrive()
	}
	arrive()
	roll(0, "kafka")
	byKafka(t, as(nodes[0].address, "alice"), chat, nodes[0])
	arrive()
	roll(1, "kafka")
	byKafka(t, as(nodes[1].address, "alice"), chat, nodes[:]...)
	arrive()
	roll(0, "direct")
	roll(1, "direct")
	operator := user{name: "operator", url: "http://" + nodes[0].address, token: key}
	var made struct {
		Waiting int `json:"waiting_chats"`
	}
	eventually(t, "nothing waits for the outlet", func() bool {
		operator.call(t, http.MethodGet, "/admin/outlets/fanout", nil, &made)
		return made.Waiting == 0
	}, func() string { return fmt.Sprint(made.Waiting, " chats do") })
	operator.call(t, http.MethodDelete, "/admin/outlets/fanout", nil, nil)
	arrive()
}
