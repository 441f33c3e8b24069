package client

import (
	"bytes"
	"strconv"
)

// Object and Array walk JSON of the server without decoding it.
// The load generator reads four or five fields of an event and skips the others.
// Values are raw: a string includes its quotes. Malformed input ends the walk early.
// The checks then miss an event, so the run fails.

// Object walks the members of a JSON object.
type Object struct{ rest []byte }

// Array walks the elements of a JSON array.
type Array struct{ rest []byte }

// NewObject returns the members of raw, or none if raw is not an object.
func NewObject(raw []byte) Object { return Object{rest: enter(raw, '{')} }

// NewArray returns the elements of raw, or none if raw is not an array.
func NewArray(raw []byte) Array { return Array{rest: enter(raw, '[')} }

// Next returns the next member. ok is false at the end.
func (o *Object) Next() (key, value []byte, ok bool) {
	b := separator(o.rest)
	o.rest = nil // the end stays the end, even if the buffer is used again
	n := valueLength(b)
	if n < 2 || b[0] != '"' {
		return nil, nil, false
	}
	key = b[1 : n-1]
	b = space(b[n:])
	if len(b) == 0 || b[0] != ':' {
		return nil, nil, false
	}
	b = space(b[1:])
	n = valueLength(b)
	if n == 0 {
		return nil, nil, false
	}
	o.rest = b[n:]
	return key, b[:n], true
}

// Next returns the next element. ok is false at the end.
func (a *Array) Next() (value []byte, ok bool) {
	b := separator(a.rest)
	a.rest = nil // as in Object.Next
	n := valueLength(b)
	if n == 0 {
		return nil, false
	}
	a.rest = b[n:]
	return b[:n], true
}

// Text returns the text between the quotes of a raw string, or nil if raw is not a string.
// It leaves escapes as they are: ids and the load's own contents have none.
func Text(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// Number returns the value of a raw non-negative integer, or 0 if raw is not one.
func Number(raw []byte) uint64 {
	var n uint64
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

func enter(raw []byte, bracket byte) []byte {
	raw = space(raw)
	if len(raw) == 0 || raw[0] != bracket {
		return nil
	}
	return raw[1:]
}

func separator(b []byte) []byte {
	b = space(b)
	if len(b) > 0 && b[0] == ',' {
		b = space(b[1:])
	}
	return b
}

func space(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\n' || b[0] == '\r' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// valueLength returns the length of the JSON value at the start of b, or 0 if there is none.
func valueLength(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"':
		return stringLength(b)
	case '{', '[':
		return bracketLength(b)
	case ']', '}', ',', ':':
		return 0
	}
	for i, c := range b {
		if c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t' {
			return i
		}
	}
	return len(b)
}

func bracketLength(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := stringLength(b[i:])
			if n == 0 {
				return 0
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

func stringLength(b []byte) int {
	i := 1
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0
		}
		end := i + n
		backslashes := 0
		for b[end-1-backslashes] == '\\' {
			backslashes++
		}
		i = end + 1
		if backslashes%2 == 0 {
			return i
		}
	}
}

// AppendQuoted appends s as a JSON string.
func AppendQuoted(b []byte, s string) []byte {
	if plain(s) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	// Ids and contents of the load itself never get here, because they are plain.
	return strconv.AppendQuoteToASCII(b, s)
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == '"' || s[i] == '\\' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
