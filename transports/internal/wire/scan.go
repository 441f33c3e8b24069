package wire

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
)

// MaxBody is the greatest size in bytes of a request's body and of a client's frame (docs/limits.md, "Sizes").
const MaxBody = 128 << 10

// check returns an error unless raw is one JSON value in UTF-8. Whatever it accepts can be walked by eachField and
// eachElement without further checks of the syntax.
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

// eachField calls visit for every member of a JSON object that is not null, in order, and stops at the first error. raw has passed check;
// name is what the object is called if it is none.
func eachField(raw []byte, name string, visit func(key string, v value) error) error {
	i := space(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return tidemark.Errorf(tidemark.Invalid, "%s must be a JSON object", name)
	}
	for i = space(raw, i+1); raw[i] != '}'; {
		end := skip(raw, i)
		key, _ := unquote(raw[i:end]) // a name that is no text is that of an unknown field
		i = space(raw, end)           // at the colon
		i = space(raw, i+1)           // at the value
		end = skip(raw, i)            // behind it
		v := value(raw[i:end])
		if string(v) != "null" {
			if err := visit(key, v); err != nil {
				return err
			}
		}
		if i = space(raw, end); raw[i] == ',' {
			i = space(raw, i+1)
		}
	}
	return nil
}

// eachElement calls visit for every element of a JSON array and stops at the first error.
func eachElement(v value, name string, visit func(i int, v value) error) error {
	if v[0] != '[' {
		//rule:bounded_input.name-in-error
		return tidemark.Errorf(tidemark.Invalid, "%s must be an array", name)
	}
	n := 0
	for i := space(v, 1); v[i] != ']'; n++ {
		end := skip(v, i)
		if err := visit(n, v[i:end]); err != nil {
			return err
		}
		if i = space(v, end); v[i] == ',' {
			i = space(v, i+1)
		}
	}
	return nil
}

// space returns the index of the first byte at or behind i that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns the index behind the JSON value that begins at i.
func skip(b []byte, i int) int {
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

// skipString returns the index behind the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}
