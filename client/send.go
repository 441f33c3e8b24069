package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// Draft is a message to send.
type Draft struct {
	// ID identifies the send (`client_message_id`): a repeated one returns the first message. Empty
	// stands for a random id. An answer to a message should derive its ID from that message, so
	// that there is one answer, even if the message is handled twice.
	ID     string
	ChatID tidemark.ChatID
	// Content is UTF-8 of 1 to tidemark.MaxContent bytes. It may be empty if there are attachments.
	Content string
	// ContentType is a media type. Empty stands for text/plain.
	ContentType string
	// Attachments is a JSON array of objects, Metadata a JSON object. Both may be nil.
	Attachments, Metadata json.RawMessage
	// Kind is tidemark.KindMessage, which empty stands for, or KindControl. Backends may send
	// KindSystem. Edit, Redact, React and Pin set it.
	Kind     tidemark.Kind
	Mentions tidemark.Mentions
	// Seen says how far the user has seen the chat, and everything up to there counts as read. It
	// may be absent. Then a send marks as read what was delivered to the user. A backend's send
	// marks nothing then, and neither does what is not shown: an edit, a redaction, a reaction, a
	// pin or a control message.
	Seen tidemark.Seen
	// SendBy is the latest time to store the message, at most 6 days ahead. Zero means no limit.
	// The server knows an ID for 7 days: a Send that may be repeated for longer needs a SendBy.
	SendBy time.Time

	// target is the message that Edit and Redact change, and React and Pin annotate, or 0.
	target tidemark.Sequence
	// emoji is that of React, or "".
	emoji string
}

// body returns the request of the draft.
func (d *Draft) body() map[string]any {
	b := map[string]any{"client_message_id": d.ID}
	set := func(name string, given bool, value any) {
		if given {
			b[name] = value
		}
	}
	set("content", d.Content != "", d.Content)
	set("content_type", d.ContentType != "", d.ContentType)
	set("attachments", d.Attachments != nil, d.Attachments)
	set("metadata", d.Metadata != nil, d.Metadata)
	set("kind", d.Kind != "", d.Kind)
	relation := map[string]any{"sequence": d.target}
	if d.emoji != "" {
		relation["emoji"] = d.emoji
	}
	set("relation", d.target != 0, relation)
	set("mentions", !d.Mentions.None(), map[string]any{
		"all": d.Mentions.All, "user_ids": d.Mentions.Users,
	})
	set("seen_sequence", d.Seen.Stated, d.Seen.Through)
	set("send_by", !d.SendBy.IsZero(), d.SendBy.UTC().Format(tidemark.TimeLayout))
	return b
}

// Send sends a message and returns it as it is stored. It repeats the send, with the same ID, until
// the server answers or ctx ends: give ctx a deadline. Send needs no Run, and may be called from
// handlers.
//
// The error is a *tidemark.Error. ErrUnknown is in its chain if an attempt had no answer, and then
// ctx ended or the token was refused: the message may be stored. Any other error means that it is
// not, such as NotMember, Denied, TooLarge, Conflict (the ID was used for something else) or
// Expired.
func (c *Client) Send(ctx context.Context, d Draft) (tidemark.Message, error) {
	if d.ID == "" {
		d.ID = rand.Text()
	}
	path := "/chats/" + url.PathEscape(string(d.ChatID)) + "/messages"
	body := d.body()
	unknown := false
	for n := 0; ; n++ {
		var raw json.RawMessage
		err := c.call(ctx, http.MethodPost, path, body, &raw)
		if err == nil {
			m, err := tidemark.ParseMessage(raw)
			if err == nil {
				return m, nil
			}
			unknown = true
		}
		f := asFailure(err)
		switch f.ending {
		case unauthenticated, replaced, gone:
			return tidemark.Message{}, outcome(f.err, unknown)
		case refused:
			return tidemark.Message{}, f.err
		}
		//rule:client_sends_once.unanswered-is-unknown
		unknown = unknown || f.err.Code != tidemark.Exhausted
		if ctx.Err() == nil {
			_ = signal.Pause(ctx, pause(n, f.after)) // the end of ctx is seen below
		}
		if ctx.Err() != nil {
			return tidemark.Message{}, outcome(stopped(ctx), unknown)
		}
	}
}

// Edit replaces what a message says by what a draft says: its content, content type, attachments,
// metadata and mentions. The draft names the chat. It returns the edit, which is a message of its
// own: Relation.Target is the edited message as it is now. Otherwise it is Send: with the same ID,
// it edits once.
//
// Besides those of Send there are these errors. NotFound: the chat has no such message. Denied: the
// message is of another user. Conflict: it was redacted, is a relation itself, or has been edited
// tidemark.MaxEdits times.
func (c *Client) Edit(
	ctx context.Context, target tidemark.Sequence, d Draft,
) (tidemark.Message, error) {
	d.Kind, d.target = tidemark.KindEdit, target
	return c.Send(ctx, d)
}

// Redact removes what a message says, for good and for everybody. The draft names the chat, and may
// have an ID, Seen and SendBy. An empty ID stands for one that follows from target: so a repeated
// Redact is the same one. It returns the redaction, which is a message of its own:
// Relation.Target is what is left of the message. The errors are those of Edit. Owners and
// admins of a group may redact messages of others. To redact a message again succeeds.
//
// To undo a reaction or a pin, redact it: target is then its own sequence. With another ID, to
// redact it again is a Conflict.
func (c *Client) Redact(
	ctx context.Context, target tidemark.Sequence, d Draft,
) (tidemark.Message, error) {
	if d.ID == "" {
		d.ID = "redact-" + strconv.FormatUint(uint64(target), 10)
	}
	d.Kind, d.target = tidemark.KindRedact, target
	return c.Send(ctx, d)
}

// React reacts to a message with an emoji. The draft names the chat, and may have an ID, Seen and
// SendBy. It returns the reaction, which is a message of its own. Otherwise it is Send: with the
// same ID, it reacts once.
//
// Besides those of Send there are these errors. NotFound: the chat has no such message. Conflict:
// the user's reaction with this emoji stands already, tidemark.MaxReactions of theirs do, or the
// message was redacted or is not one that is shown.
func (c *Client) React(
	ctx context.Context, target tidemark.Sequence, emoji string, d Draft,
) (tidemark.Message, error) {
	d.Kind, d.target, d.emoji = tidemark.KindReact, target, emoji
	return c.Send(ctx, d)
}

// Pin pins a message, as React reacts to one. In a group, owners and admins may pin (Denied).
// Conflict: the message is pinned already, tidemark.MaxPins of the chat are, or as for React.
func (c *Client) Pin(
	ctx context.Context, target tidemark.Sequence, d Draft,
) (tidemark.Message, error) {
	d.Kind, d.target = tidemark.KindPin, target
	return c.Send(ctx, d)
}

// outcome returns the error of a send. unknown says that an attempt had no answer.
func outcome(e *tidemark.Error, unknown bool) *tidemark.Error {
	if !unknown {
		return e
	}
	return &tidemark.Error{
		Code: e.Code, Detail: "the send had no answer, so it may be stored: " + e.Detail,
		Err: errors.Join(ErrUnknown, e),
	}
}

// Read says that the user has read a chat up to n, which others see. Within a Run it returns at
// once, and the server learns it when everything up to n is handled: what is read counts as
// received. Otherwise Read is one call.
func (c *Client) Read(ctx context.Context, chat tidemark.ChatID, n tidemark.Sequence) error {
	if r := c.running(); r != nil && r.inbox.read(chat, n) {
		return nil
	}
	var answer struct {
		Results []struct {
			Problem *problem `json:"problem"`
		} `json:"results"`
	}
	err := c.repeat(ctx, http.MethodPost, "/acks", map[string]any{
		"chats": []acked{{ChatID: chat, Read: n}},
	}, &answer)
	if err == nil && len(answer.Results) > 0 && answer.Results[0].Problem != nil {
		return answer.Results[0].Problem.cause()
	}
	return err
}

// repeat makes a call until the server answers or ctx ends. The error is a *tidemark.Error.
func (c *Client) repeat(ctx context.Context, method, path string, body, into any) error {
	for n := 0; ; n++ {
		err := c.call(ctx, method, path, body, into)
		if err == nil {
			return nil
		}
		f := asFailure(err)
		switch f.ending {
		case refused, unauthenticated, replaced, gone:
			return f.err
		}
		if ctx.Err() != nil || !signal.Pause(ctx, pause(n, f.after)) {
			e := stopped(ctx)
			e.Err = errors.Join(e.Err, f.err)
			return e
		}
	}
}
