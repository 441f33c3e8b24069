package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

const (
	// leeway is how far ahead the issuer's clock may be: a token may be used this much before its
	// nbf and iat. There is none at the end. By the server's clock nothing outlasts exp: no call,
	// no cached token and no stream.
	leeway = 5 * time.Second
	// maxCached is the largest number of verified tokens that are cached.
	maxCached = 10_000
)

// tokens verifies JSON Web Tokens and caches the valid ones, because a signature check costs more
// than the rest of a request.
type tokens struct {
	signer   Signer      // has no Secret if the server has none
	previous []byte      // the secret before, or nil
	backends *APIKeys    // nil if the server has none
	keys     *JWKS       // nil if the server has no issuer
	parser   *jwt.Parser // nil if the server accepts no tokens

	mu sync.Mutex
	// verified maps a token's hash to its identity. The hash keeps the token itself out of memory.
	verified map[[sha256.Size]byte]verified
}

// verified is a valid token. It is valid until identity.Expires, while the issuer's keys are the
// same.
type verified struct {
	identity Identity
	keys     *keySet // nil for HS256
}

func newTokens(cfg Config) *tokens {
	t := &tokens{
		signer:   Signer{Secret: cfg.JWTSecret, Issuer: cfg.Issuer, Audience: cfg.Audience},
		previous: cfg.PreviousSecret,
		backends: cfg.APIKeys,
		keys:     cfg.JWKS,
		verified: make(map[[sha256.Size]byte]verified),
	}
	var methods []string
	if len(t.signer.Secret) > 0 {
		//rule:caller_does_only_what_they_may.algorithm-of-secret
		methods = append(methods, jwt.SigningMethodHS256.Alg())
	}
	if t.keys != nil {
		methods = append(methods, jwt.SigningMethodRS256.Alg(), jwt.SigningMethodES256.Alg(),
			jwt.SigningMethodEdDSA.Alg())
	}
	if methods == nil {
		return t
	}
	//rule:credentials_end.parser-options
	options := []jwt.ParserOption{
		jwt.WithValidMethods(methods), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway),
	}
	if cfg.Issuer != "" {
		options = append(options, jwt.WithIssuer(cfg.Issuer))
	}
	if cfg.Audience != "" {
		options = append(options, jwt.WithAudience(cfg.Audience))
	}
	t.parser = jwt.NewParser(options...)
	return t
}

func (t *tokens) verify(ctx context.Context, token string) (Identity, error) {
	if t.parser == nil {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"this server accepts no tokens of this kind")
	}
	hash := sha256.Sum256([]byte(token))
	if id, ok := t.remembered(hash); ok {
		return id, nil
	}
	v, err := t.parse(ctx, token)
	if err == nil {
		t.remember(hash, v)
	}
	return v.identity, err
}

func (t *tokens) parse(ctx context.Context, token string) (verified, error) {
	// A struct would take EXP for exp, because encoding/json ignores case. The issuer may have
	// claims of such names.
	claims := jwt.MapClaims{}
	var keys *keySet
	parsed, err := t.parser.ParseWithClaims(token, claims,
		func(token *jwt.Token) (public any, err error) {
			//rule:caller_does_only_what_they_may.refuse-critical-header
			if _, ok := token.Header["crit"]; ok { // RFC 7515 §4.1.11: none is supported
				return nil, tidemark.Errorf(tidemark.Unauthenticated,
					"the token has critical header fields (crit), which this server does not know")
			}
			if token.Method == jwt.SigningMethodHS256 {
				return t.secrets(), nil
			}
			kid, ok := token.Header["kid"].(string)
			if !ok && token.Header["kid"] != nil {
				return nil, tidemark.Errorf(tidemark.Unauthenticated,
					"the token's kid must be a string")
			}
			public, keys, err = t.keys.find(ctx, token.Method.Alg(), kid)
			return public, err
		})
	if err != nil {
		return verified{}, refusal(err)
	}
	expires, err := claims.GetExpirationTime()
	//rule:credentials_end.expiry-without-leeway
	if err != nil || expires == nil || !time.Now().Before(expires.Time) {
		return verified{}, refusal(jwt.ErrTokenExpired)
	}
	subject, _ := claims["sub"].(string)
	//rule:caller_does_only_what_they_may.exact-claim-names
	if err := tidemark.CheckID("the token's sub", subject); err != nil {
		return verified{}, tidemark.Errorf(tidemark.Unauthenticated, "%s", tidemark.DetailOf(err))
	}
	id := Identity{
		Caller: server.Caller{User: tidemark.UserID(subject)}, Expires: expires.Time,
		//rule:signed_out_stays_out.undated-tokens-are-old
		Issued: undated,
	}
	// A whole second stands for its beginning, so a token of the second of a sign-out is refused.
	// The library cuts fractions off, which tells a token from a sign-out in the same second.
	if seconds, ok := claims["iat"].(float64); ok {
		//rule:signed_out_stays_out.time-of-the-token
		id.Issued = time.UnixMicro(int64(math.Round(seconds * 1e6)))
	}
	if name, ok := claims[keyClaim].(string); ok && parsed.Method == jwt.SigningMethodHS256 {
		//rule:credentials_end.token-ends-with-its-key
		if id.key = t.backends.named(name); id.key == nil {
			return verified{}, errMaker()
		}
	}
	return verified{id, keys}, nil
}

// secrets returns the keys that verify HS256.
func (t *tokens) secrets() any {
	if len(t.previous) == 0 {
		return t.signer.Secret
	}
	return jwt.VerificationKeySet{Keys: []jwt.VerificationKey{t.signer.Secret, t.previous}}
}

func errMaker() error {
	return tidemark.Errorf(tidemark.Unauthenticated,
		"the API key that made the token was withdrawn; get a new token")
}

// refusal returns the error for a token. It says what is wrong, but not what would be right.
func refusal(err error) error {
	var stated *tidemark.Error
	switch {
	case errors.As(err, &stated):
		return stated
	case errors.Is(err, jwt.ErrTokenExpired):
		return tidemark.Errorf(tidemark.Unauthenticated, "the token has expired; get a new one")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return tidemark.Errorf(tidemark.Unauthenticated,
			"the token lacks a required claim: exp, and iss and aud if the server checks them")
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return tidemark.Errorf(tidemark.Unauthenticated,
			"the token is not valid yet; check its nbf and iat, and the clocks")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer), errors.Is(err, jwt.ErrTokenInvalidAudience):
		return tidemark.Errorf(tidemark.Unauthenticated,
			"the token is from another issuer (iss) or for another audience (aud)")
	}
	return &tidemark.Error{
		Code:   tidemark.Unauthenticated,
		Detail: "the token is not valid",
		Err:    err,
	}
}

// remembered returns the identity of a cached token. ok is false if the token has expired or the
// issuer's keys have changed.
func (t *tokens) remembered(hash [sha256.Size]byte) (Identity, bool) {
	t.mu.Lock()
	v, ok := t.verified[hash]
	t.mu.Unlock()
	//rule:credentials_end.check-remembered-token
	return v.identity, ok && v.identity.Ended() == nil &&
		(v.keys == nil || v.keys == t.keys.current())
}

func (t *tokens) remember(hash [sha256.Size]byte, v verified) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.verified) >= maxCached {
		t.makeRoom()
	}
	t.verified[hash] = v
}

// makeRoom drops expired tokens, and then others until a tenth is free. A dropped token is verified
// again at its next use. The caller holds mu.
func (t *tokens) makeRoom() {
	now := time.Now()
	for hash, v := range t.verified {
		if !now.Before(v.identity.Expires) {
			delete(t.verified, hash)
		}
	}
	for hash := range t.verified {
		if len(t.verified) <= maxCached*9/10 {
			return
		}
		delete(t.verified, hash)
	}
}
