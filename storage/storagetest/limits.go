package storagetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var limitRules = []rule{
	{"ids_of_128_bytes_of_every_allowed_character", func(f *fixture) {
		const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"
		long := func(first string) string {
			s := f.prefix + first + strings.Repeat(allowed, 2)
			return s[:tidemark.MaxIDLength]
		}
		alice, bob := tidemark.UserID(long("a")), tidemark.UserID(long("b"))
		c := tidemark.ChatID(long("c"))
		for _, id := range []string{string(alice), string(bob), string(c)} {
			f.ok(tidemark.CheckID("id", id))
		}
		f.create(storage.NewChat{
			ID:      c,
			Type:    tidemark.Direct,
			History: tidemark.HistoryFull,
			Members: []tidemark.UserID{alice, bob},
		})
		draft := f.draft(c, alice, "hello")
		draft.ClientMessageID, draft.MessageID = long("k"), tidemark.MessageID(long("m"))
		message := f.append(draft).Message
		f.equal("message", f.messages(storage.Range{Chat: c}), []tidemark.Message{message})
		f.equal("client message id", message.ClientMessageID, draft.ClientMessageID)
		f.equal("message id", message.MessageID, draft.MessageID)
		f.equal("duplicate", f.append(draft).Duplicate, true)
		f.mark(bob, c, 1)
		f.equal("pending", f.pending(bob), first{c: 1})
		f.raise(bob, c, tidemark.Raise{Acked: 1}, at(1))
		f.equal("state", f.state(bob, c).Acked, tidemark.Watermark(1))
	}},
	{"names_of_256_bytes", func(f *fixture) {
		name := strings.Repeat("łódź", 42)[:tidemark.MaxChatName-2] + "'\""
		f.ok(tidemark.CheckChatName(name))
		c := f.group("c", f.user("alice"))
		_, err := f.store.UpdateChat(f.ctx, c, renamed(name))
		f.ok(err)
		f.equal("name", f.info(c).Name, name)
	}},
	{"content_of_65536_bytes_attachments_of_8192_and_metadata_of_4096", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		contents := map[string]string{
			"ascii": "x", "four bytes": "😀", "quotes": `"'\;--`, "lines": "\r\n\t\u2028\u2029",
			"controls": "\x01\x7f\x1b", "percent": "%s%'?$1:a",
		}
		var want []tidemark.Message
		for name, piece := range contents {
			draft := f.draft(c, alice, strings.Repeat(piece, tidemark.MaxContent/len(piece)))
			draft.Content += strings.Repeat("y", tidemark.MaxContent-len(draft.Content))
			draft.ContentType = "text/" + strings.Repeat("p", tidemark.MaxContentType-5)
			draft.Metadata = json.RawMessage(`{"a":"` +
				strings.Repeat("é", (tidemark.MaxMetadata-8)/2) + `"}`)
			draft.Attachments = json.RawMessage(`[{"a":"` +
				strings.Repeat("é", (tidemark.MaxAttachmentBytes-10)/2) + `"}]`)
			f.equal(name+": size", len(draft.Content), tidemark.MaxContent)
			f.equal(name+": attachments", len(draft.Attachments), tidemark.MaxAttachmentBytes)
			f.equal(name+": metadata", len(draft.Metadata), tidemark.MaxMetadata)
			f.ok(draft.Check())
			want = append(want, f.append(draft).Message)
			f.equal(name+": duplicate", f.append(draft).Duplicate, true)
		}
		got := f.messages(storage.Range{Chat: c})
		f.equal("number", len(got), len(want))
		for i := range got {
			if got[i].Content != want[i].Content ||
				string(got[i].Attachments) != string(want[i].Attachments) ||
				string(got[i].Metadata) != string(want[i].Metadata) ||
				got[i].ContentType != want[i].ContentType {
				f.Errorf("message %d is not what was sent", i+1)
			}
		}
	}},
	{"1000_members_per_call_and_MaxMembers_in_all", func(f *fixture) {
		users := f.many(tidemark.MaxMembers + 2)
		const call = tidemark.MaxMembersPerCall
		c := f.sinceJoin("c", users[:call]...)
		for n := call; n < tidemark.MaxMembers; n += call {
			added := f.add(c, users[n:n+call]...)
			f.equal("added", len(added.States), call)
		}
		before := f.info(c)
		f.equal("member count", before.MemberCount, tidemark.MaxMembers)
		_, err := f.store.AddMembers(f.ctx, c, users[tidemark.MaxMembers-5:tidemark.MaxMembers+1],
			tidemark.Ordinary, at(1))
		f.code(err, tidemark.Denied)
		f.equal("chat", f.info(c), before)
		f.equal("chats of the refused", f.chatsOf(users[tidemark.MaxMembers], 10), nil)
		// Users who are members already do not count again. A user who leaves makes room for
		// another.
		f.equal("version", f.add(c, users[:5]...).Version, before.MembersVersion)
		f.remove(c, users[7])
		f.add(c, users[tidemark.MaxMembers])
		_, err = f.store.AddMembers(f.ctx, c, users[tidemark.MaxMembers+1:], tidemark.Ordinary,
			at(1))
		f.code(err, tidemark.Denied)
		f.equal("members in the roster", len(f.roster(c).Members), tidemark.MaxMembers)
		f.eventually("members in the summary",
			func() any { return f.summary(c, 1).Members }, tidemark.MaxMembers)
	}},
	{"MaxIntervals_of_one_user", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", alice)
		for range tidemark.MaxIntervals {
			f.add(c, bob)
			f.send(c, bob, 1)
			f.remove(c, bob)
			f.send(c, alice, 1)
		}
		before := f.roster(c)
		_, err := f.store.AddMembers(f.ctx, c, []tidemark.UserID{carol, bob}, tidemark.Ordinary,
			at(1))
		f.code(err, tidemark.Denied)
		f.equal("roster", f.roster(c), before)
		f.equal("chats of carol", f.chatsOf(carol, 10), nil)
		f.add(c, carol)
	}},
	{"batches_of_10000", func(f *fixture) {
		alice := f.user("alice")
		users := f.many(storage.MaxBatch)
		c := f.group("c", alice)
		f.send(c, alice, 2)
		advances := make([]storage.Advance, storage.MaxBatch)
		rows := make([]tidemark.PendingDelivery, storage.MaxBatch)
		clears := make([]storage.Clear, storage.MaxBatch)
		keys := make([]storage.StateKey, storage.MaxBatch)
		chats := make([]tidemark.ChatID, storage.MaxBatch)
		for i, user := range users {
			through := tidemark.Sequence(1 + i%2)
			advances[i] = storage.Advance{
				User:  user,
				Chat:  c,
				Raise: tidemark.Raise{Acked: through},
				Now:   at(1),
			}
			rows[i] = tidemark.PendingDelivery{UserID: user, ChatID: c, FirstUndelivered: 1}
			clears[i] = storage.Clear{User: user, Chat: c, Through: through}
			keys[i] = storage.StateKey{User: user, Chat: c}
			chats[i] = f.chat(fmt.Sprintf("unknown%d", i))
		}
		chats[7_777] = c
		advanced, onceAdvanced := retryBatch(f, f.store.Advance, advances)
		states, _ := retryBatch(f, f.store.States, keys)
		written, onceMarked := retryBatch(f, f.store.Mark, rows)
		cleared, onceCleared := retryBatch(f, f.store.Clear, clears)
		heads, _ := retryBatch(f, f.store.Heads, chats)
		rosters, _ := retryBatch(f, f.store.Rosters, chats)
		for i := range users {
			if states[i] != advanced[i].State || states[i].Acked != advances[i].Acked ||
				onceAdvanced && !advanced[i].Moved || onceMarked && !written[i] ||
				onceCleared && !cleared[i] {
				f.Fatalf("item %d: got %+v, %+v, written %v, cleared %v",
					i, advanced[i], states[i], written[i], cleared[i])
			}
			if found := i == 7_777; heads[i] != 0 != found || (rosters[i] != nil) != found {
				f.Fatalf("item %d: got head %d and roster %v", i, heads[i], rosters[i])
			}
		}
		f.equal("pending of an even one", f.pending(users[4]), first{c: 2})
		f.equal("pending of an odd one", f.pending(users[5]), nil)
	}},
	{"longer_batches_are_Invalid_and_empty_ones_do_nothing", func(f *fixture) {
		c := f.group("c", f.user("alice"))
		before := f.roster(c)
		for n, want := range map[int]tidemark.Code{storage.MaxBatch + 1: tidemark.Invalid, 0: ""} {
			for name, call := range map[string]func() (int, error){
				"AddMembers": func() (int, error) {
					added, err := f.store.AddMembers(f.ctx, c, make([]tidemark.UserID, n),
						tidemark.Ordinary, at(1))
					return len(added.States), err
				},
				"Heads": func() (int, error) {
					r, err := f.store.Heads(f.ctx, make([]tidemark.ChatID, n))
					return len(r), err
				},
				"Rosters": func() (int, error) {
					r, err := f.store.Rosters(f.ctx, make([]tidemark.ChatID, n))
					return len(r), err
				},
				"Advance": func() (int, error) {
					advances := make([]storage.Advance, n)
					for i := range advances {
						advances[i].User = tidemark.UserID(fmt.Sprint(i))
					}
					r, err := f.store.Advance(f.ctx, advances)
					return len(r), err
				},
				"States": func() (int, error) {
					r, err := f.store.States(f.ctx, make([]storage.StateKey, n))
					return len(r), err
				},
				"Mark": func() (int, error) {
					r, err := f.store.Mark(f.ctx, make([]tidemark.PendingDelivery, n))
					return len(r), err
				},
				"Clear": func() (int, error) {
					r, err := f.store.Clear(f.ctx, make([]storage.Clear, n))
					return len(r), err
				},
			} {
				results, err := call()
				if tidemark.CodeOf(err) != want || results != 0 {
					f.Errorf("%s of %d items: got %d results and error %v, want none and code %q",
						name, n, results, err, want)
				}
			}
		}
		f.equal("roster", f.roster(c), before)
	}},
	{"times_have_millisecond_precision", func(f *fixture) {
		alice := f.user("alice")
		zone := time.FixedZone("somewhere", 3*3600)
		now := at(1).Add(123*time.Millisecond + 456_789*time.Nanosecond).In(zone)
		want := at(1).Add(123 * time.Millisecond)
		c := f.create(storage.NewChat{
			ID:        f.chat("c"),
			Type:      tidemark.Group,
			History:   tidemark.HistorySinceJoin,
			Members:   []tidemark.UserID{alice},
			CreatedAt: now,
		})
		f.equal("created", f.info(c).CreatedAt, want)
		draft := f.draft(c, alice, "hello")
		draft.CreatedAt = now
		f.equal("message", f.append(draft).Message.CreatedAt, want)
		f.equal("message, read again", f.messages(storage.Range{Chat: c})[0].CreatedAt, want)
		f.equal("advanced", f.raise(alice, c, tidemark.Raise{Acked: 1}, now).State.AckedAt, want)
		f.equal("state", f.state(alice, c).AckedAt, want)
		added, err := f.store.AddMembers(f.ctx, c, f.users("bob"), tidemark.Ordinary, now)
		f.ok(err)
		f.equal("added", added.States[0].AckedAt, want)
		f.equal("joined", f.member(c, f.user("bob")).JoinedAt, want)
		f.eventually("activity", func() any { return f.chatsOf(alice, 1)[0].Activity }, want)
	}},
}
