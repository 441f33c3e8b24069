// Package fcm sends notifications to Android apps by FCM's API HTTP v1.
//
// Messages are data only, so the app's handler decides what is shown. They have no collapse key:
// one key delivers 20 messages at once, and then one every three minutes. The handler replaces the
// banner of the same tag.
package fcm

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/internal/seal"
	"github.com/tidemark-im/tidemark/reach/push/internal/wire"
)

const (
	// MaxData is the greatest size of the data in bytes. FCM counts keys and values; with the
	// quotes of JSON they are a little more, so this is on the safe side.
	MaxData = 4_096
	// quotaWait is the least wait after an exceeded quota, which is for a minute.
	quotaWait = time.Minute
	// failureWait is the least wait after a failure of FCM ("Best practices when sending FCM
	// messages at scale").
	failureWait = 10 * time.Second
	// summaryKey is the collapse key of summaries, the only one of an app.
	summaryKey = "summary"
	// maxUnconfirmed is how many banners of a device may be unconfirmed. FCM keeps 100 messages
	// without a collapse key for a device that is away, and drops all of them at the next.
	maxUnconfirmed = 80
	// fidLength is the length of a Firebase installation id: 22 characters of base64url ("Manage
	// Firebase installations"). It has taken the place of the registration token.
	fidLength = 22

	// maxConnections is how many connections there are. One takes about a hundred requests at once.
	maxConnections = 8

	productionURL = "https://fcm.googleapis.com"
)

// Form returns how the next banner of a device is sent: as a Banner, or as one Summary of all
// chats if too many are unconfirmed. unconfirmed is the number of banners that were sent since the
// device was last seen.
func Form(unconfirmed int) push.Kind {
	//rule:push_latest_replaces.one-summary-of-many
	if unconfirmed >= maxUnconfirmed {
		return push.Summary
	}
	return push.Banner
}

// Clears returns the notifications by which a device learns that something was read elsewhere: a
// Clear, whose data has the badge.
func Clears([]time.Time, time.Time) []push.Kind { return []push.Kind{push.Clear} }

// Config says how a Provider logs in.
type Config struct {
	// Account is the JSON file of a service account.
	Account []byte
	// URL replaces Google's server, and TLS says whom to trust: for tests. The account names the
	// server of the login.
	URL string
	TLS *tls.Config
	// Clock returns the time; nil is time.Now.
	Clock func() time.Time
}

// Provider is a push.Provider.
type Provider struct {
	login  *login
	client *http.Client
	url    string
	clock  func() time.Time
}

// New returns a Provider. It does not connect yet.
func New(c Config) (*Provider, error) {
	a, err := parseAccount(c.Account)
	if err != nil {
		return nil, err
	}
	p := &Provider{url: c.URL, clock: c.Clock}
	if p.url == "" {
		p.url = productionURL
	}
	p.url += "/v1/projects/" + url.PathEscape(a.Project) + "/messages:send"
	if p.clock == nil {
		p.clock = time.Now
	}
	p.client = &http.Client{CheckRedirect: wire.NoRedirect, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.TLS, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 5 * time.Second, MaxResponseHeaderBytes: wire.MaxHeaders,
		MaxConnsPerHost: maxConnections, IdleConnTimeout: 5 * time.Minute,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second,
			WriteByteTimeout: 10 * time.Second,
		},
	}}
	p.login = &login{account: a, client: p.client, clock: p.clock}
	return p, nil
}

// Close closes the connections that no request uses. The Provider can be used after it.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// Lane returns "": FCM is one server.
func (p *Provider) Lane(push.Target) string { return "" }

// Send implements push.Provider.
func (p *Provider) Send(ctx context.Context, to push.Target, n push.Notification) push.Result {
	if err := n.Check(); err != nil {
		return refused(tidemark.DetailOf(err))
	}
	switch {
	case to.Address == "":
		return refused("the registration has no token")
	case n.Sealed && to.Key.IsZero():
		return refused("the registration has no key to seal for; register one, or choose another " +
			"preview")
	}
	body, err := encode(to, n)
	if err != nil {
		return refused(tidemark.DetailOf(err))
	}
	token, failed := p.login.get(ctx, "")
	if token == "" {
		return failed
	}
	answer, err := p.post(ctx, body, token)
	if err == nil && answer.Status == http.StatusUnauthorized {
		// The token has ended before its time. Once, a new one is tried.
		if token, failed = p.login.get(ctx, token); token == "" {
			return failed
		}
		answer, err = p.post(ctx, body, token)
	}
	if err != nil {
		return wire.Unreachable(err)
	}
	return p.judge(answer)
}

// request is the body of messages:send ("REST Resource: projects.messages").
type request struct {
	Message message `json:"message"`
}

type message struct {
	// The target is either of these.
	Token string `json:"token,omitempty"`
	FID   string `json:"fid,omitempty"`

	Data    json.RawMessage `json:"data"`
	Android android         `json:"android"`
}

type android struct {
	TTL         string `json:"ttl"`
	Priority    string `json:"priority"`
	CollapseKey string `json:"collapse_key,omitempty"`
}

// encode returns the body of a request.
func encode(to push.Target, n push.Notification) ([]byte, error) {
	m := message{Android: android{
		TTL: strconv.Itoa(int(n.Lifetime()/time.Second)) + "s", Priority: "NORMAL",
	}}
	// A registration token is longer than the installation id that it begins with.
	if len(to.Address) == fidLength {
		m.FID = to.Address
	} else {
		m.Token = to.Address
	}
	if n.Urgency == push.High {
		m.Android.Priority = "HIGH"
	}
	if n.Kind == push.Summary {
		m.Android.CollapseKey = summaryKey
	}
	var err error
	//rule:sealed_opaque.google-sees-one-value
	if n.Sealed {
		m.Data, err = sealed(to, n)
	} else {
		m.Data, err = push.Fit(n, MaxData, open)
	}
	if err != nil {
		return nil, err
	}
	return push.JSON(request{m})
}

// sealed returns the data of a sealed notification: one value, which only the device can read.
func sealed(to push.Target, n push.Notification) ([]byte, error) {
	const most = MaxData - len(`{"sealed":""}`)
	plain, err := push.Fit(n, seal.Room(most), func(n push.Notification) ([]byte, error) {
		return push.JSON(n.Data())
	})
	if err != nil {
		return nil, err
	}
	text, err := seal.Text(to.Key, plain, most)
	if err != nil {
		return nil, err
	}
	return push.JSON(map[string]string{"sealed": text})
}

// open returns the data of a notification that is not sealed. All values are strings, as FCM
// demands. The names are those of push.Data. Banners to clear are "TAG:SEQUENCE", joined by spaces.
func open(n push.Notification) ([]byte, error) {
	d := n.Data()
	clears := make([]string, len(d.Clears))
	for i, c := range d.Clears {
		clears[i] = c.Name + ":" + strconv.FormatUint(uint64(c.To), 10)
	}
	data := map[string]string{
		"kind": string(d.Kind), "tag": d.Name, "chat_id": string(d.Chat), "ack_token": d.Token,
		"title": d.Title, "body": d.Body, "badge": strconv.Itoa(d.Badge),
		"clears": strings.Join(clears, " "),
	}
	if d.To > 0 {
		data["from_sequence"] = strconv.FormatUint(uint64(d.From), 10)
		data["to_sequence"] = strconv.FormatUint(uint64(d.To), 10)
	}
	for name, value := range data {
		if value == "" {
			delete(data, name)
		}
	}
	return push.JSON(data)
}

func (p *Provider) post(ctx context.Context, body []byte, token string) (wire.Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return wire.Answer{}, err
	}
	r.Header.Set("Content-Type", "application/json; charset=UTF-8")
	r.Header.Set("Authorization", "Bearer "+token)
	return wire.Do(p.client, r)
}

// code returns the error code of FCM in an answer, or else the status of Google's API
// ("ErrorCode"; "REST error codes for the HTTP v1 API").
func code(a wire.Answer) string {
	var body struct {
		Error struct {
			Status  string `json:"status"`
			Details []struct {
				Type string `json:"@type"`
				Code string `json:"errorCode"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(a.Body, &body) != nil {
		return "" // it is judged by its status
	}
	for _, d := range body.Error.Details {
		if d.Type == "type.googleapis.com/google.firebase.fcm.v1.FcmError" && d.Code != "" {
			return d.Code
		}
	}
	return body.Error.Status
}

// judge says what an answer means.
func (p *Provider) judge(a wire.Answer) push.Result {
	said := "FCM says " + strconv.Itoa(a.Status)
	switch c := code(a); {
	case a.Status == http.StatusOK:
		return push.Result{Outcome: push.Sent}
	//rule:push_drops_the_dead.token-of-no-app
	case c == "UNREGISTERED", c == "SENDER_ID_MISMATCH":
		return push.Result{Outcome: push.DropTarget, Detail: said + " " + c +
			": the app was removed, or its token is of another project"}
	case a.Status == http.StatusTooManyRequests:
		r := wire.Busy(a, p.clock(), quotaWait)
		r.Detail = "FCM's quota is exceeded; if that happens often, request more in the Google " +
			"Cloud console"
		return r
	case a.Status >= 500:
		return wire.Busy(a, p.clock(), failureWait)
	case a.Status == http.StatusUnauthorized:
		return refused(said + ": it does not accept the login of the service account; check that " +
			"the account is of this project")
	case a.Status == http.StatusForbidden:
		return refused(said + ": enable the Firebase Cloud Messaging API in the Google Cloud " +
			"console, and give the service account the role Firebase Cloud Messaging API Admin")
	case a.Status == http.StatusNotFound:
		return refused(said + ": the project of the service account does not exist")
	case c == "INVALID_ARGUMENT":
		return refused(said + " INVALID_ARGUMENT: see that the app registered the token that FCM " +
			"gave it")
	default:
		return refused(said + "; report this as a bug of the server")
	}
}

func refused(detail string) push.Result {
	return push.Result{Outcome: push.Refused, Detail: detail}
}

// Look reports why FCM cannot be used, or nil. It logs in, and sends no notification.
func (p *Provider) Look(ctx context.Context) error {
	if token, failed := p.login.get(ctx, ""); token == "" {
		return errors.New("the login fails: " + failed.Detail)
	}
	server, err := url.Parse(p.url)
	if err != nil {
		return err
	}
	return wire.Look(ctx, p.client, server.Scheme+"://"+server.Host)
}
