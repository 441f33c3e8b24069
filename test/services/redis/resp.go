package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// ask runs one command over a connection of its own.
func ask(ctx context.Context, address, password string, args []string) (reply any, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, bounded := ctx.Deadline(); bounded {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	r := bufio.NewReader(conn)
	commands := [][]string{args}
	if password != "" {
		commands = [][]string{{"AUTH", password}, args}
	}
	for _, command := range commands {
		if _, err := io.WriteString(conn, encode(command)); err != nil {
			return nil, err
		}
		if reply, err = read(r); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// encode returns a command as Redis reads it: an array of strings, with their lengths.
func encode(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// read reads a reply in version 2 of the protocol. An error of Redis is returned as an error.
func read(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("redis says %q", line)
	}
	kind, text := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, errors.New(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("redis says %q", line)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil //nolint:nilnil // Redis' nil is a reply
	case kind == '$':
		value := make([]byte, n+2)
		_, err := io.ReadFull(r, value)
		return string(value[:n]), err
	case kind == '*':
		replies := make([]any, n)
		for i := range replies {
			if replies[i], err = read(r); err != nil {
				return nil, err
			}
		}
		return replies, nil
	}
	return nil, fmt.Errorf("redis says %q", line)
}
