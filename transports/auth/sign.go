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
		// With its fraction: a sign-out in the same second refuses the token, or does not.
		//rule:signed_out_stays_out.milliseconds-of-the-token
		"iat": float64(now.UnixMilli()) / 1000,
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

// IssueToken returns a token of a user, for a browser or an app. If user is "", it is the one for
// whom the backend calls. The token ends after ttl, and with the backend's API key. ttl must be at
// least one second and at most MaxTokenTTL.
//
// Errors: Denied (the caller is no backend, or the server has no secret), Invalid (nobody names a
// user, or user and the backend's call name two), Unavailable (it is not known when the user has
// signed out).
func (a *Authenticator) IssueToken(
	ctx context.Context, id Identity, user tidemark.UserID, ttl time.Duration,
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
	switch {
	case user == "":
		user = id.User
	//rule:caller_does_only_what_they_may.token-of-one-user
	case id.User != "" && id.User != user:
		return "", time.Time{}, tidemark.BadParam(tidemark.Invalid, "user_id",
			"names another user than %s does; send one of them", UserHeader)
	}
	if user == "" {
		return "", time.Time{}, tidemark.BadParam(tidemark.Invalid, "user_id",
			"is missing; it names the user whose token you want")
	}
	if err := a.erased(user); err != nil {
		return "", time.Time{}, err
	}
	issued := time.Now().Truncate(time.Millisecond)
	if a.access != nil {
		after, err := a.access.SignedOut(ctx, user)
		if err != nil {
			return "", time.Time{}, err
		}
		//rule:signed_out_stays_out.new-tokens-are-valid
		if !issued.After(after) {
			// The clock of the node where the user signed out may be ahead.
			issued = after.Add(time.Millisecond)
		}
	}
	token, err = a.tokens.signer.Sign(user, id.key.id, issued, ttl)
	if err != nil {
		return "", time.Time{}, tidemark.Wrap(tidemark.Internal, err, "no token could be signed")
	}
	return token, issued.Add(ttl).Truncate(time.Second), nil
}
