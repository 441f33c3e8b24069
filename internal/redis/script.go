package redis

import (
	"context"
	"crypto/sha1" // Redis names scripts by it
	"encoding/hex"
	"errors"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Script is a Lua script. Redis runs it as one atomic step.
type Script struct{ source, name string }

// NewScript returns a script. Redis gets its source when it first runs.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source: source, name: hex.EncodeToString(sum[:])}
}

// Call is a script with keys and arguments. Without a Script it is a command with the words Args.
// Args are strings, byte slices and integers.
type Call struct {
	Script *Script
	Keys   []string
	Args   []any
}

// Reply is the result of a call. Value is a string, an int64, a slice of those, or nil.
type Reply struct {
	Value any
	Err   error
}

// Run makes the calls in one round trip, and returns a reply for each. Scripts that Redis does not
// know take a second round trip. Both together take at most the client's timeout. A call without an
// answer may still be executed.
func (c *Client) Run(ctx context.Context, calls []Call) []Reply {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	commands := make([]*goredis.Cmd, len(calls))
	for i := range calls {
		commands[i] = calls[i].command(ctx, true)
	}
	c.trip(ctx, commands)
	var unknown []int
	for i, command := range commands {
		if err := command.Err(); err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	//rule:bounded_input.load-missing-scripts
	if len(unknown) > 0 {
		again := make([]*goredis.Cmd, len(unknown))
		for i, k := range unknown {
			again[i] = calls[k].command(ctx, false)
			commands[k] = again[i]
		}
		c.trip(ctx, again)
	}
	replies := make([]Reply, len(calls))
	for i, command := range commands {
		value, err := command.Result()
		switch {
		case errors.Is(err, goredis.Nil):
		case err != nil:
			replies[i].Err = c.unavailable(err)
		default:
			replies[i].Value = value
		}
	}
	return replies
}

// AllFailed returns an error if all replies have one, else nil.
func AllFailed(replies []Reply) error {
	for _, reply := range replies {
		if reply.Err == nil {
			return nil
		}
	}
	return replies[0].Err
}

// Only returns the only reply.
func Only(replies []Reply) (any, error) { return replies[0].Value, replies[0].Err }

// command returns the command of a call. known says that Redis is expected to know the script.
func (c *Call) command(ctx context.Context, known bool) *goredis.Cmd {
	if c.Script == nil {
		return goredis.NewCmd(ctx, c.Args...)
	}
	words := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	if known {
		words = append(words, "EVALSHA", c.Script.name, len(c.Keys))
	} else {
		words = append(words, "EVAL", c.Script.source, len(c.Keys))
	}
	for _, key := range c.Keys {
		words = append(words, key)
	}
	return goredis.NewCmd(ctx, append(words, c.Args...)...)
}

// trip makes one round trip. The commands hold the errors.
func (c *Client) trip(ctx context.Context, commands []*goredis.Cmd) {
	c.trips.Add(1)
	var err error
	switch {
	case len(commands) == 1 && c.cluster != nil:
		err = c.cluster.Process(ctx, commands[0])
	case len(commands) == 1:
		err = c.one.Process(ctx, commands[0])
	default:
		err = c.pipeline(ctx, commands)
	}
	var said goredis.Error
	if err != nil && !errors.As(err, &said) {
		c.failures.Add(1)
	}
}

func (c *Client) pipeline(ctx context.Context, commands []*goredis.Cmd) error {
	var pipe goredis.Pipeliner
	if c.cluster != nil {
		pipe = c.cluster.Pipeline()
	} else {
		pipe = c.one.Pipeline()
	}
	for _, command := range commands {
		if err := pipe.Process(ctx, command); err != nil {
			return err
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}
