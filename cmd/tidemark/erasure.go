package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/storage"
)

// erasureFlags say where it is noted who was erased (docs/privacy.md).
type erasureFlags struct {
	Ledger        string `env:"TIDEMARK_LEDGER" placeholder:"FILE" help:"File outside the database that notes who was erased, by keyed hashes. After a restore of a backup, these users are erased again before the server serves."`
	LedgerKeyFile string `name:"ledger-key-file" env:"TIDEMARK_LEDGER_KEY_FILE" placeholder:"FILE" help:"File with the key of these hashes, at least 32 bytes. Keep it apart from the ledger, and never change it."`

	// Clock is that of the job, for tests that do not wait for it. nil: time.Now.
	Clock func() time.Time `kong:"-"`
}

// now returns the clock of the job.
func (f erasureFlags) now() func() time.Time {
	if f.Clock == nil {
		return time.Now
	}
	return f.Clock
}

// check returns a usageError if only one of the two files is named.
func (f erasureFlags) check() error {
	if (f.Ledger == "") != (f.LedgerKeyFile == "") {
		return usagef("--ledger and --ledger-key-file belong together; give both, or none")
	}
	return nil
}

// open opens the ledger, or returns nil if there is none.
func (f erasureFlags) open() (*erasure.Ledger, error) {
	if f.Ledger == "" {
		return nil, nil
	}
	key, err := os.ReadFile(f.LedgerKeyFile)
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Invalid, err, "--ledger-key-file cannot be read")
	}
	return erasure.OpenLedger(f.Ledger, key)
}

// look checks the ledger and its key for doctor, which makes no file.
func (f erasureFlags) look() (string, error) {
	text := f.Ledger + " and its key can be read"
	if _, err := os.Stat(f.Ledger); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(f.Ledger)); err != nil {
			return "", fmt.Errorf("%s cannot be made: %w; make its directory", f.Ledger, err)
		}
		text = f.Ledger + ": there is no file yet, serve makes it"
		f.Ledger = os.DevNull // It is as empty.
	}
	_, err := f.open()
	return text, err
}

// erasing erases users. Only workers do so. The other processes record what there is to do.
type erasing struct {
	register *erasure.Register
	worker   *erasure.Worker
	exporter *erasure.Exporter
	works    bool
}

// register reads who was erased.
func (o *options) register(
	ctx context.Context, store storage.Store, log *slog.Logger,
) (e erasing, err error) {
	e.works = o.outlet.has(roleWorker)
	ledger, err := o.core.Erasure.open()
	if err != nil {
		return e, err
	}
	e.register, err = erasure.OpenRegister(ctx, store, ledger, log, o.core.Erasure.now())
	return e, err
}

// attach connects what erases users to a core, and to what else is kept of users.
func (e *erasing) attach(a *assembled, store storage.Store, log *slog.Logger) {
	core, told, kept := a.core, a.told, a.kept
	registry := devices.New(store)
	cfg := erasure.Config{
		Register: e.register, Store: store, Core: core, Log: log,
		Keepers: []erasure.Keeper{core, registry, told.engine}, Entries: a.audits.log,
	}
	if kept.kept != nil {
		cfg.Files = kept.kept
		cfg.Keepers = append(cfg.Keepers, kept.kept)
	}
	e.worker = erasure.New(cfg)
	e.exporter = &erasure.Exporter{
		Store: store, Clock: time.Now,
		Parts: []erasure.Part{
			{Type: "push", Read: registry.Export}, {Type: "presence", Read: core.ExportPresence},
			{Type: "access", Read: core.ExportAccess},
		},
	}
}

// run reads who is erased by other nodes until ctx ends.
func (e erasing) run(ctx context.Context) { e.register.Run(ctx) }

// work erases users until ctx ends.
func (e erasing) work(ctx context.Context) {
	if e.works {
		e.worker.Run(ctx)
	}
}

// counters are shown as metrics.
func (e erasing) counters() map[string]int64 {
	return map[string]int64{
		"users_erased_total":     e.worker.Erased(),
		"erasure_failures_total": e.worker.Failed(),
	}
}
