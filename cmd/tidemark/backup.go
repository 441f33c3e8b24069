package main

import (
	"context"
	"fmt"

	"github.com/tidemark-im/tidemark/storage/sqlite/backup"
)

type backupCommand struct {
	To     string `required:"" placeholder:"FILE" help:"File to write. It must not exist. Until it is complete, its name is FILE.unfinished-…"`
	Store  string `default:"sqlite:" env:"TIDEMARK_STORE" placeholder:"URL" help:"What to copy: sqlite:PATH."`
	Config string `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"The YAML file of serve; only its store is used."`
}

// Help returns the rest of the text of `backup --help`.
func (backupCommand) Help() string {
	return "The server may run. The copy shows one moment of the store. It contains every " +
		"message that was confirmed before the command began, and no chat has a gap in it. " +
		"The copy is a database like the original. To restore it, put it in place of the old " +
		"file, and remove the -wal and -shm files of the old one."
}

// Run copies the store, and prints the file and its size.
func (c *backupCommand) Run(_ context.Context, std streams) error {
	u, err := parseStore(c.Store)
	if err != nil {
		return err
	}
	switch u.scheme {
	case schemeMemory:
		return usagef("the store memory: is gone with its process; there is nothing to back up")
	case schemePostgres:
		return usagef("back up Postgres with its own tools: pg_dump, or pg_basebackup " +
			"(docs/postgres.md)")
	case schemeDynamoDB:
		return usagef("back up DynamoDB with AWS: point-in-time recovery, or backups on demand " +
			"(docs/dynamodb.md)")
	}
	bytes, err := backup.Write(u.path, c.To)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: %d bytes\n", c.To, bytes)
	return err
}
