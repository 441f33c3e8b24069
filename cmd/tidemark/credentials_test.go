package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark/transports/transporttest"
)

func TestAPIKey_key_on_output_and_its_line_on_error(t *testing.T) {
	code, out, stderr := invoke(t, nil, "api-key", "--name", "billing")
	key := strings.TrimSuffix(out, "\n")
	hash := sha256.Sum256([]byte(key))
	if code != exitOK || !strings.HasPrefix(key, "tmk_") || len(key) < 30 ||
		stderr != "billing sha256:"+hex.EncodeToString(hash[:])+"\n" {
		t.Errorf("exit %d, out %q, err %q", code, out, stderr)
	}
}

func TestServe_with_an_api_key(t *testing.T) {
	_, key, line := invoke(t, nil, "api-key", "--name", "billing")
	file := write(t, "api-keys", line)
	url := startServer(t, "--store", "memory:", "--api-keys-file", file)
	for user, want := range map[string]int{"bob": http.StatusOK, "": http.StatusBadRequest} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/v1/chats",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(key))
		if user != "" {
			request.Header.Set("X-User-ID", user)
		}
		response, err := transporttest.Checked(t, http.DefaultTransport).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("for the user %q: %d, want %d", user, response.StatusCode, want)
		}
	}
}

// TestServe_with_the_keys_of_an_issuer checks tokens of an issuer whose first answer fails.
// startServer waits until /readyz is green, so the second fetch of the keys has succeeded then.
func TestServe_with_the_keys_of_an_issuer(t *testing.T) {
	cleanEnvironment(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var fetches atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fetches.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{
			Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "e"}},
		})
	}))
	t.Cleanup(issuer.Close)
	url := startServer(t, "--store", "memory:", "--jwks-url", issuer.URL, "--jwt-audience",
		"tidemark")
	if n := fetches.Load(); n < 2 {
		t.Errorf("ready after %d fetches, want 2 or more", n)
	}
	for audience, want := range map[string]int{
		"tidemark": http.StatusOK, "another": http.StatusUnauthorized,
	} {
		token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
			"sub": "bob", "aud": audience, "exp": time.Now().Add(time.Hour).Unix(),
		})
		token.Header["kid"] = "e"
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/v1/chats",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+text)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a token for %s: %d, want %d", audience, response.StatusCode, want)
		}
	}
}

func TestEnvironment_unknown_variables_are_errors(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		args        []string
		unknown     bool
	}{
		{
			"TIDEMARK_JWT_SECRTE",
			testSecret, []string{"migrate", "status", "--store", "memory:"}, true,
		},
		{"TIDEMARK_KILL_RUNS", "3", []string{"serve", "--listen", "nonsense"}, true},
		{"TIDEMARK_", "", []string{"token", "--user", "a"}, true},
		{"TIDEMARK_X", "", []string{"api-key", "--name", "a b"}, false},
		{"TIDEMARK_LISTEN_", "x", []string{"bench", "p2p", "--url", "nonsense"}, true},
		{"TIDEMARK_X", "1", []string{"version"}, false},
		// All commands share one environment.
		{
			"TIDEMARK_JWKS_URL",
			"https://id.example.com/", []string{"migrate", "status", "--store", "memory:"}, false,
		},
		// Kubernetes sets these in every container beside a service tidemark or tidemark-db.
		{
			"TIDEMARK_SERVICE_HOST",
			"10.0.0.1", []string{"migrate", "status", "--store", "memory:"}, false,
		},
		{
			"TIDEMARK_SERVICE_PORT_HTTP",
			"80", []string{"migrate", "status", "--store", "memory:"}, false,
		},
		{
			"TIDEMARK_PORT",
			"tcp://10.0.0.1:80", []string{"migrate", "status", "--store", "memory:"}, false,
		},
		{
			"TIDEMARK_DB_PORT_5432_TCP_ADDR",
			"10.0.0.1", []string{"migrate", "status", "--store", "memory:"}, false,
		},
	} {
		code, _, stderr := invoke(t, map[string]string{tt.name: tt.value}, tt.args...)
		os.Unsetenv(tt.name)
		got := strings.Contains(stderr, "the environment variable "+tt.name+" is unknown")
		if got != tt.unknown || got && code != exitUsage {
			t.Errorf("%s with %v: exit %d, %s, want it refused: %v",
				tt.name, tt.args, code, stderr, tt.unknown)
		}
		if strings.Contains(stderr, testSecret) {
			t.Errorf("%s: its value is shown: %s", tt.name, stderr)
		}
	}
}
