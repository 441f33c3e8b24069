package postgres

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/disk.c
var disk string

// Disk is the disk of one server. While it is stalled, no fsync returns, so no commit does.
// Everything else goes on.
type Disk struct{ stalled string }

// StartOnDisk is Start for a server whose disk can stall. It needs gcc.
func StartOnDisk(t testing.TB, settings ...string) (*Server, *Disk) {
	t.Helper()
	d := &Disk{}
	s := started(t, func(s *Server) error {
		if err := s.initdb(); err != nil {
			return err
		}
		d.stalled = filepath.Join(s.home.Dir(), "stalled")
		library := filepath.Join(s.home.Dir(), "disk.so")
		if err := compile(disk, library); err != nil {
			return err
		}
		s.environment = []string{"LD_PRELOAD=" + library, "TIDEMARK_STALL=" + d.stalled}
		return nil
	}, settings)
	t.Cleanup(func() { d.Resume(t) })
	return s, d
}

// Stall blocks every fsync that begins now, until Resume.
func (d *Disk) Stall(t testing.TB) {
	t.Helper()
	if err := os.WriteFile(d.stalled, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Resume ends a Stall, if there is one.
func (d *Disk) Resume(t testing.TB) {
	t.Helper()
	if err := os.Remove(d.stalled); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// compile makes a shared library of a source in C.
func compile(source, library string) error {
	file := library + ".c"
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		return err
	}
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", library, file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("no disk that stalls can be made; run: apt-get install gcc libc6-dev "+
			"(%w)\n%s", err, out)
	}
	return os.Chmod(library, 0o755) //nolint:gosec // the user of the server loads it
}
