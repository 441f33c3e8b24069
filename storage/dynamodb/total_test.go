package dynamodb

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

// TestCost_of_the_total_over_1000_chats meters UnreadOf, and shows that it reads no message: after
// the messages are deleted, the numbers are the same. A message is two items here, and one of them
// says whom it names.
func TestCost_of_the_total_over_1000_chats(t *testing.T) {
	t.Parallel()
	const chats, unread = 1000, 500
	m, url := newMeter(t), newTables(t)
	w := &workload{t: t, s: metered(t, url, m)}
	var group sync.WaitGroup
	next := make(chan int)
	for range 32 {
		group.Go(func() {
			for i := range next {
				err := w.create(chatNo(i), tidemark.Group, tidemark.HistoryFull,
					[]tidemark.UserID{"writer", "reader"})
				draft := textsOf(fmt.Sprint("total", i), 200, chatNo(i))
				if i%10 == 0 {
					draft[0].Mentions.All = true
				}
				if err == nil {
					err = w.append(draft)
				}
				if err == nil && i > unread {
					err = w.raise(tidemark.Raise{Acked: 1, Read: 1}, "reader", chatNo(i))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range chats {
		next <- i + 1
	}
	close(next)
	group.Wait()
	want := storage.UnreadTotal{Chats: unread}
	want.Messages, want.Mentions = unread, unread/10
	total := func(what string) {
		t.Helper()
		m.take()
		got, err := w.s.UnreadOf(t.Context(), "reader")
		if err != nil || got != want {
			t.Fatalf("%s: got %+v, %v, want %+v", what, got, err, want)
		}
	}
	total("at first")
	calls, reads, writes := m.take()
	compareTable(t, "total", []string{
		"| `UnreadOf`, 1,000 chats | calls | read units | write units |", "|---|---|---|---|",
		fmt.Sprintf("| messages in %d, one in ten names all | %s | %s | %s |", unread, calls,
			figure(reads), figure(writes)),
	})
	if n := deleteMessages(t, url); n != chats {
		t.Fatalf("%d messages were deleted, want %d", n, chats)
	}
	total("without messages")
}

// TestCost_of_reads_reads_messages_around_own_only: a read looks at messages (Query) only if the
// user has sent some after it. A mark as unread always does.
func TestCost_of_reads_reads_messages_around_own_only(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	w := &workload{t: t, s: metered(t, newTables(t), m)}
	chat := chatNo(1)
	err := w.create(chat, tidemark.Group, tidemark.HistoryFull,
		[]tidemark.UserID{"writer", "reader"})
	drafts := textsOf("own", 200, repeated(chat, 10)...)
	drafts[6].SenderID = "reader"
	if err == nil {
		err = w.append(drafts)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		read, mark tidemark.Sequence
		want       string
	}{
		{read: 3, want: "GetItem, Query, UpdateItem"},
		{read: 5, want: "GetItem, Query, UpdateItem"},
		{read: 7, want: "UpdateItem"},
		{read: 9, want: "UpdateItem"},
		{mark: 8, want: "GetItem, Query, UpdateItem"},
		{mark: 2, want: "GetItem, Query, UpdateItem"},
	} {
		m.take()
		if test.read > 0 {
			err = w.raise(tidemark.Raise{Read: test.read}, "reader", chat)
		} else {
			_, err = w.s.MarkUnread(t.Context(), "reader", chat, test.mark)
		}
		if err != nil {
			t.Fatal(err)
		}
		if calls, _, _ := m.take(); calls != test.want {
			t.Errorf("%+v takes %s, want %s", test, calls, test.want)
		}
	}
}

// deleteMessages deletes the items of messages, and returns their number.
func deleteMessages(t *testing.T, url string) (n int) {
	t.Helper()
	to, err := endpoint.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	client, table := service.Shared(t).Client(), aws.String(to.Table("messages"))
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: table})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		messages := slices.DeleteFunc(page.Items, func(it map[string]types.AttributeValue) bool {
			chat, _ := it["chat_id"].(*types.AttributeValueMemberS)
			return chat == nil || strings.Contains(chat.Value, "|")
		})
		for part := range slices.Chunk(messages, 25) {
			var requests []types.WriteRequest
			for _, it := range part {
				requests = append(requests, types.WriteRequest{DeleteRequest: &types.DeleteRequest{
					Key: map[string]types.AttributeValue{
						"chat_id": it["chat_id"], "sequence": it["sequence"],
					},
				}})
			}
			out, err := client.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{
				RequestItems: map[string][]types.WriteRequest{*table: requests},
			})
			if err != nil || len(out.UnprocessedItems) > 0 {
				t.Fatalf("BatchWriteItem: %v, %v", out, err)
			}
			n += len(part)
		}
	}
	return n
}
