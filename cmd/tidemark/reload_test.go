package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// TestReload_of_a_file_that_changes: rates and the level of the log hold at once. Other keys are
// named. A file that is wrong, or gone, changes nothing.
func TestReload_of_a_file_that_changes(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv("TIDEMARK_USER_CALLS", "7:7")
	file := write(t, "c.yaml", "user-sends: 5:5\n")
	synctest.Test(t, func(t *testing.T) {
		args := arguments{"serve", "--config", file}
		serve, _, err := parseAgain(args)
		if err != nil {
			t.Fatal(err)
		}
		var out logBuffer
		log, level, err := newLog(&out, "text", serve.Observe.LogLevel)
		if err != nil {
			t.Fatal(err)
		}
		r, err := newReload(args, file, level, log)
		if err != nil {
			t.Fatal(err)
		}
		limiter := limit.New(serve.Rates.config())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(limiter)(ctx)

		for i, tt := range []struct {
			text  string // "" removes the file
			sends int    // at once, of a new user
			says  string
			debug bool
		}{
			{"user-sends: 5:5\n", 5, "", false},
			{"user-sends: 8:8\nlog-level: debug\n", 8, "applied=\"[log-level user-sends]\"", true},
			{"user-sends: 9:9\nlog-level: loud\n", 8, "--log-level is", true},
			{"user-sends: 9:4\n", 8, "is no rate", true},
			{"user-sent: 9:9\n", 8, "user-sent", true},
			{"", 8, "no such file", true},
			{"user-sends: 8:8\nstore: 'postgres://u:geheim@h/d'\nuser-calls: 1:5\n", 8,
				"applied=[log-level] after_a_restart=[store] overridden=[user-calls]", false},
			{"user-sends: 6\nmax-connections: 7\n", 60,
				"applied=[user-sends] after_a_restart=\"[max-connections store]\" " +
					"overridden=[user-calls]", false},
			{"{}\n", 100, "applied=[user-sends] after_a_restart=[max-connections]", false},
		} {
			before := len(out.String())
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.text == "" {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			// By synctest's clock. It is never a moment at which the file is read.
			time.Sleep(2*rereadEvery + time.Millisecond)
			who := server.Caller{User: tidemark.UserID(fmt.Sprint("u", i))}
			sends := 0
			for ; sends < 100; sends++ {
				if _, err := limiter.Send(who, tidemark.KindMessage); err != nil {
					break
				}
			}
			calls := 0
			for ; calls < 100; calls++ {
				if _, err := limiter.Call(who, 1); err != nil {
					break
				}
			}
			said := out.String()[before:]
			if sends != tt.sends || calls != 7 || level.Level() < 0 != tt.debug ||
				(said == "") != (tt.says == "") || !strings.Contains(said, tt.says) ||
				strings.Count(said, "\n") > 1 || strings.Contains(said, "geheim") {
				t.Errorf("step %d: %d sends and %d calls at once, want %d and 7; level %v, want "+
					"debug: %v; it says %q, want %q",
					i, sends, calls, tt.sends, level.Level(), tt.debug, said, tt.says)
			}
		}
	})
}

// TestReload_goes_on_after_a_file_that_is_none: a pipe, or a directory, in the place of the file is
// named in the log, and a file that comes back is read.
func TestReload_goes_on_after_a_file_that_is_none(t *testing.T) {
	cleanEnvironment(t)
	for name, replace := range map[string]func(path string) error{
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a device":    func(path string) error { return os.Symlink("/dev/null", path) },
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, "c.yaml", "log-level: info\n")
			args := arguments{"serve", "--config", file}
			var out logBuffer
			log, level, err := newLog(&out, "text", "info")
			if err != nil {
				t.Fatal(err)
			}
			r, err := newReload(args, file, level, log)
			if err != nil {
				t.Fatal(err)
			}
			limiter := limit.New(limit.Config{})
			if err := errors.Join(os.Remove(file), replace(file)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // It says so once.
				r.again(limiter)
			}
			if said := out.String(); strings.Count(said, "\n") != 1 ||
				!strings.Contains(said, "is not a regular file") {
				t.Errorf("it says %q, want one line about no regular file", said)
			}
			err = os.Remove(file)
			if err == nil {
				err = os.WriteFile(file, []byte("log-level: debug\n"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.again(limiter); level.Level() != slog.LevelDebug {
				t.Errorf("the level is %v after the file came back, want debug", level.Level())
			}
		})
	}
}

// TestConfig_that_is_no_file is refused when the program starts.
func TestConfig_that_is_no_file(t *testing.T) {
	cleanEnvironment(t)
	pipe := filepath.Join(t.TempDir(), "c.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := parseAgain(arguments{"serve", "--config", pipe})
	if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v, want that it is not a regular file", err)
	}
}
