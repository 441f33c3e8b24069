package webpush

import (
	"crypto/ecdsa"
	"encoding/base64"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push/internal/es256"
)

const (
	// tokenAge is how long a token is used. It expires an hour later, which is within the 24 hours
	// of RFC 8292 §2.
	tokenAge    = 12 * time.Hour
	tokenExpiry = tokenAge + time.Hour
	// renewedExpiry is that of a token in place of a refused one. It differs, since the signature
	// is deterministic: otherwise a token of the same second would be the refused one.
	renewedExpiry = tokenAge + time.Hour/2
	// maxTokens is the greatest number of push services whose tokens are kept. Users name the
	// services, so it is bounded.
	maxTokens = 1_000
)

// checkSubject returns an Error unless push services can reach the operator at a subject: `mailto:`
// with an address, or `https:` with a host (RFC 8292 §2.1). Some services refuse others.
func checkSubject(subject string) error {
	domain := ""
	if address, is := strings.CutPrefix(subject, "mailto:"); is {
		if user, after, both := strings.Cut(address, "@"); both && user != "" {
			domain = after
		}
	} else if u, err := url.Parse(subject); err == nil && u.Scheme == "https" {
		domain = u.Hostname()
	}
	domain = strings.ToLower(domain)
	top := domain[strings.LastIndexByte(domain, '.')+1:]
	second := strings.TrimSuffix(domain, "."+top)
	second = second[strings.LastIndexByte(second, '.')+1:]
	switch {
	case !strings.Contains(domain, "."), strings.ContainsAny(domain, " /<>@"), top == "",
		top == "localhost", top == "local", top == "invalid", top == "test", top == "example",
		second == "example" && (top == "com" || top == "org" || top == "net"):
		return tidemark.BadParam(tidemark.Invalid, "subject",
			"is %q, by which nobody can be reached; use mailto:ADDRESS or an https:// URL of yours",
			subject)
	}
	return nil
}

// vapid makes the tokens by which a server identifies itself (RFC 8292). It is safe for concurrent
// use.
type vapid struct {
	key     *ecdsa.PrivateKey
	public  string // the key as in Authorization: base64url of its point
	subject string

	mu     sync.Mutex // guards tokens
	tokens map[string]token
}

type token struct {
	text string
	made time.Time
}

func newVAPID(key *ecdsa.PrivateKey, subject string) (*vapid, error) {
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Invalid, err, "the VAPID key cannot be used")
	}
	return &vapid{
		key: key, subject: subject, tokens: make(map[string]token),
		public: base64.RawURLEncoding.EncodeToString(point),
	}, nil
}

// authorization returns the header for an origin, such as https://push.example. The token is one
// that was made after a time, or a new one.
func (v *vapid) authorization(origin string, now, after time.Time) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, there := v.tokens[origin]
	//rule:push_logins_are_shared.token-of-twelve-hours
	if !there || now.Sub(t.made) >= tokenAge || !t.made.After(after) {
		expiry := tokenExpiry
		if there && now.Sub(t.made) < tokenAge {
			expiry = renewedExpiry
		}
		text, err := es256.Token(v.key, map[string]any{"typ": "JWT", "alg": "ES256"},
			map[string]any{
				"aud": origin, "exp": now.Add(expiry).Unix(), "sub": v.subject,
			})
		if err != nil {
			return "", err
		}
		if !there && len(v.tokens) >= maxTokens {
			clear(v.tokens)
		}
		t = token{text, now}
		v.tokens[origin] = t
	}
	return "vapid t=" + t.text + ", k=" + v.public, nil
}
