// Package process runs the programs of test services. Each service has a directory of its own.
// However the test process ends, a small shell (supervise.sh) ends the programs in it and removes
// it.
package process

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/tidemark-im/tidemark/test/services/ports"
)

//go:embed supervise.sh
var supervise string

// Home is the directory of a service. Its methods are safe for concurrent use.
type Home struct {
	dir        string
	credential *syscall.Credential
	// supervisor ends the programs and removes the directory when its input, hold, is closed: by
	// Close, or with our process.
	supervisor *exec.Cmd
	hold       *os.File
}

// Settings are the settings of a Home.
type Settings struct {
	// Service is in the directory's name.
	Service string
	// Credential is the user that programs run as and that owns the directory; nil is our own.
	Credential *syscall.Credential
	// Farewell is a shell script that ends the programs. Its first argument is the directory.
	// Programs that it leaves are killed with SIGKILL.
	Farewell string
}

// NewHome makes a directory below that of temporary files, and starts its supervisor.
func NewHome(settings Settings) (*Home, error) {
	dir, err := os.MkdirTemp("", "tidemark-"+settings.Service+"-")
	if err != nil {
		return nil, err
	}
	// The supervisor compares it with the path that the system returns.
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	h := &Home{dir: resolved, credential: settings.Credential}
	if c := settings.Credential; c != nil {
		if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
	}
	input, hold, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	defer input.Close()
	h.hold = hold
	h.supervisor = h.Command("/bin/sh", "-c", supervise, "sh", h.dir, settings.Farewell)
	h.supervisor.Dir = "/"
	h.supervisor.Stdin = input
	if err := h.supervisor.Start(); err != nil {
		return nil, errors.Join(err, hold.Close(), os.Remove(dir))
	}
	return h, nil
}

// Dir returns the directory, without symbolic links.
func (h *Home) Dir() string { return h.dir }

// Command returns a command that works in the directory, as the home's user. Signals to our
// terminal and to our process group do not reach it.
func (h *Home) Command(name string, args ...string) *exec.Cmd {
	command := exec.Command(name, args...)
	command.Dir = h.dir
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: h.credential}
	return command
}

// Close ends what works in the directory, and removes it. The caller must still wait for programs
// that are its children.
func (h *Home) Close() error { return errors.Join(h.hold.Close(), h.supervisor.Wait()) }

// OnFreePort calls start with a port of 127.0.0.1 on which no program listens. It tries another
// port if start returns ErrPortTaken.
func OnFreePort(start func(port int) error) (err error) {
	for range 20 {
		port, free := ports.Free()
		if free != nil {
			return free
		}
		if err = start(port); !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}
