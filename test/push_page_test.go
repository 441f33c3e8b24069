package test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tidemark-im/tidemark/reach/push"
)

// TestChromium_the_page_is_told_while_it_is_closed registers the page at a push service of the
// test, and hands what that decrypts to the page's service worker. Only subscribing is a stub: a
// browser would need the push service of its vendor.
func TestChromium_the_page_is_told_while_it_is_closed(t *testing.T) {
	t.Parallel() // It waits more than it works.
	fakes := startProviders(t)
	p := newProcess(t)
	p.flags, p.env = append(p.flags, fakes.flags...), fakes.env
	p.start()
	alice, bob := as(p.address, "alice"), as(p.address, "bob")
	chat := alice.direct(t, "bob")
	fakes.register(t, bob)
	whenPushes(t, p, fakes, alice, chat)

	device := http.NewServeMux()
	device.HandleFunc("GET /received", func(w http.ResponseWriter, _ *http.Request) {
		payloads := []push.Data{}
		for _, r := range fakes.web.Received() {
			payloads = append(payloads, r.Data)
		}
		_ = json.NewEncoder(w).Encode(payloads)
	})
	calls := httptest.NewServer(device)
	t.Cleanup(calls.Close)
	key := fakes.browser.Device.Key()
	subscription, err := json.Marshal(map[string]any{
		"endpoint": fakes.web.URL + "/push/a",
		"keys": map[string]string{
			"p256dh": base64.RawURLEncoding.EncodeToString(key.Public().Bytes()),
			"auth":   base64.RawURLEncoding.EncodeToString(key.Auth()),
		},
	})
	must(t, err)
	inWholeChromium(t, "push.test.mjs", "TIDEMARK_TEST_URL=http://"+p.address,
		"TIDEMARK_TEST_DEVICE="+calls.URL, "TIDEMARK_TEST_SUBSCRIPTION="+string(subscription),
		"TIDEMARK_TEST_SILENT=http://"+serveDev(t))
	if refusals := fakes.web.Refusals(); len(refusals) > 0 {
		t.Errorf("the push service refused: %v", refusals)
	}
}
