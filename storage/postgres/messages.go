package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// maxWeight is how many bytes of content share a statement, unless one message has more.
	maxWeight = 4 << 20
	// maxRounds is how often something is written again that changed between the snapshot of a statement and its locks.
	maxRounds = 20
	// vainRounds is after how many of them a chat is locked before its members are looked at.
	vainRounds = 3
)

// appendDrafts stores drafts behind the messages of their chats, in one step.
//   - What it knows of the keys and of the members is of one snapshot. It moves the counter of a chat only if the chat still has the members of that
//     snapshot, and behind the latest head, whatever was appended after the snapshot. If the members changed, the drafts of the chat have no
//     sequence, and are written again. A key that came meanwhile violates messages_by_key, and the statement is repeated.
//   - Chats are locked in the order of their keys, as in every statement that locks several.
//   - There is no join: a look-up is a sub-select by the whole key, and what is known of a chat is found in an array. So there is nothing for
//     the planner to choose, whatever it believes of the tables, and one plan serves for ever. Joins became scans of whole tables.
const appendDrafts = `WITH chat AS MATERIALIZED (
	SELECT array_agg(coalesce(c.key, 0) ORDER BY n.no) AS keys, array_agg(coalesce(c.members_version, 0) ORDER BY n.no) AS versions
	FROM unnest($1::text[]) WITH ORDINALITY AS n (id, no)
	LEFT JOIN LATERAL (SELECT key, members_version FROM chats WHERE id = n.id LIMIT 1) AS c ON true
), judged AS MATERIALIZED (
	SELECT d.no, d.chat_no, d.created_at, chat.keys[d.chat_no] AS key, chat.versions[d.chat_no] AS version,
		(SELECT m.sequence FROM messages AS m
			WHERE m.client_message_id = d.client_message_id AND m.sender_id = d.sender_id AND m.chat = chat.keys[d.chat_no] LIMIT 1) AS known,
		coalesce((SELECT m.current FROM members AS m WHERE m.chat = chat.keys[d.chat_no] AND m.user_id = d.sender_id LIMIT 1), false) AS member
	FROM chat, unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[]) WITH ORDINALITY AS d (chat_no, sender_id, client_message_id, created_at, no)
), numbered AS MATERIALIZED (
	SELECT j.*, count(*) FILTER (WHERE known IS NULL AND member) OVER (PARTITION BY chat_no ORDER BY no) AS nth FROM judged AS j
), wanted AS MATERIALIZED (
	SELECT array_agg(key) AS keys, array_agg(version) AS versions, array_agg(nth) AS counts, array_agg(created_at) AS times
	FROM (SELECT DISTINCT ON (chat_no) key, version, nth, created_at FROM numbered WHERE known IS NULL AND member ORDER BY chat_no, no DESC) AS n
), moved AS (
	UPDATE chats AS c SET
		head = c.head + (SELECT counts FROM wanted)[array_position((SELECT keys FROM wanted), c.key)],
		activity_at = (SELECT times FROM wanted)[array_position((SELECT keys FROM wanted), c.key)]
	WHERE c.key = ANY ((SELECT keys FROM wanted)::bigint[])
		AND c.members_version = (SELECT versions FROM wanted)[array_position((SELECT keys FROM wanted), c.key)]
	RETURNING c.key, c.head - (SELECT counts FROM wanted)[array_position((SELECT keys FROM wanted), c.key)] AS base
), based AS MATERIALIZED (
	SELECT array_agg(key) AS keys, array_agg(base) AS bases FROM moved
), placed AS MATERIALIZED (
	SELECT n.*, coalesce(CASE WHEN known IS NULL AND member THEN based.bases[array_position(based.keys, n.key)] + nth END, 0) AS sequence FROM numbered AS n, based
), stored AS (
	INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id, message_id, content_type, attachment, content)
	SELECT chat.keys[d.chat_no], p.sequences[d.no], d.created_at, chat.versions[d.chat_no],
		d.sender_id, d.client_message_id, d.message_id, d.content_type, d.attachment, d.content
	FROM chat, (SELECT array_agg(sequence ORDER BY no) AS sequences FROM placed) AS p,
		unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[])
		WITH ORDINALITY AS d (chat_no, sender_id, client_message_id, created_at, message_id, content_type, attachment, content, no)
	WHERE p.sequences[d.no] > 0
)
SELECT no, key <> 0, coalesce(known, 0), member, version, sequence FROM placed`

// A verdict is what the statement found for a draft.
type verdict struct {
	chat     bool              // is there
	known    tidemark.Sequence // of the message with this key, 0 if there is none
	member   bool
	version  uint64
	sequence tidemark.Sequence // of this message; 0 if it was refused, or the members of the chat changed
}

// Append implements storage.Messages.
func (s *Store) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	return through(ctx, s, s.appends, drafts)
}

// append writes the drafts of many calls. Of those with equal keys the first is written, and the others are compared with what then is stored.
func (s *Store) append(ctx context.Context, c *conn, drafts []tidemark.Draft) ([]storage.Appended, error) {
	type key struct {
		chat            tidemark.ChatID
		sender          tidemark.UserID
		clientMessageID string
	}
	first := make(map[key]int, len(drafts))
	leader := make([]int, len(drafts))
	todo := make([]int, 0, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		k := key{d.ChatID, d.SenderID, d.ClientMessageID}
		j, twice := first[k]
		if !twice {
			first[k], j = i, i
			todo = append(todo, i)
		}
		leader[i] = j
	}
	a := &appending{
		drafts: drafts, results: make([]storage.Appended, len(drafts)), stored: make([]*tidemark.Message, len(drafts)), versions: make([]uint64, len(drafts)),
		repeated: c.attempt > 0, committed: s.committed,
	}
	for round := 0; len(todo) > 0; round++ {
		if round == maxRounds {
			return nil, tidemark.Errorf(tidemark.Unavailable, "the members of a chat change too quickly; try again")
		}
		write := a.round
		if round >= vainRounds {
			write = a.alone
		}
		left, err := write(ctx, c, todo)
		if err != nil {
			return nil, err
		}
		if len(left) < len(todo) {
			round = -1 // Only rounds that wrote nothing count.
		}
		todo = left
	}
	for i, j := range leader {
		if i != j {
			a.follow(i, j)
		}
	}
	return a.results, nil
}

// An appending is the work on the drafts of a batch.
type appending struct {
	drafts  []tidemark.Draft
	results []storage.Appended
	// stored is the message with the key of a draft, once it is known.
	stored []*tidemark.Message
	// versions are the membership versions that the chats of those had in this call.
	versions []uint64
	// repeated reports that an earlier attempt may have stored the drafts.
	repeated  bool
	committed func(sends, acks int, took time.Duration)
	// hurried reports that a lock was waited for already: the others that are held must not cost as much each.
	hurried bool
}

// round writes the drafts, in statements of bounded size, and returns those whose chat changed its members meanwhile, and those behind them.
func (a *appending) round(ctx context.Context, c *conn, todo []int) (unsure []int, err error) {
	for len(todo) > 0 {
		n, weight := 0, 0
		for n < len(todo) && (n == 0 || n < maxItems && weight < maxWeight) {
			d := &a.drafts[todo[n]]
			weight += len(d.Content) + len(d.Attachment)
			n++
		}
		part, err := a.write(ctx, c, todo[:n])
		switch {
		case itemsFault(err) && n == 1:
			a.results[todo[0]] = storage.Appended{Err: public(err)}
		case itemsFault(err):
			a.hurried = a.hurried || condition(err) == lockNotAvailable
			if part, err = a.oneByOne(ctx, c, todo[:n]); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		}
		if todo = todo[n:]; len(part) > 0 {
			return append(part, todo...), nil // No draft overtakes an earlier one of its chat.
		}
	}
	return nil, nil
}

// alone writes drafts of the first one's chat while that is locked, so that its members do not change, and returns the others.
func (a *appending) alone(ctx context.Context, c *conn, todo []int) (left []int, err error) {
	chat, weight := a.drafts[todo[0]].ChatID, 0
	var own, unsure []int
	for _, i := range todo {
		d := &a.drafts[i]
		if d.ChatID != chat || len(own) == maxItems || weight >= maxWeight {
			left = append(left, i)
			continue
		}
		own, weight = append(own, i), weight+len(d.Content)+len(d.Attachment)
	}
	err = c.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockChat, string(chat)); err != nil {
			return err
		}
		unsure, err = a.write(ctx, c, own)
		return err
	})
	if itemsFault(err) {
		unsure, err = a.oneByOne(ctx, c, own)
	}
	return append(unsure, left...), err
}

// oneByOne writes each draft by itself: one that is impossible fails alone, and if somebody has locked a chat, only the drafts of that chat fail. It
// returns those that have to be written again.
func (a *appending) oneByOne(ctx context.Context, c *conn, todo []int) (unsure []int, err error) {
	locked := map[tidemark.ChatID]error{}
	for at, i := range todo {
		chat := a.drafts[i].ChatID
		if err := locked[chat]; err != nil {
			a.results[i] = storage.Appended{Err: public(err)}
			continue
		}
		part, err := a.write(ctx, c, []int{i})
		switch {
		case itemsFault(err):
			a.results[i] = storage.Appended{Err: public(err)}
			if condition(err) == lockNotAvailable {
				locked[chat], a.hurried = err, true
			}
		case err != nil:
			return nil, err
		case len(part) > 0:
			return append(part, todo[at+1:]...), nil // as in round
		}
	}
	return nil, nil
}

// write runs the statement for some of the drafts, and returns those whose chat changed its members meanwhile.
func (a *appending) write(ctx context.Context, c *conn, todo []int) (unsure []int, err error) {
	began := time.Now()
	verdicts := make([]verdict, len(todo))
	parameters := a.parameters(todo)
	for again := 0; ; again++ {
		clear(verdicts)
		err = a.statement(ctx, c, parameters, func(row pgx.Rows) error {
			var no int64
			var v verdict
			err := row.Scan(&no, &v.chat, (*uint64)(&v.known), &v.member, &v.version, (*uint64)(&v.sequence))
			if err == nil {
				verdicts[no-1] = v
			}
			return err
		})
		if !keyCame(err) || again == maxRounds {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	// In a chat whose members changed nothing is decided: who was refused may be a member in the step that stores the others.
	changed := map[tidemark.ChatID]bool{}
	for n, i := range todo {
		if v := &verdicts[n]; v.chat && v.known == 0 && v.member && v.sequence == 0 {
			changed[a.drafts[i].ChatID] = true
		}
	}
	sends := 0
	var known []int
	for n, i := range todo {
		d, v := &a.drafts[i], &verdicts[n]
		switch {
		case !v.chat:
			a.results[i] = storage.Appended{Err: noChat(d.ChatID)}
		case changed[d.ChatID]:
			unsure = append(unsure, i)
		case v.known != 0:
			known = append(known, n)
		case !v.member:
			a.results[i] = storage.Appended{Err: notMember(d.ChatID, d.SenderID)}
		default:
			sends++
			m := d.Message(v.sequence, v.version)
			m.CreatedAt = timeOf(d.CreatedAt.UnixMilli())
			a.stored[i], a.versions[i], a.results[i] = &m, v.version, storage.Appended{Message: m, Version: v.version}
		}
	}
	if sends > 0 {
		a.committed(sends, 0, time.Since(began))
	}
	return unsure, a.find(ctx, c, todo, verdicts, known)
}

// statement runs appendDrafts, in a hurry in a transaction that sets a limit for locks. In that of alone the chat is locked already.
func (a *appending) statement(ctx context.Context, c *conn, parameters []any, scan func(pgx.Rows) error) error {
	run := func(pgx.Tx) error { return c.each(ctx, appendDrafts, parameters, scan) }
	if a.hurried && c.PgConn().TxStatus() == idle {
		return c.briefly(ctx, run)
	}
	return run(nil)
}

// parameters are those of appendDrafts: the drafts, and the chats in the order of their ids.
func (a *appending) parameters(todo []int) []any {
	chats := make([]string, 0, len(todo))
	for _, i := range todo {
		chats = append(chats, string(a.drafts[i].ChatID))
	}
	slices.Sort(chats)
	chats = slices.Compact(chats)
	n := len(todo)
	chat, created := make([]int64, n), make([]int64, n)
	text := make([]string, 5*n)
	senders, keys, ids, types, contents := text[:n], text[n:2*n], text[2*n:3*n], text[3*n:4*n], text[4*n:]
	attachments := make([]*string, n)
	for at, i := range todo {
		d := &a.drafts[i]
		no, _ := slices.BinarySearch(chats, string(d.ChatID))
		chat[at], created[at] = int64(no)+1, d.CreatedAt.UnixMilli()
		senders[at], keys[at], ids[at], types[at], contents[at] = string(d.SenderID), d.ClientMessageID, string(d.MessageID), d.ContentType, d.Content
		if d.Attachment != nil {
			attachment := string(d.Attachment)
			attachments[at] = &attachment
		}
	}
	return []any{chats, chat, senders, keys, created, ids, types, attachments, contents}
}

// keyCame reports whether a message with one of the keys was stored after the statement's snapshot. The next one sees it.
func keyCame(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && said.Code == uniqueViolation && said.ConstraintName == "messages_by_key"
}

// find reads the messages whose keys are known, and answers for their drafts.
func (a *appending) find(ctx context.Context, c *conn, todo []int, verdicts []verdict, known []int) error {
	if len(known) == 0 {
		return nil
	}
	ranges := make([]storage.Range, len(known))
	for at, n := range known {
		ranges[at] = storage.Range{Chat: a.drafts[todo[n]].ChatID, After: verdicts[n].known - 1, Limit: 1}
	}
	pages, err := readPages(ctx, c, ranges)
	if err != nil {
		return err
	}
	for at, n := range known {
		i := todo[n]
		if pages[at].hole != nil {
			return pages[at].hole
		}
		a.stored[i], a.versions[i] = &pages[at].messages[0], verdicts[n].version
		a.results[i] = a.same(i, a.stored[i], verdicts[n].version)
		if a.repeated && a.stored[i].MessageID == a.drafts[i].MessageID {
			// It was the earlier attempt, whose answer was lost.
			a.results[i].Duplicate = false
		}
	}
	return nil
}

// same answers for a draft whose key has a message.
func (a *appending) same(i int, stored *tidemark.Message, version uint64) storage.Appended {
	d := &a.drafts[i]
	if !stored.SameAs(d) {
		return storage.Appended{Err: tidemark.Errorf(tidemark.Conflict, "the client_message_id %s was used for another message in this chat", d.ClientMessageID)}
	}
	return storage.Appended{Message: *stored, Duplicate: true, Version: version}
}

// follow answers for a draft that has the key of an earlier one in the batch.
func (a *appending) follow(i, earlier int) {
	if stored := a.stored[earlier]; stored != nil {
		a.results[i] = a.same(i, stored, a.versions[earlier])
		return
	}
	a.results[i] = a.results[earlier]
}
