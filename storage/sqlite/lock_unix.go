//go:build unix

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/tidemark-im/tidemark"
)

// lock locks the file PATH-lock for this Store alone. The kernel releases the lock whenever the
// process ends. The file stays: if it were removed, two openers could hold two locks.
//
// Conflict: another Store has the database, or may have it by another name. Unavailable: the lock
// file cannot be used, or the log is that of another database file.
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
	if err := errors.Join(soleName(path), ownLog(path, f)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// soleName returns Conflict if the database file has several names (hard links): the lock of each
// name is another one.
func soleName(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil // the file is made, or its opening says what is wrong
	}
	//rule:sequence_gapless.one-name-of-the-file
	if links := info.Sys().(*syscall.Stat_t).Nlink; links > 1 {
		return tidemark.Errorf(tidemark.Conflict,
			"the database %s has %d names (hard links), and another server could open it by "+
				"another one; remove all names but one, or copy the file", path, links)
	}
	return nil
}

// maxNote is the greatest length of the content of a lock file.
const maxNote = 500

// noteClosed adds to the lock file how the database was left: by which incarnation, and with which
// times. closedAs reads it. If it cannot be written, the next Open begins a new incarnation.
func noteClosed(held *os.File, main os.FileInfo, path string, of tidemark.Incarnation) {
	now, err := os.Stat(path)
	if err != nil || !os.SameFile(now, main) || hasLog(path) {
		return
	}
	if as := leftAs(now); as != "" {
		if info, err := held.Stat(); err == nil {
			_, _ = held.WriteAt([]byte(string(of)+" "+as+"\n"), info.Size())
		}
	}
}

// noteAgain replaces what noteClosed wrote, after a migration has changed the file. The data are
// the same, so their incarnation continues.
func noteAgain(held *os.File, path string, of tidemark.Incarnation) {
	noted, err := io.ReadAll(io.NewSectionReader(held, 0, maxNote))
	if err != nil {
		return
	}
	files := int64(bytes.IndexByte(noted, '\n') + 1)
	if main, err := os.Stat(path); err == nil && held.Truncate(files) == nil {
		noteClosed(held, main, path, of)
	}
}

// closedAs returns the incarnation that left the database as it is now. It is empty if nothing
// shows that no other program has put another content there: after a crash, for example, or if the
// file was copied.
func closedAs(path string, held *os.File) (of tidemark.Incarnation) {
	var main, log, as string
	noted, err := io.ReadAll(io.NewSectionReader(held, 0, maxNote))
	if err != nil {
		return ""
	}
	if n, _ := fmt.Sscan(string(noted), &main, &log, &of, &as); n < 4 {
		return ""
	}
	info, err := os.Stat(path)
	//rule:restore_is_noticed.file-is-as-it-was-left
	if err != nil || hasLog(path) || leftAs(info) != as {
		return ""
	}
	return of
}

// hasLog reports whether there is a log that the next opener copies into the database.
func hasLog(path string) bool {
	log, err := os.Stat(path + "-wal")
	return err == nil && log.Size() > 0
}

// note writes into the lock file which files are open. ownLog of the next opener reads it.
func note(held *os.File, main, log os.FileInfo) error {
	return writeNote(held, identity(main)+" "+identity(log))
}

// noteSpoiled writes into the lock file that the database file was overwritten, so the log may no
// longer belong to it. ownLog of the next opener then refuses.
func noteSpoiled(held *os.File, log os.FileInfo) error {
	return writeNote(held, spoiled+" "+identity(log))
}

// spoiled replaces, in the lock file, the identity of a database file that was overwritten.
const spoiled = "overwritten"

func writeNote(held *os.File, text string) error {
	err := held.Truncate(0)
	if err == nil {
		_, err = held.WriteAt([]byte(text+"\n"), 0)
	}
	if err == nil {
		err = held.Sync()
	}
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"the lock file "+held.Name()+" cannot be written")
	}
	return nil
}

// identity names a file on this machine, whatever its path is.
func identity(info os.FileInfo) string {
	s := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", s.Dev, s.Ino)
}

// ownLog returns Unavailable if the log is the one that the last server wrote, but the database is
// another file or was overwritten. SQLite would put the log's pages into it. Files that were copied
// together are fine.
func ownLog(path string, held *os.File) error {
	var main, log string
	noted, err := io.ReadAll(io.NewSectionReader(held, 0, maxNote))
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"the lock file "+held.Name()+" cannot be read")
	}
	_, _ = fmt.Sscan(string(noted), &main, &log) // empty before the first server
	mainNow, mainErr := os.Stat(path)
	logNow, logErr := os.Stat(path + "-wal")
	if logErr != nil || logNow.Size() == 0 {
		return nil
	}
	//rule:confirmed_is_durable.refuse-log-without-file
	if errors.Is(mainErr, os.ErrNotExist) {
		return tidemark.Errorf(tidemark.Unavailable,
			"the database %[1]s is missing, and its log %[1]s-wal is still there; the log may "+
				"hold confirmed messages, and a new database would destroy it: put the database "+
				"back, or move the log away (mv %[1]s-wal %[1]s-wal.old)", path)
	}
	if mainErr != nil {
		return nil // its opening says what is wrong
	}
	if main == spoiled && identity(logNow) == log {
		return tidemark.Errorf(tidemark.Unavailable,
			"another program wrote into %[1]s while the last server had it open; if a backup was "+
				"copied into it, move the log away (mv %[1]s-wal %[1]s-wal.old); if the file's "+
				"content is as before, remove %[1]s-lock", path)
	}
	//rule:confirmed_is_durable.refuse-log-of-another-file
	if main != "" && identity(mainNow) != main && identity(logNow) == log {
		return tidemark.Errorf(tidemark.Unavailable,
			"the database %[1]s is another file than before, but %[1]s-wal is still the log of "+
				"the file before, and would spoil this one; to use this file, move the log away "+
				"(mv %[1]s-wal %[1]s-wal.old), else put the file before back", path)
	}
	return nil
}
