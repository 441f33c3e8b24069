package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// tokenWithin bounds a call of Config.Token.
const tokenWithin = 30 * time.Second

// tokens keeps the token of a client. One call of Config.Token is under way at a time, and its
// result serves everyone who waits. It is safe for concurrent use.
type tokens struct {
	fetch func(context.Context) (string, error)
	// turn holds one element while no call is under way.
	turn chan struct{}

	mu    sync.Mutex // guards the fields below
	token string
	// renew is when the token should be replaced. It is zero if the token has no end.
	renew time.Time
}

func newTokens(fetch func(context.Context) (string, error)) *tokens {
	t := &tokens{fetch: fetch, turn: make(chan struct{}, 1)}
	t.turn <- struct{}{}
	return t
}

// get returns the present token, or a new one if there is none or it ends soon.
func (t *tokens) get(ctx context.Context) (string, error) {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { t.turn <- struct{}{} }()
	now := time.Now()
	old, renew := t.present()
	if old != "" && (renew.IsZero() || now.Before(renew)) {
		return old, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tokenWithin)
	defer cancel()
	token, err := t.fetch(ctx)
	var said *tidemark.Error
	switch {
	case err == nil:
		t.set(token, renewal(token, now))
		return token, nil
	case errors.As(err, &said) && said.Code == tidemark.Unauthenticated:
		return "", &failure{ending: refused, err: said}
	case old != "":
		// The old token may still be good. The server says when it is not.
		t.set(old, now.Add(renewAgain))
		return old, nil
	}
	return "", fail(lost, err, "Config.Token failed")
}

// renewAgain is after how long a failed renewal is tried again.
const renewAgain = 30 * time.Second

// present returns the token, or "", and when it should be replaced.
func (t *tokens) present() (token string, renew time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token, t.renew
}

func (t *tokens) set(token string, renew time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token, t.renew = token, renew
}

// renewAt returns when the present token should be replaced, or zero.
func (t *tokens) renewAt() time.Time {
	_, renew := t.present()
	return renew
}

// discard forgets a token that the server refused. Another caller may have replaced it already.
func (t *tokens) discard(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.token, t.renew = "", time.Time{}
	}
}

// renewal returns when a token that was received at now should be replaced: after four fifths of
// its life. The life is what the token says, so the clocks of client and issuer may differ. It is
// zero for a token that does not say, such as an API key.
func renewal(token string, now time.Time) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Issued  float64 `json:"iat"`
		Expires float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Expires == 0 {
		return time.Time{}
	}
	if claims.Issued == 0 {
		claims.Issued = float64(now.UnixMilli()) / 1000
	}
	life := time.Duration((claims.Expires - claims.Issued) * float64(time.Second))
	return now.Add(max(life, 0) * 4 / 5)
}
