package websocket

import (
	"context"
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Requests that may wait for storage run beside the reading of the socket. Each has a key. Frames
// of one key run in order, and those that queue up run together. The key of a message is its chat,
// so a chat's messages are stored in the order in which they arrived. Other keys contain a space,
// which no chat id has.
const (
	keySync   = "the sync requests"
	keyTyping = "the typing notices"
	keyLook   = "the looks"
)

const (
	// maxWork bounds what one connection has under way, in slots. Until some are free, the socket
	// is not read.
	maxWork = 64
	// slotBytes is how many bytes of a frame count as one slot, so that 64 slots are at most 1 MiB.
	slotBytes = 16 << 10
)

// handle does what a frame asks for, or queues it. Acknowledgements are taken at once and never
// answered.
func (c *connection) handle(raw []byte) {
	f, err := wire.DecodeFrame(raw)
	if err != nil {
		//rule:ack_fire_and_forget.no-answer-to-bad-acknowledgement
		if f.Type.Silent() {
			c.adapter.errors.Add(tidemark.CodeOf(err))
		} else {
			c.refuse(f.RequestID, err)
		}
		return
	}
	switch f.Type {
	case wire.FrameSend:
		err := c.identity.Permits(auth.ScopeSend)
		if err == nil {
			_, err = c.adapter.cfg.Limit.Send(c.identity.Caller, f.Send.Kind)
		}
		//rule:caller_does_only_what_they_may.frames-need-the-scope
		if err != nil {
			c.refuse(f.RequestID, err)
			return
		}
		//rule:session_in_order.key-per-chat
		c.do(string(f.Send.ChatID), len(raw), f)
	case wire.FrameAck, wire.FrameRead:
		for range f.Refused {
			//rule:metrics_documented.count-refused-frames
			c.adapter.errors.Add(tidemark.Invalid)
		}
		//rule:ack_fire_and_forget.take-acknowledgement
		c.session.Ack(f.Acks...)
	case wire.FrameSync:
		if _, err := c.adapter.cfg.Limit.Call(c.identity.Caller, limit.LargeCall); err != nil {
			c.refuse(f.RequestID, err)
			return
		}
		c.do(keySync, len(raw), f)
	case wire.FrameTyping:
		// else it is dropped, as it may be
		if c.identity.Permits(auth.ScopeSend) != nil {
			return
		}
		if _, err := c.adapter.cfg.Limit.Call(c.identity.Caller, limit.Call); err == nil {
			c.do(keyTyping, len(raw), f)
		}
	case wire.FrameLook:
		if _, err := c.adapter.cfg.Limit.Call(c.identity.Caller, limit.Call); err != nil {
			c.refuse(f.RequestID, err)
			return
		}
		c.do(keyLook, len(raw), f)
	case wire.FramePing:
		c.reply(func(b []byte) []byte { return wire.AppendPong(b, f.RequestID) })
	}
}

// do queues a frame that size bytes were read for. It blocks while too much is under way.
func (c *connection) do(key string, size int, frame wire.Frame) {
	if c.work == nil {
		c.work = batch.NewKeyed(maxWork, c.serve)
	}
	c.work.Add(key, 1+size/slotBytes, frame)
}

// serve handles the frames of one key, which are of one type.
func (c *connection) serve(_ string, frames []wire.Frame, _ bool) {
	switch frames[0].Type {
	case wire.FrameSync:
		c.sync(frames)
	case wire.FrameTyping:
		c.typing(frames)
	case wire.FrameLook:
		c.look(frames[len(frames)-1])
	default:
		c.send(frames)
	}
}

// send sends the messages of one chat together and answers each. Their context has the request id
// of the first.
func (c *connection) send(frames []wire.Frame) {
	ctx, cancel := c.requestContext(&frames[0])
	defer cancel()
	requests := make([]tidemark.Draft, len(frames))
	for i := range frames {
		requests[i] = frames[i].Send
		c.identity.Author(&requests[i])
	}
	results, taken := c.sendAll(ctx, frames, requests)
	c.answer(frames, results, taken)
}

// answer answers sends, but not those whose confirmations the stream has. The answers share a
// write: a client that waits for them then sends its next messages together, too.
func (c *connection) answer(frames []wire.Frame, results []server.Sent, taken []bool) {
	for i, result := range results {
		switch {
		case result.Err != nil:
			c.appendRefusal(frames[i].RequestID, result.Err)
		case !taken[i]:
			c.append(func(b []byte) []byte {
				return wire.AppendSendAck(b, frames[i].RequestID, result)
			})
		}
	}
	_ = c.conn.Flush()
}

// sendAll sends messages. taken says which confirmations the session's stream has.
func (c *connection) sendAll(
	ctx context.Context, frames []wire.Frame, requests []tidemark.Draft,
) (results []server.Sent, taken []bool) {
	if !c.confirms {
		return c.session.SendAll(ctx, requests), make([]bool, len(requests))
	}
	ids := make([]string, len(frames))
	for i := range frames {
		ids[i] = frames[i].RequestID
	}
	return c.session.SendConfirmed(ctx, requests, ids)
}

func (c *connection) sync(frames []wire.Frame) {
	for _, f := range frames {
		c.syncOne(f)
	}
}

func (c *connection) syncOne(f wire.Frame) {
	ctx, cancel := c.requestContext(&f)
	defer cancel()
	answer, err := c.session.Sync(ctx, f.Sync)
	if err != nil {
		c.refuse(f.RequestID, err)
		return
	}
	c.reply(func(b []byte) []byte { return wire.AppendSyncReply(b, f.RequestID, answer) })
}

func (c *connection) typing(frames []wire.Frame) {
	ctx, cancel := c.requestContext(&frames[0])
	defer cancel()
	for _, f := range frames {
		c.session.Typing(ctx, f.Typing)
	}
}

// look takes the last of the looks that queued up, because it replaces the others.
func (c *connection) look(frame wire.Frame) {
	ctx, cancel := c.requestContext(&frame)
	defer cancel()
	if err := c.session.Look(ctx, frame.Look); err != nil {
		c.refuse(frame.RequestID, err)
	}
}

// requestContext returns the context of a frame's request. Its request id is the frame's, if that
// is a valid id. Otherwise it is the session's id with a number, so that logs distinguish the
// frames of a connection.
func (c *connection) requestContext(f *wire.Frame) (context.Context, context.CancelFunc) {
	id := f.RequestID
	//rule:request_id_reaches_storage.request-id-of-frame
	if !tidemark.ValidID(id) {
		id = string(c.session.Session()) + ":" + strconv.FormatUint(uint64(c.unnamed.Add(1)), 10)
	}
	ctx := audit.WithActor(c.adapter.requests,
		audit.Actor{Key: c.identity.KeyName(), User: c.identity.User})
	return context.WithTimeout(tidemark.WithRequestID(ctx, id), c.adapter.cfg.RequestTimeout)
}

// refuse answers a frame with an error. The connection stays open.
func (c *connection) refuse(requestID string, err error) {
	c.appendRefusal(requestID, err)
	_ = c.conn.Flush()
}

// appendRefusal adds an error to the next flush.
func (c *connection) appendRefusal(requestID string, err error) {
	c.adapter.errors.Add(tidemark.CodeOf(err))
	c.append(func(b []byte) []byte { return wire.AppendError(b, requestID, err) })
}

// reply sends a frame. If the connection has failed, its reader ends it, and the client asks again
// on its next one.
func (c *connection) reply(encode func([]byte) []byte) {
	c.append(encode)
	_ = c.conn.Flush()
}

// append adds a frame to the next flush. First it waits until less than a page is queued.
func (c *connection) append(encode func([]byte) []byte) {
	if c.conn.out.Wait() != nil {
		return
	}
	b := c.adapter.pool.Get()
	*b = encode(*b)
	_ = c.conn.Send(*b)
	c.adapter.pool.Put(b)
}
