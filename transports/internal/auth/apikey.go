package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// apiKeyPrefix marks API keys: they are told from tokens by it, and programs that look for secrets in the wrong places find them by it.
	apiKeyPrefix = "tmk_"
	// hashPrefix names the hash in the file.
	hashPrefix = "sha256:"
	// maxKeysFile is the greatest size of the file in bytes.
	maxKeysFile = 1 << 20
	// rereadEvery is how often the file is looked at, and so how long a key that was taken out of it goes on.
	rereadEvery = 5 * time.Second
)

// NewAPIKey makes a key, and its line for the file. Invalid if the name is no id.
func NewAPIKey(name string) (secret, line string, err error) {
	if err := tidemark.CheckID("name", name); err != nil {
		return "", "", err
	}
	// 130 bits: nobody can try them, so one plain hash keeps them
	secret = apiKeyPrefix + rand.Text()
	hash := sha256.Sum256([]byte(secret))
	return secret, name + " " + hashPrefix + hex.EncodeToString(hash[:]), nil
}

// apiKey is a key of the file. Two states of the file that both have it share it.
type apiKey struct {
	name string
	// id names the key on every node that has it: half of its hash, in hexadecimal digits.
	id string
	// withdrawn is set when the file has it no more; streams that were opened with it look.
	withdrawn atomic.Bool
}

// APIKeys is the keys of backends, read from a file that holds their hashes. Run reads it again whenever it has changed. It is safe for concurrent
// use.
type APIKeys struct {
	path   string
	logger *slog.Logger
	// trouble is what was wrong with the file when Run last read it, "" for nothing, so that only changes are logged.
	trouble string

	mu sync.Mutex
	// keys is by hash. How long a look-up takes tells about hashes at most, and those lead to no key.
	keys map[[sha256.Size]byte]*apiKey
	raw  []byte
}

// LoadAPIKeys reads the file: a line `name sha256:hash` for each key, as NewAPIKey makes it; empty lines and those that begin with # are
// left out.
//
// Errors: Invalid, with the number of a line that is malformed; also if anybody on the machine may write the file. If anybody may read it, that
// is logged.
func LoadAPIKeys(path string, logger *slog.Logger) (*APIKeys, error) {
	if logger == nil {
		logger = slog.Default()
	}
	a := &APIKeys{path: path, logger: logger}
	return a, a.reload()
}

// Run reads the file again when it has changed, until ctx ends. If the new state is broken the old one goes on.
func (a *APIKeys) Run(ctx context.Context) {
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		trouble := ""
		if err := a.reload(); err != nil {
			trouble = err.Error()
		}
		if trouble != a.trouble && trouble != "" {
			a.logger.Error("the file of API keys is not read; the keys that are known go on",
				"file", a.path, "error", trouble)
		}
		a.trouble = trouble
	}
}

// reload reads the file, and takes its keys over if they are others.
func (a *APIKeys) reload() error {
	raw, mode, err := readKeysFile(a.path)
	if err != nil {
		return &tidemark.Error{
			Code:   tidemark.Invalid,
			Detail: "the file of API keys cannot be used",
			Err:    err,
		}
	}
	a.mu.Lock()
	same := a.keys != nil && bytes.Equal(raw, a.raw)
	old := a.keys
	a.mu.Unlock()
	if same {
		return nil
	}
	keys, err := parseKeysFile(raw)
	if err != nil {
		return fmt.Errorf("%s, %w", a.path, err)
	}
	for hash, k := range keys {
		if before := old[hash]; before != nil && before.name == k.name {
			keys[hash] = before
		}
	}
	a.mu.Lock()
	a.keys, a.raw = keys, raw
	a.mu.Unlock()
	for hash, k := range old {
		if keys[hash] != k {
			//rule:credentials_end.withdraw-key
			k.withdrawn.Store(true)
		}
	}
	a.logger.Info("the API keys were read", "file", a.path, "keys", len(keys))
	if mode.Perm()&0o004 != 0 {
		a.logger.Warn("anybody on this machine can read the file of API keys; it holds no key, "+
			"but it is nobody's business: chmod o-r", "file", a.path)
	}
	return nil
}

func readKeysFile(path string) ([]byte, fs.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return nil, mode, fmt.Errorf("%s is not a regular file; it is read again and again", path)
	case mode.Perm()&0o002 != 0:
		return nil, mode, fmt.Errorf("anybody on this machine may write %s, and so let himself "+
			"in: chmod o-w", path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxKeysFile+1))
	if err == nil && len(raw) > maxKeysFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxKeysFile)
	}
	return raw, mode, err
}

// parseKeysFile reads the lines. Its errors repeat nothing of a line, which may be a key by mistake.
func parseKeysFile(raw []byte) (map[[sha256.Size]byte]*apiKey, error) {
	keys := make(map[[sha256.Size]byte]*apiKey)
	names := make(map[string]bool)
	number := 0
	for line := range strings.Lines(string(raw)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		bad := func(what string) error {
			return tidemark.Errorf(tidemark.Invalid,
				"line %d: %s; a line is NAME %sHASH, as `tidemark api-key` prints it", number, what,
				hashPrefix)
		}
		if strings.Contains(line, apiKeyPrefix) {
			return nil, bad("it holds an API key itself, and the file is for their hashes: " +
				"withdraw that key")
		}
		name, hash, _ := strings.Cut(line, " ")
		digits, ok := strings.CutPrefix(strings.TrimSpace(hash), hashPrefix)
		sum, err := hex.DecodeString(digits)
		switch {
		case !tidemark.ValidID(name):
			return nil, bad("its name is none: 1 to 128 characters of A-Z a-z 0-9 _ . : -")
		case !ok || err != nil || len(sum) != sha256.Size:
			return nil, bad("its hash is none: 64 hexadecimal digits")
		//rule:credentials_end.refuse-duplicate-key-name
		case names[name]:
			return nil, bad("an earlier line has the same name")
		case keys[[sha256.Size]byte(sum)] != nil:
			return nil, bad("an earlier line has the same hash")
		}
		names[name] = true
		keys[[sha256.Size]byte(sum)] = &apiKey{
			name: name,
			id:   hex.EncodeToString(sum[:sha256.Size/2]),
		}
	}
	return keys, nil
}

// find returns the key that a caller shows. Unauthenticated if there is no such one.
func (a *APIKeys) find(secret string) (*apiKey, error) {
	if a == nil {
		return nil, tidemark.Errorf(tidemark.Unauthenticated, "this server accepts no API keys")
	}
	hash := sha256.Sum256([]byte(secret))
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.keys[hash]; k != nil {
		return k, nil
	}
	return nil, tidemark.Errorf(tidemark.Unauthenticated,
		"the API key is unknown, or was withdrawn")
}

// named returns the key with an id, nil if there is none.
func (a *APIKeys) named(id string) *apiKey {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.keys {
		if k.id == id {
			return k
		}
	}
	return nil
}
