//go:build !linux

package yardstick

import "os"

// syncData writes a file to disk, where there is no fdatasync.
func syncData(f *os.File) error { return f.Sync() }
