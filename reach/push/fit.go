package push

import (
	"bytes"
	"encoding/json"
	"sort"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
)

// Data is what the handler on the device reads, as JSON. In a banner that is not sealed, the text
// is where the provider wants it, and not here.
type Data struct {
	Kind   Kind              `json:"kind"`
	Name   string            `json:"tag,omitempty"`
	Chat   tidemark.ChatID   `json:"chat_id,omitempty"`
	From   tidemark.Sequence `json:"from_sequence,omitempty"`
	To     tidemark.Sequence `json:"to_sequence,omitempty"`
	Token  string            `json:"ack_token,omitempty"`
	Title  string            `json:"title,omitempty"`
	Body   string            `json:"body,omitempty"`
	Badge  int               `json:"badge"`
	Clears []Cleared         `json:"clears,omitempty"`
}

// Data returns what the handler reads, with the text.
func (n Notification) Data() Data {
	return Data{
		Kind: n.Kind, Name: n.Name, Chat: n.Chat, From: n.From, To: n.To, Token: n.Token,
		Title: n.Title, Body: n.Body, Badge: n.Count(), Clears: n.Clears,
	}
}

// JSON returns a value as JSON in which <, > and & are themselves.
func JSON(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// Fit returns an encoding of a notification that has at most limit bytes. encode must return more
// bytes for more text. If the whole is too long, Fit shortens it in this order, until it fits:
//
//  1. The token is left out whole, so the handler syncs: the rest is not the whole message.
//  2. The body is cut, then the title. A cut is between two characters, and "…" follows.
//  3. The banners to clear are left out.
//
// What still does not fit is an Error with the code TooLarge.
func Fit(n Notification, limit int, encode func(Notification) ([]byte, error)) ([]byte, error) {
	whole, err := encode(n)
	if err != nil || len(whole) <= limit {
		return whole, err
	}
	//rule:ack_token_honest.no-token-of-a-part
	n.Token = ""
	for _, shorten := range []func(Notification, int) Notification{
		func(n Notification, most int) Notification { n.Body = cut(n.Body, most); return n },
		func(n Notification, most int) Notification { n.Title = cut(n.Title, most); return n },
		func(n Notification, _ int) Notification { n.Clears = nil; return n },
	} {
		// The least count of bytes that is too long; one less is the longest that fits.
		tooLong := sort.Search(limit+1, func(most int) bool {
			short, failed := encode(shorten(n, most))
			if failed != nil {
				err = failed
			}
			return len(short) > limit
		})
		if err != nil {
			return nil, err
		}
		if tooLong > 0 {
			return encode(shorten(n, tooLong-1))
		}
		n = shorten(n, 0)
	}
	return nil, tidemark.Errorf(tidemark.TooLarge,
		"the notification has more than %d bytes even without its text; shorten the app's name "+
			"and the device's id", limit)
}

const ellipsis = "…"

// cut returns a text of at most most bytes: the whole, or its beginning with "…", or "".
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most - len(ellipsis)
	//rule:push_fits.cut-between-characters
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if end <= 0 {
		return ""
	}
	return text[:end] + ellipsis
}
