package wire

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
)

// MaxBody is the greatest size, in bytes, of a request's body and of a client's frame
// (docs/limits.md, "Sizes").
const MaxBody = 400 << 10

// check returns an error unless raw is one JSON value in UTF-8. eachField and eachElement rely on
// it and check the syntax no further.
func check(raw []byte) error {
	if len(raw) > MaxBody {
		return tidemark.Errorf(tidemark.TooLarge,
			"the JSON is %d bytes long, at most %d are allowed", len(raw), MaxBody)
	}
	if !utf8.Valid(raw) {
		return tidemark.Errorf(tidemark.Invalid, "the JSON is not valid UTF-8 at byte %d",
			firstInvalid(raw))
	}
	if json.Valid(raw) {
		return nil
	}
	if len(raw) == 0 {
		return tidemark.Errorf(tidemark.Invalid, "a JSON object is expected, but there is nothing")
	}
	var value json.RawMessage
	return &tidemark.Error{
		Code:   tidemark.Invalid,
		Detail: "the JSON is malformed: " + json.Unmarshal(raw, &value).Error(),
	}
}

func firstInvalid(raw []byte) int {
	for i := 0; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(raw)
}

// eachField calls visit for every member of a JSON object that is not null, in order. It stops at
// the first error. raw must have passed check. name stands for the object in errors.
func eachField(raw []byte, name string, visit func(key string, v value) error) error {
	i := skipSpace(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		err := tidemark.BadParam(tidemark.Invalid, name, "must be a JSON object")
		if name == wholeBody || name == wholeFrame {
			err.Param = "" // no field is at fault
		}
		return err
	}
	for i = skipSpace(raw, i+1); raw[i] != '}'; {
		end := skipValue(raw, i)
		key, _ := unquote(raw[i:end]) // a malformed name is an unknown field
		i = skipSpace(raw, end)       // at the colon
		i = skipSpace(raw, i+1)       // at the value
		end = skipValue(raw, i)       // after the value
		v := value(raw[i:end])
		if string(v) != "null" {
			if err := visit(key, v); err != nil {
				return err
			}
		}
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return nil
}

// eachElement calls visit for every element of a JSON array, in order. It stops at the first error.
func eachElement(v value, name string, visit func(i int, v value) error) error {
	if v[0] != '[' {
		//rule:bounded_input.name-in-error
		return tidemark.BadParam(tidemark.Invalid, name, "must be an array")
	}
	n := 0
	for i := skipSpace(v, 1); v[i] != ']'; n++ {
		end := skipValue(v, i)
		if err := visit(n, v[i:end]); err != nil {
			return err
		}
		if i = skipSpace(v, end); v[i] == ',' {
			i = skipSpace(v, i+1)
		}
	}
	return nil
}

// skipSpace returns the index of the first byte from i on that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index after the JSON value that begins at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch b[i] {
			case '"':
				i = skipString(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}
