package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// maxRelations is the most relations that share a transaction.
	maxRelations = 64
	// relationsTime bounds how long a batch with relations may take, because other messages wait
	// for it. Relations of one chat need a transaction each.
	relationsTime = time.Second
)

// The statements of relations. The transaction has locked the chats, so the rows of the targets
// stay as they are.
const (
	// lockChats locks chats in the order of their keys, and returns their types. It sorts by
	// key + 0, because the planner could choose to read all chats in the order of key.
	//
	//rule:redacted_stays.lock-before-target-in-postgres
	lockChats = `SELECT id, type FROM chats WHERE id = ANY ($1::text[]) ORDER BY key + 0
		FOR NO KEY UPDATE`
	rolesOf = `SELECT coalesce((SELECT role FROM members
			WHERE chat = n.chat AND user_id = n.user_id LIMIT 1), '')
		FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS n (chat, user_id, no)
		ORDER BY n.no`
	// relateMessage completes the row that appendDrafts has stored. So the statement of all
	// messages has no column for it.
	relateMessage = `UPDATE messages SET relation = $3` + thatMessage
	//rule:redacted_stays.overwrite-content-in-postgres
	reviseMessage = `UPDATE messages SET content_type = $3, mentions = $4, attachments = $5,
			metadata = $6, content = $7, revision = $8` + thatMessage
	// thatMessage sorts by sequence, an order that only the primary key has (messagesAt). It names
	// the chat and the sequence, too, because each partition of messages may have a row of that
	// ctid.
	thatMessage = ` WHERE chat = $1 AND sequence = $2 AND ctid = (SELECT ctid FROM messages
			WHERE chat = $1 AND sequence BETWEEN $2 AND $2 ORDER BY sequence LIMIT 1)`
)

// inOrder writes a batch with relations. It writes as many drafts together as have no relation of
// their chat before them. Then it writes the next relation of each chat, and goes on. A draft with
// the key of an earlier one waits, too: what is stored may be changed in between. After
// relationsTime the drafts that are left get Unavailable.
func (a *appending) inOrder(ctx context.Context, c *conn) error {
	began := time.Now()
	a.targets = make([][]*tidemark.Message, len(a.drafts))
	todo := make([]int, len(a.drafts))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		//rule:bounded_use.limit-time-of-relations
		if len(todo) < len(a.drafts) && time.Since(began) > relationsTime {
			for _, i := range todo {
				a.results[i] = storage.Appended{Err: tidemark.Errorf(tidemark.Unavailable,
					"too many edits, redactions, reactions and pins of this chat came at once, so "+
						"this message was not stored; send it again")}
			}
			return nil
		}
		var messages, relations, repeated, later []int
		waits := map[tidemark.ChatID]bool{}
		for _, i := range todo {
			d := &a.drafts[i]
			switch {
			//rule:sequence_gapless.keep-order-of-relations
			case waits[d.ChatID]:
				later = append(later, i)
			case d.Kind.Relates():
				relations, waits[d.ChatID] = append(relations, i), true
			case a.leader[i] != i:
				repeated, waits[d.ChatID] = append(repeated, i), true
			default:
				messages = append(messages, i)
			}
		}
		for _, some := range [][]int{messages, repeated} {
			if err := a.plain(ctx, c, some); err != nil {
				return err
			}
		}
		waited := a.lockWaited
		for _, some := range a.parts(relations) {
			if err := a.relate(ctx, c, some); err != nil {
				return err
			}
		}
		if a.lockWaited && !waited {
			began = time.Now() // The wait for a lock does not count.
		}
		todo = later
	}
	return nil
}

// parts divides relations of different chats into those that share a transaction. One that names a
// list has its own, which bounds how many targets are in memory.
func (a *appending) parts(relations []int) (parts [][]int) {
	var single []int
	for _, i := range relations {
		if a.drafts[i].Relation.Sequences != nil {
			parts = append(parts, []int{i})
		} else {
			single = append(single, i)
		}
	}
	return slices.AppendSeq(parts, slices.Chunk(single, maxRelations))
}

// relate writes relations of different chats, and what they do, in one transaction. If the database
// refuses a statement, each of them gets a transaction, so that a bad one fails alone.
func (a *appending) relate(ctx context.Context, c *conn, todo []int) error {
	transaction := c.transaction
	if a.lockWaited {
		transaction = c.briefly
	}
	err := transaction(ctx, func(pgx.Tx) error { return a.relateIn(ctx, c, todo) })
	if !itemsFault(err) {
		return err
	}
	a.lockWaited = a.lockWaited || condition(err) == lockNotAvailable
	if len(todo) == 1 {
		a.refuse(todo[0], public(err))
		return nil
	}
	for one := range slices.Chunk(todo, 1) {
		if err := a.relate(ctx, c, one); err != nil {
			return err
		}
	}
	return nil
}

// relateIn does the work of relate in its transaction.
func (a *appending) relateIn(ctx context.Context, c *conn, todo []int) error {
	began := time.Now()
	chats := make([]string, len(todo))
	for n, i := range todo {
		chats[n] = string(a.drafts[i].ChatID)
	}
	types, err := lock(ctx, c, chats)
	if err != nil {
		return err
	}
	// The cached verdicts may be outdated, and do not know the keys.
	verdicts, asked := make([]verdict, len(todo)), make([]int, len(todo))
	for n := range asked {
		asked[n] = n
	}
	if err := a.ask(ctx, c, todo, verdicts, asked); err != nil {
		return err
	}
	a.hold(todo, verdicts)
	refused, err := a.mayRelate(ctx, c, todo, verdicts, types)
	if err != nil {
		return err
	}
	var left []int
	var kept []verdict
	for n, i := range todo {
		if refused[n] == nil {
			left, kept = append(left, i), append(kept, verdicts[n])
		}
	}
	if err := a.store(ctx, c, left, kept); err != nil {
		return err
	}
	unsure, err := a.conclude(ctx, c, left, kept, began)
	switch {
	case err != nil:
		return err
	case len(unsure) > 0:
		return tooQuick()
	}
	// If a statement fails, each relation is judged again. Then no refusal of before counts.
	for n, i := range todo {
		if refused[n] != nil {
			a.refuse(i, refused[n])
		}
	}
	return nil
}

// lock locks chats for the running transaction, and returns their types.
func lock(
	ctx context.Context, c *conn, chats []string,
) (map[tidemark.ChatID]tidemark.ChatType, error) {
	types := make(map[tidemark.ChatID]tidemark.ChatType, len(chats))
	err := c.each(ctx, lockChats, []any{chats}, func(row pgx.Rows) error {
		var id, kind string
		err := row.Scan(&id, &kind)
		//rule:caller_does_only_what_they_may.type-in-the-step-in-postgres
		types[tidemark.ChatID(id)] = tidemark.ChatType(kind)
		return err
	})
	return types, err
}

// mayRelate reads the targets of the accepted relations, the roles of their senders, and what
// stands. It returns the error of MayRevise, MayAnnotate or Standing.Allows for each. types are
// those of the chats.
func (a *appending) mayRelate(
	ctx context.Context, c *conn, todo []int, verdicts []verdict,
	types map[tidemark.ChatID]tidemark.ChatType,
) ([]error, error) {
	refused := make([]error, len(todo))
	var at []int
	var keys []int64
	var senders []string
	var ranges []storage.Range
	var firsts []int // of ranges
	for n, i := range todo {
		d, v := &a.drafts[i], &verdicts[n]
		//rule:send_idempotent.key-before-target-in-postgres
		if !v.accepted() {
			continue
		}
		at = append(at, n)
		keys, senders = append(keys, v.chat), append(senders, string(d.SenderID))
		firsts = append(firsts, len(ranges))
		for _, target := range d.Targets() {
			ranges = append(ranges, storage.Range{Chat: d.ChatID, After: target - 1, Limit: 1})
		}
	}
	if len(at) == 0 {
		return refused, nil
	}
	pages, err := c.ranges(ctx, ranges)
	if err != nil {
		return nil, err
	}
	next := 0
	err = c.each(ctx, rolesOf, []any{keys, senders}, func(row pgx.Rows) error {
		var role string
		n, first := at[next], firsts[next]
		next++
		i := todo[n]
		d := &a.drafts[i]
		a.targets[i] = make([]*tidemark.Message, len(d.Targets()))
		for t, target := range d.Targets() {
			//rule:floor_recorded.no-relation-to-the-expired-in-postgres
			if page := pages[first+t]; len(page) > 0 && page[0].Sequence == target {
				a.targets[i][t] = &page[0]
			}
		}
		err := row.Scan(&role)
		if in := types[d.ChatID]; d.Kind.Revises() {
			refused[n] = d.MayRevise(a.targets[i], tidemark.Role(role), in)
		} else {
			refused[n] = d.MayAnnotate(a.targets[i][0], tidemark.Role(role), in)
		}
		return err
	})
	if err == nil {
		err = a.mayStand(ctx, c, todo, verdicts, refused)
	}
	return refused, err
}

// change queues the change of a message in the chat of a verdict.
func change(
	batch *pgx.Batch, v *verdict, chat tidemark.ChatID, text string, sequence tidemark.Sequence,
	values ...any,
) {
	batch.Queue(text, append([]any{v.chat, int64(sequence)}, values...)...).Exec(
		func(done pgconn.CommandTag) error {
			if done.RowsAffected() != 1 {
				return &hole{chat, sequence}
			}
			return nil
		})
}

// revise queues what a stored edit or redaction, draft i, changes: its own row, and those of its
// targets. If one is a reaction or pin, it stands no more.
func (a *appending) revise(batch *pgx.Batch, i int, v *verdict) {
	relation := a.drafts[i]
	relation.CreatedAt = timeOf(relation.CreatedAt.UnixMilli())
	change(batch, v, relation.ChatID, relateMessage, tidemark.Sequence(v.sequence),
		int64(storage.RelatedTo(relation.Relation)))
	for t, target := range a.targets[i] {
		m := target.Revise(&relation, tidemark.Sequence(v.sequence))
		a.targets[i][t] = &m
		reviseTarget(batch, v, &m)
	}
}

// reviseTarget queues what a message has become.
func reviseTarget(batch *pgx.Batch, v *verdict, m *tidemark.Message) {
	var mentions *string
	if !m.Mentions.None() {
		text := m.Mentions.Text()
		mentions = &text
	}
	change(batch, v, m.ChatID, reviseMessage, m.Sequence, m.ContentType, mentions,
		textOrNull(m.Attachments), textOrNull(m.Metadata), storage.ContentOf(m),
		m.Revision.Text())
	if m.Kind.Annotates() {
		//rule:annotations_counted.ends-in-step-of-redaction-in-postgres
		unannotate(batch, v, m)
	}
}

// unsaid returns a draft as its own row has it. A relation has nothing of what it says. Its content
// is that of storage.ContentOf.
func unsaid(d *tidemark.Draft) *tidemark.Draft {
	if !d.Kind.Relates() {
		return d
	}
	bare := *d
	m := d.Message(0, 0)
	bare.Content, bare.ContentType = storage.ContentOf(&m), m.ContentType
	bare.Attachments, bare.Metadata, bare.Mentions = nil, nil, tidemark.Mentions{}
	return &bare
}
