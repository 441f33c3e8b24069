package tidemark_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// wireMessage is a message that encoding/json can write.
type wireMessage struct {
	ChatID          string          `json:"chat_id"`
	Sequence        uint64          `json:"sequence"`
	MessageID       string          `json:"message_id"`
	SenderID        string          `json:"sender_id"`
	ClientMessageID string          `json:"client_message_id"`
	Content         string          `json:"content"`
	ContentType     string          `json:"content_type"`
	Kind            string          `json:"kind"`
	Relation        any             `json:"relation"`
	Revision        any             `json:"revision"`
	Mentions        any             `json:"mentions"`
	Attachments     json.RawMessage `json:"attachments"`
	Metadata        json.RawMessage `json:"metadata"`
	CreatedAt       string          `json:"created_at"`
	MembersVersion  uint64          `json:"members_version"`
}

func FuzzMessage_AppendJSON(f *testing.F) {
	f.Add("c", uint64(1), "hello", "text/plain", "", int64(0))
	f.Add("chat:1", uint64(tidemark.MaxSequence), "q\"uo\\te / <b>&amp;</b>", "text/html",
		`[{"a":1}]`, int64(1_767_225_600_007))
	f.Add("", uint64(0), "\x00\x01\x1f\x7f\b\f\n\r\t", "\n", "{\r\n\t\"a\" :\n [1,\n\"x\\n\"] }",
		int64(-1))
	f.Add("é", uint64(7), "\u2028\u2029😀\xff\xed\xa0\x80\xc3", "\xf0\x9f\x98",
		`[{"a":"\u2028é"}]`, int64(1_000))
	f.Add("c", uint64(9), strings.Repeat("\ufffd", 3)+"\xe2\x80", "",
		`{"a": {"b": null} }`, int64(1<<40))
	f.Fuzz(func(
		t *testing.T, id string, sequence uint64,
		content, contentType, raw string, millis int64,
	) {
		m := tidemark.Message{
			ChatID:          tidemark.ChatID(id),
			Sequence:        tidemark.Sequence(sequence),
			MessageID:       tidemark.MessageID(id + "m"),
			SenderID:        tidemark.UserID(contentType),
			ClientMessageID: content,
			Content:         content,
			ContentType:     contentType,
			Kind:            tidemark.KindMessage,
			CreatedAt:       time.UnixMilli(millis % 250_000_000_000_000).UTC(),
		}
		if m.CreatedAt.Year() < 0 || m.CreatedAt.Year() > 9999 {
			return // encoding/json cannot write such a year.
		}
		want := wireMessage{Kind: "message", Attachments: json.RawMessage("[]")}
		switch valid := json.Valid([]byte(raw)); {
		case valid && strings.HasPrefix(raw, "["):
			m.Attachments = json.RawMessage(raw)
			want.Attachments = m.Attachments
		case valid && strings.HasPrefix(raw, "{"):
			m.Metadata = json.RawMessage(raw)
			want.Metadata = m.Metadata
		}
		got := m.AppendJSON([]byte("prefix"))
		if !bytes.HasPrefix(got, []byte("prefix")) {
			t.Fatalf("the bytes before the message are lost: %q", got)
		}
		got = got[len("prefix"):]
		want.ChatID, want.Sequence, want.MessageID = id, sequence, id+"m"
		want.SenderID, want.ClientMessageID = contentType, content
		want.Content, want.ContentType = content, contentType
		want.CreatedAt = m.CreatedAt.Format("2006-01-02T15:04:05.000Z")
		compareJSON(t, got, want)
	})
}

// compareJSON fails the test unless got is one line of valid JSON. It must decode like the JSON
// that encoding/json writes for want, with the fields in the same order.
func compareJSON(t *testing.T, got []byte, want any) {
	t.Helper()
	if bytes.ContainsAny(got, "\n\r") {
		t.Fatalf("got a line break in %q", got)
	}
	if !json.Valid(got) {
		t.Fatalf("got no valid JSON: %q", got)
	}
	reference, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded(t, reference), decoded(t, got)); diff != "" {
		t.Fatalf("decoded (-want +got):\n%s", diff)
	}
	// A streaming reader sees the order, so compare key by key.
	if diff := cmp.Diff(tokens(t, reference), tokens(t, got)); diff != "" {
		t.Fatalf("tokens (-want +got):\n%s", diff)
	}
}

func decoded(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func tokens(t *testing.T, b []byte) []json.Token {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var all []json.Token
	for d.More() {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, token)
	}
	return all
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{
		"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "\u2028x\u2029", "\xff\xfe", "\xed\xa0\x80",
		"😀é\ufffd", "\xe2\x80", "a\u2027\u202a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := tidemark.AppendString(nil, s)
		compareJSON(t, got, s)
		if !utf8.Valid(got) {
			t.Fatalf("got no valid UTF-8: %q", got)
		}
		if bytes.ContainsAny(got, "\u2028\u2029") {
			t.Fatalf("got a line separator in %q", got)
		}
	})
}

// TestAppendString_at_each_place puts each byte at each place of a text of 20 bytes.
func TestAppendString_at_each_place(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			text := []byte("0123456789 abc~\x7fefgh")[:20]
			text[at] = byte(c)
			var got string
			line := tidemark.AppendString(nil, string(text))
			err := json.Unmarshal(line, &got)
			want := strings.ToValidUTF8(string(text), "\ufffd")
			if err != nil || got != want || bytes.ContainsAny(line, "\n\r\x00\x1f") {
				t.Errorf("%q: got %q, %v", text, line, err)
			}
		}
	}
}

// TestAppendTime_is_as_AppendFormat looks at days over many years, in each a little later.
func TestAppendTime_is_as_AppendFormat(t *testing.T) {
	for days := -800_000; days < 3_100_000; days += 97 {
		at := time.Unix(int64(days)*86_400+int64(days*days%86_400), int64(days)*1e6%1e9)
		want := `"` + at.UTC().Format(tidemark.TimeLayout) + `"`
		if got := string(tidemark.AppendTime(nil, at)); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func TestAppendTime_is_RFC_3339_in_UTC_with_milliseconds(t *testing.T) {
	for _, test := range []struct {
		time time.Time
		want string
	}{
		{time.Time{}, `null`},
		{time.Date(2026, 1, 31, 10, 0, 5, 0, time.UTC), `"2026-01-31T10:00:05.000Z"`},
		{time.Date(2026, 1, 31, 10, 0, 5, 7_999_999, time.UTC), `"2026-01-31T10:00:05.007Z"`},
		{
			time.Date(2026, 1, 31, 1, 0, 5, 120_000_000, time.FixedZone("", 2*3600)),
			`"2026-01-30T23:00:05.120Z"`,
		},
	} {
		if got := string(tidemark.AppendTime(nil, test.time)); got != test.want {
			t.Errorf("%v: got %s, want %s", test.time, got, test.want)
		}
	}
}

func TestAppendJSON_of_every_payload(t *testing.T) {
	type encoder interface{ AppendJSON(b []byte) []byte }
	boundary := tidemark.Boundary{Acked: 4, Read: 2, AckedAt: 9}
	for name, test := range map[string]struct {
		payload encoder
		want    string
	}{
		"message": {
			&tidemark.Message{
				ChatID:          "c",
				Sequence:        7,
				MessageID:       "m",
				SenderID:        "u",
				ClientMessageID: "k",
				Content:         "hé\n",
				ContentType:     "text/plain",
				Kind:            tidemark.KindSystem,
				Mentions:        tidemark.NewMentions(true, []tidemark.UserID{"a", "b"}),
				Attachments:     json.RawMessage("[{\n \"a\": 1 }]"),
				Metadata:        json.RawMessage("{\r\n}"),
				CreatedAt:       time.UnixMilli(7),
				MembersVersion:  9,
			},
			`{"chat_id":"c","sequence":7,"message_id":"m","sender_id":"u",` +
				`"client_message_id":"k","content":"hé\n","content_type":"text/plain",` +
				`"kind":"system","relation":null,"revision":null,` +
				`"mentions":{"all":true,"user_ids":["a","b"]},` +
				`"attachments":[{ "a": 1 }],"metadata":{},` +
				`"created_at":"1970-01-01T00:00:00.007Z","members_version":9}`,
		},
		"relation": {
			&tidemark.Message{
				ChatID: "c", Sequence: 7, Kind: tidemark.KindEdit, CreatedAt: time.UnixMilli(7),
				Relation: &tidemark.Relation{Sequence: 2, Target: &tidemark.Message{
					ChatID: "c", Sequence: 2, Content: "x", Kind: tidemark.KindMessage,
					CreatedAt: time.UnixMilli(3),
					Revision: &tidemark.Revision{
						Sequence: 7, Kind: tidemark.KindEdit, By: "u", At: time.UnixMilli(7),
						Edits: 3,
					},
				}},
			},
			`{"chat_id":"c","sequence":7,"message_id":"","sender_id":"","client_message_id":"",` +
				`"content":"","content_type":"","kind":"edit",` +
				`"relation":{"sequence":2,"sequences":null,"emoji":null,"target":` +
				`{"chat_id":"c","sequence":2,"message_id":"","sender_id":"",` +
				`"client_message_id":"","content":"x","content_type":"","kind":"message",` +
				`"relation":null,"revision":{"sequence":7,"kind":"edit","by":"u",` +
				`"revised_at":"1970-01-01T00:00:00.007Z"},"mentions":null,"attachments":[],` +
				`"metadata":null,"created_at":"1970-01-01T00:00:00.003Z","members_version":0}},` +
				`"revision":null,"mentions":null,"attachments":[],"metadata":null,` +
				`"created_at":"1970-01-01T00:00:00.007Z","members_version":0}`,
		},
		"relation to what the reader may not see": {
			&tidemark.Message{
				Kind: tidemark.KindRedact, CreatedAt: time.UnixMilli(7),
				Relation: &tidemark.Relation{Sequence: 2},
			},
			`{"chat_id":"","sequence":0,"message_id":"","sender_id":"","client_message_id":"",` +
				`"content":"","content_type":"","kind":"redact",` +
				`"relation":{"sequence":2,"sequences":null,"emoji":null,"target":null},` +
				`"revision":null,"mentions":null,"attachments":[],"metadata":null,` +
				`"created_at":"1970-01-01T00:00:00.007Z","members_version":0}`,
		},
		"redaction of a list": {
			&tidemark.Message{
				Kind: tidemark.KindRedact, CreatedAt: time.UnixMilli(7),
				Relation: &tidemark.Relation{Sequences: []tidemark.Sequence{2, 5}},
			},
			`{"chat_id":"","sequence":0,"message_id":"","sender_id":"","client_message_id":"",` +
				`"content":"","content_type":"","kind":"redact",` +
				`"relation":{"sequence":2,"sequences":[2,5],"emoji":null,"target":null},` +
				`"revision":null,"mentions":null,"attachments":[],"metadata":null,` +
				`"created_at":"1970-01-01T00:00:00.007Z","members_version":0}`,
		},
		"reaction": {
			&tidemark.Message{
				Kind: tidemark.KindReact, CreatedAt: time.UnixMilli(7),
				Relation: &tidemark.Relation{Sequence: 2, Emoji: "👍\""},
			},
			`{"chat_id":"","sequence":0,"message_id":"","sender_id":"","client_message_id":"",` +
				`"content":"","content_type":"","kind":"react",` +
				`"relation":{"sequence":2,"sequences":null,"emoji":"👍\"","target":null},` +
				`"revision":null,"mentions":null,"attachments":[],"metadata":null,` +
				`"created_at":"1970-01-01T00:00:00.007Z","members_version":0}`,
		},
		"gap": {
			tidemark.Gap{ChatID: "c", From: 3, To: 9, Reason: tidemark.GapNotMember},
			`{"chat_id":"c","from_sequence":3,"to_sequence":9,"reason":"not_a_member"}`,
		},
		"status of a member": {
			tidemark.StatusUpdate{ChatID: "c", UserID: "u", Boundary: boundary},
			`{"chat_id":"c","scope":"member","user_id":"u","last_acked_sequence":4,` +
				`"last_read_sequence":2,"acked_at":"1970-01-01T00:00:00.009Z","read_at":null}`,
		},
		"status of all": {
			tidemark.StatusUpdate{ChatID: "c", Boundary: boundary},
			`{"chat_id":"c","scope":"chat","all_acked_sequence":4,"all_read_sequence":2}`,
		},
		"membership": {
			tidemark.MembershipChange{
				ChatID: "c", UserID: "u", Change: tidemark.Removed, Version: 3,
			},
			`{"chat_id":"c","user_id":"u","change":"removed","role":null,"members_version":3}`,
		},
		"membership with a role": {
			tidemark.MembershipChange{
				ChatID: "c", UserID: "u", Change: tidemark.RoleChanged, Role: tidemark.Admin,
				Version: 3,
			},
			`{"chat_id":"c","user_id":"u","change":"role_changed","role":"admin",` +
				`"members_version":3}`,
		},
		"session": {
			tidemark.SessionStart{
				Session:   "s",
				User:      "u",
				Resumed:   true,
				EventID:   12,
				Heartbeat: 20 * time.Second,
				Resume:    time.Minute,

				Incarnation: "i", Attachments: true,
			},
			`{"session_id":"s","user_id":"u","resumed":true,"event_id":12,` +
				`"heartbeat_seconds":20,"resume_seconds":60,"incarnation":"i","attachments":true}`,
		},
		"reset": {
			tidemark.Reset{Reason: tidemark.ResetOverflow},
			`{"reason":"overflow","chat_id":null,"through":null}`,
		},
		"reset of a chat": {
			tidemark.Reset{Reason: tidemark.ResetAhead, ChatID: "c"},
			`{"reason":"ahead","chat_id":"c","through":null}`,
		},
		"reset after a restore": {
			tidemark.Reset{Reason: tidemark.ResetRestored, ChatID: "c"},
			`{"reason":"restored","chat_id":"c","through":0}`,
		},
		"chat updated": {
			tidemark.ChatUpdate{ChatID: "c", Version: 7}, `{"chat_id":"c","version":7}`,
		},
		"own state": {
			tidemark.OwnState{
				DeliveryState: tidemark.DeliveryState{UserID: "u", ChatID: "c", Acked: 9, Read: 7},
				Unread:        3, Mentions: 1,
			},
			`{"chat_id":"c","last_acked_sequence":9,"last_read_sequence":7,` +
				`"unread_from_sequence":null,"unread_count":3,"mention_count":1}`,
		},
		"own state with a mark": {
			tidemark.OwnState{
				DeliveryState: tidemark.DeliveryState{
					ChatID: "c", Acked: 9, Read: 7, UnreadFrom: 2,
				},
			},
			`{"chat_id":"c","last_acked_sequence":9,"last_read_sequence":7,` +
				`"unread_from_sequence":2,"unread_count":0,"mention_count":0}`,
		},
		"typing": {
			tidemark.Typing{ChatID: "c", UserID: "u"},
			`{"chat_id":"c","user_id":"u","expires_in_seconds":6}`,
		},
		"presence": {
			&tidemark.Presence{ChatID: "c", Members: []tidemark.MemberPresence{
				{UserID: "u", Online: true}, {UserID: "v", LastSeen: 9},
			}},
			`{"chat_id":"c","online_count":null,"members":[` +
				`{"user_id":"u","online":true,"last_seen_at":null},` +
				`{"user_id":"v","online":false,"last_seen_at":"1970-01-01T00:00:00.009Z"}]}`,
		},
		"presence of many": {
			&tidemark.Presence{ChatID: "c", Online: 51},
			`{"chat_id":"c","online_count":51,"members":null}`,
		},
		"problem": {
			tidemark.Problem{Code: tidemark.Invalid, Detail: "say \"hello\"", Param: "limit"},
			`{"code":"INVALID","detail":"say \"hello\"","param":"limit"}`,
		},
		"problem without a parameter": {
			tidemark.Problem{Code: tidemark.Internal},
			`{"code":"INTERNAL","detail":"","param":null}`,
		},
	} {
		got := test.payload.AppendJSON(nil)
		if string(got) != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, test.want)
		}
		if !json.Valid(got) {
			t.Errorf("%s: no valid JSON", name)
		}
	}
}

func TestMessage_AppendJSON_allocates_nothing_into_a_buffer_that_is_large_enough(t *testing.T) {
	draft := goodDraft()
	draft.Attachments = json.RawMessage(`[{"a":1}]`)
	m := draft.Message(7, 1)
	b := make([]byte, 0, 1_024)
	if got := testing.AllocsPerRun(100, func() { b = m.AppendJSON(b[:0]) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}
