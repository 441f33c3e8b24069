// Package input opens the files of exports, and decodes the JSON in them. Its errors are for people
// who know the file, and not Go.
package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Open opens a file. NotFound: it cannot be opened, or is a directory.
func Open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, tidemark.Wrap(tidemark.NotFound, err, path+" cannot be opened: "+cause(err))
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, tidemark.Errorf(tidemark.NotFound,
			"%s cannot be opened: it is a directory; name the files in it", path)
	}
	return f, nil
}

// Unreadable returns the Invalid of a file that cannot be read on.
func Unreadable(path string, err error) error {
	return tidemark.Wrap(tidemark.Invalid, err, path+" cannot be read: "+cause(err))
}

// cause returns why a call of a file has failed, without its name.
func cause(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return err.Error()
}

// Decode decodes a JSON value. Invalid: it is no JSON, or a field has a value of another type.
func Decode(raw []byte, to any) error { return inWords(json.Unmarshal(raw, to)) }

// DecodeStrictly decodes the JSON value of a text. Invalid: as of Decode; an object has a field
// that to lacks; something follows the value.
func DecodeStrictly(raw []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return inWords(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return tidemark.Errorf(tidemark.Invalid, "something follows the object")
	}
	return nil
}

// inWords returns the Invalid for an error of package json.
func inWords(err error) error {
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &tidemark.Error{
			Code: tidemark.Invalid, Param: wrong.Field, Err: err,
			Detail: fmt.Sprintf("%s has %s where %s must be", field(wrong.Field),
				given(wrong.Value), wanted(wrong.Type)),
		}
	}
	detail := "it is no JSON: "
	switch wrong, ok := errors.AsType[*json.SyntaxError](err); {
	case ok:
		detail += fmt.Sprintf("%v, at its byte %d", wrong, wrong.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		detail += "it ends too early"
	default:
		detail = "it cannot be decoded"
		if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
			detail = "the field " + name + " is unknown"
		}
	}
	return tidemark.Wrap(tidemark.Invalid, err, detail)
}

// field returns the name of a field, or what stands for the value as a whole.
func field(name string) string {
	if name == "" {
		return "it"
	}
	return name
}

// given says what a value is that package json describes.
func given(value string) string {
	switch value {
	case "array", "object":
		return "an " + value
	case "bool":
		return "a boolean"
	case "number", "string":
		return "a " + value
	}
	return "the " + value
}

// wanted says what a type of Go stands for.
func wanted(of reflect.Type) string {
	if of == reflect.TypeFor[Time]() {
		return `a time such as "2024-01-02T03:04:05Z" (RFC 3339)`
	}
	switch of.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint64:
		return "a whole number from 0 on"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

// Time is a time of RFC 3339 in JSON. An error in it names the field.
type Time struct{ time.Time }

// longest bounds what an error has of a value.
const longest = 40

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(raw []byte) error {
	if t.Time.UnmarshalJSON(raw) == nil {
		return nil
	}
	value := "value " + string(raw)
	if len(raw) > longest {
		value = "value " + string(bytes.ToValidUTF8(raw[:longest], nil)) + "…"
	}
	return &json.UnmarshalTypeError{Value: value, Type: reflect.TypeFor[Time]()}
}
