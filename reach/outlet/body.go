package outlet

import (
	"encoding/json"

	"github.com/tidemark-im/tidemark"
)

// AppendBody appends the JSON object that receivers get of an event. It has the id, since a
// delivery may have several events. With bare, messages and the targets of relations come without
// what their senders and the application put into them.
func (e *Event) AppendBody(b []byte, bare bool) []byte {
	b = append(b, `{"id":`...)
	b = tidemark.AppendString(b, e.ID)
	b = append(b, `,"type":`...)
	b = tidemark.AppendString(b, string(e.Type))
	b = append(b, `,"timestamp":`...)
	b = tidemark.AppendTime(b, e.Time)
	b = append(b, `,"data":`...)
	//rule:webhook_content_none.strip-content
	if bare && e.Type == MessagePersisted {
		b = append(b, withoutContent(e.Data)...)
	} else {
		b = append(b, e.Data...)
	}
	return append(b, '}')
}

var null = json.RawMessage("null")

// withoutContent returns a message, with its target, without what senders and the application put
// into them.
func withoutContent(data json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return json.RawMessage("{}") // It is no message of ours.
	}
	for _, name := range []string{"content", "attachments", "metadata"} {
		fields[name] = null
	}
	//rule:webhook_content_none.strip-target
	if relation := fields["relation"]; relation != nil {
		fields["relation"] = withoutTarget(relation)
	}
	bare, err := json.Marshal(fields)
	if err != nil {
		return json.RawMessage("{}")
	}
	return bare
}

// withoutTarget returns a relation without an emoji. Its target, if it has one, is without content.
func withoutTarget(data json.RawMessage) json.RawMessage {
	var relation *struct {
		Sequence  tidemark.Sequence   `json:"sequence"`
		Sequences []tidemark.Sequence `json:"sequences"`
		Emoji     json.RawMessage     `json:"emoji"`
		Target    json.RawMessage     `json:"target"`
	}
	if err := json.Unmarshal(data, &relation); err != nil || relation == nil {
		return null
	}
	//rule:webhook_content_none.strip-emoji
	relation.Emoji = null
	if string(relation.Target) != "null" {
		relation.Target = withoutContent(relation.Target)
	}
	bare, err := json.Marshal(relation)
	if err != nil {
		return null
	}
	return bare
}
