package websocket

import (
	"context"
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// The keys of lanes that are not those of a chat; no chat id holds a space.
const (
	laneSync   = "the sync requests"
	laneTyping = "the typing notices"
)

// handle does what a frame asks for. Acknowledgements are taken at once and never answered; what may wait for storage goes on a lane, so that
// thousands of sends may be under way on one socket while it is read on.
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
		if err := c.adapter.cfg.Limit.Send(c.identity.User); err != nil {
			c.refuse(f.RequestID, err)
			return
		}
		//rule:session_in_order.lane-per-chat
		c.do(string(f.Send.ChatID), len(raw), f, c.send)
	case wire.FrameAck, wire.FrameRead:
		for range f.Refused {
			//rule:metrics_documented.count-refused-frames
			c.adapter.errors.Add(tidemark.Invalid)
		}
		//rule:ack_fire_and_forget.take-acknowledgement
		c.session.Ack(f.Acks...)
	case wire.FrameSync:
		if err := c.adapter.cfg.Limit.Call(c.identity.User, limit.LargeCall); err != nil {
			c.refuse(f.RequestID, err)
			return
		}
		c.do(laneSync, len(raw), f, c.sync)
	case wire.FrameTyping:
		if c.adapter.cfg.Limit.Call(c.identity.User, limit.Call) == nil { // else it is dropped, as it may be
			c.do(laneTyping, len(raw), f, c.typing)
		}
	case wire.FramePing:
		c.reply(func(b []byte) []byte { return wire.AppendPong(b, f.RequestID) })
	}
}

// do runs a request on a lane.
func (c *connection) do(lane string, size int, frame wire.Frame, run func(frames []wire.Frame)) {
	if c.work == nil {
		c.work = new(lanes)
	}
	c.work.do(lane, size, frame, run)
}

// send sends the messages of one chat together, and answers each. Their context has the request id of the first.
func (c *connection) send(frames []wire.Frame) {
	ctx, cancel := c.requestContext(&frames[0])
	defer cancel()
	requests := make([]tidemark.Draft, len(frames))
	for i := range frames {
		requests[i] = frames[i].Send
	}
	for i, result := range c.session.SendAll(ctx, requests) {
		if result.Err != nil {
			c.refuse(frames[i].RequestID, result.Err)
			continue
		}
		c.reply(func(b []byte) []byte { return wire.AppendSendAck(b, frames[i].RequestID, result) })
	}
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

// requestContext returns the context of what a frame asks for. Its request id is the frame's, or, if that has none that fits a log, the session's with a
// number: the frames of one connection are told apart.
func (c *connection) requestContext(f *wire.Frame) (context.Context, context.CancelFunc) {
	id := f.RequestID
	//rule:request_id_reaches_storage.request-id-of-frame
	if !tidemark.ValidID(id) {
		id = string(c.session.Session()) + ":" + strconv.FormatUint(uint64(c.unnamed.Add(1)), 10)
	}
	return context.WithTimeout(tidemark.WithRequestID(c.adapter.requests, id), c.adapter.cfg.RequestTimeout)
}

// refuse answers a frame with an error. The socket stays open.
func (c *connection) refuse(requestID string, err error) {
	c.adapter.errors.Add(tidemark.CodeOf(err))
	c.reply(func(b []byte) []byte { return wire.AppendError(b, requestID, err) })
}

// reply sends a frame, after what waits to be sent has become less than a page. If the connection has failed, its reader
// knows, and the client asks again on the next one.
func (c *connection) reply(encode func([]byte) []byte) {
	if c.conn.out.Wait() != nil {
		return
	}
	b := c.adapter.pool.Get()
	*b = encode(*b)
	if c.conn.Send(*b) == nil {
		_ = c.conn.Flush()
	}
	c.adapter.pool.Put(b)
}
