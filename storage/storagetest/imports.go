package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// importing creates a group that is being imported. The first member is its owner.
func (f *fixture) importing(name string, members ...tidemark.UserID) tidemark.ChatID {
	f.Helper()
	return f.create(storage.NewChat{
		ID: f.chat(name), State: tidemark.ChatImporting, Type: tidemark.Group,
		History: tidemark.HistoryFull, Members: members,
	})
}

// moved returns a message of an importer.
func (f *fixture) moved(
	chat tidemark.ChatID, sender tidemark.UserID, content string,
) tidemark.Draft {
	d := f.draft(chat, sender, content)
	d.Importing = true
	return d
}

// refuses returns the error of an append of a draft, which must have a code.
func (f *fixture) refuses(d tidemark.Draft, want tidemark.Code) {
	f.Helper()
	_, err := storage.AppendOne(f.ctx, f.store, d)
	f.code(err, want)
}

var importRules = []rule{
	{"importing_is_closed_only_the_importer_appends", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.importing("c", alice)
		f.equal("state", f.info(c).State, tidemark.ChatImporting)
		f.equal("state of the roster", f.roster(c).State, tidemark.ChatImporting)
		f.refuses(f.draft(c, alice, "too early"), tidemark.Unavailable)
		f.refuses(f.draft(c, bob, "too early, and no member"), tidemark.Unavailable)
		first := f.moved(c, alice, "first")
		f.equal("sequence", f.append(first).Message.Sequence, tidemark.Sequence(1))
		f.refuses(f.moved(c, bob, "no member"), tidemark.NotMember)
		f.add(c, bob)
		f.append(f.moved(c, bob, "second"))
		f.equal("repeated", f.append(first).Duplicate, true)
		first.Importing = false
		f.refuses(first, tidemark.Unavailable) // also under a key that is known
		f.raise(bob, c, tidemark.Raise{Acked: 2, Read: 1}, at(3))
		f.remove(c, bob)
		edit := f.edit(c, alice, 1, "edited")
		f.refuses(edit, tidemark.Unavailable)
		edit.Importing = true
		f.append(edit)
		f.equal("head", f.whole(c).Head, tidemark.Sequence(3))
	}},
	{"importing_is_closed_a_refused_draft_fails_alone", func(f *fixture) {
		alice := f.user("alice")
		c, other := f.importing("c", alice), f.group("other", alice)
		appended, err := f.store.Append(f.ctx, []tidemark.Draft{
			f.draft(other, alice, "1"), f.draft(c, alice, "too early"), f.moved(c, alice, "1"),
			f.moved(other, alice, "not imported"), f.draft(other, alice, "2"),
		})
		f.ok(err)
		want := []tidemark.Code{"", tidemark.Unavailable, "", tidemark.Conflict, ""}
		for i := range appended {
			f.code(appended[i].Err, want[i])
		}
		f.equal("head", f.whole(c).Head, tidemark.Sequence(1))
		f.equal("head of the other", f.whole(other).Head, tidemark.Sequence(2))
	}},
	{"import_once_nothing_is_stored_behind_a_refusal", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, d := f.importing("c", alice), f.importing("d", alice)
		other := f.group("other", alice)
		known := f.append(f.moved(c, alice, "known"))
		again := f.moved(c, alice, "known")
		again.ClientMessageID = known.Message.ClientMessageID
		first := f.moved(c, alice, "first")
		drafts := []tidemark.Draft{
			first, f.moved(c, bob, "second"), again, f.moved(d, alice, "of d"),
			f.moved(c, alice, "third"), f.draft(other, alice, "of another"), first,
			f.draft(other, bob, "refused"), f.moved(c, bob, "fourth"),
			f.moved(c, alice, "fifth"), f.draft(other, alice, "behind it"),
		}
		const no = tidemark.NotMember
		for _, want := range [][]tidemark.Code{
			{"", no, "", "", no, "", "", no, no, no, ""},
			{"", "", "", "", "", "", "", no, "", "", ""},
		} {
			appended, err := f.store.Append(f.ctx, drafts)
			f.ok(err)
			for i := range appended {
				f.code(appended[i].Err, want[i])
			}
			if want[1] != "" {
				f.equal("head", f.whole(c).Head, tidemark.Sequence(2))
				f.add(c, bob)
			}
		}
		want := []string{"known", "first", "second", "third", "fourth", "fifth"}
		for i, m := range f.messages(storage.Range{Chat: c}) {
			f.equal("message", m.Content, want[i])
		}
		f.equal("head", f.whole(c).Head, tidemark.Sequence(len(want)))
		f.equal("head of d", f.whole(d).Head, tidemark.Sequence(1))
		f.equal("head of the other", f.whole(other).Head, tidemark.Sequence(2))
	}},
	{"import_once_nothing_is_stored_behind_any_refusal", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		for name, want := range map[string]tidemark.Code{
			"of a stranger": tidemark.NotMember, "of a reader": tidemark.Denied,
			"of an edit": tidemark.NotFound,
		} {
			c := f.importing(strings.ReplaceAll(name, " ", "-"), alice)
			refused := f.moved(c, bob, name)
			switch want {
			case tidemark.Denied:
				f.add(c, bob)
				f.update(c, bob, role(tidemark.Reader))
			case tidemark.NotFound:
				refused = f.edit(c, alice, 99, name)
				refused.Importing = true
			}
			edit := f.edit(c, alice, 1, "edited")
			edit.Importing = true
			appended, err := f.store.Append(f.ctx, []tidemark.Draft{
				f.moved(c, alice, "first"), refused, f.moved(c, alice, "third"), edit,
				f.moved(c, alice, "fifth"),
			})
			f.ok(err)
			for i := range appended {
				if i == 0 {
					f.ok(appended[i].Err)
					continue
				}
				f.code(appended[i].Err, want)
			}
			f.equal("head", f.whole(c).Head, tidemark.Sequence(1))
		}
	}},
	{"import_once_nothing_is_stored_behind_a_refusal_of_many", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.importing("c", alice)
		const many, refused = 300, 130
		drafts := make([]tidemark.Draft, many)
		for i := range drafts {
			sender := alice
			if i == refused {
				sender = bob
			}
			drafts[i] = f.moved(c, sender, fmt.Sprint(i))
		}
		appended, err := f.store.Append(f.ctx, drafts)
		f.ok(err)
		for i := range appended {
			want := tidemark.Code("")
			if i >= refused {
				want = tidemark.NotMember
			}
			f.code(appended[i].Err, want)
		}
		f.equal("head", f.whole(c).Head, tidemark.Sequence(refused))
	}},
	{"FinishImport_makes_the_chat_live", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.importing("c", alice)
		f.append(f.moved(c, alice, "first"))
		before := f.info(c)
		for range 2 {
			f.ok(f.store.FinishImport(f.ctx, c, at(4)))
			want := before
			want.State, want.MembersVersion = tidemark.ChatLive, before.MembersVersion+1
			f.equal("chat", f.info(c), want)
			f.equal("roster", f.roster(c).State, tidemark.ChatLive)
		}
		f.refuses(f.moved(c, alice, "too late"), tidemark.Conflict)
		f.send(c, alice, 1)
		f.add(c, bob)
		f.send(c, bob, 1)
		f.equal("head", f.whole(c).Head, tidemark.Sequence(3))
		f.code(f.store.FinishImport(f.ctx, f.chat("none"), at(4)), tidemark.NotFound)
		live := f.group("live", alice)
		f.ok(f.store.FinishImport(f.ctx, live, at(4)))
		f.equal("version of a live chat", f.info(live).MembersVersion, uint64(1))
	}},
	{"import_once_is_seen_in_the_backlog", func(f *fixture) {
		alice := f.user("alice")
		c := f.importing("c", alice)
		for _, want := range []bool{true, true, false, false} {
			for _, q := range []storage.BacklogQuery{
				{Chats: []tidemark.ChatID{c}},
				{Shards: []int{storage.ShardOf(c)}, Limit: storage.MaxBatch},
			} {
				found, _, err := f.store.Backlogs(f.ctx, q)
				f.ok(err)
				n := slices.IndexFunc(found, func(b storage.Backlog) bool { return b.Chat == c })
				if n < 0 {
					f.Fatalf("there is no backlog of %s among %d", c, len(found))
				}
				f.equal("is being imported", found[n].Importing, want)
			}
			f.settleAll(c)
			switch c := f.info(c); {
			case c.State == tidemark.ChatLive:
				f.send(c.ID, alice, 1)
			case c.Head == 0:
				f.append(f.moved(c.ID, alice, "first"))
			default:
				f.ok(f.store.FinishImport(f.ctx, c.ID, at(4)))
			}
		}
	}},
	{"CreateChat_a_pair_has_one_chat_also_while_it_is_imported", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		new := storage.NewChat{
			ID: f.chat("d"), State: tidemark.ChatImporting, Type: tidemark.Direct,
			History: tidemark.HistoryFull, CreatedAt: at(1),
			Members: []tidemark.UserID{alice, bob},
		}
		_, created, err := f.store.CreateChat(f.ctx, new)
		f.ok(err)
		f.equal("created", created, true)
		new.ID, new.State = f.chat("another"), tidemark.ChatLive
		got, created, err := f.store.CreateChat(f.ctx, new)
		f.ok(err)
		f.equal("created again", created, false)
		f.equal("chat", got, f.info(f.chat("d")))
		f.append(f.moved(got.ID, bob, "first"))
		f.ok(f.store.FinishImport(f.ctx, got.ID, at(2)))
		f.send(got.ID, alice, 1)
		f.whole(got.ID)
	}},
	{"FinishImport_beside_the_importer_and_its_users", func(f *fixture) {
		alice := f.user("alice")
		c := f.importing("c", alice)
		const moved, users = 10, 3
		var ended atomic.Bool // The importer does no more.
		f.ok(concurrently(1+users, func(i int) error {
			if i == 0 {
				defer ended.Store(true)
			}
			for n := range 2 * moved {
				d := f.draft(c, alice, "hello")
				want := tidemark.Code("")
				if i == 0 {
					d = f.moved(c, alice, "moved")
				}
				if i == 0 && n == moved {
					err := retry(func() error { return f.store.FinishImport(f.ctx, c, at(5)) })
					if err != nil {
						return err
					}
				}
				if i == 0 && n >= moved {
					want = tidemark.Conflict
				}
				send := func() error {
					_, err := storage.AppendOne(f.ctx, f.store, d)
					return err
				}
				err := retry(send)
				// Users are refused until the import ends, however long it takes.
				for waits := i > 0; waits && tidemark.CodeOf(err) == tidemark.Unavailable; {
					waits = !ended.Load()
					err = retry(send)
				}
				if err := expect(err, want); err != nil {
					return err
				}
			}
			return nil
		}))
		for i, m := range f.messages(storage.Range{Chat: c}) {
			f.equal("is of the importer", m.Content == "moved", i < moved)
		}
		f.gapless(c, moved+users*2*moved)
	}},
}
