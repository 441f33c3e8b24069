package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/attachments/s3"
	"github.com/tidemark-im/tidemark/transports"
	adapter "github.com/tidemark-im/tidemark/transports/attachments"
)

// defaultFiles is the directory of `dir:` without a path.
const defaultFiles = "tidemark-files"

// attachmentFlags configure files (docs/attachments.md).
type attachmentFlags struct {
	Attachments string `env:"TIDEMARK_ATTACHMENTS" placeholder:"URL" help:"Where files that messages name are kept: dir:PATH (dir: is ./tidemark-files), s3://REGION/BUCKET/PREFIX, or off, which is the default."`
}

// filesAt says where files are kept. The zero value is nowhere.
type filesAt struct {
	dir    string
	bucket *s3.Location
}

// parse returns where files are kept, or a usageError. Its errors show no part of the URL.
func (f *attachmentFlags) parse() (filesAt, error) {
	scheme, rest, _ := strings.Cut(f.Attachments, ":")
	switch {
	case f.Attachments == "" || f.Attachments == "off":
		return filesAt{}, nil
	case f.Attachments == "dir:":
		return filesAt{dir: defaultFiles}, nil
	case scheme == "dir" && rest != "":
		return filesAt{dir: rest}, nil
	case scheme == "s3":
		at, err := s3.Parse(f.Attachments)
		if err != nil {
			return filesAt{}, usagef("--attachments: %w", err)
		}
		return filesAt{bucket: &at}, nil
	}
	return filesAt{}, usagef("--attachments is neither off, dir:PATH (dir: is ./%s), nor "+
		"s3://REGION/BUCKET/PREFIX", defaultFiles)
}

// files are what keeps the files of messages. They are zero if nothing does.
type files struct {
	kept *attachments.Attachments
	dir  *dir.Dir
	// origin is that of the URLs of files in a bucket, or "".
	origin string
}

// open opens the place where files are kept. What is known of them is in the store.
func (f filesAt) open(
	ctx context.Context, store attachments.Store, log *slog.Logger,
) (files, error) {
	var opened files
	var bytes attachments.Bytes
	var err error
	switch {
	case f.bucket != nil:
		var bucket *s3.S3
		if bucket, err = s3.New(ctx, *f.bucket); err == nil {
			bytes, opened.origin = bucket, bucket.Origin()
		}
	case f.dir != "":
		opened.dir, err = dir.New(f.dir, transports.BasePath+adapter.Files)
		bytes = opened.dir
	default:
		return files{}, nil
	}
	if err != nil {
		return files{}, fmt.Errorf("open the place of files (--attachments): %w", err)
	}
	opened.kept = attachments.New(attachments.Config{Store: store, Bytes: bytes, Log: log})
	return opened, nil
}

// run removes files that no message names, until ctx ends.
func (f files) run(ctx context.Context) {
	if f.kept != nil {
		f.kept.Run(ctx)
	}
}

// counters returns what was done with files.
func (f files) counters() map[string]int64 {
	if f.kept == nil {
		return new(attachments.Attachments).Counters()
	}
	return f.kept.Counters()
}
