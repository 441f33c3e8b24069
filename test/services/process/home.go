// Package process runs the programs of test services: each service has a directory of its own, and neither that nor what works there outlives the
// process of the tests, however that ends: a small shell watches it (supervise.sh).
package process

import (
	_ "embed"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

//go:embed supervise.sh
var supervise string

// Home is the directory of a service. Its methods may be called by several goroutines.
type Home struct {
	dir        string
	credential *syscall.Credential
	// supervisor ends the programs and removes the directory when hold, its input, is closed: by us, or with our process.
	supervisor *exec.Cmd
	hold       *os.File
}

// Settings of a home.
type Settings struct {
	// Service is in the directory's name.
	Service string
	// Credential is the user that programs run as and that owns the directory; nil is our own.
	Credential *syscall.Credential
	// Farewell is a script of sh that ends the programs, whose first argument is the directory. What it leaves is killed with SIGKILL.
	Farewell string
}

// NewHome makes a directory below that of temporary files, and starts its supervisor.
func NewHome(settings Settings) (*Home, error) {
	dir, err := os.MkdirTemp("", "tidemark-"+settings.Service+"-")
	if err != nil {
		return nil, err
	}
	resolved, err := filepath.EvalSymlinks(dir) // the supervisor compares it with what the system says
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

// Command is one that works in the directory, as the home's user, out of the reach of signals to our terminal and to our process group.
func (h *Home) Command(name string, args ...string) *exec.Cmd {
	command := exec.Command(name, args...)
	command.Dir = h.dir
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: h.credential}
	return command
}

// Close ends what works in the directory, and removes it. Programs that are children of ours are still to be waited for.
func (h *Home) Close() error { return errors.Join(h.hold.Close(), h.supervisor.Wait()) }

// OnFreePort starts something on a port of 127.0.0.1 where nothing listens at this moment, and on another one if start says that the port is taken.
func OnFreePort(start func(port int) error) (err error) {
	for range 20 {
		port, free := FreePort()
		if free != nil {
			return free
		}
		if err = start(port); !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}

// FreePort returns a port of 127.0.0.1 where nothing listens at this moment. It is below those that the system gives to connections, lest one of them
// takes it while the program is down.
func FreePort() (int, error) {
	var err error
	for range 100 {
		port := 15_000 + rand.IntN(17_000)
		var listener net.Listener
		if listener, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, err
}
