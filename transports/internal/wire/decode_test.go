package wire_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// failure is the error that a test wants: its code, and a word of its detail.
type failure struct {
	code tidemark.Code
	word string
}

func (f failure) check(t *testing.T, err error) {
	t.Helper()
	if got := tidemark.CodeOf(err); got != f.code {
		t.Errorf("code = %q (%v), want %q", got, err, f.code)
	}
	if f.code != "" && !strings.Contains(tidemark.DetailOf(err), f.word) {
		t.Errorf("detail = %q, want it to name %q", tidemark.DetailOf(err), f.word)
	}
}

var ok failure

func TestDecodeSend_form_of_every_field(t *testing.T) {
	tests := []struct {
		name, raw string
		want      failure
	}{
		{"plain", `{"client_message_id":"c","content":"x"}`, ok},
		{"unknown fields are ignored",
			`{"x":{"\ud800":["}",{}]},"client_message_id":"c","y":[[1,2],"]"],"content":"x"}`, ok},
		{"null counts as absent",
			`{"client_message_id":"c","content":"x","attachments":null,"seen_sequence":null}`, ok},
		{"escaped name", `{"client_message\u005fid":"c","content":"x"}`, ok},
		{"white space", " {\r\n\t\"client_message_id\" : \"c\" , \"content\" : \"x\" } ", ok},
		{"a pair of surrogates", `{"client_message_id":"c","content":"\ud83d\udc4b"}`, ok},
		{"empty", ``, failure{tidemark.Invalid, "nothing"}},
		{"cut", `{"client_message_id":"c"`, failure{tidemark.Invalid, "malformed"}},
		{"two values", `{} {}`, failure{tidemark.Invalid, "malformed"}},
		{"an array", `[]`, failure{tidemark.Invalid, "object"}},
		{"nothing in it", `{}`, failure{tidemark.Invalid, "client_message_id"}},
		{"id of the wrong type", `{"client_message_id":1,"content":"x"}`,
			failure{tidemark.Invalid, "client_message_id must be a string"}},
		{"bad id", `{"client_message_id":"a b","content":"x"}`,
			failure{tidemark.Invalid, "client_message_id"}},
		{"content of the wrong type", `{"client_message_id":"c","content":["x"]}`,
			failure{tidemark.Invalid, "content"}},
		{"U+0000", `{"client_message_id":"c","content":"a\u0000b"}`,
			failure{tidemark.Invalid, "content holds the character U+0000"}},
		{"lone high surrogate", `{"client_message_id":"c","content":"\ud800"}`,
			failure{tidemark.Invalid, "content holds half of a surrogate"}},
		{"lone low surrogate", `{"client_message_id":"c","content":"\udc00x"}`,
			failure{tidemark.Invalid, "content"}},
		{"high surrogate before another escape",
			`{"client_message_id":"c","content":"\ud800\u0041"}`,
			failure{tidemark.Invalid, "content"}},
		{"high surrogate before text", `{"client_message_id":"c","content":"\ud800abcdefgh"}`,
			failure{tidemark.Invalid, "content"}},
		{"high surrogate before an escaped backslash",
			`{"client_message_id":"c","content":"\ud800\\dc00"}`,
			failure{tidemark.Invalid, "content"}},
		{"two high surrogates", `{"client_message_id":"c","content":"\ud800\ud800"}`,
			failure{tidemark.Invalid, "content"}},
		{"invalid UTF-8", "{\"client_message_id\":\"c\",\"content\":\"a\xffb\"}",
			failure{tidemark.Invalid, "UTF-8 at byte 37"}},
		{"UTF-8 of a surrogate", "{\"client_message_id\":\"c\",\"content\":\"\xed\xa0\x80\"}",
			failure{tidemark.Invalid, "UTF-8"}},
		{"content type of the wrong type",
			`{"client_message_id":"c","content":"x","content_type":true}`,
			failure{tidemark.Invalid, "content_type"}},
		{"content type of nothing", `{"client_message_id":"c","content":"x","content_type":""}`,
			failure{tidemark.Invalid, "content_type is empty"}},
		{"attachments are an object", `{"client_message_id":"c","attachments":{}}`,
			failure{tidemark.Invalid, "attachments"}},
		{"an attachment is no object", `{"client_message_id":"c","attachments":[{},1]}`,
			failure{tidemark.Invalid, "attachments[1]"}},
		{"surrogate in an attachment",
			`{"client_message_id":"c","attachments":[{"a":["\ud800"]}]}`,
			failure{tidemark.Invalid, "attachments"}},
		{"surrogate in a name of an attachment",
			`{"client_message_id":"c","attachments":[{"\udfff":1}]}`,
			failure{tidemark.Invalid, "attachments"}},
		{"U+0000 in an attachment", `{"client_message_id":"c","attachments":[{"a":"\u0000"}]}`,
			failure{tidemark.Invalid, "attachments"}},
		{"a file", `{"client_message_id":"c","attachments":[{},{"s3_ref":"x"}]}`, ok},
		{"no file", `{"client_message_id":"c","attachments":[{},{"s3_ref":null}]}`, ok},
		{"the file of an attachment is a number",
			`{"client_message_id":"c","attachments":[{},{"s3_ref":1}]}`,
			failure{tidemark.Invalid, "attachments[1]: s3_ref"}},
		{"two files in an attachment",
			`{"client_message_id":"c","attachments":[{},{"s3_ref":"x","s3\u005fref":"y"}]}`,
			failure{tidemark.Invalid, "attachments[1]: s3_ref"}},
		{"sources of attachments", `{"client_message_id":"c","content":"x",` +
			`"attachment_sources":[{"chat_id":"c","sequence":1}]}`, ok},
		{"a source of attachments without a sequence", `{"client_message_id":"c","content":"x",` +
			`"attachment_sources":[{"chat_id":"c"}]}`,
			failure{tidemark.Invalid, "attachment_sources[0]"}},
		{"the size of an attachment is a text",
			`{"client_message_id":"c","attachments":[{"size":"1"}]}`,
			failure{tidemark.Invalid, "attachments[0]: size"}},
		{"no attachments", `{"client_message_id":"c","content":"x","attachments":[]}`, ok},
		{"metadata are an array", `{"client_message_id":"c","content":"x","metadata":[]}`,
			failure{tidemark.Invalid, "metadata"}},
		{"the kind of a message", `{"client_message_id":"c","content":"x","kind":"message"}`, ok},
		{"a line of the system", `{"client_message_id":"c","content":"x","kind":"system"}`, ok},
		{"a control message", `{"client_message_id":"c","content":"x","kind":"control"}`, ok},
		{"another kind", `{"client_message_id":"c","content":"x","kind":"boost"}`,
			failure{tidemark.Invalid, "kind"}},
		{"mentions", `{"client_message_id":"c","content":"x","mentions":{"all":true}}`, ok},
		{"no mentions", `{"client_message_id":"c","content":"x","mentions":{}}`, ok},
		{"mentions are an array", `{"client_message_id":"c","content":"x","mentions":["a"]}`,
			failure{tidemark.Invalid, "mentions"}},
		{"all of another type", `{"client_message_id":"c","content":"x","mentions":{"all":1}}`,
			failure{tidemark.Invalid, "mentions.all"}},
		{"a mention that is no id",
			`{"client_message_id":"c","content":"x","mentions":{"user_ids":["a b"]}}`,
			failure{tidemark.Invalid, "mentions.user_ids"}},
		{"too many mentions", `{"client_message_id":"c","content":"x","mentions":{"user_ids":["x"` +
			strings.Repeat(`,"x"`, tidemark.MaxMentions) + `]}}`,
			failure{tidemark.Invalid, "mentions.user_ids"}},
		{"a relation", `{"client_message_id":"c","content":"x","relation":{"sequence":1}}`, ok},
		{"no relation", `{"client_message_id":"c","content":"x","relation":null}`, ok},
		{"an edit",
			`{"client_message_id":"c","content":"x","kind":"edit","relation":{"sequence":1}}`, ok},
		{"a reaction", `{"client_message_id":"c","kind":"react",` +
			`"relation":{"sequence":1,"emoji":"👍"}}`, ok},
		{"a pin",
			`{"client_message_id":"c","kind":"pin","relation":{"sequence":1,"emoji":null}}`, ok},
		{"an emoji of another type", `{"client_message_id":"c","kind":"react",` +
			`"relation":{"sequence":1,"emoji":1}}`, failure{tidemark.Invalid, "relation.emoji"}},
		{"half an emoji", `{"client_message_id":"c","kind":"react",` +
			`"relation":{"sequence":1,"emoji":"\ud83d"}}`,
			failure{tidemark.Invalid, "relation.emoji"}},
		{"a relation of another type", `{"client_message_id":"c","content":"x","relation":1}`,
			failure{tidemark.Invalid, "relation"}},
		{"a relation to nothing", `{"client_message_id":"c","content":"x","relation":{}}`,
			failure{tidemark.Invalid, "relation.sequence"}},
		{"a relation to 0", `{"client_message_id":"c","content":"x","relation":{"sequence":0}}`,
			failure{tidemark.InvalidSequence, "relation.sequence"}},
		{"a relation to 2^53",
			`{"client_message_id":"c","content":"x","relation":{"sequence":9007199254740992}}`,
			failure{tidemark.InvalidSequence, "relation.sequence"}},
		{"a time",
			`{"client_message_id":"c","content":"x","send_by":"2026-01-31T18:00:00.5Z"}`, ok},
		{"a time elsewhere",
			`{"client_message_id":"c","content":"x","send_by":"2026-01-31T18:00:00+05:30"}`, ok},
		{"no time", `{"client_message_id":"c","content":"x","send_by":null}`, ok},
		{"a time without a zone",
			`{"client_message_id":"c","content":"x","send_by":"2026-01-31T18:00:00"}`,
			failure{tidemark.Invalid, "send_by"}},
		{"a time with a comma",
			`{"client_message_id":"c","content":"x","send_by":"2026-01-31T18:00:00,5Z"}`,
			failure{tidemark.Invalid, "send_by"}},
		{"a time a day off UTC",
			`{"client_message_id":"c","content":"x","send_by":"2026-01-31T18:00:00+24:00"}`,
			failure{tidemark.Invalid, "send_by"}},
		{"a time more than a day off UTC",
			`{"client_message_id":"c","content":"x","send_by":"2026-01-31T18:00:00+25:00"}`,
			failure{tidemark.Invalid, "send_by"}},
		{"an offset of 60 minutes",
			`{"client_message_id":"c","content":"x","send_by":"2026-01-31T18:00:00-01:60"}`,
			failure{tidemark.Invalid, "send_by"}},
		{"an hour of one digit",
			`{"client_message_id":"c","content":"x","send_by":"2026-01-31T8:00:00Z"}`,
			failure{tidemark.Invalid, "send_by"}},
		{"a time as a number", `{"client_message_id":"c","content":"x","send_by":1769882400}`,
			failure{tidemark.Invalid, "send_by"}},
		{"seen of the wrong type", `{"client_message_id":"c","content":"x","seen_sequence":"1"}`,
			failure{tidemark.Invalid, "seen_sequence"}},
		{"seen of 0", `{"client_message_id":"c","content":"x","seen_sequence":0}`, ok},
		{"seen below 0", `{"client_message_id":"c","content":"x","seen_sequence":-1}`,
			failure{tidemark.InvalidSequence, "seen_sequence"}},
		{"too large",
			`{"client_message_id":"c","content":"` + strings.Repeat("x", wire.MaxBody) + `"}`,
			failure{tidemark.TooLarge, "409600"}},
		{"deep", strings.Repeat("[", 60_000) + strings.Repeat("]", 60_000),
			failure{tidemark.Invalid, "depth"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := wire.DecodeSend([]byte(tt.raw), "team")
			tt.want.check(t, err)
		})
	}
}

func TestDecodeSend_everything(t *testing.T) {
	const raw = `{"chat_id":"ignored","client_message_id":"c",` +
		`"content":"\b\f\n\r\t\/\\\"\u00fc 👋 \ud83d\udc4b","content_type":"text/markdown",` +
		`"attachments":[{ "a" : [1, 2] }],"metadata":{"b" : null},"kind":"system",` +
		`"mentions":{"all":true,"user_ids":["v","u","v"]},"send_by":"2026-01-31T20:00:00+02:00",` +
		`"seen_sequence":9007199254740991}`
	got, err := wire.DecodeSend([]byte(raw), "team")
	if err != nil {
		t.Fatal(err)
	}
	want := tidemark.Draft{
		Seen:   tidemark.SeenThrough(tidemark.MaxSequence),
		SendBy: time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC),
		ChatID: "team", ClientMessageID: "c", Content: "\b\f\n\r\t/\\\"ü 👋 👋",
		Kind:        tidemark.KindSystem,
		Mentions:    tidemark.NewMentions(true, []tidemark.UserID{"u", "v"}),
		ContentType: "text/markdown",
		Attachments: []byte(`[{ "a" : [1, 2] }]`),
		Metadata:    []byte(`{"b" : null}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeSend_content_type_is_plain_text_if_absent(t *testing.T) {
	got, err := wire.DecodeSend([]byte(`{"client_message_id":"c","content":"x"}`), "team")
	if err != nil || got.ContentType != tidemark.DefaultContentType {
		t.Errorf("content type = %q, %v", got.ContentType, err)
	}
}

func TestDecodeState_sequences(t *testing.T) {
	tests := []struct {
		value string
		want  failure
	}{
		{`1`, ok},
		{`9007199254740991`, ok},
		{`0`, failure{tidemark.InvalidSequence, "last_acked_sequence"}},
		{`-0`, failure{tidemark.InvalidSequence, "last_acked_sequence"}},
		{`-1`, failure{tidemark.InvalidSequence, "last_acked_sequence"}},
		{`9007199254740992`, failure{tidemark.InvalidSequence, "last_acked_sequence"}},
		{`18446744073709551617`, failure{tidemark.InvalidSequence, "last_acked_sequence"}},
		{`-99999999999999999999999`, failure{tidemark.InvalidSequence, "last_acked_sequence"}},
		{`1.5`, failure{tidemark.Invalid, "last_acked_sequence"}},
		{`1.0`, failure{tidemark.Invalid, "last_acked_sequence"}},
		{`1e400`, failure{tidemark.Invalid, "last_acked_sequence"}},
		{`"1"`, failure{tidemark.Invalid, "last_acked_sequence"}},
		{`true`, failure{tidemark.Invalid, "last_acked_sequence"}},
		{`{}`, failure{tidemark.Invalid, "last_acked_sequence"}},
		{`[1]`, failure{tidemark.Invalid, "last_acked_sequence"}},
		{`null`, failure{tidemark.Invalid, "needed"}},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			_, err := wire.DecodeState([]byte(`{"last_acked_sequence":`+tt.value+`}`), "team")
			tt.want.check(t, err)
		})
	}
}

func TestDecodeState_one_bad_field_refuses_all(t *testing.T) {
	_, err := wire.DecodeState([]byte(`{"last_acked_sequence":3,"last_read_sequence":0}`), "team")
	failure{tidemark.InvalidSequence, "last_read_sequence"}.check(t, err)
	got, err := wire.DecodeState([]byte(`{"last_acked_sequence":3,"last_read_sequence":2}`), "team")
	want := server.Ack{Chat: "team", Acked: 3, Read: 2}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestDecodeAcks_incarnation_is_that_of_all(t *testing.T) {
	for _, raw := range []string{
		`{"chats":[{"chat_id":"a","last_acked_sequence":1}],"incarnation":"i"}`,
		`{"incarnation":"i","chats":[{"chat_id":"a","last_acked_sequence":1}]}`,
	} {
		got, err := wire.DecodeAcks([]byte(raw))
		want := []wire.AckItem{{Ack: server.Ack{Chat: "a", Acked: 1, Incarnation: "i"}}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got:\n%s", raw, err, diff)
		}
	}
	_, err := wire.DecodeAcks([]byte(`{"chats":[],"incarnation":"a b"}`))
	if tidemark.CodeOf(err) != tidemark.Invalid {
		t.Errorf("an impossible incarnation: got %v", err)
	}
}

func TestDecodeAcks_an_item_fails_alone(t *testing.T) {
	items, err := wire.DecodeAcks([]byte(`{"chats":[{"chat_id":"a","last_acked_sequence":1},` +
		`{"chat_id":"b","last_acked_sequence":0},` +
		`{"chat_id":"c","last_read_sequence":1.5,"last_acked_sequence":0},` +
		`{"chat_id":"d"},{"chat_id":"e","last_read_sequence":2}]}`))
	if err != nil {
		t.Fatal(err)
	}
	type short struct {
		chat tidemark.ChatID
		code tidemark.Code
	}
	var got []short
	for _, item := range items {
		got = append(got, short{item.Chat, tidemark.CodeOf(item.Err)})
	}
	want := []short{
		{"a", ""}, {"b", tidemark.InvalidSequence}, {"c", tidemark.Invalid},
		{"d", tidemark.Invalid}, {"e", ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(short{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecode_errors_name_the_place(t *testing.T) {
	acks := func(raw string) error { _, err := wire.DecodeAcks([]byte(raw)); return err }
	sync := func(raw string) error { _, err := wire.DecodeSync([]byte(raw)); return err }
	create := func(raw string) error { _, err := wire.DecodeCreateChat([]byte(raw)); return err }
	rename := func(raw string) error { _, err := wire.DecodeChatChange([]byte(raw)); return err }
	users := func(raw string) error { _, _, err := wire.DecodeAddMembers([]byte(raw)); return err }
	tests := []struct {
		name   string
		decode func(string) error
		raw    string
		want   failure
	}{
		{"acks without chats", acks, `{}`, failure{tidemark.Invalid, "chats"}},
		{"acks: chats is no array", acks, `{"chats":{}}`,
			failure{tidemark.Invalid, "chats must be an array"}},
		{"acks: an element is no object", acks, `{"chats":[1]}`,
			failure{tidemark.Invalid, "chats[0]"}},
		{"acks: no chat_id", acks,
			`{"chats":[{"chat_id":"a","last_acked_sequence":1},{"last_acked_sequence":1}]}`,
			failure{tidemark.Invalid, "chats[1]"}},
		{"acks: chat_id is no text", acks, `{"chats":[{"chat_id":7}]}`,
			failure{tidemark.Invalid, "chats[0]"}},
		{"acks: none", acks, `{"chats":[]}`, ok},
		{"sync: nothing", sync, `{}`, ok},
		{"sync: 0 is a cursor", sync, `{"chats":[{"chat_id":"a","last_acked_sequence":0}]}`, ok},
		{"sync: negative cursor", sync, `{"chats":[{"chat_id":"a","last_acked_sequence":-1}]}`,
			failure{tidemark.InvalidSequence, "chats[0]: last_acked_sequence"}},
		{"sync: cursor of 2^53", sync,
			`{"chats":[{"chat_id":"a","last_acked_sequence":9007199254740992}]}`,
			failure{tidemark.InvalidSequence, "chats[0]"}},
		{"sync: text as cursor", sync, `{"chats":[{"chat_id":"a","last_acked_sequence":"1"}]}`,
			failure{tidemark.Invalid, "chats[0]"}},
		{"sync: no cursor", sync, `{"chats":[{"chat_id":"a"}]}`,
			failure{tidemark.Invalid, "last_acked_sequence"}},
		{"sync: no chat_id", sync, `{"chats":[{"last_acked_sequence":1}]}`,
			failure{tidemark.Invalid, "in chats[0]: chat_id is missing"}},
		{"sync: limit of 0", sync, `{"limit":0}`, failure{tidemark.Invalid, "limit"}},
		{"sync: limit is a text", sync, `{"limit":"5"}`, failure{tidemark.Invalid, "limit"}},
		{"sync: limit is large", sync, `{"limit":99999999999999999999}`, ok},
		{"sync: status_updates is a number", sync, `{"status_updates":1}`,
			failure{tidemark.Invalid, "status_updates"}},
		{"create: nothing", create, `{}`, failure{tidemark.Invalid, "type"}},
		{"create: no members", create, `{"type":"group"}`, failure{tidemark.Invalid, "member_ids"}},
		{"create: bad type", create, `{"type":"channel","member_ids":[]}`,
			failure{tidemark.Invalid, "type"}},
		{"create: bad member", create, `{"type":"group","member_ids":["a",""]}`,
			failure{tidemark.Invalid, "member_ids"}},
		{"create: bad history", create, `{"type":"group","member_ids":[],"history":""}`,
			failure{tidemark.Invalid, "history"}},
		{"create: a group without a key", create, `{"type":"group","member_ids":[]}`,
			failure{tidemark.Invalid, "client_chat_id"}},
		{"create: alone", create, `{"type":"group","member_ids":[],"client_chat_id":"k"}`, ok},
		{"create: a direct chat needs no key", create, `{"type":"direct","member_ids":["a"]}`, ok},
		{"rename: nothing", rename, `{}`, failure{tidemark.Invalid, "name"}},
		{"rename: to nothing", rename, `{"name":""}`, ok},
		{"users: nobody", users, `{"user_ids":[]}`, failure{tidemark.Invalid, "user_ids"}},
		{"users: not a list", users, `{"user_ids":"a"}`, failure{tidemark.Invalid, "user_ids"}},
		{"users: one", users, `{"user_ids":["a"]}`, ok},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.want.check(t, tt.decode(tt.raw)) })
	}
}

func TestDecodeSync_everything(t *testing.T) {
	got, err := wire.DecodeSync([]byte(`{"chats":[{"chat_id":"a","last_acked_sequence":0},` +
		`{"chat_id":"b","last_acked_sequence":5,"incarnation":"i"}],"session_id":"s",` +
		`"limit":5000,"status_updates":true}`))
	if err != nil {
		t.Fatal(err)
	}
	want := server.SyncRequest{
		Cursors:  []server.Cursor{{Chat: "a"}, {Chat: "b", Acked: 5, Incarnation: "i"}},
		Session:  "s",
		Limit:    wire.MaxLimit,
		Statuses: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeCreateChat_everything(t *testing.T) {
	got, err := wire.DecodeCreateChat([]byte(`{"type":"group","member_ids":["a","b"],"name":"Ü",` +
		`"chat_id":"g","history":"since_join"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := server.CreateChatRequest{
		ChatID:    "g",
		Type:      tidemark.Group,
		Name:      "Ü",
		History:   tidemark.HistorySinceJoin,
		MemberIDs: []tidemark.UserID{"a", "b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeFrame_every_type(t *testing.T) {
	tests := []struct {
		raw  string
		want wire.Frame
	}{
		{`{"type":"send_message","request_id":"r","payload":{"chat_id":"a",` +
			`"client_message_id":"c","content":"x"}}`,
			wire.Frame{Type: wire.FrameSend, RequestID: "r",
				Send: tidemark.Draft{ChatID: "a", ClientMessageID: "c", Content: "x",
					Kind: tidemark.KindMessage, ContentType: "text/plain"}}},
		{`{"type":"ack","payload":{"chat_id":"a","last_acked_sequence":3}}`,
			wire.Frame{Type: wire.FrameAck, Acks: []server.Ack{{Chat: "a", Acked: 3}}}},
		{`{"type":"ack","payload":{"chats":[{"chat_id":"a","last_acked_sequence":3},` +
			`{"chat_id":"b","last_acked_sequence":0},{"chat_id":"c","last_acked_sequence":1,` +
			`"last_read_sequence":1}]}}`,
			wire.Frame{Type: wire.FrameAck,
				Acks:    []server.Ack{{Chat: "a", Acked: 3}, {Chat: "c", Acked: 1, Read: 1}},
				Refused: 1}},
		{`{"payload":{"chat_id":"a","last_read_sequence":3},"type":"read"}`,
			wire.Frame{Type: wire.FrameRead, Acks: []server.Ack{{Chat: "a", Read: 3}}}},
		{`{"type":"sync_request","payload":{"chats":[{"chat_id":"a","last_acked_sequence":3}]}}`,
			wire.Frame{Type: wire.FrameSync,
				Sync: server.SyncRequest{Cursors: []server.Cursor{{Chat: "a", Acked: 3}},
					Limit: wire.DefaultLimit}}},
		{`{"type":"typing","payload":{"chat_id":"a"}}`,
			wire.Frame{Type: wire.FrameTyping, Typing: "a"}},
		{`{"type":"look","payload":{"chat_ids":["a","b"]}}`,
			wire.Frame{Type: wire.FrameLook, Look: []tidemark.ChatID{"a", "b"}}},
		{`{"type":"ping","request_id":"r"}`, wire.Frame{Type: wire.FramePing, RequestID: "r"}},
	}
	for _, tt := range tests {
		got, err := wire.DecodeFrame([]byte(tt.raw))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got:\n%s", tt.raw, err, diff)
		}
	}
}

func TestDecodeFrame_errors_keep_what_the_answer_needs(t *testing.T) {
	tests := []struct {
		raw  string
		kind wire.FrameType
		id   string
		want failure
	}{
		{`nonsense`, "", "", failure{tidemark.Invalid, "malformed"}},
		{`[]`, "", "", failure{tidemark.Invalid, "object"}},
		{`{"request_id":"r"}`, "", "r", failure{tidemark.Invalid, "type"}},
		{`{"type":1,"request_id":"r"}`, "", "r", failure{tidemark.Invalid, "type"}},
		{`{"type":"shout","request_id":"r"}`, "shout", "r", failure{tidemark.Invalid, `"shout"`}},
		{`{"type":"send_message","request_id":"r","payload":{}}`, wire.FrameSend, "r",
			failure{tidemark.Invalid, "chat_id"}},
		{`{"type":"send_message","request_id":"r","payload":[]}`, wire.FrameSend, "r",
			failure{tidemark.Invalid, "payload"}},
		{`{"type":"send_message","request_id":"r"}`, wire.FrameSend, "r",
			failure{tidemark.Invalid, "chat_id"}},
		{`{"type":"typing","request_id":"r","payload":{}}`, wire.FrameTyping, "r",
			failure{tidemark.Invalid, "chat_id"}},
		{`{"type":"look","request_id":"r","payload":{}}`, wire.FrameLook, "r",
			failure{tidemark.Invalid, "chat_ids"}},
		{`{"request_id":5,"type":"ack","payload":{"chat_id":"a","last_acked_sequence":3}}`,
			wire.FrameAck, "", failure{tidemark.Invalid, "request_id"}},
		{`{"type":"ack","payload":{"last_acked_sequence":3}}`, wire.FrameAck, "",
			failure{tidemark.Invalid, "chat_id"}},
		{`{"type":"read","payload":7}`, wire.FrameRead, "", failure{tidemark.Invalid, "payload"}},
		{`{"type":"ping","request_id":"` + strings.Repeat("r", 129) + `"}`, wire.FramePing, "",
			failure{tidemark.Invalid, "request_id"}},
	}
	for _, tt := range tests {
		got, err := wire.DecodeFrame([]byte(tt.raw))
		tt.want.check(t, err)
		if got.Type != tt.kind || got.RequestID != tt.id {
			t.Errorf("%s: type %q, request_id %q; want %q, %q",
				tt.raw, got.Type, got.RequestID, tt.kind, tt.id)
		}
	}
}

// An item with a chat_id that is not an id fails alone; the items beside it are valid.
func TestDecodeAcks_impossible_chat_fails_alone(t *testing.T) {
	items, err := wire.DecodeAcks([]byte(`{"chats":[{"chat_id":"a","last_acked_sequence":1},` +
		`{"chat_id":"a b","last_acked_sequence":2}]}`))
	if err != nil || len(items) != 2 {
		t.Fatalf("got %v, %v, want two items", items, err)
	}
	if items[0].Err != nil || tidemark.CodeOf(items[1].Err) != tidemark.Invalid {
		t.Errorf("errors of the items: %v and %v, want none and %s",
			items[0].Err, items[1].Err, tidemark.Invalid)
	}
}

func TestSilent_acks_and_reads_only(t *testing.T) {
	for kind, want := range map[wire.FrameType]bool{
		wire.FrameAck: true, wire.FrameRead: true, wire.FrameSend: false, wire.FrameSync: false,
		wire.FrameTyping: false, wire.FrameLook: false, wire.FramePing: false, "": false,
	} {
		if got := kind.Silent(); got != want {
			t.Errorf("%q.Silent() = %t", kind, got)
		}
	}
}

func TestDecode_errors_have_the_parameter(t *testing.T) {
	sync := func(raw string) error { _, err := wire.DecodeSync([]byte(raw)); return err }
	create := func(raw string) error { _, err := wire.DecodeCreateChat([]byte(raw)); return err }
	send := func(raw string) error { _, err := wire.DecodeSend([]byte(raw), "c"); return err }
	acks := func(raw string) error { _, err := wire.DecodeAcks([]byte(raw)); return err }
	mutes := func(raw string) error {
		_, err := wire.DecodePushSettings([]byte(`{"mutes":` + raw + `}`))
		return err
	}
	outlet := func(raw string) error { _, err := wire.DecodeOutletChange([]byte(raw)); return err }
	for _, tt := range []struct {
		err  error
		want string
	}{
		{sync(`{"limit":0}`), "limit"},
		{sync(`{"chats":[{"chat_id":"a","last_acked_sequence":-1}]}`),
			"chats[0].last_acked_sequence"},
		{sync(`{"chats":[{"chat_id":"a","last_acked_sequence":0},{}]}`), "chats[1].chat_id"},
		{sync(`{"chats":[{"chat_id":"a","last_acked_sequence":0},7]}`), "chats[1]"},
		{sync(`[]`), ""},
		{create(`{"type":"channel","member_ids":[]}`), "type"},
		{create(`{"type":"group","member_ids":["a",""]}`), "member_ids[1]"},
		{create(`{"type":"group","member_ids":["a",7]}`), "member_ids[1]"},
		{acks(`{"chats":[7]}`), "chats[0]"},
		{acks(`{"chats":[{"chat_id":7}]}`), "chats[0].chat_id"},
		{send(`{"client_message_id":"m","content":"x","mentions":{"user_ids":[null]}}`),
			"mentions.user_ids[0]"},
		{mutes(`["c"]`), "mutes[0]"},
		{mutes(`[{"chat_id":"c"},{}]`), "mutes[1].chat_id"},
		{mutes(`[{"chat_id":"c","ends_at":1}]`), "mutes[0].ends_at"},
		{outlet(`{"events":["message.persisted",7]}`), "events[1]"},
		{send(`{"content":"x"}`), "client_message_id"},
	} {
		if tidemark.CodeOf(tt.err) == "" || tidemark.ParamOf(tt.err) != tt.want {
			t.Errorf("%v: the parameter is %q, want %q", tt.err, tidemark.ParamOf(tt.err), tt.want)
		}
	}
}

// TestDecode_times_at_the_ends: no time is taken for an absent one, and each one can be written.
func TestDecode_times_at_the_ends(t *testing.T) {
	for _, tt := range []struct {
		text string
		want string
	}{
		{"0001-01-01T00:00:00Z", "0001-01-01T00:00:00.001Z"},
		{"0001-01-01T14:00:00+14:00", "0001-01-01T00:00:00.001Z"},
		{"0001-01-01T00:00:00+14:00", ""},
		{"0000-12-31T23:59:59Z", ""},
		{"9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"},
		{"9999-12-31T23:59:59-14:00", ""},
	} {
		replay, err := wire.DecodeOutletReplay([]byte(`{"from_created_at":"` + tt.text + `"}`))
		draft, sendErr := wire.DecodeSend([]byte(
			`{"client_message_id":"m","content":"x","send_by":"`+tt.text+`"}`), "c")
		settings, muteErr := wire.DecodePushSettings([]byte(
			`{"mutes":[{"chat_id":"c","ends_at":"` + tt.text + `"}]}`))
		if tt.want == "" {
			for _, err := range []error{err, sendErr, muteErr} {
				(failure{tidemark.Invalid, "1 to 9999"}).check(t, err)
			}
			continue
		}
		if err := errors.Join(err, sendErr, muteErr); err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		for field, got := range map[string]time.Time{
			"from_created_at": replay.Since, "send_by": draft.SendBy,
			"ends_at": settings.Mutes[0].Ends,
		} {
			if text := got.Format(time.RFC3339Nano); text != tt.want {
				t.Errorf("%s of %s is %s, want %s", field, tt.text, text, tt.want)
			}
		}
	}
}
