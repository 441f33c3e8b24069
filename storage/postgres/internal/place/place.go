// Package place says which database a store is in, and which life of the data that is. The server
// behind an address may become another one: a promoted standby, or a restored database.
package place

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// readIdentity reads what no copy of the database has. The timeline changes when a server is
// promoted or recovered to a point in time. A copy has another number than its template, and the
// table another file after a dump was restored. A table that was rewritten has another file, too:
// then a life begins that shares everything.
const readIdentity = `SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
	left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
	(SELECT oid FROM pg_database WHERE datname = current_database()),
	pg_relation_filenode(to_regclass('lives')))`

// A Place is the database of a store. Create it with New. It is safe for concurrent use.
type Place struct {
	replaced chan struct{}

	mu sync.Mutex
	// identity is what Lives read, or "" before.
	identity string
}

// New returns a place. Lives finds out where it is.
func New() *Place { return &Place{replaced: make(chan struct{})} }

// Replaced is closed when Greet finds another database.
func (p *Place) Replaced() <-chan struct{} { return p.replaced }

// Whole returns Unavailable once Replaced is closed.
func (p *Place) Whole() error {
	select {
	case <-p.replaced:
		return tidemark.Errorf(tidemark.Unavailable, "the database at this address has become "+
			"another one: a standby was promoted, or a backup restored; the server begins anew")
	default:
		return nil
	}
}

// Greet checks a new connection. After Lives, it returns Unavailable if the connection leads to
// another database.
func (p *Place) Greet(ctx context.Context, c *pgx.Conn) error {
	var found string
	if err := c.QueryRow(ctx, readIdentity).Scan(&found); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	//rule:restore_is_noticed.new-connection-checks-identity
	if p.identity != "" && p.identity != found && p.Whole() == nil {
		close(p.replaced)
	}
	return p.Whole()
}

// Lives returns the lives of the data, of which the last is the present one. It stores a new one if
// the database is another one than before. Several nodes may call it at once.
func (p *Place) Lives(ctx context.Context, c *pgx.Conn) ([]lives.Life, error) {
	var identity string
	if err := c.QueryRow(ctx, readIdentity).Scan(&identity); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.identity = identity
	p.mu.Unlock()
	for {
		rows, err := c.Query(ctx, "SELECT number, id, identity FROM lives ORDER BY number")
		if err != nil {
			return nil, err
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lives.Life])
		if err != nil {
			return nil, err
		}
		life, begins := lives.Next(all, identity)
		if !begins {
			return all, nil
		}
		// If another node was quicker, its life counts.
		//rule:restore_is_noticed.life-is-stored-before-its-messages-in-postgres
		_, err = c.Exec(ctx, "INSERT INTO lives (number, id, identity) VALUES ($1, $2, $3) "+
			"ON CONFLICT DO NOTHING", life.Number, string(life.ID), identity)
		if err != nil {
			return nil, err
		}
	}
}
