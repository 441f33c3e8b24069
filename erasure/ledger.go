package erasure

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Ledger is a file outside the database that says who was erased, so that a restored backup does
// not bring them back. Each line has a time and a keyed hash of an id. The file only grows. A
// Ledger knows the lines of the file when it was opened, and its own since. With another key it
// finds nobody. A nil Ledger is empty and keeps nothing. It is safe for concurrent use. Several
// processes may append to one file if its file system appends each line as a whole.
type Ledger struct {
	path string
	key  []byte

	mu     sync.RWMutex
	hashes map[string]struct{}
}

// minLedgerKey is the least length of the key, in bytes.
const minLedgerKey = 32

// OpenLedger reads a ledger, and makes the file if it is not there.
//
// Invalid: the key is too short, or the file is damaged. A last line without an end is what a crash
// left, and is completed by the job that wrote it.
func OpenLedger(path string, key []byte) (*Ledger, error) {
	if len(key) < minLedgerKey {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the key of the ledger has %d bytes, and needs at least %d", len(key), minLedgerKey)
	}
	l := &Ledger{path: path, key: key, hashes: map[string]struct{}{}}
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err, "the ledger cannot be opened")
	}
	defer func() { _ = file.Close() }() // It was only read.
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		if err := l.take(lines.Text()); err != nil {
			return nil, tidemark.Wrap(tidemark.Invalid, err,
				fmt.Sprintf("line %d of the ledger is damaged; restore the file", n))
		}
	}
	return l, tidemark.Wrap(tidemark.Unavailable, lines.Err(), "the ledger cannot be read")
}

// sumLength is the length of a hash in the file.
const sumLength = 2 * sha256.Size

// take reads a line. A crash may leave the beginning of one, with the next line behind it.
func (l *Ledger) take(line string) error {
	if line == "" {
		return nil
	}
	at, sum, found := strings.Cut(line, " ")
	if !found || len(sum) < sumLength {
		return nil // The job has written it again.
	}
	if _, err := time.Parse(time.RFC3339, at); err != nil {
		return err
	}
	if _, err := hex.DecodeString(sum); err != nil || len(sum) != sumLength {
		return errors.New("it has no hash")
	}
	l.hashes[sum] = struct{}{}
	return nil
}

func (l *Ledger) sum(user tidemark.UserID) string {
	h := hmac.New(sha256.New, l.key)
	h.Write([]byte(user))
	return hex.EncodeToString(h.Sum(nil))
}

// empty reports whether nobody is in the ledger.
func (l *Ledger) empty() bool {
	if l == nil {
		return true
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.hashes) == 0
}

// has reports whether a user is in the ledger.
func (l *Ledger) has(user tidemark.UserID) bool {
	if l.empty() {
		return false
	}
	sum := l.sum(user)
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, found := l.hashes[sum]
	return found
}

// record appends a user, unless they are in the ledger. When it returns nil, the line is on disk.
func (l *Ledger) record(user tidemark.UserID, now time.Time) error {
	if l == nil || l.has(user) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.sum(user)
	if err := l.write("\n" + now.UTC().Format(time.RFC3339) + " " + sum + "\n"); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the ledger cannot be written")
	}
	l.hashes[sum] = struct{}{}
	return nil
}

// write appends a text to the file, and syncs the file and its folder. The text begins with the end
// of a line, because a crash may have left a line without one.
func (l *Ledger) write(text string) error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
