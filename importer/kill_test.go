package importer_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// scene is a source whose ids begin with a prefix, and the ids that it becomes.
type scene struct {
	records []importer.Record
	chats   []tidemark.ChatID
	users   []tidemark.UserID
}

// manyChanges returns a scene with three chats, in which members come and go before the first
// message, between two, after the last one, several times at one place, and by writing. A former
// member writes, too.
func manyChanges(prefix string) scene {
	name := func(id string) string { return prefix + id }
	member := func(user string, minutes int, left bool, role tidemark.Role) importer.Member {
		return importer.Member{User: name(user), Left: left, Role: role, At: at(minutes)}
	}
	says := func(id, author string, minutes int) importer.Message {
		return message(id, name(author), minutes)
	}
	marked := says("f2", "b", 6)
	marked.Mentioned = []string{name("a"), name("d")}
	full := group(name("full"), name("a"), name("b"))
	full.Name = "full"
	since := group(name("since"))
	since.Name, since.History = "since", tidemark.HistorySinceJoin
	direct := importer.Chat{
		ID: name("direct"), Type: tidemark.Direct, CreatedAt: began,
		Members: []string{name("a"), name("b")},
	}
	s := scene{records: []importer.Record{
		full, member("a", 0, false, tidemark.Owner), importer.Read{User: name("b"), Message: "f3"},
		says("f1", "a", 1),
		member("c", 2, false, tidemark.Reader), member("b", 3, true, ""),
		member("b", 4, false, ""), member("d", 4, false, ""), member("d", 5, true, ""),
		marked, says("f3", "e", 7), member("c", 8, true, ""), says("f4", "a", 9),
		says("f5", "c", 9), importer.Message{ID: "f6", At: at(10), Lack: importer.Deleted},
		member("e", 11, true, ""), member("d", 11, false, tidemark.Admin),
		importer.Read{User: name("d"), Position: 1}, importer.End{},

		since, member("b", 1, false, ""), says("s1", "b", 2), member("a", 3, false, ""),
		says("s2", "b", 4), member("a", 5, true, ""), says("s3", "b", 6),
		member("a", 7, false, tidemark.Owner), says("s4", "a", 8), member("b", 9, true, ""),
		importer.Read{User: name("a"), Position: 4}, importer.End{},

		direct, says("d1", "a", 1), says("d2", "b", 2), says("d3", "b", 3),
		importer.Read{User: name("b"), Position: 1}, importer.End{},
	}}
	for _, id := range []string{"full", "since", "direct"} {
		s.chats = append(s.chats, tidemark.ChatID(name(id)))
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		s.users = append(s.users, tidemark.UserID(name(id)))
	}
	return s
}

// TestImport_import_once_killed_at_every_call: whatever call of the store is the last one of a run,
// and whether or not it had its effect, the next run ends with what one run leaves. So does a third
// one.
func TestImport_import_once_killed_at_every_call(t *testing.T) {
	w := newWorld(t)
	whole := manyChanges("whole-")
	w.move(whole.records...)
	want := w.dump("whole-", whole.chats, whole.users)
	for _, lost := range []bool{false, true} {
		kills := 0
		for n := 0; ; n++ {
			prefix := fmt.Sprintf("k%d-%t-", n, lost)
			s := manyChanges(prefix)
			if !w.kill(n, lost, s.records) {
				break
			}
			kills++
			w.move(s.records...)
			if got := w.dump(prefix, s.chats, s.users); got != want {
				t.Fatalf("killed at call %d (lost answer: %t), got\n%s\nwant\n%s",
					n, lost, got, want)
			}
			report := w.move(s.records...)
			if report.Unchanged != 3 || report.Messages+report.Joined+report.Left != 0 {
				t.Errorf("the third run after a kill at call %d: %+v", n, report)
			}
		}
		if kills < 35 {
			t.Errorf("only %d calls were the last ones, want 35 at least", kills)
		}
	}
}

// TestImport_import_once_killed_twice: an import may be killed again and again.
func TestImport_import_once_killed_twice(t *testing.T) {
	w := newWorld(t)
	whole := manyChanges("whole-")
	w.move(whole.records...)
	want := w.dump("whole-", whole.chats, whole.users)
	for first := 3; first < 30; first += 9 {
		for second := 0; second < 30; second += 7 {
			prefix := fmt.Sprintf("k%d-%d-", first, second)
			s := manyChanges(prefix)
			w.kill(first, true, s.records)
			w.kill(second, false, s.records)
			w.move(s.records...)
			if got := w.dump(prefix, s.chats, s.users); got != want {
				t.Fatalf("killed at calls %d and %d, got\n%s\nwant\n%s", first, second, got, want)
			}
		}
	}
}

// kill imports records, and ends at the n-th call of the store. It reports whether there was one.
// With lost, the call has its effect.
func (w *world) kill(n int, lost bool, records []importer.Record) (killed bool) {
	w.t.Helper()
	calls := 0
	die := func(string) error {
		if calls++; calls <= n {
			return nil
		}
		killed = true
		return tidemark.Errorf(tidemark.Unavailable, "the importer was killed")
	}
	faulty := storagetest.Fault(w.store)
	if faulty.Before = die; lost {
		faulty.Before, faulty.After = nil, die
	}
	cfg := w.config()
	cfg.Store = faulty
	_, err := w.run(cfg, records...)
	if (err != nil) != killed || killed && tidemark.CodeOf(err) != tidemark.Unavailable {
		w.t.Fatalf("killed at call %d: %t, %v", n, killed, err)
	}
	return killed
}

// TestImport_import_once_by_two_at_once: two runs of the same source store no message twice.
func TestImport_import_once_by_two_at_once(t *testing.T) {
	w := newWorld(t)
	for round := range 3 {
		id := fmt.Sprint("g", round)
		records := []importer.Record{group(id, "alice")}
		for n := range 1_200 {
			records = append(records, message(fmt.Sprint(n), "alice", n))
		}
		records = append(records, importer.End{})
		var runs sync.WaitGroup
		for range 2 {
			runs.Go(func() {
				if _, err := w.run(w.config(), records...); err != nil {
					t.Logf("one of two runs has failed: %v", err)
				}
			})
		}
		runs.Wait()
		w.move(records...)
		all := w.messages(tidemark.ChatID(id))
		if len(all) != 1_200 {
			t.Fatalf("%d messages are stored, want 1200", len(all))
		}
		for n := range all {
			if want := fmt.Sprint("says ", n); all[n].Content != want {
				t.Fatalf("message %d %s, want %q", n+1, all[n].Content, want)
			}
		}
	}
}

// TestImport_import_once_notices_a_message_between_two: the n-th message must be message n.
func TestImport_import_once_notices_a_message_between_two(t *testing.T) {
	w := newWorld(t)
	_, err := w.run(w.beside("Append"), group("g", "alice"), message("1", "alice", 1),
		importer.End{})
	if err == nil || !strings.Contains(err.Error(), "the store has it as message 2") {
		t.Errorf("got %v", err)
	}
	if state := w.chat("g").State; state != tidemark.ChatImporting {
		t.Errorf("the chat is %q, want that it stays closed", state)
	}
}

// beside returns the configuration of a run beside another one, which appends a message to the chat
// g just before the first call of a method.
func (w *world) beside(method string) importer.Config {
	faulty := storagetest.Fault(w.store)
	faulty.Before = func(called string) error {
		if called != method {
			return nil
		}
		faulty.Before = nil
		_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
			ChatID: "g", SenderID: "alice", ClientMessageID: "of-another-run", Content: "x",
			ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
			MessageID: "of-another-run", CreatedAt: began, Importing: true,
		})
		return err
	}
	cfg := w.config()
	cfg.Store = faulty
	return cfg
}

// TestImport_import_once_after_a_refusal: a sender is no member any more, because of another
// program. Nothing behind their message is stored. When they are a member again, the next run goes
// on.
func TestImport_import_once_after_a_refusal(t *testing.T) {
	for id, last := range map[string][]importer.Record{
		"in-the-middle": {
			message("3", "alice", 3), message("4", "bob", 4), message("5", "alice", 5),
		},
		"at-the-end": nil,
	} {
		t.Run(id, func(t *testing.T) {
			w := newWorld(t)
			faulty := storagetest.Fault(w.store)
			faulty.Before = func(method string) error {
				if method != "Append" {
					return nil
				}
				_, err := w.store.RemoveMember(w.ctx, tidemark.ChatID(id), "bob", at(9))
				return err
			}
			cfg := w.config()
			cfg.Store = faulty
			records := slices.Concat([]importer.Record{
				group(id, "alice", "bob"), message("1", "alice", 1), message("2", "bob", 2),
			}, last, []importer.Record{importer.End{}})
			report, err := w.run(cfg, records...)
			if want := "message 2 of the chat " + id + ": bob is not a member"; err == nil ||
				len(report.Refused) != 1 || report.Refused[0].Code != tidemark.NotMember ||
				!strings.Contains(report.Refused[0].Reason, want) {
				t.Errorf("got %v, %+v, want %q", err, report.Refused, want)
			}
			if head := w.chat(tidemark.ChatID(id)).Head; head != 1 {
				t.Errorf("%d messages are stored, want 1", head)
			}
			w.move(records...)
			for i, m := range w.messages(tidemark.ChatID(id)) {
				if want := fmt.Sprint("says ", i+1); m.Content != want {
					t.Errorf("message %d %s, want %q", i+1, m.Content, want)
				}
			}
			if head := w.chat(tidemark.ChatID(id)).Head; int(head) != 2+len(last) {
				t.Errorf("%d messages are stored, want %d", head, 2+len(last))
			}
		})
	}
}

// TestImport_import_once_of_a_longer_export: a run is interrupted just before its end, when members
// have left and have their roles. The next run gets a later export, in which they go on.
func TestImport_import_once_of_a_longer_export(t *testing.T) {
	w := newWorld(t)
	export := func(prefix string, longer bool) []importer.Record {
		reader := joins(prefix+"reader", 0)
		reader.Role = tidemark.Reader
		records := []importer.Record{
			group(prefix+"g", prefix+"alice"), reader, joins(prefix+"bob", 0),
			message("1", prefix+"bob", 1), message("2", prefix+"reader", 2),
			importer.Message{ID: "3", At: at(3), Lack: importer.Deleted},
		}
		if longer {
			records = append(records, message("4", prefix+"bob", 4),
				message("5", prefix+"reader", 5), message("6", prefix+"alice", 6))
		}
		return append(records, leaves(prefix+"bob", 7), importer.End{})
	}
	dump := func(prefix string) string {
		return w.dump(prefix, []tidemark.ChatID{tidemark.ChatID(prefix + "g")}, []tidemark.UserID{
			tidemark.UserID(prefix + "alice"), tidemark.UserID(prefix + "bob"),
			tidemark.UserID(prefix + "reader"),
		})
	}
	w.move(export("whole-", true)...)
	w.broken("FinishImport", export("twice-", false)...)
	w.move(export("twice-", true)...)
	if got, want := dump("twice-"), dump("whole-"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestImport_import_once_notices_another_run that changes members of the same chat. They may be
// wrong then, so the import of the chat does not go on.
func TestImport_import_once_notices_another_run(t *testing.T) {
	w := newWorld(t)
	_, err := w.run(w.beside("RemoveMember"), group("g", "alice", "bob"),
		message("1", "alice", 1), leaves("bob", 2), message("2", "alice", 3), importer.End{})
	if err == nil || !strings.Contains(err.Error(), "another run imports the chat") {
		t.Errorf("got %v", err)
	}
}

// TestImport_import_once_settles_with_others: somebody else settles at the same time.
func TestImport_import_once_settles_with_others(t *testing.T) {
	w := newWorld(t)
	faulty := storagetest.Fault(w.store)
	faulty.Before = func(method string) error {
		if method != "Settle" {
			return nil
		}
		faulty.Before = nil
		open, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{
			Chats: []tidemark.ChatID{"g"},
		})
		w.ok(err)
		half := open[0].End
		half.Sequence = 1
		_, err = w.store.Settle(w.ctx, []storage.Settlement{{Backlog: open[0], To: half}})
		return err
	}
	cfg := w.config()
	cfg.Store = faulty
	_, err := w.run(cfg, group("g", "alice"), message("1", "alice", 1), message("2", "alice", 2),
		importer.End{})
	w.ok(err)
	open, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{Chats: []tidemark.ChatID{"g"}})
	w.ok(err)
	for _, b := range open {
		if b.From.Sequence != 2 {
			t.Errorf("outlets get messages after %d", b.From.Sequence)
		}
	}
}
