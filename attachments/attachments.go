package attachments

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// The limits of files. docs/limits.md says what happens beyond them.
const (
	// MaxSize is the greatest size of a file in bytes.
	MaxSize = 100 << 20
	// MaxUserDay is how many bytes a user may announce in a day of UTC.
	MaxUserDay = 1 << 30
	// leastCharge is what a small file counts as, in bytes, so that their number is bounded too.
	leastCharge = 64 << 10
	// MaxName is the greatest length of a file's name in bytes.
	MaxName = 255
	// MaxType is the greatest length of a file's media type in bytes.
	MaxType = 128
	// UploadWithin is how long the URL of an upload is valid, and DownloadWithin that of a
	// download.
	UploadWithin   = 15 * time.Minute
	DownloadWithin = 5 * time.Minute
	// OrphanAfter is the age from which a file that no message names is removed.
	OrphanAfter = 24 * time.Hour
)

// Bytes keeps the bytes of files, and signs URLs for them. It is safe for concurrent use.
type Bytes interface {
	// SignUpload returns the request by which a user uploads a file until a time. Its bytes are
	// stored only if they have the size and the hash of the file, and only once.
	SignUpload(
		ctx context.Context, user tidemark.UserID, f *File, until time.Time,
	) (Request, error)
	// SignDownload returns the URL by which a user gets the bytes until a time. disposition is the
	// Content-Disposition of the answer.
	SignDownload(
		ctx context.Context, user tidemark.UserID, f *File, disposition string, until time.Time,
	) (string, error)
	// Stored reports whether the bytes of a file are there, all of them.
	Stored(ctx context.Context, f *File) (bool, error)
	// Remove removes the bytes of a file. There may be none.
	Remove(ctx context.Context, id string) error
}

// Store keeps what is known of files, and knows which messages were stored.
type Store interface {
	storage.Documents
	// Sent is that of storage.Messages.
	Sent(ctx context.Context, send storage.SendKey) (storage.Appended, bool, error)
}

// Request is an HTTP request that a client makes to upload a file.
type Request struct {
	Method string
	// URL is absolute, or a path of this server.
	URL string
	// Header has the headers that the client must send, besides Content-Length.
	Header map[string]string
}

// Config configures Attachments. Store and Bytes are required.
type Config struct {
	Store Store
	Bytes Bytes
	// Log is slog.Default() by default.
	Log *slog.Logger
	// Now returns the time, time.Now by default.
	Now func() time.Time
}

// Attachments keeps files. It is safe for concurrent use.
type Attachments struct {
	store Store
	bytes Bytes
	log   *slog.Logger
	now   func() time.Time

	announced, pinned, swept, sweepErrors atomic.Int64
}

// New returns Attachments. It starts no goroutine: the caller runs Run, or orphans stay.
func New(cfg Config) *Attachments {
	a := &Attachments{store: cfg.Store, bytes: cfg.Bytes, log: cfg.Log, now: cfg.Now}
	if a.log == nil {
		a.log = slog.Default()
	}
	if a.now == nil {
		a.now = time.Now
	}
	return a
}

// Counters returns what Attachments has done on this node. It is a transports.CounterFunc.
func (a *Attachments) Counters() map[string]int64 {
	return map[string]int64{
		"attachments_announced_total":    a.announced.Load(),
		"attachments_pinned_total":       a.pinned.Load(),
		"attachments_swept_total":        a.swept.Load(),
		"attachments_sweep_errors_total": a.sweepErrors.Load(),
	}
}
