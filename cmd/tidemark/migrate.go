package main

import (
	"errors"
	"fmt"

	"github.com/tidemark-im/tidemark/storage/sqlite"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Run every migration that the store lacks."`
	Down   migrateDown   `cmd:"" help:"Revert the latest migration. It destroys what only the newer schema holds."`
	Status migrateStatus `cmd:"" help:"Show the schema that the store has, and the one that this program needs."`

	Store  string `default:"sqlite:" env:"TIDEMARK_STORE" placeholder:"URL" help:"Where messages are kept: sqlite:PATH."`
	Config string `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"The YAML file of serve; only its store matters here."`
}

type (
	migrateUp     struct{}
	migrateDown   struct{}
	migrateStatus struct{}
)

// Run migrates up.
func (migrateUp) Run(cli *commands, std streams) error {
	return cli.Migrate.to(sqlite.Up, std)
}

// Run migrates one step down.
func (migrateDown) Run(cli *commands, std streams) error {
	return cli.Migrate.to(sqlite.Down, std)
}

// Run prints the two versions. A dirty schema is a failure.
func (migrateStatus) Run(cli *commands, std streams) error {
	path, err := cli.Migrate.path()
	if err != nil {
		return err
	}
	return printSchema(path, std)
}

func (c *migrateCommand) to(direction sqlite.Direction, std streams) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	if err := sqlite.Migrate(path, direction); err != nil {
		return err
	}
	return printSchema(path, std)
}

func (c *migrateCommand) path() (string, error) {
	u, err := parseStore(c.Store)
	if err != nil {
		return "", err
	}
	if u.scheme == schemeMemory {
		return "", usageError{errors.New("the store memory: has no schema")}
	}
	return u.path, nil
}

func printSchema(path string, std streams) error {
	schema, err := sqlite.Status(path)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(std.out, "%s: schema %d, needed %d\n", path, schema.Version, schema.Needed); err != nil {
		return err
	}
	if schema.Dirty {
		return fmt.Errorf("a migration of %s failed half-way; restore a backup, or mend the schema by hand", path)
	}
	return nil
}
