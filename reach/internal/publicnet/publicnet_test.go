package publicnet

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	listed := []string{"push.example", "Updates.Example."}
	for _, tc := range []struct {
		url, want string
		hosts     []string
	}{
		{"https://push.example/a?b=c", "", nil},
		{"https://push.example:8443/a", "", nil},
		{"https://[2001:db8::1]/a", "", nil},
		{"http://push.example/a", "https", nil},
		{"ftp://push.example/a", "https", nil},
		{"push.example/a", "https", nil},
		{"https:///a", "no host", nil},
		{"https://bob@push.example/a", "user", nil},
		{"https://push.example/a#b", "fragment", nil},
		{"https://push.example/%zz", "cannot be read", nil},
		{"https://push.example/" + strings.Repeat("a", 2_048), "longer", nil},
		{"https://push.example/a", "", listed},
		{"https://PUSH.example./a", "", listed},
		{"https://eu.updates.example/a", "", listed},
		{"https://notpush.example/a", "not on the list", listed},
		{"https://push.example.evil.example/a", "not on the list", listed},
	} {
		err := New(nil, tc.hosts).Check(tc.url)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("Check(%s) = %v, want nil", tc.url, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("Check(%s) = %v, want an error with %q", tc.url, err, tc.want)
		}
	}
}

func TestControl(t *testing.T) {
	inside := []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"),
	}
	for _, tc := range []struct {
		address string
		allowed []netip.Prefix
		want    bool
	}{
		{"93.184.216.34:443", nil, true},
		{"93.184.216.34:80", nil, false},
		{"93.184.216.34:22", nil, false},
		{"[2606:2800:220:1::1]:443", nil, true},
		{"127.0.0.1:443", nil, false},
		{"10.1.2.3:443", nil, false},
		{"172.16.0.1:443", nil, false},
		{"192.168.0.1:443", nil, false},
		{"169.254.169.254:443", nil, false},
		{"100.64.0.1:443", nil, false},
		{"0.0.0.0:443", nil, false},
		{"224.0.0.1:443", nil, false},
		{"[::1]:443", nil, false},
		{"[::ffff:127.0.0.1]:443", nil, false},
		{"[fd00::1]:443", nil, false},
		{"[fe80::1]:443", nil, false},
		{"[2002:7f00:1::]:443", nil, false},
		{"[64:ff9b::7f00:1]:443", nil, false},
		{"10.1.2.3:8080", inside, true},
		{"[::ffff:10.1.2.3]:8080", inside, true},
		{"[fd00::1]:8080", inside, true},
		{"10.2.0.1:443", inside, false},
		{"93.184.216.34:8080", inside, false},
	} {
		network := "tcp4"
		if strings.HasPrefix(tc.address, "[") {
			network = "tcp6"
		}
		err := New(tc.allowed, nil).Control(network, tc.address, nil)
		if (err == nil) != tc.want {
			t.Errorf("Control(%s) with %v = %v, want it allowed: %t",
				tc.address, tc.allowed, err, tc.want)
		}
		if err != nil && !errors.Is(err, ErrPrivate) {
			t.Errorf("Control(%s) = %v, want ErrPrivate", tc.address, err)
		}
	}
}

// TestClient_over_a_real_socket: a name that resolves to this machine is refused before a byte is
// sent, and a redirect is an answer.
func TestClient_over_a_real_socket(t *testing.T) {
	requests := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		http.Redirect(w, r, "https://other.example/", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	url := "https://localhost:" + port + "/"
	trusting := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
		// The certificate is for this name.
		ServerName: "example.com",
	}}
	if _, err := New(nil, nil).Client(trusting).Get(url); !errors.Is(err, ErrPrivate) {
		t.Errorf("Get(%s) = %v, want ErrPrivate", url, err)
	}
	local := []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
	}
	response, err := New(local, nil).Client(trusting).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusTemporaryRedirect || requests != 1 {
		t.Errorf("the status is %d after %d requests, want %d after 1",
			response.StatusCode, requests, http.StatusTemporaryRedirect)
	}
}
