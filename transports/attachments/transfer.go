package attachments

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

const (
	// maxTransfers is how many uploads and downloads a node serves at a time.
	maxTransfers = 512
	// maxTransfersOfUser is how many of them are of one user. By HTTP/2 a page asks for all its
	// pictures at once.
	maxTransfersOfUser = 32
	// stallAfter is how long a client may take for the next 64 KiB of a file.
	stallAfter = 30 * time.Second
	// transferWithin is how long a client may take for a whole file.
	transferWithin = 30 * time.Minute
	// piece is how many bytes are read or written in stallAfter.
	piece = 64 << 10
	// retryFrom and retryWithin set the Retry-After of a refused transfer: retryFrom plus a random
	// part of retryWithin.
	retryFrom, retryWithin = 5 * time.Second, 10 * time.Second
)

// transfers counts the uploads and downloads under way. It is safe for concurrent use.
type transfers struct {
	mu  sync.Mutex
	all int
	// of has those of each user, by what grants call them. Users without any are not in it.
	of map[string]int
}

// begin counts a transfer of a user. The caller calls end when it has ended. Errors: Exhausted
// (those of the user are too many), Unavailable (all are).
func (t *transfers) begin(user string) (end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	//rule:bounded_use.transfers-of-a-user
	case t.of[user] >= maxTransfersOfUser:
		err = tidemark.Errorf(tidemark.Exhausted,
			"you upload and download %d files now, and more at a time are refused; let one end",
			maxTransfersOfUser)
	case t.all >= maxTransfers:
		err = tidemark.Errorf(tidemark.Unavailable,
			"too many files are uploaded and downloaded now; try again")
	default:
		t.all++
		t.of[user]++
		return func() { t.end(user) }, nil
	}
	return nil, problem.RetryAfter(err, retryFrom+rand.N(retryWithin))
}

func (t *transfers) end(user string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.of[user]--; t.of[user] == 0 {
		delete(t.of, user)
	}
}

// receive stores the bytes of an upload.
func (a *Adapter) receive(c echo.Context) error {
	w, r := c.Response(), c.Request()
	user, err := a.Dir.Uploader(c.Param("id"), c.QueryParam("grant"))
	var end func()
	if err == nil {
		end, err = a.transfers.begin(user)
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		return err
	}
	defer end()
	deadlines := http.NewResponseController(w)
	_ = deadlines.SetWriteDeadline(time.Time{}) // receive sets it again before it answers
	from := &upload{body: r.Body, deadlines: deadlines, last: time.Now().Add(transferWithin)}
	err = a.Dir.Receive(dir.Put{
		ID: c.Param("id"), Grant: c.QueryParam("grant"), Type: r.Header.Get("Content-Type"),
		Length: r.ContentLength, Body: from,
	})
	_ = deadlines.SetWriteDeadline(time.Now().Add(stallAfter))
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case err == nil:
		return c.NoContent(http.StatusNoContent)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = tidemark.Errorf(tidemark.Invalid, "the body came too slowly: 64 KiB must arrive "+
			"within %v, and all of it within %v", stallAfter, transferWithin)
	case from.err != nil:
		err = &tidemark.Error{
			Code: tidemark.Invalid, Detail: "the body could not be read to its end", Err: err,
		}
	}
	// Otherwise net/http would read the rest of the body before it answers.
	w.Header().Set("Connection", "close")
	return err
}

// upload is the body of an upload. It gives the client a time for each piece.
type upload struct {
	body      io.Reader
	deadlines *http.ResponseController
	// last is when the whole body must have arrived. left is what is left of the piece.
	last time.Time
	left int
	err  error
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	if u.left <= 0 {
		u.left = piece
		_ = u.deadlines.SetReadDeadline(earlier(time.Now().Add(stallAfter), u.last))
	}
	n, err := u.body.Read(b)
	u.left -= n
	if err != nil && err != io.EOF {
		u.err = err
	}
	return n, err
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// serve writes the bytes of a file, or a range of them.
func (a *Adapter) serve(c echo.Context) error {
	user, err := a.Dir.Downloader(c.Param("id"), c.QueryParam("grant"))
	if err != nil {
		return err
	}
	end, err := a.transfers.begin(user)
	if err != nil {
		return err
	}
	defer end()
	f, err := a.Dir.Open(c.Param("id"), c.QueryParam("grant"))
	if err != nil {
		return err
	}
	defer f.Close()
	h := c.Response().Header()
	h.Set("Content-Type", f.Type)
	h.Set("Content-Disposition", f.Disposition)
	h.Set("ETag", f.ETag)
	h.Set("Cache-Control", "private, no-store")
	// Nothing that a user uploads runs as a page of this server.
	//rule:no_file_outside_membership.files-run-nothing
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	to := &download{ResponseWriter: c.Response(), last: time.Now().Add(transferWithin)}
	http.ServeContent(to, c.Request(), "", time.Time{}, f)
	switch to.refused {
	case 0:
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		err = tidemark.BadParam(problem.RangeNotSatisfiable, "Range",
			"is malformed, or names no byte of the file; the first 100 are bytes=0-99")
	case http.StatusPreconditionFailed:
		err = tidemark.BadParam(problem.PreconditionFailed, "If-Match",
			"names other bytes; the ETag header has those of the file")
		h.Set("ETag", f.ETag)
	default:
		err = tidemark.Errorf(tidemark.Internal, "http.ServeContent answers %d", to.refused)
	}
	h.Del("Content-Disposition")
	return err
}

// download is the answer of a download. It gives the client a time for each piece. It withholds the
// answers of http.ServeContent that are no file, since they are plain text.
type download struct {
	http.ResponseWriter
	last time.Time
	// refused is the status of such an answer, or 0.
	refused int
}

// WriteHeader implements http.ResponseWriter.
func (d *download) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		d.refused = status
		return
	}
	d.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer. http.ServeContent writes 32 KiB at a time.
func (d *download) Write(b []byte) (int, error) {
	if d.refused > 0 {
		return len(b), nil
	}
	_ = http.NewResponseController(d.ResponseWriter).SetWriteDeadline(
		earlier(time.Now().Add(stallAfter), d.last))
	return d.ResponseWriter.Write(b)
}
