package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-im/tidemark/storage/dynamodb"
	"github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Run every migration that the store lacks."`
	Down   migrateDown   `cmd:"" help:"Revert the latest migration. It destroys what only the newer schema holds."`
	Status migrateStatus `cmd:"" help:"Show the schema that the store has, and the one that this program needs."`

	Store  string `default:"sqlite:" env:"TIDEMARK_STORE" placeholder:"URL" help:"Where messages are kept: sqlite:PATH, postgres://… or dynamodb://…"`
	Config string `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"The YAML file of serve; only its store matters here."`
}

type (
	migrateUp     struct{}
	migrateDown   struct{}
	migrateStatus struct{}
)

// direction is where a migration goes, in the words of every backend.
type direction string

const (
	up   = direction(sqlite.Up)
	down = direction(sqlite.Down)
)

// migration is a command below migrate, whose flags are those of all.
type migration interface {
	migrate(ctx context.Context, c *migrateCommand, std streams) error
}

func (migrateUp) migrate(ctx context.Context, c *migrateCommand, std streams) error {
	return c.to(ctx, up, std)
}

// migrate goes one step down.
func (migrateDown) migrate(ctx context.Context, c *migrateCommand, std streams) error {
	return c.to(ctx, down, std)
}

// migrate prints the two versions. A dirty schema is a failure.
func (migrateStatus) migrate(ctx context.Context, c *migrateCommand, std streams) error {
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

// store is the store of the flag, which has a schema.
func (c *migrateCommand) store() (storeURL, error) {
	u, err := parseStore(c.Store)
	if err == nil && u.scheme == schemeMemory {
		err = usageError{errors.New("the store memory: has no schema")}
	}
	return u, err
}

func printSchema(ctx context.Context, u storeURL, std streams) error {
	schema, err := schemaOf(ctx, u)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(std.out, "%s: schema %d, needed %d\n", u.name, schema.Version, schema.Needed); err != nil {
		return err
	}
	if schema.Dirty {
		return fmt.Errorf("a migration of %s failed half-way; restore a backup, or mend the schema by hand", u.name)
	}
	return nil
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
