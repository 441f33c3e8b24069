package wire

import (
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// DecodeLook decodes the body of PUT /sessions/{session_id}/look.
func DecodeLook(raw []byte) ([]tidemark.ChatID, error) {
	if err := check(raw); err != nil {
		return nil, err
	}
	return decodeLook(raw, wholeBody)
}

// decodeLook decodes the chats that a client shows. There may be none.
func decodeLook(v value, name string) (chats []tidemark.ChatID, err error) {
	err = eachField(v, name, func(key string, v value) error {
		if key == "chat_ids" {
			return ids(v, key, &chats)
		}
		return nil
	})
	if err == nil && chats == nil {
		err = tidemark.BadParam(tidemark.Invalid, "chat_ids", "is missing")
	}
	return chats, err
}

// DecodePresenceSettings decodes the body of PUT /presence/settings.
func DecodePresenceSettings(raw []byte) (visible bool, err error) {
	if err := check(raw); err != nil {
		return false, err
	}
	present := false
	err = eachField(raw, wholeBody, func(key string, v value) error {
		if key != "visible" {
			return nil
		}
		present = true
		return v.boolean(key, &visible)
	})
	if err == nil && !present {
		err = tidemark.BadParam(tidemark.Invalid, "visible", "is missing")
	}
	return visible, err
}

// AppendPresenceSettings appends the answer to PUT /presence/settings.
func AppendPresenceSettings(b []byte, visible bool) []byte {
	if visible {
		return append(b, `{"visible":true}`...)
	}
	return append(b, `{"visible":false}`...)
}

// DecodeReceiptsSettings decodes the body of PUT /receipts/settings. chat is empty if it is absent.
func DecodeReceiptsSettings(raw []byte) (
	chat tidemark.ChatID, setting tidemark.ReceiptsSetting, err error,
) {
	if err := check(raw); err != nil {
		return "", "", err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "chat_id":
			if err := v.text(key, (*string)(&chat)); err != nil {
				return err
			}
			return tidemark.CheckID(key, chat)
		case "read_receipts":
			if err := v.text(key, (*string)(&setting)); err != nil {
				return err
			}
			if !setting.Valid() {
				return tidemark.BadParam(tidemark.Invalid, key, "must be on, off or default")
			}
		}
		return nil
	})
	if err == nil && setting == "" {
		err = tidemark.BadParam(tidemark.Invalid, "read_receipts", "is missing")
	}
	return chat, setting, err
}

// AppendReceiptsSettings appends the answer to GET and PUT /receipts/settings.
func AppendReceiptsSettings(b []byte, s server.ReceiptsSettings) []byte {
	b = append(b, `{"chat_id":`...)
	b = appendOrNull(b, string(s.Chat))
	b = append(b, `,"read_receipts":`...)
	b = tidemark.AppendString(b, string(s.Setting))
	b = append(b, `,"chat_read_receipts":`...)
	if s.Chat == "" {
		b = append(b, "null"...)
	} else {
		b = tidemark.AppendString(b, receiptsName(s.Policy))
	}
	b = append(b, `,"hidden":`...)
	return append(strconv.AppendBool(b, s.Hidden), '}')
}

// AppendPresence appends the answer to GET /presence. Each entry has the chat and its presence,
// and a problem or null.
func AppendPresence(b []byte, visible bool, all []server.PresenceOf) []byte {
	b = AppendPresenceSettings(b, visible)
	b = append(b[:len(b)-1], `,"results":[`...)
	for i := range all {
		b = comma(b, i)
		if all[i].Known {
			b = all[i].AppendJSON(b)
		} else {
			b = append(b, `{"chat_id":`...)
			b = tidemark.AppendString(b, string(all[i].ChatID))
			b = append(b, `,"online_count":null,"members":null}`...)
		}
		b = append(b[:len(b)-1], `,"problem":`...)
		b = appendProblem(b, all[i].Err)
		b = append(b, '}')
	}
	return append(b, ']', '}')
}
