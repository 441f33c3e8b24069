package wire

import (
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// These frames answer the connection, or a frame of the client. They have no id, because they
// belong to the connection and not to the session.

// AppendHello appends the `hello` frame. heartbeat is the longest silence of the server.
func AppendHello(b []byte, heartbeat time.Duration) []byte {
	b = appendReply(b, "hello", "")
	b = append(b, `{"heartbeat_seconds":`...)
	b = strconv.AppendInt(b, int64(heartbeat/time.Second), 10)
	return append(b, '}', '}')
}

// AppendSendAck appends the `send_message_ack` frame of a stored message.
func AppendSendAck(b []byte, requestID string, sent server.Sent) []byte {
	b = appendReply(b, string(tidemark.EventConfirmation), requestID)
	c := tidemark.Confirmation{Message: &sent.Message, Duplicate: sent.Duplicate}
	return append(c.AppendJSON(b), '}')
}

// AppendSyncReply appends the `sync_response` frame.
func AppendSyncReply(b []byte, requestID string, r server.SyncResponse) []byte {
	b = appendReply(b, "sync_response", requestID)
	b = AppendSync(b, r)
	return append(b, '}')
}

// AppendPong appends the `pong` frame.
func AppendPong(b []byte, requestID string) []byte {
	b = appendReply(b, "pong", requestID)
	return append(b, `{}}`...)
}

// AppendError appends the `problem` frame of an error. The frame holds nothing of the error's
// cause.
func AppendError(b []byte, requestID string, err error) []byte {
	b = appendReply(b, string(tidemark.EventProblem), requestID)
	b = ProblemOf(err).AppendJSON(b)
	return append(b, '}')
}

// ProblemOf returns the payload of the `problem` event for an error. It holds nothing of the
// error's cause.
func ProblemOf(err error) tidemark.Problem {
	return tidemark.Problem{
		Code:   tidemark.CodeOf(err),
		Detail: tidemark.DetailOf(err),
		Param:  tidemark.ParamOf(err),
	}
}

// appendReply appends a frame up to its payload.
func appendReply(b []byte, frameType, requestID string) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, frameType...)
	b = append(b, '"')
	if requestID != "" {
		b = append(b, `,"request_id":`...)
		b = tidemark.AppendString(b, requestID)
	}
	return append(b, `,"payload":`...)
}
