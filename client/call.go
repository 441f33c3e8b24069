package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/tidemark-im/tidemark"
)

// maxAnswer bounds the body of an answer in bytes. The largest is a page of history.
const maxAnswer = 32 << 20

// call makes one call as the client's user, and decodes the answer into it, unless into is nil. If
// the server refuses the token, it tries once more with a new one. Every error is a *failure.
func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return &failure{ending: refused, err: &tidemark.Error{
				Code: tidemark.Invalid, Detail: "the request cannot be encoded as JSON", Err: err,
			}}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timing.call)
	defer cancel()
	for again := true; ; again = false {
		token, err := c.tokens.get(ctx)
		if err != nil {
			return asFailure(err)
		}
		f := c.exchange(ctx, token, method, path, raw, into)
		if f == nil {
			return nil
		}
		if f.ending == unauthenticated {
			c.tokens.discard(token)
			if again {
				continue
			}
		}
		return f
	}
}

// exchange sends one request and decodes its answer.
func (c *Client) exchange(
	ctx context.Context, token, method, path string, body []byte, into any,
) *failure {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return fail(lost, err, "the request cannot be made")
	}
	c.sign(r.Header, token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(r)
	if err != nil {
		return fail(lost, err, "no answer")
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fail(lost, err, "the answer was cut off")
	}
	if f := answered(response.StatusCode, response.Header, answer); f != nil {
		return f
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fail(blocked, err, "the answer does not come from a Tidemark server")
	}
	return nil
}

// sign adds the credentials to a request.
func (c *Client) sign(h http.Header, token string) {
	h.Set("Authorization", "Bearer "+token)
	h.Set("X-User-ID", string(c.cfg.User))
}

// answers reports whether the server answers a call now.
func (c *Client) answers(ctx context.Context) bool {
	var sessions struct {
		Sessions []json.RawMessage `json:"sessions"`
	}
	return c.call(ctx, http.MethodGet, "/sessions", nil, &sessions) == nil
}
