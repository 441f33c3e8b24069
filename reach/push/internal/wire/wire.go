// Package wire has what the providers of push notifications share as clients of HTTP: bounded
// answers, Retry-After, and what a failed connection means.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark/reach/push"
)

// Bounds of an answer, and of what one may demand.
const (
	// MaxAnswer is how many bytes of an answer's body are read.
	MaxAnswer = 8 << 10
	// MaxHeaders is how many bytes of headers are read.
	MaxHeaders = 16 << 10
	// MaxWait is the longest wait that an answer may demand. No notification is kept for longer.
	MaxWait = time.Hour
)

// Answer is a response of a provider.
type Answer struct {
	Status int
	Header http.Header
	// Body is at most MaxAnswer bytes. It is cut if there are more.
	Body []byte
}

// Do sends a request and reads the answer. The client must not follow redirects.
func Do(client *http.Client, request *http.Request) (Answer, error) {
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		// The body is the connection itself, whose reads the request's context does not end.
		return Answer{Status: response.StatusCode, Header: response.Header}, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxAnswer))
	if err != nil {
		return Answer{}, err
	}
	return Answer{response.StatusCode, response.Header, body}, nil
}

// NoRedirect is for http.Client.CheckRedirect: a redirect is an answer like any other.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Unreachable returns the result of a request without an answer. The text of the error is left
// out: it contains the address.
func Unreachable(err error) push.Result {
	why := "the connection to the provider failed"
	if errors.Is(err, context.DeadlineExceeded) {
		why = "the provider gave no answer in time"
	}
	return push.Result{Outcome: push.Retry, Detail: why + "; the notification is tried again"}
}

// Busy returns the result of an answer that says to come back later, after at least least.
func Busy(a Answer, now time.Time, least time.Duration) push.Result {
	//rule:push_waits_as_told.least-wait
	wait := max(RetryAfter(a.Header, now), least)
	return push.Result{
		Outcome: push.Retry, Wait: wait,
		Detail: "the provider is busy, or failed (status " + strconv.Itoa(a.Status) +
			"); the notification is tried again",
	}
}

// RetryAfter returns the wait that an answer demands, in seconds or as a date (RFC 9110 §10.2.3):
// 0 to MaxWait. 0 means that it demands none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(MaxWait/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), MaxWait)
	}
	return 0
}

// mostSkew is how far the clock of a provider may be from ours. Tokens of logins name times.
const mostSkew = time.Minute

// Look asks a server for its root, which means nothing to it. It returns why the server cannot be
// used: it is not reached, it speaks no HTTP/2, or its clock is another one.
func Look(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("it cannot be reached: %w; check this machine's way to it", err)
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 {
		return fmt.Errorf("%s answers by %s, and HTTP/2 is needed; check what is in between",
			request.URL.Host, response.Proto)
	}
	date, err := http.ParseTime(response.Header.Get("Date"))
	if skew := time.Until(date).Round(time.Second); err == nil && skew.Abs() > mostSkew {
		return fmt.Errorf("the clock of this machine differs by %v from that of %s; set it", skew,
			request.URL.Host)
	}
	return nil
}
