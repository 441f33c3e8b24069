package stores

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// databases are the databases of the process, as its server is. So this is a variable of the
// package. It is nil unless Main has opened it.
var databases *pool

// pool lends empty databases: to empty one is much faster than to make one. One goroutine does all
// of its work, outside of all bubbles of testing/synctest, over its own connections. Tests use
// channels to it.
type pool struct {
	server *service.Server
	free   chan loan
	back   chan string
	ended  chan struct{}
	// The goroutine's own: a connection to each database by name, and the free databases.
	conns map[string]*pgx.Conn
	idle  []string
	// failed is why a database could not be emptied.
	failed error
}

// loan is the name of an empty database, or the error.
type loan struct {
	name string
	err  error
}

const (
	// template is the database with the schema. All others are copies of it.
	template = "template_of_stores"
	// patience bounds each call to the server.
	patience = 30 * time.Second
)

func openPool() (*pool, error) {
	server, err := service.SharedByMain()
	if err != nil {
		return nil, err
	}
	p := &pool{
		server: server,
		free:   make(chan loan),
		back:   make(chan string),
		ended:  make(chan struct{}),
		conns:  map[string]*pgx.Conn{},
	}
	if err := p.exec("postgres", "CREATE DATABASE "+template); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := postgres.Migrate(ctx, server.URL(template), postgres.Up); err != nil {
		return nil, err
	}
	go p.run()
	return p, nil
}

// close ends the goroutine. All databases must be back.
func (p *pool) close() {
	close(p.back)
	<-p.ended
}

// take returns the URL of an empty database, which goes back when the test has ended.
func (p *pool) take(t testing.TB) string {
	t.Helper()
	if p == nil {
		t.Fatalf("the package's TestMain does not use stores.Main")
	}
	l := <-p.free
	if l.err != nil {
		t.Fatalf("making a database: %v", l.err)
	}
	t.Cleanup(func() { p.back <- l.name })
	return p.server.URL(l.name)
}

func (p *pool) run() {
	defer close(p.ended)
	for {
		l := p.next()
		for lent := false; !lent; {
			select {
			case p.free <- l:
				lent = true
			case name, open := <-p.back:
				if !open {
					p.disconnect()
					return
				}
				p.failed = p.empty(name)
				p.idle = append(p.idle, name)
			}
		}
	}
}

// next returns a free database, or makes one.
func (p *pool) next() loan {
	if p.failed != nil {
		return loan{err: p.failed}
	}
	if n := len(p.idle) - 1; n >= 0 {
		name := p.idle[n]
		p.idle = p.idle[:n]
		return loan{name: name}
	}
	name := fmt.Sprintf("store_%d", len(p.conns))
	if err := p.exec("postgres", "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		return loan{err: err}
	}
	return loan{name: name, err: p.exec(name, "SELECT 1")}
}

// empty ends what still runs in a database, and removes all rows but those of chats that are gone:
// no other chat gets their keys.
func (p *pool) empty(name string) error {
	return p.exec(name, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid();
		DELETE FROM pending_deliveries; DELETE FROM delivery_state; DELETE FROM messages;
		DELETE FROM members; DELETE FROM chats; DELETE FROM outlet_backlogs; DELETE FROM documents;
		DELETE FROM blocks; DELETE FROM receipts; DELETE FROM audit`)
}

// exec runs statements over the pool's own connection to a database.
func (p *pool) exec(name, statements string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn := p.conns[name]
	if conn == nil {
		var err error
		if conn, err = pgx.Connect(ctx, p.server.URL(name)); err != nil {
			return err
		}
		p.conns[name] = conn
	}
	_, err := conn.Exec(ctx, statements)
	return err
}

func (p *pool) disconnect() {
	for _, conn := range p.conns {
		_ = conn.Close(context.Background()) // the server ends with the process
	}
}
