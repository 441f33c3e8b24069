package outlet

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestAppendBody_webhook_content_none_of_relations: an outlet without content gets no text by way
// of a target. It gets the rest of it.
func TestAppendBody_webhook_content_none_of_relations(t *testing.T) {
	text := rand.Text()
	target := tidemark.Message{
		ChatID: "c", Sequence: 1, MessageID: "m1", SenderID: "alice", Content: text,
		ContentType: "text/plain", Kind: tidemark.KindMessage,
		Metadata:    []byte(`{"a":"` + text + `"}`),
		Attachments: []byte(`[{"name":"` + text + `"}]`),
		Revision: &tidemark.Revision{
			Sequence: 2, Kind: tidemark.KindEdit, By: "bob", At: time.UnixMilli(1_700_000_000_123),
		},
	}
	edit := tidemark.Message{
		ChatID: "c", Sequence: 2, MessageID: "m2", SenderID: "bob", ContentType: "text/plain",
		Kind: tidemark.KindEdit, Relation: &tidemark.Relation{Sequence: 1, Target: &target},
	}
	body := func(m *tidemark.Message, bare bool) string {
		e := Event{ID: "evt", Type: MessagePersisted, Chat: "c", Data: m.AppendJSON(nil)}
		b := string(e.AppendBody(nil, bare))
		if !json.Valid([]byte(b)) {
			t.Errorf("no JSON: %s", b)
		}
		return b
	}
	if got := body(&edit, false); strings.Count(got, text) != 3 {
		t.Errorf("an outlet with content gets %s", got)
	}
	bare := body(&edit, true)
	if strings.Contains(bare, text) {
		t.Errorf("the text comes: %s", bare)
	}
	var got struct{ Data json.RawMessage }
	if err := json.Unmarshal([]byte(bare), &got); err != nil {
		t.Fatal(err)
	}
	m, err := tidemark.ParseMessage(got.Data)
	if err != nil || m.Relation == nil || m.Relation.Sequence != 1 || m.Relation.Target == nil {
		t.Fatalf("got %+v, %v", m, err)
	}
	of := m.Relation.Target
	if of.Sequence != 1 || of.SenderID != "alice" || of.Kind != tidemark.KindMessage ||
		of.Revision == nil || of.Revision.Sequence != 2 || of.Revision.Kind != tidemark.KindEdit ||
		of.Revision.By != "bob" || !of.Revision.At.Equal(target.Revision.At) {
		t.Errorf("the target is %+v", of)
	}
	edit.Relation.Target = nil
	bareRelation := `"relation":{"sequence":1,"sequences":null,"emoji":null,"target":null}`
	if got := body(&edit, true); !strings.Contains(got, bareRelation) {
		t.Errorf("without a target, got %s", got)
	}
	list := edit
	list.Relation = &tidemark.Relation{Sequences: []tidemark.Sequence{1, 3}}
	list.Kind = tidemark.KindRedact
	want := `"relation":{"sequence":1,"sequences":[1,3],"emoji":null,"target":null}`
	if got := body(&list, true); !strings.Contains(got, want) {
		t.Errorf("of a list, got %s", got)
	}
	react := edit
	react.Kind, react.Relation = tidemark.KindReact, &tidemark.Relation{Sequence: 1, Emoji: text}
	if got := body(&react, false); !strings.Contains(got, `"emoji":"`+text+`"`) {
		t.Errorf("an outlet with content gets %s", got)
	}
	if got := body(&react, true); !strings.Contains(got, bareRelation) {
		t.Errorf("of a reaction, got %s", got)
	}
	for data, want := range map[string]string{
		`{"relation":{"sequence":1,"target":"` + text + `"}}`: `{"sequence":1,` +
			`"sequences":null,"emoji":null,"target":{}}`,
		`{"relation":"` + text + `"}`: `null`,
		`{"relation":null}`:           `null`,
		`null`:                        ``,
	} {
		e := Event{Type: MessagePersisted, Data: json.RawMessage(data)}
		got := string(e.AppendBody(nil, true))
		if strings.Contains(got, text) || want != "" && !strings.Contains(got, `"relation":`+want) {
			t.Errorf("of %s, got %s, want %s", data, got, want)
		}
	}
}
