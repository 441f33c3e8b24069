package attachments_test

import (
	"crypto/rand"
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
