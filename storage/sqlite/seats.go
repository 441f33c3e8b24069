package sqlite

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/tidemark-im/tidemark"
)

// maxSeats is the number of senders of a chat whose numbers are in its row, about eight bytes each.
// In each commit, a further sender costs the update of another row.
const maxSeats = 32

// tally has the numbers of a member's messages that count as unread.
type tally struct {
	sent int64
	last tidemark.Sequence
}

// parseSeats parses the column seats.
func parseSeats(text []byte) ([]*tally, error) {
	var numbers []int64
	if err := json.Unmarshal(text, &numbers); err != nil || len(numbers)%2 != 0 {
		return nil, badSeats(string(text))
	}
	var seats []*tally
	for pair := range slices.Chunk(numbers, 2) {
		seats = append(seats, &tally{sent: pair[0], last: tidemark.Sequence(pair[1])})
	}
	return seats, nil
}

func badSeats(text string) error {
	return tidemark.Errorf(tidemark.Internal, "the database contains malformed seats: %q", text)
}

// seatsText returns the column that parseSeats parses.
func seatsText(seats []*tally) string {
	b := append(make([]byte, 0, 2+16*len(seats)), '[')
	for i, one := range seats {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(b, one.sent, 10), ',')
		b = strconv.AppendUint(b, uint64(one.last), 10)
	}
	return string(append(b, ']'))
}

// note makes flush write the numbers of a sender. If the chat has a free seat, a sender without a
// seat takes it.
func (w *writer) note(c *chat, from *sender) error {
	if from.seated || from.moved {
		return nil
	}
	if len(c.seats) >= maxSeats {
		from.moved = true
		c.sent = append(c.sent, from)
		return nil
	}
	q, err := w.c.prepared(`UPDATE members SET seat = ? WHERE chat = ? AND user_id = ?`)
	if err != nil {
		return err
	}
	from.seated = true
	//rule:unread_exact.take-seat-in-sqlite
	c.seats = append(c.seats, from.tally)
	q.integer(1, int64(len(c.seats)))
	q.integer(2, c.key)
	q.string(3, string(from.user))
	return q.run()
}
