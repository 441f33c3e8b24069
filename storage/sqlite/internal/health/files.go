package health

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Files identifies the files of an open database. If somebody moves, replaces or overwrites one,
// SQLite does not notice, and continues. The writes that it then confirms would be lost when the
// process ends. Intact and Spoiled are safe for concurrent use. The other methods are for the
// goroutine that writes, and for Store.Close after that goroutine has ended.
type Files struct {
	path string
	// Main is the database file, and Log its write-ahead log.
	Main, Log os.FileInfo
	// index is the index of the log (-shm). It stays open as long as the database: closing it
	// releases every lock of this process on the file, also those of SQLite.
	index *os.File
	// known is the state of the database file at the last look.
	known content
	// spoiled is the error of an overwritten database file, which stays.
	spoiled atomic.Pointer[error]
}

// content is what Files knows of the content of a database file.
type content struct {
	modified time.Time
	size     int64
	log      logState
}

// A logState is what the index of the log says about checkpoints.
type logState struct {
	run       [8]byte // the salts, which change when the log begins anew
	copied    [4]byte // how many of its frames are in the database file
	attempted [4]byte // how many may be there: a checkpoint writes it before it begins to copy
}

// The offsets of a logState in the index (SQLite's "WAL-mode File Format", the WAL-index header).
const (
	runAt       = 32
	copiedAt    = 96
	attemptedAt = 128
)

// Watch records which files are open. The database must have been read before, because the first
// read creates the log. Call Close after the database is closed.
func Watch(path string) (f *Files, err error) {
	f = &Files{path: path}
	if f.Main, err = os.Stat(path); err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the database file is gone; put it back, or restore a backup")
	}
	if f.Log, err = os.Stat(path + "-wal"); err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the log of the database (-wal) cannot be found; look into its directory")
	}
	if f.index, err = os.Open(path + "-shm"); err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the index of the database's log (-shm) cannot be read")
	}
	return f, f.Written()
}

// Close closes the index of the log. f may be nil.
func (f *Files) Close() {
	if f != nil && f.index != nil {
		f.index.Close()
	}
}

// Intact returns Unavailable if a path no longer leads to the file that is open, or if Unchanged
// has found that the database file was overwritten.
func (f *Files) Intact() error {
	if spoiled := f.spoiled.Load(); spoiled != nil {
		return *spoiled
	}
	if _, err := same(f.path, f.Main); err != nil {
		return err
	}
	_, err := same(f.path+"-wal", f.Log)
	return err
}

// Unchanged returns Unavailable if the path no longer leads to the database file that is open, or
// if another program has written into that file since the last look. Checkpoints are allowed, also
// those of other programs. A write beside a checkpoint is not noticed.
func (f *Files) Unchanged() error {
	if spoiled := f.spoiled.Load(); spoiled != nil {
		return *spoiled
	}
	now, err := same(f.path, f.Main)
	if err != nil || now.ModTime().Equal(f.known.modified) && now.Size() == f.known.size {
		return err
	}
	before := f.known.log
	if err := f.Written(); err != nil {
		return err
	}
	// SQLite writes into the file only in a checkpoint, which changes the index before and after.
	//rule:confirmed_is_durable.notice-overwritten-file
	if f.known.log != before || before.copied != before.attempted {
		return nil
	}
	err = tidemark.Errorf(tidemark.Unavailable,
		"another program has written into %[1]s, which the server has open: nothing more is "+
			"confirmed; stop the server. If a backup was copied into the file, move the log away "+
			"(mv %[1]s-wal %[1]s-wal.old). If the file's content is as before, remove "+
			"%[1]s-lock. Then start the server", f.path)
	f.spoiled.Store(&err)
	return err
}

// Spoiled reports whether Unchanged has found that the database file was overwritten.
func (f *Files) Spoiled() bool { return f.spoiled.Load() != nil }

// Written records how the database file is now. It must be called after each checkpoint.
func (f *Files) Written() error {
	now, err := os.Stat(f.path)
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"the state of the database's files cannot be read")
	}
	f.known.modified, f.known.size = now.ModTime(), now.Size()
	return f.Logged()
}

// Logged records the state of the log. It must be called after each commit, which may have begun
// the log anew.
func (f *Files) Logged() error {
	var index [attemptedAt + 4]byte
	if _, err := f.index.ReadAt(index[:], 0); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"the index of the database's log cannot be read")
	}
	copy(f.known.log.run[:], index[runAt:])
	copy(f.known.log.copied[:], index[copiedAt:])
	copy(f.known.log.attempted[:], index[attemptedAt:])
	return nil
}

// same returns the file at a path, or Unavailable if it is not the one that is open.
// A link to the open file is not that file: the next server would look for the log beside its
// target.
func same(name string, open os.FileInfo) (os.FileInfo, error) {
	//rule:confirmed_is_durable.link-is-another-file
	now, err := os.Lstat(name)
	if err != nil || !os.SameFile(now, open) {
		return nil, tidemark.Errorf(tidemark.Unavailable,
			"the file %s was moved, deleted or replaced under the server: nothing is confirmed "+
				"until it is back; put it back, or stop the server and restore a backup", name)
	}
	return now, nil
}
