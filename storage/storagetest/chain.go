package storagetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A Program is a program with its own chain of migrations, and one store.
type Program struct {
	Up, Down func(context.Context) error
	Status   func(context.Context) (storage.Schema, error)
}

// A Chain is three programs with one store. The first is this program, which needs version Newest.
// The second also has a migration that only adds to the schema. The third also has a migration that
// removes something that the first needs and the second does not.
type Chain struct {
	Programs [3]Program
	// Newest is the number of this program's newest migration. Programs that need version 1 work
	// with it.
	Newest uint
	// Open opens the store with this program. It changes no schema, unless the store is SQLite.
	Open func(context.Context) (storage.Store, error)
}

// RunChain shows which program may work with which schema, and that migrations keep the data. begin
// returns programs with an empty store.
func RunChain(t *testing.T, begin func(*testing.T) Chain) {
	for name, test := range map[string]func(*chainFixture){
		"schema_fits_from_an_empty_store":      testChainFromEmpty,
		"schema_fits_under_data":               testChainUnderData,
		"schema_fits_after_migrations_at_once": testChainAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&chainFixture{newSuite(nil).fixture(t), begin(t)})
		})
	}
}

// chainFixture is a fixture whose store is opened and closed during the test.
type chainFixture struct {
	*fixture
	Chain
}

// testChainFromEmpty goes up from nothing in one go, and down in steps.
func testChainFromEmpty(f *chainFixture) {
	this, newer := f.Programs[0], f.Programs[2]
	f.wantNothing()
	f.ok(newer.Up(f.ctx))
	f.wantSchema(3)
	f.wantTooNew()
	f.ok(newer.Down(f.ctx))
	f.wantSchema(2)
	// This program serves the newer schema, and its migrations leave it alone.
	f.ok(this.Up(f.ctx))
	f.wantSchema(2)
	f.refused(this.Down(f.ctx), tidemark.Conflict,
		fmt.Sprint("schema has version ", f.Newest+1), fmt.Sprint("migrations up to ", f.Newest),
		"tidemark migrate down with the newer program")
	f.wantSchema(2)
	f.open()
	chat := f.group("c", "anna", "ben")
	f.send(chat, "anna", 2)
	f.gapless(chat, 2)
	f.ok(f.store.Close())
	f.ok(newer.Down(f.ctx))
	f.downToNothing(newer)
	for _, p := range f.Programs {
		f.refused(p.Down(f.ctx), tidemark.Invalid, "there is no schema to take down")
	}
}

// testChainUnderData goes up and down in steps. The messages and their keys stay. So does the life
// of the data, unless tables were removed and made again.
func testChainUnderData(f *chainFixture) {
	f.ok(f.Programs[0].Up(f.ctx))
	f.wantSchema(1)
	f.open()
	life := f.store.Incarnation()
	chat := f.group("c", "anna", "ben")
	var sent []tidemark.Draft
	f.sendAgain(chat, &sent)
	f.ok(f.store.Close())
	for _, step := range []struct {
		migrate func(context.Context) error
		program int
	}{
		{f.Programs[1].Up, 2},
		{f.Programs[2].Up, 3},
		{f.Programs[2].Down, 2},
		{f.Programs[2].Down, 1},
		{f.Programs[2].Up, 3},
		{f.Programs[2].Down, 2},
		{f.Programs[1].Down, 1},
	} {
		f.ok(step.migrate(f.ctx))
		f.wantSchema(step.program)
		if step.program == 3 {
			f.wantTooNew()
			life = ""
			continue
		}
		f.open()
		if life != "" {
			f.equal("life", f.store.Incarnation(), life)
		}
		life = f.store.Incarnation()
		f.sendAgain(chat, &sent)
		f.gapless(chat, len(sent))
		f.ok(f.store.Close())
	}
}

// sendAgain sends what was sent before, which stores nothing, and one more message.
func (f *chainFixture) sendAgain(chat tidemark.ChatID, sent *[]tidemark.Draft) {
	f.Helper()
	*sent = append(*sent, f.draft(chat, "anna", "hello"))
	for i, d := range *sent {
		appended := f.append(d)
		f.equal("sequence", appended.Message.Sequence, tidemark.Sequence(i+1))
	}
}

// testChainAtOnce lets every program migrate at the same time, twice each.
func testChainAtOnce(f *chainFixture) {
	for range 3 {
		f.ok(f.Programs[0].Up(f.ctx))
		f.ok(concurrently(6, func(i int) error {
			err := f.Programs[i%3].Up(f.ctx)
			for strings.Contains(tidemark.DetailOf(err), "in use by another") ||
				strings.Contains(tidemark.DetailOf(err), "is under way") {
				err = f.Programs[i%3].Up(f.ctx)
			}
			// When the third program is done, the first one is too old.
			if i%3 == 0 && strings.Contains(tidemark.DetailOf(err), "run a newer program") {
				return nil
			}
			return err
		}))
		f.wantSchema(3)
		f.ok(f.Programs[2].Down(f.ctx))
		f.ok(f.Programs[2].Down(f.ctx))
		f.downToNothing(f.Programs[2])
	}
}

// downToNothing reverts the migrations of this program.
func (f *chainFixture) downToNothing(p Program) {
	f.Helper()
	for range f.Newest {
		f.ok(p.Down(f.ctx))
	}
	f.wantNothing()
}

// wantSchema checks that each program finds the schema of one of them: 1, 2 or 3.
func (f *chainFixture) wantSchema(program int) {
	f.Helper()
	want := storage.Schema{Version: f.Newest + uint(program) - 1, Compatible: 1}
	if program == 3 {
		want.Compatible = f.Newest + 1
	}
	f.want(want)
}

// wantNothing checks that each program finds no schema.
func (f *chainFixture) wantNothing() {
	f.Helper()
	f.want(storage.Schema{})
}

func (f *chainFixture) want(schema storage.Schema) {
	f.Helper()
	for i, p := range f.Programs {
		got, err := p.Status(f.ctx)
		if schema.Version == 0 && tidemark.CodeOf(err) == tidemark.NotFound {
			continue
		}
		f.ok(err)
		schema.Needed = f.Newest + uint(i)
		f.equal("schema", got, schema)
	}
}

// wantTooNew checks that this program refuses the schema of the third, and that the second one does
// not.
func (f *chainFixture) wantTooNew() {
	f.Helper()
	s, err := f.Open(f.ctx)
	if err == nil {
		f.Fatalf("the schema of the third program was opened: %v", s.Close())
	}
	for _, err := range []error{err, f.Programs[0].Up(f.ctx)} {
		f.refused(err, tidemark.Conflict, fmt.Sprint("schema has version ", f.Newest+2),
			fmt.Sprintf("need version %d or a later one", f.Newest+1),
			fmt.Sprint("this program needs ", f.Newest), "run a newer program")
	}
	found, err := f.Programs[1].Status(f.ctx)
	f.ok(err)
	f.ok(found.Fit())
	f.ok(f.Programs[1].Up(f.ctx))
	f.wantSchema(3)
}

func (f *chainFixture) open() {
	f.Helper()
	s, err := f.Open(f.ctx)
	f.ok(err)
	f.store = s
}

// refused checks the code of an error and the words that it contains.
func (f *chainFixture) refused(err error, code tidemark.Code, words ...string) {
	f.Helper()
	f.code(err, code)
	for _, part := range words {
		if !strings.Contains(tidemark.DetailOf(err), part) {
			f.Fatalf("got %v, want %q in it", err, part)
		}
	}
}
