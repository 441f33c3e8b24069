package yardstick

import (
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	syncBytes  = 4 << 10
	syncBlocks = 64 // the file has so many
	syncRounds = 50
)

// Sync measures a write of 4 KiB with its fdatasync in a file of its own in dir, for about within.
// The file has its full length before, as a write-ahead log has that is used again. So only data
// are synced, and no length. The file is removed.
func Sync(dir string, within time.Duration) (figure Figure) {
	f, err := os.CreateTemp(dir, ".tidemark-yardstick-*")
	if err != nil {
		return Without(fmt.Errorf("name a directory by --yardstick-dir: %w", err))
	}
	defer func() {
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			figure = Without(err)
		}
	}()
	if _, err := f.Write(make([]byte, syncBlocks*syncBytes)); err != nil {
		return Without(err)
	}
	if err := f.Sync(); err != nil {
		return Without(err)
	}
	block, n := make([]byte, syncBytes), 0
	return Rounds(syncRounds, time.Now().Add(within), func() (float64, error) {
		n++
		block[0] = byte(n)
		start := time.Now()
		if _, err := f.WriteAt(block, int64(n%syncBlocks)*syncBytes); err != nil {
			return 0, err
		}
		err := syncData(f)
		return float64(time.Since(start).Nanoseconds()) / 1e6, err
	})
}
