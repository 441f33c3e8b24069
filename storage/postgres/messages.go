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
	"github.com/tidemark-im/tidemark/internal/batch"
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

// appendDrafts appends drafts to their chats in one step. judge has said that their senders are
// members who may send.
//   - It raises the counter of a chat only if the chat still has the version of the members that
//     judge knows, and if none of the chat's drafts has a known key. Otherwise the drafts of the
//     chat get no sequence, and the caller judges them again. The new head follows the latest head,
//     including messages appended after the snapshot. If another transaction stored one of the keys
//     after the snapshot, the statement violates messages_by_key, and is repeated.
//   - It locks chats in the order of their keys, as every statement does that locks several.
//   - The parameters are arrays, described by their types below. The arrays of chats are in the
//     order of their keys, and drafts and senders name a chat by its place there.
//   - It counts drafts from the last of their chat. So the sequences follow from the head that the
//     UPDATE returns.
//   - The numbers of members with a seat are in the row of the chat. The rows of other senders
//     change only under the lock of their chat, so their order is free.
//   - It compares chat + 0 with the chat of a draft. Otherwise the primary key of messages fits,
//     too, and reads the whole chat for each draft.
//   - It opens the chat's backlog for outlets, if that is not open. An open one stays as it is, so
//     the update stays within its page (HOT).
//   - It has no join. A look-up is a sub-select by the whole key, and facts about a chat are in
//     arrays. So the planner has no choice, whatever its statistics are, and one plan always
//     serves. Joins became scans of whole tables.
//
//rule:nothing_outside_membership.append-statement
const appendDrafts = `WITH stale AS MATERIALIZED (
	SELECT array_agg(d.place) AS places
	FROM unnest($9::bigint[], $11::text[], $12::text[]) AS d (place, sender_id, client_message_id)
	WHERE (SELECT true FROM messages AS m
		WHERE m.client_message_id = d.client_message_id AND m.sender_id = d.sender_id
			AND m.chat + 0 = ($1::bigint[])[d.place] LIMIT 1)
), moved AS (
	UPDATE chats AS c SET
		head = c.head + ($3::bigint[])[width_bucket(c.key, $1)],
		activity_at = ($4::bigint[])[width_bucket(c.key, $1)],
		sent_1 = c.sent_1 + ($5::bigint[])[width_bucket(c.key, $1)],
		last_sent_1 = CASE ($6::bigint[])[width_bucket(c.key, $1)] WHEN 0 THEN c.last_sent_1
			ELSE c.head + $6[width_bucket(c.key, $1)] END,
		sent_2 = c.sent_2 + ($7::bigint[])[width_bucket(c.key, $1)],
		last_sent_2 = CASE ($8::bigint[])[width_bucket(c.key, $1)] WHEN 0 THEN c.last_sent_2
			ELSE c.head + $8[width_bucket(c.key, $1)] END,
		` + opened + `
	WHERE c.key = ANY ($1)
		AND c.members_version = ($2::bigint[])[width_bucket(c.key, $1)]
		AND array_position((SELECT places FROM stale), width_bucket(c.key, $1)::bigint) IS NULL
	RETURNING c.key, c.head, c.rows_version
), headed AS MATERIALIZED (
	SELECT array_agg(key) AS keys, array_agg(head) AS heads, array_agg(rows_version) AS rows
	FROM (SELECT key, head, rows_version FROM moved ORDER BY key) AS m
), stored AS (
	INSERT INTO messages (chat, sequence, created_at, members_version, sender_id, client_message_id,
		message_id, content_type, attachments, metadata, kind, mentions, content, life)
	SELECT $1[d.place], h.heads[width_bucket($1[d.place], h.keys)] - d.back, d.created_at,
		$2[d.place], d.sender_id, d.client_message_id, d.message_id,
		coalesce(d.content_type, $21), d.attachments, d.metadata, d.kind, d.mentions, d.content,
		$22::bigint
	FROM headed AS h,
		unnest($9, $10::bigint[], $11, $12, $13::text[], $14::bigint[], $15::text[], $16::text[],
			$17::text[], $18::text[], $19::text[], $20::text[])
		AS d (place, back, sender_id, client_message_id, message_id, created_at, content_type,
			attachments, metadata, kind, mentions, content)
	WHERE h.keys[width_bucket($1[d.place], h.keys)] = $1[d.place]
), sent AS (
	INSERT INTO senders AS s (chat, user_id, sent, last_sent)
	SELECT $1[n.place], n.user_id, n.count, h.heads[width_bucket($1[n.place], h.keys)] - n.back
	FROM headed AS h, unnest($23::bigint[], $24::text[], $25::bigint[], $26::bigint[])
		AS n (place, user_id, count, back)
	WHERE h.keys[width_bucket($1[n.place], h.keys)] = $1[n.place]
	ON CONFLICT (chat, user_id) DO UPDATE
		SET sent = s.sent + excluded.sent, last_sent = excluded.last_sent
)
SELECT keys, heads, rows FROM headed`

// appends are the batcher of Append, with the senders that its goroutine has cached.
type appends struct {
	*batch.Batcher[tidemark.Draft, storage.Appended]
	senders senders
}

// Append implements storage.Messages.
func (s *Store) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	return through(ctx, s, s.appends.Batcher, drafts)
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
	relates := false
	for i := range drafts {
		d := &drafts[i]
		k := key{d.ChatID, d.SenderID, d.ClientMessageID}
		j, twice := first[k]
		if !twice {
			first[k], j = i, i
			todo = append(todo, i)
		}
		leader[i] = j
		relates = relates || d.Kind.Relates()
	}
	a := &appending{
		drafts:    drafts,
		leader:    leader,
		results:   make([]storage.Appended, len(drafts)),
		stored:    make([]*tidemark.Message, len(drafts)),
		versions:  make([]uint64, len(drafts)),
		repeated:  c.attempt > 0,
		committed: s.committed,
		senders:   &s.appends.senders,
	}
	//rule:restore_is_noticed.message-has-its-life-in-postgres
	if life := s.life().Number; life > 1 {
		a.life = &life
	}
	if relates {
		return a.results, a.inOrder(ctx, c)
	}
	if err := a.plain(ctx, c, todo); err != nil {
		return nil, err
	}
	for i, j := range leader {
		if i != j {
			a.follow(i, j)
		}
	}
	return a.results, nil
}

// plain writes drafts that are no relations, and have different keys.
func (a *appending) plain(ctx context.Context, c *conn, todo []int) error {
	for round := 0; len(todo) > 0; round++ {
		if round == maxRounds {
			return tooQuick()
		}
		write := a.round
		//rule:bounded_use.limit-vain-rounds
		if round >= roundsUntilLock {
			write = a.alone
		}
		left, err := write(ctx, c, todo)
		if err != nil {
			return err
		}
		if len(left) < len(todo) {
			round = -1 // Only rounds that wrote nothing count.
		}
		todo = left
	}
	return nil
}

func tooQuick() error {
	return tidemark.Errorf(tidemark.Unavailable,
		"the members of a chat change too quickly; try again")
}

// An appending writes the drafts of one batch.
type appending struct {
	drafts []tidemark.Draft
	// leader is the first draft with the key of each.
	leader  []int
	results []storage.Appended
	// stored is the message with the key of each draft, nil until it is known.
	stored []*tidemark.Message
	// versions are the membership versions of the chats when those messages were stored or found.
	versions []uint64
	// repeated reports that an earlier attempt may have stored the drafts.
	repeated  bool
	committed func(sends, acks int, took time.Duration)
	senders   *senders
	// life is the number of the present life of the data, or nil for the first.
	life *int64
	// lockWaited reports that a statement has waited for a lock in vain. Further locks get less
	// time.
	lockWaited bool
	// behind has why drafts of importers are refused that come behind a refused one.
	behind storage.HeldBack
	// targets are those of the relations. From note on they are as the relations leave them. It is
	// nil in a batch without relations.
	targets [][]*tidemark.Message
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
			a.refuse(todo[0], public(err))
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
			a.locked(own, err)
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

// locked sets the results of drafts whose chat is locked by another program.
func (a *appending) locked(drafts []int, err error) {
	a.lockWaited = true
	for _, i := range drafts {
		a.refuse(i, public(err))
	}
}

// refuse sets the result of a draft that is refused, and whose key is not known.
func (a *appending) refuse(i int, err error) {
	a.results[i] = storage.Appended{Err: a.behind.Judge(&a.drafts[i], err)}
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
			a.locked(todo[at:], err)
			return nil, nil
		case itemsFault(err):
			a.refuse(i, public(err))
		case err != nil:
			return nil, err
		case len(part) > 0:
			//rule:sequence_gapless.keep-order-after-change
			return append(part, todo[at+1:]...), nil
		}
	}
	return nil, nil
}

// write judges some of the drafts and stores those that are accepted. It returns those whose chat
// changed its members meanwhile, or has a message with the key of one of them.
func (a *appending) write(ctx context.Context, c *conn, todo []int) (unsure []int, err error) {
	began := time.Now()
	var verdicts []verdict
	for again := 0; ; again++ {
		if verdicts, err = a.judge(ctx, c, todo); err == nil {
			a.hold(todo, verdicts)
			err = a.store(ctx, c, todo, verdicts)
		}
		//rule:send_idempotent.try-again-when-key-came
		if !keyStored(err) || again == maxRounds {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return a.conclude(ctx, c, todo, verdicts, began)
}

// conclude sets the results of drafts that were judged and stored. It returns what write returns.
// The drafts were judged at the time began or later.
func (a *appending) conclude(
	ctx context.Context, c *conn, todo []int, verdicts []verdict, began time.Time,
) (unsure []int, err error) {
	// In a chat that did not move, no draft is decided. A sender who was refused may be a member in
	// the step that stores the others.
	changed := map[tidemark.ChatID]bool{}
	for n := range verdicts {
		if v := &verdicts[n]; v.accepted() && v.sequence == 0 {
			chat := a.drafts[todo[n]].ChatID
			changed[chat] = true
			//rule:nothing_outside_membership.forget-outdated-chat
			a.senders.forget(chat)
		}
	}
	sends := 0
	var known []int
	for n, i := range todo {
		d, v := &a.drafts[i], &verdicts[n]
		switch {
		case v.chat == 0:
			a.results[i] = storage.Appended{Err: noChat(d.ChatID)}
		case v.refusal != nil:
			a.results[i] = storage.Appended{Err: v.refusal}
		case changed[d.ChatID]:
			unsure = append(unsure, i)
		case v.known > 0:
			known = append(known, n)
		case v.held != nil:
			a.refuse(i, v.held)
		case v.sequence == 0:
			a.refuse(i, v.unsent(d))
		default:
			sends++
			m := d.Message(tidemark.Sequence(v.sequence), uint64(v.version))
			m.CreatedAt = timeOf(d.CreatedAt.UnixMilli())
			if m.Kind.Revises() && m.Relation.Sequences == nil {
				m.Relation.Target = a.targets[i][0]
			}
			//rule:R_STANDS.version-of-the-step-in-postgres
			a.results[i] = storage.Appended{
				Message: m, Version: uint64(v.version), RowsVersion: uint64(v.rows),
			}
			a.stored[i], a.versions[i] = &a.results[i].Message, uint64(v.version)
		}
	}
	if sends > 0 {
		a.committed(sends, 0, time.Since(began))
	}
	return unsure, a.find(ctx, c, todo, verdicts, known)
}

// store runs appendDrafts for the accepted drafts, and sets the sequences in their verdicts. If a
// draft needs it, it runs note in the same transaction. If a statement has waited for a lock, the
// transaction has a short lock timeout. In the transaction of alone, the chat is locked already.
func (a *appending) store(
	ctx context.Context, c *conn, todo []int, verdicts []verdict,
) error {
	var accepted []int // indexes of todo
	noted := false
	for n, i := range todo {
		if verdicts[n].accepted() {
			accepted = append(accepted, n)
			noted = noted || isNoted(&a.drafts[i])
		}
	}
	if len(accepted) == 0 {
		return nil
	}
	moves := movesOf(a.drafts, todo, verdicts, accepted)
	parameters := a.parameters(todo, accepted, moves)
	run := func(pgx.Tx) error {
		var keys, heads, rows []int64
		err := c.each(ctx, appendDrafts, parameters,
			func(row pgx.Rows) error { return row.Scan(&keys, &heads, &rows) })
		if err != nil {
			return err
		}
		moves.place(verdicts, accepted, keys, heads, rows)
		if noted {
			return a.note(ctx, c, todo, verdicts)
		}
		return nil
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

// parameters returns the parameters of appendDrafts: first those of the moves, in the middle those
// of the drafts, and last those of the senders.
func (a *appending) parameters(todo, accepted []int, m *moves) []any {
	n := len(accepted)
	created := make([]int64, n)
	text := make([]string, 4*n)
	senders, keys, ids, contents := text[:n], text[n:2*n], text[2*n:3*n], text[3*n:]
	// Empty columns are nil: types if all drafts have the same one, the others if there are none.
	var types []string
	var attachments, metadata, kinds, mentions []*string
	common := unsaid(&a.drafts[todo[accepted[0]]]).ContentType
	for at, no := range accepted {
		//rule:redacted_stays.relation-says-nothing-in-postgres
		d := unsaid(&a.drafts[todo[no]])
		created[at] = d.CreatedAt.UnixMilli()
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
	return []any{
		m.keys, m.versions, m.counts, m.times, m.sent[0], m.last[0], m.sent[1], m.last[1],
		m.places, m.backs, senders, keys, ids, created, types, attachments, metadata, kinds,
		mentions, contents, common, a.life,
		m.others.places, m.others.users, m.others.counts, m.others.backs,
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
func (a *appending) find(
	ctx context.Context, c *conn, todo []int, verdicts []verdict, known []int,
) error {
	if len(known) == 0 {
		return nil
	}
	ranges := make([]storage.Range, len(known))
	for at, n := range known {
		ranges[at] = storage.Range{
			Chat:  a.drafts[todo[n]].ChatID,
			After: tidemark.Sequence(verdicts[n].known) - 1,
			Limit: 1,
		}
	}
	pages, err := storage.Related(ctx, ranges, c.ranges)
	if err != nil {
		return err
	}
	for at, n := range known {
		i := todo[n]
		if len(pages[at]) == 0 || pages[at][0].Sequence != ranges[at].After+1 {
			a.results[i] = storage.Appended{Err: tidemark.Errorf(tidemark.Unavailable,
				"the message with this key has expired meanwhile; send it again")}
			continue
		}
		a.stored[i], a.versions[i] = &pages[at][0], uint64(verdicts[n].version)
		a.results[i] = a.same(i, a.stored[i], a.versions[i])
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
