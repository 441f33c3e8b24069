package client

import (
	"bytes"
	"strconv"
)

// The scanner walks JSON of the server without decoding it: the load generator looks at four or five fields of an event and
// skips the others. Values are raw: a string includes its quotes. Malformed input ends the walk early; the checks then miss
// what should have been there, so that it cannot pass unnoticed.

// Object walks the members of a JSON object.
type Object struct{ rest []byte }

// Array walks the elements of a JSON array.
type Array struct{ rest []byte }

// NewObject walks raw; it is empty if raw is no object.
func NewObject(raw []byte) Object { return Object{rest: enter(raw, '{')} }

// NewArray walks raw; it is empty if raw is no array.
func NewArray(raw []byte) Array { return Array{rest: enter(raw, '[')} }

// Next returns the next member; ok is false at the end.
func (o *Object) Next() (key, value []byte, ok bool) {
	b := separator(o.rest)
	o.rest = nil // the end is final, whatever becomes of the buffer
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

// Next returns the next element; ok is false at the end.
func (a *Array) Next() (value []byte, ok bool) {
	b := separator(a.rest)
	a.rest = nil // as in Object
	n := valueLength(b)
	if n == 0 {
		return nil, false
	}
	a.rest = b[n:]
	return b[:n], true
}

// Text returns what is between the quotes of a raw string. Escapes are left: ids and the load's own contents have none.
func Text(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// Number returns a raw non-negative integer, 0 if it is none.
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

// valueLength returns the length of the JSON value that b starts with, 0 if there is none.
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
	// Only ids and contents of the load itself come here, and they are plain; anything else is written so that JSON reads it.
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
