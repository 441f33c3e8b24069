package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/jsonl"
	"github.com/tidemark-im/tidemark/importer/sendbird"
	streamchat "github.com/tidemark-im/tidemark/importer/stream"
	"github.com/tidemark-im/tidemark/importer/tinode"
	tinodedb "github.com/tidemark-im/tidemark/importer/tinode/postgres"
	"github.com/tidemark-im/tidemark/importer/twilio"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/metered"
)

type importCommand struct {
	Paths    []string `arg:"" name:"path" help:"Files of the export; - is the standard input, for jsonl. For tinode: the URL of its Postgres database."`
	From     string   `required:"" enum:"jsonl,tinode,stream,sendbird,twilio" help:"What is imported: ${enum} (docs/import.md)."`
	Continue bool     `help:"Leave out chats that are refused. Otherwise the first one ends the import."`
	Oversize string   `default:"refuse" enum:"refuse,skip" help:"What becomes of a message that is too large: its chat is refused, or (skip) a line takes its place."`
	DryRun   bool     `help:"Read and check everything, without a store."`
	UIDKey   string   `name:"tinode-uid-key" env:"TIDEMARK_TINODE_UID_KEY" placeholder:"KEY" help:"For tinode: uid_key in store_config of tinode.conf."`

	AuditDays *int `env:"TIDEMARK_AUDIT_DAYS" placeholder:"DAYS" help:"0: write no entry to the audit log. Default 400."`

	Store  string `default:"sqlite:" env:"TIDEMARK_STORE" placeholder:"URL" help:"Where messages are kept: sqlite:PATH, postgres://… or dynamodb://…"`
	Config string `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"The YAML file of serve; only its store and audit-days are used."`
}

// Help returns the rest of the text of `import --help`.
func (importCommand) Help() string {
	return "Servers may run, except on SQLite. A chat can be used when all of it is there. The " +
		"command may be interrupted and run again: it goes on where it was. Progress is on " +
		"standard error, and at the end a report in JSON is on standard output. The exit code is " +
		"1 if anything was not imported."
}

// formatTinode is the format that is read from a database.
const formatTinode = "tinode"

// Run imports chats, and prints the report.
func (c *importCommand) Run(ctx context.Context, std streams) error {
	records, err := c.records(ctx, os.Stdin)
	if err != nil {
		return err
	}
	cfg := importer.Config{
		Format: c.From, Continue: c.Continue, SkipOversize: c.Oversize == "skip", Clock: time.Now,
	}
	if !c.DryRun {
		store, err := c.open(ctx, std)
		if err != nil {
			return err
		}
		defer func() { _ = store.Close() }()
		register, stop, err := followErasures(ctx, store, importLog(std))
		if err != nil {
			return err
		}
		defer stop()
		cfg.Store, cfg.Erased = store, register.Erased
	}
	end, err := c.recorded(ctx, cfg.Store)
	if err != nil {
		return explained(err)
	}
	i := importer.New(cfg)
	began := time.Now()
	stop := showProgress(std.err, i, began)
	err = i.Run(ctx, records)
	stop()
	end(err)
	report := struct {
		importer.Report
		Complete bool    `json:"complete"`
		Seconds  float64 `json:"seconds"`
	}{i.Report(), err == nil, time.Since(began).Round(time.Millisecond).Seconds()}
	encoder := json.NewEncoder(std.out)
	encoder.SetIndent("", "  ")
	return errors.Join(explained(err), encoder.Encode(report))
}

// recorded writes the entry of this import to the audit log. end writes how it ended.
func (c *importCommand) recorded(
	ctx context.Context, store importer.Store,
) (end func(error), err error) {
	kept, ok := store.(storage.Audit)
	if !ok { // a dry run
		return func(error) {}, nil
	}
	days := defaultAuditDays
	if c.AuditDays != nil {
		days = *c.AuditDays
	}
	log, err := audit.New(audit.Config{
		Store: kept, Days: days, Logger: slog.Default(), Clock: time.Now,
	})
	if err != nil {
		return nil, usagef("--audit-days: %s", tidemark.DetailOf(err))
	}
	finish, err := log.Begin(ctx, "import", audit.Target{})
	return func(err error) {
		if err != nil { // Whatever it is, some records may have been imported before.
			err = tidemark.Wrap(tidemark.Internal, err, "the import did not end")
		}
		finish(err)
	}, err
}

// explained returns the error of an import.
func explained(err error) error {
	switch tidemark.CodeOf(err) {
	case "":
		return nil
	case tidemark.Invalid, tidemark.NotFound: // The source is at fault, so no code is shown.
		return fmt.Errorf("import: %s", tidemark.DetailOf(err))
	}
	return fmt.Errorf("import: %w", err)
}

// records returns the source. It returns a usageError for arguments that do not fit the format.
func (c *importCommand) records(
	ctx context.Context, standard io.Reader,
) (iter.Seq2[importer.Record, error], error) {
	if c.From == formatTinode {
		if len(c.Paths) != 1 {
			return nil, usagef("name one database of Tinode, by its URL")
		}
		if c.UIDKey == "" {
			return nil, usagef("give --tinode-uid-key: the ids of users are made with it")
		}
		key, err := tinode.ParseKey(c.UIDKey)
		if err != nil {
			return nil, usageError{err}
		}
		return tinodedb.Records(ctx, c.Paths[0], key), nil
	}
	if c.From != "jsonl" && slices.Contains(c.Paths, jsonl.Standard) {
		return nil, usagef("only jsonl can be read from the standard input; give files")
	}
	switch c.From {
	case "stream":
		return streamchat.Records(ctx, c.Paths), nil
	case "sendbird":
		return sendbird.Records(ctx, c.Paths), nil
	case "twilio":
		return twilio.Records(ctx, c.Paths), nil
	}
	return jsonl.Records(ctx, c.Paths, standard), nil
}

// open opens the store. Like serve, it brings SQLite's schema up to date.
func (c *importCommand) open(ctx context.Context, std streams) (openedStore, error) {
	u, err := parseStore(c.Store)
	if err != nil {
		return openedStore{}, err
	}
	if u.scheme == schemeMemory {
		return openedStore{}, usagef("the store memory: ends with this command; name another " +
			"one, or give --dry-run")
	}
	return openWhole(ctx, u, false, 0, metered.New(importLog(std)))
}

func importLog(std streams) *slog.Logger {
	return slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// followErasures knows who was erased, also by servers that run beside the import, until stop is
// called.
func followErasures(
	ctx context.Context, store storage.Documents, log *slog.Logger,
) (r *erasure.Register, stop func(), err error) {
	if r, err = erasure.OpenRegister(ctx, store, nil, log, time.Now); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { r.Run(ctx) })
	return r, func() {
		cancel()
		following.Wait()
	}, nil
}

// progressEvery is the time between two lines about the progress.
const progressEvery = 10 * time.Second

// showProgress writes how far an import is, until stop is called.
func showProgress(to io.Writer, i *importer.Importer, began time.Time) (stop func()) {
	before := int64(0)
	return repeat(func() {
		r := i.Report()
		fmt.Fprintf(to, "%v: %d chats, %d messages, %d a second, %d were there\n",
			time.Since(began).Round(time.Second), r.Chats, r.Messages,
			(r.Messages-before)/int64(progressEvery.Seconds()), r.Before)
		before = r.Messages
	})
}

// repeat calls show every progressEvery, until stop is called and returns.
func repeat(show func()) (stop func()) {
	ended := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		ticks := time.NewTicker(progressEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticks.C:
				show()
			}
		}
	})
	return func() {
		close(ended)
		showing.Wait()
	}
}
