// Package versions reads the numbers of SQL migrations, which are pairs of files
// NNNN_name.up.sql and NNNN_name.down.sql.
package versions

import (
	"fmt"
	"io/fs"
	"path"

	"github.com/tidemark-im/tidemark"
)

// Newest returns the number of the latest migration in a folder. Error: Internal (the folder has no
// migration, or the last one has no number).
func Newest(files fs.FS, folder string) (uint, error) {
	names, err := fs.Glob(files, folder+"/*.up.sql")
	if err != nil || len(names) == 0 {
		return 0, tidemark.Errorf(tidemark.Internal, "the embedded migrations are missing")
	}
	var version uint
	if _, err := fmt.Sscanf(path.Base(names[len(names)-1]), "%d_", &version); err != nil {
		return 0, tidemark.Wrap(tidemark.Internal, err, "the embedded migrations have no version")
	}
	return version, nil
}
