package endpoint

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tidemark-im/tidemark"
)

// alone removes the AWS settings from the test's environment.
func alone(t *testing.T) (home string) {
	t.Helper()
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	home = t.TempDir()
	t.Setenv("HOME", home)
	return home
}

// recorder is a DynamoDB that refuses every call, and records its signature.
type recorder struct {
	mu     sync.Mutex
	signed []string
	conns  map[string]bool
}

func (r *recorder) serve(t *testing.T) (endpoint string) {
	t.Helper()
	r.conns = make(map[string]bool)
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			r.mu.Lock()
			r.signed = append(r.signed, request.Header.Get("Authorization"))
			r.conns[request.RemoteAddr] = true
			r.mu.Unlock()
			w.WriteHeader(http.StatusInternalServerError)
		}))
	t.Cleanup(server.Close)
	return server.URL
}

func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.signed) == 0 {
		return ""
	}
	return r.signed[len(r.signed)-1]
}

func mustParse(t *testing.T, raw string) *Endpoint {
	t.Helper()
	parsed, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestClient_credentials(t *testing.T) {
	for _, tc := range []struct {
		name, profile, access, want string
	}{
		{"none", "", "", "Credential=tidemark/"},
		{"environment", "", "AKIDENVIRONMENT", "Credential=AKIDENVIRONMENT/"},
		{"profile", "AKIDPROFILE", "", "Credential=AKIDPROFILE/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			home := alone(t)
			if tc.access != "" {
				t.Setenv("AWS_ACCESS_KEY_ID", tc.access)
				t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
			}
			if tc.profile != "" {
				file := filepath.Join(home, "credentials")
				profile := "[ours]\naws_access_key_id = " + tc.profile +
					"\naws_secret_access_key = x\n"
				if err := os.WriteFile(file, []byte(profile), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
				t.Setenv("AWS_PROFILE", "ours")
			}
			var r, machine recorder
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", machine.serve(t))
			client, err := mustParse(t,
				"dynamodb://eu-central-1/p?endpoint="+r.serve(t)).Client(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(machine.conns) > 0 {
				t.Error("the machine was asked for its role; an emulator is to work at once")
			}
			_, _ = client.ListTables(t.Context(), &dynamodb.ListTablesInput{})
			if got := r.last(); !strings.Contains(got, tc.want) ||
				!strings.Contains(got, "/eu-central-1/dynamodb/") {
				t.Errorf("signed by %q, want %q in the Region eu-central-1", got, tc.want)
			}
		})
	}
}

func TestClient_calls_once(t *testing.T) {
	alone(t)
	t.Setenv("AWS_MAX_ATTEMPTS", "7")
	var r recorder
	client, err := mustParse(t, "dynamodb://r/p?endpoint="+r.serve(t)).Client(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ListTables(t.Context(), &dynamodb.ListTablesInput{}); err == nil {
		t.Fatal("a 500 is no error")
	}
	if got := len(r.signed); got != 1 {
		t.Errorf("got %d attempts, want 1: only the store knows what may be repeated", got)
	}
}

// TestClient_keeps_its_connections: the store's maximum of concurrent calls makes one handshake
// each, and reuses the connections.
func TestClient_keeps_its_connections(t *testing.T) {
	alone(t)
	var r recorder
	client, err := mustParse(t, "dynamodb://r/p?endpoint="+r.serve(t)).Client(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const calls, rounds = 40, 5
	for range rounds {
		var all sync.WaitGroup
		for range calls {
			all.Go(func() { _, _ = client.ListTables(t.Context(), &dynamodb.ListTablesInput{}) })
		}
		all.Wait()
	}
	if got := len(r.conns); got > 2*calls {
		t.Errorf("%d rounds of %d calls took %d connections", rounds, calls, got)
	}
}

// TestClient_sends_a_call_in_one_write: with the SDK's own body it would be two.
func TestClient_sends_a_call_in_one_write(t *testing.T) {
	alone(t)
	var r recorder
	var writes atomic.Int64
	var dialer net.Dialer
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			return countingConn{conn, &writes}, err
		},
	}
	defer transport.CloseIdleConnections()
	client, err := mustParse(t,
		"dynamodb://r/p?endpoint="+r.serve(t)).Client(t.Context(), transport)
	if err != nil {
		t.Fatal(err)
	}
	const calls = 3
	for range calls {
		_, _ = client.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	}
	if got := writes.Load(); got != calls || len(r.signed) != calls {
		t.Errorf("%d calls, of which %d arrived, took %d writes", calls, len(r.signed), got)
	}
}

// countingConn is a connection that counts its writes.
type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestClient_uses_the_transport(t *testing.T) {
	alone(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKID")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	var asked string
	client, err := mustParse(t, "dynamodb://eu-central-1/p").Client(t.Context(),
		transportFunc(func(r *http.Request) (*http.Response, error) {
			asked = r.URL.Host
			return nil, context.Canceled
		}))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = client.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if want := "dynamodb.eu-central-1.amazonaws.com"; asked != want {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

func TestClient_without_credentials_at_AWS(t *testing.T) {
	alone(t)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	_, err := mustParse(t, "dynamodb://eu-central-1/p").Client(t.Context(), nil)
	if tidemark.CodeOf(err) != tidemark.Unavailable ||
		!strings.Contains(tidemark.DetailOf(err), "AWS_ACCESS_KEY_ID") {
		t.Errorf("got %v, want UNAVAILABLE that says where credentials come from", err)
	}
	t.Setenv("AWS_PROFILE", "not-there")
	_, err = mustParse(t, "dynamodb://eu-central-1/p").Client(t.Context(), nil)
	if tidemark.CodeOf(err) != tidemark.Unavailable ||
		!strings.Contains(tidemark.DetailOf(err), "AWS_PROFILE") {
		t.Errorf("got %v, want UNAVAILABLE that names the profile", err)
	}
}
