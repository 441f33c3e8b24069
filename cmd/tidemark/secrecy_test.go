package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStore_postgres_keeps_the_url_and_shows_no_password(t *testing.T) {
	for raw, name := range map[string]string{
		"postgres://u:p@h:1/d": "postgres://h:1/d",
		"postgresql://u:p%2F%40@h/d?sslmode=verify-full&password=p": "postgres://h/d",
		"postgres://u:p@h1:1,[::2]:2/d":                             "postgres://h1:1,[::2]:2/d",
		"postgres:///d?host=/run/postgresql":                        "postgres:///d",
		"postgres://":                                               "postgres://",
		"postgres://u:p?q@h/d":                                      "postgres://h/d",
	} {
		got, err := parseStore(raw)
		want := storeURL{scheme: schemePostgres, url: raw, name: name}
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", raw, got, err, want)
		}
	}
}

func TestParseStore_dynamodb_keeps_the_url_and_shows_the_place(t *testing.T) {
	for raw, name := range map[string]string{
		"dynamodb://eu-central-1/tidemark-":                 "dynamodb://eu-central-1/tidemark-",
		"dynamodb://r/p?endpoint=http://u:secret@127.0.0.1": "dynamodb://r/p",
		"dynamodb://r": "dynamodb://r",
	} {
		got, err := parseStore(raw)
		want := storeURL{scheme: schemeDynamoDB, url: raw, name: name}
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", raw, got, err, want)
		}
	}
}

// TestHideArguments_writes_over_the_url_and_nothing_else checks that the copies are complete.
// A test of the program in test/ shows what the kernel shows.
func TestHideArguments_writes_over_the_url_and_nothing_else(t *testing.T) {
	written := []string{
		"serve", "--store=postgres://u:p q@h/d", "--store", "postgresql://u:p@h",
		"--store=dynamodb://u:p@r", "--redis=redis://:p@h", "--redis", "rediss+sentinel://u:p@h/m",
		"--kafka", "kafkas://u:p@h", "--kafka=kafka://u:p@h", "--listen", ":8080", "",
	}
	args := make([]string, len(written))
	for i, arg := range written {
		args[i] = string([]byte(arg)) // memory that may be written to
	}
	copied := hideArguments(args)
	if diff := cmp.Diff(written, copied); diff != "" {
		t.Errorf("the copies (-want +got):\n%s", diff)
	}
	want := []string{
		"serve", "--store=postgres:***********", "--store", "postgresql:*******",
		"--store=dynamodb:*******", "--redis=redis:******", "--redis", "rediss+sentinel:*********",
		"--kafka", "kafkas:*******", "--kafka=kafka:*******", "--listen", ":8080", "",
	}
	if diff := cmp.Diff(want, args); diff != "" {
		t.Errorf("the originals (-want +got):\n%s", diff)
	}
}
