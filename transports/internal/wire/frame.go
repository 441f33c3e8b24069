package wire

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// FrameType is the type of a frame that a WebSocket client sends.
type FrameType string

// The frame types of a client, and the field of Frame that each one sets.
const (
	// FrameSend is `send_message`; it sets Send. The answer is send_message_ack.
	FrameSend FrameType = "send_message"
	// FrameAck is `ack`; it sets Acks. It is never answered.
	FrameAck FrameType = "ack"
	// FrameRead is `read`; it sets Acks. It is never answered.
	FrameRead FrameType = "read"
	// FrameSync is `sync_request`; it sets Sync. The answer is sync_response.
	FrameSync FrameType = "sync_request"
	// FrameTyping is `typing`; it sets Typing. It is answered only if it is refused.
	FrameTyping FrameType = "typing"
	// FrameLook is `look`; it sets Look. It is answered only if it is refused.
	FrameLook FrameType = "look"
	// FramePing is `ping`. The answer is pong.
	FramePing FrameType = "ping"
)

// Silent reports whether frames of the type are never answered, even if they are refused
// (docs/client-guide.md, "Acknowledge").
//
//rule:ack_fire_and_forget.silent-frame-types
func (t FrameType) Silent() bool { return t == FrameAck || t == FrameRead }

// maxRequestID is the greatest length of a request_id, in bytes.
const maxRequestID = 128

// Frame is a frame of a client. Only the fields of its type are set.
type Frame struct {
	Type FrameType
	// RequestID is the client's request_id, which the answer repeats, or "" if there is none.
	RequestID string

	Send tidemark.Draft
	// Acks holds the well-formed acknowledgements of the frame.
	Acks []server.Ack
	// Refused is how many acknowledgements of the frame were malformed and left out.
	Refused int
	Sync    server.SyncRequest
	Typing  tidemark.ChatID
	Look    []tidemark.ChatID
}

// DecodeFrame decodes a frame. On an error it still sets Type and RequestID if it could read them,
// because the answer repeats them. The caller must not answer if Type.Silent. An unknown type is
// Invalid.
func DecodeFrame(raw []byte) (Frame, error) {
	if err := check(raw); err != nil {
		return Frame{}, err
	}
	var f Frame
	var firstErr error
	payload := value("{}")
	// A wrong field does not end the loop, because the type decides whether the frame may be
	// answered.
	err := eachField(raw, wholeFrame, func(key string, v value) error {
		var err error
		switch key {
		case "type":
			err = v.text(key, (*string)(&f.Type))
		case "request_id":
			err = v.requestID(&f.RequestID)
		case "payload":
			payload = v
		}
		if firstErr == nil {
			firstErr = err
		}
		return nil
	})
	if err == nil {
		err = firstErr
	}
	if err == nil {
		err = f.decode(payload)
	}
	if err != nil {
		return Frame{Type: f.Type, RequestID: f.RequestID}, err
	}
	return f, nil
}

func (f *Frame) decode(payload value) (err error) {
	switch f.Type {
	case FrameSend:
		f.Send, err = decodeSend(payload, "payload", "")
	case FrameAck, FrameRead:
		var items []AckItem
		items, err = decodeAckFrame(payload)
		for _, item := range items {
			if item.Err != nil {
				f.Refused++
				continue
			}
			f.Acks = append(f.Acks, item.Ack)
		}
	case FrameSync:
		f.Sync, err = decodeSync(payload, "payload")
	case FrameTyping:
		f.Typing, err = decodeTyping(payload)
	case FrameLook:
		f.Look, err = decodeLook(payload, "payload")
	case FramePing:
	case "":
		err = tidemark.BadParam(tidemark.Invalid, "type", "is missing")
	default:
		err = tidemark.BadParam(tidemark.Invalid, "type",
			"%.40q is unknown; the types are send_message, ack, read, sync_request, typing, "+
				"look and ping", f.Type)
	}
	return err
}

func (v value) requestID(to *string) error {
	var s string
	if err := v.text("request_id", &s); err != nil {
		return err
	}
	//rule:bounded_input.limit-request-id
	if len(s) > maxRequestID {
		return tidemark.BadParam(tidemark.Invalid,
			"request_id", "is %d bytes long, at most %d are allowed", len(s), maxRequestID)
	}
	*to = s
	return nil
}

// decodeAckFrame decodes the payload of `ack` and `read`: one chat, or a list of chats.
func decodeAckFrame(payload value) ([]AckItem, error) {
	list := false
	err := eachField(payload, "payload", func(key string, _ value) error {
		list = list || key == "chats"
		return nil
	})
	if err != nil {
		return nil, err
	}
	if list {
		return decodeAcks(payload, "payload")
	}
	item, err := decodeAck(payload, "payload")
	if err != nil {
		return nil, err
	}
	return []AckItem{item}, nil
}

func decodeTyping(payload value) (chat tidemark.ChatID, err error) {
	err = eachField(payload, "payload", func(key string, v value) error {
		if key == "chat_id" {
			return id(v, "chat_id", &chat)
		}
		return nil
	})
	if err == nil && chat == "" {
		err = tidemark.BadParam(tidemark.Invalid, "chat_id", "is missing")
	}
	return chat, err
}
