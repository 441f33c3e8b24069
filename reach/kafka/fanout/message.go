package fanout

import (
	"encoding/json"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// keyOf returns the key of the message in the body of an event (outlet.Event.AppendBody).
func keyOf(body []byte) (storage.MessageKey, error) {
	var event struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return storage.MessageKey{}, err
	}
	m, err := tidemark.ParseMessage(event.Data)
	return storage.MessageKey{Chat: m.ChatID, Sequence: m.Sequence}, err
}
