// Package webpush sends notifications to browsers by Web Push, and to apps by UnifiedPush: RFC 8030
// with the encryption of RFC 8291 and the identification of RFC 8292 (VAPID).
//
// A browser shows a banner for each notification, and takes the permission away if there are
// notifications without one. So silent notifications are withheld.
package webpush

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/internal/publicnet"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/internal/seal"
	"github.com/tidemark-im/tidemark/reach/push/internal/wire"
)

// Config says how a Provider identifies itself, and where it may connect.
type Config struct {
	// Key is the VAPID key on P-256. Browsers need it. Without one, only UnifiedPush works.
	Key *ecdsa.PrivateKey
	// Subject is how operators of push services reach the operator of this server: a `mailto:` or
	// `https:` URL. Needed with Key.
	Subject string
	// Hosts are the hosts of push services, with their subdomains. None means every public host.
	Hosts []string
	// Allowed are networks that endpoints may be in although they are not public.
	Allowed []netip.Prefix
	// TLS is for tests: whom to trust. nil is the system's roots.
	TLS *tls.Config
	// Clock returns the time; nil is time.Now.
	Clock func() time.Time
}

// Provider is a push.Provider.
type Provider struct {
	client *http.Client
	guard  *publicnet.Guard
	vapid  *vapid // nil without a key
	clock  func() time.Time
}

// New returns a Provider. It does not connect yet.
func New(c Config) (*Provider, error) {
	p := &Provider{guard: publicnet.New(c.Allowed, c.Hosts), clock: c.Clock}
	if p.clock == nil {
		p.clock = time.Now
	}
	if c.Key != nil {
		var err error
		if p.vapid, err = newVAPID(c.Key, c.Subject); err != nil {
			return nil, err
		}
	}
	p.client = p.guard.Client(&http.Transport{
		TLSClientConfig: c.TLS, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: 2, MaxConnsPerHost: push.MaxInFlightOfLane,
		IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: wire.MaxHeaders,
		DisableCompression: true,
	})
	return p, nil
}

// CheckEndpoint returns an Error unless a device may register an endpoint.
func (p *Provider) CheckEndpoint(endpoint string) error { return p.guard.Check(endpoint) }

// Close closes the connections that no request uses. The Provider can be used after it.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// Lane returns the host of the endpoint.
func (p *Provider) Lane(to push.Target) string {
	u, err := url.Parse(to.Address)
	if err != nil || u.Host == "" {
		return "unreadable"
	}
	return u.Host
}

// Send implements push.Provider.
func (p *Provider) Send(ctx context.Context, to push.Target, n push.Notification) push.Result {
	if err := n.Check(); err != nil {
		return refused(tidemark.DetailOf(err))
	}
	//rule:push_latest_replaces.web-push-is-never-silent
	if n.Kind.Silent() {
		return push.Result{Outcome: push.Withheld,
			Detail: "Web Push carries no silent notification; the next banner clears"}
	}
	if err := p.guard.Check(to.Address); err != nil {
		return refused(tidemark.DetailOf(err))
	}
	if to.Key.IsZero() {
		return refused("the registration has no keys, and Web Push is always encrypted; " +
			"register p256dh and auth")
	}
	plain, err := push.Fit(n, seal.MaxPlain, func(n push.Notification) ([]byte, error) {
		return push.JSON(n.Data())
	})
	if err != nil {
		return refused(tidemark.DetailOf(err))
	}
	body, err := seal.Seal(to.Key, plain, seal.MaxPlain)
	if err != nil {
		return refused("the notification cannot be encrypted: " + err.Error())
	}
	began := p.clock()
	answer, err := p.post(ctx, to, n, body, time.Time{})
	if err == nil && p.vapid != nil &&
		(answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden) {
		// The token may have expired by the clock of the service. Once, a new one is tried.
		answer, err = p.post(ctx, to, n, body, began)
	}
	if errors.Is(err, publicnet.ErrPrivate) {
		return refused("the endpoint is not on the public internet at port 443; " +
			"if it is yours, allow its network")
	}
	if err != nil {
		return wire.Unreachable(err)
	}
	return p.judge(answer)
}

// post sends a message to the endpoint (RFC 8030 §5). The token is one that was made after renewed.
func (p *Provider) post(
	ctx context.Context, to push.Target, n push.Notification, body []byte, renewed time.Time,
) (wire.Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Address,
		bytes.NewReader(body))
	if err != nil {
		return wire.Answer{}, err
	}
	h := request.Header
	h.Set("Content-Encoding", "aes128gcm")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("TTL", strconv.Itoa(int(n.Lifetime()/time.Second)))
	h.Set("Urgency", string(push.Normal))
	if n.Urgency == push.High {
		h.Set("Urgency", string(push.High))
	}
	//rule:push_latest_replaces.topic
	h.Set("Topic", n.Name)
	if p.vapid != nil {
		authorization, err := p.vapid.authorization(origin(request.URL), p.clock(), renewed)
		if err != nil {
			return wire.Answer{}, err
		}
		h.Set("Authorization", authorization)
	}
	return wire.Do(p.client, request)
}

// origin returns the origin of a URL (RFC 6454 §6.2), which has no port if that is the usual one.
func origin(u *url.URL) string {
	return u.Scheme + "://" + strings.ToLower(strings.TrimSuffix(u.Host, ":443"))
}

// judge says what an answer means (RFC 8030 §5 and §7.3).
func (p *Provider) judge(a wire.Answer) push.Result {
	switch {
	case a.Status >= 200 && a.Status < 300:
		return push.Result{Outcome: push.Sent}
	//rule:push_drops_the_dead.endpoint-is-gone
	case a.Status == http.StatusNotFound, a.Status == http.StatusGone:
		return push.Result{Outcome: push.DropTarget, Detail: "the push service says that the " +
			"subscription has ended (status " + strconv.Itoa(a.Status) + ")"}
	case a.Status == http.StatusTooManyRequests, a.Status >= 500:
		return wire.Busy(a, p.clock(), 0)
	case a.Status == http.StatusRequestEntityTooLarge:
		return refused("the push service takes no message of this size (status 413); " +
			"shorten the notification")
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		return refused("the push service refuses this server's VAPID key (status " +
			strconv.Itoa(a.Status) + "); check that clients subscribe with its public key, that " +
			"the subject is yours, and that the clock of this server is right")
	case a.Status >= 300 && a.Status < 400:
		return refused("the push service redirects, and a redirect is not followed (status " +
			strconv.Itoa(a.Status) + ")")
	default:
		return refused("the push service refuses the request (status " +
			strconv.Itoa(a.Status) + "); report this as a bug of the server")
	}
}

func refused(detail string) push.Result {
	return push.Result{Outcome: push.Refused, Detail: detail}
}
