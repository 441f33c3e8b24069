package transports

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/labstack/echo/v4"
)

// pagePolicy lets the page load and call its own origin only, and forbids framing it.
const pagePolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors " +
	"'none'; object-src 'none'"

// mountPage mounts every file of the page. There is no catch-all route, because it would change the
// router's answers for all other paths.
func mountPage(e *echo.Echo, page fs.FS) error {
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
		at := "/" + name
		if dir, file := path.Split(at); file == "index.html" {
			at = dir
		}
		e.Match([]string{http.MethodGet, http.MethodHead}, at, pageFile(name, content))
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	return nil
}

func pageFile(name string, content []byte) echo.HandlerFunc {
	hash := sha256.Sum256(content)
	etag := `"` + hex.EncodeToString(hash[:16]) + `"`
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", etag)
		// The files are small, so every request gets the whole file.
		for _, condition := range []string{"Range", "If-Range", "If-Match", "If-Unmodified-Since"} {
			c.Request().Header.Del(condition)
		}
		http.ServeContent(c.Response(), c.Request(), name, time.Time{}, bytes.NewReader(content))
		return nil
	}
}
