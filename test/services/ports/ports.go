// Package ports reserves ports of 127.0.0.1 for the programs that tests start.
package ports

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Free returns a port of 127.0.0.1 on which no program listens. No other caller gets it, in any
// process, until this process ends. It is below the ports that the system gives to connections. So
// no program takes it while ours is down. Free is safe for concurrent use.
func Free() (int, error) {
	err := errors.New("no port was tried")
	for range 100 {
		port := 15_000 + rand.IntN(17_000)
		if err = reserved.take(port); err != nil {
			continue
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", address(port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// FreeAddress returns the address with a free port.
func FreeAddress() (string, error) {
	port, err := Free()
	return address(port), err
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// reserved are the ports of this process. The zero value is ready to use.
var reserved reservations

// reservations are ports that no other process of this user takes. Each is a byte of one file, and
// locked. The system unlocks the bytes when the process ends.
type reservations struct {
	mu    sync.Mutex
	file  *os.File
	ports map[int]bool
}

// take reserves a port. It returns an error if another call has it, in this or another process.
func (r *reservations) take(port int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		name := filepath.Join(os.TempDir(), fmt.Sprint("tidemark-ports-", os.Getuid()))
		file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		r.file, r.ports = file, make(map[int]bool)
	}
	if r.ports[port] {
		return fmt.Errorf("port %d is taken by this process", port)
	}
	lock := syscall.Flock_t{
		Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: int64(port), Len: 1,
	}
	if err := syscall.FcntlFlock(r.file.Fd(), syscall.F_SETLK, &lock); err != nil {
		return fmt.Errorf("port %d is taken by another process: %w", port, err)
	}
	r.ports[port] = true
	return nil
}
