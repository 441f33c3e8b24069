package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzReadConfig: a file gives values of known keys only, and an error never shows a secret.
func FuzzReadConfig(f *testing.F) {
	keys := []string{"dev", "listen", "store"}
	for _, s := range []string{
		"listen: 127.0.0.1:1\n", "", "null", "[]", "a: &a [*a]", "listen: {}\n", "dev: true\ndev: false\n", "jwt-secret: " + testSecret, "1: 2", "? [a]\n: b", "<<: {listen: x}",
		"listen: !!binary x", "\ufefflisten: x", "listen: \x00", "--- a\n--- b", "listen", "store: 'sqlite:'\n...\n", "a: &x {b: c}\nlisten: *x",
	} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := readConfig(path, keys)
		if err != nil {
			if strings.Contains(err.Error(), testSecret) {
				t.Errorf("the secret is shown: %v", err)
			}
			return
		}
		for key, value := range file {
			if !slices.Contains(keys, key) || value == nil {
				t.Errorf("%q gave %q: %v", raw, key, value)
			}
		}
	})
}

// FuzzParseStore: a store is one of those that there are, and the error about another shows nothing of its URL but the scheme.
func FuzzParseStore(f *testing.F) {
	for _, s := range []string{"", "memory:", "memory:x", "sqlite:", "sqlite:a b.db", "sqlite://x?y", "postgres://u:p@h/d", "dynamodb://r/p?endpoint=x", "MEMORY:", ":", "sqlite", "file:a.db"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := parseStore(raw)
		switch {
		case err == nil && u.scheme == schemeMemory && raw == "memory:":
		case err == nil && u.scheme == schemeSQLite && (raw == "sqlite:"+u.path || raw == "sqlite:" && u.path == defaultDatabase):
		case err == nil:
			t.Errorf("%q gave %+v", raw, u)
		case len(raw) > 60 && strings.Contains(err.Error(), raw[len("postgresql://"):]) && !strings.HasPrefix(raw, "memory:"):
			t.Errorf("%q gave %v", raw, err)
		}
	})
}
