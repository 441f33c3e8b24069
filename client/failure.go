package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tidemark-im/tidemark"
)

// ErrUnknown is in the chain of the error of a Send that ended without an answer. The message may
// be stored, and may still appear. Send it again with the same ID to find out.
var ErrUnknown = errors.New("the outcome of the send is unknown")

// ending says why a call or a connection ended, and so what follows.
type ending int

// The endings.
const (
	// lost: there was no answer, the connection broke, or the server failed.
	lost ending = iota
	// blocked: nothing of Tidemark arrived, as if something on the way held it back.
	blocked
	// busy: the server said that the client has to come later.
	busy
	// silent: an open stream gave no sign of life for too long.
	silent
	// unauthenticated: the server refused the token.
	unauthenticated
	// refused: the server refused for good.
	refused
	// replaced: a newer connection or session took over, or the user ended the session.
	replaced
	// gone: the server does not have the session.
	gone
	// moved: the client left by itself, to come back over another transport or with a new token.
	moved
)

// failure is an error of a call or a connection.
type failure struct {
	ending ending
	// after is when the server asked to come back, 0 if it did not say.
	after time.Duration
	err   *tidemark.Error
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// fail returns a failure that the client found itself.
func fail(e ending, err error, format string, args ...any) *failure {
	return &failure{ending: e, err: &tidemark.Error{
		Code: tidemark.Unavailable, Detail: fmt.Sprintf(format, args...), Err: err,
	}}
}

// asFailure returns the failure in the chain of err. Any other error counts as lost.
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return fail(lost, err, "no answer")
}

// told returns the failure of a problem with the code, wherever the server said it.
func told(p problem, after time.Duration) *failure {
	f := &failure{err: p.cause(), after: after}
	switch p.Code {
	case tidemark.Unauthenticated:
		f.ending = unauthenticated
	case tidemark.Replaced:
		f.ending = replaced
	case tidemark.Gone:
		f.ending = gone
	case tidemark.Exhausted, tidemark.Unavailable:
		f.ending = busy
	case tidemark.Internal:
		f.ending = lost
	default:
		f.ending = refused
	}
	return f
}

// problemOf returns the failure of a problem event, which ends a stream.
func problemOf(payload []byte, after time.Duration) *failure {
	var p problem
	if err := json.Unmarshal(payload, &p); err != nil || p.Code == "" {
		return fail(lost, err, "a problem that cannot be read")
	}
	return told(p, after)
}

// answered returns what an HTTP answer means: nil for success. An answer counts only if it is in
// Tidemark's own words: a proxy's page of an error says nothing about the request.
func answered(status int, header http.Header, body []byte) *failure {
	if status >= 200 && status < 300 {
		return nil
	}
	var p problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		if status == http.StatusRequestEntityTooLarge {
			return told(problem{Code: tidemark.TooLarge,
				Detail: "something before the server refuses a request of this size"}, 0)
		}
		return fail(blocked, nil, "the answer %d does not come from a Tidemark server", status)
	}
	f := told(p, retryAfter(header))
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		f.ending = lost
	case f.ending == refused && status >= 500:
		f.ending = lost
	}
	return f
}

// stopped returns the error of a call whose context ended.
func stopped(ctx context.Context) *tidemark.Error {
	return &tidemark.Error{
		Code: tidemark.Unavailable, Detail: "the call was stopped", Err: context.Cause(ctx),
	}
}
