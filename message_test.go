package tidemark_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

func goodDraft() tidemark.Draft {
	return tidemark.Draft{
		Kind:            tidemark.KindMessage,
		ChatID:          "c",
		SenderID:        "u",
		ClientMessageID: "k",
		Content:         "hello",
		ContentType:     tidemark.DefaultContentType,
		MessageID:       "m",
		CreatedAt:       time.UnixMilli(1_767_225_600_007).UTC(),
	}
}

func TestDraft_Check_limits(t *testing.T) {
	attachments := func(s string) func(*tidemark.Draft) {
		return func(d *tidemark.Draft) { d.Attachments = json.RawMessage(s) }
	}
	metadata := func(s string) func(*tidemark.Draft) {
		return func(d *tidemark.Draft) { d.Metadata = json.RawMessage(s) }
	}
	content := func(s string) func(*tidemark.Draft) {
		return func(d *tidemark.Draft) { d.Content = s }
	}
	for _, test := range []struct {
		name   string
		change func(*tidemark.Draft)
		want   tidemark.Code
	}{
		{"good", func(*tidemark.Draft) {}, ""},
		{"no chat", func(d *tidemark.Draft) { d.ChatID = "" }, tidemark.Invalid},
		{"no sender", func(d *tidemark.Draft) { d.SenderID = "a b" }, tidemark.Invalid},
		{"no key", func(d *tidemark.Draft) { d.ClientMessageID = "" }, tidemark.Invalid},
		{
			"key too long",
			func(d *tidemark.Draft) { d.ClientMessageID = strings.Repeat("k", 129) },
			tidemark.Invalid,
		},
		{"content at the limit", content(strings.Repeat("x", 65_536)), ""},
		{"content above the limit", content(strings.Repeat("x", 65_537)), tidemark.TooLarge},
		{
			"content of few characters and many bytes",
			content(strings.Repeat("😀", 16_385)), tidemark.TooLarge,
		},
		{"no content", content(""), tidemark.Invalid},
		{"no UTF-8", content("a\xff"), tidemark.Invalid},
		{"U+0000", content("a\x00b"), tidemark.Invalid},
		{"other controls and separators", content("\x01\n\r\t\u2028\u2029\ufeff"), ""},
		{"no content type", func(d *tidemark.Draft) { d.ContentType = "" }, tidemark.Invalid},
		{
			"content type too long",
			func(d *tidemark.Draft) { d.ContentType = strings.Repeat("t", 129) }, tidemark.TooLarge,
		},
		{
			"content type no UTF-8",
			func(d *tidemark.Draft) { d.ContentType = "\xff" }, tidemark.Invalid,
		},
		{
			"content type with a line break",
			func(d *tidemark.Draft) { d.ContentType = "text/plain\r\nx: y" }, tidemark.Invalid,
		},
		{
			"content type with parameters",
			func(d *tidemark.Draft) { d.ContentType = `text/plain; charset="utf-8"` }, "",
		},
		{
			"attachments instead of content",
			func(d *tidemark.Draft) { d.Content, d.Attachments = "", json.RawMessage(`[{}]`) }, "",
		},
		{
			"metadata instead of content",
			func(d *tidemark.Draft) { d.Content, d.Metadata = "", json.RawMessage(`{}`) },
			tidemark.Invalid,
		},
		{"attachments with white space", attachments(" \n\t\r[{ \"a\" : [1, 2] }]\n"), ""},
		{
			"attachments at the limit",
			attachments(`[{"a":"` + strings.Repeat("x", 8_182) + `"}]`), "",
		},
		{
			"attachments above the limit",
			attachments(`[{"a":"` + strings.Repeat("x", 8_183) + `"}]`), tidemark.TooLarge,
		},
		{"attachments an object", attachments(`{}`), tidemark.Invalid},
		{"attachments null", attachments(`null`), tidemark.Invalid},
		{"attachments empty", attachments(``), tidemark.Invalid},
		{"attachments cut off", attachments(`[{"a":`), tidemark.Invalid},
		{"attachments two arrays", attachments(`[{}] [{}]`), tidemark.Invalid},
		{"attachments no UTF-8", attachments("[{\"a\":\"\xff\"}]"), tidemark.Invalid},
		{"metadata at the limit", metadata(`{"a":"` + strings.Repeat("x", 4_088) + `"}`), ""},
		{
			"metadata above the limit",
			metadata(`{"a":"` + strings.Repeat("x", 4_089) + `"}`), tidemark.TooLarge,
		},
		{"metadata an array", metadata(`[{}]`), tidemark.Invalid},
		{"metadata null", metadata(`null`), tidemark.Invalid},
		{"metadata no UTF-8", metadata("{\"a\":\"\xff\"}"), tidemark.Invalid},
	} {
		draft := goodDraft()
		test.change(&draft)
		err := draft.Check()
		if got := tidemark.CodeOf(err); got != test.want {
			t.Errorf("%s: got error %v with code %q, want code %q", test.name, err, got, test.want)
		}
		if test.want == "" {
			continue
		}
		if got := tidemark.DetailOf(err); strings.Contains(got, "xxxxxxxxxx") || got == "" {
			t.Errorf("%s: got detail %q, want one without message text", test.name, got)
		}
	}
}

func TestDraft_Message_carries_everything_over(t *testing.T) {
	draft := goodDraft()
	draft.Attachments = json.RawMessage(`[{"a":1}]`)
	draft.Metadata = json.RawMessage(`{"b":2}`)
	draft.Kind = tidemark.KindSystem
	draft.Mentions = tidemark.NewMentions(true, []tidemark.UserID{"v", "u", "v"})
	got := draft.Message(7, 3)
	want := tidemark.Message{
		ChatID:          "c",
		Sequence:        7,
		MessageID:       "m",
		SenderID:        "u",
		ClientMessageID: "k",
		Content:         "hello",
		ContentType:     "text/plain",
		Attachments:     json.RawMessage(`[{"a":1}]`),
		Metadata:        json.RawMessage(`{"b":2}`),
		Kind:            tidemark.KindSystem,
		Mentions:        tidemark.Mentions{All: true, Users: []tidemark.UserID{"u", "v"}},
		CreatedAt:       draft.CreatedAt,
		MembersVersion:  3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if !got.SameAs(&draft) {
		t.Error("a message is not the same as its own draft")
	}
}

func TestMessage_SameAs_compares_what_the_sender_gave(t *testing.T) {
	draft := goodDraft()
	draft.Attachments = json.RawMessage(`[{"a":1}]`)
	draft.Metadata = json.RawMessage(`{"b":2}`)
	message := draft.Message(7, 3)
	for name, test := range map[string]struct {
		change func(*tidemark.Draft)
		want   bool
	}{
		"a resend gets another id and time": {
			func(d *tidemark.Draft) { d.MessageID, d.CreatedAt = "m2", time.Now() }, true,
		},
		"content": {
			func(d *tidemark.Draft) { d.Content = "Hello" }, false,
		},
		"content type": {
			func(d *tidemark.Draft) { d.ContentType = "text/html" }, false,
		},
		"attachments, in other bytes": {
			func(d *tidemark.Draft) { d.Attachments = json.RawMessage(`[{"a": 1}]`) }, false,
		},
		"no attachments": {
			func(d *tidemark.Draft) { d.Attachments = nil }, false,
		},
		"metadata, in other bytes": {
			func(d *tidemark.Draft) { d.Metadata = json.RawMessage(`{"b": 2}`) }, false,
		},
		"no metadata": {
			func(d *tidemark.Draft) { d.Metadata = nil }, false,
		},
	} {
		other := draft
		test.change(&other)
		if got := message.SameAs(&other); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
