package client

import (
	"bytes"
	"strconv"
	"time"
)

// A message of the load is text of a fixed size. It contains the time of its send and its id:
//
//	<nanoseconds since the run began> <client message id> xxxx…
//
// So a recipient can measure and check it alone.

// Message holds the fields of a message event that the load reads.
// The slices are valid for as long as the event.
type Message struct {
	Chat     []byte
	Sequence uint64
	Content  []byte
	// ClientMessageID is the id that the sender gave it.
	ClientMessageID []byte
}

// ParseMessage parses the payload of a message event, or a message of an HTTP answer.
func ParseMessage(raw []byte) Message {
	var m Message
	o := NewObject(raw)
	for {
		key, value, ok := o.Next()
		if !ok {
			return m
		}
		switch string(key) {
		case "chat_id":
			m.Chat = Text(value)
		case "sequence":
			m.Sequence = Number(value)
		case "content":
			m.Content = Text(value)
		case "client_message_id":
			m.ClientMessageID = Text(value)
		}
	}
}

// AppendContent appends the content of a message: size bytes, or more if its head needs them.
func AppendContent(b []byte, sent time.Duration, id string, size int) []byte {
	start := len(b)
	b = strconv.AppendInt(b, int64(sent), 10)
	b = append(b, ' ')
	b = append(b, id...)
	b = append(b, ' ')
	for len(b)-start < size {
		b = append(b, 'x')
	}
	return b
}

// ReadContent returns when a message was sent, and the digest of its id.
// ok is false if the message is not one of the load.
func ReadContent(content []byte) (sent time.Duration, digest uint64, ok bool) {
	at, rest, found := bytes.Cut(content, []byte(" "))
	id, _, complete := bytes.Cut(rest, []byte(" "))
	if !found || !complete {
		return 0, 0, false
	}
	return time.Duration(Number(at)), DigestOf(id), true
}

// DigestOf returns a hash of an id: FNV-1a with a final mix.
// Two sets of messages are taken as equal if the sums of their digests are equal.
func DigestOf[T ~string | ~[]byte](id T) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// AppendSend appends the body of a send. Over WebSocket it names the chat; by POST, chat is "".
func AppendSend(b []byte, chat, id string, content []byte) []byte {
	b = append(b, '{')
	if chat != "" {
		b = append(b, `"chat_id":`...)
		b = AppendQuoted(b, chat)
		b = append(b, ',')
	}
	b = append(b, `"client_message_id":`...)
	b = AppendQuoted(b, id)
	b = append(b, `,"content":"`...)
	b = append(b, content...)
	return append(b, `"}`...)
}
