// Package apns sends notifications to Apple devices by the provider API of APNs: HTTP/2 with
// tokens.
//
// APNs stores one notification for each app of a device that is away, and not always the latest.
// So the app's handler fetches the rest after a device comes back.
package apns

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/internal/wire"
)

// The servers of Apple ("Sending notification requests to APNs").
const (
	productionURL = "https://api.push.apple.com"
	sandboxURL    = "https://api.sandbox.push.apple.com"
)

// Config says how a Provider identifies itself.
type Config struct {
	// Key is the key of the .p8 file, and KeyID its ten characters.
	Key   *ecdsa.PrivateKey
	KeyID string
	// TeamID is the ten characters of the developer's team.
	TeamID string
	// Apps are the bundle ids whose devices are served: the topics that the key may use.
	Apps []string
	// URL replaces both servers of Apple, and TLS says whom to trust: for tests.
	URL string
	TLS *tls.Config
	// Clock returns the time; nil is time.Now.
	Clock func() time.Time
}

// Provider is a push.Provider.
type Provider struct {
	login  login
	client *http.Client
	apps   map[string]bool
	urls   map[push.Environment]string
	clock  func() time.Time
}

// New returns a Provider. It does not connect yet.
func New(c Config) (*Provider, error) {
	if c.Key == nil || len(c.KeyID) != 10 || len(c.TeamID) != 10 || len(c.Apps) == 0 {
		return nil, tidemark.Errorf(tidemark.Invalid, "APNs needs a key (.p8), its id and the "+
			"team's id of 10 characters each, and the bundle ids of the apps; all are on "+
			"developer.apple.com")
	}
	p := &Provider{
		login: login{key: c.Key, keyID: c.KeyID, teamID: c.TeamID},
		apps:  make(map[string]bool), clock: c.Clock,
		urls: map[push.Environment]string{
			"": productionURL, push.Production: productionURL, push.Sandbox: sandboxURL,
		},
	}
	for _, app := range c.Apps {
		p.apps[app] = true
	}
	if c.URL != "" {
		for environment := range p.urls {
			p.urls[environment] = c.URL
		}
	}
	if p.clock == nil {
		p.clock = time.Now
	}
	var onlyHTTP2 http.Protocols
	onlyHTTP2.SetHTTP2(true)
	p.client = &http.Client{CheckRedirect: wire.NoRedirect, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.TLS, Protocols: &onlyHTTP2,
		TLSHandshakeTimeout: 5 * time.Second, MaxResponseHeaderBytes: wire.MaxHeaders,
		// One connection takes all requests. Apple says how many at a time, and the others wait.
		MaxConnsPerHost: 1,
		HTTP2: &http.HTTP2Config{
			StrictMaxConcurrentRequests: true,
			SendPingTimeout:             30 * time.Second, PingTimeout: 10 * time.Second,
			WriteByteTimeout: 10 * time.Second,
		},
	}}
	return p, nil
}

// Close closes the connections that no request uses. The Provider can be used after it.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// Lane returns the environment: each has its own servers.
func (p *Provider) Lane(to push.Target) string {
	if to.Environment == push.Sandbox {
		return string(push.Sandbox)
	}
	return ""
}

// Send implements push.Provider.
func (p *Provider) Send(ctx context.Context, to push.Target, n push.Notification) push.Result {
	if err := n.Check(); err != nil {
		return refused(tidemark.DetailOf(err))
	}
	if why := p.unknown(to, n); why != "" {
		return refused(why)
	}
	body, err := encode(to, n)
	if err != nil {
		return refused(tidemark.DetailOf(err))
	}
	token, err := p.login.current(p.clock())
	if err != nil {
		return refused("the APNs key cannot sign: " + err.Error())
	}
	answer, err := p.post(ctx, to, n, body, token)
	if err == nil && reason(answer).Reason == "ExpiredProviderToken" {
		apple, bad := http.ParseTime(answer.Header.Get("Date"))
		if bad != nil {
			apple = p.clock()
		}
		renewed, ok, failed := p.login.renew(token, p.clock(), apple)
		if failed != nil || !ok {
			return refused("APNs says that the token has expired, and it is new; set the clock " +
				"of this server")
		}
		answer, err = p.post(ctx, to, n, body, renewed)
	}
	if err != nil {
		return wire.Unreachable(err)
	}
	return p.judge(answer)
}

// unknown returns why a target or notification cannot be sent, or "".
func (p *Provider) unknown(to push.Target, n push.Notification) string {
	switch {
	case !p.apps[to.App]:
		return "the app " + strconv.Quote(to.App) + " is not configured for APNs; add its bundle id"
	case p.urls[to.Environment] == "":
		return "the environment is neither production nor sandbox"
	case to.Address == "":
		return "the registration has no device token"
	case n.Sealed && to.Key.IsZero():
		return "the registration has no key to seal for; register one, or choose another preview"
	}
	return ""
}

// post sends a payload ("Sending notification requests to APNs").
func (p *Provider) post(
	ctx context.Context, to push.Target, n push.Notification, body []byte, token string,
) (wire.Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		p.urls[to.Environment]+"/3/device/"+url.PathEscape(to.Address), bytes.NewReader(body))
	if err != nil {
		return wire.Answer{}, err
	}
	h := request.Header
	h.Set("Content-Type", "application/json")
	h.Set("Authorization", "bearer "+token)
	h.Set("Apns-Topic", to.App)
	h.Set("Apns-Push-Type", "alert")
	h.Set("Apns-Priority", "5")
	switch {
	case n.Kind == push.Clear:
		h.Set("Apns-Push-Type", "background") // which demands priority 5
	case n.Urgency == push.High:
		h.Set("Apns-Priority", "10")
	}
	h.Set("Apns-Expiration", "0")
	if life := n.Lifetime(); life > 0 {
		h.Set("Apns-Expiration", strconv.FormatInt(p.clock().Add(life).Unix(), 10))
	}
	if !n.Kind.Silent() {
		//rule:push_latest_replaces.collapse-id
		h.Set("Apns-Collapse-Id", n.Name)
	}
	return wire.Do(p.client, request)
}

// failure is the body of a refusal.
type failure struct {
	Reason string `json:"reason"`
	// Timestamp is when Apple knew that a token was dead, in milliseconds.
	Timestamp int64 `json:"timestamp"`
}

func reason(a wire.Answer) (f failure) {
	if a.Status != http.StatusOK {
		_ = json.Unmarshal(a.Body, &f) // a body that is no JSON has no reason
	}
	return f
}

// judge says what an answer means ("Handling notification responses from APNs").
func (p *Provider) judge(a wire.Answer) push.Result {
	f := reason(a)
	said := "APNs says " + strconv.Itoa(a.Status) + " " + printable(f.Reason)
	switch {
	case a.Status == http.StatusOK:
		return push.Result{Outcome: push.Sent}
	case a.Status == http.StatusGone:
		r := push.Result{Outcome: push.DropTarget, Detail: said + ": the app was removed"}
		//rule:push_drops_the_dead.time-of-death
		if f.Timestamp > 0 {
			r.DeadSince = time.UnixMilli(f.Timestamp)
		}
		return r
	case f.Reason == "BadDeviceToken":
		return push.Result{Outcome: push.DropTarget, Detail: said + ": the token is none of this " +
			"environment; see that builds of Xcode register for the sandbox"}
	case a.Status == http.StatusTooManyRequests, a.Status >= 500:
		r := wire.Busy(a, p.clock(), 0)
		r.OneTarget = f.Reason == "TooManyRequests" // for one device token
		return r
	case a.Status == http.StatusRequestEntityTooLarge:
		return refused(said + ": shorten the notification")
	case a.Status == http.StatusForbidden:
		return refused(said + ": check the key (.p8), its id, the team's id, and for which " +
			"environment and apps the key is")
	case f.Reason == "DeviceTokenNotForTopic", f.Reason == "TopicDisallowed",
		f.Reason == "BadTopic":
		return refused(said + ": the device registered another app than its token is of, or the " +
			"key may not send to that app")
	default:
		return refused(said + "; report this as a bug of the server")
	}
}

// printable returns a reason if it looks like one.
func printable(reason string) string {
	if len(reason) > 64 || strings.ContainsFunc(reason, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return "and an unreadable reason"
	}
	return reason
}

func refused(detail string) push.Result {
	return push.Result{Outcome: push.Refused, Detail: detail}
}

// Look reports why the servers of APNs cannot be used, or nil. It sends no notification, and so
// does not try the key.
func (p *Provider) Look(ctx context.Context) error {
	errs := map[string]error{}
	for _, server := range p.urls {
		if _, looked := errs[server]; !looked {
			errs[server] = wire.Look(ctx, p.client, server)
		}
	}
	return errors.Join(slices.Collect(maps.Values(errs))...)
}
