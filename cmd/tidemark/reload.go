package main

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark/transports/limit"
)

// rereadEvery is how often the configuration file is read again.
const rereadEvery = 5 * time.Second

// live are the keys of the configuration file that take effect while the server runs.
var live = []string{
	"user-sends", "user-silent", "user-calls", "user-statuses",
	"backend-sends", "backend-silent", "backend-calls", "backend-statuses", "log-level",
}

// reload reads the configuration file again while the server runs. It applies the keys of live. It
// logs which others wait for a restart, and which a flag or a variable overrides. While the file is
// wrong, what it said before holds.
type reload struct {
	args  arguments
	path  string
	level *slog.LevelVar
	log   *slog.Logger
	// text is what was read last, or why it could not be read. values is what holds or waits for a
	// restart.
	text   string
	values configFile
}

// newReload returns the reload of a file that was just parsed. It returns nil if path is "".
func newReload(
	args arguments, path string, level *slog.LevelVar, log *slog.Logger,
) (*reload, error) {
	if path == "" {
		return nil, nil
	}
	r := &reload{args: args, path: path, level: level, log: log}
	r.text = r.read()
	var err error
	_, r.values, err = parseAgain(args)
	return r, err
}

// run returns a loop that reads the file every rereadEvery until its context ends.
func (r *reload) run(limiter *limit.Limiter) func(context.Context) {
	return func(ctx context.Context) {
		if r == nil {
			return
		}
		tick := time.NewTicker(rereadEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.again(limiter)
			case <-ctx.Done():
				return
			}
		}
	}
}

// read returns the text of the file, or why it could not be read.
func (r *reload) read() string {
	raw, err := readRegular(r.path)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// again reads the file, and applies it if it changed.
func (r *reload) again(limiter *limit.Limiter) {
	text := r.read()
	if text == r.text {
		return
	}
	r.text = text
	next, values, err := parseAgain(r.args)
	if err == nil {
		err = setLevel(r.level, next.Observe.LogLevel)
	}
	if err != nil {
		r.log.Error("the configuration file has changed and cannot be used; what it said before "+
			"holds", "file", r.path, "error", hideURLs(err.Error()))
		return
	}
	rates := next.Rates.config()
	limiter.SetRates(rates.User, rates.Backend)
	var applied, overridden, waiting []string
	for _, key := range slices.Sorted(maps.Keys(union(r.values, values))) {
		switch {
		case reflect.DeepEqual(r.values[key], values[key]):
		case r.args.give(key):
			overridden = append(overridden, key)
		case slices.Contains(live, key):
			applied = append(applied, key)
		default:
			waiting = append(waiting, key)
		}
	}
	r.values = values
	r.log.Info("the configuration file has changed and was read again", "file", r.path,
		"applied", applied, "after_a_restart", waiting, "overridden", overridden)
}

// union returns a map that has the keys of both.
func union(a, b configFile) configFile {
	both := maps.Clone(a)
	if both == nil {
		both = make(configFile)
	}
	maps.Copy(both, b)
	return both
}
