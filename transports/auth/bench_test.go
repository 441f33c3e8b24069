package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// BenchmarkToken measures the authentication of a request: with a cached token, a new one, and a
// forged one.
func BenchmarkToken(b *testing.B) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	var published jose.JSONWebKeySet
	for kid, k := range map[string]crypto.Signer{"RS256": r, "ES256": e, "EdDSA": d} {
		published.Keys = append(published.Keys, jose.JSONWebKey{Key: k.Public(), KeyID: kid})
	}
	raw, err := json.Marshal(published)
	if err != nil {
		b.Fatal(err)
	}
	set, _, err := parseKeySet(raw)
	if err != nil {
		b.Fatal(err)
	}
	t := newTokens(Config{JWTSecret: secret, JWKS: &JWKS{set: set}})
	ctx := context.Background()
	for _, method := range []struct {
		jwt.SigningMethod
		key any
	}{
		{jwt.SigningMethodHS256, secret},
		{jwt.SigningMethodRS256, r},
		{jwt.SigningMethodES256, e},
		{jwt.SigningMethodEdDSA, d},
	} {
		token := jwt.NewWithClaims(method.SigningMethod, jwt.MapClaims{
			"sub": "ann", "exp": time.Now().Add(24 * time.Hour).Unix(),
		})
		token.Header["kid"] = method.Alg()
		text, err := token.SignedString(method.key)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(method.Alg()+"/remembered", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.verify(ctx, text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(method.Alg()+"/verified", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.parse(ctx, text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(method.Alg()+"/garbage", func(b *testing.B) {
			b.ReportAllocs()
			bad := text[:len(text)-8] + "AAAAAAAA"
			for b.Loop() {
				if _, err := t.verify(ctx, bad); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
