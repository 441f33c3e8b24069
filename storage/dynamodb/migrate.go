package dynamodb

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/schema"
)

// Direction says what Migrate does: Up or Down.
type Direction string

// The directions.
const (
	// Up runs every migration that the tables lack, and sets the tables' protection as the URL
	// says.
	Up Direction = "up"
	// Down reverts the latest migration. It destroys what only the newer schema can hold. Reverting
	// the first migration deletes the tables and everything in them.
	Down Direction = "down"
)

// schemaKey is the chat_id of the item with the version.
const schemaKey = schema.Key

// Migrate changes the tables of a URL, and their items. It looks at what exists and does what is
// missing. So it may be repeated, by several processes at once, and after one that died. Servers
// may run meanwhile. A server that cannot use the new schema is refused when it next opens the
// store. If a newer program made the schema and this program can use it, Up changes nothing.
//
// Errors:
//   - Invalid: the direction; the URL; no tables to delete.
//   - Conflict: the tables are of a newer program, another program's, incomplete, or protected
//     against deletion.
//   - Unavailable: DynamoDB cannot be reached, or the credentials may not do it.
func Migrate(ctx context.Context, url string, direction Direction) error {
	run, known := map[Direction]func(*schema.Tables, context.Context) error{
		Up:   (*schema.Tables).Up,
		Down: (*schema.Tables).Down,
	}[direction]
	if !known {
		return tidemark.Errorf(tidemark.Invalid, "a migration goes %q or %q, not %q",
			Up, Down, direction)
	}
	tables, release, err := tablesOf(ctx, url)
	if err != nil {
		return err
	}
	defer release()
	return run(tables, ctx)
}

// Status returns the schema of the tables. It is never Dirty, because a migration that failed
// half-way can be run again. Errors: Invalid (the URL), Conflict (the tables are another program's,
// or incomplete), Unavailable.
func Status(ctx context.Context, url string) (storage.Schema, error) {
	tables, release, err := tablesOf(ctx, url)
	if err != nil {
		return storage.Schema{}, err
	}
	defer release()
	return tables.Schema(ctx)
}

func tablesOf(ctx context.Context, url string) (tables *schema.Tables, release func(), err error) {
	to, err := endpoint.Parse(url)
	if err != nil {
		return nil, nil, err
	}
	api, err := to.Client(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	tables, err = schema.New(api, to, migrations.DynamoDB, nil)
	return tables, func() { endpoint.Release(api) }, err
}
