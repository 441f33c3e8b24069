package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/uuid/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// worker is a goroutine that calls the store of a node.
type worker struct {
	*history
	number, node int
	random       *rand.Rand
	sent         int
}

// call calls the store with a deadline, and reports whether it succeeded. An error must be
// Unavailable with a reason, in time.
func (w *worker) call(
	ctx context.Context, method string, do func(ctx context.Context, store storage.Store) error,
) bool {
	limit := w.limits[w.random.IntN(len(w.limits))]
	most := limit + grace
	if w.bound != 0 {
		most = min(most, w.bound)
	}
	return w.callWithin(ctx, limit, most, method, do)
}

// callWithin is call with a deadline and a bound for the duration of the call.
func (w *worker) callWithin(
	ctx context.Context, limit, most time.Duration, method string,
	do func(ctx context.Context, store storage.Store) error,
) bool {
	w.pace.enter()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began, stood := time.Now(), w.stalls.total()
	err := do(ctx, w.store(w.node))
	took := time.Since(began)
	timely := ctx.Err() == nil && took < storeTime
	w.pace.leave(took)
	if took > most && took-w.stalls.since(stood) > most {
		w.broken("%s returned %v after %v, with a deadline of %v", method, err, took, limit)
	}
	if err != nil &&
		(tidemark.CodeOf(err) != tidemark.Unavailable || tidemark.DetailOf(err) == "") {
		w.broken("%s: %v, want Unavailable with a reason", method, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[method]++
	w.slowest = max(w.slowest, took)
	if err != nil {
		w.refused++
		if timely && method != "Check" { // Check reports earlier calls
			w.early++
		}
		w.reasons[tidemark.DetailOf(err)]++
	}
	return err == nil
}

// compose notes a message to be sent.
func (w *worker) compose(chat tidemark.ChatID, key string) *send {
	s := &send{draft: tidemark.Draft{
		Kind:            tidemark.KindMessage,
		ChatID:          chat,
		SenderID:        w.users[w.random.IntN(len(w.users))],
		ClientMessageID: key,
		ContentType:     tidemark.DefaultContentType,
		Content:         strings.Repeat(key+" ", 1+w.random.IntN(100)),
		CreatedAt:       time.Now(),
	}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends[string(chat)+"/"+key] = s
	return s
}

// append makes a call for messages that no other worker sends at the time, and notes the outcome.
// It reports whether all are stored now.
func (w *worker) append(ctx context.Context, sends []*send) bool {
	drafts := make([]tidemark.Draft, len(sends))
	w.mu.Lock()
	heads := maps.Clone(w.heads)
	for i, s := range sends {
		// The server gives each call an id of its own.
		s.draft.MessageID = tidemark.MessageID(uuid.Must(uuid.NewV7()).String())
		s.tried = append(s.tried, s.draft.MessageID)
		drafts[i] = s.draft
	}
	w.mu.Unlock()
	var appended []storage.Appended
	if !w.call(ctx, "Append", func(ctx context.Context, store storage.Store) (err error) {
		appended, err = store.Append(ctx, drafts)
		return err
	}) {
		return false
	}
	all := true
	for i, a := range appended {
		s := sends[i]
		if a.Err != nil {
			all = false
			if tidemark.CodeOf(a.Err) != tidemark.Unavailable {
				w.broken("the message %s: %v", s.draft.ClientMessageID, a.Err)
			}
			w.mu.Lock()
			w.reasons[tidemark.DetailOf(a.Err)]++
			w.mu.Unlock()
			continue
		}
		w.confirm(s, a, heads[s.draft.ChatID])
	}
	return all
}

// confirm notes that a message is stored. before is a head that was returned before the call.
func (w *worker) confirm(s *send, a storage.Appended, before tidemark.Sequence) {
	m, d := &a.Message, &s.draft
	if m.ChatID != d.ChatID || m.ClientMessageID != d.ClientMessageID || !m.SameAs(d) {
		w.broken("%s was sent, and %s of %s confirmed",
			d.ClientMessageID, m.ClientMessageID, m.ChatID)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	which := slices.Index(s.tried, m.MessageID)
	switch {
	case which < 0:
		w.violations = append(w.violations,
			fmt.Sprintf("%s is confirmed with an id that no call had", d.ClientMessageID))
	case which < len(s.tried)-1 && s.sequence == 0:
		w.ambiguous++
	case which == 0 && len(s.tried) == 1 && m.Sequence <= before:
		w.violations = append(w.violations,
			fmt.Sprintf("%s is confirmed at %d of %s, where the head was %d before it was sent",
				d.ClientMessageID, m.Sequence, d.ChatID, before))
	}
	if s.sequence != 0 && s.sequence != m.Sequence {
		w.violations = append(w.violations,
			fmt.Sprintf("%s was confirmed at %d, and then at %d", d.ClientMessageID, s.sequence,
				m.Sequence))
	}
	if s.sequence == 0 {
		w.confirmed++
	}
	s.sequence = m.Sequence
	delete(w.unrecovered, nodeChat{w.node, d.ChatID})
	w.heads[d.ChatID] = max(w.heads[d.ChatID], m.Sequence)
}

// advance raises watermarks of users who are shared with other workers, to heads that were
// returned.
func (w *worker) advance(ctx context.Context) {
	advances := make([]storage.Advance, 0, 3)
	floors := make([]tidemark.Watermark, 0, 3)
	w.mu.Lock()
	for _, chat := range w.chats[:1+w.random.IntN(len(w.chats))] {
		head := w.heads[chat]
		if head == 0 {
			continue
		}
		key := storage.StateKey{User: w.users[w.random.IntN(len(w.users))], Chat: chat}
		raise := tidemark.Raise{Acked: head - tidemark.Sequence(w.random.IntN(int(min(head, 5))))}
		raise.Read = tidemark.Sequence(w.random.Int64N(int64(raise.Acked) + 1))
		advances = append(advances, storage.Advance{
			User:  key.User,
			Chat:  chat,
			Raise: raise,
			Now:   time.Now(),
		})
		floors = append(floors, max(raise.Acked, w.raised[key]))
		w.attempted[key] = max(w.attempted[key], raise.Acked)
	}
	w.mu.Unlock()
	var advanced []storage.Advanced
	if len(advances) == 0 ||
		!w.call(ctx, "Advance", func(ctx context.Context, store storage.Store) (err error) {
			advanced, err = store.Advance(ctx, advances)
			return err
		}) {
		return
	}
	for i, a := range advanced {
		if a.Err != nil {
			if tidemark.CodeOf(a.Err) != tidemark.Unavailable {
				w.broken("the watermark %d of %s: %v", advances[i].Acked, advances[i].Chat, a.Err)
			}
			continue
		}
		if a.State.Acked < floors[i] {
			w.broken("the watermark of %s in %s is read as %d, after %d",
				a.State.UserID, a.State.ChatID, a.State.Acked, floors[i])
		}
		w.noteState(a.State)
	}
}

// noteState notes a state that a node returned.
func (w *worker) noteState(s tidemark.DeliveryState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := storage.StateKey{User: s.UserID, Chat: s.ChatID}
	w.raised[key] = max(w.raised[key], s.Acked)
	w.seen[w.node][key] = max(w.seen[w.node][key], s.Acked)
}

// read reads in one of the ways in which servers read, and compares it with earlier answers.
func (w *worker) read(ctx context.Context) {
	chat, user := w.chats[w.random.IntN(len(w.chats))], w.users[w.random.IntN(len(w.users))]
	key := storage.StateKey{User: user, Chat: chat}
	w.mu.Lock()
	head, acked := w.heads[chat], w.seen[w.node][key]
	w.mu.Unlock()
	switch w.random.IntN(8) {
	case 0:
		var heads []tidemark.Sequence
		if w.call(ctx, "Heads", func(ctx context.Context, s storage.Store) (err error) {
			heads, err = s.Heads(ctx, []tidemark.ChatID{chat})
			return err
		}) && heads[0] < head {
			w.broken("the head of %s is read as %d, after %d", chat, heads[0], head)
		}
	case 1:
		w.page(ctx, chat, head)
	case 2:
		var states []tidemark.DeliveryState
		if w.call(ctx, "States", func(ctx context.Context, s storage.Store) (err error) {
			states, err = s.States(ctx, []storage.StateKey{key})
			return err
		}) {
			if states[0].Acked < acked {
				w.broken("the state of %s in %s is read as %d, after %d over the same node",
					user, chat, states[0].Acked, acked)
			}
			w.noteState(states[0])
		}
	case 3:
		w.call(ctx, "ChatsOf", func(ctx context.Context, s storage.Store) error {
			_, _, err := s.ChatsOf(ctx, user, storage.ChatsPage{Limit: 10})
			return err
		})
	case 4:
		w.behind(ctx, user)
	case 5:
		w.members(ctx, chat)
	case 6:
		w.call(ctx, "Summary", func(ctx context.Context, s storage.Store) error {
			_, err := s.Summary(ctx, chat, head, "")
			return err
		})
	case 7:
		w.call(ctx, "Check",
			func(ctx context.Context, s storage.Store) error { return s.Check(ctx) })
	}
}

// behind lists the chats in which a user is behind. The list must have every chat with a confirmed
// message that no worker has acknowledged for the user.
func (w *worker) behind(ctx context.Context, user tidemark.UserID) {
	w.mu.Lock()
	heads := maps.Clone(w.heads)
	w.mu.Unlock()
	listed := map[tidemark.ChatID]tidemark.Sequence{}
	var after tidemark.ChatID
	for more := true; more; {
		if !w.call(ctx, "Behind", func(ctx context.Context, s storage.Store) error {
			chats, next, rest, err := s.Behind(ctx, user,
				storage.BehindQuery{After: after, Limit: 10})
			for _, c := range chats {
				listed[c.Chat] = c.Head
			}
			after, more = next, rest
			return err
		}) {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, chat := range w.chats {
		head := heads[chat]
		attempted := w.attempted[storage.StateKey{User: user, Chat: chat}]
		if head > attempted && listed[chat] < head {
			w.violations = append(w.violations, fmt.Sprintf("%s is behind in %s: %d was "+
				"confirmed, nobody wanted more than %d acknowledged; the list says %d "+
				"(0: not behind)", user, chat, head, attempted, listed[chat]))
		}
	}
}

// members reads the states of a chat's members, which may be old. They must not be beyond what was
// requested.
func (w *worker) members(ctx context.Context, chat tidemark.ChatID) {
	var states []tidemark.DeliveryState
	if !w.call(ctx, "StatesIn", func(ctx context.Context, s storage.Store) (err error) {
		states, _, err = s.StatesIn(ctx, chat, "", 100)
		return err
	}) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[tidemark.UserID]bool{}
	for _, s := range states {
		found[s.UserID] = true
		wanted := w.attempted[storage.StateKey{User: s.UserID, Chat: chat}]
		if s.Acked > wanted || s.Read > s.Acked {
			w.violations = append(w.violations, fmt.Sprintf("the watermarks of %s in %s are "+
				"read as %d and %d, and nobody wanted more than %d",
				s.UserID, chat, s.Acked, s.Read, wanted))
		}
	}
	for _, user := range w.users {
		if !found[user] {
			w.violations = append(w.violations,
				fmt.Sprintf("%s is a member of %s, and not among the states of its members", user,
					chat))
		}
	}
}

// page reads up to 50 messages. They must begin behind the position, have no hole, and reach the
// head that was returned. A page may end before a message that cannot be read now. Then the next
// one begins there, and has a message or an error.
func (w *worker) page(ctx context.Context, chat tidemark.ChatID, head tidemark.Sequence) {
	after := tidemark.Sequence(w.random.Int64N(int64(head) + 1))
	for last := min(head, after+50); after < last; {
		var pages [][]tidemark.Message
		if !w.call(ctx, "Ranges", func(ctx context.Context, s storage.Store) (err error) {
			pages, err = s.Ranges(ctx, []storage.Range{{Chat: chat, After: after, Limit: 50}})
			return err
		}) {
			return
		}
		for i, m := range pages[0] {
			if m.Sequence != after+1+tidemark.Sequence(i) {
				w.broken("%s after %d: message %d is that of sequence %d", chat, after, i,
					m.Sequence)
			}
		}
		if len(pages[0]) == 0 {
			w.broken("%s after %d has no messages, and its head was read as %d", chat, after, head)
			return
		}
		after += tidemark.Sequence(len(pages[0]))
	}
}

// send sends one to four messages. If they are refused, it sends them once more, perhaps over
// another node.
func (w *worker) send(ctx context.Context) {
	sends := make([]*send, 1+w.random.IntN(4))
	for i := range sends {
		w.sent++
		sends[i] = w.compose(w.chats[w.random.IntN(len(w.chats))],
			fmt.Sprintf("w%d-%d", w.number, w.sent))
	}
	home := w.node
	for range 2 {
		if w.append(ctx, sends) {
			break
		}
		<-time.After(time.Duration(w.random.IntN(50)) * time.Millisecond)
		w.node = w.random.IntN(len(w.stores))
	}
	w.node = home
}
