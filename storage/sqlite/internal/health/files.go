package health

import (
	"os"

	"github.com/tidemark-im/tidemark"
)

// Files identifies the files of an open database. If somebody moves or replaces one, SQLite does
// not notice, and continues with the old file. The writes that it then confirms would be lost when
// the process ends.
type Files struct {
	path string
	// Main is the database file, and Log its write-ahead log.
	Main, Log os.FileInfo
}

// Watch records which files are open. A read must have happened before: it creates the log.
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
	return f, nil
}

// Intact returns Unavailable if a path no longer leads to the file that is open.
func (f *Files) Intact() error {
	if err := same(f.path, f.Main); err != nil {
		return err
	}
	return same(f.path+"-wal", f.Log)
}

// InPlace is Intact for the database file alone, at half the price.
func (f *Files) InPlace() error { return same(f.path, f.Main) }

func same(name string, open os.FileInfo) error {
	if now, err := os.Stat(name); err != nil || !os.SameFile(now, open) {
		return tidemark.Errorf(tidemark.Unavailable,
			"the file %s was moved, deleted or replaced under the server: nothing is confirmed "+
				"until it is back; put it back, or stop the server and restore a backup", name)
	}
	return nil
}
