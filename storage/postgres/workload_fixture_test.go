package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// totals returns statements that create a thousand chats of collector. Something is unread in half
// of them: four messages of others, between two messages of the system. In one of ten of these
// chats, one message names all. The messages themselves do not exist, so no count can come from
// them.
func totals() []string {
	const chats = `(SELECT *, -activity_at AS no FROM chats WHERE activity_at < 0) AS c`
	return []string{
		`INSERT INTO chats (id, type, history, name, created_at, activity_at, head, uncounted,
			last_uncounted, member_count, large, creation)
			SELECT 'total' || i, 'group', 'full', 'a chat', 1, -i, 10, 2, 8, 2, false, ''
			FROM generate_series(1, 1000) AS i`,
		`INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, intervals)
			SELECT c.key, u.id, c.id, true, 'member', 1, '1-'
			FROM ` + chats + `, unnest(ARRAY['collector', 'other']) AS u (id)`,
		`INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence,
			acked_at, read_at, sent_before)
			SELECT c.key, 'collector', 10, CASE WHEN c.no <= 500 THEN 5 ELSE 10 END, 1, 1, 1
			FROM ` + chats,
		`INSERT INTO senders (chat, user_id, sent, last_sent)
			SELECT c.key, 'collector', 1, 3 FROM ` + chats,
		`INSERT INTO uncounted (chat, sequence, ordinal)
			SELECT c.key, 4 * s, s FROM ` + chats + `, generate_series(1, 2) AS s`,
		`INSERT INTO mentions (chat, user_id, sequence, sender_id)
			SELECT c.key, '*', 7, 'other' FROM ` + chats + ` WHERE c.no % 10 = 0`,
	}
}

// fixture creates the chats from $from to $to, with ten members and a hundred messages each. Writer
// is also a member of the first hundred chats. Reader is a member of the second hundred, and has
// received all of every second one. Each chat has metadata. Half of all members have watermarks.
// Two messages of each chat do not count as unread, and some name users. Five have a reaction, and
// one of these is pinned. Three others are banned from each. For each, a user hides what they read,
// and blocks three. Each has an entry in the audit log, of after 2004. The tables are not analyzed.
// activity_at is the number of the chat, 0 for a crowd.
func fixture() []string {
	const chats = `(SELECT *, activity_at AS no FROM chats
		WHERE activity_at BETWEEN $from AND $to) AS c`
	return []string{
		`INSERT INTO chats (id, type, history, name, created_at, activity_at, head, uncounted,
			last_uncounted, member_count, large, creation)
			SELECT 'chat' || lpad(i::text, 6, '0'), 'group', 'full', 'a chat', 1, i, $n, 2, $n,
				$m + (i <= 200)::int, false, '' FROM generate_series(greatest($from, 1), $to) AS i
				ORDER BY i`,
		`INSERT INTO chat_metadata (chat, metadata)
			SELECT c.key, '{"color":"teal"}' FROM ` + chats,
		`INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, intervals)
			SELECT c.key, u.id, c.id, true, 'member', 1, '1-' FROM ` + chats + `, LATERAL (
				SELECT 'user' || (c.no + 97 * j) % 10007 AS id FROM generate_series(0, $m - 1) AS j
					WHERE c.no > 0
				UNION ALL SELECT 'crowd' || j FROM generate_series(1, c.member_count) AS j
					WHERE c.no = 0
				UNION ALL SELECT CASE WHEN c.no <= 100 THEN 'writer' ELSE 'reader' END
					WHERE c.no BETWEEN 1 AND 200) AS u ORDER BY c.no, c.key`,
		`INSERT INTO messages (chat, sequence, created_at, members_version, sender_id,
			client_message_id, message_id, content_type, kind, content)
			SELECT c.key, s, 1, 1, CASE c.no WHEN 0 THEN 'crowd' || s
				ELSE 'user' || (c.no + 97 * (s % $m)) % 10007 END, 'key' || s || '-' || c.key,
				'message' || s || '-' || c.key, 'text/plain',
				CASE WHEN s * 2 % $n = 0 THEN 'system' END, repeat('x', 100)
			FROM ` + chats + `, generate_series(1, $n) AS s ORDER BY s, c.no, c.key`,
		`INSERT INTO delivery_state (chat, user_id, last_acked_sequence, last_read_sequence,
			acked_at, read_at)
			SELECT m.chat, m.user_id, CASE WHEN m.user_id = 'reader' THEN $n
				ELSE $n / 2 END, $n / 2, 1, 1
			FROM ` + chats + ` JOIN members AS m ON m.chat = c.key
				WHERE (c.no + length(user_id) + ascii(right(user_id, 1))) % 2 = 0`,
		`INSERT INTO senders (chat, user_id, sent, last_sent)
			SELECT chat, sender_id, count(*), max(sequence) FROM ` + chats + `
				JOIN messages AS m ON m.chat = c.key WHERE m.kind IS NULL GROUP BY 1, 2`,
		`INSERT INTO uncounted (chat, sequence, ordinal)
			SELECT c.key, s * $n / 2, s FROM ` + chats + `, generate_series(1, 2) AS s`,
		`INSERT INTO mentions (chat, user_id, sequence, sender_id)
			SELECT chat, CASE WHEN sequence % 20 = 0 THEN '*' ELSE 'user' || sequence END, sequence,
				sender_id
			FROM ` + chats + ` JOIN messages AS m ON m.chat = c.key
				WHERE m.kind IS NULL AND sequence % 10 = 0`,
		`INSERT INTO reactions (chat, target, user_id, emoji, sequence, created_at)
			SELECT c.key, 10 * s, 'user' || s, 'ok', 10 * s + 1, 1
			FROM ` + chats + `, generate_series(1, 5) AS s`,
		`INSERT INTO pins (chat, target, user_id, sequence, created_at)
			SELECT c.key, 10, 'user1', 12, 1 FROM ` + chats,
		`INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq)
			SELECT m.user_id, m.chat_id, CASE WHEN c.large THEN 0 ELSE 1 END
			FROM ` + chats + ` JOIN members AS m ON m.chat = c.key
				WHERE CASE c.no WHEN 0 THEN c.large ELSE c.no % 5 = 0 END`,
		`INSERT INTO outlet_backlogs (outlet, shard, chat_id, sequence, members, version, stamp)
			SELECT 'away', c.no % 64, c.id, 1, 1, 1, 'stamp' FROM ` + chats,
		`INSERT INTO documents (kind, name, version, value)
			SELECT 'filler', s::text, 1, '{}' FROM generate_series(1, 5000) AS s
			WHERE $from = 0`,
		`INSERT INTO leases (user_id, leases, proof, until)
			SELECT 'filler' || s, '', '', 1 FROM generate_series(1, 5000) AS s WHERE $from = 0`,
		`INSERT INTO receipts (user_id, chat, hidden)
			SELECT 'quiet' || c.key, k, true FROM ` + chats + `, unnest(ARRAY[0, c.key]) AS k`,
		`INSERT INTO blocks (user_id, blocked_id, blocked_at)
			SELECT 'quiet' || c.key, 'quiet' || c.key + s, 1
			FROM ` + chats + `, generate_series(1, 3) AS s`,
		`INSERT INTO bans (chat, user_id, banned_at)
			SELECT c.key, 'quiet' || s, 1 FROM ` + chats + `, generate_series(1, 3) AS s`,
		`INSERT INTO audit (id, key_name, actor_id, request_id, operation, user_id, chat_id,
			sequence, outlet_id, state, code, ended_at)
			SELECT '01' || lpad(c.key::text, 26, '0'), 'back', '', 'r1', 'deleteChat', '', c.id, 0,
				'', 'done', '', 1 FROM ` + chats,
	}
}

// fill creates the fixture's chats between two numbers. From number 1 on, it also creates the
// crowds.
func fill(t *testing.T, url string, from, to int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	texts := fixture()
	if from == 1 {
		texts, from = slices.Concat([]string{crowds}, totals(), texts), 0
	}
	values := strings.NewReplacer("$from", fmt.Sprint(from), "$to", fmt.Sprint(to), "$n",
		fmt.Sprint(perChat), "$m", fmt.Sprint(members))
	for _, text := range texts {
		if _, err := c.Exec(t.Context(), values.Replace(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// newDatabase creates a database with the schema.
func newDatabase(t *testing.T, on *service.Server) (url string) {
	t.Helper()
	url = on.Database(t)
	if err := Migrate(t.Context(), url, Up); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	return url
}

func chatNo(n int) tidemark.ChatID { return tidemark.ChatID(fmt.Sprintf("chat%06d", n)) }

func chatNos(from, n int) (chats []tidemark.ChatID) {
	for i := range n {
		chats = append(chats, chatNo(from+i))
	}
	return chats
}

// named returns n users who are in no chat of the fixture.
func named(prefix string, n int) (users []tidemark.UserID) {
	for i := range n {
		users = append(users, tidemark.UserID(fmt.Sprintf("%s-%d", prefix, i)))
	}
	return users
}

// drafts returns one message of writer for each chat, with keys that begin with prefix.
func drafts(prefix string, chats ...tidemark.ChatID) (drafts []tidemark.Draft) {
	for i, chat := range chats {
		key := fmt.Sprintf("%s-%d", prefix, i)
		drafts = append(drafts, tidemark.Draft{
			Kind:            tidemark.KindMessage,
			ChatID:          chat,
			SenderID:        "writer",
			ClientMessageID: key,
			MessageID:       tidemark.MessageID("m-" + key),
			CreatedAt:       time.UnixMilli(5),
			ContentType:     tidemark.DefaultContentType,
			Content:         strings.Repeat("y", 100),
		})
	}
	return drafts
}

// noted returns two messages for a chat: one that names three users, and one that does not count as
// unread.
func noted(prefix string, chat int) []tidemark.Draft {
	both := drafts(prefix, chatNo(chat), chatNo(chat))
	both[0].Mentions = tidemark.NewMentions(false, []tidemark.UserID{"reader", "user1", "user2"})
	both[1].Kind = tidemark.KindSystem
	return both
}
