package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/pagetoken"
	"github.com/tidemark-im/tidemark/storage"
)

// Ack raises the caller's own watermarks in one chat. A field that is 0 leaves its watermark
// unchanged. An Ack with both fields 0 is Invalid.
type Ack struct {
	Chat  tidemark.ChatID
	Acked tidemark.Sequence
	Read  tidemark.Sequence
	// Incarnation is that of the data from which the client has the messages. Empty means the
	// present one. Any other is an InvalidSequence.
	Incarnation tidemark.Incarnation
}

// AckResult is the outcome of one Ack.
type AckResult struct {
	State tidemark.DeliveryState
	// Err is NotFound, NotMember, Invalid or InvalidSequence. State is then empty.
	Err error
}

// maxTimes is how often one call may name the same chat: each time is a write of its own.
const maxTimes = 10

// Acknowledge raises the user's watermarks and returns them as stored, which may be higher. Each
// item succeeds or fails alone. The effects are durable when Acknowledge returns nil.
//
// Errors: Invalid (a chat is named more than maxTimes, nothing was done), Unavailable (repeat the
// call).
func (s *Server) Acknowledge(
	ctx context.Context, user tidemark.UserID, acks []Ack,
) ([]AckResult, error) {
	if err := s.calls.begin(); err != nil {
		return nil, err
	}
	defer s.calls.end()
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	s.receipts.Count.Acks.Add(int64(len(acks)))
	results := make([]AckResult, len(acks))
	chats := make([]tidemark.ChatID, len(acks))
	times := make(map[tidemark.ChatID]int, len(acks))
	for i, ack := range acks {
		chats[i] = ack.Chat
		if times[ack.Chat]++; times[ack.Chat] > maxTimes {
			return nil, tidemark.BadParam(tidemark.Invalid,
				"chats", "names %s more than %d times; its highest sequences are enough",
				ack.Chat, maxTimes)
		}
	}
	verdicts, err := s.chats.Memberships(ctx, keysOf(user, chats))
	if err != nil {
		return nil, err
	}
	// Storage takes each chat once: a chat that is named again is written in a later round.
	round := make([]int, len(acks))
	for i := range round {
		round[i] = i
	}
	for len(round) > 0 {
		var now, later []int
		named := make(map[tidemark.ChatID]bool, len(round))
		for _, i := range round {
			switch err := s.checkAck(acks[i], verdicts[i]); {
			case err != nil:
				results[i].Err = err
			case named[acks[i].Chat]:
				later = append(later, i)
			default:
				named[acks[i].Chat] = true
				now = append(now, i)
			}
		}
		if err := s.acknowledge(ctx, user, acks, now, results); err != nil {
			return nil, err
		}
		round = later
	}
	return results, nil
}

// acknowledge writes the acks at the given indexes and sets their results. No two of them name the
// same chat.
func (s *Server) acknowledge(
	ctx context.Context, user tidemark.UserID, acks []Ack, at []int, results []AckResult,
) error {
	advances := make([]storage.Advance, len(at))
	now := s.now()
	for i, j := range at {
		advances[i] = storage.Advance{
			User:  user,
			Chat:  acks[j].Chat,
			Now:   now,
			Raise: tidemark.Raise{Acked: acks[j].Acked, Read: acks[j].Read},
		}
	}
	advanced, err := s.receipts.Advance(ctx, advances)
	if err != nil {
		return err
	}
	for i, done := range advanced {
		results[at[i]] = AckResult{
			State: done.State, Err: concealed(Caller{User: user}, acks[at[i]].Chat, done.Err),
		}
	}
	return nil
}

func (s *Server) checkAck(ack Ack, member error) error {
	if err := tidemark.CheckID("chat_id", ack.Chat); err != nil {
		return err
	}
	if ack.Acked == 0 && ack.Read == 0 {
		return tidemark.Errorf(tidemark.Invalid,
			"name last_acked_sequence, last_read_sequence, or both")
	}
	//rule:nothing_outside_membership.stranger-may-not-acknowledge
	if member != nil {
		return member
	}
	return s.present(ack)
}

// present returns InvalidSequence if an acknowledgement is of another incarnation than the data.
// Its messages may be others than those that have their sequences now.
func (s *Server) present(ack Ack) error {
	//rule:restore_is_noticed.foreign-acknowledgement-is-refused
	if ack.Incarnation != "" && ack.Incarnation != s.host.Incarnation {
		return tidemark.BadParam(tidemark.InvalidSequence, "incarnation",
			"is not the present one of the data; send your cursors by sync first")
	}
	return nil
}

// StatePage is a page of delivery states, ordered by chat id. NextCursor is empty on the last page.
type StatePage struct {
	States     []tidemark.DeliveryState
	NextCursor string
}

// DeliveryState returns the caller's own raw watermarks in one chat. Errors: NotFound, NotMember.
func (s *Server) DeliveryState(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (tidemark.DeliveryState, error) {
	//rule:delivery_query_authorization.state-for-members-only
	if _, _, err := s.chats.Member(ctx, user, chat); err != nil {
		return tidemark.DeliveryState{}, err
	}
	states, err := s.storage.States(ctx, []storage.StateKey{{User: user, Chat: chat}})
	if err != nil {
		return tidemark.DeliveryState{}, err
	}
	return states[0], nil
}

// DeliveryStates returns a page of the caller's own raw watermarks in their chats. It leaves out
// chats in which both are still 0. limit is at least 1.
func (s *Server) DeliveryStates(
	ctx context.Context, user tidemark.UserID, limit int, cursor string,
) (StatePage, error) {
	after, err := pagetoken.DecodeID[tidemark.ChatID](pagetoken.States, cursor)
	if err != nil {
		return StatePage{}, err
	}
	states, more, err := s.storage.StatesOf(ctx, user, after, limit)
	if err != nil {
		return StatePage{}, err
	}
	page := StatePage{States: states}
	if more && len(states) > 0 {
		page.NextCursor = pagetoken.Encode(pagetoken.States, string(states[len(states)-1].ChatID))
	}
	return page, nil
}

// DeliveryStatusRequest asks which members have a chat's messages.
type DeliveryStatusRequest struct {
	Chat tidemark.ChatID
	// ForSequence is the sequence to ask about; nil means the head.
	ForSequence *tidemark.Sequence
	// Limit bounds the members of a page. It is at least 1.
	Limit  int
	Cursor string
}

// DeliveryStatus answers a DeliveryStatusRequest (ADR-008 Appendix F.1).
type DeliveryStatus struct {
	Chat     tidemark.Chat
	Sequence tidemark.Sequence
	// Summary counts all current members. The author of the message counts as a reader once their
	// acknowledged watermark has reached it (ADR-008 Appendix E,
	// group_delivered_requires_all_members).
	Summary storage.Summary
	// Members are a page of the members as the caller's user sees them
	// (tidemark.DeliveryState.ShownTo), ordered by user id. If the user hides what they read,
	// Summary counts no reader.
	Members    []tidemark.DeliveryState
	NextCursor string
}

// DeliveryStatus returns which members have received and read a chat's messages. Members may ask,
// and backends without a user. The answer may lag behind acknowledgements that are not written yet.
//
// Errors: NotFound, NotMember, InvalidSequence (0, or above the head).
func (s *Server) DeliveryStatus(
	ctx context.Context, c Caller, r DeliveryStatusRequest,
) (DeliveryStatus, error) {
	after, err := pagetoken.DecodeID[tidemark.UserID](pagetoken.Members, r.Cursor)
	if err != nil {
		return DeliveryStatus{}, err
	}
	roster, err := s.rosterFor(ctx, c, r.Chat)
	//rule:delivery_query_authorization.status-for-members-only
	if err != nil {
		return DeliveryStatus{}, err
	}
	chat, err := s.storage.Chat(ctx, r.Chat)
	if err != nil {
		return DeliveryStatus{}, err
	}
	status := DeliveryStatus{Chat: chat, Sequence: chat.Head}
	if r.ForSequence != nil {
		//rule:delivered_implies_persisted.status-of-stored-messages-only
		if status.Sequence = *r.ForSequence; status.Sequence == 0 || status.Sequence > chat.Head {
			return DeliveryStatus{}, tidemark.BadParam(tidemark.InvalidSequence,
				"for_sequence", "is %d, but the chat's messages are 1 to %d",
				status.Sequence, chat.Head)
		}
	}
	author, err := s.authorOf(ctx, r.Chat, status.Sequence)
	if err != nil {
		return DeliveryStatus{}, err
	}
	if chat.State.Closed() && !c.noUser() {
		return s.closedStatus(ctx, c.User, status, roster.Users, author, after, r.Limit)
	}
	if chat.Type == tidemark.Direct && r.Cursor == "" && r.Limit >= len(roster.Users) {
		return s.directStatus(ctx, c, status, roster.Users, author)
	}
	status.Summary, err = s.storage.Summary(ctx, r.Chat, status.Sequence, author)
	if err != nil {
		return DeliveryStatus{}, err
	}
	members, more, err := s.storage.StatesIn(ctx, r.Chat, after, r.Limit)
	if err != nil {
		return DeliveryStatus{}, err
	}
	var own tidemark.DeliveryState
	if !c.noUser() {
		states, err := s.storage.States(ctx, []storage.StateKey{{User: c.User, Chat: r.Chat}})
		if err != nil {
			return DeliveryStatus{}, err
		}
		own = states[0]
	}
	status.showTo(own, members)
	if more && len(members) > 0 {
		status.NextCursor = pagetoken.Encode(pagetoken.Members,
			string(members[len(members)-1].UserID))
	}
	return status, nil
}

// directStatus reads the states of a direct chat's members at once. The members never change, so
// their ids may come from memory.
func (s *Server) directStatus(
	ctx context.Context, c Caller, status DeliveryStatus, users []tidemark.UserID,
	author tidemark.UserID,
) (DeliveryStatus, error) {
	keys := make([]storage.StateKey, len(users))
	for i, user := range users {
		keys[i] = storage.StateKey{User: user, Chat: status.Chat.ID}
	}
	states, err := s.storage.States(ctx, keys)
	if err != nil {
		return DeliveryStatus{}, err
	}
	var own tidemark.DeliveryState
	for _, state := range states {
		status.Summary.Count(state, status.Sequence, author)
		if state.UserID == c.User {
			own = state
		}
	}
	status.showTo(own, states)
	return status, nil
}

// showTo sets the members as a user sees them whose own state is given.
func (d *DeliveryStatus) showTo(own tidemark.DeliveryState, states []tidemark.DeliveryState) {
	d.Members = make([]tidemark.DeliveryState, len(states))
	for i, state := range states {
		//rule:shown_within_real.status-of-what-is-shown
		d.Members[i] = state.ShownTo(own)
	}
	//rule:shown_within_real.summary-to-who-hides
	if own.Hides {
		d.Summary.Read = 0
	}
}

// authorOf returns the author of a message, or "" if there is no such message.
func (s *Server) authorOf(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
) (tidemark.UserID, error) {
	if sequence == 0 {
		return "", nil
	}
	messages, err := s.messages(ctx, storage.Range{Chat: chat, After: sequence - 1, Limit: 1})
	if err != nil || len(messages) == 0 {
		return "", err
	}
	return messages[0].SenderID, nil
}
