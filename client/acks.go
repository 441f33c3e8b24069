package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// mostUnsaid is after how many handled messages they are acknowledged at once.
	mostUnsaid = 10
	// acksPerCall bounds the entries of one call or frame. With the longest ids that is below
	// 60 KiB.
	acksPerCall = 250
)

// keepAcknowledging acknowledges what is handled until ctx ends.
func (r *run) keepAcknowledging(ctx context.Context) {
	failures := 0
	var later, confirm time.Time // when to try again, and when frames have to be confirmed
	for {
		at := earliest(r.inbox.ackDue(r.c.timing.acks), confirm)
		if at.Before(later) && !at.IsZero() {
			at = later
		}
		if now := time.Now(); at.IsZero() || now.Before(at) {
			if _, ok := r.inbox.acks.WaitUntil(ctx, at); !ok {
				return
			}
			continue
		}
		byCall := !confirm.IsZero() && !time.Now().Before(confirm)
		switch how, f := r.acknowledge(ctx, byCall); {
		case f != nil:
			later = time.Now().Add(pause(failures, f.after))
			failures++
		case how == byFrame:
			failures = 0
			if confirm.IsZero() {
				confirm = time.Now().Add(r.c.timing.confirm)
			}
		default:
			failures, confirm = 0, time.Time{}
		}
	}
}

// earliest returns the earlier of two times, of which zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// way says how something was acknowledged.
type way int

// The ways.
const (
	byCall way = iota
	byFrame
)

// acknowledge acknowledges all that is due: by frames if the stream takes them, else by calls.
func (r *run) acknowledge(ctx context.Context, call bool) (way, *failure) {
	r.inbox.flushing()
	if s, of := r.frames(); s != nil && !call {
		all := r.inbox.due(of, false)
		for len(all) > 0 {
			part := all[:min(len(all), acksPerCall)]
			all = all[len(part):]
			if err := writeAcks(ctx, s, part); err != nil {
				// The stream is broken: its end says so, and what it was sent counts as unsaid.
				return byFrame, fail(lost, err, "a frame was not sent")
			}
			r.inbox.said(of, part, false)
		}
		return byFrame, nil
	}
	of := r.current().incarnation
	all := r.inbox.due(of, true)
	for len(all) > 0 {
		part := all[:min(len(all), acksPerCall)]
		all = all[len(part):]
		var answer struct {
			Results []struct {
				ChatID  tidemark.ChatID `json:"chat_id"`
				Problem *problem        `json:"problem"`
			} `json:"results"`
		}
		err := r.c.call(ctx, http.MethodPost, "/acks",
			map[string]any{"chats": part, "incarnation": of}, &answer)
		if err != nil {
			r.inbox.recount()
			return byCall, asFailure(err)
		}
		for _, result := range answer.Results {
			if result.Problem != nil {
				// The user has left the chat, or the data were restored. Either shows elsewhere.
				r.c.cfg.Logger.Info("an acknowledgement was refused", "chat", result.ChatID,
					"error", result.Problem.cause())
			}
		}
		r.inbox.said(of, part, true)
	}
	return byCall, nil
}

// writeAcks sends acknowledgements as frames. What is read has a frame of its own.
func writeAcks(ctx context.Context, s framer, all []acked) error {
	acks, reads := make([]acked, 0, len(all)), make([]acked, 0, len(all))
	for _, a := range all {
		if a.Acked > 0 {
			acks = append(acks, acked{ChatID: a.ChatID, Acked: a.Acked})
		}
		if a.Read > 0 {
			reads = append(reads, acked{ChatID: a.ChatID, Read: a.Read})
		}
	}
	for kind, chats := range map[string][]acked{"ack": acks, "read": reads} {
		if len(chats) == 0 {
			continue
		}
		frame, err := json.Marshal(map[string]any{
			"type": kind, "payload": map[string]any{"chats": chats},
		})
		if err != nil {
			return err
		}
		if err := s.write(ctx, frame); err != nil {
			return err
		}
	}
	return nil
}

// ackDue returns when something has to be acknowledged, or zero.
func (b *inbox) ackDue(within time.Duration) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.oldest.IsZero():
		return time.Time{}
	case b.unsaid >= mostUnsaid:
		return b.oldest
	}
	return b.oldest.Add(within)
}

// flushing notes that everything is about to be acknowledged.
func (b *inbox) flushing() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsaid, b.oldest = 0, time.Time{}
}

// recount notes that what was to be acknowledged was not.
func (b *inbox) recount() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(0)
}

// due returns what has to be acknowledged of the chats of an incarnation.
func (b *inbox) due(of tidemark.Incarnation, byCall bool) (all []acked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.dirty {
		//rule:client_survives_restore.other-incarnation-is-not-acknowledged
		if c.incarnation != of {
			continue
		}
		if a, some := c.progress.due(byCall); some {
			a.ChatID = c.id
			all = append(all, a)
		}
	}
	return all
}

// said notes that entries were sent, and whether the server answered.
func (b *inbox) said(of tidemark.Incarnation, all []acked, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range all {
		c := b.chats[a.ChatID]
		if c.incarnation != of {
			continue
		}
		c.progress.say(a, answered)
		if _, some := c.progress.due(true); !some {
			delete(b.dirty, c)
		}
	}
}

// read notes what the application has read of a chat. It reports whether the chat is known.
func (b *inbox) read(id tidemark.ChatID, n tidemark.Sequence) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.chats[id]
	if c == nil {
		return false
	}
	b.dirty[c] = struct{}{}
	c.progress.read = max(c.progress.read, n)
	if _, some := c.progress.due(false); some {
		b.count(1)
		b.acks.Set()
	}
	return true
}
