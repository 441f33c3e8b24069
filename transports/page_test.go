package transports_test

import (
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"testing/fstest"
)

// TestPage_is_compressed: a browser gets less than a third of the bytes, and keeps for ever what is
// named by its content.
func TestPage_is_compressed(t *testing.T) {
	const forever = "public, max-age=31536000, immutable"
	script := strings.Repeat("let x = 1;", 100)
	o := dev()
	o.page = fstest.MapFS{
		"index.html": {Data: []byte("x")}, "assets/a-1f.js": {Data: []byte(script)},
		"sw.js": {Data: []byte(script)}, "console/index.html": {Data: []byte("console")},
	}
	a := start(t, o)
	for _, c := range []struct {
		path, accept, coding, caching, want string
	}{
		{"/assets/a-1f.js", "br, gzip", "gzip", forever, script},
		{"/assets/a-1f.js", "gzip;q=0", "", forever, script},
		{"/assets/a-1f.js", "gzip; q=0.0", "", forever, script},
		{"/assets/a-1f.js", "identity", "", forever, script},
		{"/sw.js", "GZIP; q=0.5", "gzip", "no-cache", script},
		{"/", "gzip", "", "no-cache", "x"}, // It would be longer.
		{"/console", "gzip", "", "no-cache", "console"},
		{"/console/", "gzip", "", "no-cache", "console"},
	} {
		accept := map[string]string{"Accept-Encoding": c.accept}
		r := fetch(t, a, "GET", c.path, accept)
		body := io.Reader(r.Body)
		if c.coding == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil || r.ContentLength*3 > int64(len(script)) {
				t.Errorf("%s for %q: %d bytes, %v", c.path, c.accept, r.ContentLength, err)
				continue
			}
			body = unpacked
		}
		got, err := io.ReadAll(body)
		h := r.Header
		if err != nil || string(got) != c.want || h.Get("Content-Encoding") != c.coding ||
			h.Get("Cache-Control") != c.caching || h.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s for %q: %v, %d bytes, %v", c.path, c.accept, err, len(got), h)
		}
		accept["If-None-Match"] = h.Get("ETag")
		if again := fetch(t, a, "GET", c.path, accept); again.StatusCode != 304 {
			t.Errorf("%s for %q again: %d", c.path, c.accept, again.StatusCode)
		}
	}
}
