package checker

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Truth is what the database contains.
type Truth struct {
	Chats  map[string]*Chat
	States map[Member]Boundary
	// Pending are the first undelivered sequences.
	Pending map[Member]int64
}

// Member names a user in a chat.
type Member struct{ Chat, User string }

// Chat is a chat as it is stored.
type Chat struct {
	Head int64
	// Messages are in the order of their sequences.
	Messages []Message
	// Members are the users who are or were members: what they may see, and whether they are
	// members now.
	Members map[string]Membership
}

// Message is a message as it is stored.
type Message struct {
	Sequence   int64
	Sender, ID string
}

// Membership is what a member may see.
type Membership struct {
	Current bool
	Ranges  []Range
}

// Range includes both ends. To is 0 while the range is open.
type Range struct{ From, To int64 }

func (m Membership) sees(sequence int64) bool {
	for _, r := range m.Ranges {
		if sequence >= r.From && (r.To == 0 || sequence <= r.To) {
			return true
		}
	}
	return false
}

// ReadTruth reads a Postgres database in one snapshot.
func ReadTruth(ctx context.Context, url string) (Truth, error) {
	t := Truth{
		Chats:   map[string]*Chat{},
		States:  map[Member]Boundary{},
		Pending: map[Member]int64{},
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return t, err
	}
	defer func() { _ = conn.Close(ctx) }()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{
		IsoLevel:   pgx.RepeatableRead,
		AccessMode: pgx.ReadOnly,
	})
	if err != nil {
		return t, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	names := map[int64]*Chat{}
	ids := map[int64]string{}
	var key, sequence, other int64
	var one, two string
	var current bool
	for _, q := range []struct {
		statement string
		into      []any
		take      func() error
	}{
		{"SELECT key, id, head FROM chats", []any{&key, &one, &sequence}, func() error {
			names[key] = &Chat{Head: sequence, Members: map[string]Membership{}}
			ids[key], t.Chats[one] = one, names[key]
			return nil
		}},
		{"SELECT chat, user_id, current, intervals FROM " +
			"members", []any{&key, &one, &current, &two}, func() error {
			ranges, err := parseRanges(two)
			names[key].Members[one] = Membership{current, ranges}
			return err
		}},
		{"SELECT chat, sequence, sender_id, client_message_id FROM messages ORDER BY chat, " +
			"sequence", []any{&key, &sequence, &one, &two}, func() error {
			names[key].Messages = append(names[key].Messages, Message{sequence, one, two})
			return nil
		}},
		{"SELECT chat, user_id, last_acked_sequence, last_read_sequence FROM " +
			"delivery_state", []any{&key, &one, &sequence, &other}, func() error {
			t.States[Member{ids[key], one}] = Boundary{sequence, other}
			return nil
		}},
		{"SELECT chat_id, user_id, first_undelivered_seq FROM " +
			"pending_deliveries", []any{&one, &two, &sequence}, func() error {
			t.Pending[Member{one, two}] = sequence
			return nil
		}},
	} {
		rows, err := tx.Query(ctx, q.statement)
		if err != nil {
			return t, err
		}
		if _, err := pgx.ForEachRow(rows, q.into, q.take); err != nil {
			return t, err
		}
	}
	return t, nil
}

// parseRanges parses ranges such as "1-5,9-".
func parseRanges(text string) (ranges []Range, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, _ := strings.Cut(part, "-")
		var r Range
		if r.From, err = strconv.ParseInt(from, 10, 64); err == nil && to != "" {
			r.To, err = strconv.ParseInt(to, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("the interval %q: %w", part, err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// Expected returns the head of each chat that has messages and that the user is a member of.
func (t Truth) Expected(user string) map[string]int64 {
	expected := map[string]int64{}
	for name, chat := range t.Chats {
		if chat.Members[user].Current && chat.Head > 0 {
			expected[name] = chat.Head
		}
	}
	return expected
}

// Acked returns what a user has acknowledged of each chat.
func (t Truth) Acked(user string) map[string]int64 {
	acked := map[string]int64{}
	for name := range t.Chats {
		if n := t.States[Member{name, user}].Acked; n > 0 {
			acked[name] = n
		}
	}
	return acked
}
