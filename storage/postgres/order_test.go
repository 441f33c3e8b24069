package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A statement that waits for a row has locked those of lower keys, whatever the order of its items.
// So no two statements deadlock.
func TestBatches_rows_are_locked_in_the_order_of_their_keys(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("UPDATE chats SET head = 5")
	r.do("INSERT INTO delivery_state SELECT key, 'anna', 1, 0, 1, 0 FROM chats")
	r.do("INSERT INTO pending_deliveries VALUES ('anna', 'c', 5), ('anna', 'd', 5)")
	r.do("COMMIT")
	const (
		chat  = "SELECT FROM chats WHERE id = $1 FOR NO KEY UPDATE NOWAIT"
		state = "SELECT FROM delivery_state WHERE chat = (SELECT key FROM chats WHERE id = $1) " +
			"FOR NO KEY UPDATE NOWAIT"
		pending = "SELECT FROM pending_deliveries WHERE chat_id = $1 FOR NO KEY UPDATE NOWAIT"
	)
	ctx := context.Background()
	for _, tc := range []struct {
		name, lock string
		call       func(first, second tidemark.ChatID) error
	}{
		{"Append", chat, func(first, second tidemark.ChatID) error {
			key := "to " + string(first) + " first"
			_, err := s.Append(ctx, []tidemark.Draft{
				message(first, "anna", key, "hello"), message(second, "anna", key, "hello"),
			})
			return err
		}},
		{"Advance", state, func(first, second tidemark.ChatID) error {
			states, err := s.States(ctx, []storage.StateKey{{User: "anna", Chat: first}})
			if err != nil {
				return err
			}
			raise := tidemark.Raise{Acked: states[0].Acked + 1}
			_, err = s.Advance(ctx, []storage.Advance{
				{User: "anna", Chat: first, Raise: raise, Now: time.UnixMilli(3)},
				{User: "anna", Chat: second, Raise: raise, Now: time.UnixMilli(3)},
			})
			return err
		}},
		{"Mark", pending, func(first, second tidemark.ChatID) error {
			rows, _, err := s.PendingOf(ctx, "anna", "", 10)
			if err != nil {
				return err
			}
			lower := rows[0].FirstUndelivered - 1
			_, err = s.Mark(ctx, []tidemark.PendingDelivery{
				{UserID: "anna", ChatID: first, FirstUndelivered: lower},
				{UserID: "anna", ChatID: second, FirstUndelivered: lower},
			})
			return err
		}},
		{"Clear", chat, func(first, second tidemark.ChatID) error {
			rows, _, err := s.PendingOf(ctx, "anna", "", 10)
			if err != nil {
				return err
			}
			through := rows[0].FirstUndelivered
			_, err = s.Clear(ctx, []storage.Clear{
				{User: "anna", Chat: first, Through: through},
				{User: "anna", Chat: second, Through: through},
			})
			return err
		}},
		{"Settle", chat, func(first, second tidemark.ChatID) error {
			return settleInOrder(ctx, s, storage.AllOutlets, first, second)
		}},
		{"Settle for an outlet", chat, func(first, second tidemark.ChatID) error {
			err := s.Rewind(ctx, []storage.Backlog{
				{Outlet: "hook", Chat: first}, {Outlet: "hook", Chat: second},
			})
			if err != nil {
				return err
			}
			return settleInOrder(ctx, s, "hook", first, second)
		}},
	} {
		for _, order := range [][2]tidemark.ChatID{{"c", "d"}, {"d", "c"}} {
			t.Run(tc.name+" of "+string(order[0])+" and "+string(order[1]), func(t *testing.T) {
				r.t = t
				r.do("BEGIN")
				r.do(tc.lock, "d")
				result := make(chan error, 1)
				go func() { result <- tc.call(order[0], order[1]) }()
				r.waitedFor()
				r.do("SAVEPOINT before")
				_, err := r.conn.Exec(t.Context(), tc.lock, "c")
				if condition(err) != lockNotAvailable {
					t.Errorf("the call that waits for d has not locked c: %v", err)
				}
				r.do("ROLLBACK TO before")
				r.commit()
				if err := <-result; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// settleInOrder settles nothing of the backlogs of two chats.
func settleInOrder(
	ctx context.Context, s *Store, outlet storage.OutletID, chats ...tidemark.ChatID,
) error {
	var items []storage.Settlement
	for _, chat := range chats {
		found, _, err := s.Backlogs(ctx,
			storage.BacklogQuery{Outlet: outlet, Chats: []tidemark.ChatID{chat}})
		if err != nil {
			return err
		}
		items = append(items, storage.Settlement{Backlog: found[0], To: found[0].From})
	}
	_, err := s.Settle(ctx, items)
	return err
}
