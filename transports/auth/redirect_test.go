package auth

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// The keys decide who may call. So no redirect may lead to an address without TLS, or to one that
// the configuration would refuse.
func TestCheckRedirect(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		hops     int
		follow   bool
	}{
		{"https://id.example.com/a", "https://keys.example.com/b", 1, true},
		{"https://id.example.com/a", "https://keys.example.com/b", maxRedirects, true},
		{"https://id.example.com/a", "https://keys.example.com/b", maxRedirects + 1, false},
		{"https://id.example.com/a", "http://127.0.0.1/b", 1, false},
		{"https://id.example.com/a", "http://id.example.com/a", 1, false},
		{"http://localhost/a", "http://127.0.0.1/b", 1, true},
		{"http://localhost/a", "http://id.example.com/b", 1, false},
		{"http://localhost/a", "https://id.example.com/b", 1, false},
	} {
		var via []*http.Request
		for range tt.hops {
			via = append(via, httptest.NewRequest(http.MethodGet, tt.from, nil))
		}
		err := checkRedirect(httptest.NewRequest(http.MethodGet, tt.to, nil), via)
		if (err == nil) != tt.follow {
			t.Errorf("%s after %d of %s: %v, want followed: %v",
				tt.to, tt.hops, tt.from, err, tt.follow)
		}
	}
}
