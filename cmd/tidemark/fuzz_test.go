package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzReadConfig checks that a file sets only known keys, and that no error shows a secret.
func FuzzReadConfig(f *testing.F) {
	keys := []string{"dev", "listen", "store"}
	for _, s := range []string{
		"listen: 127.0.0.1:1\n", "", "null", "[]", "a: &a [*a]", "listen: {}\n",
		"dev: true\ndev: false\n", "jwt-secret: " + testSecret, "1: 2", "? [a]\n: b",
		"<<: {listen: x}",
		"listen: !!binary x", "\ufefflisten: x", "listen: \x00", "--- a\n--- b", "listen",
		"store: 'sqlite:'\n...\n", "a: &x {b: c}\nlisten: *x",
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

// FuzzParseStore checks that a store has a known scheme.
// It also checks that neither the name nor the error shows the password of a URL.
func FuzzParseStore(f *testing.F) {
	for _, s := range []string{
		"", "memory:", "memory:x", "sqlite:", "sqlite:a b.db", "sqlite://x?y",
		"dynamodb://r/p?endpoint=x", "MEMORY:", ":", "sqlite", "file:a.db",
		"postgres://u:SECRET@h/d",
		"postgresql://u:SECRET@h1:1,h2:2/d?pool_writers=3&target_session_attrs=primary",
		"postgres://h/d?password=SECRET", "postgres://u:a/SECRET@h/d",
		"postgres://u:a@SECRET@h/d", "postgres:u:SECRET@h",
		"postgres:///d?host=/run&pool_readers=SECRET", "postgres://u:?SECRET@h/d",
		"postgres://[::1]:1/d?%zSECRET",
		"dynamodb://AKIA:SECRET@r/p", "dynamodb://r/p?endpoint=http://u:SECRET@h",
		"dynamodb:SECRET@r", "dynamodb://r/p?SECRET",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := parseStore(raw)
		shown := u.name
		switch {
		case err == nil && u.scheme == schemeMemory && raw == "memory:":
		case err == nil && u.scheme == schemeSQLite &&
			(raw == "sqlite:"+u.path || raw == "sqlite:" && u.path == defaultDatabase):
			return // the path is shown
		case err == nil && (u.scheme == schemePostgres || u.scheme == schemeDynamoDB) &&
			u.url == raw:
		case err == nil:
			t.Errorf("%q gave %+v", raw, u)
		default:
			shown = err.Error()
		}
		// The parts before an @ and behind the question mark must not be shown.
		secret := raw[:strings.LastIndex(raw, "@")+1]
		if _, query, _ := strings.Cut(raw, "?"); strings.Contains(query, "SECRET") {
			secret = query
		}
		secret = secret[strings.LastIndexAny(secret, ":/?=")+1:]
		if len(secret) > len("%40") && strings.Contains(shown, secret) {
			t.Errorf("%q shows %q in %q", raw, secret, shown)
		}
	})
}
