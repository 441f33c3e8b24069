package attachments_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/transports/attachments"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// TestDir runs the suite of places on a directory.
func TestDir(t *testing.T) {
	attachmentstest.Run(t, func(t *testing.T) attachmentstest.Place {
		files, err := dir.New(t.TempDir(), "/api"+attachments.Files)
		if err != nil {
			t.Fatal(err)
		}
		e := echo.New()
		e.HTTPErrorHandler = problem.Handler(slog.New(slog.DiscardHandler))
		attachments.New(attachments.Config{Dir: files}).Mount(e, "/api")
		server := httptest.NewServer(e)
		t.Cleanup(server.Close)
		return attachmentstest.Place{Bytes: files, Base: server.URL}
	})
}
