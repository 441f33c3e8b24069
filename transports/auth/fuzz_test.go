package auth

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
)

// FuzzCredentials: no guessed header, user header or ticket is accepted, and the refusal quotes
// none of them.
func FuzzCredentials(f *testing.F) {
	token := func(method jwt.SigningMethod, key any) string {
		claims := jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(24 * time.Hour).Unix()}
		s, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			f.Fatal(err)
		}
		return s
	}
	for _, header := range []string{
		"", "Bearer", "Bearer ", "bearer x", "Basic YTpi", "Bearer dev:ann", "Bearer a.b.c",
		"Bearer " + apiKeyPrefix, "Bearer " + apiKeyPrefix + strings.Repeat("A", 43),
		"Bearer " + token(jwt.SigningMethodHS256, []byte("another secret of thirty-two bytes")),
		"Bearer " + token(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType),
		"Bearer e30.e30.", "Bearer " + strings.Repeat("x", 9_000),
	} {
		for _, ticket := range []string{"", "dev:ann", "NOSUCHTICKET", "\x00"} {
			f.Add(header, "bob", ticket)
		}
	}
	a := New(Config{JWTSecret: []byte("the secret of this server, unknown"), APIKeys: &APIKeys{}})
	f.Fuzz(func(t *testing.T, header, user, ticket string) {
		r := httptest.NewRequest(http.MethodGet, "/?ticket="+url.QueryEscape(ticket), nil)
		r.Header.Set("Authorization", header)
		r.Header.Set(UserHeader, user)
		for name, check := range map[string]func() (Identity, error){
			"Header": func() (Identity, error) { return a.Header(r) },
			"Stream": func() (Identity, error) { return a.Stream(r, "session") },
			"Beacon": func() (Identity, error) { return a.Beacon(r) },
		} {
			id, err := check()
			if code := tidemark.CodeOf(err); code != tidemark.Unauthenticated &&
				code != tidemark.Invalid && code != tidemark.Denied {
				t.Fatalf("%s accepts %q with %q and %q: %+v, %v",
					name, header, ticket, user, id, err)
			}
			detail := tidemark.DetailOf(err)
			if !utf8.ValidString(detail) || len(ticket) > 20 && strings.Contains(detail, ticket) ||
				len(header) > 40 && strings.Contains(detail, header[7:]) {
				t.Errorf("%s says %q", name, detail)
			}
		}
	})
}

// FuzzParseKeysFile: a file of API keys is accepted as a whole or not at all. The error quotes
// nothing of it.
func FuzzParseKeysFile(f *testing.F) {
	_, line, err := NewAPIKey("backend")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		line, line + "\n" + line, "# none\n\n", "backend", "a b c", "backend " + hashPrefix + "00",
		line + "\x00", strings.ToUpper(line), "\ufeff" + line,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		keys, err := parseKeysFile(raw)
		if err != nil {
			if len(keys) > 0 || !strings.Contains(err.Error(), "line ") {
				t.Errorf("%d keys and %v", len(keys), err)
			}
			return
		}
		for _, k := range keys {
			if !tidemark.ValidID(k.name) {
				t.Errorf("%q gave the key %q", raw, k.name)
			}
		}
	})
}

// FuzzParseKeySet: for every answer of an issuer, a key verifies one algorithm, which the server
// supports.
func FuzzParseKeySet(f *testing.F) {
	for _, s := range []string{
		`{"keys":[]}`, `{"keys":null}`, `{}`, `[]`, `{"keys":[{"kty":"oct","k":"AA"}]}`,
		`{"keys":[1,null,{}]}`,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",` +
			`"kid":"a"}]}`,
		`{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",` +
			`"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","use":"enc"}]}`,
		`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`,
		`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","alg":"RS256"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		set, _, err := parseKeySet(raw)
		if err != nil {
			return
		}
		for _, k := range set.keys {
			if k.public == nil || k.alg != "RS256" && k.alg != "ES256" && k.alg != "EdDSA" {
				t.Errorf("%q gave a key of %q: %v", raw, k.alg, k.public)
			}
		}
	})
}
