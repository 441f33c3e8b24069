package auth

import (
	"context"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
)

// MaxTokenTTL is how long a token that the server makes can be valid.
const MaxTokenTTL = time.Hour

// keyClaim is the claim that names the API key by which a token was made. The token ends with it.
const keyClaim = "tidemark_key"

// Signer makes tokens that a server with the same secret, issuer and audience accepts.
type Signer struct {
	// Secret signs the tokens by HS256. It must not be empty.
	Secret []byte
	// Issuer and Audience become the iss and the aud, unless they are empty.
	Issuer, Audience string
}

// Sign returns a token of a user. key is the id of the API key by which it was made, or "".
func (s Signer) Sign(
	user tidemark.UserID, key string, now time.Time, ttl time.Duration,
) (string, error) {
	claims := jwt.MapClaims{
		"sub": string(user),
		"iat": jwt.NewNumericDate(now),
		"exp": jwt.NewNumericDate(now.Add(ttl)),
	}
	for name, value := range map[string]string{
		"iss": s.Issuer, "aud": s.Audience, keyClaim: key,
	} {
		if value != "" {
			claims[name] = value
		}
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(s.Secret)
}

// IssueToken returns a token of the user for whom a backend calls, for a browser or an app. It ends
// after ttl, and with the backend's API key. ttl must be at least one second and at most
// MaxTokenTTL.
//
// Errors: Denied (the caller is no backend, or the server has no secret).
func (a *Authenticator) IssueToken(
	_ context.Context, id Identity, ttl time.Duration,
) (token string, expires time.Time, err error) {
	//rule:caller_does_only_what_they_may.tokens-by-backends-only
	if !id.Backend {
		return "", time.Time{}, tidemark.Errorf(tidemark.Denied,
			"only a backend may make tokens; send its API key")
	}
	if len(a.tokens.signer.Secret) == 0 {
		return "", time.Time{}, tidemark.Errorf(tidemark.Denied,
			"this server signs no tokens; the operator must set TIDEMARK_JWT_SECRET")
	}
	now := time.Now()
	token, err = a.tokens.signer.Sign(id.User, id.key.id, now, ttl)
	if err != nil {
		return "", time.Time{}, tidemark.Wrap(tidemark.Internal, err, "no token could be signed")
	}
	return token, now.Add(ttl).Truncate(time.Second), nil
}
