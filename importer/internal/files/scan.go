package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// maxValue bounds a value that is read as a whole, in bytes.
const maxValue = 64 << 20

// scanner reads the values of a JSON text. It finds out where they begin and end; it does not check
// what is between.
type scanner struct {
	*bufio.Reader
	at int64
	// raw is the value that is being read.
	raw []byte
}

// peek returns the next byte that is no blank, and leaves it. io.EOF: there is none.
func (s *scanner) peek() (byte, error) {
	for {
		c, err := s.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c, s.UnreadByte()
		}
		s.at++
	}
}

// skip reads the next byte that is no blank, which must be one of some.
func (s *scanner) skip(some string) (byte, error) {
	c, err := s.peek()
	if err == nil && !contains(some, c) {
		err = fmt.Errorf("%q is there, and one of %q must be", c, some)
	}
	if err != nil {
		return 0, unexpected(err)
	}
	_, err = s.Discard(1)
	s.at++
	return c, err
}

func contains(some string, c byte) bool {
	for i := range len(some) {
		if some[i] == c {
			return true
		}
	}
	return false
}

// unexpected returns the error of a text that ends too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// value reads a value, and returns where it begins. The next call overwrites it.
func (s *scanner) value() (raw []byte, from int64, err error) {
	c, err := s.peek()
	if err != nil {
		return nil, 0, unexpected(err)
	}
	s.raw, from = s.raw[:0], s.at
	switch c {
	case '{', '[':
		err = s.nested()
	case '"':
		err = s.text()
	default:
		err = s.plain()
	}
	return s.raw, from, err
}

// byte reads a byte of a value.
func (s *scanner) byte() (byte, error) {
	c, err := s.ReadByte()
	if err != nil {
		return 0, unexpected(err)
	}
	s.at++
	if s.raw = append(s.raw, c); len(s.raw) > maxValue {
		return 0, fmt.Errorf("a value has more than %d bytes", maxValue)
	}
	return c, nil
}

// nested reads an object or an array.
func (s *scanner) nested() error {
	for depth := 0; ; {
		c, err := s.byte()
		if err != nil {
			return err
		}
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			if err := s.restOfText(); err != nil {
				return err
			}
		}
		if depth == 0 {
			return nil
		}
	}
}

// text reads a text.
func (s *scanner) text() error {
	if _, err := s.byte(); err != nil {
		return err
	}
	return s.restOfText()
}

// restOfText reads a text behind its first quote.
func (s *scanner) restOfText() error {
	for {
		c, err := s.byte()
		if err == nil && c == '\\' {
			c = 0
			_, err = s.byte()
		}
		if err != nil || c == '"' {
			return err
		}
	}
}

// plain reads a number, true, false, or null.
func (s *scanner) plain() error {
	for {
		c, err := s.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case contains(",]} \t\r\n", c):
			return s.UnreadByte()
		}
		s.at++
		if s.raw = append(s.raw, c); len(s.raw) > maxValue {
			return fmt.Errorf("a value has more than %d bytes", maxValue)
		}
	}
}
