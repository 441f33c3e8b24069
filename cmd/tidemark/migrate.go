package main

import (
	"context"
	"fmt"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb"
	"github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Run every migration that the store lacks."`
	Down   migrateDown   `cmd:"" help:"Revert the latest migration. It destroys what only the newer schema contains."`
	Status migrateStatus `cmd:"" help:"Show the schema of the store: its version, the oldest compatible program, and what this program needs."`

	Store  string `default:"sqlite:" env:"TIDEMARK_STORE" placeholder:"URL" help:"Where messages are kept: sqlite:PATH, postgres://… or dynamodb://…"`
	Config string `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"The YAML file of serve; only its store is used."`
}

type (
	migrateUp     struct{}
	migrateDown   struct{}
	migrateStatus struct{}
)

// direction is the direction of a migration. Every backend uses the same words.
type direction string

const (
	up   = direction(sqlite.Up)
	down = direction(sqlite.Down)
)

// Run runs every migration that the store lacks. If a newer program has migrated the store, it says
// that there is nothing to do.
func (migrateUp) Run(ctx context.Context, c *migrateCommand, std streams) error {
	u, schema, err := c.to(ctx, up)
	if err == nil {
		err = printSchema(u, schema, std)
	}
	if err != nil || schema.Version <= schema.Needed {
		return err
	}
	_, err = fmt.Fprintln(std.out, "nothing to do: a newer program made the schema, and this "+
		"program can use it")
	return err
}

// Run goes one step down.
func (migrateDown) Run(ctx context.Context, c *migrateCommand, std streams) error {
	u, schema, err := c.to(ctx, down)
	if err != nil {
		return err
	}
	return printSchema(u, schema, std)
}

// Run prints the schema. A dirty schema is a failure.
func (migrateStatus) Run(ctx context.Context, c *migrateCommand, std streams) error {
	u, err := c.store()
	if err != nil {
		return err
	}
	schema, err := schemaOf(ctx, u)
	if err != nil {
		return err
	}
	return printSchema(u, schema, std)
}

// to migrates the store, and returns its schema after that.
func (c *migrateCommand) to(
	ctx context.Context, where direction,
) (u storeURL, schema storage.Schema, err error) {
	if u, err = c.store(); err != nil {
		return u, schema, err
	}
	switch u.scheme {
	case schemePostgres:
		err = postgres.Migrate(ctx, u.url, postgres.Direction(where))
	case schemeDynamoDB:
		err = dynamodb.Migrate(ctx, u.url, dynamodb.Direction(where))
	default:
		err = sqlite.Migrate(u.path, sqlite.Direction(where))
	}
	if err == nil {
		schema, err = schemaOf(ctx, u)
	}
	return u, schema, err
}

// store parses the store of the flag. It returns a usageError if the store has no schema.
func (c *migrateCommand) store() (storeURL, error) {
	u, err := parseStore(c.Store)
	if err == nil && u.scheme == schemeMemory {
		err = usagef("the store memory: has no schema")
	}
	return u, err
}

func printSchema(u storeURL, schema storage.Schema, std streams) error {
	_, err := fmt.Fprintf(std.out, "%s: schema %d, compatible %d, needed %d\n",
		u.name, schema.Version, schema.Compatible, schema.Needed)
	if err != nil {
		return err
	}
	if err := schema.Ended(); err != nil {
		return fmt.Errorf("%s: %w", u.name, err)
	}
	return nil
}

func schemaOf(ctx context.Context, u storeURL) (storage.Schema, error) {
	switch u.scheme {
	case schemePostgres:
		return postgres.Status(ctx, u.url)
	case schemeDynamoDB:
		return dynamodb.Status(ctx, u.url)
	}
	return sqlite.Status(u.path)
}
