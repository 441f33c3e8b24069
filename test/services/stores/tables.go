package stores

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark/storage/dynamodb"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

// tables are those of the process, as its emulator of DynamoDB is: hence it is the package's. It is nil unless Main has opened it.
var tables *tablePool

// tablePool hands out empty tables of DynamoDB, and drops them when they come back: to make six takes milliseconds. That and all calls are done outside
// of the bubbles of testing/synctest; tests talk to it by channels.
type tablePool struct {
	server  *service.Server
	network *beyond
	wanted  chan struct{}
	free    chan loan
	back    chan string
	ended   chan struct{}
}

func openTables() (*tablePool, error) {
	server, err := service.SharedByMain()
	if err != nil {
		return nil, err
	}
	p := &tablePool{
		server:  server,
		network: newBeyond(),
		wanted:  make(chan struct{}),
		free:    make(chan loan),
		back:    make(chan string),
		ended:   make(chan struct{}),
	}
	go p.network.run()
	go p.run()
	return p, nil
}

// close ends the goroutines. All tables are back.
func (p *tablePool) close() {
	close(p.back)
	<-p.ended
	p.network.close()
}

// take returns what opens a store with empty tables, which go back when the test has ended.
func (p *tablePool) take(t testing.TB) dynamodb.Config {
	t.Helper()
	if p == nil {
		t.Fatalf("the package's TestMain does not use stores.Main")
	}
	p.wanted <- struct{}{}
	l := <-p.free
	if l.err != nil {
		t.Fatalf("making tables: %v", l.err)
	}
	t.Cleanup(func() { p.back <- l.name })
	return dynamodb.Config{URL: p.server.URL(l.name), Transport: p.network}
}

// run makes tables when somebody wants them, and not before: what is at work beside a test is seen by those that look at the heap.
func (p *tablePool) run() {
	defer close(p.ended)
	var failed error
	for made := 0; ; {
		select {
		case <-p.wanted:
			l := p.next(made)
			if failed != nil {
				l.err = failed
			}
			p.free <- l
			made++
		case name, open := <-p.back:
			if !open {
				return // the emulator goes with the process
			}
			if err := p.drop(name); err != nil {
				failed = err
			}
		}
	}
}

// next makes the tables of one store.
func (p *tablePool) next(n int) loan {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := fmt.Sprintf("store%d-", n)
	return loan{name: name, err: dynamodb.Migrate(ctx, p.server.URL(name), dynamodb.Up)}
}

func (p *tablePool) drop(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.server.Drop(ctx, name)
}
