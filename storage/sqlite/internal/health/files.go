package health

import (
	"os"

	"github.com/tidemark-im/tidemark"
)

// Files are the files of an open database. Whoever moves or replaces one while it is open does so behind SQLite's back, which goes on with those that it
// has: what it confirms then would be gone with the process.
type Files struct {
	path      string
	main, log os.FileInfo
}

// Watch notes which files are open. Somebody must have read: then the log is there.
func Watch(path string) (f *Files, err error) {
	f = &Files{path: path}
	if f.main, err = os.Stat(path); err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err, "the database file has gone")
	}
	if f.log, err = os.Stat(path + "-wal"); err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the log of the database cannot be found")
	}
	return f, nil
}

// Intact returns an error if a file is not the one that is open.
func (f *Files) Intact() error {
	for _, file := range []struct {
		name string
		open os.FileInfo
	}{{f.path, f.main}, {f.path + "-wal", f.log}} {
		if now, err := os.Stat(file.name); err != nil || !os.SameFile(now, file.open) {
			return tidemark.Errorf(tidemark.Unavailable,
				"the file %s was moved, deleted or replaced under the server: nothing is stored "+
					"until it is back; else stop the server before you restore", file.name)
		}
	}
	return nil
}
