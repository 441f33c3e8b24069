package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports"
)

// credentialFlags say whom the server believes, beside the secret of the environment.
type credentialFlags struct {
	JWKSURL     string `name:"jwks-url" env:"TIDEMARK_JWKS_URL" placeholder:"URL" help:"Where the issuer of tokens (RS256, ES256, EdDSA) publishes its keys: https, or http on a loopback host."`
	JWTIssuer   string `name:"jwt-issuer" env:"TIDEMARK_JWT_ISSUER" placeholder:"ISS" help:"The iss that tokens must have. Without it any."`
	JWTAudience string `name:"jwt-audience" env:"TIDEMARK_JWT_AUDIENCE" placeholder:"AUD" help:"What tokens must have among their aud. Without it any."`
	APIKeysFile string `name:"api-keys-file" env:"TIDEMARK_API_KEYS_FILE" placeholder:"FILE" help:"Hashes of the API keys of backends, one a line as api-key prints it. It is read again when it changes."`
}

// config reads what the flags and the environment name. secret may be nil.
func (c *credentialFlags) config(dev bool, secret []byte, log *slog.Logger) (transports.AuthConfig, error) {
	cfg := transports.AuthConfig{Dev: dev, JWTSecret: secret, Issuer: c.JWTIssuer, Audience: c.JWTAudience}
	if c.JWKSURL != "" {
		keys, err := transports.NewJWKS(transports.JWKSConfig{URL: c.JWKSURL, Logger: log})
		if err != nil {
			return cfg, usageError{fmt.Errorf("--jwks-url: %s", tidemark.DetailOf(err))}
		}
		cfg.JWKS = keys
	}
	if (c.JWTIssuer != "" || c.JWTAudience != "") && cfg.JWKS == nil && secret == nil {
		return cfg, usageError{fmt.Errorf("--jwt-issuer and --jwt-audience are about tokens: give --jwks-url or %s too", secretVariable)}
	}
	if c.APIKeysFile != "" {
		keys, err := transports.LoadAPIKeys(c.APIKeysFile, log)
		if err != nil {
			return cfg, fmt.Errorf("--api-keys-file: %w", err)
		}
		cfg.APIKeys = keys
	}
	if !dev && secret == nil && cfg.JWKS == nil && cfg.APIKeys == nil {
		return cfg, usageError{fmt.Errorf("nobody could log in: set %s to a secret of at least %d bytes (openssl rand -hex 32), or give --jwks-url or --api-keys-file, "+
			"or use --dev to try things out on this machine", secretVariable, minSecret)}
	}
	return cfg, nil
}

type apiKeyCommand struct {
	Name string `required:"" help:"Whose key it is; it stands in the file, and in no answer."`
}

// Run makes an API key. The key itself goes to standard output, and is written down nowhere; its line for the file to standard error.
func (c *apiKeyCommand) Run(_ context.Context, std streams) error {
	secret, line, err := transports.NewAPIKey(c.Name)
	if err != nil {
		return usageError{errors.New("--name: " + tidemark.DetailOf(err))}
	}
	if _, err := fmt.Fprintln(std.out, secret); err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.err, line)
	return err
}
