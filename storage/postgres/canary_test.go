package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// tablesWith returns the tables that have a text in any of their columns.
func (r *rival) tablesWith(text string) (tables []string) {
	r.t.Helper()
	rows, err := r.conn.Query(r.t.Context(), `SELECT relname FROM pg_class
		WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace
		ORDER BY relname COLLATE "C"`)
	if err != nil {
		r.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(all) < 10 {
		r.t.Fatalf("the tables are %v, %v", all, err)
	}
	for _, table := range all {
		search := fmt.Sprintf(`SELECT count(*) FROM %s AS t WHERE strpos(t::text, $1) > 0`,
			pgx.Identifier{table}.Sanitize())
		var n int
		if err := r.conn.QueryRow(r.t.Context(), search, text).Scan(&n); err != nil {
			r.t.Fatalf("%s: %v", search, err)
		}
		if n > 0 {
			tables = append(tables, table)
		}
	}
	return tables
}

// TestAppend_redacted_text_is_in_no_table searches all tables for what a message said. Only the
// table of mentions keeps whom it named: what was counted stays counted.
func TestAppend_redacted_text_is_in_no_table(t *testing.T) {
	s, r := withRival(t, "")
	r.do("COMMIT")
	const canary = "canary-8c41"
	said := message("c", "anna", "1", canary)
	said.Attachments = json.RawMessage(`[{"name":"` + canary + `"}]`)
	said.Metadata = json.RawMessage(`{"about":"` + canary + `"}`)
	said.Mentions = tidemark.NewMentions(false, []tidemark.UserID{canary})
	for _, test := range []struct {
		name string
		tidemark.Draft
		want []string
	}{
		{"the message", said, []string{"mentions", "messages"}},
		{"an edit", relation("c", "anna", "2", 1, "better"), []string{"mentions"}},
		{"an edit that says it again", relation("c", "anna", "3", 1, canary),
			[]string{"mentions", "messages"}},
		{"a redaction", relation("c", "anna", "4", 1, ""), []string{"mentions"}},
	} {
		appendOne(t, s, test.Draft)
		if got := r.tablesWith(canary); !slices.Equal(got, test.want) {
			t.Errorf("after %s: the text is in the tables %v, want %v", test.name, got, test.want)
		}
	}
}

// TestDropChat_copy_equal_leaves_no_row searches all tables for a chat that was dropped, whose name
// is in all of its rows that name a chat, and for its members.
func TestDropChat_copy_equal_leaves_no_row(t *testing.T) {
	s, r := withRival(t, "")
	r.do("COMMIT")
	ctx := t.Context()
	const canary = "canary-8c41"
	metadata := json.RawMessage(`{"of":"` + canary + `"}`)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	chat := tidemark.Chat{
		ID: canary, Type: tidemark.Group, History: tidemark.HistoryFull, Head: 3, Floor: 1,
		MembersVersion: 1, MemberCount: 1, Version: 1, Metadata: metadata,
		CreatedAt: time.UnixMilli(1),
	}
	ok(s.PutChat(ctx, storage.CopiedChat{Chat: chat, Activity: time.UnixMilli(2), Open: true}))
	member := storage.CopiedMember{Sent: 1, LastSent: 1, Pending: true, FirstUndelivered: 1}
	member.Member = tidemark.Member{
		UserID: canary, Role: tidemark.Ordinary, JoinedAt: time.UnixMilli(1), Metadata: metadata,
		Intervals: tidemark.Intervals(nil).Joined(0, tidemark.HistoryFull, false),
	}
	member.State = tidemark.DeliveryState{
		UserID: canary, ChatID: canary, Acked: 1, AckedAt: time.UnixMilli(3),
	}
	_, err := s.Ban(ctx, canary, canary, time.UnixMilli(4))
	ok(err)
	ok(s.PutMembers(ctx, canary, []storage.CopiedMember{member}))
	ok(s.SetReceipts(ctx, canary, canary, tidemark.ReceiptsOff))
	var messages []storage.CopiedMessage
	for i, kind := range []tidemark.Kind{
		tidemark.KindMessage, tidemark.KindReact, tidemark.KindPin,
	} {
		m := storage.CopiedMessage{Stands: i > 0, Ordinal: int64(i)}
		m.Message = tidemark.Message{
			ChatID: canary, Sequence: tidemark.Sequence(i + 1), SenderID: canary, Kind: kind,
			ClientMessageID: fmt.Sprint(canary, i), MessageID: tidemark.MessageID(fmt.Sprint(i)),
			ContentType: tidemark.DefaultContentType, CreatedAt: time.UnixMilli(2),
		}
		m.Life = 1
		if i > 0 {
			m.Relation = &tidemark.Relation{Sequence: 1}
		} else {
			m.Content = canary
			m.MessageFacts.Mentions = tidemark.NewMentions(false, []tidemark.UserID{canary})
		}
		if kind == tidemark.KindReact {
			m.Relation.Emoji = "👍"
		}
		messages = append(messages, m)
	}
	ok(s.PutMessages(ctx, canary, messages))
	for _, table := range []string{
		"bans", "chat_metadata", "chats", "delivery_state", "members", "mentions", "messages",
		"pending_deliveries", "pins", "reactions", "receipts", "senders",
	} {
		if !slices.Contains(r.tablesWith(canary), table) {
			t.Errorf("before, the table %s has nothing of it", table)
		}
	}
	ok(s.DropChat(ctx, canary))
	if got := r.tablesWith(canary); len(got) > 0 {
		t.Errorf("afterwards the tables %v have something of it", got)
	}
	var left int
	ok(r.conn.QueryRow(ctx, `SELECT count(*) FROM uncounted`).Scan(&left))
	if left != 0 {
		t.Errorf("%d ordinals are left", left)
	}
}

// TestDropChat_copy_equal_in_steps: no step has more to remove than a call has time for.
func TestDropChat_copy_equal_in_steps(t *testing.T) {
	s, r := withRival(t, "")
	r.do("COMMIT")
	appendOne(t, s, message("c", "anna", "1", "hello"))
	for _, text := range []string{
		`INSERT INTO messages (chat, sequence, created_at, members_version, sender_id,
				client_message_id, message_id, content_type, content)
			SELECT chat, sequence + n, created_at, members_version, sender_id,
				client_message_id || n, message_id || n, content_type, content
			FROM messages, generate_series(1, 1000) AS n`,
		`INSERT INTO mentions (chat, user_id, sequence, sender_id)
			SELECT chat, 'ben', sequence, sender_id FROM messages`,
	} {
		r.do(text)
	}
	left, err := s.dropSome(t.Context(), "c")
	if err != nil || !left {
		t.Fatalf("after the first step something is left: %t, %v, want true", left, err)
	}
	for _, table := range []string{"messages", "mentions"} {
		var n int
		query := "SELECT count(*) FROM " + table
		if err := r.conn.QueryRow(t.Context(), query).Scan(&n); err != nil || n != 501 {
			t.Errorf("%d %s are left after the first step, %v, want 501", n, table, err)
		}
	}
	if err := s.DropChat(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Chat(t.Context(), "c"); tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("the chat after all steps: got error %v, want NotFound", err)
	}
}
