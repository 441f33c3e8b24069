// Package backup copies an SQLite store while a server goes on writing to it.
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

// busyMilliseconds is how long a statement waits for a lock, such as that of a server which is just being started.
const busyMilliseconds = 5_000

// Write writes the database at path to the new file to: one snapshot, with every write that was answered before the call. A server may have the
// database open and goes on; only its write-ahead log grows until Write returns. The file has been checked, and is on the disk,
// before it gets its name, so a file of that name is a whole backup. It is as readable as the database allows to its owner alone.
//
// Errors: NotFound (no database there), Conflict (there is a file of that name already), Unavailable (anything of the disk or the database).
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
	// SQLite writes into an empty file; this one nobody else can read.
	draft, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".unfinished-*")
	if err != nil {
		return 0, tidemark.Wrap(tidemark.Unavailable, err, "the backup cannot be written to "+to)
	}
	defer draft.Close()
	defer func() { _ = os.Remove(draft.Name()) }() // after the renaming there is none
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
			"the backup cannot be brought to the disk as "+to)
	}
	return info.Size(), nil
}

// copyTo writes all that one reading transaction sees.
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

// query runs a statement with at most one parameter, and returns the first column of its last row.
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

// publish gives the draft its name once it is on the disk, and the name as well.
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
