package dynamodb

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/schema"
)

// Direction says what Migrate does: Up or Down.
type Direction string

// The directions.
const (
	// Up creates the tables that are missing, and sets their protection as the URL says.
	Up Direction = "up"
	// Down deletes the tables and everything in them.
	Down Direction = "down"
)

// Schema says which version the tables have, and which one this program needs.
type Schema struct {
	// Version is 0 if there are no tables, or if some are still missing.
	Version uint
	Needed  uint
	// Dirty is always false: run a migration that failed half-way again.
	Dirty bool
}

// schemaKey is the chat_id of the item with the version.
const schemaKey = schema.Key

// fit returns a Conflict error unless a server may work with the schema.
func (s Schema) fit() error {
	switch {
	case s.Version < s.Needed:
		return tidemark.Errorf(tidemark.Conflict,
			"the tables have version %d, and this program needs %d; run tidemark migrate up with "+
				"the same --store, or serve with --migrate", s.Version, s.Needed)
	case s.Version > s.Needed:
		return schema.Newer(s.Version, s.Needed)
	}
	return nil
}

// Migrate creates or deletes the tables of a URL. It looks at what exists and does what is missing.
// So it may be repeated, by several processes at once, and after one that died. Servers may run
// meanwhile. A server that needs another version is refused the next time it opens the store.
//
// Errors:
//   - Invalid: the direction; the URL; no tables to delete.
//   - Conflict: the tables are newer, another program's, incomplete, or protected against deletion.
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

// Status returns the schema of the tables. Errors: Invalid (the URL), Conflict (the tables are
// another program's, or incomplete), Unavailable.
func Status(ctx context.Context, url string) (Schema, error) {
	tables, release, err := tablesOf(ctx, url)
	if err != nil {
		return Schema{}, err
	}
	defer release()
	return statusOf(ctx, tables)
}

func statusOf(ctx context.Context, tables *schema.Tables) (Schema, error) {
	version, err := tables.Version(ctx)
	return Schema{Version: version, Needed: tables.Needed()}, err
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
	tables, err = schema.New(api, to)
	return tables, func() { endpoint.Release(api) }, err
}
