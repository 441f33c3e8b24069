package transports_test

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

const (
	invalid  = "INVALID"
	sequence = "INVALID_SEQUENCE"
	tooLarge = "TOO_LARGE"
)

// field is a field of a body. body is a valid body with %s for the value.
type field struct {
	operation, name, body string
	bad                   []bad
}

func fields() []field {
	send := func(name string) string {
		if name == "client_message_id" {
			return `{"content":"x","client_message_id":%s}`
		}
		return `{"client_message_id":"bad","content":"x","` + name + `":%s}`
	}
	member := slices.DeleteFunc(badLists(), func(b bad) bool { return b.value == `["x"]` })
	// A text that is not an id fails its item alone, and not the whole request.
	notText := slices.DeleteFunc(badIDs(), func(b bad) bool {
		return strings.HasPrefix(b.value, `"`) && b.value != `""` &&
			!strings.Contains(b.value, `\u`)
	})
	newFile := func(name string) string {
		body := `{"name":"a","type":"a/b","size":1,"sha256":"` + strings.Repeat("0", 64) + `"}`
		field := regexp.MustCompile(quoted(name) + `:[^,}]*`)
		return field.ReplaceAllString(body, quoted(name)+":%s")
	}
	const source = `{"chat_id":"team","sequence":1}`
	const ack = `{"chat_id":"team","last_acked_sequence":1}`
	return []field{
		{"createChat", "type", `{"member_ids":["bob"],"type":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"channel"`, invalid},
				bad{`"Group"`, invalid}, bad{`null`, invalid})},
		{"createChat", "member_ids", `{"type":"group","client_chat_id":"k","member_ids":%s}`,
			append(member, bad{`["a b"]`, invalid}, bad{`[""]`, invalid}, bad{`null`, invalid},
				bad{ids(1_001), invalid})},
		{"createChat", "member_ids", `{"type":"direct","member_ids":%s}`,
			[]bad{{`[]`, invalid}, {`["ann"]`, invalid}, {`["x","y"]`, invalid}}},
		{"createChat", "name", `{"type":"group","client_chat_id":"k","member_ids":[],"name":%s}`,
			append(badTexts(), bad{quoted(strings.Repeat("n", 257)), tooLarge},
				bad{quoted(strings.Repeat("ü", 129)), tooLarge})},
		{"createChat", "chat_id", `{"type":"group","member_ids":[],"chat_id":%s}`, badIDs()},
		{"createChat", "client_chat_id", `{"type":"group","member_ids":[],"client_chat_id":%s}`,
			append(badIDs(), bad{`null`, invalid})},
		{"createChat", "history",
			`{"type":"group","client_chat_id":"k","member_ids":[],"history":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"none"`, invalid})},
		{"updateChat", "name", `{"name":%s}`,
			append(badTexts(), bad{`null`, invalid},
				bad{quoted(strings.Repeat("n", 257)), tooLarge})},
		{"updateChat", "keep_days", `{"keep_days":%s}`,
			[]bad{{`null`, invalid}, {`-1`, invalid}, {`1`, invalid}, {`7`, invalid},
				{`36501`, invalid}, {`30.5`, invalid}, {`3e1`, invalid}, {`"30"`, invalid},
				{`true`, invalid}, {`[]`, invalid}, {`{}`, invalid},
				{`99999999999999999999`, invalid}}},
		{"updateChat", "hold", `{"hold":%s}`, append(badBooleans(), bad{`null`, invalid})},
		{"updateChat", "read_receipts", `{"read_receipts":%s}`,
			append(badTexts(), bad{`null`, invalid}, bad{`""`, invalid}, bad{`"on"`, invalid},
				bad{`"default"`, invalid}, bad{`true`, invalid})},
		{"addMembers", "user_ids", `{"user_ids":%s}`,
			append(member, bad{`[]`, invalid}, bad{`null`, invalid}, bad{`["ü"]`, invalid},
				bad{ids(1_001), invalid})},
		{"putLook", "chat_ids", `{"chat_ids":%s}`,
			append(member, bad{`null`, invalid}, bad{`["ü"]`, invalid}, bad{ids(21), invalid})},
		{"putPresenceSettings", "visible", `{"visible":%s}`,
			append(badBooleans(), bad{`null`, invalid})},
		{"putReceiptsSettings", "chat_id", `{"chat_id":%s,"read_receipts":"on"}`, badIDs()},
		{"putReceiptsSettings", "read_receipts", `{"read_receipts":%s}`,
			append(badTexts(), bad{`null`, invalid}, bad{`""`, invalid}, bad{`"default"`, invalid},
				bad{`"hidden"`, invalid}, bad{`true`, invalid})},
		{"sendMessage", "client_message_id", send("client_message_id"),
			append(badIDs(), bad{`null`, invalid})},
		{"sendMessage", "content", `{"client_message_id":"bad","content":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`null`, invalid},
				bad{quoted(strings.Repeat("x", tidemark.MaxContent+1)), tooLarge},
				bad{quoted(strings.Repeat("ü", tidemark.MaxContent/2+1)), tooLarge})},
		{"sendMessage", "content_type", send("content_type"),
			append(badTexts(), bad{`""`, invalid}, bad{`"text/plain\r\nX: y"`, invalid},
				bad{`"text/plain\n"`, invalid}, bad{`"text/pl\u00e4in"`, invalid},
				bad{quoted(strings.Repeat("t", 129)), tooLarge})},
		{"sendMessage", "attachments", send("attachments"),
			[]bad{{`{}`, invalid}, {`1`, invalid}, {`"x"`, invalid}, {`true`, invalid},
				{`[{"a":"\u0000"}]`, invalid}, {`[{"a":["\ud800"]}]`, invalid},
				{`[{"\udfff":1}]`, invalid}, {`[{"a":1e999}]`, invalid},
				{`[{"a":[-1e400]}]`, invalid},
				{strings.Repeat("[{\"a\":", 17) + `1` + strings.Repeat(`}]`, 17), invalid},
				{`[` + strings.Repeat(`{},`, tidemark.MaxAttachments) + `{}]`, invalid},
				{`[{"a":"` + strings.Repeat("x", tidemark.MaxAttachmentBytes) + `"}]`, tooLarge}}},
		{"sendMessage", "attachments[1]", send("attachments"),
			[]bad{{`[{},1]`, invalid}, {`[{},null]`, invalid}, {`[{},[]]`, invalid}}},
		{"sendMessage", "attachments[0]: s3_ref", send("attachments"),
			[]bad{{`[{"s3_ref":"a/b"}]`, invalid}, {`[{"s3_ref":{}}]`, invalid},
				{`[{"s3_ref":"../x"}]`, invalid}, {`[{"s3_ref":"x","s3_ref":"x"}]`, invalid}}},
		{"sendMessage", "attachment_sources", send("attachment_sources"),
			append(badLists(), bad{"[" + strings.Repeat(source+",", 10) + source + "]", invalid})},
		{"sendMessage", "attachment_sources[0]", send("attachment_sources"),
			[]bad{{`[{}]`, invalid}, {`[{"chat_id":"team"}]`, invalid},
				{`[{"sequence":1}]`, invalid}, {`[{"chat_id":"a b","sequence":1}]`, invalid},
				{`[{"chat_id":"team","sequence":"1"}]`, invalid},
				{`[{"chat_id":"team","sequence":0}]`, sequence}}},
		{"createAttachment", "name", newFile("name"),
			append(badTexts(), bad{`""`, invalid}, bad{`null`, invalid}, bad{`"a/b"`, invalid},
				bad{`"a\\b"`, invalid}, bad{`"a\nb"`, invalid}, bad{`"a\u202eb"`, invalid},
				bad{quoted(strings.Repeat("n", 256)), invalid})},
		{"createAttachment", "type", newFile("type"),
			append(badTexts(), bad{`""`, invalid}, bad{`null`, invalid}, bad{`"png"`, invalid},
				bad{`"image/png\r\nX: y"`, invalid}, bad{`"image/pn\u00e4"`, invalid},
				bad{quoted("image/" + strings.Repeat("n", 128)), invalid})},
		{"createAttachment", "size", newFile("size"),
			[]bad{{`0`, invalid}, {`-1`, invalid}, {`1.5`, invalid}, {`"1"`, invalid},
				{`null`, invalid}, {`9007199254740992`, invalid}, {`104857601`, tooLarge}}},
		{"createAttachment", "sha256", newFile("sha256"),
			append(badTexts(), bad{`""`, invalid}, bad{`null`, invalid},
				bad{quoted(strings.Repeat("0", 63)), invalid},
				bad{quoted(strings.Repeat("g", 64)), invalid},
				bad{quoted(strings.Repeat("0", 66)), invalid})},
		{"sendMessage", "attachments[1]: name", send("attachments"),
			[]bad{{`[{},{"name":1}]`, invalid}, {`[{},{"name":{}}]`, invalid}}},
		{"sendMessage", "attachments[0]: content_type", send("attachments"),
			[]bad{{`[{"content_type":[]}]`, invalid}}},
		{"sendMessage", "attachments[0]: size", send("attachments"),
			[]bad{{`[{"size":-1}]`, invalid}, {`[{"size":"1"}]`, invalid},
				{`[{"size":1.5}]`, invalid}, {`[{"size":9007199254740992}]`, invalid}}},
		{"sendMessage", "metadata", send("metadata"), badMetadata()},
		{"createChat", "metadata",
			`{"type":"group","client_chat_id":"k","member_ids":[],"metadata":%s}`, badMetadata()},
		{"updateChat", "metadata", `{"name":"x","metadata":%s}`, badMetadata()},
		{"updateMember", "metadata", `{"role":"member","metadata":%s}`,
			badObjects(tidemark.MaxMemberMetadata)},
		{"updateMember", "role", `{"role":%s}`,
			append(badTexts(), bad{`null`, invalid}, bad{`""`, invalid}, bad{`"Owner"`, invalid},
				bad{`"moderator"`, invalid})},
		{"addMembers", "role", `{"user_ids":["new"],"role":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"Owner"`, invalid},
				bad{`"moderator"`, invalid})},
		{"sendMessage", "kind", send("kind"),
			append(badTexts(), bad{`""`, invalid}, bad{`"boost"`, invalid},
				bad{`"Message"`, invalid})},
		{"sendMessage", "mentions", send("mentions"),
			[]bad{{`[]`, invalid}, {`1`, invalid}, {`"x"`, invalid}, {`true`, invalid}}},
		{"sendMessage", "mentions.all", send("mentions"),
			[]bad{{`{"all":1}`, invalid}, {`{"all":"true"}`, invalid}, {`{"all":[]}`, invalid}}},
		{"sendMessage", "mentions.user_ids", send("mentions"),
			[]bad{{`{"user_ids":{}}`, invalid}, {`{"user_ids":["*"]}`, invalid},
				{`{"user_ids":[1]}`, invalid},
				{`{"user_ids":["x"` + strings.Repeat(`,"x"`, 20) + `]}`, invalid}}},
		{"sendMessage", "relation", send("relation"),
			[]bad{{`{"sequence":1}`, invalid}, {`1`, invalid}, {`[]`, invalid}}},
		{"sendMessage", "relation.emoji", `{"client_message_id":"c9","kind":"react",` +
			`"relation":{"sequence":1,"emoji":%s}}`,
			append(badTexts(), bad{`null`, invalid}, bad{`""`, invalid}, bad{`"a b"`, invalid},
				bad{`"\n"`, invalid}, bad{`"\u0085"`, invalid}, bad{`"\u3000"`, invalid},
				bad{quoted(strings.Repeat("e", 65)), invalid})},
		{"sendMessage", "relation.emoji", `{"client_message_id":"c9","kind":"pin",` +
			`"relation":{"sequence":1,"emoji":%s}}`, []bad{{`"x"`, invalid}}},
		{"sendMessage", "send_by", send("send_by"),
			append(badTexts(), bad{`""`, invalid}, bad{`"tomorrow"`, invalid},
				bad{`"2026-01-31"`, invalid}, bad{`"2026-01-31T25:00:00Z"`, invalid},
				bad{`"2026-01-31T18:00:00"`, invalid}, bad{`"9999-01-31T18:00:00Z"`, invalid},
				bad{`1769882400`, invalid})},
		{"sendMessage", "seen_sequence", send("seen_sequence"),
			append(badSequences(), bad{`2`, sequence})},
		{"createToken", "ttl_seconds", `{"ttl_seconds":%s}`,
			[]bad{{`0`, invalid}, {`-1`, invalid}, {`3601`, invalid}, {`"60"`, invalid},
				{`1.5`, invalid}, {`1e2`, invalid}, {`true`, invalid}, {`[]`, invalid},
				{strings.Repeat("9", 400), invalid}}},
		{"putSuspension", "reason", `{"reason":%s}`, badTexts()},
		{"putSuspension", "ends_at", `{"ends_at":%s}`, []bad{{`"2020-01-31T18:00:00Z"`, invalid}}},
		{"createToken", "user_id", `{"user_id":%s}`, append(badIDs(), bad{`"bob"`, invalid})},
		{"markUnread", "from_sequence", `{"from_sequence":%s}`,
			append(badSequences(), bad{`2`, sequence})},
		{"updateDeliveryState", "last_acked_sequence",
			`{"last_acked_sequence":%s,"last_read_sequence":1}`, badAcks()},
		{"updateDeliveryState", "last_read_sequence",
			`{"last_acked_sequence":1,"last_read_sequence":%s}`, badAcks()},
		{"acknowledge", "chats", `{"chats":%s}`, append(badLists(), bad{`null`, invalid},
			bad{`[` + strings.Repeat(ack+",", 10) + ack + `]`, invalid})},
		{"acknowledge", "chat_id", `{"chats":[{"last_acked_sequence":1,"chat_id":%s}]}`, notText},
		{"sync", "chats", `{"chats":%s}`, badLists()},
		{"sync", "chat_id", `{"chats":[{"last_acked_sequence":0,"chat_id":%s}]}`,
			append(badIDs(), bad{`null`, invalid})},
		{"sync", "last_acked_sequence", `{"chats":[{"chat_id":"team","last_acked_sequence":%s}]}`,
			append(badSequences(), bad{`null`, invalid})},
		{"sync", "session_id", `{"session_id":%s}`, badTexts()},
		{"sync", "limit", `{"limit":%s}`,
			[]bad{{`0`, invalid}, {`-1`, invalid}, {`1.5`, invalid}, {`1e3`, invalid},
				{`"5"`, invalid}, {`true`, invalid}, {`[]`, invalid}}},
		{"createOutlet", "outlet_id", `{"type":"webhook","url":"https://x.example","outlet_id":%s}`,
			badIDs()},
		{"createOutlet", "type", `{"url":"https://x.example","type":%s}`,
			append(badTexts(), bad{`null`, invalid}, bad{`""`, invalid}, bad{`"Webhook"`, invalid},
				bad{`"kafka2"`, invalid})},
		{"createOutlet", "url", `{"type":"webhook","url":%s}`,
			append(badURLs(), bad{`null`, invalid})},
		{"createOutlet", "events", `{"type":"webhook","url":"https://x.example","events":%s}`,
			badEvents()},
		{"createOutlet", "content", `{"type":"webhook","url":"https://x.example","content":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"some"`, invalid})},
		{"createOutlet", "batch", `{"type":"webhook","url":"https://x.example","batch":%s}`,
			badBooleans()},
		{"createOutlet", "begin", `{"type":"webhook","url":"https://x.example","begin":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"2026-01-31T18:00:00Z"`, invalid})},
		{"updateOutlet", "url", `{"batch":true,"url":%s}`, badURLs()},
		{"updateOutlet", "events", `{"events":%s}`, append(badEvents(), bad{`null`, invalid})},
		{"updateOutlet", "content", `{"content":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"some"`, invalid})},
		{"updateOutlet", "batch", `{"batch":%s}`, badBooleans()},
		{"updateOutlet", "paused", `{"paused":%s}`, badBooleans()},
		{"replayOutlet", "chat_id", `{"chat_id":%s}`,
			append(badIDs(), bad{`null`, invalid}, bad{`"team","all":true`, invalid})},
		{"replayOutlet", "from_sequence", `{"chat_id":"team","from_sequence":%s}`, badSequences()},
		{"replayOutlet", "from_sequence", `{"all":true,"from_sequence":%s}`, []bad{{`1`, invalid}}},
		{"replayOutlet", "from_created_at", `{"from_created_at":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"yesterday"`, invalid}, bad{`1`, invalid})},
		{"replayOutlet", "all", `{"all":%s}`, append(badBooleans(), bad{`false`, invalid})},
		{"sync", "status_updates", `{"status_updates":%s}`,
			[]bad{{`1`, invalid}, {`"true"`, invalid}, {`[]`, invalid}, {`{}`, invalid}}},
	}
}

// stateOf returns everything that the users can see, as the server answers it.
func stateOf(t *testing.T, s *transporttest.Stack) map[string]string {
	t.Helper()
	state := make(map[string]string)
	for _, user := range []string{"ann", "bob"} {
		for _, path := range []string{
			"/chats", "/chats/team/members", "/chats/team/messages", "/chats/team/delivery-status",
			"/delivery-states",
		} {
			res := exchange{who: user, method: "GET", path: path, status: 200}.try(t, s)
			raw, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			state[user+" "+path] = string(raw)
		}
	}
	return state
}

// settled creates the chat and returns what the users can see, once nothing changes on its own any
// more.
func settled(t *testing.T, s *transporttest.Stack) map[string]string {
	t.Helper()
	team(s, t)
	good()["updateDeliveryState"].try(t, s)
	wait.Until(t, "the sender has read their own message", func() bool {
		return strings.Contains(stateOf(t, s)["ann /delivery-states"], `"last_read_sequence":1`)
	})
	return stateOf(t, s) // of which no part was read before that
}

// unchanged fails the test if what the users can see has changed.
func unchanged(t *testing.T, s *transporttest.Stack, before map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, stateOf(t, s)); diff != "" {
		t.Errorf("a refused request changed something (-before +after):\n%s", diff)
	}
}

// TestBadInput_every_field: a wrong value of a field is refused with a problem that names the
// field, and changes nothing.
func TestBadInput_every_field(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	before := settled(t, s)
	requests := good()
	tried := make(map[string]bool)
	for _, f := range append(fields(), pushFields()...) {
		tried[f.operation] = true
		for _, b := range f.bad {
			e := requests[f.operation]
			e.body, e.code = fmt.Sprintf(f.body, b.value), b.code
			e.status = map[string]int{invalid: 400, sequence: 422, tooLarge: 413}[b.code]
			detail := problemOf(t, e.try(t, s)).Detail
			if !strings.Contains(detail, f.name) || len(detail) > 400 {
				t.Errorf("%s with %s = %.80s: the detail does not name it: %s",
					f.operation, f.name, b.value, detail)
			}
		}
	}
	for _, operation := range withBody() {
		if !tried[operation] {
			t.Errorf("no field of %s was tried", operation)
		}
	}
	unchanged(t, s, before)
}

func withBody() []string {
	return slices.Sorted(maps.Keys(maps.Collect(func(yield func(string, bool) bool) {
		for operation, e := range good() {
			if e.body != "" && !yield(operation, true) {
				return
			}
		}
	})))
}

// TestBadInput_every_body: every operation refuses a body that is not a JSON object of the right
// size and type.
func TestBadInput_every_body(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	before := settled(t, s)
	deep := func(n int) string {
		return `{"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	tests := []struct {
		name, body   string
		header       [2]string
		status       int
		code, detail string
	}{
		{name: "nothing", status: 400, code: invalid, detail: "nothing"},
		{name: "white space", body: " \n", status: 400, code: invalid, detail: "malformed"},
		{name: "cut", body: `{"x":`, status: 400, code: invalid, detail: "malformed"},
		{name: "an array", body: `[]`, status: 400, code: invalid, detail: "must be a JSON object"},
		{name: "null", body: `null`, status: 400, code: invalid, detail: "must be a JSON object"},
		{name: "a number", body: `1`, status: 400, code: invalid, detail: "must be a JSON object"},
		{name: "a text", body: `"x"`, status: 400, code: invalid, detail: "must be a JSON object"},
		{name: "two values", body: `{}{}`, status: 400, code: invalid, detail: "malformed"},
		{name: "something behind it", body: `{} x`, status: 400, code: invalid,
			detail: "malformed"},
		{name: "a comment", body: `{} // x`, status: 400, code: invalid, detail: "malformed"},
		{name: "single quotes", body: `{'x':1}`, status: 400, code: invalid, detail: "malformed"},
		{name: "a comma too many", body: `{"x":1,}`, status: 400, code: invalid,
			detail: "malformed"},
		{name: "NaN", body: `{"x":NaN}`, status: 400, code: invalid, detail: "malformed"},
		{name: "a raw control character", body: "{\"x\":\"\x01\"}", status: 400, code: invalid,
			detail: "malformed"},
		{name: "a byte order mark", body: "\ufeff{}", status: 400, code: invalid,
			detail: "malformed"},
		{name: "UTF-16", body: "{\x00}\x00", status: 400, code: invalid, detail: "malformed"},
		{name: "invalid UTF-8", body: "{\"x\":\"\xff\"}", status: 400, code: invalid,
			detail: "UTF-8"},
		{name: "a raw surrogate", body: "{\"x\":\"\xed\xa0\x80\"}", status: 400, code: invalid,
			detail: "UTF-8"},
		{name: "ten thousand deep", body: deep(10_001), status: 400, code: invalid,
			detail: "depth"},
		{name: "one byte too large", body: `{"x":"` + strings.Repeat("x", 400<<10-7) + `"}`,
			status: 413, code: tooLarge, detail: "409600"},
		{name: "two megabytes", body: `{"x":"` + strings.Repeat("x", 2<<20) + `"}`, status: 413,
			code: tooLarge, detail: "409600"},
		{name: "a hundred thousand entries", status: 413, code: tooLarge, detail: "409600",
			body: `{"chats":[` + strings.Repeat(`{"chat_id":"team","last_acked_sequence":1},`,
				100_000) + `{}]}`},
		{name: "compressed", body: `{}`, header: [2]string{"Content-Encoding", "gzip"}, status: 415,
			code: "UNSUPPORTED_MEDIA_TYPE", detail: "compressed"},
		{name: "a form", body: `{}`,
			header: [2]string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415,
			code: "UNSUPPORTED_MEDIA_TYPE", detail: "application/json"},
		{name: "no type that there is", body: `{}`, header: [2]string{"Content-Type", ";"},
			status: 415, code: "UNSUPPORTED_MEDIA_TYPE", detail: "application/json"},
		{name: "another character set", body: `{}`,
			header: [2]string{"Content-Type", "application/json; charset=utf-16"}, status: 415,
			code: "UNSUPPORTED_MEDIA_TYPE", detail: "UTF-8"},
		{name: "a patch format", body: `{}`,
			header: [2]string{"Content-Type", "application/merge-patch+json"}, status: 415,
			code: "UNSUPPORTED_MEDIA_TYPE", detail: "application/json"},
	}
	for _, operation := range withBody() {
		for _, tt := range tests {
			e := good()[operation]
			e.body, e.header, e.status, e.code = tt.body, tt.header, tt.status, tt.code
			if detail := problemOf(t, e.try(t, s)).Detail; !strings.Contains(detail, tt.detail) {
				t.Errorf("%s, %s: the detail lacks %q: %s", operation, tt.name, tt.detail, detail)
			}
		}
	}
	unchanged(t, s, before)
}

// TestBadInput_every_path_and_parameter: wrong ids and parameters are refused by name.
func TestBadInput_every_path_and_parameter(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	before := settled(t, s)
	for operation, e := range good() {
		for parameter, segment := range map[string]string{"chat_id": "/team", "user_id": "/cid"} {
			if e.path == "/chats" || !strings.Contains(e.path, segment) {
				continue
			}
			for _, id := range []string{
				"a%20b", "a%2Fb", "%2e%2e%2fteam", "%00", "%ff", "%ED%A0%80", "%C3%BC", "a%2Cb",
				"a+b", strings.Repeat("i", 129), strings.Repeat("i", 5<<10),
			} {
				e := e
				e.path, e.status, e.code = strings.Replace(e.path, segment, "/"+id, 1), 400, invalid
				detail := problemOf(t, e.try(t, s)).Detail
				if !strings.Contains(detail, parameter) ||
					!strings.Contains(detail, "1 to 128 characters") {
					t.Errorf("%s with the %s %.60s: %s", operation, parameter, id, detail)
				}
			}
		}
	}
	for _, n := range []string{
		"0", "-1", "1.5", "1e3", "x", "0x1", "+1", "%201", "1%00", "9007199254740992",
	} {
		e := good()["listReactions"]
		e.path = strings.Replace(e.path, "/messages/1/", "/messages/"+n+"/", 1)
		e.status, e.code = 400, invalid
		if detail := problemOf(t, e.try(t, s)).Detail; !strings.Contains(detail, "sequence") {
			t.Errorf("message %s: %s", n, detail)
		}
	}
	numbers := []string{
		"0", "-1", "1.5", "1e3", "x", "", "%31%30x", "0x1", "+1", "%201", "1%00", "%EF%BC%91",
	}
	for _, tt := range []struct {
		operation, parameter string
		values               []string
		status               int
	}{
		{"listChats", "limit", numbers, 400}, {"listMembers", "limit", numbers, 400},
		{"listMessages", "limit", numbers, 400}, {"listDeliveryStates", "limit", numbers, 400},
		{"listPending", "limit", numbers, 400}, {"listReactions", "limit", numbers, 400},
		{"getDeliveryStatus", "limit", numbers, 400},
		{"listChats", "cursor",
			[]string{"x", "%00", "Y3w", "bXx0ZWFt", "Y3wxfA", "Y3x4fHRlYW0",
				strings.Repeat("Y", 5<<10)}, 400},
		{"listMembers", "cursor", []string{"x", "%ff", "Y3wxfHRlYW0"}, 400},
		{"listDeliveryStates", "cursor", []string{"x", "bXx0ZWFt"}, 400},
		{"listPending", "cursor", []string{"x", "bXx0ZWFt"}, 400},
		{"listReactions", "cursor", []string{"x", "bXx0ZWFt", "cnx4", "cnw", "cnwtMQ"}, 400},
		{"listMessages", "reactions", []string{"", "0", "1", "yes", "TRUE", "%00"}, 400},
		{"getDeliveryStatus", "cursor", []string{"x", "bXwgIA"}, 400},
		{"listMessages", "after_sequence",
			append(numbers[1:], "9007199254740992", "9223372036854775808", "18446744073709551616"),
			400},
		{"listMessages", "before_sequence",
			append(numbers[1:], "9007199254740992", "9223372036854775808", "18446744073709551616"),
			400},
		{"getDeliveryStatus", "for_sequence", []string{"x", "", "1.5", "1e0", "true", "0x1", "+1"},
			400},
		{"getDeliveryStatus", "for_sequence",
			[]string{"0", "-1", "2", "9007199254740992", "9223372036854775808",
				"18446744073709551616"}, 422},
		{"poll", "wait_seconds", []string{"-1", "1.5", "x", "1s", "+1"}, 400},
		{"poll", "after_event_id",
			[]string{"-1", "1.5", "x", "9007199254740992", "18446744073709551616"}, 400},
		{"poll", "device_id",
			[]string{"a%20b", "%00", strings.Repeat("d", 129), strings.Repeat("d", 5<<10)}, 400},
		{"poll", "status_updates", []string{"0", "1", "yes", "TRUE", "%00"}, 400},
		{"streamEvents", "device_id", []string{"a%20b", "%00", strings.Repeat("d", 129)}, 400},
		{"streamEvents", "status_updates", []string{"2", "yes"}, 400},
	} {
		for _, value := range tt.values {
			e := good()[tt.operation]
			path, _, _ := strings.Cut(e.path, "?")
			e.path, e.status = path+"?"+tt.parameter+"="+value, tt.status
			e.code = map[int]string{400: invalid, 422: sequence}[tt.status]
			if detail := problemOf(t, e.try(t, s)).Detail; !strings.Contains(detail, tt.parameter) {
				t.Errorf("%s with %s=%.60s: %s", tt.operation, tt.parameter, value, detail)
			}
		}
	}
	unchanged(t, s, before)
}

// TestBadInput_methods_and_paths: what the router refuses is a problem, too. HEAD works for what is
// the same for everyone: page, health, metrics and the contract. An answer about a user needs GET.
func TestBadInput_methods_and_paths(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	before := settled(t, s)
	allowed := make(map[string][]string)
	for _, e := range good() {
		path, _, _ := strings.Cut(e.path, "?")
		path = strings.Replace(path, "team-2", "team", 1) // the same route
		allowed[path] = append(allowed[path], e.method)
	}
	for path, methods := range allowed {
		operational := strings.HasPrefix(path, "//")
		for _, method := range []string{
			"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "QUERY",
		} {
			if slices.Contains(methods, method) || operational && method == "HEAD" {
				continue
			}
			e := exchange{
				who:    "ann",
				method: method,
				path:   path,
				status: 405,
				code:   "METHOD_NOT_ALLOWED",
			}
			if method == "HEAD" { // which has no body
				e.code = ""
			}
			allow := strings.Split(e.try(t, s).Header.Get("Allow"), ", ")
			if !slices.Contains(allow, methods[0]) {
				t.Errorf("%s %s: Allow is %q", method, path, allow)
			}
		}
	}
	for _, path := range []string{
		"/", "/nowhere", "/chats/", "//api/v1", "//api/v1//chats", "//api/v2/chats", "/chats/team/",
		"/chats/team/messages/", "/chats/team/messages/1", "/chats/team//members", "/CHATS",
		"/poll/", "/../chats", "/./chats", "//healthz/", "//.git/config", "/chats/team/messages;x",
		"/%63hats/",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			e := exchange{who: "ann", method: method, path: path, status: 404, code: "NOT_FOUND"}
			e.try(t, s)
		}
	}
	unchanged(t, s, before)
}
