package wire

import (
	"cmp"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// AppendChat appends a chat as one member sees it. For a backend without a user, the fields that
// belong to a user are null. Only a backend sees whether the chat is on hold.
func AppendChat(b []byte, c *server.ChatView, backend bool) []byte {
	b = append(b, `{"chat_id":`...)
	b = tidemark.AppendString(b, string(c.ID))
	b = append(b, `,"type":`...)
	b = tidemark.AppendString(b, string(c.Type))
	b = append(b, `,"name":`...)
	b = tidemark.AppendString(b, c.Name)
	b = append(b, `,"metadata":`...)
	b = tidemark.AppendObject(b, c.Metadata)
	b = append(b, `,"version":`...)
	b = strconv.AppendUint(b, c.Chat.Version, 10)
	b = append(b, `,"history":`...)
	b = tidemark.AppendString(b, string(c.History))
	b = append(b, `,"created_at":`...)
	b = tidemark.AppendTime(b, c.CreatedAt)
	b = append(b, `,"role":`...)
	b = appendOrNull(b, string(c.Role))
	b = append(b, `,"member_count":`...)
	b = strconv.AppendInt(b, int64(c.MemberCount), 10)
	b = append(b, `,"head_sequence":`...)
	b = strconv.AppendUint(b, uint64(c.Head), 10)
	b = append(b, `,"floor_sequence":`...)
	b = strconv.AppendUint(b, uint64(c.Floor), 10)
	b = appendPolicy(b, c.Policy, backend)
	//rule:blocked_is_closed.say-closed-and-not-by-whom
	b = strconv.AppendBool(append(b, `,"closed":`...), c.Chat.State.Closed())
	if c.State.UserID == "" {
		b = append(b, `,"last_acked_sequence":null,"last_read_sequence":null,"unread_count":null,`+
			`"mention_count":null`...)
	} else {
		b = appendWatermarks(b, c.State.Acked, c.State.Read)
		//rule:bounded_input.documented-fields
		b = append(b, `,"unread_count":`...)
		b = strconv.AppendInt(b, c.Unread.Messages, 10)
		b = append(b, `,"mention_count":`...)
		b = strconv.AppendInt(b, c.Unread.Mentions, 10)
	}
	b = append(b, `,"unread_from_sequence":`...)
	b = appendSequence(b, c.State.UnreadFrom)
	b = append(b, `,"peer":`...)
	if c.Peer == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"user_id":`...)
		b = tidemark.AppendString(b, string(c.Peer.UserID))
		exposed := c.Peer.Exposed()
		b = append(appendWatermarks(b, exposed.Acked, exposed.Read), '}')
	}
	b = append(b, `,"last_message":`...)
	if c.Last == nil {
		b = append(b, "null"...)
	} else {
		b = c.Last.AppendJSON(b)
	}
	return append(b, '}')
}

// appendPolicy appends for how long a chat is kept, and who sees what is read there. Whether it is
// on hold is null for all but backends.
func appendPolicy(b []byte, p tidemark.Policy, backend bool) []byte {
	b = append(b, `,"read_receipts":`...)
	b = tidemark.AppendString(b, receiptsName(p.Receipts))
	b = append(b, `,"keep_days":`...)
	if p.KeepDays != 0 {
		b = strconv.AppendInt(b, int64(p.KeepDays), 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"hold":`...)
	//rule:caller_does_only_what_they_may.backends-see-holds
	if !backend {
		return append(b, "null"...)
	}
	return strconv.AppendBool(b, p.Hold)
}

// optional is the name of tidemark.ReceiptsOptional in requests and answers.
const optional = "optional"

// receiptsName returns the name of a policy of receipts.
func receiptsName(p tidemark.ReceiptsPolicy) string { return cmp.Or(string(p), optional) }

// appendOrNull appends a string, or null if it is empty.
func appendOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return tidemark.AppendString(b, s)
}

// appendSequence appends a sequence, or null if it is 0.
func appendSequence(b []byte, n tidemark.Sequence) []byte {
	if n == 0 {
		return append(b, "null"...)
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

// AppendUnread appends what is unread in a chat.
func AppendUnread(b []byte, u server.ChatUnread) []byte {
	b = append(b, `{"chat_id":`...)
	b = tidemark.AppendString(b, string(u.State.ChatID))
	b = append(b, `,"unread_from_sequence":`...)
	b = appendSequence(b, u.State.UnreadFrom)
	b = append(b, `,"unread_count":`...)
	b = strconv.AppendInt(b, u.Unread.Messages, 10)
	b = append(b, `,"mention_count":`...)
	return append(strconv.AppendInt(b, u.Unread.Mentions, 10), '}')
}

// AppendUnreadTotal appends what is unread in all chats.
func AppendUnreadTotal(b []byte, t server.UnreadTotal) []byte {
	b = append(b, `{"unread_count":`...)
	b = strconv.AppendInt(b, t.Messages, 10)
	b = append(b, `,"mention_count":`...)
	b = strconv.AppendInt(b, t.Mentions, 10)
	b = append(b, `,"chats_with_unread":`...)
	return append(strconv.AppendInt(b, t.Chats, 10), '}')
}

// AppendChats appends a page of chats.
func AppendChats(b []byte, p server.ChatPage, backend bool) []byte {
	b = append(b, `{"chats":[`...)
	for i := range p.Chats {
		b = comma(b, i)
		b = AppendChat(b, &p.Chats[i], backend)
	}
	return appendPage(b, p.NextCursor)
}

// AppendMembers appends a page of members.
func AppendMembers(b []byte, p server.MemberPage) []byte {
	b = append(b, `{"members_version":`...)
	b = strconv.AppendUint(b, p.Version, 10)
	b = append(b, `,"members":[`...)
	for i, m := range p.Members {
		b = appendMember(comma(b, i), m)
	}
	return appendPage(b, p.NextCursor)
}

// AppendUpdatedMember appends a member with the version of the membership.
func AppendUpdatedMember(b []byte, v server.MemberView) []byte {
	b = append(b, `{"members_version":`...)
	b = strconv.AppendUint(b, v.Version, 10)
	b = append(b, `,"member":`...)
	return append(appendMember(b, v.Member), '}')
}

func appendMember(b []byte, m tidemark.Member) []byte {
	b = append(b, `{"user_id":`...)
	b = tidemark.AppendString(b, string(m.UserID))
	b = append(b, `,"role":`...)
	b = tidemark.AppendString(b, string(m.Role))
	b = append(b, `,"joined_at":`...)
	b = tidemark.AppendTime(b, m.JoinedAt)
	b = append(b, `,"metadata":`...)
	if m.Metadata == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, m.Metadata...)
	}
	return append(b, '}')
}

// AppendHistory appends a page of messages, and their reactions unless r is nil. Its next_cursor is
// the after_sequence or before_sequence of the next page. It is a string, as in every list.
func AppendHistory(b []byte, h server.History, r *server.Reactions) []byte {
	b = append(b, `{"messages":[`...)
	for i := range h.Messages {
		b = h.Messages[i].AppendJSON(comma(b, i))
		b = append(b[:len(b)-1], `,"reactions":`...) // one more field of the message
		if r == nil {
			b = append(b, "null"...)
		} else {
			b = appendCounts(b, r.Of[i])
		}
		b = append(b, '}')
	}
	b = append(b, `],"gaps":`...)
	b = appendGaps(b, h.Gaps)
	through := tidemark.Sequence(0)
	if r != nil {
		through = r.Through
	}
	b = append(b, `,"reactions_through_sequence":`...)
	b = appendSequence(b, through)
	b = append(b, `,"pagination":{"has_more":`...)
	b = strconv.AppendBool(b, h.HasMore)
	b = append(b, `,"next_cursor":`...)
	if h.HasMore {
		b = append(b, '"')
		b = strconv.AppendUint(b, uint64(h.Next), 10)
		b = append(b, '"')
	} else {
		b = append(b, "null"...)
	}
	return append(b, '}', '}')
}

// appendCounts appends the reactions to a message.
func appendCounts(b []byte, counts []server.ReactionCount) []byte {
	b = append(b, '[')
	for i, one := range counts {
		b = append(comma(b, i), `{"emoji":`...)
		b = tidemark.AppendString(b, one.Emoji)
		b = append(b, `,"count":`...)
		b = strconv.AppendInt(b, one.Count, 10)
		b = append(b, `,"own_sequence":`...)
		b = append(appendSequence(b, one.Own), '}')
	}
	return append(b, ']')
}

// AppendReactions appends a page of the reactions to a message.
func AppendReactions(b []byte, p server.ReactionPage) []byte {
	b = append(b, `{"reactions":[`...)
	for i, one := range p.Reactions {
		b = append(comma(b, i), `{"user_id":`...)
		b = tidemark.AppendString(b, string(one.User))
		b = append(b, `,"emoji":`...)
		b = tidemark.AppendString(b, one.Emoji)
		b = append(b, `,"sequence":`...)
		b = strconv.AppendUint(b, uint64(one.Sequence), 10)
		b = append(b, `,"reacted_at":`...)
		b = append(tidemark.AppendTime(b, one.At), '}')
	}
	return appendPage(b, p.NextCursor)
}

// AppendPins appends the pins of a chat.
func AppendPins(b []byte, pins []server.Pin) []byte {
	b = append(b, `{"pins":[`...)
	for i := range pins {
		one := &pins[i]
		b = append(comma(b, i), `{"pin_sequence":`...)
		b = strconv.AppendUint(b, uint64(one.Sequence), 10)
		b = append(b, `,"pinned_by":`...)
		b = tidemark.AppendString(b, string(one.By))
		b = append(b, `,"pinned_at":`...)
		b = tidemark.AppendTime(b, one.At)
		b = append(b, `,"message":`...)
		if one.Message == nil {
			b = append(b, "null}"...)
			continue
		}
		b = append(one.Message.AppendJSON(b), '}')
	}
	return appendPage(b, "")
}

// AppendState appends the caller's own delivery state, with the watermarks as they are stored
// (ADR-008 Appendix F.2).
func AppendState(b []byte, s tidemark.DeliveryState) []byte {
	b = append(b, `{"chat_id":`...)
	b = tidemark.AppendString(b, string(s.ChatID))
	b = append(b, `,"user_id":`...)
	b = tidemark.AppendString(b, string(s.UserID))
	b = appendWatermarks(b, s.Acked, s.Read)
	b = append(b, `,"updated_at":`...)
	b = tidemark.AppendTime(b, s.UpdatedAt())
	return append(b, '}')
}

// AppendStates appends a page of the caller's delivery states.
func AppendStates(b []byte, p server.StatePage) []byte {
	b = append(b, `{"states":[`...)
	for i, s := range p.States {
		b = comma(b, i)
		b = AppendState(b, s)
	}
	return appendPage(b, p.NextCursor)
}

// AppendAckResults appends the answer to POST /acks, in the order of the request. Each entry has
// the chat and either its state or a problem; the other one is null. The slices must be equally
// long.
func AppendAckResults(b []byte, acks []AckItem, results []server.AckResult) []byte {
	b = append(b, `{"results":[`...)
	for i, r := range results {
		b = comma(b, i)
		b = append(b, `{"chat_id":`...)
		b = tidemark.AppendString(b, string(acks[i].Chat))
		b = append(b, `,"state":`...)
		if r.Err == nil {
			b = AppendState(b, r.State)
			b = append(b, `,"problem":null}`...)
			continue
		}
		b = append(b, `null,"problem":`...)
		b = ProblemOf(r.Err).AppendJSON(b)
		b = append(b, '}')
	}
	return append(b, ']', '}')
}

// AppendStatuses appends the answer to GET /statuses. Each entry has the chat, its updates, and a
// problem or null.
func AppendStatuses(b []byte, all []server.ChatStatuses) []byte {
	b = append(b, `{"results":[`...)
	for i, c := range all {
		b = comma(b, i)
		b = append(b, `{"chat_id":`...)
		b = tidemark.AppendString(b, string(c.Chat))
		b = append(b, `,"status_updates":[`...)
		for j, u := range c.Updates {
			b = comma(b, j)
			b = u.AppendJSON(b)
		}
		b = append(b, `],"problem":`...)
		b = appendProblem(b, c.Err)
		b = append(b, '}')
	}
	return append(b, ']', '}')
}

// AppendPending appends a page of the caller's pending rows. The row of a large chat has no
// sequence.
func AppendPending(b []byte, p server.PendingPage) []byte {
	b = append(b, `{"pending":[`...)
	for i, row := range p.Rows {
		b = comma(b, i)
		b = append(b, `{"chat_id":`...)
		b = tidemark.AppendString(b, string(row.ChatID))
		b = append(b, `,"first_undelivered_sequence":`...)
		if row.FirstUndelivered == 0 {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendUint(b, uint64(row.FirstUndelivered), 10)
		}
		b = append(b, '}')
	}
	return appendPage(b, p.NextCursor)
}

// AppendBlocks appends a page of those whom the caller has blocked.
func AppendBlocks(b []byte, p server.BlockPage) []byte {
	b = append(b, `{"blocks":[`...)
	for i, one := range p.Blocks {
		b = append(comma(b, i), `{"user_id":`...)
		b = append(tidemark.AppendString(b, string(one.User)), `,"blocked_at":`...)
		b = append(tidemark.AppendTime(b, one.At), '}')
	}
	return appendPage(b, p.NextCursor)
}

// AppendBans appends a page of those who are banned from a chat.
func AppendBans(b []byte, p server.BanPage) []byte {
	b = append(b, `{"bans":[`...)
	for i, one := range p.Bans {
		b = append(comma(b, i), `{"user_id":`...)
		b = append(tidemark.AppendString(b, string(one.User)), `,"banned_at":`...)
		b = append(tidemark.AppendTime(b, one.At), '}')
	}
	return appendPage(b, p.NextCursor)
}

// AppendSessions appends the answer to GET /sessions. Only backends see the nodes.
func AppendSessions(b []byte, list []server.SessionInfo, backend bool) []byte {
	b = append(b, `{"sessions":[`...)
	for i, s := range list {
		b = comma(b, i)
		b = append(b, `{"session_id":`...)
		b = tidemark.AppendString(b, string(s.Session))
		b = append(b, `,"device_id":`...)
		b = append(appendOrNull(b, string(s.Device)), `,"node_id":`...)
		node := ""
		//rule:caller_does_only_what_they_may.nodes-for-backends
		if backend {
			node = string(s.Node)
		}
		b = append(appendOrNull(b, node), '}')
	}
	return appendPage(b, "")
}

// AppendSync appends the answer to POST /sync, which is also the payload of `sync_response`.
func AppendSync(b []byte, r server.SyncResponse) []byte {
	b = append(b, `{"chats":[`...)
	for i := range r.Chats {
		b = comma(b, i)
		b = appendSyncChat(b, &r.Chats[i])
	}
	b = append(b, `],"status_updates":[`...)
	for i, u := range r.Statuses {
		b = comma(b, i)
		b = u.AppendJSON(b)
	}
	b = append(b, `],"has_more":`...)
	b = strconv.AppendBool(b, r.HasMore)
	return append(b, '}')
}

func appendSyncChat(b []byte, c *server.SyncChat) []byte {
	b = append(b, `{"chat_id":`...)
	b = tidemark.AppendString(b, string(c.Chat))
	b = append(b, `,"head_sequence":`...)
	b = strconv.AppendUint(b, uint64(c.Head), 10)
	b = append(b, `,"messages":`...)
	b = appendMessages(b, c.Messages)
	b = append(b, `,"gaps":`...)
	b = appendGaps(b, c.Gaps)
	b = append(b, `,"has_more":`...)
	b = strconv.AppendBool(b, c.HasMore)
	b = append(b, `,"reset":`...)
	if c.Reset == "" {
		b = append(b, "null"...)
	} else {
		reset := tidemark.Reset{Reason: c.Reset, ChatID: c.Chat, Through: c.Through}
		b = reset.AppendJSON(b)
	}
	b = append(b, `,"problem":`...)
	b = appendProblem(b, c.Err)
	return append(b, '}')
}

// AppendDeliveryStatus appends what other members see of the watermarks (ADR-008 Appendix F.1). The
// display name is the user id, because Tidemark keeps no profiles.
func AppendDeliveryStatus(b []byte, d server.DeliveryStatus) []byte {
	s := d.Summary
	b = append(b, `{"chat_id":`...)
	b = tidemark.AppendString(b, string(d.Chat.ID))
	b = append(b, `,"chat_type":`...)
	b = tidemark.AppendString(b, string(d.Chat.Type))
	b = append(b, `,"member_count":`...)
	b = strconv.AppendInt(b, int64(s.Members), 10)
	b = append(b, `,"delivery_summary":{"sequence":`...)
	b = strconv.AppendUint(b, uint64(d.Sequence), 10)
	b = append(b, `,"delivered_count":`...)
	b = strconv.AppendInt(b, int64(s.Delivered), 10)
	b = append(b, `,"pending_count":`...)
	b = strconv.AppendInt(b, int64(s.Members-s.Delivered), 10)
	b = append(b, `,"all_delivered":`...)
	b = strconv.AppendBool(b, s.Delivered == s.Members)
	b = append(b, `,"read_count":`...)
	b = strconv.AppendInt(b, int64(s.Read), 10)
	b = append(b, `,"all_read":`...)
	b = strconv.AppendBool(b, s.Read == s.Members)
	b = append(b, `},"members":[`...)
	for i, m := range d.Members {
		b = comma(b, i)
		b = appendMemberStatus(b, m)
	}
	return appendPage(b, d.NextCursor)
}

func appendMemberStatus(b []byte, s tidemark.DeliveryState) []byte {
	exposed := s.Exposed()
	b = append(b, `{"user_id":`...)
	b = tidemark.AppendString(b, string(s.UserID))
	b = append(b, `,"display_name":`...)
	b = tidemark.AppendString(b, string(s.UserID))
	b = appendWatermarks(b, exposed.Acked, exposed.Read)
	b = append(b, `,"updated_at":`...)
	b = tidemark.AppendTime(b, s.UpdatedAt())
	return append(b, '}')
}

// AppendTicket appends the answer to POST /tickets.
func AppendTicket(b []byte, ticket string, expires time.Time) []byte {
	b = append(b, `{"ticket":`...)
	b = tidemark.AppendString(b, ticket)
	b = append(b, `,"expires_at":`...)
	b = tidemark.AppendTime(b, expires)
	return append(b, '}')
}

// AppendToken appends the answer to POST /tokens.
func AppendToken(b []byte, token string, expires time.Time) []byte {
	b = append(b, `{"token":`...)
	b = tidemark.AppendString(b, token)
	b = append(b, `,"expires_at":`...)
	b = tidemark.AppendTime(b, expires)
	return append(b, '}')
}

func appendWatermarks(b []byte, acked, read tidemark.Watermark) []byte {
	b = append(b, `,"last_acked_sequence":`...)
	b = strconv.AppendUint(b, uint64(acked), 10)
	b = append(b, `,"last_read_sequence":`...)
	return strconv.AppendUint(b, uint64(read), 10)
}

func appendMessages(b []byte, messages []tidemark.Message) []byte {
	b = append(b, '[')
	for i := range messages {
		b = comma(b, i)
		b = messages[i].AppendJSON(b)
	}
	return append(b, ']')
}

func appendGaps(b []byte, gaps []tidemark.Gap) []byte {
	b = append(b, '[')
	for i, g := range gaps {
		b = comma(b, i)
		b = g.AppendJSON(b)
	}
	return append(b, ']')
}

// appendProblem appends what was wrong, or null.
func appendProblem(b []byte, err error) []byte {
	if err == nil {
		return append(b, "null"...)
	}
	return ProblemOf(err).AppendJSON(b)
}

// appendPage ends an array, appends the pagination, and ends the object.
func appendPage(b []byte, next string) []byte {
	b = append(b, `],"pagination":{"has_more":`...)
	b = strconv.AppendBool(b, next != "")
	b = append(b, `,"next_cursor":`...)
	if next == "" {
		b = append(b, "null"...)
	} else {
		b = tidemark.AppendString(b, next)
	}
	return append(b, '}', '}')
}

// comma appends a comma before every element but the first.
func comma(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ',')
}
