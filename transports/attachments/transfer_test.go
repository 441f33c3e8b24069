package attachments_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/test/wait"
	adapter "github.com/tidemark-im/tidemark/transports/attachments"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// TestTransfers_of_a_user: a user whose uploads all stall holds up nobody else.
func TestTransfers_of_a_user(t *testing.T) {
	server, files := serve(t)
	put := func(user tidemark.UserID, body io.Reader) (*http.Response, error) {
		file := &attachments.File{
			ID: rand.Text(), Name: "a", Type: "text/plain", Size: 1,
		}
		signed, err := files.SignUpload(t.Context(), user, file, time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		url := server.URL + signed.URL
		r, err := http.NewRequestWithContext(t.Context(), signed.Method, url, body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 1
		r.Header.Set("Content-Type", file.Type)
		return server.Client().Do(r)
	}
	status := func(user tidemark.UserID) int {
		answer, err := put(user, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode
	}
	const most = 32
	var stalled sync.WaitGroup
	release := make(chan struct{})
	for range most {
		stalled.Go(func() {
			// It is refused while the check below takes the last place.
			for again := true; again; {
				answer, err := put("alice", stall(release))
				again = err == nil && answer.StatusCode == http.StatusTooManyRequests
			}
		})
	}
	wait.Until(t, "alice's uploads are under way", func() bool {
		return status("alice") == http.StatusTooManyRequests
	})
	// The body is not the one that was announced.
	if got := status("bob"); got != http.StatusBadRequest {
		t.Errorf("another user got %d", got)
	}
	close(release)
	stalled.Wait()
	wait.Until(t, "alice may upload again", func() bool {
		return status("alice") == http.StatusBadRequest
	})
}

// TestDownload_refusals are problems, as all answers of the API from 400 up.
func TestDownload_refusals(t *testing.T) {
	server, files := serve(t)
	content := []byte("0123456789")
	file := &attachments.File{
		ID: rand.Text(), Name: "a", Type: "text/plain", Size: 10, Sum: sha256.Sum256(content),
	}
	until := time.Now().Add(time.Minute)
	signed, err := files.SignUpload(t.Context(), "alice", file, until)
	if err != nil {
		t.Fatal(err)
	}
	link, err := files.SignDownload(t.Context(), "alice", file, "attachment", until)
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, url string, header ...string) (*http.Response, string) {
		t.Helper()
		body := io.Reader(http.NoBody)
		if method == http.MethodPut {
			body = bytes.NewReader(content)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+url, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header[0], header[1])
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer, string(text)
	}
	answer, text := do(http.MethodPut, signed.URL, "Content-Type", file.Type)
	if answer.StatusCode != http.StatusNoContent {
		t.Fatalf("the upload: %d %s", answer.StatusCode, text)
	}
	for _, tt := range []struct {
		name, header, value string
		status              int
		want                string
		media               string
	}{
		{"all", "Range", "", 200, string(content), file.Type},
		{"a range", "Range", "bytes=2-4", 206, "234", file.Type},
		{"beyond the end", "Range", "bytes=10-", 416, `"code":"RANGE_NOT_SATISFIABLE"`,
			problem.ContentType},
		{"no range", "Range", "bytes=x", 416, `"param":"Range"`, problem.ContentType},
		{"other bytes", "If-Match", `"x"`, 412, `"code":"PRECONDITION_FAILED"`,
			problem.ContentType},
	} {
		answer, text := do(http.MethodGet, link, tt.header, tt.value)
		if answer.StatusCode != tt.status || !strings.Contains(text, tt.want) ||
			answer.Header.Get("Content-Type") != tt.media {
			t.Errorf("%s: %d %v %s", tt.name, answer.StatusCode, answer.Header, text)
		}
		if got := answer.Header.Get("Content-Range"); tt.name == "beyond the end" &&
			got != "bytes */10" {
			t.Errorf("%s: Content-Range is %q", tt.name, got)
		}
		if tt.status >= 400 && answer.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: the refusal is to be saved as a file", tt.name)
		}
	}
}

// stall is a body that ends when it is closed.
type stall chan struct{}

// Read implements io.Reader.
func (s stall) Read([]byte) (int, error) {
	<-s
	return 0, io.ErrUnexpectedEOF
}

// TestDir runs the suite of places on a directory.
func TestDir(t *testing.T) {
	attachmentstest.Run(t, func(t *testing.T) attachmentstest.Place {
		server, files := serve(t)
		return attachmentstest.Place{Bytes: files, Base: server.URL}
	})
}

// serve serves the files of an empty directory.
func serve(t *testing.T) (*httptest.Server, *dir.Dir) {
	files, err := dir.New(t.TempDir(), "/api"+adapter.Files)
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.HTTPErrorHandler = problem.Handler(slog.New(slog.DiscardHandler))
	adapter.New(adapter.Config{Dir: files}).Mount(e, "/api")
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return server, files
}
