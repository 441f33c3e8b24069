// Package fakeapns speaks Apple's provider API of APNs as Apple documents it: "Sending notification
// requests to APNs", "Establishing a token-based connection to APNs", "Generating a remote
// notification", and "Handling notification responses from APNs" on developer.apple.com. It refuses
// what the documentation forbids.
package fakeapns

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/pushtest"
)

// APNs is a pushtest.Protocol.
type APNs struct {
	// Key verifies tokens with this key id, issued by this team.
	Key           *ecdsa.PublicKey
	KeyID, TeamID string
	// Topic is the app of all devices, and Tokens are their device tokens.
	Topic  string
	Tokens []string
	// Device opens what is sealed.
	Device *pushtest.Device

	skew time.Duration
	// token is the provider token in use, and issued the time in it.
	token  string
	issued time.Time
}

// Skew implements pushtest.Protocol.
func (a *APNs) Skew() time.Duration { return a.skew }

// Expire lets 65 minutes pass at Apple. A token is valid for an hour.
func (a *APNs) Expire(*http.Request) { a.skew += 65 * time.Minute }

// Login implements pushtest.Protocol. APNs has no login.
func (a *APNs) Login(*http.Request, []byte, time.Time) *pushtest.Refusal { return nil }

// Refuse implements pushtest.Protocol.
func (a *APNs) Refuse(trouble pushtest.Trouble, now time.Time) pushtest.Refusal {
	r := map[pushtest.Trouble]*pushtest.Refusal{
		pushtest.Mistaken:    problem(400, "BadDeviceToken"),
		pushtest.Busy:        problem(429, "TooManyRequests"),
		pushtest.Failed:      problem(500, "InternalServerError"),
		pushtest.Unavailable: problem(503, "ServiceUnavailable"),
		pushtest.TooLarge:    problem(413, "PayloadTooLarge"),
		pushtest.Barred:      problem(403, "ExpiredProviderToken"),
		pushtest.Gone: pushtest.Problem(410, `{"reason":"Unregistered","timestamp":%d}`,
			now.Add(-time.Hour).UnixMilli()),
	}[trouble]
	if trouble == pushtest.Busy || trouble == pushtest.Unavailable {
		r.Header = http.Header{"Retry-After": {fmt.Sprint(pushtest.RetryAfter.Seconds())}}
	}
	return *r
}

func problem(status int, reason string) *pushtest.Refusal {
	return pushtest.Problem(status, `{"reason":%q}`, reason)
}

var deviceToken = regexp.MustCompile(`^/3/device/([0-9a-f]{64,200})$`)

// Accept implements pushtest.Protocol.
func (a *APNs) Accept(r *http.Request, body []byte, now time.Time) (
	pushtest.Received, *pushtest.Refusal,
) {
	none := pushtest.Received{}
	path := deviceToken.FindStringSubmatch(r.URL.Path)
	switch {
	case r.ProtoMajor != 2:
		return none, problem(http.StatusHTTPVersionNotSupported, "HTTP/2 is needed")
	case r.Method != http.MethodPost:
		return none, problem(405, "MethodNotAllowed")
	case !strings.HasPrefix(r.URL.Path, "/3/device/"), r.URL.RawQuery != "":
		return none, problem(404, "BadPath")
	}
	if refusal := a.login(r, now); refusal != nil {
		return none, refusal
	}
	if path == nil || !slices.Contains(a.Tokens, path[1]) {
		return none, problem(400, "BadDeviceToken")
	}
	if refusal := a.headers(r.Header); refusal != nil {
		return none, refusal
	}
	return a.payload(r.Header, body, now)
}

// login checks the provider token. A server whose next token is less than 20 minutes younger is
// refused: it changes its token too often.
func (a *APNs) login(r *http.Request, now time.Time) *pushtest.Refusal {
	text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "bearer ")
	if !bearer {
		return problem(403, "MissingProviderToken")
	}
	claims := struct {
		Issuer   string `json:"iss"`
		IssuedAt int64  `json:"iat"`
		jwt.RegisteredClaims
	}{}
	token, err := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}),
		jwt.WithoutClaimsValidation()).ParseWithClaims(text, &claims,
		func(*jwt.Token) (any, error) { return a.Key, nil })
	if err != nil || token.Header["kid"] != a.KeyID || claims.Issuer != a.TeamID {
		return problem(403, "InvalidProviderToken")
	}
	issued := time.Unix(claims.IssuedAt, 0)
	switch {
	case now.Sub(issued) > time.Hour:
		return problem(403, "ExpiredProviderToken")
	case issued.After(now.Add(time.Minute)):
		return problem(403, "InvalidProviderToken")
	case a.token != "" && a.token != text && issued.Sub(a.issued) < 20*time.Minute:
		return problem(429, "TooManyProviderTokenUpdates")
	}
	a.token, a.issued = text, issued
	return nil
}

// headers checks the headers of a request.
func (a *APNs) headers(h http.Header) *pushtest.Refusal {
	for name, values := range h {
		if !strings.HasPrefix(name, "Apns-") {
			continue
		}
		if len(values) > 1 {
			return problem(400, "DuplicateHeaders")
		}
		if !slices.Contains([]string{"Apns-Topic", "Apns-Push-Type", "Apns-Priority", "Apns-Id",
			"Apns-Expiration", "Apns-Collapse-Id"}, name) {
			return problem(400, "the header "+name+" is unknown")
		}
	}
	priority, kind := h.Get("Apns-Priority"), h.Get("Apns-Push-Type")
	_, noNumber := strconv.ParseUint(h.Get("Apns-Expiration"), 10, 63)
	switch {
	case h.Get("Apns-Topic") == "":
		return problem(400, "MissingTopic")
	case h.Get("Apns-Topic") != a.Topic:
		return problem(400, "DeviceTokenNotForTopic")
	case kind != "alert" && kind != "background":
		return problem(400, "InvalidPushType")
	case priority != "10" && priority != "5" && priority != "1",
		kind == "background" && priority != "5":
		return problem(400, "BadPriority")
	case noNumber != nil:
		return problem(400, "BadExpirationDate")
	case len(h.Get("Apns-Collapse-Id")) > 64:
		return problem(400, "BadCollapseId")
	}
	return nil
}

// payload reads the payload. Keys of aps that Apple does not know are refused.
func (a *APNs) payload(h http.Header, body []byte, now time.Time) (
	pushtest.Received, *pushtest.Refusal,
) {
	received := pushtest.Received{
		Urgent: h.Get("Apns-Priority") == "10", Collapse: h.Get("Apns-Collapse-Id"),
	}
	var p struct {
		APS struct {
			Alert     *struct{ Title, Body string }
			Badge     *int
			Sound     string
			Thread    string `json:"thread-id"`
			Mutable   int    `json:"mutable-content"`
			Available int    `json:"content-available"`
		}
		Tidemark *push.Data
		Sealed   string
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if len(body) == 0 {
		return received, problem(400, "PayloadEmpty")
	}
	if len(body) > 4096 {
		return received, problem(413, "PayloadTooLarge")
	}
	if err := decoder.Decode(&p); err != nil {
		return received, problem(400, "the payload cannot be read: "+err.Error())
	}
	background := h.Get("Apns-Push-Type") == "background"
	visible := p.APS.Alert != nil || p.APS.Badge != nil || p.APS.Sound != ""
	if background != (p.APS.Available == 1) || background == visible {
		return received, problem(400, "InvalidPushType")
	}
	switch {
	case p.Sealed != "":
		var err error
		if received.Data, err = a.Device.OpenText(p.Sealed); err != nil {
			return received, problem(400, "the handler cannot open it: "+err.Error())
		}
		if p.APS.Alert != nil && *p.APS.Alert != (struct{ Title, Body string }{"", push.Hidden}) {
			return received, problem(400, "a sealed notification shows its text")
		}
	case p.Tidemark != nil:
		received.Data = *p.Tidemark
	default:
		received.Kind = push.Badge
	}
	if p.APS.Alert != nil && p.Sealed == "" {
		received.Title, received.Body = p.APS.Alert.Title, p.APS.Alert.Body
	}
	if p.APS.Badge != nil {
		received.Badge = *p.APS.Badge
	}
	if seconds, _ := strconv.ParseInt(h.Get("Apns-Expiration"), 10, 64); seconds > 0 {
		received.TTL = time.Unix(seconds, 0).Sub(now.Add(-a.skew)).Round(10 * time.Second)
	}
	return received, nil
}
