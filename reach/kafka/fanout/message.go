package fanout

import (
	"encoding/json"

	"github.com/tidemark-im/tidemark"
)

// messageOf returns the message in the body of an event (outlet.Event.AppendBody).
func messageOf(body []byte) (tidemark.Message, error) {
	var event struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return tidemark.Message{}, err
	}
	return tidemark.ParseMessage(event.Data)
}
