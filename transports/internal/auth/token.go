package auth

import (
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

const (
	// leeway is how far the clocks of issuer and server may differ.
	leeway = 5 * time.Second
	// maxCached is the greatest number of verified tokens that are remembered.
	maxCached = 10_000
)

// tokens verifies JSON Web Tokens and remembers the good ones: a signature check costs more than the rest of a request.
type tokens struct {
	secret []byte
	parser *jwt.Parser

	mu sync.Mutex
	// verified holds who came by a token, by the token's hash, so that no token stays in memory. An entry is not
	// used after its Expires.
	verified map[[sha256.Size]byte]Identity
}

func newTokens(secret []byte) *tokens {
	return &tokens{
		secret: secret,
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
			jwt.WithExpirationRequired(),
			jwt.WithLeeway(leeway),
		),
		verified: make(map[[sha256.Size]byte]Identity),
	}
}

func (t *tokens) verify(token string) (Identity, error) {
	if len(t.secret) == 0 {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "this server accepts no tokens of this kind")
	}
	hash := sha256.Sum256([]byte(token))
	t.mu.Lock()
	id, ok := t.verified[hash]
	t.mu.Unlock()
	if ok && time.Now().Before(id.Expires) {
		return id, nil
	}
	id, err := t.parse(token)
	if err == nil {
		t.remember(hash, id)
	}
	return id, err
}

func (t *tokens) parse(token string) (Identity, error) {
	var claims jwt.RegisteredClaims
	_, err := t.parser.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return t.secret, nil })
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "the token has expired; get a new one")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "the token has no exp, which is required")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "the token is not valid yet; look at its nbf and at the clocks")
	case err != nil:
		return Identity{}, &tidemark.Error{Code: tidemark.Unauthenticated, Detail: "the token is not valid", Err: err}
	case !tidemark.ValidID(claims.Subject):
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "the token's sub is not a user id: 1 to %d characters of A-Z a-z 0-9 _ . : -", tidemark.MaxIDLength)
	}
	return Identity{
		Caller:  server.Caller{User: tidemark.UserID(claims.Subject)},
		Expires: claims.ExpiresAt.Add(leeway),
	}, nil
}

func (t *tokens) remember(hash [sha256.Size]byte, id Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.verified) >= maxCached {
		t.makeRoom()
	}
	t.verified[hash] = id
}

// makeRoom drops what has expired, and then a tenth, whichever it is: a token that is dropped is verified again. The caller holds mu.
func (t *tokens) makeRoom() {
	now := time.Now()
	for hash, id := range t.verified {
		if !now.Before(id.Expires) {
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
