package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
)

// value is one JSON value of a text that has passed check, without white space around it.
type value []byte

// The reasons why a JSON string is not a valid text. They complete a sentence that begins with the
// field.
var (
	errSurrogate = errors.New(
		`holds half of a surrogate pair (\ud800 to \udfff), which is no character`)
	errNUL = errors.New("holds the character U+0000, which is not allowed")
)

// text decodes a string.
func (v value) text(field string, to *string) error {
	if v[0] != '"' {
		return tidemark.BadParam(tidemark.Invalid, field, "must be a string")
	}
	s, err := unquote(v)
	if err != nil {
		return tidemark.BadParam(tidemark.Invalid, field, "%s", err)
	}
	*to = s
	return nil
}

// moment is the form of a time of RFC 3339. time.Parse alone also accepts a comma before the
// fraction, an hour of one digit, and offsets of a day and more.
var moment = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?` +
	`(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// time decodes a time of RFC 3339. It never sets the zero time, which stands for an absent field:
// the first millisecond of the year 1 becomes the next one.
func (v value) time(field string, to *time.Time) error {
	var s string
	if err := v.text(field, &s); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !moment.MatchString(s) {
		return tidemark.BadParam(tidemark.Invalid, field,
			"must be a time of RFC 3339, such as 2026-01-31T18:00:00Z or "+
				"2026-01-31T20:00:00.5+02:00")
	}
	t = t.UTC()
	// An offset leads out of these years, and RFC 3339 cannot write the others.
	if t.Year() < 1 || t.Year() > 9999 {
		return tidemark.BadParam(tidemark.Invalid, field, "must be in the years 1 to 9999 of UTC")
	}
	if least := (time.Time{}).Add(time.Millisecond); t.Before(least) {
		t = least
	}
	*to = t
	return nil
}

// id decodes a string that must be a valid id. It sets the string even if the id is not valid.
func id[T ~string](v value, field string, to *T) error {
	var s string
	if err := v.text(field, &s); err != nil {
		return err
	}
	*to = T(s)
	return tidemark.CheckID(field, s)
}

// ids decodes an array of ids. An error names the element.
func ids[T ~string](v value, field string, to *[]T) error {
	list := []T{}
	err := eachElement(v, field, func(i int, v value) error {
		var one T
		if id(v, field, &one) != nil {
			return id(v, element(field, i), &one)
		}
		list = append(list, one)
		return nil
	})
	*to = list
	return err
}

// boolean decodes true or false.
func (v value) boolean(field string, to *bool) error {
	switch string(v) {
	case "true":
		*to = true
	case "false":
		*to = false
	default:
		return tidemark.BadParam(tidemark.Invalid, field, "must be true or false")
	}
	return nil
}

// days decodes tidemark.Policy.KeepDays.
func (v value) days(to *int) error {
	n, err := strconv.Atoi(string(v))
	if err != nil || !v.integer() {
		n = -1
	}
	*to = n
	return tidemark.CheckKeepDays(n)
}

// receipts decodes a policy of receipts.
func (v value) receipts(field string, to *tidemark.ReceiptsPolicy) error {
	err := choice(v, field, to,
		optional, tidemark.ReceiptsRequired, tidemark.ReceiptsNever)
	if *to == optional {
		*to = tidemark.ReceiptsOptional
	}
	return err
}

// integer reports whether v is a number without fraction and exponent.
func (v value) integer() bool {
	for i, c := range v {
		//rule:bounded_input.integers-only
		if (c < '0' || c > '9') && (c != '-' || i > 0) {
			return false
		}
	}
	return true
}

// sequence decodes a sequence, which must be at least least (0 or 1). It returns Invalid if the
// value is not an integer, and InvalidSequence if it is out of range (docs/limits.md, "Sizes").
func (v value) sequence(field string, least tidemark.Sequence, to *tidemark.Sequence) error {
	if !v.integer() {
		return tidemark.BadParam(tidemark.Invalid,
			field, "must be an integer, written without quotes, fraction and exponent")
	}
	return sequence(string(v), field, least, to)
}

func sequence(digits, field string, least tidemark.Sequence, to *tidemark.Sequence) error {
	if digits == "-0" {
		digits = "0"
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || tidemark.Sequence(n) < least || tidemark.Sequence(n) > tidemark.MaxSequence {
		return tidemark.BadParam(tidemark.InvalidSequence, field, "must be from %d to %d",
			least, tidemark.MaxSequence)
	}
	*to = tidemark.Sequence(n)
	return nil
}

// limit decodes the size of a page.
func (v value) limit(field string, to *int) error {
	if !v.integer() {
		return tidemark.BadParam(tidemark.Invalid, field, "must be an integer of at least 1")
	}
	n, err := ParseLimit(string(v))
	*to = n
	return err
}

// unquote returns the text of a JSON string. It returns an error for half of a surrogate pair and
// for U+0000. encoding/json would silently replace such a half by U+FFFD, and the server would
// store a text that the client did not send.
func unquote(v []byte) (string, error) {
	quoted := string(v[1 : len(v)-1])
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted, nil
	}
	b := make([]byte, 0, len(quoted))
	for i := 0; i < len(quoted); {
		if quoted[i] != '\\' {
			b = append(b, quoted[i])
			i++
			continue
		}
		switch c := quoted[i+1]; c {
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, size, err := escaped(quoted[i:])
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
			i += size
			continue
		default: // the quote, the slash and the backslash
			b = append(b, c)
		}
		i += 2
	}
	return string(b), nil
}

// escaped returns the character of the escape \uXXXX, or of a pair of escapes, at the beginning of
// s, and the length of the escape.
func escaped(s string) (r rune, size int, err error) {
	r = hexRune(s[2:6])
	if r == 0 {
		return 0, 0, errNUL
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, nil
	}
	if len(s) < 12 || s[6] != '\\' || s[7] != 'u' {
		return 0, 0, errSurrogate
	}
	//rule:bounded_input.whole-surrogate-pairs
	if r = utf16.DecodeRune(r, hexRune(s[8:12])); r == utf8.RuneError {
		return 0, 0, errSurrogate
	}
	return r, 12, nil
}

func hexRune(digits string) rune {
	n, err := strconv.ParseUint(digits, 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}

// kind decodes the kind of a message.
func (v value) kind(field string, to *tidemark.Kind) error {
	var kind string
	if err := v.text(field, &kind); err != nil {
		return err
	}
	switch *to = tidemark.Kind(kind); *to {
	case tidemark.KindMessage, tidemark.KindSystem, tidemark.KindEdit, tidemark.KindRedact,
		tidemark.KindReact, tidemark.KindPin, tidemark.KindControl:
		return nil
	}
	return tidemark.BadParam(tidemark.Invalid, field, "is %.20q; send message, edit, redact, "+
		"react, pin or control, or system as a backend", kind)
}

// mentions decodes an object of all and user_ids.
func (v value) mentions(field string, to *tidemark.Mentions) error {
	all, users := false, []tidemark.UserID(nil)
	err := eachField(v, field, func(key string, v value) error {
		switch key {
		case "all":
			return v.boolean(field+".all", &all)
		case "user_ids":
			return ids(v, field+".user_ids", &users)
		}
		return nil
	})
	if err != nil {
		return err
	}
	//rule:bounded_input.limit-mentions
	if len(users) > tidemark.MaxMentions {
		return tidemark.BadParam(tidemark.Invalid, field+".user_ids",
			"names %d users, at most %d are allowed", len(users), tidemark.MaxMentions)
	}
	*to = tidemark.NewMentions(all, users)
	return nil
}

// object copies a JSON object as it is written.
func (v value) object(field string, to *json.RawMessage) error {
	if v[0] != '{' {
		return tidemark.BadParam(tidemark.Invalid, field, "must be a JSON object")
	}
	return v.copy(field, to)
}

// attachments copies an array of objects as it is written. An empty one is none. The keys that have
// a meaning, or get one in a later version, have a type. The core decides about s3_ref.
func (v value) attachments(field string, to *json.RawMessage) error {
	*to = nil
	n := 0
	err := eachElement(v, field, func(i int, v value) error {
		//rule:bounded_input.bound-number-of-attachments
		if n = i + 1; n > tidemark.MaxAttachments {
			return tidemark.BadParam(tidemark.Invalid, field, "has more than %d objects",
				tidemark.MaxAttachments)
		}
		path := element(field, i)
		files := 0
		err := eachField(v, path, func(key string, v value) error {
			var text string
			switch key {
			case "s3_ref":
				// Readers of JSON differ in which of two they take.
				//rule:no_file_outside_membership.one-file-in-an-attachment
				if files++; files > 1 {
					return tidemark.BadParam(tidemark.Invalid, key, "is there more than once")
				}
				return id(v, key, &text)
			case "name", "content_type":
				return v.text(key, &text)
			case "size":
				if _, err := strconv.ParseUint(string(v), 10, 53); err != nil {
					return tidemark.BadParam(tidemark.Invalid, key,
						"must be a number of bytes, from 0 to 2^53-1")
				}
			}
			return nil
		})
		if err != nil && tidemark.ParamOf(err) != path {
			err = within(path, err)
		}
		return err
	})
	if err != nil || n == 0 {
		return err
	}
	return v.copy(field, to)
}

// element names an element of a list, for errors.
func element(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// copy copies a JSON value as it is written, after it has checked that common libraries can read
// it: every string, every number, and how deep it nests.
func (v value) copy(field string, to *json.RawMessage) error {
	depth := 0
	for i := 0; i < len(v); {
		end := i + 1
		switch c := v[i]; {
		case c == '"':
			end = skipString(v, i)
			//rule:bounded_input.check-strings-in-json
			if _, err := unquote(v[i:end]); err != nil {
				return tidemark.BadParam(tidemark.Invalid, field, "%s", err)
			}
		case c == '{' || c == '[':
			//rule:bounded_input.bound-depth-of-json
			if depth++; depth > tidemark.MaxDepth {
				return tidemark.BadParam(tidemark.Invalid, field,
					"nests more than %d objects and arrays", tidemark.MaxDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			end = skipValue(v, i)
			//rule:bounded_input.check-numbers-in-json
			if _, err := strconv.ParseFloat(string(v[i:end]), 64); err != nil {
				return tidemark.BadParam(tidemark.Invalid, field,
					"holds the number %.20s, which is too large for a double", v[i:end])
			}
		}
		i = end
	}
	// The copy lets the garbage collector free the whole body while a small part of it lives.
	*to = append(json.RawMessage(nil), v...)
	return nil
}

// within returns an error about a field of the object at path, which is an element of a list.
func within(path string, err error) error {
	e := &tidemark.Error{
		Code:   tidemark.CodeOf(err),
		Detail: "in " + path + ": " + tidemark.DetailOf(err),
		Param:  path,
	}
	if param := tidemark.ParamOf(err); param != "" {
		e.Param += "." + param
	}
	return e
}
