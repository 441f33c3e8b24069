//go:build !unix

package sqlite

import (
	"os"

	"github.com/tidemark-im/tidemark"
)

// lock returns Unavailable: without flock, two servers could open one database.
func lock(string) (*os.File, error) {
	return nil, tidemark.Errorf(tidemark.Unavailable,
		"the SQLite backend needs a Unix system, because it locks its file with flock")
}

func note(*os.File, os.FileInfo, os.FileInfo) error { return nil }

func noteClosed(*os.File, os.FileInfo, string, tidemark.Incarnation) {}

func noteAgain(*os.File, string, tidemark.Incarnation) {}

func closedAs(string, *os.File) tidemark.Incarnation { return "" }

func noteSpoiled(*os.File, os.FileInfo) error { return nil }

func hasLog(string) bool { return false }
