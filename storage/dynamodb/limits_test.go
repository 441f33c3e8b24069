package dynamodb

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/test/wait"
)

// The limits of DynamoDB (Service quotas).
const (
	quotaItem        = 400 << 10
	quotaTransaction = 4 << 20
	quotaActions     = 100
	quotaGets        = 100
	quotaWrites      = 25
)

// A tally counts the calls by name, and the parts of the largest call.
type tally struct {
	http.RoundTripper
	mu    sync.Mutex
	calls map[string]int
	most  map[string]int
}

func (c *tally) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var request struct {
		TransactItems []json.RawMessage
		RequestItems  map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	parts := len(request.TransactItems)
	for _, raw := range request.RequestItems {
		var gets struct{ Keys []json.RawMessage }
		var writes []json.RawMessage
		if json.Unmarshal(raw, &gets) == nil {
			parts += len(gets.Keys)
		} else if err := json.Unmarshal(raw, &writes); err == nil {
			parts += len(writes)
		}
	}
	_, name, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	c.mu.Lock()
	c.calls[name]++
	c.most[name] = max(c.most[name], parts)
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

// during returns how many calls of a kind do makes, and how many parts the largest had.
func (c *tally) during(name string, do func()) (calls, most int) {
	c.mu.Lock()
	clear(c.calls)
	clear(c.most)
	c.mu.Unlock()
	do()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[name], c.most[name]
}

// openCounted opens a store whose calls are counted, and returns its URL.
func openCounted(t *testing.T) (*Store, *tally, string) {
	t.Helper()
	carrier := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(carrier.CloseIdleConnections)
	c := &tally{RoundTripper: carrier, calls: map[string]int{}, most: map[string]int{}}
	url := newTables(t)
	s, err := Open(t.Context(), Config{URL: url, Transport: c, Patience: wait.Hang})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, c, url
}

func usersFrom(n int, prefix string) []tidemark.UserID {
	users := make([]tidemark.UserID, n)
	for i := range users {
		users[i] = tidemark.UserID(fmt.Sprintf("%s%05d", prefix, i))
	}
	return users
}

func createGroup(t *testing.T, s *Store, id tidemark.ChatID, members ...tidemark.UserID) {
	t.Helper()
	new := storage.NewChat{
		ID:        id,
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		Creator:   members[0],
		Members:   members,
		CreatedAt: time.UnixMilli(1),
	}
	if _, created, err := s.CreateChat(t.Context(), new); err != nil || !created {
		t.Fatalf("CreateChat: created %v, error %v", created, err)
	}
}

func drafts(chat tidemark.ChatID, sender tidemark.UserID, n int, content string) []tidemark.Draft {
	all := make([]tidemark.Draft, n)
	for i := range all {
		all[i] = tidemark.Draft{
			Kind:            tidemark.KindMessage,
			ChatID:          chat,
			SenderID:        sender,
			ClientMessageID: fmt.Sprintf("key-%s-%d", chat, i),
			Content:         content,
			ContentType:     tidemark.DefaultContentType,
			MessageID:       tidemark.MessageID(fmt.Sprintf("m-%s-%d", chat, i)),
			CreatedAt:       time.UnixMilli(2),
		}
	}
	return all
}

// As many members as fit into a transaction use one. One more uses two.
func TestLimits_actions_of_a_transaction(t *testing.T) {
	s, counts, _ := openCounted(t)
	createGroup(t, s, "c", "anna")
	for _, tc := range []struct {
		name        string
		calls, most int
		do          func() error
	}{
		{"Append of 49", 1, 99, func() error {
			_, err := s.Append(t.Context(), drafts("c", "anna", 49, "a"))
			return err
		}},
		{"Append of 50 others", 2, 99, func() error {
			createGroup(t, s, "d", "anna")
			_, err := s.Append(t.Context(), drafts("d", "anna", 50, "a"))
			return err
		}},
		{
			"CreateChat of 49",
			1, 99, func() error { createGroup(t, s, "e", usersFrom(49, "e")...); return nil },
		},
		{
			"CreateChat of 50, settled",
			1, 100, func() error { createGroup(t, s, "f", usersFrom(50, "f")...); return nil },
		},
		{"AddMembers of 49", 1, 99, func() error {
			_, err := s.AddMembers(t.Context(), "c", usersFrom(49, "g"), tidemark.Ordinary,
				time.UnixMilli(3))
			return err
		}},
		{"AddMembers of 120, settled", 3, 100, func() error {
			_, err := s.AddMembers(t.Context(), "c", usersFrom(120, "h"), tidemark.Ordinary,
				time.UnixMilli(3))
			return err
		}},
	} {
		calls, most := counts.during("TransactWriteItems", func() {
			if err := tc.do(); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		})
		if tc.name == "Append of 50 others" {
			calls-- // the chat
		}
		if calls != tc.calls || most != tc.most || most > quotaActions {
			t.Errorf("%s: %d transactions, the largest of %d actions, want %d of %d",
				tc.name, calls, most, tc.calls, tc.most)
		}
	}
}

// Batches are as large as DynamoDB allows, and no larger.
func TestLimits_batches(t *testing.T) {
	s, counts, _ := openCounted(t)
	createGroup(t, s, "large", usersFrom(tidemark.PendingFanoutLimit+1, "l")...)
	for _, tc := range []struct {
		call            string
		n, calls, quota int
		do              func(n int) error
	}{
		{
			"BatchGetItem",
			100, 1, quotaGets,
			func(n int) error { _, err := s.Heads(t.Context(), chatsFrom(n)); return err },
		},
		{
			"BatchGetItem",
			101, 2, quotaGets,
			func(n int) error { _, err := s.Heads(t.Context(), chatsFrom(n)); return err },
		},
		{
			"BatchWriteItem",
			tidemark.PendingFanoutLimit + 1, 21, quotaWrites,
			func(n int) error { createGroup(t, s, "other", usersFrom(n, "o")...); return nil },
		},
	} {
		calls, most := counts.during(tc.call, func() {
			if err := tc.do(tc.n); err != nil {
				t.Errorf("%s of %d: %v", tc.call, tc.n, err)
			}
		})
		if calls < tc.calls || most != min(tc.n, tc.quota) {
			t.Errorf("%d items: %d of %s, the largest of %d, want at least %d of at most %d",
				tc.n, calls, tc.call, most, tc.calls, tc.quota)
		}
	}
}

func chatsFrom(n int) []tidemark.ChatID {
	chats := make([]tidemark.ChatID, n)
	for i := range chats {
		chats[i] = tidemark.ChatID(fmt.Sprintf("%0128d", i))
	}
	return chats
}

// The largest message is far below the largest item. 49 of them fit into a transaction. A page of
// them takes several of DynamoDB's pages.
func TestLimits_largest_messages(t *testing.T) {
	s, counts, _ := openCounted(t)
	long := func(first string) string {
		return first + strings.Repeat("x", tidemark.MaxIDLength-len(first))
	}
	chat, anna := tidemark.ChatID(long("c")), tidemark.UserID(long("anna"))
	createGroup(t, s, chat, anna)
	all := drafts(chat, anna, 60, strings.Repeat("😀", tidemark.MaxContent/4))
	for i := range all {
		all[i].ClientMessageID, all[i].MessageID = long(fmt.Sprintf("k%d-",
			i)), tidemark.MessageID(long(fmt.Sprintf("m%d-", i)))
		all[i].ContentType = strings.Repeat("t", tidemark.MaxContentType)
		all[i].Attachments = json.RawMessage(`[{"a":"` +
			strings.Repeat("a", tidemark.MaxAttachmentBytes-10) + `"}]`)
		all[i].Metadata = json.RawMessage(`{"a":"` +
			strings.Repeat("a", tidemark.MaxMetadata-8) + `"}`)
		if err := all[i].Check(); err != nil {
			t.Fatal(err)
		}
	}
	size := call.SizeOf(record.MessageItem(&all[0], tidemark.MaxSequence, 1<<40, 1<<40))
	if size >= quotaItem/4 || 49*(size+1<<10) >= quotaTransaction {
		t.Errorf("the largest message has %d bytes", size)
	}
	calls, most := counts.during("TransactWriteItems", func() {
		if _, err := s.Append(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	})
	if calls != 2 || most != 99 {
		t.Errorf("%d transactions, the largest of %d actions, want 2 of 99", calls, most)
	}
	for _, r := range []storage.Range{
		{Chat: chat, Limit: 100}, {Chat: chat, Before: 61, Limit: 100},
	} {
		var page [][]tidemark.Message
		calls, _ := counts.during("Query", func() {
			var err error
			if page, err = s.Ranges(t.Context(), []storage.Range{r}); err != nil {
				t.Fatal(err)
			}
		})
		if len(page[0]) != 60 || calls < 4 {
			t.Fatalf("%d messages in %d queries, want 60 in at least 4", len(page[0]), calls)
		}
		for i, m := range page[0] {
			if m.Sequence != tidemark.Sequence(i)+1 || !m.SameAs(&all[i]) {
				t.Errorf("message %d is number %d, or differs", i+1, m.Sequence)
			}
		}
	}
}

// amount reads from a variable how many items a test makes.
func amount(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	given := os.Getenv(variable)
	if given == "" {
		return otherwise
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a number from 1", variable, given)
	}
	return n
}

// putAll writes items without the store's methods.
func putAll(t *testing.T, s *Store, table string, n int, made func(i int) call.Item) {
	t.Helper()
	items := make([]call.Item, n)
	for i := range items {
		items[i] = made(i)
	}
	if err := s.caller("test").PutAll(t.Context(), table, items); err != nil {
		t.Fatal(err)
	}
}

// The list of a user with thousands of chats takes more than one of DynamoDB's pages.
// TIDEMARK_LIMIT_CHATS sets the number of chats.
func TestLimits_user_with_5000_chats(t *testing.T) {
	s, _, _ := openCounted(t)
	n := amount(t, "TIDEMARK_LIMIT_CHATS", 5_000)
	chats := chatsFrom(n)
	at := time.UnixMilli(5)
	putAll(t, s, record.Counters, n, func(i int) call.Item {
		c := record.Counter{
			Chat: tidemark.Chat{
				ID:             chats[i],
				Type:           tidemark.Group,
				History:        tidemark.HistoryFull,
				CreatedAt:      at,
				Head:           7,
				MemberCount:    1,
				MembersVersion: 1,
			},
			Activity: at.Add(time.Duration(i)),
		}
		return c.Item()
	})
	putAll(t, s, record.States, n, func(i int) call.Item {
		it := record.StateKey("anna", chats[i])
		it["is_member"], it["last_acked_sequence"] = call.Flag(true), call.Number(6+i%2)
		it["updated_at"] = call.Text(at.UTC().Format(call.ISOTime))
		it["acked_at"] = call.Number(at.UnixMilli())
		return it
	})
	putAll(t, s, record.Pendings, n, func(i int) call.Item {
		it := record.PendingKey("anna", chats[i])
		it["first_undelivered_seq"] = call.Number(7)
		return it
	})
	var behind, pending, states []tidemark.ChatID
	for next, more := tidemark.ChatID(""), true; more; {
		var lags []storage.Lag
		var err error
		lags, next, more, err = s.Behind(t.Context(), "anna",
			storage.BehindQuery{After: next, Limit: 700})
		if err != nil {
			t.Fatal(err)
		}
		for _, lag := range lags {
			behind = append(behind, lag.Chat)
		}
	}
	for more := true; more; {
		rows, m, err := s.PendingOf(t.Context(), "anna", last(pending), 999)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			pending = append(pending, row.ChatID)
		}
		more = m
	}
	for more := true; more; {
		page, m, err := s.StatesOf(t.Context(), "anna", last(states), 999)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range page {
			states = append(states, state.ChatID)
		}
		more = m
	}
	if len(behind) != (n+1)/2 || !slices.Equal(pending, chats) || !slices.Equal(states, chats) {
		t.Errorf("%d behind, %d pending, %d states, want %d and twice all of %d",
			len(behind), len(pending), len(states), (n+1)/2, n)
	}
	page, more, err := s.ChatsOf(t.Context(), "anna", storage.ChatsPage{Limit: 20, Brief: true})
	if err != nil || len(page) != 20 || !more || page[0].Chat.ID != chats[0] {
		t.Errorf("a page of %d chats, more: %v, error %v", len(page), more, err)
	}
}

func last(chats []tidemark.ChatID) tidemark.ChatID {
	if len(chats) == 0 {
		return ""
	}
	return chats[len(chats)-1]
}

// A chat with many messages costs as much as an empty one. TIDEMARK_LIMIT_MESSAGES sets their
// number: 100,000 in `make soak`.
func TestLimits_chat_with_many_messages(t *testing.T) {
	n := amount(t, "TIDEMARK_LIMIT_MESSAGES", 10_000)
	var mu sync.Mutex
	spent := map[string]float64{}
	s, err := Open(t.Context(), Config{
		URL: newTables(t), Patience: wait.Hang,
		Consumed: func(operation string, reads, writes float64) {
			mu.Lock()
			defer mu.Unlock()
			spent[operation] += reads + writes
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	units := func(operation string, do func() error) float64 {
		t.Helper()
		mu.Lock()
		spent[operation] = 0
		mu.Unlock()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return spent[operation]
	}
	send := func(chat tidemark.ChatID, key string) float64 {
		return units("append", func() error {
			d := drafts(chat, "anna", 1, "hello")
			d[0].ClientMessageID = key
			_, err := storage.AppendOne(t.Context(), s, d[0])
			return err
		})
	}
	first := func(chat tidemark.ChatID) float64 {
		return units("ranges", func() error {
			page, err := s.Ranges(t.Context(), []storage.Range{
				{Chat: chat, Limit: 1}, {Chat: chat, Before: tidemark.MaxSequence, Limit: 1},
			})
			if err == nil && (len(page[0]) != 1 || len(page[1]) != 1 || page[0][0].Sequence != 1) {
				err = fmt.Errorf("pages of %d and %d messages", len(page[0]), len(page[1]))
			}
			return err
		})
	}
	createGroup(t, s, "c", "anna")
	send("c", "first")
	// A call that is repeated on a busy machine costs more, so the least of three counts.
	least := func(key string) float64 {
		return min(send("c", key+"1"), send("c", key+"2"), send("c", key+"3"))
	}
	sendShort, readShort := least("second"), first("c")

	putAll(t, s, record.Messages, n-4, func(i int) call.Item {
		d := drafts("c", "anna", 1, strings.Repeat("message ", 25))
		return record.MessageItem(&d[0], tidemark.Sequence(i+5), 1, 1)
	})
	_, done, _, err := s.caller("test").Update(context.Background(), call.Update{
		Table:     record.Counters,
		Key:       record.ChatKey("c"),
		Change:    "SET head = :n",
		Condition: "attribute_exists(head)",
		Values:    call.Item{":n": call.Number(n)},
	})
	if err != nil || !done {
		t.Fatal(done, err)
	}
	if got, want := send("c", "third")-send("c", "fourth"), 8.0; got < 0 || got > want {
		t.Errorf("the head that another process has moved costs %.0f units more, want at most one "+
			"transaction and the reads (%.0f)", got, want)
	}
	// A look at the counter, unless it is long ago that another process wrote the chat.
	const look = 1
	if got := least("fifth"); got < sendShort || got > sendShort+look {
		t.Errorf("a message behind %d others costs %.1f units, behind one %.1f", n, got, sendShort)
	}
	if got := first("c"); got != readShort {
		t.Errorf("the first and the last of %d messages cost %.1f units, of two %.1f",
			n, got, readShort)
	}
	seen := tidemark.Sequence(0)
	for {
		page, err := s.Ranges(t.Context(), []storage.Range{{Chat: "c", After: seen, Limit: 5_000}})
		if err != nil {
			t.Fatal(err)
		}
		if len(page[0]) == 0 {
			break
		}
		for _, m := range page[0] {
			if m.Sequence != seen+1 {
				t.Fatalf("message %d follows %d", m.Sequence, seen)
			}
			seen++
		}
	}
	list, _, err := s.ChatsOf(t.Context(), "ben", storage.ChatsPage{Limit: 1})
	if err != nil || len(list) != 0 || seen != tidemark.Sequence(n+5) {
		t.Errorf("%d messages, and a stranger has %d chats, error %v", seen, len(list), err)
	}
}
