package wire

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// What eachField calls a value that is no field of another one.
const (
	wholeBody  = "the body"
	wholeFrame = "a frame"
)

// DecodeSend decodes the body of POST /chats/{chat}/messages. It ignores a chat_id in the body.
func DecodeSend(raw []byte, chat tidemark.ChatID) (tidemark.Draft, error) {
	if err := check(raw); err != nil {
		return tidemark.Draft{}, err
	}
	return decodeSend(raw, wholeBody, chat)
}

// decodeSend decodes a message for chat. If chat is "", the value must name a chat_id.
func decodeSend(v value, name string, chat tidemark.ChatID) (tidemark.Draft, error) {
	d := tidemark.Draft{
		ChatID: chat, Kind: tidemark.KindMessage, ContentType: tidemark.DefaultContentType,
	}
	err := eachField(v, name, func(key string, v value) error {
		switch key {
		case "chat_id":
			if chat == "" {
				return id(v, key, &d.ChatID)
			}
		case "client_message_id":
			return id(v, key, &d.ClientMessageID)
		case "content":
			return v.text(key, &d.Content)
		case "content_type":
			return v.text(key, &d.ContentType)
		case "attachments":
			return v.attachments(key, &d.Attachments)
		case "attachment_sources":
			return v.sources(key, &d.Sources)
		case "metadata":
			return v.object(key, &d.Metadata)
		case "kind":
			return v.kind(key, &d.Kind)
		case "mentions":
			return v.mentions(key, &d.Mentions)
		case "send_by":
			return v.time(key, &d.SendBy)
		case "relation":
			return v.relation(key, &d.Relation)
		case "seen_sequence":
			var n tidemark.Sequence
			err := v.sequence(key, 0, &n)
			d.Seen = tidemark.SeenThrough(n)
			return err
		}
		return nil
	})
	switch {
	case err != nil:
		return tidemark.Draft{}, err
	case d.ChatID == "":
		return tidemark.Draft{}, tidemark.BadParam(tidemark.Invalid, "chat_id", "is missing")
	//rule:bounded_input.need-content-type
	case d.ContentType == "":
		return tidemark.Draft{}, tidemark.BadParam(tidemark.Invalid,
			"content_type", "is empty; leave it out for %s", tidemark.DefaultContentType)
	//rule:send_idempotent.need-key
	case d.ClientMessageID == "":
		return tidemark.Draft{}, tidemark.BadParam(tidemark.Invalid,
			"client_message_id", "is missing; give each new message a new one, "+
				"and repeat it when you send the message again")
	}
	return d, nil
}

// relation decodes which message another one changes or annotates.
func (v value) relation(field string, to **tidemark.Relation) error {
	var r tidemark.Relation
	err := eachField(v, field, func(key string, v value) error {
		switch key {
		case "sequence":
			return v.sequence(field+"."+key, 1, &r.Sequence)
		case "sequences":
			return v.sequences(field+"."+key, &r.Sequences)
		case "emoji":
			return v.text(field+"."+key, &r.Emoji)
		}
		return nil
	})
	if err == nil && r.Sequence == 0 && r.Sequences == nil {
		err = tidemark.BadParam(tidemark.Invalid, field+".sequence",
			"is missing; name the message that this one is about")
	}
	*to = &r
	return err
}

// sequences decodes an array of the messages that a redaction names.
func (v value) sequences(field string, to *[]tidemark.Sequence) error {
	*to = []tidemark.Sequence{}
	return eachElement(v, field, func(i int, v value) error {
		var n tidemark.Sequence
		err := v.sequence(element(field, i), 1, &n)
		*to = append(*to, n)
		return err
	})
}

// sources decodes an array of messages.
func (v value) sources(field string, to *[]tidemark.MessageRef) error {
	*to = nil
	return eachElement(v, field, func(i int, v value) error {
		//rule:bounded_input.bound-number-of-sources
		if i == tidemark.MaxAttachments {
			return tidemark.BadParam(tidemark.Invalid, field, "names more than %d messages",
				tidemark.MaxAttachments)
		}
		var source tidemark.MessageRef
		path := element(field, i)
		err := eachField(v, path, func(key string, v value) error {
			switch key {
			case "chat_id":
				return id(v, key, &source.ChatID)
			case "sequence":
				return v.sequence(key, 1, &source.Sequence)
			}
			return nil
		})
		if err == nil && (source.ChatID == "" || source.Sequence == 0) {
			err = tidemark.BadParam(tidemark.Invalid, "chat_id", "and sequence are needed")
		}
		if err != nil && tidemark.ParamOf(err) != path {
			err = within(path, err)
		}
		*to = append(*to, source)
		return err
	})
}

// AckItem is an acknowledgement of a list, or the error of one.
type AckItem struct {
	// Ack has the chat even if Err is set.
	server.Ack
	// Err is nil, Invalid or InvalidSequence.
	Err error
}

// DecodeAcks decodes the body of POST /acks. A wrong item fails alone. But if its chat_id is
// missing or not a string, the whole body fails, because no answer could refer to the item.
func DecodeAcks(raw []byte) ([]AckItem, error) {
	if err := check(raw); err != nil {
		return nil, err
	}
	return decodeAcks(raw, wholeBody)
}

func decodeAcks(v value, name string) ([]AckItem, error) {
	var items []AckItem
	var incarnation tidemark.Incarnation
	present := false
	err := eachField(v, name, func(key string, v value) error {
		if key == "incarnation" {
			return id(v, key, &incarnation)
		}
		if key != "chats" {
			return nil
		}
		present, items = true, nil
		return eachElement(v, key, func(i int, v value) error {
			item, err := decodeAck(v, element(key, i))
			if err != nil {
				return err
			}
			items = append(items, item)
			return nil
		})
	})
	if err == nil && !present {
		err = tidemark.BadParam(tidemark.Invalid, "chats", "is missing")
	}
	for i := range items {
		items[i].Incarnation = incarnation
	}
	return items, err
}

// decodeAck decodes one acknowledgement. It returns an error if the value is not an object or its
// chat_id is missing or not a string. Every other error goes into the item.
func decodeAck(v value, name string) (AckItem, error) {
	var item AckItem
	err := eachField(v, name, func(key string, v value) error {
		var err error
		switch key {
		case "chat_id":
			if err = id(v, key, &item.Chat); item.Chat == "" {
				return err
			}
		case "last_acked_sequence":
			//rule:ack_cumulative.bad-item-is-alone
			err = v.sequence(key, 1, &item.Acked)
		case "last_read_sequence":
			err = v.sequence(key, 1, &item.Read)
		}
		if item.Err == nil {
			item.Err = err
		}
		return nil
	})
	switch {
	case err != nil && tidemark.CodeOf(err) == tidemark.Invalid && name != "payload" &&
		tidemark.ParamOf(err) != name:
		return item, within(name, err)
	case err != nil:
		return item, err
	case item.Chat == "":
		return item, within(name, tidemark.BadParam(tidemark.Invalid, "chat_id", "is missing"))
	case item.Err == nil && item.Acked == 0 && item.Read == 0:
		item.Err = tidemark.Errorf(tidemark.Invalid,
			"last_acked_sequence or last_read_sequence is needed")
	}
	return item, nil
}

// DecodeState decodes the body of PATCH /chats/{chat}/delivery-state. One bad field refuses the
// whole body.
func DecodeState(raw []byte, chat tidemark.ChatID) (server.Ack, error) {
	ack := server.Ack{Chat: chat}
	if err := check(raw); err != nil {
		return ack, err
	}
	err := eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "last_acked_sequence":
			//rule:watermark_bounded_by_counter.acknowledge-from-one
			return v.sequence(key, 1, &ack.Acked)
		case "last_read_sequence":
			//rule:bounded_input.refuse-whole-acknowledgement
			return v.sequence(key, 1, &ack.Read)
		}
		return nil
	})
	if err == nil && ack.Acked == 0 && ack.Read == 0 {
		err = tidemark.Errorf(tidemark.Invalid,
			"last_acked_sequence or last_read_sequence is needed")
	}
	return ack, err
}

// DecodeUnread decodes the body of PUT /chats/{chat_id}/delivery-state/unread. It returns 0 for
// null or nothing, which ends the mark.
func DecodeUnread(raw []byte) (from tidemark.Sequence, err error) {
	if err := check(raw); err != nil {
		return 0, err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		if key != "from_sequence" {
			return nil
		}
		return v.sequence(key, 1, &from)
	})
	return from, err
}

// DecodeSync decodes the body of POST /sync. Without chats it asks for all that the user has not
// acknowledged.
func DecodeSync(raw []byte) (server.SyncRequest, error) {
	if err := check(raw); err != nil {
		return server.SyncRequest{}, err
	}
	return decodeSync(raw, wholeBody)
}

func decodeSync(v value, name string) (server.SyncRequest, error) {
	r := server.SyncRequest{Limit: DefaultLimit}
	err := eachField(v, name, func(key string, v value) error {
		switch key {
		case "chats":
			r.Cursors = nil
			return eachElement(v, key, func(i int, v value) error {
				c, err := decodeCursor(v, i)
				r.Cursors = append(r.Cursors, c)
				return err
			})
		case "session_id":
			return v.text(key, (*string)(&r.Session))
		case "limit":
			return v.limit(key, &r.Limit)
		case "status_updates":
			return v.boolean(key, &r.Statuses)
		}
		return nil
	})
	if err != nil {
		return server.SyncRequest{}, err
	}
	return r, nil
}

func decodeCursor(v value, i int) (server.Cursor, error) {
	var c server.Cursor
	name := element("chats", i)
	stated := false
	err := eachField(v, name, func(key string, v value) error {
		var err error
		switch key {
		case "chat_id":
			err = id(v, key, &c.Chat)
		case "last_acked_sequence":
			stated = true
			err = v.sequence(key, 0, &c.Acked)
		case "incarnation":
			err = id(v, key, &c.Incarnation)
		}
		if err != nil {
			return within(name, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return c, err
	case c.Chat == "":
		return c, within(name, tidemark.BadParam(tidemark.Invalid, "chat_id", "is missing"))
	case !stated:
		return c, within(name, tidemark.BadParam(tidemark.Invalid, "last_acked_sequence",
			"is missing; give 0 if the device has nothing of the chat"))
	}
	return c, nil
}

// DecodeCreateChat decodes the body of POST /chats.
func DecodeCreateChat(raw []byte) (server.CreateChatRequest, error) {
	var r server.CreateChatRequest
	if err := check(raw); err != nil {
		return r, err
	}
	err := eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "type":
			return choice(v, key, &r.Type, tidemark.Direct, tidemark.Group)
		case "member_ids":
			return ids(v, key, &r.MemberIDs)
		case "name":
			return v.text(key, &r.Name)
		case "metadata":
			return v.object(key, &r.Metadata)
		case "chat_id":
			return id(v, key, &r.ChatID)
		case "client_chat_id":
			return id(v, key, &r.ClientChatID)
		case "history":
			return choice(v, key, &r.History, tidemark.HistoryFull, tidemark.HistorySinceJoin)
		}
		return nil
	})
	switch {
	case err != nil:
		return server.CreateChatRequest{}, err
	case r.Type == "":
		return r, tidemark.BadParam(tidemark.Invalid,
			"type", "is missing; direct and group are possible")
	case r.MemberIDs == nil:
		return r, tidemark.BadParam(tidemark.Invalid, "member_ids", "is missing")
	//rule:post_retry_safe.need-key
	case r.ChatID == "" && r.ClientChatID == "" && r.Type == tidemark.Group:
		return r, tidemark.BadParam(tidemark.Invalid, "client_chat_id",
			"is missing; give each new group a new one, and repeat it when you send the request "+
				"again")
	}
	return r, nil
}

// choice decodes a string that must be one of some.
func choice[T ~string](v value, field string, to *T, some ...T) error {
	var s string
	if err := v.text(field, &s); err != nil {
		return err
	}
	if !slices.Contains(some, T(s)) {
		names := make([]string, len(some))
		for i := range some {
			names[i] = strconv.Quote(string(some[i]))
		}
		last := len(names) - 1
		return tidemark.BadParam(tidemark.Invalid, field, "must be %s or %s",
			strings.Join(names[:last], ", "), names[last])
	}
	*to = T(s)
	return nil
}

// DecodeChatChange decodes the body of PATCH /chats/{chat}.
func DecodeChatChange(raw []byte) (change server.ChatChange, err error) {
	if err := check(raw); err != nil {
		return change, err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "name":
			change.Name = new(string)
			return v.text(key, change.Name)
		case "metadata":
			return v.object(key, &change.Metadata)
		case "keep_days":
			change.KeepDays = new(int)
			return v.days(change.KeepDays)
		case "hold":
			change.Hold = new(bool)
			return v.boolean(key, change.Hold)
		case "read_receipts":
			change.Receipts = new(tidemark.ReceiptsPolicy)
			return v.receipts(key, change.Receipts)
		}
		return nil
	})
	if err == nil && change.Name == nil && change.Metadata == nil && change.KeepDays == nil &&
		change.Hold == nil && change.Receipts == nil {
		err = tidemark.BadParam(tidemark.Invalid, "name",
			"or metadata, keep_days, hold or read_receipts is needed")
	}
	return change, err
}

// DecodeMemberChange decodes the body of PATCH /chats/{chat}/members/{user}.
func DecodeMemberChange(raw []byte) (change server.MemberChange, err error) {
	if err := check(raw); err != nil {
		return change, err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "role":
			if err := v.text(key, (*string)(&change.Role)); err != nil {
				return err
			}
			return tidemark.CheckRole(change.Role)
		case "metadata":
			return v.object(key, &change.Metadata)
		}
		return nil
	})
	if err == nil && change.Role == "" && change.Metadata == nil {
		err = tidemark.BadParam(tidemark.Invalid, "role", "or metadata is needed")
	}
	return change, err
}

// DecodeAddMembers decodes the body of POST /chats/{chat}/members. role is empty if it is absent.
func DecodeAddMembers(raw []byte) (users []tidemark.UserID, role tidemark.Role, err error) {
	if err := check(raw); err != nil {
		return nil, "", err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "user_ids":
			return ids(v, key, &users)
		case "role":
			if err := v.text(key, (*string)(&role)); err != nil {
				return err
			}
			return tidemark.CheckRole(role)
		}
		return nil
	})
	if err == nil && len(users) == 0 {
		err = tidemark.BadParam(tidemark.Invalid, "user_ids", "must name at least one user")
	}
	return users, role, err
}

// TokenRequest is the body of POST /tokens.
type TokenRequest struct {
	// User is the user of the token, or "" if the body names none.
	User tidemark.UserID
	TTL  time.Duration
}

// DecodeTokenRequest decodes the body of POST /tokens. longest is the default of its TTL.
func DecodeTokenRequest(raw []byte, longest time.Duration) (TokenRequest, error) {
	r := TokenRequest{TTL: longest}
	if err := check(raw); err != nil {
		return r, err
	}
	err := eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "user_id":
			return id(v, key, &r.User)
		case "ttl_seconds":
		default:
			return nil
		}
		n, err := strconv.ParseInt(string(v), 10, 64)
		most := int64(longest / time.Second)
		//rule:bounded_input.bound-ttl
		if !v.integer() || err != nil || n < 1 || n > most {
			return tidemark.BadParam(tidemark.Invalid, key, "must be an integer from 1 to %d", most)
		}
		r.TTL = time.Duration(n) * time.Second
		return nil
	})
	return r, err
}
