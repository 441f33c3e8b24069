package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// decoders returns the decoders of what clients send, each with the schema of openapi.yaml for it.
func decoders() []struct {
	schema string
	decode func([]byte) error
} {
	type decoder = struct {
		schema string
		decode func([]byte) error
	}
	return []decoder{
		{"SendMessage", func(b []byte) error { _, err := wire.DecodeSend(b, "team"); return err }},
		{"Watermarks", func(b []byte) error { _, err := wire.DecodeState(b, "team"); return err }},
		{"Acks", func(b []byte) error {
			items, err := wire.DecodeAcks(b)
			for _, item := range items {
				if err == nil {
					err = item.Err
				}
			}
			return err
		}},
		{"SyncRequest", func(b []byte) error { _, err := wire.DecodeSync(b); return err }},
		{"CreateChat", func(b []byte) error { _, err := wire.DecodeCreateChat(b); return err }},
		{"UpdateChat", func(b []byte) error { _, err := wire.DecodeChatChange(b); return err }},
		{"UpdateMember", func(b []byte) error { _, err := wire.DecodeMemberChange(b); return err }},
		{"AddMembers", func(b []byte) error { _, _, err := wire.DecodeAddMembers(b); return err }},
		{"ClientFrame", func(b []byte) error {
			frame, err := wire.DecodeFrame(b)
			if err == nil && frame.Refused > 0 {
				err = tidemark.Errorf(tidemark.Invalid, "an acknowledgement was left out")
			}
			return err
		}},
	}
}

// beyond reports whether a text is refused for a reason that no schema can express.
func beyond(raw []byte, refusal string) bool {
	for _, rule := range []string{
		"half of a surrogate pair", "U+0000", "UTF-8", // what a text may hold
		"at most 409600", "bytes long", // sizes are in bytes
		"must be an integer", // 1e2 and 1.0 are integers to JSON Schema
		"is needed",          // one of two fields
		"is reserved",        // for a later version
	} {
		if strings.Contains(refusal, rule) {
			return true
		}
	}
	// If the acknowledgements of a frame have both forms, only the list counts.
	return bytes.Contains(raw, []byte(`chats`)) && bytes.Contains(raw, []byte(`chat_id`)) &&
		bytes.Contains(raw, []byte(`type`))
}

// ambiguous reports whether readers may differ about a text: a name occurs twice, or no float64
// holds a number.
func ambiguous(raw []byte) bool {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return json.Valid(raw)
	}
	return twice(json.NewDecoder(bytes.NewReader(raw)))
}

// twice reports whether a name occurs twice in an object of the next value of d.
func twice(d *json.Decoder) bool {
	token, err := d.Token()
	delim, nested := token.(json.Delim)
	if err != nil || !nested {
		return false
	}
	names := make(map[string]bool)
	again := false
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			text, _ := name.(string)
			if err != nil {
				return again
			}
			again = again || names[text]
			names[text] = true
		}
		again = twice(d) || again
	}
	_, _ = d.Token()
	return again
}

// FuzzAgreement_of_schema_and_decoder: the server accepts exactly what the schema accepts.
func FuzzAgreement_of_schema_and_decoder(f *testing.F) {
	contract := apitest.Load(f)
	all := decoders()
	for which := range all {
		for _, s := range seeds {
			f.Add(uint8(which), []byte(s))
		}
		for _, s := range []string{
			`{"client_message_id":"c","content_type":"","content":"x"}`,
			`{"client_message_id":"c","content":1}`, `{"last_read_sequence":0}`,
			`{"chats":[{"chat_id":"a"}]}`, `{"chats":[null]}`,
			`{"chats":[{"chat_id":"a","last_acked_sequence":-1}],"limit":0}`,
			`{"type":"group","member_ids":["a b"],"history":"none","chat_id":""}`,
			`{"name":null}`, `{"user_ids":[]}`, `{"keep_days":30}`, `{"keep_days":7}`,
			`{"keep_days":0,"hold":false}`, `{"keep_days":36501}`, `{"hold":null}`, `{"hold":1}`,
			`{"read_receipts":"required"}`, `{"read_receipts":"optional"}`,
			`{"read_receipts":"default"}`,
			`{"type":"read","request_id":null,"payload":{"chat_id":"a"}}`, `{"type":"typing"}`,
			`{"type":"sync_request"}`, `{"chats":[],"incarnation":"a b"}`,
			`{"chats":[{"chat_id":"a","last_acked_sequence":1,"incarnation":null}]}`,
		} {
			f.Add(uint8(which), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		d := all[int(which)%len(all)]
		decoded, accepted := d.decode(raw), contract.Accepts(d.schema, raw)
		switch {
		case ambiguous(raw):
		case decoded == nil && accepted != nil:
			t.Errorf("%s: the server accepts %q, the schema does not: %v", d.schema, raw, accepted)
		case decoded != nil && accepted == nil && !beyond(raw, tidemark.DetailOf(decoded)):
			t.Errorf("%s: the schema accepts %q, the server does not: %v", d.schema, raw, decoded)
		}
		if decoded != nil && !utf8.ValidString(tidemark.DetailOf(decoded)) {
			t.Errorf("%q: the detail %q is no text", raw, tidemark.DetailOf(decoded))
		}
	})
}

// TestExamples_of_the_contract_are_accepted: a client can send the examples of the contract.
func TestExamples_of_the_contract_are_accepted(t *testing.T) {
	contract := apitest.Load(t)
	for _, d := range decoders() {
		if d.schema == "ClientFrame" {
			continue // its examples are the golden file's
		}
		if err := d.decode(contract.Example(t, d.schema)); err != nil {
			t.Errorf("%s: %v", d.schema, err)
		}
	}
}
