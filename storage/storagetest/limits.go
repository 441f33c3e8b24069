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
	{"ids_of_128_bytes_of_every_allowed_character", func(w *world) {
		const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"
		long := func(first string) string {
			s := w.prefix + first + strings.Repeat(allowed, 2)
			return s[:tidemark.MaxIDLength]
		}
		alice, bob, c := tidemark.UserID(long("a")), tidemark.UserID(long("b")), tidemark.ChatID(long("c"))
		for _, id := range []string{string(alice), string(bob), string(c)} {
			w.ok(tidemark.CheckID("id", id))
		}
		w.create(storage.NewChat{
			ID:      c,
			Type:    tidemark.Direct,
			History: tidemark.HistoryFull,
			Members: []tidemark.UserID{alice, bob},
		})
		draft := w.draft(c, alice, "hello")
		draft.ClientMessageID, draft.MessageID = long("k"), tidemark.MessageID(long("m"))
		message := w.append(draft).Message
		w.equal("message", w.messages(storage.Range{Chat: c}), []tidemark.Message{message})
		w.equal("client message id", message.ClientMessageID, draft.ClientMessageID)
		w.equal("message id", message.MessageID, draft.MessageID)
		w.equal("duplicate", w.append(draft).Duplicate, true)
		w.mark(bob, c, 1)
		w.equal("pending", w.pending(bob), first{c: 1})
		w.raise(bob, c, tidemark.Raise{Acked: 1}, at(1))
		w.equal("state", w.state(bob, c).Acked, tidemark.Watermark(1))
	}},
	{"names_of_256_bytes", func(w *world) {
		name := strings.Repeat("łódź", 42)[:tidemark.MaxChatName-2] + "'\""
		w.ok(tidemark.CheckChatName(name))
		c := w.group("c", w.user("alice"))
		_, err := w.store.RenameChat(w.ctx, c, name)
		w.ok(err)
		w.equal("name", w.info(c).Name, name)
	}},
	{"content_of_65536_bytes_and_attachment_of_4096", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		contents := map[string]string{
			"ascii": "x", "four bytes": "😀", "quotes": `"'\;--`, "lines": "\r\n\t\u2028\u2029",
			"controls": "\x01\x7f\x1b", "percent": "%s%'?$1:a",
		}
		var want []tidemark.Message
		for name, piece := range contents {
			draft := w.draft(c, alice, strings.Repeat(piece, tidemark.MaxContent/len(piece)))
			draft.Content += strings.Repeat("y", tidemark.MaxContent-len(draft.Content))
			draft.ContentType = "text/" + strings.Repeat("p", tidemark.MaxContentType-5)
			draft.Attachment = json.RawMessage(`{"a":"` +
				strings.Repeat("é", (tidemark.MaxAttachment-8)/2) + `"}`)
			w.equal(name+": size", len(draft.Content), tidemark.MaxContent)
			w.equal(name+": attachment", len(draft.Attachment), tidemark.MaxAttachment)
			w.ok(draft.Check())
			want = append(want, w.append(draft).Message)
			w.equal(name+": duplicate", w.append(draft).Duplicate, true)
		}
		got := w.messages(storage.Range{Chat: c})
		w.equal("number", len(got), len(want))
		for i := range got {
			if got[i].Content != want[i].Content ||
				string(got[i].Attachment) != string(want[i].Attachment) ||
				got[i].ContentType != want[i].ContentType {
				w.Errorf("message %d is not what was sent", i+1)
			}
		}
	}},
	{"1000_members_per_call_and_MaxMembers_in_all", func(w *world) {
		users := w.many(tidemark.MaxMembers + 2)
		const call = tidemark.MaxMembersPerCall
		c := w.sinceJoin("c", users[:call]...)
		for n := call; n < tidemark.MaxMembers; n += call {
			added := w.add(c, users[n:n+call]...)
			w.equal("added", len(added.States), call)
		}
		before := w.info(c)
		w.equal("member count", before.MemberCount, tidemark.MaxMembers)
		_, err := w.store.AddMembers(w.ctx, c, users[tidemark.MaxMembers-5:tidemark.MaxMembers+1],
			at(1))
		w.code(err, tidemark.Denied)
		w.equal("chat", w.info(c), before)
		w.equal("chats of the refused", w.chatsOf(users[tidemark.MaxMembers], 10), nil)
		// Those who are members already do not count again, and one who leaves makes room for one.
		w.equal("version", w.add(c, users[:5]...).Version, before.MembersVersion)
		w.remove(c, users[7])
		w.add(c, users[tidemark.MaxMembers])
		_, err = w.store.AddMembers(w.ctx, c, users[tidemark.MaxMembers+1:], at(1))
		w.code(err, tidemark.Denied)
		w.equal("members in the roster", len(w.roster(c).Members), tidemark.MaxMembers)
		w.eventually("members in the summary",
			func() any { return w.summary(c, 1).Members }, tidemark.MaxMembers)
	}},
	{"MaxIntervals_of_one_user", func(w *world) {
		alice, bob, carol := w.user("alice"), w.user("bob"), w.user("carol")
		c := w.group("c", alice)
		for range tidemark.MaxIntervals {
			w.add(c, bob)
			w.send(c, bob, 1)
			w.remove(c, bob)
			w.send(c, alice, 1)
		}
		before := w.roster(c)
		_, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{carol, bob}, at(1))
		w.code(err, tidemark.Denied)
		w.equal("roster", w.roster(c), before)
		w.equal("chats of carol", w.chatsOf(carol, 10), nil)
		w.add(c, carol)
	}},
	{"batches_of_10000", func(w *world) {
		alice := w.user("alice")
		users := w.many(storage.MaxBatch)
		c := w.group("c", alice)
		w.send(c, alice, 2)
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
			chats[i] = w.chat(fmt.Sprintf("unknown%d", i))
		}
		chats[7_777] = c
		advanced, err := w.store.Advance(w.ctx, advances)
		w.ok(err)
		states, err := w.store.States(w.ctx, keys)
		w.ok(err)
		written, err := w.store.Mark(w.ctx, rows)
		w.ok(err)
		cleared, err := w.store.Clear(w.ctx, clears)
		w.ok(err)
		heads, err := w.store.Heads(w.ctx, chats)
		w.ok(err)
		rosters, err := w.store.Rosters(w.ctx, chats)
		w.ok(err)
		for i := range users {
			if !advanced[i].Moved || states[i] != advanced[i].State ||
				states[i].Acked != advances[i].Acked || !written[i] || !cleared[i] {
				w.Fatalf("item %d: got %+v, %+v, written %v, cleared %v",
					i, advanced[i], states[i], written[i], cleared[i])
			}
			if found := i == 7_777; heads[i] != 0 != found || (rosters[i] != nil) != found {
				w.Fatalf("item %d: got head %d and roster %v", i, heads[i], rosters[i])
			}
		}
		w.equal("pending of an even one", w.pending(users[4]), first{c: 2})
		w.equal("pending of an odd one", w.pending(users[5]), nil)
	}},
	{"longer_batches_are_Invalid_and_empty_ones_do_nothing", func(w *world) {
		c := w.group("c", w.user("alice"))
		before := w.roster(c)
		for n, want := range map[int]tidemark.Code{storage.MaxBatch + 1: tidemark.Invalid, 0: ""} {
			for name, call := range map[string]func() (int, error){
				"AddMembers": func() (int, error) {
					added, err := w.store.AddMembers(w.ctx, c, make([]tidemark.UserID, n), at(1))
					return len(added.States), err
				},
				"Heads": func() (int, error) {
					r, err := w.store.Heads(w.ctx, make([]tidemark.ChatID, n))
					return len(r), err
				},
				"Rosters": func() (int, error) {
					r, err := w.store.Rosters(w.ctx, make([]tidemark.ChatID, n))
					return len(r), err
				},
				"Advance": func() (int, error) {
					advances := make([]storage.Advance, n)
					for i := range advances {
						advances[i].User = tidemark.UserID(fmt.Sprint(i))
					}
					r, err := w.store.Advance(w.ctx, advances)
					return len(r), err
				},
				"States": func() (int, error) {
					r, err := w.store.States(w.ctx, make([]storage.StateKey, n))
					return len(r), err
				},
				"Mark": func() (int, error) {
					r, err := w.store.Mark(w.ctx, make([]tidemark.PendingDelivery, n))
					return len(r), err
				},
				"Clear": func() (int, error) {
					r, err := w.store.Clear(w.ctx, make([]storage.Clear, n))
					return len(r), err
				},
			} {
				results, err := call()
				if tidemark.CodeOf(err) != want || results != 0 {
					w.Errorf("%s of %d items: got %d results and error %v, want none and code %q",
						name, n, results, err, want)
				}
			}
		}
		w.equal("roster", w.roster(c), before)
	}},
	{"times_have_millisecond_precision", func(w *world) {
		alice := w.user("alice")
		zone := time.FixedZone("somewhere", 3*3600)
		now := at(1).Add(123*time.Millisecond + 456_789*time.Nanosecond).In(zone)
		want := at(1).Add(123 * time.Millisecond)
		c := w.create(storage.NewChat{
			ID:        w.chat("c"),
			Type:      tidemark.Group,
			History:   tidemark.HistorySinceJoin,
			Members:   []tidemark.UserID{alice},
			CreatedAt: now,
		})
		w.equal("created", w.info(c).CreatedAt, want)
		draft := w.draft(c, alice, "hello")
		draft.CreatedAt = now
		w.equal("message", w.append(draft).Message.CreatedAt, want)
		w.equal("message, read again", w.messages(storage.Range{Chat: c})[0].CreatedAt, want)
		w.equal("advanced", w.raise(alice, c, tidemark.Raise{Acked: 1}, now).State.UpdatedAt, want)
		w.equal("state", w.state(alice, c).UpdatedAt, want)
		added, err := w.store.AddMembers(w.ctx, c, w.users("bob"), now)
		w.ok(err)
		w.equal("added", added.States[0].UpdatedAt, want)
		w.equal("joined", w.member(c, w.user("bob")).JoinedAt, want)
		w.eventually("activity", func() any { return w.chatsOf(alice, 1)[0].Activity }, want)
	}},
}
