package auth_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/auth"
)

func TestIssueToken_is_of_the_user_and_ends_with_its_key(t *testing.T) {
	key, line := newKey(t, "login")
	path := keysFile(t, line+"\n")
	synctest.Test(t, func(t *testing.T) {
		a, keys := withKeys(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		go keys.Run(ctx)
		defer synctest.Wait()
		defer cancel()
		backend, err := a.Header(calls(key, "ann"))
		if err != nil {
			t.Fatal(err)
		}
		token, expires, err := a.IssueToken(ctx, backend, "", time.Minute)
		if err != nil || time.Until(expires) > time.Minute ||
			time.Until(expires) < 59*time.Second {
			t.Fatalf("until %v, %v", expires, err)
		}
		user, err := a.Header(bearer(token))
		wantUser(t, "the token", user, err, "ann")
		if !user.Expires.Equal(expires) {
			t.Errorf("it expires at %v, want %v", user.Expires, expires)
		}
		_, err = a.Header(calls(token, "bob"))
		if tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("the token for another user: %v", err)
		}
		_, _, err = a.IssueToken(ctx, user, "", time.Minute)
		if tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("a user makes a token: %v", err)
		}
		ticket := issue(t, a, user)

		rewrite(t, path, "")
		time.Sleep(6 * time.Second) // synctest's clock
		if tidemark.CodeOf(user.Ended()) != tidemark.Unauthenticated {
			t.Errorf("a stream of the token of a withdrawn key: Ended = %v", user.Ended())
		}
		_, err = a.Header(bearer(token))
		wantRefused(t, "a known token of a withdrawn key", err)
		_, err = a.Stream(ticket, "")
		wantRefused(t, "a ticket of the token of a withdrawn key", err)
		another, _ := withKeys(t, path)
		_, err = another.Header(bearer(token))
		wantRefused(t, "a new token of a withdrawn key", err)
	})
}

func TestIssueToken_needs_a_secret(t *testing.T) {
	key, line := newKey(t, "login")
	_, keys := withKeys(t, keysFile(t, line))
	a := auth.New(auth.Config{APIKeys: keys})
	backend, err := a.Header(calls(key, "ann"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = a.IssueToken(t.Context(), backend, "", time.Minute)
	if tidemark.CodeOf(err) != tidemark.Denied {
		t.Errorf("without a secret: %v", err)
	}
}

func TestSigner_makes_what_the_server_asks_for(t *testing.T) {
	a := auth.New(auth.Config{JWTSecret: secret, Issuer: "ours", Audience: "tidemark"})
	signer := auth.Signer{Secret: secret, Issuer: "ours", Audience: "tidemark"}
	token, err := signer.Sign("ann", "", time.Now(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	id, err := a.Header(bearer(token))
	wantUser(t, "the server's own form", id, err, "ann")
}

func TestHeader_tokens_of_the_secret_before(t *testing.T) {
	before := []byte("the secret of the year before, gone")
	a := auth.New(auth.Config{JWTSecret: secret, PreviousSecret: before})
	claims := jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	for what, key := range map[string][]byte{"the secret": secret, "the one before": before} {
		id, err := a.Header(bearer(token(t, jwt.SigningMethodHS256, key, claims)))
		wantUser(t, what, id, err, "ann")
	}
	for what, key := range map[string][]byte{"another": []byte("another secret"), "none": {}} {
		_, err := a.Header(bearer(token(t, jwt.SigningMethodHS256, key, claims)))
		wantRefused(t, what, err)
	}
	alone := auth.New(auth.Config{JWTSecret: secret})
	_, err := alone.Header(bearer(token(t, jwt.SigningMethodHS256, []byte{}, claims)))
	wantRefused(t, "an empty secret, where none came before", err)
}
