package postgres

import (
	"context"
	"encoding/json"
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
	// maxRounds is the limit of repetitions for items that changed between a statement's snapshot
	// and its locks.
	maxRounds = 20
	// roundsUntilLock is the number of rounds without a write after which the chat is locked first.
	roundsUntilLock = 3
)

// appendDrafts appends drafts to their chats in one step.
//   - It reads the keys and the members in one snapshot. It raises the counter of a chat only if
//     the chat still has the members of that snapshot. The new head follows the latest head,
//     including messages appended after the snapshot. If the members changed, the drafts of the
//     chat get no sequence, and the caller writes them again. If another transaction stored one of
//     the keys meanwhile, the statement violates messages_by_key, and is repeated.
//   - It locks chats in the order of their keys, as every statement does that locks several.
//   - The seat of a reader counts as -1: they may not send.
//   - It counts drafts from the last of their chat. So the sequences follow from the head that the
//     UPDATE returns.
//   - The numbers of members with a seat are in the row of the chat. The rows of other senders
//     change only under the lock of their chat, so their order is free.
//   - It has no join. A look-up is a sub-select by the whole key, and facts about a chat are in
//     arrays. So the planner has no choice, whatever its statistics are, and one plan always
//     serves. Joins became scans of whole tables.
//
//rule:nothing_outside_membership.append-statement
const appendDrafts = `WITH chat AS MATERIALIZED (
	SELECT array_agg(key) AS keys, array_agg(version) AS versions
	FROM (SELECT coalesce(c.key, 0) AS key, coalesce(c.members_version, 0) AS version
		FROM unnest($1::text[]) WITH ORDINALITY AS n (id, no)
		LEFT JOIN LATERAL (SELECT key, members_version FROM chats
			WHERE id = n.id LIMIT 1) AS c ON true
		ORDER BY n.no) AS n
), judged AS MATERIALIZED (
	SELECT d.no, ($2::bigint[])[d.no] AS chat_no,
		(SELECT m.sequence FROM messages AS m
			WHERE m.client_message_id = d.client_message_id AND m.sender_id = d.sender_id
				AND m.chat = chat.keys[($2::bigint[])[d.no]] LIMIT 1) AS known,
		(SELECT CASE WHEN NOT m.current THEN NULL WHEN m.role = 'reader' THEN -1 ELSE m.seat END
			FROM members AS m
			WHERE m.chat = chat.keys[($2::bigint[])[d.no]] AND m.user_id = d.sender_id
			LIMIT 1) AS seat, d.sender_id, d.kind IS NULL AS counts
	FROM chat, unnest($3::text[], $4::text[], $12::text[])
		WITH ORDINALITY AS d (sender_id, client_message_id, kind, no)
), counted AS MATERIALIZED (
	SELECT j.*, count(*) FILTER (WHERE known IS NULL AND seat >= 0)
		OVER (PARTITION BY chat_no ORDER BY no DESC ROWS UNBOUNDED PRECEDING) AS nth
		FROM judged AS j
), wanted AS MATERIALIZED (
	SELECT array_agg(key) AS keys, array_agg(version) AS versions, array_agg(count) AS counts,
		array_agg(time) AS times, array_agg(sent_1) AS sent_1, array_agg(sent_2) AS sent_2,
		array_agg(count + 1 - nth_1) AS at_1, array_agg(count + 1 - nth_2) AS at_2
	FROM (SELECT chat.keys[chat_no] AS key, chat.versions[chat_no] AS version,
		($5::bigint[])[last] AS time, j.*
		FROM chat, (SELECT chat_no, count(*) AS count, max(no) AS last,
				count(*) FILTER (WHERE seat = 1 AND counts) AS sent_1,
				count(*) FILTER (WHERE seat = 2 AND counts) AS sent_2,
				min(nth) FILTER (WHERE seat = 1 AND counts) AS nth_1,
				min(nth) FILTER (WHERE seat = 2 AND counts) AS nth_2
			FROM counted WHERE known IS NULL AND seat >= 0 GROUP BY chat_no) AS j
		ORDER BY key) AS n
), moved AS (
	UPDATE chats AS c SET
		head = c.head + (SELECT counts FROM wanted)[width_bucket(c.key, (SELECT keys FROM wanted))],
		activity_at = (SELECT times FROM wanted)[width_bucket(c.key, (SELECT keys FROM wanted))],
		sent_1 = c.sent_1
			+ (SELECT sent_1 FROM wanted)[width_bucket(c.key, (SELECT keys FROM wanted))],
		last_sent_1 = coalesce(c.head
			+ (SELECT at_1 FROM wanted)[width_bucket(c.key, (SELECT keys FROM wanted))],
			c.last_sent_1),
		sent_2 = c.sent_2
			+ (SELECT sent_2 FROM wanted)[width_bucket(c.key, (SELECT keys FROM wanted))],
		last_sent_2 = coalesce(c.head
			+ (SELECT at_2 FROM wanted)[width_bucket(c.key, (SELECT keys FROM wanted))],
			c.last_sent_2)
	WHERE c.key = ANY ((SELECT keys FROM wanted)::bigint[])
		AND c.members_version =
			(SELECT versions FROM wanted)[width_bucket(c.key, (SELECT keys FROM wanted))]
	RETURNING c.key, c.head
), headed AS MATERIALIZED (
	SELECT array_agg(key) AS keys, array_agg(head) AS heads
	FROM (SELECT key, head FROM moved ORDER BY key) AS m
), placed AS MATERIALIZED (
	SELECT array_agg(coalesce(CASE
			WHEN known IS NOT NULL THEN -known
			WHEN seat >= 0
				AND h.keys[width_bucket(chat.keys[chat_no], h.keys)] = chat.keys[chat_no]
				THEN h.heads[width_bucket(chat.keys[chat_no], h.keys)] + 1 - nth
		END, 0) ORDER BY no) AS outcomes,
		array_agg(no) FILTER (WHERE known IS NULL AND seat IS NULL) AS strangers,
		array_agg(no) FILTER (WHERE known IS NULL AND seat < 0) AS readers
	FROM counted, chat, headed AS h
), stored AS (
	INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id,
		message_id, content_type, attachments, metadata, kind, mentions, content, life)
	SELECT chat.keys[($2::bigint[])[d.no]], placed.outcomes[d.no], ($5::bigint[])[d.no],
		chat.versions[($2::bigint[])[d.no]], d.sender_id, d.client_message_id, d.message_id,
		coalesce(d.content_type, $11), d.attachments, d.metadata, d.kind, d.mentions, d.content,
		$14::bigint
	FROM chat, placed,
		unnest($3::text[], $4::text[], $6::text[], $7::text[], $8::text[], $9::text[], $12::text[],
			$13::text[], $10::text[])
		WITH ORDINALITY AS d (sender_id, client_message_id, message_id, content_type, attachments,
			metadata, kind, mentions, content, no)
	WHERE placed.outcomes[d.no] > 0
), sent AS (
	INSERT INTO senders AS s (chat, user_id, sent, last_sent)
	SELECT chat.keys[n.chat_no], n.sender_id, n.count, placed.outcomes[n.last]
	FROM chat, placed, (
		SELECT c.chat_no, c.sender_id, count(*) AS count, max(c.no) AS last
		FROM placed, counted AS c
		WHERE c.seat = 0 AND c.counts AND placed.outcomes[c.no] > 0
		GROUP BY c.chat_no, c.sender_id) AS n
	ON CONFLICT (chat, user_id) DO UPDATE
		SET sent = s.sent + excluded.sent, last_sent = excluded.last_sent
)
SELECT versions, outcomes, strangers, readers FROM chat, placed`

// verdicts are the result of appendDrafts.
type verdicts struct {
	chat []int64 // the number of each draft's chat, from 1
	// versions are the membership versions of the chats, 0 for a chat that does not exist.
	versions []int64
	// outcomes has a number for each draft. A positive one is the sequence of the stored message. A
	// negative one is the negated sequence of the message that already has the key. 0 means that
	// the sender may not send, or that the members of the chat changed.
	outcomes []int64
	// strangers are the drafts, counted from 1, whose senders are not members. readers are those
	// whose senders are readers.
	strangers, readers []int64
}

func (v *verdicts) version(n int) uint64 { return uint64(v.versions[v.chat[n]-1]) }

func (v *verdicts) stranger(n int) bool { return slices.Contains(v.strangers, int64(n)+1) }

func (v *verdicts) reader(n int) bool { return slices.Contains(v.readers, int64(n)+1) }

// Append implements storage.Messages.
func (s *Store) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	return through(ctx, s, s.appends, drafts)
}

// append writes the drafts of many calls. Of drafts with equal keys, it writes the first. Then it
// compares the others with the stored message.
func (s *Store) append(
	ctx context.Context, c *conn, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
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
		drafts:    drafts,
		results:   make([]storage.Appended, len(drafts)),
		stored:    make([]*tidemark.Message, len(drafts)),
		versions:  make([]uint64, len(drafts)),
		repeated:  c.attempt > 0,
		committed: s.committed,
	}
	//rule:restore_is_noticed.message-has-its-life-in-postgres
	if life := s.life().Number; life > 1 {
		a.life = &life
	}
	for round := 0; len(todo) > 0; round++ {
		if round == maxRounds {
			return nil, tidemark.Errorf(tidemark.Unavailable,
				"the members of a chat change too quickly; try again")
		}
		write := a.round
		//rule:bounded_use.limit-vain-rounds
		if round >= roundsUntilLock {
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

// An appending writes the drafts of one batch.
type appending struct {
	drafts  []tidemark.Draft
	results []storage.Appended
	// stored is the message with the key of each draft, nil until it is known.
	stored []*tidemark.Message
	// versions are the membership versions of the chats when those messages were stored or found.
	versions []uint64
	// repeated reports that an earlier attempt may have stored the drafts.
	repeated  bool
	committed func(sends, acks int, took time.Duration)
	// life is the number of the present life of the data, or nil for the first.
	life *int64
	// lockWaited reports that a statement has waited for a lock in vain. Further locks get less
	// time.
	lockWaited bool
}

// round writes the drafts in statements of bounded size. If the members of a chat changed
// meanwhile, it returns the drafts of that chat and all drafts after them.
func (a *appending) round(ctx context.Context, c *conn, todo []int) (unsure []int, err error) {
	for len(todo) > 0 {
		n, weight := 0, 0
		for n < len(todo) && (n == 0 || n < maxItems && weight < maxWeight) {
			d := &a.drafts[todo[n]]
			weight += d.Size()
			n++
		}
		part, err := a.write(ctx, c, todo[:n])
		switch {
		case itemsFault(err) && n == 1:
			a.results[todo[0]] = storage.Appended{Err: public(err)}
		//rule:bounded_input.isolate-bad-item
		case itemsFault(err):
			a.lockWaited = a.lockWaited || condition(err) == lockNotAvailable
			if part, err = a.chatByChat(ctx, c, todo[:n]); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		}
		if todo = todo[n:]; len(part) > 0 {
			//rule:sequence_gapless.keep-order-of-chat
			return append(part, todo...), nil
		}
	}
	return nil, nil
}

// alone locks the chat of the first draft and writes the drafts of that chat. The members cannot
// change meanwhile. It returns the other drafts.
func (a *appending) alone(ctx context.Context, c *conn, todo []int) (left []int, err error) {
	chat, weight := a.drafts[todo[0]].ChatID, 0
	var own, unsure []int
	for _, i := range todo {
		d := &a.drafts[i]
		if d.ChatID != chat || len(own) == maxItems || weight >= maxWeight {
			left = append(left, i)
			continue
		}
		own, weight = append(own, i), weight+d.Size()
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

// chatByChat writes the drafts of each chat in a step of their own. If another program has locked a
// chat, only its drafts fail. If the members of a chat changed, it returns the drafts of that chat
// and all drafts after them.
func (a *appending) chatByChat(ctx context.Context, c *conn, todo []int) (unsure []int, err error) {
	for len(todo) > 0 {
		var own, left []int
		for _, i := range todo {
			//rule:send_idempotent.keep-drafts-of-chat-together
			if a.drafts[i].ChatID == a.drafts[todo[0]].ChatID {
				own = append(own, i)
			} else {
				left = append(left, i)
			}
		}
		part, err := a.write(ctx, c, own)
		if condition(err) == lockNotAvailable {
			a.refuse(own, err)
			err = nil
		} else if itemsFault(err) {
			part, err = a.oneByOne(ctx, c, own)
		}
		if err != nil {
			return nil, err
		}
		if len(part) > 0 {
			return append(part, left...), nil
		}
		todo = left
	}
	return nil, nil
}

// refuse sets the results of drafts whose chat is locked by another program.
func (a *appending) refuse(drafts []int, err error) {
	a.lockWaited = true
	for _, i := range drafts {
		a.results[i] = storage.Appended{Err: public(err)}
	}
}

// oneByOne writes each draft of a chat in a step of its own, so that an impossible draft fails
// alone. If the members changed, it returns that draft and all after it. So no draft overtakes an
// earlier one of its chat.
func (a *appending) oneByOne(ctx context.Context, c *conn, todo []int) (unsure []int, err error) {
	for at, i := range todo {
		part, err := a.write(ctx, c, []int{i})
		switch {
		//rule:bounded_input.wait-for-held-chat-only
		case condition(err) == lockNotAvailable:
			a.refuse(todo[at:], err)
			return nil, nil
		case itemsFault(err):
			a.results[i] = storage.Appended{Err: public(err)}
		case err != nil:
			return nil, err
		case len(part) > 0:
			//rule:sequence_gapless.keep-order-after-change
			return append(part, todo[at+1:]...), nil
		}
	}
	return nil, nil
}

// write runs the statement for some of the drafts. It returns those whose chat changed its members
// meanwhile.
func (a *appending) write(ctx context.Context, c *conn, todo []int) (unsure []int, err error) {
	began := time.Now()
	var v verdicts
	parameters := a.parameters(todo, &v)
	for again := 0; ; again++ {
		err = a.statement(ctx, c, todo, parameters, &v)
		//rule:send_idempotent.try-again-when-key-came
		if !keyStored(err) || again == maxRounds {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	// In a chat whose members changed, no draft is decided. A sender who was refused may be a
	// member in the step that stores the others.
	changed := map[int64]bool{}
	for n, outcome := range v.outcomes {
		if outcome == 0 && v.version(n) > 0 && !v.stranger(n) && !v.reader(n) {
			changed[v.chat[n]] = true
		}
	}
	sends := 0
	var known []int
	for n, i := range todo {
		d := &a.drafts[i]
		switch {
		case v.version(n) == 0:
			a.results[i] = storage.Appended{Err: noChat(d.ChatID)}
		case changed[v.chat[n]]:
			unsure = append(unsure, i)
		case v.outcomes[n] < 0:
			known = append(known, n)
		case v.outcomes[n] == 0:
			a.results[i] = storage.Appended{
				Err: storage.NotSender(d.ChatID, d.SenderID, v.reader(n)),
			}
		default:
			sends++
			m := d.Message(tidemark.Sequence(v.outcomes[n]), v.version(n))
			m.CreatedAt = timeOf(d.CreatedAt.UnixMilli())
			a.results[i] = storage.Appended{Message: m, Version: v.version(n)}
			a.stored[i], a.versions[i] = &a.results[i].Message, v.version(n)
		}
	}
	if sends > 0 {
		a.committed(sends, 0, time.Since(began))
	}
	return unsure, a.find(ctx, c, todo, &v, known)
}

// statement runs appendDrafts, and note in the same transaction if a draft needs it. If a statement
// has waited for a lock, the transaction has a short lock timeout. In the transaction of alone, the
// chat is locked already.
func (a *appending) statement(
	ctx context.Context, c *conn, todo []int, parameters []any, v *verdicts,
) error {
	scan := func(row pgx.Rows) error {
		return row.Scan(&v.versions, &v.outcomes, &v.strangers, &v.readers)
	}
	noted := slices.ContainsFunc(todo, func(i int) bool { return isNoted(&a.drafts[i]) })
	run := func(pgx.Tx) error {
		err := c.each(ctx, appendDrafts, parameters, scan)
		if err == nil && noted {
			err = a.note(ctx, c, todo, v)
		}
		return err
	}
	switch {
	//rule:nothing_outside_membership.stay-in-transaction
	case c.PgConn().TxStatus() != idle:
		return run(nil)
	//rule:bounded_input.hurry-outside-transaction
	case a.lockWaited:
		return c.briefly(ctx, run)
	//rule:unread_exact.note-in-step-of-message
	case noted:
		return c.transaction(ctx, run)
	default:
		return run(nil)
	}
}

// parameters returns the parameters of appendDrafts: the drafts, and the chats in the order of
// their ids.
func (a *appending) parameters(todo []int, v *verdicts) []any {
	chats := make([]string, 0, len(todo))
	for _, i := range todo {
		chats = append(chats, string(a.drafts[i].ChatID))
	}
	slices.Sort(chats)
	chats = slices.Compact(chats)
	n := len(todo)
	numbers := make([]int64, 2*n)
	chat, created := numbers[:n], numbers[n:]
	text := make([]string, 4*n)
	senders, keys, ids, contents := text[:n], text[n:2*n], text[2*n:3*n], text[3*n:]
	// Empty columns are nil: types if all drafts have the same one, the others if there are none.
	var types []string
	var attachments, metadata, kinds, mentions []*string
	common := a.drafts[todo[0]].ContentType
	for at, i := range todo {
		d := &a.drafts[i]
		no, _ := slices.BinarySearch(chats, string(d.ChatID))
		chat[at], created[at] = int64(no)+1, d.CreatedAt.UnixMilli()
		senders[at], keys[at] = string(d.SenderID), d.ClientMessageID
		ids[at], contents[at] = string(d.MessageID), d.Content
		//rule:send_idempotent.types-of-all-drafts
		if d.ContentType != common && types == nil {
			types = slices.Repeat([]string{common}, n)
		}
		if types != nil {
			types[at] = d.ContentType
		}
		attachments = putJSON(attachments, at, n, d.Attachments)
		metadata = putJSON(metadata, at, n, d.Metadata)
		if d.Kind != tidemark.KindMessage {
			kinds = put(kinds, at, n, string(d.Kind))
		}
		if !d.Mentions.None() {
			mentions = put(mentions, at, n, d.Mentions.Text())
		}
	}
	v.chat = chat
	return []any{
		chats, chat, senders, keys, created, ids, types, attachments, metadata, contents, common,
		kinds, mentions, a.life,
	}
}

// putJSON sets the value of row at in a column of n rows, unless it is nil. A column without values
// is nil.
func putJSON(column []*string, at, n int, raw json.RawMessage) []*string {
	if raw == nil {
		return column
	}
	return put(column, at, n, string(raw))
}

func put(column []*string, at, n int, text string) []*string {
	if column == nil {
		column = make([]*string, n)
	}
	column[at] = &text
	return column
}

// keyStored reports whether another transaction stored a message with one of the keys after the
// statement's snapshot. The next statement sees that message.
func keyStored(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && said.Code == uniqueViolation &&
		said.ConstraintName == "messages_by_key"
}

// find reads the messages whose keys are known, and sets the results of their drafts.
func (a *appending) find(ctx context.Context, c *conn, todo []int, v *verdicts, known []int) error {
	if len(known) == 0 {
		return nil
	}
	ranges := make([]storage.Range, len(known))
	for at, n := range known {
		ranges[at] = storage.Range{
			Chat:  a.drafts[todo[n]].ChatID,
			After: tidemark.Sequence(-v.outcomes[n]) - 1,
			Limit: 1,
		}
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
		a.stored[i], a.versions[i] = &pages[at].messages[0], v.version(n)
		a.results[i] = a.same(i, a.stored[i], v.version(n))
		if a.repeated && a.stored[i].MessageID == a.drafts[i].MessageID {
			// The earlier attempt stored the message, and its answer was lost.
			a.results[i].Duplicate = false
		}
	}
	return nil
}

// same returns the result of a draft whose key has a stored message.
func (a *appending) same(i int, stored *tidemark.Message, version uint64) storage.Appended {
	if err := stored.Repeats(&a.drafts[i]); err != nil {
		return storage.Appended{Err: err}
	}
	return storage.Appended{Message: *stored, Duplicate: true, Version: version}
}

// follow sets the result of a draft that has the key of an earlier one in the batch.
func (a *appending) follow(i, earlier int) {
	//rule:send_idempotent.compare-equal-keys
	if stored := a.stored[earlier]; stored != nil {
		//rule:nothing_outside_membership.version-of-first-message
		a.results[i] = a.same(i, stored, a.versions[earlier])
		return
	}
	a.results[i] = a.results[earlier]
}
