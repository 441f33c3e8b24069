package requests

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// TestOutlets_receipts_table meters on DynamoDB what outlets that want receipts add to
// acknowledgements, and compares the units of writes with the table of request-costs.md. A burst is
// several raises of one watermark of a chat, and what the worker does when the chat is quiet.
func TestOutlets_receipts_table(t *testing.T) {
	tableOfWants(t, "receipts", "receipts", "raises",
		func(t *testing.T, outlets, burst int) (spent, bool) {
			return raises(t, outlets, burst), false
		})
}

// tableOfWants meters bursts with and without an outlet that wants something, and compares the
// units of writes with a table. A burst that was slow is metered again.
func tableOfWants(
	t *testing.T, table, wanted, unit string,
	meter func(t *testing.T, outlets, burst int) (cost spent, slow bool),
) {
	t.Helper()
	lines := []string{
		fmt.Sprintf("| outlets that want %s | %s of a burst | write units |", wanted, unit),
		"|---|---|---|",
	}
	rows := []struct {
		name           string
		outlets, burst int
	}{{"none", 0, 10}, {"one", 1, 1}, {"one", 1, 10}}
	costs := make([]spent, len(rows))
	t.Run("rows", func(t *testing.T) {
		for i, row := range rows {
			t.Run(fmt.Sprint(row.name, " ", row.burst), func(t *testing.T) {
				t.Parallel() // It waits more than it works.
				for slow := true; slow; {
					costs[i], slow = meter(t, row.outlets, row.burst)
				}
			})
		}
	})
	for i, row := range rows {
		writes := figure(costs[i].writes)
		t.Logf("%s, %d %s: %s, %s read units, %s write units", row.name, row.burst, unit,
			costs[i].kinds(), figure(costs[i].reads), writes)
		lines = append(lines, fmt.Sprintf("| %s | %d | %s |", row.name, row.burst, writes))
	}
	compare(t, table, lines)
}

// raises returns what raises of a watermark cost, with some outlets that want receipts.
func raises(t *testing.T, outlets, raises int) spent {
	t.Helper()
	b := openDynamoDB(t)
	chat := tidemark.ChatID(long("receipts"))
	reader := userNo("other", 0)
	members := []tidemark.UserID{userNo("author", 0), reader}
	if err := create(t, b, chat, tidemark.Direct, members); err != nil {
		t.Fatal(err)
	}
	for n := range raises + 1 {
		d := draft(chat, members[0], 100+n)
		if _, err := storage.AppendOne(t.Context(), b, d); err != nil {
			t.Fatal(err)
		}
	}
	w := &worker{backend: b, plain: b.again()}
	store := w.run(t, outlets, []outlet.Type{outlet.DeliveryUpdated, outlet.ReadUpdated})
	b.take()
	for n := range raises {
		_, err := store.Advance(t.Context(), []storage.Advance{{
			User: reader, Chat: chat, Now: time.Now(),
			Raise: tidemark.Raise{Acked: tidemark.Sequence(n + 2)},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	// The worker settles like that when the chat has been quiet for a minute.
	for n := range outlets {
		found, _, err := w.plain.Backlogs(t.Context(), storage.BacklogQuery{
			Outlet: storage.OutletID(fmt.Sprintf("o%d/receipts", n)),
			Chats:  []tidemark.ChatID{chat},
		})
		if err != nil || len(found) != 1 {
			t.Fatalf("the chat is marked by %v, %v", found, err)
		}
		_, err = b.Settle(t.Context(), []storage.Settlement{{
			Backlog: found[0], To: storage.Position{
				Sequence: math.MaxInt64, Members: math.MaxInt64, Version: math.MaxInt64,
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.take()
}
