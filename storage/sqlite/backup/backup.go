// Package backup copies an SQLite store while a server uses it.
package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/capi"
)

// busyMilliseconds is how long a statement waits for a lock, such as that of a server that is
// starting.
const busyMilliseconds = 5_000

// Write copies the database at path to the new file to. The copy is one snapshot that contains
// every write that was answered before the call. A server may use the database meanwhile. Only its
// write-ahead log grows until Write returns. bytes is the size of the copy.
//
// The file gets its name only after it has been checked and is on the disk. So a file of that name
// is a complete backup. Only its owner may read and write it.
//
// NotFound: there is no database at path. Conflict: to exists already. Unavailable: the disk or the
// database failed.
func Write(path, to string) (bytes int64, err error) {
	if _, err := os.Stat(path); err != nil {
		return 0, tidemark.Wrap(tidemark.NotFound, err, "there is no database "+path)
	}
	switch _, err := os.Lstat(to); {
	case err == nil:
		return 0, tidemark.Errorf(tidemark.Conflict,
			"%s is there already; a backup never takes the place of another file", to)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, tidemark.Wrap(tidemark.Unavailable, err, "the backup cannot be written to "+to)
	}
	// SQLite writes into this empty file, which only its owner can read.
	draft, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".unfinished-*")
	if err != nil {
		return 0, tidemark.Wrap(tidemark.Unavailable, err, "the backup cannot be written to "+to)
	}
	defer draft.Close()
	defer func() { _ = os.Remove(draft.Name()) }() // after the rename there is no such file
	if err := copyTo(path, draft.Name()); err != nil {
		return 0, tidemark.Wrap(tidemark.Unavailable, err, "the database "+path+" cannot be copied")
	}
	if err := check(draft.Name()); err != nil {
		return 0, tidemark.Wrap(tidemark.Unavailable, err,
			"the copy of "+path+" is not sound; check the database itself: PRAGMA integrity_check")
	}
	info, err := publish(draft, to)
	if err != nil {
		return 0, tidemark.Wrap(tidemark.Unavailable, err,
			"the backup cannot be stored as "+to+"; check the disk and its space")
	}
	return info.Size(), nil
}

// copyTo writes all data that one read transaction sees.
func copyTo(path, to string) error {
	_, err := query(path, "VACUUM INTO ?", to)
	return err
}

// check reads the whole copy.
func check(path string) error {
	answer, err := query(path, "PRAGMA quick_check(1)", "")
	if err == nil && answer != "ok" {
		err = fmt.Errorf("quick_check says: %s", answer)
	}
	return err
}

// query runs a statement with at most one parameter. It returns the first column of the last row.
func query(path, text, parameter string) (answer string, err error) {
	c, err := capi.Open(path, true)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.BusyTimeout(busyMilliseconds)
	s, err := c.Prepare(text)
	if err != nil {
		return "", err
	}
	defer s.Finalize()
	if parameter != "" {
		s.BindString(1, parameter)
	}
	for {
		more, err := s.Step()
		if !more || err != nil {
			return answer, err
		}
		answer = string(s.Column(0))
	}
}

// publish renames the draft after its data is on the disk. Then it syncs the directory, so that the
// name is on the disk, too.
func publish(draft *os.File, to string) (fs.FileInfo, error) {
	if err := draft.Sync(); err != nil {
		return nil, err
	}
	if err := os.Rename(draft.Name(), to); err != nil {
		return nil, err
	}
	directory, err := os.Open(filepath.Dir(to))
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	if err := directory.Sync(); err != nil {
		return nil, err
	}
	return draft.Stat()
}
