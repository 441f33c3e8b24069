// Package jsonl reads the chats of any system from JSON Lines, in a format of this project. It is
// described in docs/import.md.
package jsonl

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/internal/input"
)

const (
	// version is that of the format.
	version = 1
	// maxLine bounds a line, in bytes. The largest message of Tidemark needs far less.
	maxLine = 16 << 20
)

// Standard is the path that stands for the standard input.
const Standard = "-"

// Records returns the records of files, one after the other. A file whose name ends in .gz is
// decompressed. Each file begins with its version, and ends with the end of a chat.
//
// Invalid: a line is not as the format says. The error names the file and the line.
func Records(
	ctx context.Context, paths []string, standard io.Reader,
) iter.Seq2[importer.Record, error] {
	return func(yield func(importer.Record, error) bool) {
		for _, path := range paths {
			if !file(ctx, path, standard, yield) {
				return
			}
		}
	}
}

// file yields the records of a file. It reports whether more may follow.
func file(
	ctx context.Context, path string, standard io.Reader,
	yield func(importer.Record, error) bool,
) bool {
	opened, err := open(path, standard)
	if err != nil {
		yield(nil, err)
		return false
	}
	defer opened.Close()
	p := parser{name: path}
	lines := bufio.NewScanner(opened)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		p.line++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		record, err := p.parse(lines.Bytes())
		if err == nil && record == nil {
			continue // the version
		}
		if !yield(record, err) || err != nil || ctx.Err() != nil {
			return false
		}
	}
	err = lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		p.line++
		err = p.wrong(tidemark.Errorf(tidemark.Invalid, "it is longer than %d bytes", maxLine))
	case err != nil:
		err = input.Unreadable(path, err)
	default:
		err = p.end()
	}
	if err != nil {
		yield(nil, err)
	}
	return err == nil
}

// open opens a file, and decompresses it if its name says so.
func open(path string, standard io.Reader) (io.ReadCloser, error) {
	if path == Standard {
		return io.NopCloser(standard), nil
	}
	f, err := input.Open(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(path, ".gz") {
		return f, nil
	}
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, tidemark.Wrap(tidemark.Invalid, err, path+" is no file of gzip")
	}
	return &compressed{unpacked, f}, nil
}

// compressed is a file that is decompressed.
type compressed struct {
	*gzip.Reader
	file *os.File
}

// Close closes the file.
func (c *compressed) Close() error { return errors.Join(c.Reader.Close(), c.file.Close()) }

// wrong returns an error with the file and the line.
func (p *parser) wrong(err error) error {
	return &tidemark.Error{
		Code: tidemark.CodeOf(err), Param: tidemark.ParamOf(err),
		Detail: fmt.Sprintf("line %d of %s: %s", p.line, p.name, tidemark.DetailOf(err)),
	}
}
