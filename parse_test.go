package tidemark_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// TestParseMessage_is_the_inverse_of_AppendJSON: what one node writes, another reads.
func TestParseMessage_is_the_inverse_of_AppendJSON(t *testing.T) {
	full := tidemark.Message{
		ChatID: "c", Sequence: 7, MessageID: "m", SenderID: "alice", ClientMessageID: "k",
		Content: "a \"text\"\n", ContentType: "text/plain", Kind: tidemark.KindMessage,
		Attachments: json.RawMessage(`[{"s3_ref":"f"}]`), Metadata: json.RawMessage(`{"a":1}`),
		Mentions:  tidemark.NewMentions(true, []tidemark.UserID{"bob"}),
		CreatedAt: time.Date(2026, 1, 31, 10, 0, 0, 5_000_000, time.UTC), MembersVersion: 3,
	}
	plain := full
	plain.Attachments, plain.Metadata, plain.Mentions = nil, nil, tidemark.Mentions{}
	for _, want := range []tidemark.Message{full, plain} {
		got, err := tidemark.ParseMessage(want.AppendJSON(nil))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("ParseMessage: %v (-want +got):\n%s", err, diff)
		}
	}
	for _, wrong := range []string{`{}`, `[]`, ``, `{"chat_id":"c","sequence":1}`} {
		if _, err := tidemark.ParseMessage(json.RawMessage(wrong)); err == nil {
			t.Errorf("ParseMessage(%s) has no error", wrong)
		}
	}
}
