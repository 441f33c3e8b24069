package wire_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// seeds are bodies and frames of every kind, with dangerous parts.
var seeds = []string{
	`{"client_message_id":"c","content":"x","attachments":[{"a":"}]"}],"seen_sequence":1}`,
	`{"client_message_id":"c","content":"x","attachments":[{"s3_ref":1}],"metadata":{"a":"}"}}`,
	`{"chats":[{"chat_id":"a","last_acked_sequence":1,"last_read_sequence":1.5}]}`,
	`{"last_acked_sequence":9007199254740992}`,
	`{"type":"direct","member_ids":["a","b"],"name":"n","history":"full"}`,
	`{"user_ids":["a"],"name":"\ud83d\udc4b"}`,
	`{"type":"send_message","request_id":"r","payload":{"chat_id":"a","client_message_id":"c",` +
		`"content":"\ud800\udc00"}}`,
	`{"type":"ack","payload":{"chats":[{"chat_id":"a","last_acked_sequence":3}]}}`,
	`{"type":"sync_request","payload":{"chats":[],"limit":-0,"status_updates":true,` +
		`"session_id":"\\"}}`,
	`{"a\"b":"c\\","\\":[{"x":[]}]}`, `{"":""}`, ` { } `, `[]`, `"\ud800"`, `-`, `{"limit":1e400}`,
	"{\"name\":\"\xff\"}",
}

// checkError fails if bad input gives an error of any other kind.
func checkError(t *testing.T, raw []byte, err error) {
	t.Helper()
	switch tidemark.CodeOf(err) {
	case "", tidemark.Invalid, tidemark.InvalidSequence, tidemark.TooLarge:
	default:
		t.Errorf("%q: %v", raw, err)
	}
	if err == nil && !json.Valid(raw) {
		t.Errorf("%q was accepted, but is not JSON", raw)
	}
	if err != nil && !utf8.ValidString(tidemark.DetailOf(err)) {
		t.Errorf("%q: the detail %q is no text", raw, tidemark.DetailOf(err))
	}
}

func fuzz(f *testing.F, decode func(t *testing.T, raw []byte) error) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) { checkError(t, raw, decode(t, raw)) })
}

func FuzzDecodeSend(f *testing.F) {
	fuzz(f, func(t *testing.T, raw []byte) error {
		r, err := wire.DecodeSend(raw, "team")
		if err != nil {
			return err
		}
		// encoding/json gives the same content, if it decodes the fields one by one.
		var fields map[string]json.RawMessage
		var content string
		if json.Unmarshal(raw, &fields) == nil && fields["content"] != nil &&
			json.Unmarshal(fields["content"], &content) == nil && content != r.Content {
			t.Errorf("%q: content %q, encoding/json has %q", raw, r.Content, content)
		}
		if !utf8.ValidString(r.Content) || r.Attachments != nil && !json.Valid(r.Attachments) {
			t.Errorf("%q gave %+v", raw, r)
		}
		return nil
	})
}

func FuzzDecodeFrame(f *testing.F) {
	fuzz(f, func(t *testing.T, raw []byte) error {
		frame, err := wire.DecodeFrame(raw)
		if err == nil && !json.Valid(wire.AppendPong(nil, frame.RequestID)) {
			t.Errorf("%q: a reply cannot repeat %q", raw, frame.RequestID)
		}
		return err
	})
}

func FuzzDecodeAcks(f *testing.F) {
	fuzz(f, func(t *testing.T, raw []byte) error {
		items, err := wire.DecodeAcks(raw)
		for _, item := range items {
			if err == nil && (!tidemark.ValidID(item.Chat) ||
				item.Err == nil && item.Acked == 0 && item.Read == 0) {
				t.Errorf("%q gave %+v", raw, item)
			}
		}
		return err
	})
}

func FuzzDecodeState(f *testing.F) {
	fuzz(f, func(_ *testing.T, raw []byte) error {
		_, err := wire.DecodeState(raw, "team")
		return err
	})
}

func FuzzDecodeSync(f *testing.F) {
	fuzz(f, func(t *testing.T, raw []byte) error {
		r, err := wire.DecodeSync(raw)
		if err == nil && (r.Limit < 1 || r.Limit > wire.MaxLimit) {
			t.Errorf("%q gave the limit %d", raw, r.Limit)
		}
		return err
	})
}

func FuzzDecodeCreateChat(f *testing.F) {
	fuzz(f, func(_ *testing.T, raw []byte) error {
		_, err := wire.DecodeCreateChat(raw)
		return err
	})
}

func FuzzDecodeChatChange(f *testing.F) {
	fuzz(f, func(_ *testing.T, raw []byte) error {
		_, err := wire.DecodeChatChange(raw)
		return err
	})
}

func FuzzDecodeAddMembers(f *testing.F) {
	fuzz(f, func(_ *testing.T, raw []byte) error {
		_, _, err := wire.DecodeAddMembers(raw)
		return err
	})
}

func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"abc.42", "a.b.1", ".", "", "x.-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		session, id, ok := wire.ParsePosition(s)
		if !ok {
			return
		}
		again, n, ok := wire.ParsePosition(string(wire.AppendPosition(nil, session, id)))
		if again != session || n != id || !ok {
			t.Errorf("%q: %q, %d came back as %q, %d", s, session, id, again, n)
		}
	})
}
