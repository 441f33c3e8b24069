//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"

	"github.com/tidemark-im/tidemark"
)

// lock locks the file PATH-lock for this Store alone. The kernel releases the lock whenever the
// process ends. The file stays: if it were removed, two openers could hold two locks.
func lock(path string) (*os.File, error) {
	name := path + "-lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the lock file "+name+" cannot be opened; its directory must exist and be writable")
	}
	//rule:sequence_gapless.lock-file
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, tidemark.Errorf(tidemark.Conflict,
				"the database %s is in use by another server or command (the lock is %s); end "+
					"that one first", path, name)
		}
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the lock file "+name+" cannot be locked")
	}
	return f, nil
}
