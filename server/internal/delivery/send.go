package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/tracing"
)

// An append whose outcome is unknown is attempted appendAttempts times. The first pause is
// appendPause, and each is twice as long as the one before.
const (
	appendAttempts = 4
	appendPause    = 100 * time.Millisecond
)

// lookupUsers is how many users one look-up covers. The messages of one batch may exceed it by one
// roster.
const lookupUsers = 4096

// Result is the outcome of one draft.
type Result struct {
	Message tidemark.Message
	// Duplicate says that an earlier send with the same key stored the message.
	Duplicate bool
	Err       error
}

// message is a stored message that is being handed over, in three steps. address selects the users,
// notify publishes to their nodes, and markMissed marks the others.
type message struct {
	draft  tidemark.Draft
	stored *tidemark.Message
	// encoded is the JSON of stored, which all readers share.
	encoded []byte
	// version is the least membership version that the roster may have.
	version uint64
	// rows is storage.Appended.RowsVersion, or 0.
	rows      uint64
	duplicate bool
	// to says which members get the message.
	to recipients
	// late says that members may have found and acknowledged the message meanwhile.
	late bool
	// covered says that the author needs no row: their watermark will rise over the message by
	// itself, or the node that took the send sees to it.
	covered bool
	addressed
	// trace is the span under which the message is published, or zero.
	trace tracing.Context
	err   error
}

// addressed has who gets a message.
type addressed struct {
	// roster is the chat's roster. users are the members who get the message, and leases their
	// leases. first is the index of their first lease in the look-up.
	roster *chat.Roster
	users  []tidemark.UserID
	// standing has the members whose rows stood before the look-up (R_STANDS).
	standing chat.Members
	leases   [][]registry.Lease
	first    int
}

// recipients are those who get a message by a hand-over.
type recipients int

const (
	// toAll are all members.
	toAll recipients = iota
	// toBehind are the members who have not acknowledged the message.
	toBehind
	// toAuthor is its author only.
	toAuthor
)

// Send stores complete drafts and hands the messages over. Drafts of one chat are stored in order,
// in one atomic step; each is accepted or refused alone. Send completes even if ctx is cancelled,
// because a stored message must be handed over.
//
// Errors: those of storage.Append. After Unavailable the outcome may be unknown. Sending the same
// draft again resolves it and yields one message.
func (d *Delivery) Send(ctx context.Context, drafts []tidemark.Draft) []Result {
	ctx, cancel := Detach(ctx)
	defer cancel()
	traces := d.Traces.Begin(ctx, len(drafts))
	results := make([]Result, len(drafts))
	//rule:R_LATER.ask-before-storing
	later := d.later()
	term := d.Chats.Term()
	appended, err := d.append(traces.Storing(ctx), drafts)
	stored := make([]message, 0, len(drafts))
	at := make([]int, 0, len(drafts))
	for i := range drafts {
		if err != nil {
			results[i].Err = err
			//rule:pending_or_delivered.retry-unknown-send
			d.Retry.Send(drafts[i])
			traces.Refused(i, err)
			continue
		}
		if results[i].Err = appended[i].Err; appended[i].Err != nil {
			traces.Refused(i, appended[i].Err)
			continue
		}
		m := d.stored(drafts[i], appended[i], term)
		m.trace = traces.Stored(i, m.stored, m.duplicate)
		stored, at = append(stored, m), append(at, i)
	}
	d.wipe(ctx, stored)
	//rule:R_LATER.ask-after-storing
	if later && d.later() {
		d.handOverHere(ctx, stored)
	} else {
		d.handOver(ctx, stored)
	}
	for j, i := range at {
		results[i] = stored[j].result()
		traces.HandedOver(i, len(stored[j].users), stored[j].online(), stored[j].err)
	}
	return results
}

// online returns how many of the users who get the message have a session.
func (m *message) online() (n int) {
	for _, leases := range m.leases {
		if len(leases) > 0 {
			n++
		}
	}
	return n
}

// append stores drafts. If the outcome is unknown, it repeats the call with the same idempotency
// keys.
func (d *Delivery) append(
	ctx context.Context, drafts []tidemark.Draft,
) (appended []storage.Appended, err error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	for attempt := 1; ; attempt++ {
		appended, err = d.Storage.Append(ctx, drafts)
		//rule:send_idempotent.retry-same-key
		if tidemark.CodeOf(err) != tidemark.Unavailable || attempt == appendAttempts {
			return appended, err
		}
		d.Count.StorageErrors.Add(1)
		if !signal.Pause(ctx, appendPause<<(attempt-1)) {
			return appended, err
		}
	}
}

// stored puts a stored message into the chat cache and returns it for the handover. term is that in
// which the first attempt to store it began, or chat.NoTerm.
func (d *Delivery) stored(
	draft tidemark.Draft, appended storage.Appended, term chat.Term,
) message {
	//rule:send_idempotent.own-attempt-is-no-duplicate
	if appended.Message.MessageID == draft.MessageID {
		// An earlier attempt of this send stored it, and its answer was lost.
		appended.Duplicate = false
	}
	d.Count.Sends.Add(1)
	if appended.Duplicate {
		d.Count.Duplicates.Add(1)
	}
	m := message{
		draft: draft, stored: &appended.Message, encoded: appended.Message.AppendJSON(nil),
		version: appended.Version, rows: appended.RowsVersion, duplicate: appended.Duplicate,
	}
	//rule:send_idempotent.duplicate-goes-to-unacknowledged
	if m.duplicate {
		// Sessions of members who acknowledged it would rewind and send everything after it again.
		m.to = toBehind
	}
	if !appended.Duplicate {
		d.Chats.Stored(d.Chats.Chat(draft.ChatID), m.stored, m.encoded, term)
		if !draft.ByServer {
			m.covered = d.Acks.Authored(
				draft.SenderID, draft.ChatID, m.stored.Sequence, draft.Seen)
		}
	}
	return m
}

// result returns the outcome for the sender.
func (m *message) result() Result {
	if m.err != nil {
		return Result{Err: tidemark.Wrap(tidemark.Unavailable, m.err,
			"the message is stored but not handed over yet; send it again with the same "+
				"client_message_id")}
	}
	return Result{Message: *m.stored, Duplicate: m.duplicate}
}

// handOver notifies the online members of stored messages, in order, and marks the others. A
// message that fails is sent again by the retry queue.
func (d *Delivery) handOver(ctx context.Context, all []message) {
	d.tryHandOver(ctx, all)
	for i := range all {
		if all[i].err != nil {
			//rule:pending_or_delivered.retry-hand-over
			d.Retry.Send(all[i].draft)
		}
	}
}

// tryHandOver is handOver without the retry queue. It sets the errors of the messages.
func (d *Delivery) tryHandOver(ctx context.Context, all []message) {
	for rest := all; len(rest) > 0; {
		rest = rest[d.handOverSome(ctx, rest):]
	}
}

// handOverSome hands over the first messages, at least one, with one look-up of about lookupUsers
// users. It returns how many.
func (d *Delivery) handOverSome(ctx context.Context, all []message) (done int) {
	var users []tidemark.UserID
	at := make(map[*chat.Roster]int, 1) // index of a roster's first user
	//rule:few_round_trips.look-up-together
	for done < len(all) && len(users) < lookupUsers {
		m := &all[done]
		done++
		m.err = d.address(ctx, m)
		first, asked := at[m.roster]
		if !asked || m.to != toAll {
			first, users = len(users), append(users, m.users...)
		}
		if m.first = first; m.to == toAll && m.err == nil {
			at[m.roster] = first
		}
	}
	leases, certain := d.Leases.Lookup(ctx, users)
	notices := make([]notice, 0, done)
	for i := range all[:done] {
		m := &all[i]
		m.leases = leases[m.first:][:len(m.users)]
		notices = append(notices, notice{to: m.leases, Notification: m.notification()})
	}
	d.notify(ctx, notices)
	for i := range all[:done] {
		if m := &all[i]; m.err == nil {
			m.err = d.markMissed(ctx, m, certain, &notices[i])
		}
	}
	return done
}

// notification returns what the sessions get of a message.
func (m *message) notification() bus.Notification {
	n := bus.Notification{
		Chat: m.draft.ChatID, Sequence: m.stored.Sequence, Trace: m.trace,
		Relation: m.stored.Kind.Revises(),
	}
	kind := m.stored.Kind
	// Edits, redactions and messages of the kind control go without content: a node of an older
	// program would take them for plain messages.
	//rule:R_WIPE.send-no-changing-message
	if (kind.Shown() || kind.Annotates()) && m.stored.Revision == nil {
		n.Message, n.Encoded = m.stored, m.encoded
	}
	return n
}

// address selects the users who get a message.
func (d *Delivery) address(ctx context.Context, m *message) error {
	//rule:pending_or_delivered.hand-over-by-current-roster
	roster, err := d.Chats.Roster(ctx, m.draft.ChatID, m.version)
	if err != nil {
		return err
	}
	m.roster, m.users = roster, roster.Users
	switch m.to {
	case toBehind:
		//rule:send_idempotent.hand-over-duplicate
		m.users, err = d.unacknowledged(ctx, m, roster.Users)
	case toAuthor:
		m.users = slices.DeleteFunc(slices.Clone(m.users), func(user tidemark.UserID) bool {
			return user != m.stored.SenderID
		})
	case toAll:
		m.standing = roster.Standing(m.rows, m.stored.Sequence)
	}
	return err
}

// unacknowledged returns the users whose watermark is below the message.
func (d *Delivery) unacknowledged(
	ctx context.Context, m *message, users []tidemark.UserID,
) ([]tidemark.UserID, error) {
	keys := make([]storage.StateKey, len(users))
	for i, user := range users {
		keys[i] = storage.StateKey{User: user, Chat: m.draft.ChatID}
	}
	states, err := d.Storage.States(ctx, keys)
	if err != nil {
		return nil, err
	}
	var behind []tidemark.UserID
	for i, st := range states {
		if st.Acked < m.stored.Sequence {
			behind = append(behind, users[i])
		}
	}
	return behind, nil
}

// markMissed marks the members who have no session, and those whom a notice did not reach
// (R_NOBODY). It leaves out the members whose rows are known to stand (R_STANDS): a session that
// opened since the look-up found those rows. certain says that all leases were known.
func (d *Delivery) markMissed(ctx context.Context, m *message, certain bool, n *notice) error {
	sequence := m.stored.Sequence
	// Members with a session here may have other devices on other nodes.
	//rule:R_RELOOK.look-for-devices-elsewhere
	if !certain {
		d.Retry.Notify(rowsFor(m.users, m.draft.ChatID, sequence))
	}
	d.rememberAuthor(m)
	// Every open reads the heads of large chats, so only live sessions have to be notified.
	//rule:pending_once.no-rows-in-large-chats
	if m.roster.Large {
		//rule:R_NOBODY.retry-missed-in-large-chats
		d.Retry.Notify(n.unknown)
		return nil
	}
	var absent []tidemark.UserID
	var marked []int // of m.users
	for i, user := range m.users {
		//rule:R_NOBODY.mark-absent-members
		if len(m.leases[i]) > 0 || (m.covered && user == m.stored.SenderID) {
			continue
		}
		if m.standing.Has(i) {
			d.Count.MarksKnown.Add(1)
			continue
		}
		absent, marked = append(absent, user), append(marked, i)
	}
	//rule:R_LATER.no-rows-for-who-has-it
	if m.late && len(absent) > 0 {
		var err error
		if absent, err = d.unacknowledged(ctx, m, absent); err != nil {
			return err
		}
	}
	rows := rowsFor(absent, m.draft.ChatID, sequence)
	//rule:R_NOBODY.mark-missed-members
	if err := d.Mark(ctx, append(rows, n.missed...)); err != nil {
		return err
	}
	//rule:R_STANDS.use-and-remember
	if m.to == toAll && len(absent) == len(marked) {
		m.roster.Stood(m.rows, sequence, marked)
	}
	return nil
}

// rememberAuthor records the chat for an author without a session, to whom no row names it.
func (d *Delivery) rememberAuthor(m *message) {
	for i, user := range m.users {
		//rule:delivered_is_eventually_consistent.add-chat-of-absent-author
		if user == m.stored.SenderID && len(m.leases[i]) == 0 {
			d.Latest.Add(user, m.draft.ChatID)
		}
	}
}

// rowsFor returns a row for each user.
func rowsFor(
	users []tidemark.UserID, chat tidemark.ChatID, first tidemark.Sequence,
) []tidemark.PendingDelivery {
	rows := make([]tidemark.PendingDelivery, len(users))
	for i, user := range users {
		rows[i] = tidemark.PendingDelivery{UserID: user, ChatID: chat, FirstUndelivered: first}
	}
	return rows
}
