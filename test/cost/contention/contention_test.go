// Package contention measures the cost of several processes that write to one chat.
package contention

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

const (
	senders = 32
	chat    = tidemark.ChatID("busy")
)

// task is what a process of senders has to do, as JSON in an environment variable.
type task struct {
	URL         string
	First, Last int // the numbers of its senders
	// For is how long they send.
	For time.Duration
	// Away is how long a call takes to DynamoDB, and its answer back.
	Away time.Duration
}

// latency is an HTTP transport that delays calls and answers, as a distant network does.
type latency struct {
	away time.Duration
	next http.RoundTripper
}

func (d latency) RoundTrip(request *http.Request) (*http.Response, error) {
	<-time.After(d.away)
	response, err := d.next.RoundTrip(request)
	<-time.After(d.away)
	return response, err
}

// outcome is the answer of a process to its task.
type outcome struct {
	Reads, Writes float64
	Sent          int
	Slowest       time.Duration
	Err           string
}

// fewest is how many messages each sender sends at least, however slow the machine is.
const fewest = 10

const orderVariable = "TIDEMARK_CONTENTION_ORDER"

func TestMain(m *testing.M) {
	if text := os.Getenv(orderVariable); text != "" {
		result := perform(text, os.Stdin, os.Stdout)
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func sender(i int) tidemark.UserID { return tidemark.UserID("sender-" + strconv.Itoa(i)) }

// perform runs a process of senders. It opens the store, prints a line and waits for one. Then each
// sender sends one message at a time, until the time is over.
func perform(text string, in io.Reader, out io.Writer) (b outcome) {
	fail := func(err error) outcome { b.Err = err.Error(); return b }
	var o task
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var mu sync.Mutex
	network := latency{o.Away, &http.Transport{MaxIdleConnsPerHost: senders}}
	s, err := dynamodb.Open(ctx,
		dynamodb.Config{URL: o.URL, Transport: network,
			Consumed: func(_ string, reads, writes float64) {
				mu.Lock()
				defer mu.Unlock()
				b.Reads += reads
				b.Writes += writes
			}})
	if err != nil {
		return fail(err)
	}
	_, _ = fmt.Fprintln(out, "ready")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fail(err)
	}
	start, errs := time.Now(), make([]error, senders)
	var group sync.WaitGroup
	for i := o.First; i < o.Last; i++ {
		group.Go(func() {
			for n := 0; time.Since(start) < o.For || n < fewest; n++ {
				began := time.Now()
				if errs[i] = send(ctx, s, i, n); errs[i] != nil {
					return
				}
				mu.Lock()
				b.Sent++
				b.Slowest = max(b.Slowest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if err := errors.Join(errors.Join(errs...), s.Close()); err != nil {
		return fail(err)
	}
	return b
}

func send(ctx context.Context, s *dynamodb.Store, i, n int) error {
	key := fmt.Sprintf("%d-%d", i, n)
	_, err := storage.AppendOne(ctx, s, tidemark.Draft{
		Kind:            tidemark.KindMessage,
		ChatID:          chat,
		SenderID:        sender(i),
		ClientMessageID: key,
		MessageID:       tidemark.MessageID("m-" + key),
		CreatedAt:       time.Now(),
		ContentType:     tidemark.DefaultContentType,
		Content:         strings.Repeat("y", 200),
	})
	return err
}

// TestContention_three_processes_cost_at_most_twice_as_much_as_one: 32 senders write to one chat,
// and each waits for its answer. Every message is stored once, without a gap.
func TestContention_three_processes_cost_at_most_twice_as_much_as_one(t *testing.T) {
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("TIDEMARK_COST_ROUNDS")); err == nil {
		rounds = n
	}
	var one, three []float64
	for range rounds {
		alone, _ := measure(t, 1, time.Second, 0)
		together, _ := measure(t, 3, time.Second, 0)
		one, three = append(one, alone), append(three, together)
	}
	slices.Sort(one)
	slices.Sort(three)
	alone, together := one[rounds/2], three[rounds/2]
	t.Logf("write units a message, median (least to most) of %d rounds: one process %.2f "+
		"(%.2f–%.2f), three %.2f (%.2f–%.2f), %.2f times",
		rounds, alone, one[0], one[rounds-1], together, three[0], three[rounds-1], together/alone)
	if together > 2*alone {
		t.Errorf("three processes pay %.2f write units a message, and one %.2f; want at most "+
			"twice as much", together, alone)
	}
}

// TestContention_nobody_starves: DynamoDB is as far away as in a Region. So the process that has
// just written knows the head before the others. The others must be answered, too. A message that
// is not stored before its call's deadline fails the measurement.
func TestContention_nobody_starves(t *testing.T) {
	const away = 4 * time.Millisecond
	// What the machine does besides changes who meets whom. So one round of four has to hold.
	for round := 1; ; round++ {
		alone, _ := measure(t, 1, time.Second, away)
		together, slowest := measure(t, 3, 8*time.Second, away)
		t.Logf("write units a message: one process %.2f, three %.2f, %.2f times; the slowest "+
			"message took %v", alone, together, together/alone, slowest)
		if together <= 2*alone {
			return
		}
		if round == 4 {
			t.Fatalf("three processes pay %.2f write units a message, and one %.2f, want at most "+
				"twice as much", together, alone)
		}
	}
}

// measure lets the processes send for a time. It returns the write units of a message and the
// duration of the slowest message. A read unit counts as a fifth of a write unit, as in dollars.
func measure(
	t *testing.T, processes int, length, away time.Duration,
) (units float64, slowest time.Duration) {
	t.Helper()
	url := service.Shared(t).Store(t)
	if err := dynamodb.Migrate(t.Context(), url, dynamodb.Up); err != nil {
		t.Fatal(err)
	}
	s, err := dynamodb.Open(t.Context(), dynamodb.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	members := make([]tidemark.UserID, senders)
	for i := range members {
		members[i] = sender(i)
	}
	if _, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID:        chat,
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: time.Now(),
		Creator:   members[0],
		Members:   members,
	}); err != nil {
		t.Fatal(err)
	}
	outcomes := run(t, url, processes, length, away)
	var sum outcome
	for _, b := range outcomes {
		sum.Reads += b.Reads
		sum.Writes += b.Writes
		sum.Sent += b.Sent
		sum.Slowest = max(sum.Slowest, b.Slowest)
	}
	wantAll(t, s, sum.Sent)
	t.Logf("%d processes: %d messages, %.2f write and %.2f read units a message, slowest %v",
		processes, sum.Sent,
		sum.Writes/float64(sum.Sent), sum.Reads/float64(sum.Sent),
		sum.Slowest.Round(time.Millisecond))
	return (sum.Writes + sum.Reads/5) / float64(sum.Sent), sum.Slowest
}

// run starts the processes, lets them begin at the same time, and collects their outcomes.
func run(t *testing.T, url string, processes int, length, away time.Duration) (outcomes []outcome) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type process struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	var all []process
	for p := range processes {
		text, err := json.Marshal(task{
			url, p * senders / processes, (p + 1) * senders / processes, length, away,
		})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, process{cmd, in, bufio.NewReader(out)})
	}
	for _, p := range all {
		if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatalf("a process says %q: %v", line, err)
		}
	}
	for _, p := range all {
		if _, err := io.WriteString(p.in, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range all {
		var b outcome
		if err := json.NewDecoder(p.out).Decode(&b); err != nil || b.Err != "" {
			t.Fatalf("a process failed: %v %s", err, b.Err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		outcomes = append(outcomes, b)
	}
	return outcomes
}

// wantAll checks that the chat has every message once, in the order of each sender, without a gap.
func wantAll(t *testing.T, s *dynamodb.Store, sent int) {
	t.Helper()
	next, got := map[tidemark.UserID]int{}, 0
	for {
		pages, err := s.Ranges(t.Context(), []storage.Range{
			{Chat: chat, After: tidemark.Sequence(got), Limit: 1000},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pages[0] {
			if got++; m.Sequence != tidemark.Sequence(got) {
				t.Fatalf("message %d has the sequence %d", got, m.Sequence)
			}
			_, number, _ := strings.Cut(m.ClientMessageID, "-")
			if n := next[m.SenderID]; number != strconv.Itoa(n) {
				t.Fatalf("message %s of %s comes where number %d should be",
					m.ClientMessageID, m.SenderID, n)
			}
			next[m.SenderID]++
		}
		if len(pages[0]) == 0 {
			break
		}
	}
	if got != sent || got < 100 {
		t.Fatalf("the chat has %d messages, and %d were confirmed", got, sent)
	}
}
