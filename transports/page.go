package transports

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// pagePolicy lets the page load and call its own origin only, and forbids framing it. If files is
// not empty, the page also sends files to that origin, and shows pictures from there.
func pagePolicy(files string) string {
	files = strings.TrimSpace("'self' " + files)
	return "default-src 'none'; script-src 'self'; style-src 'self'; manifest-src 'self'; " +
		"worker-src 'self'; connect-src " + files + "; img-src " + files +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// mountPage mounts every file of the page. A folder's index.html is served at the folder's name,
// with and without a slash at the end. There is no catch-all route, because it would change the
// router's answers for all other paths.
func mountPage(e *echo.Echo, page fs.FS, policy string) error {
	if page == nil {
		return nil
	}
	err := fs.WalkDir(page, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(page, name)
		if err != nil {
			return err
		}
		at := []string{"/" + name}
		if dir, file := path.Split(at[0]); file == "index.html" {
			at = slices.Compact([]string{path.Clean(dir), dir})
		}
		serve := pageFile(name, content, policy)
		for _, address := range at {
			e.Match([]string{http.MethodGet, http.MethodHead}, address, serve)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	return nil
}

// pageFile serves one file. A file below assets has a hash of its content in its name, so a browser
// keeps it for ever. It asks again for each other one.
func pageFile(name string, content []byte, policy string) echo.HandlerFunc {
	plain, packed := newBody(content), newBody(zip(content))
	caching := "no-cache"
	if strings.HasPrefix(name, "assets/") {
		caching = "public, max-age=31536000, immutable"
	}
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", caching)
		h.Set("Vary", "Accept-Encoding")
		if path.Ext(name) == ".webmanifest" {
			h.Set("Content-Type", "application/manifest+json")
		}
		body := plain
		if len(packed.content) < len(content) && takesGzip(c.Request().Header) {
			body = packed
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("Content-Length", strconv.Itoa(len(body.content)))
		h.Set("ETag", body.etag)
		// The files are small, so every request gets the whole file.
		for _, condition := range []string{"Range", "If-Range", "If-Match", "If-Unmodified-Since"} {
			c.Request().Header.Del(condition)
		}
		http.ServeContent(c.Response(), c.Request(), name, time.Time{},
			bytes.NewReader(body.content))
		return nil
	}
}

// body is what an answer contains, and its name in conditional requests.
type body struct {
	content []byte
	etag    string
}

func newBody(content []byte) body {
	hash := sha256.Sum256(content)
	return body{content: content, etag: `"` + hex.EncodeToString(hash[:16]) + `"`}
}

// zip compresses as much as gzip can.
func zip(content []byte) []byte {
	var packed bytes.Buffer
	// Neither call can fail: the level is valid, and a buffer takes everything.
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, _ = w.Write(content)
	_ = w.Close()
	return packed.Bytes()
}

// takesGzip reports whether a client accepts gzip. "gzip;q=0" refuses it.
func takesGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			weight = strings.ReplaceAll(weight, " ", "")
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}
