package storagetest

import (
	"bytes"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var documentRules = []rule{
	{"PutDocument_compares_the_version", func(f *fixture) {
		f.equal("first version", f.put("a", 0, `{"n":1}`), uint64(1))
		f.equal("second version", f.put("a", 1, `{"n":2}`), uint64(2))
		for _, version := range []uint64{0, 1, 3} {
			_, err := f.store.PutDocument(f.ctx, f.document("a", version, `{}`))
			f.code(err, tidemark.Conflict)
			_, err = f.store.PutDocument(f.ctx, f.document("b", version+1, `{}`))
			f.code(err, tidemark.Conflict)
		}
		f.equal("documents", f.listed(), []storage.Document{f.document("a", 2, `{"n":2}`)})
	}},
	{"PutDocument_removes", func(f *fixture) {
		f.put("a", 0, `1`)
		f.put("b", 0, `[2]`)
		_, err := f.store.PutDocument(f.ctx, storage.Document{Kind: f.prefix, Name: "a"})
		f.code(err, tidemark.Conflict)
		f.dropDocument("a", 1)
		f.equal("documents", f.listed(), []storage.Document{f.document("b", 1, `[2]`)})
		f.dropDocument("a", 0)
		f.equal("version after removal", f.put("a", 0, `3`), uint64(1))
	}},
	{"Documents_keeps_kinds_and_pages_apart", func(f *fixture) {
		var want []storage.Document
		for _, name := range []string{"A", "a", "a.b", "a:b", "a_", "b"} {
			f.put(name, 0, strconv.Quote(name))
			want = append(want, f.document(name, 1, strconv.Quote(name)))
		}
		other := f.document("a", 0, `0`)
		other.Kind += "x"
		_, err := f.store.PutDocument(f.ctx, other)
		f.ok(err)
		f.equal("documents", f.listed(), want)
	}},
	{"DocumentsOf_keeps_the_order_of_its_keys", func(f *fixture) {
		f.put("a", 0, `1`)
		f.put("b", 0, `[2]`)
		f.put("b", 1, `[3]`)
		other := f.document("a", 0, `"other"`)
		other.Kind += "x"
		_, err := f.store.PutDocument(f.ctx, other)
		f.ok(err)
		other.Version = 1
		absent := func(kind, name string) storage.Document {
			return storage.Document{Kind: kind, Name: name}
		}
		want := []storage.Document{
			absent(f.prefix, "c"), f.document("b", 2, `[3]`), other, f.document("a", 1, `1`),
			f.document("b", 2, `[3]`), absent(other.Kind, "b"),
		}
		var keys []storage.DocumentKey
		for _, d := range want {
			keys = append(keys, storage.DocumentKey{Kind: d.Kind, Name: d.Name})
		}
		found, err := f.store.DocumentsOf(f.ctx, keys)
		f.ok(err)
		f.equal("documents", found, want)
		f.dropDocument("a", 1)
		found, err = f.store.DocumentsOf(f.ctx, keys[3:4])
		f.ok(err)
		f.equal("removed", found, []storage.Document{absent(f.prefix, "a")})
	}},
	{"DocumentsOf_reads_many", func(f *fixture) {
		keys := make([]storage.DocumentKey, 250)
		for i := range keys {
			keys[i] = storage.DocumentKey{Kind: f.prefix, Name: strconv.Itoa(i)}
			if i%10 == 0 {
				f.put(keys[i].Name, 0, keys[i].Name)
			}
		}
		found, err := f.store.DocumentsOf(f.ctx, keys)
		f.ok(err)
		for i := range found {
			want := storage.Document{Kind: f.prefix, Name: keys[i].Name}
			if i%10 == 0 {
				want = f.document(want.Name, 1, want.Name)
			}
			f.equal(want.Name, found[i], want)
		}
	}},
	{"PutDocument_keeps_every_byte", func(f *fixture) {
		value := `{"é\u0000":"` + strings.Repeat("x", storage.MaxDocument-15) + `"}`
		f.put("large", 0, value)
		found := f.listed()
		f.equal("documents", len(found), 1)
		f.equal("equal", bytes.Equal(found[0].Value, []byte(value)), true)
	}},
	{"PutDocument_lets_one_of_several_win", func(f *fixture) {
		const writers, each = 4, 10
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for won := 0; won < each; {
					at := storage.Document{}
					if found := f.listed(); len(found) > 0 {
						at = found[0]
					}
					runtime.Gosched()
					n, _ := strconv.Atoi(string(at.Value))
					next := f.document("n", at.Version, strconv.Itoa(n+1))
					_, err := f.store.PutDocument(f.ctx, next)
					if tidemark.CodeOf(err) == tidemark.Conflict {
						continue
					}
					f.ok(err)
					won++
				}
			})
		}
		all.Wait()
		f.equal("documents", f.listed(), []storage.Document{
			f.document("n", writers*each, strconv.Itoa(writers*each)),
		})
	}},
}

// document returns a document of the fixture's kind.
func (f *fixture) document(name string, version uint64, value string) storage.Document {
	return storage.Document{Kind: f.prefix, Name: name, Version: version, Value: []byte(value)}
}

func (f *fixture) put(name string, version uint64, value string) uint64 {
	f.Helper()
	now, err := f.store.PutDocument(f.ctx, f.document(name, version, value))
	f.ok(err)
	return now
}

func (f *fixture) dropDocument(name string, version uint64) {
	f.Helper()
	_, err := f.store.PutDocument(f.ctx,
		storage.Document{Kind: f.prefix, Name: name, Version: version})
	f.ok(err)
}

// listed returns the documents of the fixture's kind. It reads them in small pages.
func (f *fixture) listed() []storage.Document {
	f.Helper()
	var all []storage.Document
	for more, after := true, ""; more; {
		var found []storage.Document
		var err error
		found, more, err = f.store.Documents(f.ctx, f.prefix, after, 2)
		f.ok(err)
		f.checkPage(len(found), 2, more)
		for _, d := range found {
			after = d.Name
		}
		all = append(all, found...)
	}
	return all
}
