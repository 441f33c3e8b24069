// Package files reads exports of other systems: JSON files whose messages are in no particular
// order. It remembers where each message is, and not what it says. So a file may be larger than the
// memory.
package files

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer/internal/input"
)

// Item is a value in a file.
type Item struct {
	// Group numbers the objects of all files that have values.
	Group int
	// Key is the field that has the value, or an array with it.
	Key string
	Raw json.RawMessage
	at  span
}

// span is where a value is.
type span struct {
	file   int32
	length int32
	offset int64
}

// Layout says how the objects of a file are arranged.
type Layout struct {
	// Values says that an array at the top of a file has values, whose key is "". Otherwise it has
	// objects with values.
	Values bool
	// Within is a field with an array of objects that have values, as those at the top.
	Within string
}

// Walk reads files, one after the other. A file has JSON objects, one after the other or in an
// array. each gets the values of their fields. Of a field with an array it gets the elements, one
// by one. It must not keep Raw.
//
// Invalid: a file is no JSON, or has something else, or ctx has ended.
func Walk(ctx context.Context, paths []string, layout Layout, each func(Item) error) error {
	w := walker{layout: layout, each: func(item Item) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return each(item)
	}}
	for i, path := range paths {
		w.file = int32(i)
		if err := w.walk(path); err != nil {
			return err
		}
	}
	return nil
}

// walker reads a file.
type walker struct {
	scanner
	layout Layout
	file   int32
	group  int
	each   func(Item) error
}

func (w *walker) walk(path string) error {
	f, err := input.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w.scanner = scanner{Reader: bufio.NewReaderSize(f, 1<<20)}
	for {
		c, err := w.peek()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return input.Unreadable(path, err)
		case c == '[' && w.layout.Values:
			w.group++
			err = w.list(func() error { return w.item("") })
		case c == '[':
			err = w.list(w.object)
		default:
			err = w.object()
		}
		if err != nil {
			return w.wrong(path, err)
		}
	}
}

// wrong returns an error with its place, unless it has a code.
func (w *walker) wrong(path string, err error) error {
	detail := err.Error()
	if e, ok := errors.AsType[*tidemark.Error](err); ok {
		detail = e.Detail
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		detail = "the file ends within a value"
	}
	return &tidemark.Error{
		Code: tidemark.Invalid, Err: err,
		Detail: fmt.Sprintf("byte %d of %s: %s", w.at, path, detail),
	}
}

// list reads an array. element reads each element.
func (w *walker) list(element func() error) error {
	if _, err := w.skip("["); err != nil {
		return err
	}
	if c, err := w.peek(); err == nil && c == ']' {
		_, err = w.skip("]")
		return err
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if c, err := w.skip(",]"); err != nil || c == ']' {
			return err
		}
	}
}

// object reads an object.
func (w *walker) object() error {
	if _, err := w.skip("{"); err != nil {
		return err
	}
	w.group++
	if c, err := w.peek(); err == nil && c == '}' {
		_, err = w.skip("}")
		return err
	}
	for {
		if err := w.field(); err != nil {
			return err
		}
		if c, err := w.skip(",}"); err != nil || c == '}' {
			return err
		}
	}
}

// field reads a field of an object.
func (w *walker) field() error {
	raw, _, err := w.value()
	if err != nil {
		return err
	}
	var key string
	if err := input.Decode(raw, &key); err != nil {
		return tidemark.Errorf(tidemark.Invalid, "the name of a field must be there: %s",
			tidemark.DetailOf(err))
	}
	if _, err := w.skip(":"); err != nil {
		return err
	}
	element := func() error { return w.item(key) }
	if key == w.layout.Within {
		element = w.object
	}
	if c, err := w.peek(); err == nil && c == '[' {
		return w.list(element)
	}
	return w.item(key)
}

// item passes a value on.
func (w *walker) item(key string) error {
	raw, from, err := w.value()
	if err != nil {
		return err
	}
	return w.each(Item{
		Group: w.group, Key: key, Raw: raw, at: span{w.file, int32(len(raw)), from},
	})
}
