package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
)

// maxText is the greatest length of the text for a sender, in characters.
const maxText = 500

// appendRequest appends the JSON of a request about drafts.
func appendRequest(b []byte, id string, at time.Time, drafts []tidemark.Draft) []byte {
	b = append(b, `{"id":`...)
	b = tidemark.AppendString(b, id)
	b = append(b, `,"type":"message.review","timestamp":`...)
	b = tidemark.AppendTime(b, at)
	b = append(b, `,"data":{"messages":[`...)
	for i := range drafts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendDraft(b, &drafts[i])
	}
	return append(b, "]}}"...)
}

// appendDraft appends what the receiver gets of a message.
func appendDraft(b []byte, d *tidemark.Draft) []byte {
	for _, field := range []struct{ name, value string }{
		{`{"chat_id":`, string(d.ChatID)}, {`,"sender_id":`, string(d.SenderID)},
		{`,"client_message_id":`, d.ClientMessageID}, {`,"kind":`, string(d.Kind)},
		{`,"content":`, d.Content}, {`,"content_type":`, d.ContentType},
	} {
		b = tidemark.AppendString(append(b, field.name...), field.value)
	}
	for _, field := range []struct {
		name  string
		value json.RawMessage
	}{{`,"attachments":`, d.Attachments}, {`,"metadata":`, d.Metadata}} {
		b = append(b, field.name...)
		if field.value == nil {
			b = append(b, "null"...)
		} else {
			b = append(b, field.value...)
		}
	}
	b = append(b, `,"relation":`...)
	if d.Relation == nil {
		b = append(b, "null"...)
	} else {
		b = fmt.Appendf(b, `{"sequence":%d}`, d.Relation.Sequence) // of an edit (reviewable)
	}
	return fmt.Appendf(b, `,"by_backend":%t}`, d.ByBackend)
}

// verdict is what an answer says of a message.
type verdict struct {
	Action string `json:"action"`
	// Detail is the text for the sender of a refused message.
	Detail string `json:"detail"`
	// Content and Metadata replace those of the message. A field that is absent replaces nothing,
	// and null metadata remove the message's.
	Content  *string         `json:"content"`
	Metadata json.RawMessage `json:"metadata"`
}

// The actions.
const (
	allow   = "allow"
	refuse  = "refuse"
	replace = "replace"
)

// errAnswer says that an answer is not valid.
var errAnswer = errors.New("the answer is not a valid one")

// parse returns the verdicts of an answer about n messages.
func parse(answer []byte, n int) ([]verdict, error) {
	var read struct {
		Results []verdict `json:"results"`
	}
	if err := json.Unmarshal(answer, &read); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if len(read.Results) != n {
		return nil, fmt.Errorf("%w: it has %d results for %d messages", errAnswer,
			len(read.Results), n)
	}
	return read.Results, nil
}

// apply returns a draft as a verdict lets it be stored, or the error for its sender. wrong says
// that the verdict is not valid.
func (v *verdict) apply(d tidemark.Draft) (reviewed tidemark.Draft, refused, wrong error) {
	switch v.Action {
	case allow:
		return d, nil, nil
	case refuse:
		detail := v.Detail
		if detail == "" {
			detail = "the message was refused by the rules of this service"
		}
		if utf8.RuneCountInString(detail) > maxText {
			detail = string([]rune(detail)[:maxText])
		}
		return d, &tidemark.Error{Code: tidemark.Denied, Detail: detail}, nil
	case replace:
	default:
		return d, nil, fmt.Errorf("%w: the action %.40q is unknown", errAnswer, v.Action)
	}
	if v.Content != nil {
		d.Content = *v.Content
	}
	if v.Metadata != nil {
		d.Metadata = nil
		if compact := new(bytes.Buffer); string(v.Metadata) != "null" {
			if err := json.Compact(compact, v.Metadata); err != nil {
				return d, nil, fmt.Errorf("%w: %w", errAnswer, err)
			}
			d.Metadata = compact.Bytes()
		}
	}
	//rule:asked_before_stored.check-what-replaces
	if err := d.Check(); err != nil {
		return d, nil, fmt.Errorf("%w: its message cannot be stored: %w", errAnswer, err)
	}
	return d, nil, nil
}
