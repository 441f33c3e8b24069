package stores

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark/storage/dynamodb"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/wait"
)

// tables are the tables of the process, as its emulator of DynamoDB is. So this is a variable of
// the package. It is nil unless Main has opened it.
var tables *tablePool

// tablePool lends empty tables of DynamoDB, and drops them when they come back: to make six takes
// milliseconds. It works outside of the bubbles of testing/synctest, and so do all calls. Tests use
// channels to it.
type tablePool struct {
	server  *service.Server
	network *outside
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
		network: newOutside(),
		wanted:  make(chan struct{}),
		free:    make(chan loan),
		back:    make(chan string),
		ended:   make(chan struct{}),
	}
	go p.network.run()
	go p.run()
	return p, nil
}

// close ends the goroutines. All tables must be back.
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
	return dynamodb.Config{URL: p.server.URL(l.name), Transport: p.network, Patience: wait.Hang}
}

// run makes tables only on request. Tests that measure the heap would notice work in the
// background.
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
				return // the emulator ends with the process
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
