package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
)

const (
	// doctorWithin is how long one check of doctor may take.
	doctorWithin = 10 * time.Second
	// fewConnections is the number of connections below which doctor mentions the open-file limit.
	fewConnections = 10_000
)

// doctorCommand checks the configuration of serve, and everything that it names.
type doctorCommand struct {
	Serve serveCommand `embed:""`
}

// Help returns the rest of the text of `doctor --help`.
func (doctorCommand) Help() string {
	return "Give it the flags, variables and file of serve. It changes nothing, and may run " +
		"beside the server. Where files are kept, it writes a small one and removes it. It " +
		"sends no notification. The exit code is 1 if it finds a problem."
}

// diagnosis prints what doctor finds.
type diagnosis struct {
	out      io.Writer
	problems int
}

func (d *diagnosis) line(state, subject, text string) {
	fmt.Fprintf(d.out, "%-8s %-14s %s\n", state, subject, text)
}

// say prints a problem if there is an error, else that the subject is fine. The error says what to
// do.
func (d *diagnosis) say(subject, fine string, err error) {
	if err == nil {
		d.line("ok", subject, fine)
		return
	}
	d.problems++
	for _, line := range strings.Split(strings.TrimSpace(err.Error()), "\n") {
		d.line("PROBLEM", subject, line)
	}
}

// Run prints a line for each thing that it checks. It returns an error if one is wrong.
func (c *doctorCommand) Run(ctx context.Context, std streams) error {
	d := &diagnosis{out: std.out}
	set, err := c.Serve.settings(io.Discard)
	d.say("configuration", "every setting is in its range", err)
	if c.Serve.Dev {
		d.line("note", "--dev",
			"authentication and rate limits are off: never serve users like this")
	}
	c.credentials(ctx, d)
	if set.store.scheme != "" { // else it is malformed
		text, err := c.store(ctx, set.store)
		d.say("store", text, err)
	}
	if f := c.Serve.Core.Erasure; f.Ledger != "" && f.check() == nil {
		text, err := f.look()
		d.say("ledger", text, err)
	}
	if c.Serve.Peers.Redis != "" {
		text, err := c.redis(ctx)
		d.say("redis", text, err)
	}
	c.reach(ctx, d)
	if room := connectionsFor(openFiles()); room < fewConnections {
		d.line("note", "open files", fmt.Sprintf("their limit leaves room for %d connections; "+
			"raise it for more (LimitNOFILE=, ulimit -n)", room))
	} else {
		d.line("ok", "open files", fmt.Sprintf("room for %d connections", room))
	}
	switch status, answer, err := askReady(ctx, c.Serve.Listen); {
	case err != nil:
		d.line("note", "server", "none answers at "+c.Serve.Listen+": is it not started yet?")
	case status != http.StatusOK:
		d.say("server", "", fmt.Errorf("the one at %s is not ready: %s", c.Serve.Listen, answer))
	default:
		d.line("ok", "server", "the one at "+c.Serve.Listen+" is ready")
	}
	switch d.problems {
	case 0:
		return nil
	case 1:
		return errors.New("there is a problem")
	}
	return fmt.Errorf("there are %d problems", d.problems)
}

// credentials checks that users can log in.
func (c *doctorCommand) credentials(ctx context.Context, d *diagnosis) {
	key, err := secret()
	if err != nil {
		d.say("credentials", "", err)
		return
	}
	cfg, err := c.Serve.Credentials.config(c.Serve.Dev, key, slog.New(slog.DiscardHandler))
	var kinds []string
	if key != nil {
		kinds = append(kinds, "tokens of "+secretVariable)
	}
	if cfg.JWKS != nil {
		kinds = append(kinds, "tokens of the issuer")
	}
	if cfg.APIKeys != nil {
		kinds = append(kinds, "API keys")
	}
	if c.Serve.Dev {
		kinds = append(kinds, "any user name")
	}
	d.say("credentials", strings.Join(kinds, ", "), err)
	if cfg.JWKS == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, doctorWithin)
	defer cancel()
	usable, err := cfg.JWKS.Check(ctx)
	if err != nil {
		err = fmt.Errorf("its keys cannot be fetched: %w; check --jwks-url, and this machine's "+
			"way to it", err)
	} else if usable == 0 {
		err = errors.New("it publishes no usable key, so its tokens are refused; it must sign " +
			"with RS256, ES256 or EdDSA")
	}
	d.say("issuer", fmt.Sprintf("%d usable keys", usable), err)
}

// store says which schema the store has.
func (c *doctorCommand) store(ctx context.Context, u storeURL) (string, error) {
	if u.scheme == schemeMemory {
		return "in memory: messages are lost when the server stops", nil
	}
	ctx, cancel := context.WithTimeout(ctx, doctorWithin)
	defer cancel()
	schema, err := schemaOf(ctx, u)
	ours := u.scheme == schemeSQLite || c.Serve.Migrate
	switch {
	case u.scheme == schemeSQLite && tidemark.CodeOf(err) == tidemark.NotFound:
		if _, err := os.Stat(filepath.Dir(u.path)); err != nil {
			return "", fmt.Errorf("%s cannot be made: %w; make its directory", u.name, err)
		}
		return u.name + ": there is no file yet, serve makes it", nil
	case err != nil:
		return "", fmt.Errorf("%s: %w", u.name, err)
	case ours && schema.Upgradable():
		return fmt.Sprintf("%s: schema %d, which serve brings to %d",
			u.name, schema.Version, schema.Needed), nil
	}
	if err := schema.Fit(); err != nil {
		return "", fmt.Errorf("%s: %w", u.name, err)
	}
	if schema.Version > schema.Needed {
		return fmt.Sprintf("%s: schema %d of a newer program, which this program can use",
			u.name, schema.Version), nil
	}
	return fmt.Sprintf("%s: schema %d", u.name, schema.Version), nil
}

// redis checks that the nodes' Redis can be used, and does not drop keys.
func (c *doctorCommand) redis(ctx context.Context) (string, error) {
	client, err := redis.Open(redis.Config{URL: c.Serve.Peers.Redis, Name: "tidemark:doctor"})
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }() // which has said what it could
	ctx, cancel := context.WithTimeout(ctx, doctorWithin)
	defer cancel()
	if err := client.Check(ctx); err != nil {
		return "", err
	}
	policy, err := client.Eviction(ctx)
	if err == nil && policy != "noeviction" {
		err = fmt.Errorf("%s drops keys when its memory is full, and users would look offline; "+
			"set maxmemory-policy noeviction (it is %s)", client.Address(), policy)
	}
	return client.Address().String() + " can be used", err
}
