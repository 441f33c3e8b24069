package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
)

// secretVariable is the only way to set the secret.
// All users of a machine can see flags, and files get copied.
const secretVariable = "TIDEMARK_JWT_SECRET"

// minSecret is the least length of the secret in bytes, as an HS256 key needs it (RFC 7518 §3.2).
const minSecret = 32

// secret returns the secret of the environment, or nil if none is set.
func secret() ([]byte, error) {
	value := os.Getenv(secretVariable)
	if value == "" {
		return nil, nil
	}
	if len(value) < minSecret {
		return nil, usagef("%s has %d bytes; it needs at least %d, such as the output of "+
			"`openssl rand -hex 32`", secretVariable, len(value), minSecret)
	}
	return []byte(value), nil
}

type tokenCommand struct {
	User string        `required:"" help:"The user's id."`
	TTL  time.Duration `name:"ttl" default:"1h" help:"How long the token is valid."`
}

// Run prints the token and nothing else.
func (c *tokenCommand) Run(_ context.Context, std streams) error {
	key, err := secret()
	if err != nil {
		return err
	}
	if key == nil {
		return usagef("%s is not set; it must be the secret that the server was started with",
			secretVariable)
	}
	if err := tidemark.CheckID("--user", c.User); err != nil {
		return usageError{err}
	}
	if c.TTL < time.Second {
		return usagef("--ttl is %v; it must be at least 1s", c.TTL)
	}
	signed, err := sign(key, c.User, time.Now(), c.TTL)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.out, signed)
	return err
}

// sign returns a token of a user, signed by HS256.
func sign(key []byte, user string, now time.Time, ttl time.Duration) (string, error) {
	return jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject:   user,
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	}).SignedString(key)
}
