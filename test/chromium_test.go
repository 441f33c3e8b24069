package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
)

// The tests in browser/ are in JavaScript, like the page. Each file is one test here.

func TestChromium_plain_EventSource_resumes_by_itself(t *testing.T) {
	t.Parallel() // It waits more than it works.
	onSite(t, "eventsource.test.mjs")
}

func TestChromium_the_page_shows_delivery_as_it_is(t *testing.T) {
	t.Parallel() // It waits more than it works.
	inChromium(t, "app.test.mjs", "TIDEMARK_TEST_URL=http://"+serveDev(t))
}

func TestChromium_the_page_on_a_server_for_others(t *testing.T) {
	t.Parallel() // It waits more than it works.
	onSite(t, "site.test.mjs")
}

// onSite runs a file against a server without --dev. The file can stop and start the server, and
// request tokens.
func onSite(t *testing.T, file string) {
	t.Helper()
	s := newSite(t)
	control := http.NewServeMux()
	control.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { s.stop() })
	control.HandleFunc("POST /start", func(http.ResponseWriter, *http.Request) { s.start() })
	control.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, s.run("token", "--user", r.FormValue("user"), "--ttl", r.FormValue("ttl")))
	})
	// A failure in a handler marks the test as failed. The file gets no answer and ends.
	calls := httptest.NewServer(control)
	t.Cleanup(calls.Close)
	inChromium(t, file, "TIDEMARK_TEST_URL=http://"+s.address, "TIDEMARK_TEST_CONTROL="+calls.URL)
}

// inChromium runs one file of browser/ with node.
func inChromium(t *testing.T, file string, env ...string) {
	t.Helper()
	browser := chromium(t)
	node := lookPath(t, "node", "nodejs npm")
	needPlaywright(t)
	cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=spec", file)
	cmd.Dir = "browser"
	cmd.Env = append(append(os.Environ(), "TIDEMARK_TEST_CHROMIUM="+browser), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
	t.Logf("%s", out)
}

// chromium returns the path of the browser.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return lookPath(t, "chromium", "chromium")
}

func lookPath(t *testing.T, name, packages string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing. Run this, then the test again:\n"+
			"  apt-get update && apt-get install -y --no-install-recommends %s", name, packages)
	}
	return path
}

// needPlaywright fails unless playwright-core is where browser/browser.mjs looks for it.
func needPlaywright(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("../.build/browser/node_modules/playwright-core"); err != nil {
		t.Fatalf("playwright-core is missing (%v). Run this, then the test again:\n"+
			"  make browser-deps", err)
	}
}
