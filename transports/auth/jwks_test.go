package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
)

// issuer is a token issuer whose endpoint listens on a loopback port and answers as the test says.
type issuer struct {
	*httptest.Server
	fetches atomic.Int64
	answer  atomic.Pointer[http.HandlerFunc]
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := new(issuer)
	i.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		(*i.answer.Load())(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) serve(f http.HandlerFunc) { i.answer.Store(&f) }

// publish makes the endpoint answer with a set of keys.
func (i *issuer) publish(t *testing.T, keys ...jose.JSONWebKey) {
	t.Helper()
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	i.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) })
}

// trust returns an Authenticator that accepts the issuer's tokens, and runs it until the test ends.
func trust(t *testing.T, i *issuer, keys auth.JWKSConfig, cfg auth.Config) *auth.Authenticator {
	t.Helper()
	keys.URL = i.URL
	if keys.Logger == nil {
		keys.Logger = slog.New(slog.DiscardHandler)
	}
	jwks, err := auth.NewJWKS(keys)
	if err != nil {
		t.Fatal(err)
	}
	cfg.JWKS = jwks
	a := auth.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return a
}

// eventually polls until the condition is true, for at most 10 s.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(wait.Hang)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func rsaKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func edKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func public(k crypto.Signer, id string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.Public(), KeyID: id, Use: "sig"}
}

// signed returns a valid token of a user, with a kid unless it is "".
func signed(t testing.TB, method jwt.SigningMethod, key any, kid string, user string) string {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims{
		"sub": user, "exp": time.Now().Add(time.Hour).Unix(),
	})
	if kid != "" {
		token.Header["kid"] = kid
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func header(a *auth.Authenticator, credentials string) (auth.Identity, error) {
	return a.Header(bearer(credentials))
}

func TestJWKS_each_algorithm_by_its_own_key(t *testing.T) {
	i := newIssuer(t)
	r, e, d := rsaKey(t, 2048), ecKey(t, elliptic.P256()), edKey(t)
	small, wide := rsaKey(t, 1024), ecKey(t, elliptic.P384())
	enc, other, private := rsaKey(t, 2048), rsaKey(t, 2048), rsaKey(t, 2048)
	labelled := ecKey(t, elliptic.P256())
	i.publish(t, public(r, "r"), public(e, "e"), public(d, "d"), public(small, "small"),
		public(wide, "wide"),
		jose.JSONWebKey{Key: enc.Public(), KeyID: "enc", Use: "enc"},
		jose.JSONWebKey{Key: other.Public(), KeyID: "rs512", Algorithm: "RS512"},
		jose.JSONWebKey{Key: private, KeyID: "private"},
		jose.JSONWebKey{Key: labelled.Public(), KeyID: "labelled", Algorithm: "RS256"},
		jose.JSONWebKey{Key: []byte("a symmetric key that is not for publishing"), KeyID: "oct"},
	)
	a := trust(t, i, auth.JWKSConfig{}, auth.Config{JWTSecret: secret})
	eventually(t, "the keys are fetched", func() bool { return a.Ready() == nil })

	for what, credentials := range map[string]string{
		"RS256": signed(t, jwt.SigningMethodRS256, r, "r", "ann"),
		"ES256": signed(t, jwt.SigningMethodES256, e, "e", "ann"),
		"EdDSA": signed(t, jwt.SigningMethodEdDSA, d, "d", "ann"),
		"HS256": signed(t, jwt.SigningMethodHS256, secret, "", "ann"),
	} {
		for range 2 {
			id, err := header(a, credentials)
			wantUser(t, what, id, err, "ann")
		}
	}

	der, err := x509.MarshalPKIXPublicKey(r.Public())
	if err != nil {
		t.Fatal(err)
	}
	good := signed(t, jwt.SigningMethodRS256, r, "r", "ann")
	parts := strings.Split(good, ".")
	crit := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"sub": "ann", "exp": time.Now().Add(time.Hour).Unix(),
	})
	crit.Header["kid"], crit.Header["crit"] = "r", []string{"exp"}
	critical, err := crit.SignedString(r)
	if err != nil {
		t.Fatal(err)
	}
	oddKid := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"sub": "ann", "exp": time.Now().Add(time.Hour).Unix(),
	})
	oddKid.Header["kid"] = 7
	odd, err := oddKid.SignedString(r)
	if err != nil {
		t.Fatal(err)
	}
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{
		"sub": "ann", "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	for what, credentials := range map[string]string{
		"HS256 with the public key's bytes": signed(t, jwt.SigningMethodHS256,
			der, "r", "ann"),
		"HS256 with the public key's modulus": signed(t, jwt.SigningMethodHS256,
			r.N.Bytes(), "r", "ann"),
		"RS512 with a good key":           signed(t, jwt.SigningMethodRS512, r, "r", "ann"),
		"PS256 with a good key":           signed(t, jwt.SigningMethodPS256, r, "r", "ann"),
		"ES256 that names the RSA key":    signed(t, jwt.SigningMethodES256, e, "r", "ann"),
		"RS256 by another key of the set": signed(t, jwt.SigningMethodRS256, enc, "r", "ann"),
		"no kid, several keys":            signed(t, jwt.SigningMethodRS256, r, "", "ann"),
		"a kid that is no string":         odd,
		"a critical header":               critical,
		"alg none":                        none,
		"no signature":                    parts[0] + "." + parts[1] + ".",
		"another signature": parts[0] + "." + parts[1] + "." +
			strings.Repeat("A", 342),
		"an RSA key of 1024 bits":     signed(t, jwt.SigningMethodRS256, small, "small", "ann"),
		"a key for encryption":        signed(t, jwt.SigningMethodRS256, enc, "enc", "ann"),
		"a key for another algorithm": signed(t, jwt.SigningMethodRS256, other, "rs512", "ann"),
		"a key labelled for another kind": signed(t, jwt.SigningMethodES256,
			labelled, "labelled", "ann"),
		"a private key in the set": signed(t, jwt.SigningMethodRS256,
			private, "private", "ann"),
		"a symmetric key in the set": signed(t, jwt.SigningMethodHS256,
			[]byte("a symmetric key that is not for publishing"), "oct", "ann"),
	} {
		_, err := header(a, credentials)
		wantRefused(t, what, err)
	}
}

func TestJWKS_only_key_needs_no_kid(t *testing.T) {
	i := newIssuer(t)
	e := ecKey(t, elliptic.P256())
	i.publish(t, public(e, "e"))
	a := trust(t, i, auth.JWKSConfig{}, auth.Config{})
	eventually(t, "the keys are fetched", func() bool { return a.Ready() == nil })
	id, err := header(a, signed(t, jwt.SigningMethodES256, e, "", "ann"))
	wantUser(t, "no kid", id, err, "ann")
	_, err = header(a, signed(t, jwt.SigningMethodRS256, rsaKey(t, 2048), "", "ann"))
	wantRefused(t, "no kid, and another algorithm", err)
	_, err = header(a, signed(t, jwt.SigningMethodHS256, secret, "", "ann"))
	wantRefused(t, "HS256 without a secret", err)
}

func TestToken_issuer_and_audience(t *testing.T) {
	a := auth.New(auth.Config{
		JWTSecret: secret,
		Issuer:    "https://id.example.com/",
		Audience:  "tidemark",
	})
	exp := time.Now().Add(time.Hour).Unix()
	id, err := header(a, token(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{
		"sub": "ann", "exp": exp, "iss": "https://id.example.com/",
		"aud": []string{"other", "tidemark"},
	}))
	wantUser(t, "both", id, err, "ann")
	for what, claims := range map[string]jwt.MapClaims{
		"no iss": {"sub": "ann", "exp": exp, "aud": "tidemark"},
		"another iss": {"sub": "ann", "exp": exp, "aud": "tidemark",
			"iss": "https://id.example.com"},
		"no aud": {"sub": "ann", "exp": exp, "iss": "https://id.example.com/"},
		"another aud": {"sub": "ann", "exp": exp, "iss": "https://id.example.com/",
			"aud": []string{"other"}},
	} {
		_, err := header(a, token(t, jwt.SigningMethodHS256, secret, claims))
		wantRefused(t, what, err)
	}
}

// A key appears and another disappears while tokens of both are in constant use.
func TestJWKS_rotation_under_load(t *testing.T) {
	i := newIssuer(t)
	old, next := ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256())
	i.publish(t, public(old, "old"))
	a := trust(t, i,
		auth.JWKSConfig{Refresh: 50 * time.Millisecond, AskEvery: 20 * time.Millisecond},
		auth.Config{})
	eventually(t, "the keys are fetched", func() bool { return a.Ready() == nil })
	oldToken := signed(t, jwt.SigningMethodES256, old, "old", "ann")
	nextToken := signed(t, jwt.SigningMethodES256, next, "next", "bob")

	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var refused atomic.Int64
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if _, err := header(a, oldToken); err != nil {
					refused.Add(1)
				}
			}
		})
	}
	i.publish(t, public(old, "old"), public(next, "next"))
	eventually(t, "the new key is good",
		func() bool { _, err := header(a, nextToken); return err == nil })
	if n := refused.Load(); n > 0 {
		t.Errorf("%d calls with the old key were refused while it was published", n)
	}
	i.publish(t, public(next, "next"))
	eventually(t, "the old key is refused, though its token was remembered", func() bool {
		_, err := header(a, oldToken)
		return tidemark.CodeOf(err) == tidemark.Unauthenticated
	})
	cancel()
	load.Wait()
	id, err := header(a, nextToken)
	wantUser(t, "the new key", id, err, "bob")
}

func TestJWKS_unknown_kids_share_one_fetch(t *testing.T) {
	i := newIssuer(t)
	e, next := ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256())
	i.publish(t, public(e, "e"))
	a := trust(t, i, auth.JWKSConfig{AskEvery: time.Hour}, auth.Config{})
	eventually(t, "the keys are fetched", func() bool { return a.Ready() == nil })

	// The issuer has a new key. One fetch serves all callers that show it at the same time.
	i.publish(t, public(e, "e"), public(next, "next"))
	credentials := signed(t, jwt.SigningMethodES256, next, "next", "ann")
	var group sync.WaitGroup
	var accepted atomic.Int64
	for range 50 {
		group.Go(func() {
			if _, err := header(a, credentials); err == nil {
				accepted.Add(1)
			}
		})
	}
	group.Wait()
	// A fetch may begin just as the first caller asks, so there may be 3.
	if accepted.Load() != 50 || i.fetches.Load() > 3 {
		t.Errorf("%d of 50 were accepted after %d fetches, want all after 2",
			accepted.Load(), i.fetches.Load())
	}

	before := i.fetches.Load()
	for n := range 2_000 {
		_, err := header(a, signed(t, jwt.SigningMethodHS256, secret, "", "eve"))
		wantRefused(t, "another algorithm", err)
		if n%20 == 0 {
			_, err = header(a,
				signed(t, jwt.SigningMethodES256, e, fmt.Sprint("made-up-", n), "eve"))
			wantRefused(t, "an unknown kid", err)
		}
	}
	if n := i.fetches.Load() - before; n > 0 {
		t.Errorf("a flood of unknown keys caused %d fetches in the hour that allows one", n)
	}
}

func TestJWKS_without_keys_tokens_are_unavailable(t *testing.T) {
	i := newIssuer(t)
	e := ecKey(t, elliptic.P256())
	a := trust(t, i, auth.JWKSConfig{Refresh: 20 * time.Millisecond},
		auth.Config{JWTSecret: secret})
	credentials := signed(t, jwt.SigningMethodES256, e, "e", "ann")
	eventually(t, "a fetch has failed",
		func() bool { return a.Counters()["jwks_failures_total"] > 1 })
	if _, err := header(a, credentials); tidemark.CodeOf(err) != tidemark.Unavailable ||
		tidemark.DetailOf(err) == "" {
		t.Errorf("a token before the first keys: %v", err)
	}
	if err := a.Ready(); tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("Ready = %v", err)
	}
	_, err := header(a, "nonsense")
	wantRefused(t, "nonsense", err)
	id, err := header(a, signed(t, jwt.SigningMethodHS256, secret, "", "ann"))
	wantUser(t, "a token of the secret", id, err, "ann")

	i.publish(t, public(e, "e"))
	eventually(t, "it recovers", func() bool { return a.Ready() == nil })
	id, err = header(a, credentials)
	wantUser(t, "afterwards", id, err, "ann")
}

// lines counts log lines by level.
type lines struct {
	slog.Handler
	warnings, infos atomic.Int64
}

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	switch r.Level {
	case slog.LevelWarn:
		l.warnings.Add(1)
	case slog.LevelInfo:
		l.infos.Add(1)
	}
	return nil
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func TestJWKS_keys_go_on_while_the_endpoint_fails(t *testing.T) {
	e := ecKey(t, elliptic.P256())
	credentials := signed(t, jwt.SigningMethodES256, e, "e", "ann")
	for what, answer := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		},
		"cut":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"slow":    func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"garbage": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"discovery": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"issuer":"x","jwks_uri":"y"}`)
		},
		"null": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":null}`)
		},
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[]`, strings.Repeat(" ", 1<<20), `}`)
		},
		"to another scheme": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		},
		"off the machine": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		},
		"round and round": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/again", http.StatusFound)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.publish(t, public(e, "e"))
			log := new(lines)
			timeout := wait.Hang
			if what == "slow" {
				timeout = 500 * time.Millisecond
			}
			a := trust(t, i, auth.JWKSConfig{
				Refresh: 10 * time.Millisecond, Timeout: timeout,
				AskEvery: time.Millisecond, Logger: slog.New(log),
			}, auth.Config{})
			eventually(t, "the keys are fetched", func() bool { return a.Ready() == nil })
			before, warnings := a.Counters()["jwks_failures_total"], log.warnings.Load()
			i.serve(answer)
			eventually(t, "it has failed twice more",
				func() bool { return a.Counters()["jwks_failures_total"] >= before+2 })
			id, err := header(a, credentials)
			wantUser(t, "the known key", id, err, "ann")
			unknown := signed(t, jwt.SigningMethodES256, e, "unknown", "ann")
			if _, err := header(a, unknown); tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Errorf("a key that may be new while the issuer cannot be asked: %v, "+
					"want Unavailable", err)
			}
			if n := log.warnings.Load() - warnings; n != 1 {
				t.Errorf("%d warnings, want one for the change", n)
			}
			infos := log.infos.Load()
			i.publish(t, public(e, "e"))
			eventually(t, "the log says that it has recovered",
				func() bool { return log.infos.Load() > infos })
			eventually(t, "the issuer is asked again", func() bool {
				_, err = header(a, unknown)
				return tidemark.CodeOf(err) != tidemark.Unavailable
			})
			wantRefused(t, "an unknown key afterwards", err)
		})
	}
}

func TestJWKS_empty_set_withdraws_every_key(t *testing.T) {
	i := newIssuer(t)
	e := ecKey(t, elliptic.P256())
	i.publish(t, public(e, "e"))
	log := new(lines)
	a := trust(t, i, auth.JWKSConfig{Refresh: 10 * time.Millisecond, Logger: slog.New(log)},
		auth.Config{})
	eventually(t, "the keys are fetched", func() bool { return a.Ready() == nil })
	if n := log.warnings.Load(); n != 0 {
		t.Errorf("%d warnings while there is a key", n)
	}
	i.serve(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"keys":[{"kty":"new"},7]}`)
	})
	eventually(t, "no key is good", func() bool {
		_, err := header(a, signed(t, jwt.SigningMethodES256, e, "e", "ann"))
		return tidemark.CodeOf(err) == tidemark.Unauthenticated
	})
	eventually(t, "the log warns of it", func() bool { return log.warnings.Load() == 1 })
}

func TestJWKS_follows_a_redirect_on_the_machine(t *testing.T) {
	i := newIssuer(t)
	e := ecKey(t, elliptic.P256())
	i.publish(t, public(e, "e"))
	direct := *i.answer.Load()
	i.serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			direct(w, r)
			return
		}
		http.Redirect(w, r, "/keys", http.StatusFound)
	})
	a := trust(t, i, auth.JWKSConfig{}, auth.Config{})
	eventually(t, "the keys are fetched", func() bool { return a.Ready() == nil })
}

func TestNewJWKS_urls(t *testing.T) {
	for url, want := range map[string]bool{
		"https://id.example.com/keys": true, "http://localhost:1/keys": true,
		"http://127.0.0.2/keys": true, "http://[::1]:1/": true,
		"http://id.example.com/keys": false, "http://localhost.example.com/": false,
		"http://192.0.2.1/": false, "ftp://localhost/": false,
		"file:///etc/keys": false, "id.example.com/keys": false, "https://": false, "": false,
		"https://%zz": false,
	} {
		if _, err := auth.NewJWKS(auth.JWKSConfig{URL: url}); (err == nil) != want {
			t.Errorf("%q: %v", url, err)
		}
	}
}
