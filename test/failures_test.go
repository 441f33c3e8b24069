package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestChromium_the_page_survives_its_server kills the server under the page, takes it away for a
// night, and replaces its data by older ones.
func TestChromium_the_page_survives_its_server(t *testing.T) {
	t.Parallel() // It waits more than it works.
	onSite(t, "server.test.mjs")
}

// TestChromium_the_page_survives_its_device takes away the data, the space, the clock and the
// leading tab of a browser.
func TestChromium_the_page_survives_its_device(t *testing.T) {
	t.Parallel() // It waits more than it works.
	onSite(t, "device.test.mjs")
}

// TestChromium_the_page_behind_a_bad_proxy opens the page behind two servers of a real nginx. Both
// refuse to upgrade to a WebSocket. One of them also holds back what the server streams.
func TestChromium_the_page_behind_a_bad_proxy(t *testing.T) {
	t.Parallel() // It waits more than it works.
	p := newProxy(t)
	buffered := freeAddress(t)
	config := fmt.Sprintf("daemon off;\nworker_processes 1;\npid %s/nginx.pid;\n"+
		"error_log stderr;\nevents { worker_connections 256; }\nhttp {\naccess_log off;\n", p.dir)
	if os.Getuid() == 0 {
		config = "user root root;\n" + config // the directories of a test are for their owner
	}
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += kind + "_temp_path " + p.dir + "/" + kind + ";\n"
	}
	config += blocking(p.address, p.site.address, "proxy_http_version 1.1;\n"+
		"proxy_buffering off;") +
		// The server asks nginx not to buffer its streams. This nginx does not listen. Of HTTP/1.0,
		// its default, it passes nothing on before a buffer of 4 KiB is full.
		blocking(buffered, p.site.address, "proxy_buffering on;\n"+
			"proxy_ignore_headers X-Accel-Buffering;") + "}\n"
	p.write("nginx.conf", config)
	p.scheme, p.client = "http", &http.Client{Transport: &http.Transport{}}
	p.run("nginx", "-e", "stderr", "-p", p.dir, "-c", filepath.Join(p.dir, "nginx.conf"))
	inChromium(t, "network.test.mjs", append(controlled(t, p.site),
		"TIDEMARK_TEST_BLOCKED=http://"+p.address, "TIDEMARK_TEST_BUFFERED=http://"+buffered)...)
}

// TestFirefox_two_people_and_the_store runs the way of a message between two people, and the suites
// of the store, in Firefox.
func TestFirefox_two_people_and_the_store(t *testing.T) {
	t.Parallel() // It waits more than it works.
	needWeb(t)
	inNode(t, "firefox.test.mjs", "TIDEMARK_TEST_FIREFOX="+firefox(t),
		"TIDEMARK_TEST_URL=http://"+serveDev(t))
}

// firefox returns the path of the browser. A snap is none that can be driven.
func firefox(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"firefox-esr", "firefox"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if path, err = filepath.EvalSymlinks(path); err == nil && !strings.Contains(path, "snap") {
			return path
		}
	}
	t.Fatal("Firefox is missing. Run this, then the test again:\n" +
		"  apt-get update && apt-get install -y --no-install-recommends firefox-esr\n" +
		"Where apt has no firefox-esr, put the program firefox of " +
		"https://www.mozilla.org/firefox on the PATH. A snap cannot be driven.")
	return ""
}

// blocking returns a server of nginx that forgets to upgrade.
func blocking(address, site, buffering string) string {
	return fmt.Sprintf("server {\nlisten %s;\nlocation / {\nproxy_pass http://%s;\n"+
		"proxy_set_header Host $http_host;\n"+
		"proxy_set_header Connection \"\";\nproxy_read_timeout 75s;\n%s\n}\n}\n",
		address, site, buffering)
}
