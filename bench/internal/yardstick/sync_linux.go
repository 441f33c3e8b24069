package yardstick

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData writes a file's data to disk, but not its times.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
