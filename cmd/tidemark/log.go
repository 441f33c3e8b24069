package main

import (
	"context"
	"io"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// newLog returns the log of a server, in the format text or json, and the level from which it has
// lines. Lines of info and above are sampled, so that a fault that affects every client fills no
// disk.
func newLog(to io.Writer, format, level string) (*slog.Logger, *slog.LevelVar, error) {
	from := new(slog.LevelVar)
	if err := setLevel(from, level); err != nil {
		return nil, nil, err
	}
	o := &slog.HandlerOptions{Level: from}
	switch format {
	case "text":
		return slog.New(newSampled(slog.NewTextHandler(to, o))), from, nil
	case "json":
		return slog.New(newSampled(slog.NewJSONHandler(to, o))), from, nil
	default:
		return nil, nil, usagef("--log-format is %q; it must be text or json", format)
	}
}

// adopt lets this log have what libraries write by the package log. net/http writes there, for
// example, what a receiver of webhooks sends unasked.
func adopt(to *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(libraries{to})
}

// libraries is the output of the package log.
type libraries struct{ *slog.Logger }

// Write implements io.Writer.
func (l libraries) Write(p []byte) (int, error) {
	l.Warn("a library reports an error", "error", strings.TrimSpace(string(p)))
	return len(p), nil
}

// setLevel sets a level by its name. Error: usageError.
func setLevel(v *slog.LevelVar, name string) error {
	if err := v.UnmarshalText([]byte(name)); err != nil {
		return usagef("--log-level is %q; it must be debug, info, warn or error", name)
	}
	return nil
}

const (
	// samplePause is the least time between two lines with the same message.
	samplePause = time.Second
	// maxSampled is the greatest number of messages that are remembered.
	// Messages are constants of the code, which has fewer.
	maxSampled = 1_000
)

// sampled is a handler that passes on one line per message and samplePause.
// The next line says how many were suppressed meanwhile.
// Debug lines are all passed on, because they serve a search for a fault.
type sampled struct {
	slog.Handler
	seen *sample
}

func newSampled(h slog.Handler) *sampled {
	return &sampled{Handler: h, seen: &sample{messages: make(map[string]*window)}}
}

// Handle implements slog.Handler.
func (s *sampled) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return s.Handler.Handle(ctx, r)
	}
	suppressed, ok := s.seen.take(r.Message, r.Time)
	if !ok {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return s.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (s *sampled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &sampled{Handler: s.Handler.WithAttrs(attrs), seen: s.seen}
}

// WithGroup implements slog.Handler.
func (s *sampled) WithGroup(name string) slog.Handler {
	return &sampled{Handler: s.Handler.WithGroup(name), seen: s.seen}
}

// sample remembers the messages that were logged.
type sample struct {
	mu       sync.Mutex
	messages map[string]*window
}

// window records when a message was logged, and how many like it have been suppressed since.
type window struct {
	at         time.Time
	suppressed int
}

// take reports whether a message may be logged now, and how many like it were suppressed.
func (s *sample) take(message string, now time.Time) (suppressed int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.messages[message]
	switch {
	case w == nil:
		if len(s.messages) >= maxSampled {
			clear(s.messages)
		}
		s.messages[message] = &window{at: now}
		return 0, true
	//rule:logs_bounded.one-line-a-second
	case now.Sub(w.at) < samplePause:
		w.suppressed++
		return 0, false
	}
	suppressed = w.suppressed
	*w = window{at: now}
	return suppressed, true
}
