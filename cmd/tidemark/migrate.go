package main

import (
	"context"
	"fmt"

	"github.com/tidemark-im/tidemark/storage/dynamodb"
	"github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Run every migration that the store lacks."`
	Down   migrateDown   `cmd:"" help:"Revert the latest migration. It destroys what only the newer schema contains."`
	Status migrateStatus `cmd:"" help:"Show the schema version of the store, and the one that this program needs."`

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

// Run runs every migration that the store lacks.
func (migrateUp) Run(ctx context.Context, c *migrateCommand, std streams) error {
	return c.to(ctx, up, std)
}

// Run goes one step down.
func (migrateDown) Run(ctx context.Context, c *migrateCommand, std streams) error {
	return c.to(ctx, down, std)
}

// Run prints the two versions. A dirty schema is a failure.
func (migrateStatus) Run(ctx context.Context, c *migrateCommand, std streams) error {
	u, err := c.store()
	if err != nil {
		return err
	}
	return printSchema(ctx, u, std)
}

func (c *migrateCommand) to(ctx context.Context, where direction, std streams) error {
	u, err := c.store()
	if err != nil {
		return err
	}
	switch u.scheme {
	case schemePostgres:
		err = postgres.Migrate(ctx, u.url, postgres.Direction(where))
	case schemeDynamoDB:
		err = dynamodb.Migrate(ctx, u.url, dynamodb.Direction(where))
	default:
		err = sqlite.Migrate(u.path, sqlite.Direction(where))
	}
	if err != nil {
		return err
	}
	return printSchema(ctx, u, std)
}

// store parses the store of the flag. It returns a usageError if the store has no schema.
func (c *migrateCommand) store() (storeURL, error) {
	u, err := parseStore(c.Store)
	if err == nil && u.scheme == schemeMemory {
		err = usagef("the store memory: has no schema")
	}
	return u, err
}

func printSchema(ctx context.Context, u storeURL, std streams) error {
	schema, err := schemaOf(ctx, u)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: schema %d, needed %d\n",
		u.name, schema.Version, schema.Needed)
	if err != nil {
		return err
	}
	if schema.Dirty {
		return halfWay(u)
	}
	return nil
}

func halfWay(u storeURL) error {
	return fmt.Errorf("a migration of %s failed half-way; restore a backup, or repair the schema "+
		"by hand", u.name)
}

func schemaOf(ctx context.Context, u storeURL) (sqlite.Schema, error) {
	switch u.scheme {
	case schemePostgres:
		schema, err := postgres.Status(ctx, u.url)
		return sqlite.Schema(schema), err
	case schemeDynamoDB:
		schema, err := dynamodb.Status(ctx, u.url)
		return sqlite.Schema(schema), err
	}
	return sqlite.Status(u.path)
}
