package simulationtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// truth records the effects on the store, independently of the store. Its methods are not called
// concurrently: the scheduler allows one effect at a time.
type truth struct {
	w     *simulation
	heads map[tidemark.ChatID]tidemark.Sequence
	marks map[storage.StateKey]tidemark.DeliveryState
	// spans has the messages that a user may see. changes counts how often the membership has
	// changed.
	spans   map[storage.StateKey][]span
	changes map[storage.StateKey]int
	history map[tidemark.ChatID]tidemark.HistoryMode
	// sent has the message for each chat, sender and client message id.
	sent map[string]tidemark.Message
	// at has the messages that relations may change, as they were stored first, and texts what
	// each of them has said. The last text is the present one.
	at    map[storage.MessageKey]tidemark.Message
	texts map[storage.MessageKey][]string
	// all has the messages of each chat as they were stored first. What has expired stays in it.
	all map[tidemark.ChatID][]tidemark.Message
	removals
}

// removals is what has expired and what was deleted.
type removals struct {
	floors map[tidemark.ChatID]tidemark.Sequence
	// deleted has the chats that are deleted, and before their floors before that. told has those
	// of which all nodes have been told.
	deleted, told map[tidemark.ChatID]bool
	before        map[tidemark.ChatID]tidemark.Sequence
	// through is the last sequence of the last page of history.
	through tidemark.Sequence
}

// span is a range of sequences, both included. A to of 0 is open.
type span struct{ from, to tidemark.Sequence }

func newTruth(w *simulation) *truth {
	return &truth{
		w:       w,
		heads:   map[tidemark.ChatID]tidemark.Sequence{},
		marks:   map[storage.StateKey]tidemark.DeliveryState{},
		spans:   map[storage.StateKey][]span{},
		changes: map[storage.StateKey]int{},
		history: map[tidemark.ChatID]tidemark.HistoryMode{},
		sent:    map[string]tidemark.Message{},
		at:      map[storage.MessageKey]tidemark.Message{},
		texts:   map[storage.MessageKey][]string{},
		all:     map[tidemark.ChatID][]tidemark.Message{},
		removals: removals{
			floors:  map[tidemark.ChatID]tidemark.Sequence{},
			deleted: map[tidemark.ChatID]bool{},
			told:    map[tidemark.ChatID]bool{},
			before:  map[tidemark.ChatID]tidemark.Sequence{},
		},
	}
}

func (tr *truth) created(new storage.NewChat) {
	tr.history[new.ID] = new.History
	for _, user := range new.Members {
		tr.spans[storage.StateKey{User: user, Chat: new.ID}] = []span{{from: 1}}
	}
}

func (tr *truth) added(chat tidemark.ChatID, added storage.Added) {
	for _, user := range added.New {
		key := storage.StateKey{User: user, Chat: chat}
		from := added.Head + 1
		if tr.changes[key] == 0 && len(tr.spans[key]) == 0 &&
			tr.history[chat] == tidemark.HistoryFull {
			from = 1
		}
		if tr.member(user, chat) {
			tr.w.failf("%s was added to %s twice", user, chat)
		}
		tr.spans[key] = append(tr.spans[key], span{from: from})
		tr.changes[key]++
		tr.marks[key] = tr.w.state(user, chat)
	}
}

func (tr *truth) removed(chat tidemark.ChatID, user tidemark.UserID, head tidemark.Sequence) {
	key := storage.StateKey{User: user, Chat: chat}
	if !tr.member(user, chat) {
		tr.w.failf("%s was removed from %s without being a member", user, chat)
		return
	}
	spans := tr.spans[key]
	last := &spans[len(spans)-1]
	if last.to = head; last.from > head {
		tr.spans[key] = spans[:len(spans)-1]
	}
	tr.changes[key]++
}

// member reports whether a user is a member now.
func (tr *truth) member(user tidemark.UserID, chat tidemark.ChatID) bool {
	spans := tr.spans[storage.StateKey{User: user, Chat: chat}]
	return len(spans) > 0 && spans[len(spans)-1].to == 0
}

// may reports whether a user may see a message.
func (tr *truth) may(user tidemark.UserID, chat tidemark.ChatID, n tidemark.Sequence) bool {
	for _, s := range tr.spans[storage.StateKey{User: user, Chat: chat}] {
		if n >= s.from && (s.to == 0 || n <= s.to) {
			return true
		}
	}
	return false
}

// appended checks sequence_gapless and send_idempotent after each append.
func (tr *truth) appended(drafts []tidemark.Draft, all []storage.Appended) {
	for i, a := range all {
		d := drafts[i]
		if a.Err != nil {
			continue
		}
		key := fmt.Sprintf("%s %s %s", d.ChatID, d.SenderID, d.ClientMessageID)
		first, known := tr.sent[key]
		switch {
		case known != a.Duplicate:
			tr.w.failf("send_idempotent: append of %s: duplicate is %v, and it was stored "+
				"before: %v", key, a.Duplicate, known)
		case known && first.Sequence != a.Message.Sequence:
			tr.w.failf("send_idempotent: append of %s gives %d, and gave %d before",
				key, a.Message.Sequence, first.Sequence)
		case !known && a.Message.Sequence != tr.heads[d.ChatID]+1:
			tr.w.failf("sequence_gapless: append of %s gives %d after %d",
				key, a.Message.Sequence, tr.heads[d.ChatID])
		case !known && !tr.member(d.SenderID, d.ChatID):
			tr.w.failf("nothing_outside_membership: %s was stored", key)
		case !known && d.Relation != nil && d.Relation.Sequence < tr.floor(d.ChatID):
			tr.w.failf("floor_recorded: %s was stored, and its target %d has expired",
				key, d.Relation.Sequence)
		}
		if !known {
			tr.sent[key] = a.Message
			tr.all[d.ChatID] = append(tr.all[d.ChatID], a.Message)
			tr.heads[d.ChatID] = a.Message.Sequence
			tr.says(&d, &a.Message)
		}
		tr.right(&a.Message, true)
	}
}

// says records what a new message says, or changes.
func (tr *truth) says(d *tidemark.Draft, m *tidemark.Message) {
	key := storage.MessageKey{Chat: m.ChatID, Sequence: m.Sequence}
	if m.Relation == nil {
		tr.at[key], tr.texts[key] = *m, []string{m.Content}
		return
	}
	key.Sequence = m.Relation.Sequence
	if texts := tr.texts[key]; texts[len(texts)-1] != "" {
		tr.texts[key] = append(texts, d.Content)
	}
}

// right checks redacted_stays: a message says what it said once, and if now is set, what it says
// now. The target of a relation does so, too.
func (tr *truth) right(m *tidemark.Message, now bool) {
	if m.Relation != nil {
		if m.Content != "" {
			tr.w.failf("redacted_stays: the relation %d of %s says %q",
				m.Sequence, m.ChatID, m.Content)
		}
		if m = m.Relation.Target; m == nil {
			return
		}
	}
	texts := tr.texts[storage.MessageKey{Chat: m.ChatID, Sequence: m.Sequence}]
	if now && len(texts) > 0 {
		texts = texts[len(texts)-1:]
	}
	if !slices.Contains(texts, m.Content) {
		tr.w.failf("redacted_stays: %s %d says %q, and the truth is %q",
			m.ChatID, m.Sequence, m.Content, texts)
	}
}

// advanced checks watermark_monotonic and watermark_bounded_by_counter after each write.
func (tr *truth) advanced(advances []storage.Advance) {
	for _, a := range advances {
		key := storage.StateKey{User: a.User, Chat: a.Chat}
		now, before := tr.w.state(a.User, a.Chat), tr.marks[key]
		if now.Acked < before.Acked || now.Read < before.Read {
			tr.w.failf("watermark_monotonic: %s in %s went from %d/%d to %d/%d",
				a.User, a.Chat, before.Acked, before.Read, now.Acked, now.Read)
		}
		if head := tr.heads[a.Chat]; now.Acked > head || now.Read > head {
			tr.w.failf("watermark_bounded_by_counter: %s in %s is at %d/%d, and the head is %d",
				a.User, a.Chat, now.Acked, now.Read, head)
		}
		if now.Acked > before.Acked && before.Acked+1 < a.AckedFrom {
			tr.w.failf("ack_cumulative: %s in %s went from %d to %d by writing %d",
				a.User, a.Chat, before.Acked, now.Acked, a.AckedFrom)
		}
		tr.marks[key] = now
	}
}

// observed checks that a node learns only of messages that exist.
func (tr *truth) observed(m *tidemark.Message) {
	if head := tr.w.head(m.ChatID); m.Sequence > head {
		tr.w.failf("watermark_bounded_by_counter: a node learned of message %d of %s, and the "+
			"head is %d", m.Sequence, m.ChatID, head)
	}
}

// stored checks the whole store. The messages of each chat are exactly floor..head, each key exists
// once, unread counts are exact, and all confirmed messages exist that have not expired.
func (tr *truth) stored() {
	w := tr.w
	for _, chat := range w.chats {
		if tr.deleted[chat] {
			tr.isGone(chat)
			continue
		}
		floor := tr.floor(chat)
		pages, err := w.raw.Ranges(context.Background(),
			[]storage.Range{{Chat: chat, Limit: 10_000}})
		if err != nil {
			w.failf("Ranges: %v", err)
			return
		}
		keys := map[string]bool{}
		for i, m := range pages[0] {
			if m.Sequence != floor+tidemark.Sequence(i) {
				w.failf("sequence_gapless: message %d of %s from %d on is %d",
					i+1, chat, floor, m.Sequence)
			}
			key := fmt.Sprintf("%s %s", m.SenderID, m.ClientMessageID)
			if keys[key] {
				w.failf("send_idempotent: %s is twice in %s", key, chat)
			}
			keys[key] = true
			tr.right(&m, true)
		}
		if head := w.head(chat); head+1 != floor+tidemark.Sequence(len(pages[0])) {
			w.failf("sequence_gapless: %s has %d messages from %d on, and its head is %d",
				chat, len(pages[0]), floor, head)
		}
		for _, user := range w.users {
			tr.counted(user, chat)
		}
	}
	for _, l := range w.outbox {
		if m, there := tr.sent[l.key()]; l.sequence >= tr.floor(l.chat) &&
			(!there || m.Sequence != l.sequence || m.Relation == nil && m.Content != l.content) {
			w.failf("confirmed_is_durable: %s was confirmed as %d, and is %d",
				l.key(), l.sequence, m.Sequence)
		}
	}
}

// state returns the stored delivery state.
func (w *simulation) state(user tidemark.UserID, chat tidemark.ChatID) tidemark.DeliveryState {
	states, err := w.raw.States(context.Background(), []storage.StateKey{{User: user, Chat: chat}})
	if err != nil {
		w.failf("States: %v", err)
		return tidemark.DeliveryState{}
	}
	return states[0]
}

func (w *simulation) head(chat tidemark.ChatID) tidemark.Sequence {
	heads, err := w.raw.Heads(context.Background(), []tidemark.ChatID{chat})
	if err != nil {
		w.failf("Heads: %v", err)
		return 0
	}
	return heads[0]
}

// rows returns the pending rows of a user.
func (w *simulation) rows(user tidemark.UserID) []tidemark.PendingDelivery {
	rows, _, err := w.raw.PendingOf(context.Background(), user, "", 1000)
	if err != nil {
		w.failf("PendingOf: %v", err)
	}
	var flat []tidemark.PendingDelivery
	for _, row := range rows {
		flat = append(flat, row.PendingDelivery)
	}
	return flat
}
