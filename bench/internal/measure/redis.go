package measure

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisTimeout bounds a call of RedisCommands.
const redisTimeout = 5 * time.Second

// RedisCommands returns the commands that a Redis without a password has run.
// redis_calls{…} is their number, redis_seconds{…} the time inside of them.
// A command that a script calls also counts by itself.
func RedisCommands(ctx context.Context, address string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the Redis at %s: %w", address, err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, "INFO commandstats\r\n"); err != nil {
		return nil, fmt.Errorf("the Redis at %s: %w", address, err)
	}
	info, err := readBulk(bufio.NewReader(conn))
	if err != nil {
		return nil, fmt.Errorf("the Redis at %s: %w", address, err)
	}
	return parseCommands(info), nil
}

// readBulk reads a bulk string, an answer of Redis of up to 1 MiB.
func readBulk(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "$")))
	if err != nil || size < 0 || size > 1<<20 {
		return "", fmt.Errorf("it answered %q", strings.TrimSpace(line))
	}
	text := make([]byte, size)
	_, err = io.ReadFull(r, text)
	return string(text), err
}

// parseCommands parses lines such as cmdstat_evalsha:calls=7,usec=30,usec_per_call=4.29.
func parseCommands(info string) map[string]float64 {
	found := make(map[string]float64)
	for line := range strings.Lines(info) {
		name, fields, ok := strings.Cut(strings.TrimSpace(line), ":")
		name, of := strings.CutPrefix(name, "cmdstat_")
		if !ok || !of {
			continue
		}
		for field := range strings.SplitSeq(fields, ",") {
			key, text, _ := strings.Cut(field, "=")
			value, err := strconv.ParseFloat(text, 64)
			switch {
			case err != nil:
			case key == "calls":
				found["redis_calls{"+name+"}"] = value
			case key == "usec":
				found["redis_seconds{"+name+"}"] = value / 1e6
			}
		}
	}
	return found
}
