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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// apiKeyPrefix marks API keys. It sets them apart from tokens, and lets secret scanners find
	// leaked keys.
	apiKeyPrefix = "tmk_"
	// hashPrefix names the hash function in the file.
	hashPrefix = "sha256:"
	// maxKeysFile is the largest size of the file, in bytes.
	maxKeysFile = 1 << 20
	// rereadEvery is how often Run reads the file, and so how long a removed key still works.
	rereadEvery = 5 * time.Second
)

// NewAPIKey returns a new key and its line for the file. Without scopes the key has all of them. It
// returns Invalid if the name is not an id.
func NewAPIKey(name string, scopes ...Scope) (secret, line string, err error) {
	if err := tidemark.CheckID("name", name); err != nil {
		return "", "", err
	}
	// A key has 130 random bits. No attacker can try them all, so a plain hash is enough.
	secret = apiKeyPrefix + rand.Text()
	hash := sha256.Sum256([]byte(secret))
	line = name + " " + hashPrefix + hex.EncodeToString(hash[:])
	for i, scope := range scopes {
		if i == 0 {
			line += " " + scopesPrefix
		} else {
			line += ","
		}
		line += string(scope)
	}
	return secret, line, nil
}

// apiKey is a key of the file. If two versions of the file have the key, both share the value.
type apiKey struct {
	name string
	// id names the key on every node that has it: the first half of its hash, in hexadecimal.
	id string
	// scopes are what the key allows.
	scopes []Scope
	// withdrawn is true once the file no longer has the key. Open streams check it.
	withdrawn atomic.Bool
}

// APIKeys holds the keys of backends. It reads them from a file of their hashes, which Run reads
// again. It is safe for concurrent use.
type APIKeys struct {
	path   string
	logger *slog.Logger
	// lastError is the error of the latest read in Run, or "". Run logs only when it changes.
	lastError string

	mu sync.Mutex
	// keys maps hashes to keys. The time of a lookup can reveal hashes at most, and they lead to no
	// key.
	keys map[[sha256.Size]byte]*apiKey
	raw  []byte
}

// LoadAPIKeys reads the file of API keys. A line is `name sha256:hash`, as NewAPIKey returns it,
// and may end in `scopes=` and a list with commas. Empty lines and lines that begin with # are
// ignored.
//
// It returns Invalid if a line is malformed, with its number, or if every user of the machine can
// write the file. If every user can read it, LoadAPIKeys logs a warning.
func LoadAPIKeys(path string, logger *slog.Logger) (*APIKeys, error) {
	if logger == nil {
		logger = slog.Default()
	}
	a := &APIKeys{path: path, logger: logger}
	return a, a.reload()
}

// Run reads the file every rereadEvery until ctx ends. While the file is broken, the known keys
// stay valid.
func (a *APIKeys) Run(ctx context.Context) {
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		message := ""
		if err := a.reload(); err != nil {
			message = err.Error()
		}
		if message != a.lastError && message != "" {
			a.logger.Error("the file of API keys cannot be read; the known keys stay valid",
				"file", a.path, "error", message)
		}
		a.lastError = message
	}
}

// reload reads the file. If it changed, reload takes over its keys and withdraws those that are
// gone.
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
		if before := old[hash]; before != nil && before.name == k.name &&
			slices.Equal(before.scopes, k.scopes) {
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
		a.logger.Warn("every user of this machine can read the file of API keys; "+
			"it holds hashes only, but restrict it: chmod o-r", "file", a.path)
	}
	return nil
}

func readKeysFile(path string) ([]byte, fs.FileMode, error) {
	// Without O_NONBLOCK, opening a pipe would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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
		return nil, mode, fmt.Errorf("%s is not a regular file; the server has to reread it",
			path)
	case mode.Perm()&0o002 != 0:
		return nil, mode, fmt.Errorf("every user of this machine can write %s and so add a key; "+
			"restrict it: chmod o-w", path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxKeysFile+1))
	if err == nil && len(raw) > maxKeysFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxKeysFile)
	}
	return raw, mode, err
}

// parseKeysFile returns the keys of the file. Its errors quote nothing of a line, because a line
// may hold a key by mistake.
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
				"line %d: %s; a line is NAME %sHASH, as `tidemark api-key` prints it, "+
					"and may end in %sact,send,chats,tokens,stats,moderate,export,erase,admin",
				number, what, hashPrefix, scopesPrefix)
		}
		if strings.Contains(line, apiKeyPrefix) {
			return nil, bad("it holds an API key itself, but the file is for hashes; " +
				"withdraw that key")
		}
		words := append(strings.Fields(line), "", "", "")
		name := words[0]
		digits, ok := strings.CutPrefix(words[1], hashPrefix)
		sum, err := hex.DecodeString(digits)
		scopes, badScopes := Scopes, error(nil)
		if list, named := strings.CutPrefix(words[2], scopesPrefix); named {
			scopes, badScopes = ParseScopes(list)
		}
		switch {
		case !tidemark.ValidID(name):
			return nil, bad("its name is not valid: 1 to 128 characters of A-Z a-z 0-9 _ . : -")
		case !ok || err != nil || len(sum) != sha256.Size:
			return nil, bad("its hash is not valid: 64 hexadecimal digits")
		//rule:caller_does_only_what_they_may.refuse-unknown-scope
		case badScopes != nil:
			return nil, bad("its " + tidemark.DetailOf(badScopes))
		case words[2] != "" && !strings.HasPrefix(words[2], scopesPrefix), words[3] != "":
			return nil, bad("it has more words")
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

			scopes: scopes,
		}
	}
	return keys, nil
}

// find returns the key with a secret. It returns Unauthenticated if there is none.
func (a *APIKeys) find(secret string) (*apiKey, error) {
	if a == nil {
		return nil, tidemark.Errorf(tidemark.Unauthenticated,
			"this server accepts no API keys; send a user's token")
	}
	hash := sha256.Sum256([]byte(secret))
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.keys[hash]; k != nil {
		return k, nil
	}
	return nil, tidemark.Errorf(tidemark.Unauthenticated,
		"the API key is unknown, or was withdrawn; ask the operator for a new one")
}

// named returns the key with an id, or nil if there is none.
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
