package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/auth"
)

// secretVariable is the only way to set the secret.
// All users of a machine can see flags, and files get copied.
const secretVariable = "TIDEMARK_JWT_SECRET"

// minSecret is the least length of the secret in bytes, as an HS256 key needs it (RFC 7518 §3.2).
const minSecret = 32

// previousVariable has the secret before, while it is being replaced.
const previousVariable = secretVariable + "_PREVIOUS"

// secret returns the secret of the environment, or nil if none is set.
func secret() ([]byte, error) { return secretOf(secretVariable) }

// previousSecret returns the secret before, or nil if none is set.
func previousSecret() ([]byte, error) { return secretOf(previousVariable) }

func secretOf(variable string) ([]byte, error) {
	value := os.Getenv(variable)
	if value == "" {
		return nil, nil
	}
	if len(value) < minSecret {
		return nil, usagef("%s has %d bytes; it needs at least %d, such as the output of "+
			"`openssl rand -hex 32`", variable, len(value), minSecret)
	}
	return []byte(value), nil
}

type tokenCommand struct {
	User string        `required:"" help:"The user's id."`
	TTL  time.Duration `name:"ttl" default:"1h" help:"How long the token is valid."`

	JWTIssuer   string `name:"jwt-issuer" env:"TIDEMARK_JWT_ISSUER" placeholder:"ISS" help:"The token's iss: that of the server's --jwt-issuer."`
	JWTAudience string `name:"jwt-audience" env:"TIDEMARK_JWT_AUDIENCE" placeholder:"AUD" help:"The token's aud: that of the server's --jwt-audience."`
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
	signer := auth.Signer{Secret: key, Issuer: c.JWTIssuer, Audience: c.JWTAudience}
	signed, err := signer.Sign(tidemark.UserID(c.User), "", time.Now(), c.TTL)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.out, signed)
	return err
}
