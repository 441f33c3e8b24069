package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/copying"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage/dynamodb"
	"github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
)

type copyCommand struct {
	From   string `required:"" env:"TIDEMARK_COPY_FROM" placeholder:"URL" help:"The store whose data are copied: sqlite:PATH, postgres://… or dynamodb://…"`
	To     string `required:"" env:"TIDEMARK_COPY_TO" placeholder:"URL" help:"An empty store with the newest schema, or one that the same copy has begun to fill."`
	Ahead  bool   `help:"Copy the chats while servers work on the source. The copy is not complete then."`
	Verify bool   `help:"Copy nothing, and compare both stores once more."`
}

// Help returns the rest of the text of `copy --help`.
func (copyCommand) Help() string {
	return "Stop all servers of both stores first. The command may be interrupted and run again: " +
		"it goes on where it was. Afterwards it compares both stores. Progress is on standard " +
		"error, and at the end a report in JSON is on standard output. The exit code is 1 if the " +
		"copy is not complete, or if anything differs. For a short pause, run it with --ahead " +
		"first, while servers work on the source. Chats that have not changed since are neither " +
		"copied nor compared again (docs/move-over.md)."
}

// copied is the report of the command.
type copied struct {
	copying.Report
	Complete  bool    `json:"complete"`
	Seconds   float64 `json:"seconds"`
	MBASecond float64 `json:"megabytes_per_second"`
}

// aheadWorkers is how many chats are copied at once while servers work on the source.
const aheadWorkers = 2

// Run copies and compares, and prints the report of each.
func (c *copyCommand) Run(ctx context.Context, std streams) error {
	if c.Ahead && c.Verify {
		return usagef("--ahead and --verify: give one of them; a copy is compared when it is " +
			"complete, and no server works on either store")
	}
	from, err := openCopied(ctx, c.From, false, c.Ahead)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer func() { _ = from.Close() }()
	to, err := openCopied(ctx, c.To, !c.Verify, false)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer func() { _ = to.Close() }()
	if err := c.unused(ctx, from, to); err != nil {
		return err
	}
	_, steps := from.(*dynamodb.Store)
	cfg := copying.Config{From: from, To: to, Clock: time.Now, Reread: steps}
	if c.Ahead {
		return ranAhead(ctx, std, cfg)
	}
	if !c.Verify {
		cfg.Ran = copying.New(cfg)
		err := reported(ctx, std, "copied", cfg.Ran, noticed(to, (*copying.Copier).Run))
		if err != nil {
			return fmt.Errorf("copy: %w; run the same command again to go on", err)
		}
	}
	compared := copying.New(cfg)
	if err := reported(ctx, std, "compared", compared, (*copying.Copier).Verify); err != nil {
		return fmt.Errorf("compare: %w; run the command with --verify to compare again", err)
	}
	if n := compared.Report().Different; n > 0 {
		return fmt.Errorf("the stores differ in %d places: make sure that no server has written "+
			"to either of them, empty the target, and copy again", n)
	}
	return nil
}

// ranAhead copies the chats while servers work on the source, and says how to go on.
func ranAhead(ctx context.Context, std streams, cfg copying.Config) error {
	cfg.Workers = aheadWorkers
	c := copying.New(cfg)
	ahead := noticed(cfg.To, (*copying.Copier).Ahead)
	if err := reported(ctx, std, "copied_ahead", c, ahead); err != nil {
		return fmt.Errorf("copy: %w; run the same command again to go on", err)
	}
	r := c.Report()
	fmt.Fprintf(std.err, "%d of %d chats, with %d new messages, are copied ahead: run it again, "+
		"or stop the servers and run tidemark copy without --ahead\n", r.Chats-r.Unchanged,
		r.Chats, r.Messages)
	return nil
}

// openCopied opens a store without a meter. It changes no schema but that of SQLite. Unless create
// is set, a database of SQLite must exist: an empty source would look like a complete copy. With
// beside, a server may work on it, and it is only read.
func openCopied(
	ctx context.Context, raw string, create, beside bool,
) (copying.Store, error) {
	u, err := parseStore(raw)
	if err != nil {
		return nil, err
	}
	switch u.scheme {
	case schemePostgres:
		return postgres.Open(ctx, postgres.Config{URL: u.url})
	case schemeDynamoDB:
		return dynamodb.Open(ctx, dynamodb.Config{URL: u.url})
	case schemeMemory:
		return nil, usagef("the store memory: ends with its process; name another one")
	}
	if _, err := os.Stat(u.path); err != nil && !create {
		return nil, tidemark.Wrap(tidemark.NotFound, err, "there is no database "+u.path)
	}
	if beside {
		return sqlite.OpenReader(ctx, sqlite.Config{Path: u.path, Readers: aheadWorkers})
	}
	return sqlite.Open(ctx, sqlite.Config{Path: u.path})
}

// unused returns an error if a server works on one of the stores, or with --ahead on the target.
func (c *copyCommand) unused(ctx context.Context, from, to copying.Store) error {
	if !c.Ahead {
		if err := unused(ctx, "--from", from); err != nil {
			return err
		}
	}
	return unused(ctx, "--to", to)
}

// unused returns an error if a server works on a store.
func unused(ctx context.Context, flag string, s copying.Store) error {
	nodes, err := copying.Nodes(ctx, s,
		func(ctx context.Context, d time.Duration) { signal.Pause(ctx, d) })
	if err == nil && len(nodes) > 0 {
		err = tidemark.Errorf(tidemark.Conflict, "servers work on the store: %s; stop them, and "+
			"wait a minute if one of them was killed", strings.Join(nodes, ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// noticed returns a copy that other commands notice (unused).
func noticed(
	to copying.Store, run func(*copying.Copier, context.Context) error,
) func(*copying.Copier, context.Context) error {
	return func(c *copying.Copier, ctx context.Context) error {
		return copying.Beat(ctx, to, func(ctx context.Context) error { return run(c, ctx) })
	}
}

// reported runs a copy or a comparison, shows its progress, and prints its report.
func reported(
	ctx context.Context, std streams, done string, c *copying.Copier,
	run func(*copying.Copier, context.Context) error,
) error {
	began := time.Now()
	stop := showCopying(std.err, done, c, began)
	err := run(c, ctx)
	stop()
	took := time.Since(began).Round(time.Millisecond).Seconds()
	report := copied{Report: c.Report(), Complete: err == nil, Seconds: took}
	if took > 0 {
		report.MBASecond = math.Round(float64(report.Bytes)/took/1e4) / 100
	}
	encoder := json.NewEncoder(std.out)
	encoder.SetIndent("", "  ")
	return errors.Join(err, encoder.Encode(map[string]copied{done: report}))
}

// showCopying writes how far a copy is, until stop is called.
func showCopying(to io.Writer, done string, c *copying.Copier, began time.Time) (stop func()) {
	return repeat(func() {
		r := c.Report()
		fmt.Fprintf(to, "%v: %d chats, %d messages and %d MB are %s\n",
			time.Since(began).Round(time.Second), r.Chats, r.Messages, r.Bytes/1_000_000, done)
	})
}
