package tidemark

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// The payload encoders. Each appends one JSON value without a newline to b, and returns the result.
// They use no reflection, and allocate only what append needs.
// The tests compare them with encoding/json.

// TimeLayout is the format of times: RFC 3339 in UTC with milliseconds.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// AppendJSON appends the message in its wire format.
func (m *Message) AppendJSON(b []byte) []byte {
	// If no character needs an escape, this is the only allocation.
	b = slices.Grow(b, 256+len(m.ChatID)+len(m.MessageID)+len(m.SenderID)+
		len(m.ClientMessageID)+len(m.ContentType)+m.Size())
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(m.ChatID))
	b = append(b, `,"sequence":`...)
	b = strconv.AppendUint(b, uint64(m.Sequence), 10)
	b = append(b, `,"message_id":`...)
	b = AppendString(b, string(m.MessageID))
	b = append(b, `,"sender_id":`...)
	b = AppendString(b, string(m.SenderID))
	b = append(b, `,"client_message_id":`...)
	b = AppendString(b, m.ClientMessageID)
	b = append(b, `,"content":`...)
	b = AppendString(b, m.Content)
	b = append(b, `,"content_type":`...)
	b = AppendString(b, m.ContentType)
	b = append(b, `,"kind":`...)
	b = AppendString(b, string(m.Kind))
	b = append(b, `,"relation":`...)
	b = m.Relation.appendJSON(b)
	b = append(b, `,"revision":`...)
	b = m.Revision.appendJSON(b)
	b = append(b, `,"mentions":`...)
	b = m.Mentions.AppendJSON(b)
	b = append(b, `,"attachments":`...)
	b = appendCompact(b, m.Attachments, "[]")
	b = append(b, `,"metadata":`...)
	b = appendCompact(b, m.Metadata, "null")
	//rule:delivered_not_causal_across_chats.no-order-across-chats
	b = append(b, `,"created_at":`...)
	b = AppendTime(b, m.CreatedAt)
	b = append(b, `,"members_version":`...)
	b = strconv.AppendUint(b, m.MembersVersion, 10)
	return append(b, '}')
}

// confirmationBytes is about the size of an encoded confirmation.
const confirmationBytes = 320

// AppendJSON appends what the server knows of the message, and its sender does not.
func (c Confirmation) AppendJSON(b []byte) []byte {
	m := c.Message
	b = slices.Grow(b, confirmationBytes)
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(m.ChatID))
	b = append(b, `,"client_message_id":`...)
	b = AppendString(b, m.ClientMessageID)
	b = append(b, `,"message_id":`...)
	b = AppendString(b, string(m.MessageID))
	b = append(b, `,"sequence":`...)
	b = strconv.AppendUint(b, uint64(m.Sequence), 10)
	b = append(b, `,"created_at":`...)
	b = AppendTime(b, m.CreatedAt)
	b = append(b, `,"duplicate":`...)
	b = strconv.AppendBool(b, c.Duplicate)
	b = append(b, `,"members_version":`...)
	b = strconv.AppendUint(b, m.MembersVersion, 10)
	return append(b, '}')
}

// appendJSON appends the relation, or null.
func (r *Relation) appendJSON(b []byte) []byte {
	if r == nil {
		return append(b, "null"...)
	}
	b = append(b, `{"sequence":`...)
	// Older clients know no list, and need a sequence.
	b = strconv.AppendUint(b, uint64(r.Named()[0]), 10)
	b = append(b, `,"sequences":`...)
	if r.Sequences == nil {
		b = append(b, "null"...)
	} else {
		b = appendSequences(b, r.Sequences)
	}
	b = append(b, `,"emoji":`...)
	b = appendNullable(b, r.Emoji)
	b = append(b, `,"target":`...)
	if r.Target == nil {
		b = append(b, "null"...)
	} else {
		b = r.Target.AppendJSON(b)
	}
	return append(b, '}')
}

// appendSequences appends an array of sequences.
func appendSequences(b []byte, all []Sequence) []byte {
	b = append(b, '[')
	for i, n := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	return append(b, ']')
}

// appendJSON appends the revision, or null.
func (r *Revision) appendJSON(b []byte) []byte {
	if r == nil {
		return append(b, "null"...)
	}
	b = append(b, `{"sequence":`...)
	b = strconv.AppendUint(b, uint64(r.Sequence), 10)
	b = append(b, `,"kind":`...)
	b = AppendString(b, string(r.Kind))
	b = append(b, `,"by":`...)
	b = AppendString(b, string(r.By))
	b = append(b, `,"revised_at":`...)
	b = AppendTime(b, r.At)
	return append(b, '}')
}

// AppendJSON appends the mentions, or null if nobody is named.
func (m Mentions) AppendJSON(b []byte) []byte {
	if m.None() {
		return append(b, "null"...)
	}
	b = append(b, `{"all":`...)
	b = strconv.AppendBool(b, m.All)
	b = append(b, `,"user_ids":[`...)
	for i, user := range m.Users {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, string(user))
	}
	return append(b, "]}"...)
}

// AppendJSON appends the gap.
func (g Gap) AppendJSON(b []byte) []byte {
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(g.ChatID))
	b = append(b, `,"from_sequence":`...)
	b = strconv.AppendUint(b, uint64(g.From), 10)
	b = append(b, `,"to_sequence":`...)
	b = strconv.AppendUint(b, uint64(g.To), 10)
	b = append(b, `,"reason":`...)
	b = AppendString(b, string(g.Reason))
	return append(b, '}')
}

// AppendJSON appends the status update, of one member or of all members.
func (u StatusUpdate) AppendJSON(b []byte) []byte {
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(u.ChatID))
	if u.UserID == "" {
		b = append(b, `,"scope":"chat","all_acked_sequence":`...)
		b = strconv.AppendUint(b, uint64(u.Acked), 10)
		b = append(b, `,"all_read_sequence":`...)
		b = strconv.AppendUint(b, uint64(u.Read), 10)
		return append(b, '}')
	}
	b = append(b, `,"scope":"member","user_id":`...)
	b = AppendString(b, string(u.UserID))
	b = append(b, `,"last_acked_sequence":`...)
	b = strconv.AppendUint(b, uint64(u.Acked), 10)
	b = append(b, `,"last_read_sequence":`...)
	b = strconv.AppendUint(b, uint64(u.Read), 10)
	b = append(b, `,"acked_at":`...)
	b = appendMillis(b, u.AckedAt)
	b = append(b, `,"read_at":`...)
	b = appendMillis(b, u.ReadAt)
	return append(b, '}')
}

// AppendJSON appends the membership change.
func (c MembershipChange) AppendJSON(b []byte) []byte {
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(c.ChatID))
	b = append(b, `,"user_id":`...)
	b = AppendString(b, string(c.UserID))
	b = append(b, `,"change":`...)
	b = AppendString(b, string(c.Change))
	b = append(b, `,"role":`...)
	if c.Role == "" {
		b = append(b, "null"...)
	} else {
		b = AppendString(b, string(c.Role))
	}
	b = append(b, `,"members_version":`...)
	b = strconv.AppendUint(b, c.Version, 10)
	return append(b, '}')
}

// AppendJSON appends the change of a chat.
func (u ChatUpdate) AppendJSON(b []byte) []byte {
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(u.ChatID))
	b = append(b, `,"version":`...)
	b = strconv.AppendUint(b, u.Version, 10)
	return append(b, '}')
}

// AppendJSON appends the payload of the first event of a connection.
func (o SessionStart) AppendJSON(b []byte) []byte {
	b = append(b, `{"session_id":`...)
	b = AppendString(b, string(o.Session))
	b = append(b, `,"user_id":`...)
	b = AppendString(b, string(o.User))
	b = append(b, `,"resumed":`...)
	b = strconv.AppendBool(b, o.Resumed)
	b = append(b, `,"event_id":`...)
	b = strconv.AppendUint(b, o.EventID, 10)
	b = append(b, `,"heartbeat_seconds":`...)
	b = strconv.AppendInt(b, int64(o.Heartbeat/time.Second), 10)
	b = append(b, `,"resume_seconds":`...)
	b = strconv.AppendInt(b, int64(o.Resume/time.Second), 10)
	b = append(b, `,"incarnation":`...)
	b = AppendString(b, string(o.Incarnation))
	b = append(b, `,"attachments":`...)
	b = strconv.AppendBool(b, o.Attachments)
	return append(b, '}')
}

// AppendJSON appends the reset.
func (r Reset) AppendJSON(b []byte) []byte {
	b = append(b, `{"reason":`...)
	b = AppendString(b, string(r.Reason))
	b = append(b, `,"chat_id":`...)
	b = appendNullable(b, string(r.ChatID))
	b = append(b, `,"through":`...)
	if r.Reason == ResetRestored {
		b = strconv.AppendUint(b, uint64(r.Through), 10)
	} else {
		b = append(b, "null"...)
	}
	return append(b, '}')
}

// AppendJSON appends the user's own state in a chat.
func (s OwnState) AppendJSON(b []byte) []byte {
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(s.ChatID))
	b = append(b, `,"last_acked_sequence":`...)
	b = strconv.AppendUint(b, uint64(s.Acked), 10)
	b = append(b, `,"last_read_sequence":`...)
	b = strconv.AppendUint(b, uint64(s.Read), 10)
	b = append(b, `,"unread_from_sequence":`...)
	if s.UnreadFrom == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendUint(b, uint64(s.UnreadFrom), 10)
	}
	b = append(b, `,"unread_count":`...)
	b = strconv.AppendInt(b, s.Unread, 10)
	b = append(b, `,"mention_count":`...)
	b = strconv.AppendInt(b, s.Mentions, 10)
	return append(b, '}')
}

// AppendJSON appends the typing notice.
func (t Typing) AppendJSON(b []byte) []byte {
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(t.ChatID))
	b = append(b, `,"user_id":`...)
	b = AppendString(b, string(t.UserID))
	b = append(b, `,"expires_in_seconds":`...)
	b = strconv.AppendInt(b, int64(TypingExpires/time.Second), 10)
	return append(b, '}')
}

// AppendJSON appends who of a chat is online.
func (p *Presence) AppendJSON(b []byte) []byte {
	b = append(b, `{"chat_id":`...)
	b = AppendString(b, string(p.ChatID))
	if p.Members == nil {
		b = append(b, `,"online_count":`...)
		b = strconv.AppendInt(b, int64(p.Online), 10)
		return append(b, `,"members":null}`...)
	}
	b = append(b, `,"online_count":null,"members":[`...)
	for i, m := range p.Members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"user_id":`...)
		b = AppendString(b, string(m.UserID))
		b = append(b, `,"online":`...)
		b = strconv.AppendBool(b, m.Online)
		b = append(b, `,"last_seen_at":`...)
		b = appendMillis(b, m.LastSeen)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// AppendJSON appends the payload of a problem event.
func (p Problem) AppendJSON(b []byte) []byte {
	b = append(b, `{"code":`...)
	b = AppendString(b, string(p.Code))
	b = append(b, `,"detail":`...)
	b = AppendString(b, p.Detail)
	b = append(b, `,"param":`...)
	b = appendNullable(b, p.Param)
	return append(b, '}')
}

// AppendObject appends a JSON object as one line, or null if raw is nil.
func AppendObject(b []byte, raw json.RawMessage) []byte { return appendCompact(b, raw, "null") }

// AppendTime appends t as a JSON string, in UTC with milliseconds. The zero time becomes null.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	b = append(b, '"')
	// Package time formats this layout several times as fast as TimeLayout.
	b = t.UTC().AppendFormat(b, time.RFC3339)
	ms := t.Nanosecond() / int(time.Millisecond)
	b = append(b[:len(b)-len("Z")], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
	return append(b, 'Z', '"')
}

// appendMillis appends a time as AppendTime does.
func appendMillis(b []byte, m Millis) []byte {
	if m == 0 {
		return append(b, "null"...)
	}
	return AppendTime(b, time.UnixMilli(int64(m)))
}

// appendNullable appends s as a JSON string, or null if it is empty.
func appendNullable(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return AppendString(b, s)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. An invalid byte becomes U+FFFD.
// It also escapes U+2028 and U+2029, because some readers take them for line breaks.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := plainText(s); i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, s[start:i]...)
			b = append(b, `\ufffd`...)
			start = i + size
		case r == 0x2028 || r == 0x2029:
			b = append(b, s[start:i]...)
			b = append(b, `\u202`...)
			b = append(b, hexDigits[r&0xf])
			start = i + size
		}
		i += size
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// plainText returns how much of the beginning of s certainly needs no escape. It looks at eight
// bytes at a time, which is most of what it costs to encode a long text.
func plainText(s string) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := binary.LittleEndian.Uint64([]byte(s[i : i+8]))
		quote, slash := w^ones*'"', w^ones*'\\'
		// A byte of x is 0 if x-ones borrows from it, and below 0x20 if w-ones*0x20 does.
		if (w|(w-ones*0x20)|(quote-ones)|(slash-ones))&high != 0 {
			break
		}
	}
	return i
}

// appendCompact appends raw JSON without its line breaks, which would break an SSE frame. nil
// becomes none. JSON allows no raw line break in a string, so each one is white space.
func appendCompact(b, raw []byte, none string) []byte {
	if raw == nil {
		return append(b, none...)
	}
	for _, c := range raw {
		if c != '\n' && c != '\r' {
			b = append(b, c)
		}
	}
	return b
}
