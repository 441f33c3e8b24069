package appends

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

const (
	// turnTransactions is the number of transactions in one turn. With one, many drafts would wait
	// for each change of the chat's members between two transactions. Without a limit, the changes
	// would wait for all drafts.
	turnTransactions = 8
	// turnLength ends a turn early if transactions are slow, so that such changes wait less.
	turnLength = time.Second
	// turnTime is the default of Appender.Patience.
	turnTime = 5 * time.Second
	// KeptKeys is how long an idempotency key is kept at least, one day more than promised.
	//rule:send_idempotent.keep-keys-for-days
	KeptKeys = 8 * 24 * time.Hour
)

// appendBatch appends the drafts of some calls for a chat, in the order of their arrival, and sets
// the results. Each run of the drafts (runOf) is appended by itself. rested reports that the chat
// had nothing to append before.
func (a *Appender) appendBatch(id tidemark.ChatID, batch []*sending, rested bool) {
	own := a.use(id)
	defer a.leave(own)
	var drafts []tidemark.Draft
	var calls []int
	for n, one := range batch {
		drafts = append(drafts, one.drafts...)
		calls = append(calls, slices.Repeat([]int{n}, len(one.drafts))...)
	}
	waiting := batch
	var results []storage.Appended
	var behind storage.HeldBack
	for len(waiting) > 0 {
		n := runOf(drafts)
		work := &appending{
			Access: a.access, committed: a.committed, chat: id, view: &own.view,
			drafts: drafts[:n], batch: batch, calls: calls[:n], rested: rested,
			results: make([]storage.Appended, n), first: make([]firstMessage, n), life: a.Life,
			behind: behind,
		}
		err := work.all(own, a.Patience)
		behind = work.behind
		results = append(results, work.results...)
		waiting, results = answer(waiting, results, err)
		drafts, calls, rested = drafts[n:], calls[n:], false
	}
}

// answer gives the first calls their results, as far as there are any, or all calls the error. It
// returns the calls that still wait, and the results of the first of them.
func answer(
	waiting []*sending, results []storage.Appended, err error,
) ([]*sending, []storage.Appended) {
	for len(waiting) > 0 && (err != nil || len(waiting[0].drafts) <= len(results)) {
		one := waiting[0]
		waiting = waiting[1:]
		if one.err = err; err == nil {
			n := len(one.drafts)
			one.results, results = results[:n:n], results[n:]
		}
		close(one.done)
	}
	return waiting, results
}

type firstMessage struct {
	message *tidemark.Message
	version uint64
}

// An appending appends drafts to one chat: a single relation, or drafts that are none.
type appending struct {
	record.Access
	committed func(sends, acks int, took time.Duration)
	chat      tidemark.ChatID
	view      *view
	life      int64
	drafts    []tidemark.Draft
	// batch has the calls, and calls has the index of each draft's call.
	batch   []*sending
	calls   []int
	results []storage.Appended
	// first has the message with each draft's key, once it is known, and the version of the call.
	first []firstMessage
	// behind has why drafts of an importer are refused that come behind a refused one.
	behind storage.HeldBack
	// target has what the draft of the present transaction does to another message, if it is a
	// relation.
	target *target
	// rested reports that the chat had nothing to append before.
	rested bool
	// doubtful reports that an attempt with an unknown outcome may have stored the drafts of the
	// present transaction.
	doubtful bool
}

// all appends all drafts, in transactions of as many as fit. Of drafts with equal keys, it appends
// the first and compares the others with it.
func (a *appending) all(own *chat, patience time.Duration) error {
	type key struct {
		sender          tidemark.UserID
		clientMessageID string
	}
	first := make(map[key]int, len(a.drafts))
	leader := make([]int, len(a.drafts))
	todo := make([]int, 0, len(a.drafts))
	for i := range a.drafts {
		k := key{a.drafts[i].SenderID, a.drafts[i].ClientMessageID}
		j, twice := first[k]
		if !twice {
			first[k], j = i, i
			todo = append(todo, i)
		}
		leader[i] = j
	}
	for len(todo) > 0 {
		var err error
		if todo, err = a.turn(own, patience, todo); err != nil {
			return err
		}
	}
	for i, j := range leader {
		if i == j {
			continue
		}
		if first := a.first[j]; first.message != nil {
			a.results[i] = a.same(i, first)
		} else {
			a.results[i] = a.results[j]
		}
	}
	return nil
}

// some returns the first drafts, as many as fit into a transaction. If small, it returns the drafts
// of one call. The drafts of a call are one step, unless they are more than fit.
func (a *appending) some(todo []int, small bool) []int {
	n, items := 0, 1
	for n < len(todo) && (n == 0 || !small) {
		end, more := n, 0
		for end < len(todo) && a.calls[todo[end]] == a.calls[todo[n]] &&
			(n > 0 || items+more+itemsOf(&a.drafts[todo[end]]) <= call.MostActions) {
			more += itemsOf(&a.drafts[todo[end]])
			end++
		}
		if items += more; items > call.MostActions {
			break
		}
		n = end
	}
	return todo[:n]
}

// itemsOf returns how many items a draft needs: the key, the message, and one for each partition
// that it is noted in.
func itemsOf(d *tidemark.Draft) int { return 2 + len(notesOf(d)) }

// notesOf returns the partitions of the messages table in which a message is noted because it does
// not count as unread, or names users.
func notesOf(d *tidemark.Draft) []string {
	switch {
	case !d.Kind.Counts():
		return []string{record.UncountedKey(d.ChatID)}
	case d.Mentions.All:
		return []string{record.MentionKey(d.ChatID, unread.Everyone)}
	}
	var notes []string
	for _, user := range d.Mentions.Users {
		notes = append(notes, record.MentionKey(d.ChatID, user))
	}
	return notes
}

// turn appends drafts during this process's turn to write the chat. It returns the drafts that wait
// for the next turn.
func (a *appending) turn(own *chat, patience time.Duration, todo []int) (left []int, err error) {
	ctx, cancel := call.WithPatience(context.Background(), patience)
	defer cancel()
	if err := own.take(ctx); err != nil {
		return nil, err
	}
	defer own.release()
	call.Progress(ctx)
	if a.rested && own.view.shared {
		own.view.follow(a.Known)
	}
	if a.rested {
		own.view.won = 0
	}
	a.rested, a.doubtful = false, false
	began := time.Now()
	for done := 0; len(todo) > 0 && done < turnTransactions; {
		if done > 0 && time.Since(began) >= turnLength {
			break
		}
		// After a loss, a small transaction is cheaper to lose again. Once it is stored, the head
		// is known, and the other drafts follow.
		if err := a.leaveRoom(ctx); err != nil {
			return nil, err
		}
		some := a.some(todo, own.view.lost > 0)
		left, err := a.attempt(ctx, some)
		if err != nil {
			own.view.stale = true
			return nil, err
		}
		if len(left) == 0 {
			done++
		}
		if len(left) < len(some) {
			a.answered(ctx, some...)
		}
		todo = append(left, todo[len(some):]...)
	}
	return todo, nil
}

// answered records that drafts have results, which is progress.
func (a *appending) answered(ctx context.Context, some ...int) {
	call.Progress(ctx)
	for _, i := range some {
		a.batch[a.calls[i]].progress()
	}
}

// attempt makes one transaction of the drafts whose senders are members. It sets the results that
// it can, and returns the other drafts. If the members change before the transaction, refused
// senders are not decided either. They may be members in the step that stores the other drafts.
func (a *appending) attempt(ctx context.Context, todo []int) (left []int, err error) {
	members, strangers, err := a.admitted(ctx, todo)
	if err != nil || len(members) == 0 {
		a.decided(strangers)
		return nil, err
	}
	if i := members[0]; a.drafts[i].Kind.Relates() {
		aim := a.aim
		if a.drafts[i].Relation.Sequences != nil {
			aim = a.aimAtList
		}
		if left, err = aim(ctx, i); err != nil || a.target == nil {
			if len(left) == 0 {
				a.decided(members)
			}
			return left, err
		}
	}
	next, moving, err := a.next(ctx, members)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	// Senders who cannot be written stay in the counter, and are tried again beside a later one.
	var moves sync.WaitGroup
	moves.Go(func() { _ = a.moveOut(ctx, moving) })
	refused, doubtful, err := a.Transact(ctx, a.actions(members, next))
	a.doubtful = a.doubtful || doubtful
	moves.Wait()
	if err != nil {
		return nil, err
	}
	if refused == nil {
		a.view.took = time.Since(began)
		a.committed(len(members), 0, a.view.took)
		a.stored(members, next)
		//rule:import_once.hold-back-in-later-transactions
		a.decided(strangers)
		return nil, nil
	}
	left, err = a.refused(ctx, members, refused)
	if len(left) == 0 {
		a.decided(strangers)
	} else {
		//rule:nothing_outside_membership.ask-again-for-strangers
		left = append(left, strangers...)
		//rule:sequence_gapless.judge-again-in-order
		slices.Sort(left)
	}
	return left, err
}

// actions returns the writes of the transaction: the counter, the key and the message of each
// draft, and at the end the notes and the target.
func (a *appending) actions(todo []int, next *record.Counter) []types.TransactWriteItem {
	head := a.view.Head
	now := time.Now()
	actions := make([]types.TransactWriteItem, 1, 1+2*len(todo))
	change := "SET head = :to, activity_at = :at, senders = :senders"
	values := call.Item{":senders": call.Text(next.Senders.Text())}
	if next.Uncounted > a.view.Uncounted {
		change += ", uncounted = :uncounted, last_uncounted = :last_uncounted"
		values[":uncounted"] = call.Number(next.Uncounted)
		values[":last_uncounted"] = call.Number(next.LastUncounted)
	}
	if next.LastMoved > a.view.LastMoved {
		change += ", last_moved = :last_moved"
		values[":last_moved"] = call.Number(next.LastMoved)
	}
	if next.LastMention > a.view.LastMention {
		change += ", last_mention = :last_mention"
		values[":last_mention"] = call.Number(next.LastMention)
	}
	maps.Copy(values, call.Item{
		":head": call.Number(head), ":to": call.Number(next.Head),
		":version": call.Number(a.view.MembersVersion),
		":at":      call.Number(a.drafts[todo[len(todo)-1]].CreatedAt.UnixMilli()),
	})
	actions[0] = types.TransactWriteItem{Update: &types.Update{
		TableName: a.Table(record.Counters), Key: record.ChatKey(a.chat),
		UpdateExpression:          aws.String(record.OpenBacklog(a.chat, change, values)),
		ExpressionAttributeValues: values,
		//rule:sequence_gapless.append-at-head-and-version
		ConditionExpression: aws.String("head = :head AND members_version = :version"),

		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
	for n, i := range todo {
		d := &a.drafts[i]
		sequence := head + 1 + tidemark.Sequence(n)
		key := call.Item{
			"id": call.Text(idOf(storage.SendKeyOf(d))), "sequence": call.Number(sequence),
			"message_id": call.Text(d.MessageID),
			"expires_at": call.Number(now.Add(KeptKeys).Unix()),
		}
		//rule:send_idempotent.key-once
		actions = append(actions, types.TransactWriteItem{Put: &types.Put{
			TableName: a.Table(record.Keys),
			Item:      key,
			ConditionExpression: aws.String(
				"attribute_not_exists(id) OR expires_at <= :now"),
			ExpressionAttributeValues:           call.Item{":now": call.Number(now.Unix())},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}, types.TransactWriteItem{Put: &types.Put{
			TableName:           a.Table(record.Messages),
			Item:                record.MessageItem(d, sequence, a.view.MembersVersion, a.life),
			ConditionExpression: aws.String("attribute_not_exists(chat_id)"),
		}})
	}
	actions = append(actions, a.notes(todo)...)
	//rule:redacted_stays.target-in-step-of-relation-in-dynamodb
	if a.target != nil {
		actions = append(actions, a.target.writes...)
	}
	return actions
}

// notes returns the writes of what is noted beside the messages.
func (a *appending) notes(todo []int) []types.TransactWriteItem {
	var actions []types.TransactWriteItem
	ordinal := a.view.Uncounted
	for n, i := range todo {
		d := &a.drafts[i]
		it := call.Item{"sender_id": call.Text(d.SenderID)}
		if !d.Kind.Counts() {
			ordinal++
			it = call.Item{"ordinal": call.Number(ordinal)}
		}
		for _, partition := range notesOf(d) {
			note := maps.Clone(it)
			note["chat_id"] = call.Text(partition)
			note["sequence"] = call.Number(a.view.Head + 1 + tidemark.Sequence(n))
			actions = append(actions, types.TransactWriteItem{Put: &types.Put{
				TableName: a.Table(record.Messages), Item: note,
			}})
		}
	}
	return actions
}

// stored sets the results of drafts that the transaction has stored.
func (a *appending) stored(todo []int, next *record.Counter) {
	for n, i := range todo {
		d := &a.drafts[i]
		m := d.Message(a.view.Head+1+tidemark.Sequence(n), a.view.MembersVersion)
		m.CreatedAt = call.Stored(d.CreatedAt)
		if m.Kind.Revises() && m.Relation.Sequences == nil {
			m.Relation.Target = &a.target.revised
		}
		a.results[i] = storage.Appended{Message: m, Version: a.view.MembersVersion}
		a.first[i] = firstMessage{&m, a.view.MembersVersion}
	}
	a.view.Counter = next
	a.SawCounter(next)
	a.view.lost, a.view.heard.relied = 0, false
	a.view.won++
}

// refused sets the results of drafts whose keys are known. It returns the others, which are tried
// again from the present head.
func (a *appending) refused(
	ctx context.Context, todo []int, reasons []types.CancellationReason,
) (left []int, err error) {
	moved, version := call.Blamed(reasons[0]), a.view.MembersVersion
	if moved {
		a.view.heard.failed()
	}
	if call.Failed(reasons[0]) {
		found, err := a.Learn(a.chat, reasons[0].Item)
		if err != nil {
			return nil, err
		}
		a.view.shared = a.view.shared || found.Head != a.view.Head
		a.view.see(found)
		// The next attempt refuses them all, also those whose messages are still stored.
		//rule:deleted_is_gone.no-duplicate-by-an-old-view
		if found.State == tidemark.ChatDeleted {
			return todo, nil
		}
	}
	// A change of the members needs no pause: it is rare, and the counter says it at no cost.
	changed := a.view.MembersVersion != version
	known := map[int]call.Item{}
	for n, i := range todo {
		key, message := reasons[1+2*n], reasons[2+2*n]
		switch {
		case call.Failed(key):
			known[i] = key.Item
			continue
		case call.Failed(message) && !moved:
			return nil, tidemark.Errorf(tidemark.Unavailable,
				"the tables are damaged: chat %s ends at %d, and has a later message", a.chat,
				a.view.Head)
		case call.Blamed(key) || call.Blamed(message):
			moved = true
		}
		left = append(left, i)
	}
	for _, other := range reasons[1+2*len(todo):] { // of the notes and the target
		moved = moved || call.Blamed(other)
	}
	same := slices.Sorted(maps.Keys(known))
	forgotten := make([]bool, len(same))
	err = call.Together(ctx, len(same), func(ctx context.Context, n int) (err error) {
		forgotten[n], err = a.duplicate(ctx, same[n], known[same[n]])
		return err
	})
	if err != nil {
		return nil, err
	}
	for n, i := range same {
		if forgotten[n] {
			left = append(left, i)
		}
	}
	slices.Sort(left)
	// If neither the counter nor a key says why, the next attempt may fare no better.
	if len(same) > 0 || call.Blamed(reasons[0]) {
		a.answered(ctx, same...)
	}
	if moved && !changed && len(left) > 0 {
		return left, a.backOff(ctx)
	}
	return left, nil
}

// duplicate sets the result of a draft whose key is known. If the message with the key has expired,
// the key is forgotten, and the draft is left.
func (a *appending) duplicate(ctx context.Context, i int, key call.Item) (left bool, err error) {
	m, first, err := messageUnder(ctx, a.Access, a.chat, key)
	var hole *call.Hole
	switch {
	case errors.Is(err, errExpired):
		return true, forget(ctx, a.Access, key)
	case errors.As(err, &hole):
		a.results[i] = storage.Appended{Err: call.Public(hole)}
		return false, nil
	case err != nil:
		return false, err
	}
	a.first[i] = firstMessage{&m, a.view.MembersVersion}
	a.results[i] = a.same(i, a.first[i])
	//rule:send_idempotent.own-message-after-doubt
	if a.results[i].Err == nil && a.doubtful && first == a.drafts[i].MessageID {
		//rule:send_idempotent.own-message-is-no-duplicate
		a.results[i].Duplicate = false // This call's transaction stored it; its answer was lost.
	}
	return false, nil
}

// same returns the result of a draft whose key has a stored message.
func (a *appending) same(i int, first firstMessage) storage.Appended {
	if err := first.message.Repeats(&a.drafts[i]); err != nil {
		return storage.Appended{Err: err}
	}
	return storage.Appended{Message: *first.message, Duplicate: true, Version: first.version}
}
