package dynamodb

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/wait"
)

// rewrite is the environment variable with which the tests write the tables instead of comparing
// them.
const rewrite = "TIDEMARK_UPDATE"

// A meter counts the calls of stores and their cost.
type meter struct {
	mu            sync.Mutex
	reads, writes float64
	calls         map[string]int

	next *http.Transport
}

func newMeter(t *testing.T) *meter {
	m := &meter{calls: map[string]int{}, next: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(m.next.CloseIdleConnections)
	return m
}

func (m *meter) consumed(_ string, reads, writes float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads += reads
	m.writes += writes
}

// RoundTrip implements http.RoundTripper. It counts answered calls only, since a busy machine may
// give up a call and repeat it.
func (m *meter) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := m.next.RoundTrip(request)
	if err == nil {
		_, operation, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
		m.mu.Lock()
		m.calls[operation]++
		m.mu.Unlock()
	}
	return answer, err
}

// take returns the calls by kind and the request units since the last take.
func (m *meter) take() (calls string, reads, writes float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(m.calls)) {
		if n := m.calls[kind]; n > 1 {
			kind = fmt.Sprintf("%d %s", n, kind)
		}
		kinds = append(kinds, kind)
	}
	reads, writes = m.reads, m.writes
	m.reads, m.writes, m.calls = 0, 0, map[string]int{}
	return strings.Join(kinds, ", "), reads, writes
}

// metered opens a store whose calls go through a meter.
func metered(t *testing.T, url string, m *meter) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{
		URL: url, Consumed: m.consumed, Transport: m, Patience: wait.Hang,
	})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// TestCost_table measures the cost of each operation, after a run that is not counted. It checks
// the bounds of targets.md, and compares with the table of README.md. TIDEMARK_UPDATE=1 writes the
// table.
func TestCost_table(t *testing.T) {
	m, url := newMeter(t), newTables(t)
	w := &workload{t: t, s: metered(t, url, m)}
	w.other = func() *Store { s := metered(t, url, m); m.take(); return s }
	w.fixture()
	operations := slices.Concat(w.writes(), w.relations(), w.annotations(), w.outbox(), w.reads(),
		w.states())
	lines := make([]string, len(operations))
	for round := range 2 {
		for i, o := range operations {
			if o.before != nil {
				if err := o.before(round); err != nil {
					t.Fatalf("before %s: %v", o.name, err)
				}
			}
			m.take()
			if err := o.run(round); err != nil {
				t.Fatalf("%s: %v", o.name, err)
			}
			calls, reads, writes := m.take()
			lines[i] = fmt.Sprintf("| %s | %s | %s | %s | %s |",
				o.name, calls, figure(reads), figure(writes), o.most)
			if most := o.most; most.calls != "" && calls != most.calls ||
				most.reads > 0 && reads > most.reads || most.writes > 0 && writes > most.writes {
				t.Errorf("%s takes %s, %v read and %v write units; want %s",
					o.name, calls, reads, writes, most)
			}
		}
	}
	compareTable(t, "costs",
		append([]string{"| operation | calls | read units | write units | at most |",
			"|---|---|---|---|---|"}, lines...))
}

// String returns a cell of the table.
func (m bound) String() string {
	var parts []string
	for unit, n := range map[string]float64{"read": m.reads, "write": m.writes} {
		if n > 0 {
			parts = append(parts, figure(n)+" "+unit)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// figure writes a number with commas.
func figure(n float64) string {
	whole, fraction, point := strings.Cut(strconv.FormatFloat(n, 'f', -1, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + fraction
	}
	return whole
}

// TestCost_sizes_of_items measures the mean size of each table's items, as DynamoDB counts it.
// Storage is paid for by size. Messages have 200 bytes of content, and ids are as long as UUIDs.
func TestCost_sizes_of_items(t *testing.T) {
	url := newTables(t)
	w := &workload{t: t, s: openTest(t, url)}
	who := []tidemark.UserID{tidemark.UserID(long("anna")), tidemark.UserID(long("ben"))}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range 10 {
		chat := chatNo(i)
		_, _, err := w.s.CreateChat(t.Context(), storage.NewChat{
			ID:        chat,
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			Name:      "ten letters",
			CreatedAt: now,
			Creation:  strings.Repeat("x", 26),
			Creator:   who[0],
			Members:   who,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, draft := range textsOf(fmt.Sprint("size", i), 200, repeated(chat, 10)...) {
			draft.SenderID, draft.CreatedAt = who[0], now
			if err := w.append([]tidemark.Draft{draft}); err != nil {
				t.Fatal(err)
			}
		}
		err = errors.Join(w.raise(tidemark.Raise{Acked: 9, Read: 9}, who[0], chat),
			w.raise(tidemark.Raise{Acked: 9, Read: 9}, who[1], chat), w.mark(10, chat, who[1]),
			w.rewind("hook", chat))
		if err != nil {
			t.Fatal(err)
		}
		// A counter is largest with a position and an open backlog.
		item, err := w.settlement("", chat)
		item.To.Sequence--
		err = errors.Join(err, w.settle(&item))
		if err != nil {
			t.Fatal(err)
		}
	}
	to, err := endpoint.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	client := service.Shared(t).Client()
	lines := []string{"| table | an item's bytes |", "|---|---|"}
	for _, table := range []string{
		"messages", "idempotency_keys", "chat_counters", "chat_memberships", "delivery_state",
		"pending_deliveries", "outlet_backlogs",
	} {
		out, err := client.Scan(t.Context(), &dynamodb.ScanInput{
			TableName: aws.String(to.Table(table)),
		})
		if err != nil {
			t.Fatal(err)
		}
		bytes, items := 0, 0
		for _, it := range out.Items {
			if name, _ := it["chat_id"].(*types.AttributeValueMemberS); name != nil &&
				strings.HasPrefix(name.Value, "|") {
				continue
			}
			bytes += bytesOf(it)
			items++
		}
		if items < 10 {
			t.Fatalf("%s has %d items", table, items)
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %d |", table, (bytes+items/2)/items))
	}
	compareTable(t, "sizes", lines)
}

// bytesOf returns how many bytes DynamoDB counts for an item ("DynamoDB item sizes and formats").
// It counts the bytes of names and texts, one for a flag, and for a number one for each two digits
// and one more.
func bytesOf(it map[string]types.AttributeValue) (n int) {
	for name, value := range it {
		n += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			n += len(v.Value)
		case *types.AttributeValueMemberN:
			digits := strings.TrimRight(v.Value, "0")
			if name == "expires_at" { // by the clock, and its digits are few at some moments
				digits = v.Value
			}
			n += (len(digits)+1)/2 + 1
		default:
			n++
		}
	}
	return n
}

// The marks in README.md around the generated tables.
const (
	tableBegin = "<!-- %s: written by the tests, TIDEMARK_UPDATE=1 go test -run Cost " +
		"./storage/dynamodb -->\n"
	tableEnd = "<!-- the end of %s -->\n"
)

// compareTable compares a table with README.md's.
func compareTable(t *testing.T, name string, table []string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	begin, end := fmt.Sprintf(tableBegin, name), fmt.Sprintf(tableEnd, name)
	before, rest, begins := strings.Cut(string(text), begin)
	written, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("README.md has no place for the table of %s", name)
	}
	if os.Getenv(rewrite) != "" {
		err := os.WriteFile("README.md",
			[]byte(before+begin+strings.Join(table, "\n")+"\n"+end+after), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	want := strings.Split(strings.TrimSpace(written), "\n")
	for i := range max(len(want), len(table)) {
		got, documented := at(table, i), at(want, i)
		if !sameRow(got, documented) {
			t.Errorf("README.md's table of %s says\n%s\nbut it is\n%s\n"+
				""+rewrite+"=1 writes what is", name, documented, got)
		}
	}
}

// sameRow reports whether two rows are equal. Operations of hundreds of calls may differ, because a
// busy machine repeats some calls.
func sameRow(a, b string) bool {
	number := regexp.MustCompile(`[0-9][0-9,.]*`)
	x, y := number.FindAllString(a, -1), number.FindAllString(b, -1)
	return number.ReplaceAllString(a, "") == number.ReplaceAllString(b, "") &&
		slices.EqualFunc(x, y, func(a, b string) bool {
			n, errN := strconv.ParseFloat(strings.ReplaceAll(a, ",", ""), 64)
			m, errM := strconv.ParseFloat(strings.ReplaceAll(b, ",", ""), 64)
			return a == b || errN == nil && errM == nil && min(n, m) > 500 && math.Abs(n-m) < 0.01*n
		})
}

func TestCost_rows_that_differ(t *testing.T) {
	const row = "| `CreateChat` of 600 | 3 GetItem, 1202 UpdateItem | 622 | 4,202 | |"
	for other, want := range map[string]bool{
		row: true,
		"| `CreateChat` of 600 | 3 GetItem, 1203 UpdateItem | 623 | 4,203 | |": true,
		"| `CreateChat` of 600 | 4 GetItem, 1202 UpdateItem | 622 | 4,202 | |": false,
		"| `CreateChat` of 600 | 3 GetItem, 1202 UpdateItem | 622 | 4,302 | |": false,
		"| `CreateChat` of 600 | 3 GetItem, 1202 PutItem | 622 | 4,202 | |":    false,
		"| `CreateChat` of 601 | 3 GetItem, 1202 UpdateItem | 630 | 4,202 | |": false,
	} {
		if got := sameRow(row, other); got != want {
			t.Errorf("%s is the same as %s: %v, want %v", other, row, got, want)
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

// TestCost_of_a_message_falls_when_many_are_sent: 64 senders on one chat share transactions. Each
// waits for its answer.
func TestCost_of_a_message_falls_when_many_are_sent(t *testing.T) {
	t.Parallel()
	const senders, each = 64, 25
	m := newMeter(t)
	w := &workload{t: t, s: metered(t, newTables(t), m)}
	err := w.create(chatNo(1), "group", "full", append(named("sender", senders), "writer"))
	if err != nil {
		t.Fatal(err)
	}
	m.take()
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			for n := range each {
				err := w.append(textsOf(fmt.Sprintf("%d-%d", i, n), 200, chatNo(1)))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	calls, reads, writes := m.take()
	t.Logf("%s; %.2f write and %.2f read units a message",
		calls, writes/(senders*each), reads/(senders*each))
	if got := writes / (senders * each); got > 4.3 {
		t.Errorf("%.2f write units a message, want at most 4.3", got)
	}
	if got := reads / (senders * each); got > 0.1 {
		t.Errorf("%.2f read units a message: the chat and its members are known", got)
	}
}
