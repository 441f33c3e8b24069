package hook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/webhook"
)

const (
	defaultTimeout = 500 * time.Millisecond
	// maxDrafts is how many messages one request asks about at most.
	maxDrafts = 100
	// maxAnswer is how many bytes of an answer are read, and maxHeader of its header. A longer
	// answer is a failure.
	maxAnswer = 1 << 20
	maxHeader = 16 << 10
	// atOnce is how many requests are under way at most, and maxWaiting how many senders wait for
	// one to end. They wait within the timeout.
	atOnce     = 64
	maxWaiting = 1_024
	// logEvery is the least time between two warnings about failures.
	logEvery = 10 * time.Second
)

// Config configures a Hook. URL and Secrets are required.
type Config struct {
	// URL is that of the receiver. It begins with https:// or http://.
	URL string
	// Secrets sign each request (webhook.NewSigners).
	Secrets []string
	// Timeout bounds a request: wait, connect, handshake, request and answer. Default 500 ms.
	Timeout time.Duration
	// Closed refuses messages with Unavailable if there is no valid answer. Otherwise they are
	// stored.
	Closed bool
	// Roots are the authorities of TLS, nil for those of the system.
	Roots *x509.CertPool
	// Logger is slog.Default() by default. It never gets message text.
	Logger *slog.Logger
}

// Hook asks a receiver about messages. It is safe for concurrent use.
type Hook struct {
	cfg     Config
	signers webhook.Signers
	client  *http.Client
	// waiting has a token for each sender who asks or waits, and asking for each who asks.
	waiting, asking chan struct{}
	breaker         breaker
	// logged is when a failure was logged last, in Unix ns.
	logged atomic.Int64

	requests, micros                   atomic.Int64
	allowed, refused, replaced, failed atomic.Int64
}

// New returns a Hook. It connects to nothing. Invalid: the URL or a secret.
func New(cfg Config) (*Hook, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	signers, err := webhook.NewSigners(cfg.Secrets)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		u.User != nil || u.Fragment != "" {
		return nil, tidemark.BadParam(tidemark.Invalid, "url",
			"must be https://HOST/PATH or http://HOST/PATH, without a user and a fragment")
	}
	transport := &http.Transport{
		TLSClientConfig:        &tls.Config{RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		MaxConnsPerHost:        atOnce,
		MaxIdleConnsPerHost:    atOnce,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: maxHeader,
	}
	client := &http.Client{
		Transport: transport,
		// A signed request goes to the configured URL only.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return &Hook{
		cfg: cfg, signers: signers, client: client,
		waiting: make(chan struct{}, atOnce+maxWaiting), asking: make(chan struct{}, atOnce),
	}, nil
}

// Review asks about drafts, at most maxDrafts in a request. It returns them as they may be stored,
// and an error for each that may not be stored. It takes at most Config.Timeout for each request.
//
// Errors: Denied (the receiver refuses the message), Unavailable (there is no valid answer, and
// Config.Closed is set).
func (h *Hook) Review(
	ctx context.Context, drafts []tidemark.Draft,
) (reviewed []tidemark.Draft, refused []error) {
	for some := range slices.Chunk(drafts, maxDrafts) {
		stored, errs, err := h.ask(ctx, some)
		if err != nil {
			h.fail(err, len(some))
			stored, errs = some, slices.Repeat([]error{h.unanswered()}, len(some))
		}
		reviewed, refused = append(reviewed, stored...), append(refused, errs...)
	}
	return reviewed, refused
}

// unanswered returns the error for a sender if there is no answer, or nil if the message is stored
// all the same.
func (h *Hook) unanswered() error {
	//rule:asked_before_stored.policy-without-an-answer
	if !h.cfg.Closed {
		return nil
	}
	return tidemark.Errorf(tidemark.Unavailable,
		"the message cannot be reviewed now, so it is not stored; send it again")
}

// errBusy and errResting say why no request was sent.
var (
	errBusy    = errors.New("too many messages wait for the receiver")
	errResting = errors.New("the receiver failed several times, and is not asked for a while")
)

// ask asks about drafts in one request. The error says that there is no valid answer.
func (h *Hook) ask(
	ctx context.Context, drafts []tidemark.Draft,
) (reviewed []tidemark.Draft, refused []error, err error) {
	// A sender who has gone is no failure of the receiver.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.Timeout)
	defer cancel()
	select {
	case h.waiting <- struct{}{}:
	default:
		return nil, nil, errBusy
	}
	defer func() { <-h.waiting }()
	select {
	case h.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, errBusy
	}
	defer func() { <-h.asking }()
	// Last, because many senders at a time are no failure of the receiver.
	if !h.breaker.admit(time.Now()) {
		return nil, nil, errResting
	}
	defer func() { h.breaker.done(time.Now(), err != nil) }()
	began := time.Now()
	answer, err := h.post(ctx, drafts)
	h.requests.Add(1)
	h.micros.Add(time.Since(began).Microseconds())
	if err != nil {
		return nil, nil, err
	}
	return h.judge(drafts, answer)
}

// post sends a request and returns the body of the answer, which is nil for 204.
func (h *Hook) post(ctx context.Context, drafts []tidemark.Draft) ([]byte, error) {
	now := time.Now()
	id := "review_" + rand.Text()
	body := appendRequest(nil, id, now, drafts)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL,
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	h.signers.Sign(request.Header, id, now, body)
	// A question may be asked twice. So the client repeats by itself what it sent on a connection
	// that the receiver was closing. A header without values is not sent.
	request.Header["Idempotency-Key"] = []string{}
	answer, err := h.client.Do(request)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // without the URL, which may have a secret
		}
		return nil, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent:
		return nil, nil
	default:
		return nil, fmt.Errorf("the receiver answered %d", answer.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("%w: it is longer than %d bytes", errAnswer, maxAnswer)
	}
	return text, err
}

// judge applies an answer to drafts. All of it is valid, or none.
func (h *Hook) judge(
	drafts []tidemark.Draft, answer []byte,
) (reviewed []tidemark.Draft, refused []error, err error) {
	reviewed, refused = slices.Clone(drafts), make([]error, len(drafts))
	if answer == nil {
		h.allowed.Add(int64(len(drafts)))
		return reviewed, refused, nil
	}
	verdicts, err := parse(answer, len(drafts))
	if err != nil {
		return nil, nil, err
	}
	counts := map[string]int64{}
	for i := range verdicts {
		var wrong error
		reviewed[i], refused[i], wrong = verdicts[i].apply(drafts[i])
		if wrong != nil {
			return nil, nil, wrong
		}
		counts[verdicts[i].Action]++
	}
	h.allowed.Add(counts[allow])
	h.refused.Add(counts[refuse])
	h.replaced.Add(counts[replace])
	return reviewed, refused, nil
}

// fail counts messages without a valid answer, and logs why.
func (h *Hook) fail(err error, messages int) {
	h.failed.Add(int64(messages))
	now, before := time.Now().UnixNano(), h.logged.Load()
	if now-before < int64(logEvery) || !h.logged.CompareAndSwap(before, now) {
		return
	}
	policy := "open"
	if h.cfg.Closed {
		policy = "closed"
	}
	h.cfg.Logger.Warn("messages could not be reviewed before storing; the policy decides",
		"policy", policy, "error", err)
}

// Counters returns the metrics by name. The counts by action are messages. A nil Hook has zeros.
func (h *Hook) Counters() map[string]int64 {
	if h == nil {
		h = &Hook{}
	}
	resting := int64(0)
	if h.breaker.resting() {
		resting = 1
	}
	return map[string]int64{
		"hook_requests_total":           h.requests.Load(),
		"hook_microseconds_total":       h.micros.Load(),
		"hook_messages_total{allowed}":  h.allowed.Load(),
		"hook_messages_total{refused}":  h.refused.Load(),
		"hook_messages_total{replaced}": h.replaced.Load(),
		"hook_messages_total{failed}":   h.failed.Load(),
		"hook_resting":                  resting,
	}
}
