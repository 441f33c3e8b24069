package sqlite

import (
	"fmt"
	"os"
	"syscall"
)

// leftAs describes the state of a file. Every later write, copy or exchange of the file changes it,
// because the kernel sets the time of the last change (ctime), and no program can set it.
func leftAs(info os.FileInfo) string {
	s := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%s:%d:%d.%09d", identity(info), s.Size, s.Ctim.Sec,
		s.Ctim.Nsec)
}
