package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/auth"
)

// credentialFlags say which credentials the server accepts, besides tokens signed by the secret.
type credentialFlags struct {
	JWKSURL     string `name:"jwks-url" env:"TIDEMARK_JWKS_URL" placeholder:"URL" help:"URL of the keys of the tokens' issuer (RS256, ES256, EdDSA): https, or http on a loopback host."`
	JWTIssuer   string `name:"jwt-issuer" env:"TIDEMARK_JWT_ISSUER" placeholder:"ISS" help:"The iss that tokens must have. Without it, any."`
	JWTAudience string `name:"jwt-audience" env:"TIDEMARK_JWT_AUDIENCE" placeholder:"AUD" help:"A value that the aud of tokens must contain. Without it, any."`
	APIKeysFile string `name:"api-keys-file" env:"TIDEMARK_API_KEYS_FILE" placeholder:"FILE" help:"File with the hashes of backends' API keys, one line per key, as api-key prints it. It is read again when it changes."`
}

// config returns the configuration of authentication. secret may be nil.
// It reads the file of API keys, and returns an error if no user could log in.
func (c *credentialFlags) config(
	dev bool, secret []byte, log *slog.Logger,
) (auth.Config, error) {
	previous, err := previousSecret()
	if err != nil {
		return auth.Config{}, err
	}
	cfg := auth.Config{
		Dev:            dev,
		JWTSecret:      secret,
		PreviousSecret: previous,
		Issuer:         c.JWTIssuer,
		Audience:       c.JWTAudience,
	}
	if previous != nil && secret == nil {
		return cfg, usagef("%s is set without %s; it is for replacing the secret",
			previousVariable, secretVariable)
	}
	if c.JWKSURL != "" {
		keys, err := auth.NewJWKS(auth.JWKSConfig{URL: c.JWKSURL, Logger: log})
		if err != nil {
			return cfg, usagef("--jwks-url: %s", tidemark.DetailOf(err))
		}
		cfg.JWKS = keys
	}
	if (c.JWTIssuer != "" || c.JWTAudience != "") && cfg.JWKS == nil && secret == nil {
		return cfg, usagef("--jwt-issuer and --jwt-audience concern tokens only; "+
			"also give --jwks-url or %s", secretVariable)
	}
	if c.APIKeysFile != "" {
		keys, err := auth.LoadAPIKeys(c.APIKeysFile, log)
		if err != nil {
			return cfg, fmt.Errorf("--api-keys-file: %w", err)
		}
		cfg.APIKeys = keys
	}
	if !dev && secret == nil && cfg.JWKS == nil && cfg.APIKeys == nil {
		return cfg, usagef("nobody could log in: set %s to a secret of at least %d bytes "+
			"(openssl rand -hex 32), or give --jwks-url or --api-keys-file, "+
			"or use --dev to try things out on this machine", secretVariable, minSecret)
	}
	return cfg, nil
}

type apiKeyCommand struct {
	Name  string   `required:"" help:"Name of the key's owner. It is in the file, and in no answer."`
	Scope []string `placeholder:"SCOPE" help:"What the key allows: act, send, chats, tokens, stats, moderate, export, erase, admin; repeatable. Without it, everything."`
}

// Run prints a new API key on standard output, and stores it nowhere.
// It prints the key's line for the file on standard error.
func (c *apiKeyCommand) Run(_ context.Context, std streams) error {
	var scopes []auth.Scope
	if len(c.Scope) > 0 {
		var err error
		if scopes, err = auth.ParseScopes(strings.Join(c.Scope, ",")); err != nil {
			return usagef("--scope: %s", tidemark.DetailOf(err))
		}
	}
	secret, line, err := auth.NewAPIKey(c.Name, scopes...)
	if err != nil {
		return usagef("--name: %s", tidemark.DetailOf(err))
	}
	if _, err := fmt.Fprintln(std.out, secret); err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.err, line)
	return err
}
