package es256

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// TestToken_is_read_by_another_implementation: golang-jwt verifies it, and a second token of the
// same content is the same.
func TestToken_is_read_by_another_implementation(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// Many times, since r or s begins with a zero byte in one of 128 signatures.
	for i := range 300 {
		header := map[string]any{"alg": "ES256", "kid": "K"}
		claims := map[string]any{"iss": "T", "iat": i}
		token, err := Token(key, header, claims)
		if err != nil {
			t.Fatal(err)
		}
		public := func(*jwt.Token) (any, error) { return &key.PublicKey, nil }
		parsed, err := jwt.Parse(token, public,
			jwt.WithValidMethods([]string{"ES256"}))
		if err != nil {
			t.Fatalf("token %d: %v", i, err)
		}
		if got := parsed.Header["kid"]; got != "K" {
			t.Errorf("kid is %v, want K", got)
		}
		again, err := Token(key, map[string]any{"kid": "K", "alg": "ES256"}, claims)
		if err != nil || again != token {
			t.Fatalf("the same content has the tokens %s and %s: %v", token, again, err)
		}
	}
}

func TestParseKey(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		text []byte
		want string
	}{
		"PKCS #8":     {pkcs8(t, key), ""},
		"SEC 1":       {pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}), ""},
		"P-384":       {pkcs8(t, other), "is of another kind"},
		"RSA":         {pkcs8(t, rsaKey), "is of another kind"},
		"no PEM":      {[]byte("AuthKey"), "is not PEM"},
		"PEM, no key": {pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: []byte("x")}), "cannot be"},
	} {
		got, err := ParseKey(tc.text)
		switch {
		case tc.want == "" && (err != nil || !got.Equal(key)):
			t.Errorf("%s: got another key, or %v", name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
