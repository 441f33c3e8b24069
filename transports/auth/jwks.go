package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

const (
	// maxKeySet is the largest size of a key set, in bytes.
	//rule:bounded_input.limit-key-set
	maxKeySet = 1 << 20
	// maxRedirects is how many redirects of the endpoint are followed.
	maxRedirects = 3
	// firstRetry and lastRetry bound the pause after a failed fetch. It doubles with each failure.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// JWKSConfig configures a JWKS. URL is required.
type JWKSConfig struct {
	// URL is where the issuer publishes its keys: https, or http on a loopback host.
	URL string
	// Refresh is the time between two fetches, and so how long a removed key still works. Default 5
	// min.
	Refresh time.Duration
	// AskEvery is the least time between two fetches that tokens with unknown keys cause. It bounds
	// all such tokens together. Default 10 s.
	AskEvery time.Duration
	// Timeout bounds a fetch. Default 5 s.
	Timeout time.Duration
	// Logger default: slog.Default().
	Logger *slog.Logger
}

// JWKS holds the public keys of an issuer. Run fetches them from the issuer's endpoint. While the
// endpoint cannot be reached, the latest keys stay valid. It is safe for concurrent use.
type JWKS struct {
	cfg    JWKSConfig
	client *http.Client
	// asked makes Run fetch at once, because a key is unknown.
	asked signal.Flag

	mu sync.Mutex
	// set is the latest key set, or nil before the first. raw is its text, to detect changes.
	set *keySet
	raw []byte
	// fetching is closed when the fetch that runs or was asked for ends. It is nil if there is
	// none.
	fetching chan struct{}
	// askAgain is the time from which an unknown key may cause a fetch again.
	askAgain time.Time
	// failed is true if the latest fetch failed. Run logs only when it changes.
	failed            bool
	fetches, failures int64
}

// NewJWKS returns a JWKS without keys, which Run fetches. It returns Invalid if the URL is neither
// https nor http on a loopback host.
func NewJWKS(cfg JWKSConfig) (*JWKS, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || !mayFetch(u) {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the URL of the keys must be https://…, or http://… on a loopback host")
	}
	if cfg.Refresh == 0 {
		cfg.Refresh = 5 * time.Minute
	}
	if cfg.AskEvery == 0 {
		cfg.AskEvery = 10 * time.Second
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	client := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		Timeout:       cfg.Timeout,
		CheckRedirect: checkRedirect,
	}
	return &JWKS{cfg: cfg, client: client, asked: signal.New()}, nil
}

// mayFetch reports whether an attacker on the network cannot change what the URL returns.
func mayFetch(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	//rule:caller_does_only_what_they_may.https-or-loopback
	return u.Scheme == "https" && host != "" || u.Scheme == "http" &&
		(host == "localhost" || ip != nil && ip.IsLoopback())
}

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || r.URL.Scheme != via[0].URL.Scheme || !mayFetch(r.URL) {
		return errors.New("a redirect is not followed: it changes the scheme, " +
			"leads to an insecure address, or is one too many")
	}
	return nil
}

// Run fetches the keys at once and then every JWKSConfig.Refresh, until ctx ends. After a failure
// it retries sooner.
func (j *JWKS) Run(ctx context.Context) {
	next, pause := time.Now(), firstRetry
	for {
		if _, ok := j.asked.WaitUntil(ctx, next); !ok {
			return
		}
		if j.refresh(ctx) {
			pause = firstRetry
			next = time.Now().Add(j.cfg.Refresh)
		} else {
			next = time.Now().Add(min(pause, j.cfg.Refresh))
			pause = min(2*pause, lastRetry)
		}
	}
}

// refresh fetches the keys once and releases the callers that wait for them. It reports success.
func (j *JWKS) refresh(ctx context.Context) (ok bool) {
	j.asked.Clear() // callers that ask from now on share this fetch
	j.mu.Lock()
	if j.fetching == nil {
		j.fetching = make(chan struct{})
	}
	j.mu.Unlock()

	raw, err := j.fetch(ctx)
	var set *keySet
	var ignored []error
	if err == nil {
		set, ignored, err = parseKeySet(raw)
	}

	j.mu.Lock()
	j.fetches++
	if err != nil {
		j.failures++
	}
	turned := j.failed != (err != nil)
	j.failed = err != nil
	loaded := j.set != nil
	changed := err == nil && (!loaded || !bytes.Equal(raw, j.raw))
	//rule:caller_does_only_what_they_may.keep-old-keys-after-failure
	if changed {
		j.set, j.raw = set, raw
	}
	close(j.fetching)
	j.fetching = nil
	j.mu.Unlock()

	log := j.cfg.Logger
	switch {
	case err != nil && turned && ctx.Err() == nil:
		log.Warn("the keys of the issuer cannot be fetched; the known keys stay valid",
			"known", loaded, "error", err)
	case err == nil && turned:
		log.Info("the keys of the issuer can be fetched again")
	}
	switch {
	case changed && len(set.keys) == 0:
		log.Warn("the issuer publishes no usable key; its tokens are refused",
			"ignored", fmt.Sprint(ignored))
	case changed:
		log.Info("the keys of the issuer have changed",
			"usable", len(set.keys), "ignored", fmt.Sprint(ignored))
	}
	return err == nil
}

// Check fetches the issuer's keys, and returns how many of them can verify tokens. It changes
// nothing.
func (j *JWKS) Check(ctx context.Context) (usable int, err error) {
	raw, err := j.fetch(ctx)
	if err != nil {
		return 0, err
	}
	set, _, err := parseKeySet(raw)
	if err != nil {
		return 0, err
	}
	return len(set.keys), nil
}

func (j *JWKS) fetch(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, j.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := j.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the endpoint answered %s", response.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxKeySet+1))
	if err == nil && len(raw) > maxKeySet {
		err = fmt.Errorf("the answer is larger than %d bytes", maxKeySet)
	}
	return raw, err
}

// current returns the latest set, or nil before the first. A changed set has a new pointer.
func (j *JWKS) current() *keySet {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.set
}

// ready returns Unavailable until the keys have been fetched.
func (j *JWKS) ready() error {
	if j.current() == nil {
		//rule:caller_does_only_what_they_may.missing-keys-are-temporary
		return tidemark.Errorf(tidemark.Unavailable,
			"the keys of the token issuer could not be fetched yet; try again")
	}
	return nil
}

// find returns the key that verifies tokens of an algorithm and a kid, and the key's set. If the
// kid is unknown, find asks the issuer first, which may have a new key.
//
// Errors: Unauthenticated, and Unavailable if the issuer cannot be asked.
func (j *JWKS) find(ctx context.Context, alg, kid string) (any, *keySet, error) {
	if err := j.ready(); err != nil {
		return nil, nil, err
	}
	set := j.current()
	public, known := set.find(alg, kid)
	if !known {
		j.ask(ctx)
		set = j.current()
		public, known = set.find(alg, kid)
	}
	switch {
	case public != nil:
		return public, set, nil
	case !known && j.failing():
		return nil, nil, tidemark.Errorf(tidemark.Unavailable,
			"the token's key is unknown, and the issuer cannot be asked for it now; try again")
	case kid == "":
		return nil, nil, tidemark.Errorf(tidemark.Unauthenticated,
			"the token names no key (kid), and the issuer does not have exactly one key "+
				"for its algorithm")
	case known:
		return nil, nil, tidemark.Errorf(tidemark.Unauthenticated,
			"the token's key (kid) is not for its algorithm (alg)")
	}
	return nil, nil, tidemark.Errorf(tidemark.Unauthenticated,
		"the token's key (kid) is not one of the issuer's")
}

// failing reports whether the latest fetch failed.
func (j *JWKS) failing() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}

// ask waits for the fetch that is under way, or causes a new one. It returns at once if the last
// caused fetch began less than AskEvery ago.
func (j *JWKS) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, j.cfg.Timeout)
	defer cancel()
	now := time.Now()
	j.mu.Lock()
	//rule:bounded_use.limit-key-fetches
	if j.fetching == nil && now.Before(j.askAgain) {
		j.mu.Unlock()
		return
	}
	first := j.fetching == nil
	if first {
		j.fetching = make(chan struct{})
		j.askAgain = now.Add(j.cfg.AskEvery)
	}
	fetching := j.fetching
	j.mu.Unlock()
	if first {
		j.asked.Set()
	}
	select {
	//rule:caller_does_only_what_they_may.wait-for-fetch
	case <-fetching:
	case <-ctx.Done():
	}
}

func (j *JWKS) counters(to map[string]int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	to["jwks_fetches_total"], to["jwks_failures_total"] = j.fetches, j.failures
}
