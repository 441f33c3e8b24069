package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-im/tidemark/storage/sqlite/backup"
)

type backupCommand struct {
	To     string `required:"" placeholder:"FILE" help:"The file to write. It must not exist. While it is written it is called FILE.unfinished-…"`
	Store  string `default:"sqlite:" env:"TIDEMARK_STORE" placeholder:"URL" help:"What to copy: sqlite:PATH."`
	Config string `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"The YAML file of serve; only its store matters here."`
}

// Help is the rest of what `backup --help` says.
func (backupCommand) Help() string {
	return "The server may run. The copy is one moment of the store: every message that was confirmed before the command began is in it, and of each chat " +
		"everything up to some message. It is a database like the original: to restore it, put it in the place of the old one, without that one's -wal and -shm."
}

// Run copies the store, and prints where to and how much.
func (c *backupCommand) Run(_ context.Context, std streams) error {
	u, err := parseStore(c.Store)
	if err != nil {
		return err
	}
	switch u.scheme {
	case schemeMemory:
		return usageError{errors.New("the store memory: is gone with its process; there is nothing to back up")}
	case schemePostgres:
		return usageError{errors.New("back up Postgres with its own tools: pg_dump, or pg_basebackup (docs/postgres.md)")}
	case schemeDynamoDB:
		return usageError{errors.New("back up DynamoDB with AWS: point-in-time recovery, or backups on demand (docs/dynamodb.md)")}
	}
	bytes, err := backup.Write(u.path, c.To)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: %d bytes\n", c.To, bytes)
	return err
}
