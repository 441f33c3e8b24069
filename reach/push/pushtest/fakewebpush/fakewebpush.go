// Package fakewebpush speaks the protocol of push services: RFC 8030, with the encoding of RFC 8188
// and 8291 and the identification of RFC 8292. It refuses what they forbid.
package fakewebpush

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
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

// WebPush is a pushtest.Protocol.
type WebPush struct {
	// Paths are the endpoints of subscriptions.
	Paths []string
	// Device opens what is sent.
	Device *pushtest.Device
	// Origin is the origin of this service: what the token is for.
	Origin string
	// Key is the VAPID key that the subscriptions are restricted to; nil is none (RFC 8292 §4).
	Key *ecdsa.PublicKey
	// Bodies are the encrypted bodies that were accepted.
	Bodies [][]byte

	expired map[string]bool // tokens that do not count any more
}

// Skew implements pushtest.Protocol.
func (s *WebPush) Skew() time.Duration { return 0 }

// Expire ends the token of a request.
func (s *WebPush) Expire(r *http.Request) {
	if s.expired == nil {
		s.expired = make(map[string]bool)
	}
	s.expired[r.Header.Get("Authorization")] = true
}

// Login implements pushtest.Protocol. There is none.
func (s *WebPush) Login(*http.Request, []byte, time.Time) *pushtest.Refusal { return nil }

// Refuse implements pushtest.Protocol.
func (s *WebPush) Refuse(trouble pushtest.Trouble, _ time.Time) pushtest.Refusal {
	r := pushtest.Problem(map[pushtest.Trouble]int{
		pushtest.Gone: 410, pushtest.Mistaken: 404, pushtest.Busy: 429, pushtest.Failed: 500,
		pushtest.Unavailable: 503, pushtest.TooLarge: 413, pushtest.Barred: 403,
	}[trouble], "%s", trouble)
	if trouble == pushtest.Busy || trouble == pushtest.Unavailable {
		r.Header = http.Header{"Retry-After": {fmt.Sprint(pushtest.RetryAfter.Seconds())}}
	}
	return *r
}

// Accepted is the answer to a message that was accepted (RFC 8030 §5).
func (s *WebPush) Accepted() pushtest.Refusal {
	return pushtest.Refusal{Status: http.StatusCreated, Header: http.Header{
		"Location": {s.Origin + "/message/1"},
	}}
}

var topic = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Accept implements pushtest.Protocol.
func (s *WebPush) Accept(r *http.Request, body []byte, now time.Time) (
	pushtest.Received, *pushtest.Refusal,
) {
	none, h := pushtest.Received{}, r.Header
	ttl, err := strconv.ParseUint(h.Get("TTL"), 10, 31)
	urgency := h.Get("Urgency")
	switch {
	case r.Method != http.MethodPost:
		return none, pushtest.Problem(405, "only POST is allowed")
	case !slices.Contains(s.Paths, r.URL.Path):
		return none, pushtest.Problem(404, "there is no such subscription")
	case err != nil:
		return none, pushtest.Problem(400, "TTL is missing (RFC 8030 §5.2)")
	case !slices.Contains([]string{"very-low", "low", "normal", "high"}, urgency):
		return none, pushtest.Problem(400, "the Urgency is unknown (RFC 8030 §5.3)")
	case !topic.MatchString(h.Get("Topic")):
		return none, pushtest.Problem(400, "the Topic has other characters (RFC 8030 §5.4)")
	case h.Get("Content-Encoding") != "aes128gcm":
		return none, pushtest.Problem(415, "the encoding is another one (RFC 8291 §4)")
	case len(body) > 4096:
		return none, pushtest.Problem(413, "the message is too large (RFC 8030 §7.2)")
	}
	if refusal := s.identify(h.Get("Authorization"), now); refusal != nil {
		return none, refusal
	}
	received := pushtest.Received{
		TTL: time.Duration(ttl) * time.Second, Urgent: urgency == string(push.High),
		Collapse: h.Get("Topic"),
	}
	if received.Data, err = s.Device.Open(body); err != nil {
		return none, pushtest.Problem(400, "the browser cannot open it: %v", err)
	}
	s.Bodies = append(s.Bodies, body)
	return received, nil
}

var credentials = regexp.MustCompile(`^vapid t=([A-Za-z0-9_.-]+), k=([A-Za-z0-9_-]+)$`)

// identify checks who sends (RFC 8292 §2 and §4.2).
func (s *WebPush) identify(header string, now time.Time) *pushtest.Refusal {
	if s.Key == nil {
		if header != "" {
			return pushtest.Problem(400, "this sender has no key")
		}
		return nil
	}
	parts := credentials.FindStringSubmatch(header)
	if parts == nil {
		return pushtest.Problem(401, "the credentials are missing")
	}
	point, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return pushtest.Problem(400, "the key is not base64url")
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil || !key.Equal(s.Key) {
		return pushtest.Problem(403, "the subscription is of another key")
	}
	claims := jwt.RegisteredClaims{}
	_, err = jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(s.Origin),
		jwt.WithExpirationRequired()).ParseWithClaims(parts[1], &claims,
		func(*jwt.Token) (any, error) { return key, nil })
	switch {
	case err != nil:
		return pushtest.Problem(403, "the token does not count: %v", err)
	case claims.ExpiresAt.Sub(now) > 24*time.Hour:
		return pushtest.Problem(403, "the token expires in more than 24 hours")
	case !strings.HasPrefix(claims.Subject, "mailto:") &&
		!strings.HasPrefix(claims.Subject, "https:"):
		return pushtest.Problem(403, "the sub is no address")
	case s.expired[header]:
		return pushtest.Problem(403, "the token has expired")
	}
	return nil
}
