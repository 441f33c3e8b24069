package kafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-im/tidemark/reach/outlet"
)

// The ends of the topics' names.
const (
	messages = ".messages"
	state    = ".state"
)

// schema is the version of the form of the records, in the header of this name.
const schema = "1"

// place says where the events of a type are stored.
type place struct {
	topic string
	key   func(*outlet.Event) string
}

// places are those of the known types. Others are stored among the messages, by chat.
var places = map[outlet.Type]place{
	outlet.MessagePersisted: {messages, ofChat},
	outlet.MemberChanged:    {state, ofMember},
	outlet.ChatUpdated:      {state, ofChat},
	outlet.ChatDeleted:      {state, ofChat},
	outlet.DeliveryUpdated:  {state, ofReceipt},
	outlet.ReadUpdated:      {state, ofReceipt},
	outlet.PendingCreated:   {state, ofReceipt},
}

func ofChat(e *outlet.Event) string { return string(e.Chat) }

// ofMember returns the key of a member's state. No id has a |.
func ofMember(e *outlet.Event) string { return string(e.Chat) + "|" + string(e.User) }

// ofReceipt returns the key of a member's receipts or missed messages, by type. Receipts may be of
// all members.
func ofReceipt(e *outlet.Event) string { return ofMember(e) + "|" + string(e.Type) }

// record returns the record of an event. It has no timestamp, so the client sets the present time.
// With the event's own time, Kafka would soon delete a replayed message as old.
func (o *Outlet) record(e *outlet.Event) *kgo.Record {
	at, known := places[e.Type]
	if !known || o.topic != "" {
		at = place{messages, ofChat}
	}
	topic := o.prefix + at.topic
	if o.topic != "" {
		topic = o.topic
	}
	return &kgo.Record{
		Topic: topic,
		Key:   []byte(at.key(e)),
		Value: e.AppendBody(make([]byte, 0, len(e.Data)+200), o.bare),
		Headers: append([]kgo.RecordHeader{
			{Key: "id", Value: []byte(e.ID)},
			{Key: "type", Value: []byte(e.Type)},
			{Key: "sequence", Value: strconv.AppendUint(nil, e.Sequence, 10)},
			{Key: "schema", Value: []byte(schema)},
			{Key: "replay", Value: strconv.AppendBool(nil, e.Again)},
		}, o.headers...),
	}
}
