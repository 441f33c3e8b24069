package importer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestImport_import_once_moves_a_group with all that a source can say.
func TestImport_import_once_moves_a_group(t *testing.T) {
	w := newWorld(t)
	answer := importer.Message{
		ID: "m3", Author: "carol", At: at(4), Mentioned: []string{"bob", "a b"},
		Says: tidemark.Draft{
			Content: "<b>yes</b>", ContentType: "text/html",
			Attachments: json.RawMessage(`[{"url":"https://example.com/x","size":3}]`),
			Metadata:    object("color", "red"),
		},
	}
	boss := joins("carol", 3)
	boss.Role = tidemark.Owner
	report := w.move(
		importer.Chat{
			ID: "team", Type: tidemark.Group, Name: "Team", CreatedAt: began,
			Metadata: object("topic", 7), Members: []string{"alice", "bob"},
		},
		importer.Read{User: "bob", Message: "m2"},
		message("m1", "alice", 1), message("m2", "alice", 2), boss, answer,
		importer.Message{ID: "m4", Author: "bob", At: at(5), Lack: importer.Deleted},
		leaves("bob", 6), message("m5", "alice", 7),
		importer.Read{User: "carol", Position: 5}, importer.Read{User: "alice", Position: 4},
		importer.End{},
	)
	c := w.chat("team")
	if c.State != tidemark.ChatLive || c.Head != 5 || c.Name != "Team" || c.MemberCount != 2 ||
		string(c.Metadata) != `{"topic":7}` || !c.CreatedAt.Equal(began) {
		t.Errorf("the chat is %+v", c)
	}
	all := w.messages("team")
	for i, want := range []string{"says m1", "says m2", "<b>yes</b>", "(deleted)", "says m5"} {
		m := &all[i]
		key := fmt.Sprintf("%d:m%d", i+1, i+1)
		if m.Content != want || m.ClientMessageID != key || m.Sequence != tidemark.Sequence(i+1) {
			t.Errorf("message %d is %q with the key %q", i+1, m.Content, m.ClientMessageID)
		}
		if id := string(m.MessageID); len(id) != 36 || id[14] != '7' {
			t.Errorf("message %d has the id %q, want a UUIDv7", i+1, id)
		}
	}
	third := &all[2]
	if third.ContentType != "text/html" || string(third.Metadata) != `{"color":"red"}` ||
		third.Mentions.Text() != "a:20b bob" || !third.CreatedAt.Equal(at(4)) ||
		!strings.Contains(string(third.Attachments), "/x") {
		t.Errorf("the third message is %+v", third)
	}
	if m := &all[3]; m.Kind != tidemark.KindSystem ||
		string(m.Metadata) != `{"import":{"deleted":true}}` {
		t.Errorf("the deleted message is %+v", m)
	}
	for user, want := range map[tidemark.UserID]string{
		"alice": "member 1-", "carol": "owner 1-",
	} {
		m, _ := w.roster("team").Member(user)
		if got := fmt.Sprint(m.Role, " ", m.Intervals.Text()); got != want {
			t.Errorf("%s is %q, want %q", user, got, want)
		}
	}
	for user, want := range map[tidemark.UserID]string{
		"alice": "5 5 0", "bob": "5 2 1", "carol": "5 5 0",
	} {
		s, unread := w.state("team", user)
		if got := fmt.Sprint(s.Acked, " ", s.Read, " ", unread.Messages); got != want {
			t.Errorf("%s has acknowledged, read, and not read %q, want %q", user, got, want)
		}
	}
	if report.Chats != 1 || report.Messages != 5 || report.Joined != 3 || report.Left != 1 ||
		report.Stubs != 1 || report.Reads != 3 || report.Senders != 0 {
		t.Errorf("the report is %+v", report)
	}
	_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
		ChatID: "team", SenderID: "alice", ClientMessageID: "live", Content: "now",
		ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
		MessageID: "live", CreatedAt: time.Now(),
	})
	if err != nil {
		t.Errorf("after the import nobody can send: %v", err)
	}
}

// TestImport_import_once_changes_members_between_messages: what a member may see begins and ends
// where the source says.
func TestImport_import_once_changes_members_between_messages(t *testing.T) {
	for _, tc := range []struct {
		history tidemark.HistoryMode
		records []importer.Record
		want    string
	}{
		{tidemark.HistoryFull, []importer.Record{
			message("1", "owner", 1), joins("u", 2), message("2", "owner", 3),
		}, "1-"},
		{tidemark.HistorySinceJoin, []importer.Record{
			message("1", "owner", 1), joins("u", 2), message("2", "owner", 3),
		}, "2-"},
		{tidemark.HistorySinceJoin, []importer.Record{
			joins("u", 0), message("1", "owner", 1), leaves("u", 2), message("2", "owner", 3),
			joins("u", 4), message("3", "owner", 5),
		}, "1-1,3-"},
		{tidemark.HistorySinceJoin, []importer.Record{
			joins("u", 0), message("1", "owner", 1), leaves("u", 2), joins("u", 2),
			message("2", "owner", 3),
		}, "1-"},
		{tidemark.HistorySinceJoin, []importer.Record{
			message("1", "owner", 1), joins("u", 2), leaves("u", 2), message("2", "owner", 3),
			joins("u", 4),
		}, "3-"},
		{tidemark.HistorySinceJoin, []importer.Record{
			message("1", "owner", 1), message("2", "u", 2), message("3", "owner", 3),
		}, "2-"},
		{tidemark.HistorySinceJoin, []importer.Record{
			joins("u", 0), message("1", "owner", 1), leaves("u", 2), message("2", "owner", 3),
			message("3", "u", 4), message("4", "u", 5), message("5", "owner", 6),
		}, "1-1,3-4"},
		{tidemark.HistorySinceJoin, []importer.Record{
			joins("u", 0), message("1", "owner", 1), leaves("u", 2), message("2", "owner", 3),
			message("3", "u", 4),
		}, "1-1,3-3"},
		{tidemark.HistorySinceJoin, []importer.Record{
			joins("u", 0), message("1", "owner", 1), leaves("u", 2), message("2", "owner", 3),
			message("3", "u", 4), joins("u", 5), message("4", "owner", 6),
		}, "1-1,3-"},
	} {
		t.Run(fmt.Sprint(tc.history, " ", tc.want), func(t *testing.T) {
			w := newWorld(t)
			begin := group("g", "owner")
			begin.History = tc.history
			w.move(append(append([]importer.Record{begin}, tc.records...), importer.End{})...)
			all, _, err := w.store.MembersSince(w.ctx, storage.MembersQuery{Chat: "g", Limit: 9})
			w.ok(err)
			got := ""
			for _, m := range all {
				if m.UserID == "u" {
					got = m.Intervals.Text()
				}
			}
			if got != tc.want {
				t.Errorf("the member sees %q, want %q", got, tc.want)
			}
		})
	}
}

// TestImport_import_once_is_direct: a pair has one chat, and nobody joins it.
func TestImport_import_once_is_direct(t *testing.T) {
	w := newWorld(t)
	direct := func(id string) importer.Chat {
		return importer.Chat{
			ID: id, Type: tidemark.Direct, CreatedAt: began, Members: []string{"bob", "alice"},
		}
	}
	w.move(direct("d"), message("1", "alice", 1), importer.Read{User: "bob", Position: 1},
		importer.End{})
	if c := w.chat("d"); c.Type != tidemark.Direct || c.Head != 1 || c.MemberCount != 2 {
		t.Errorf("the chat is %+v", c)
	}
	if _, unread := w.state("d", "bob"); unread.Messages != 0 {
		t.Errorf("bob has %d unread messages", unread.Messages)
	}
	for name, records := range map[string][]importer.Record{
		"direct chat d already": {direct("e"), importer.End{}},
		"none of the two members": {
			importer.Chat{ID: "f", Type: tidemark.Direct, CreatedAt: began,
				Members: []string{"carol", "dave"}},
			message("1", "erin", 1), importer.End{},
		},
		"do not change": {
			importer.Chat{ID: "g", Type: tidemark.Direct, CreatedAt: began,
				Members: []string{"carol", "erin"}},
			joins("dave", 1), importer.End{},
		},
		"one user twice": {
			importer.Chat{ID: "h", Type: tidemark.Direct, CreatedAt: began,
				Members: []string{"carol", "carol"}},
			importer.End{},
		},
	} {
		report, err := w.run(w.config(), records...)
		if err == nil || len(report.Refused) != 1 ||
			!strings.Contains(report.Refused[0].Reason, name) {
			t.Errorf("%s: got %v, %+v", name, err, report.Refused)
		}
	}
}

// TestImport_import_once_leaves_chats_of_others_alone: those that exist, and are not this import's.
func TestImport_import_once_leaves_chats_of_others_alone(t *testing.T) {
	w := newWorld(t)
	_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
		ID: "old", Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: began,
		Members: []tidemark.UserID{"alice"}, Creator: "alice",
	})
	w.ok(err)
	w.move(group("other"), importer.End{})
	elsewhere := w.config()
	elsewhere.Format = "another"
	elsewhere.Continue = true
	report, err := w.run(elsewhere,
		group("old", "bob"), message("1", "bob", 1), importer.End{},
		group("new", "bob"), message("1", "bob", 1), importer.End{},
		group("other", "bob"), message("1", "bob", 1), importer.End{},
	)
	if err == nil || report.RefusedChats != 2 || report.Chats != 1 || report.Messages != 1 {
		t.Errorf("got %v, %+v", err, report)
	}
	for i, id := range []string{"old", "other"} {
		r := report.Refused[i]
		if r.Chat != id || r.Code != tidemark.Conflict || w.chat(tidemark.ChatID(id)).Head != 0 ||
			!strings.Contains(r.Reason, "did not begin") {
			t.Errorf("%s: got %+v, and %d messages", id, r, w.chat(tidemark.ChatID(id)).Head)
		}
	}
}

// TestImport_import_once_repeats_nothing: a second run stores no message, and changes no member.
func TestImport_import_once_repeats_nothing(t *testing.T) {
	w := newWorld(t)
	var records []importer.Record
	records = append(records, group("g", "alice"))
	for n := range 2_500 {
		if n == 1_200 {
			records = append(records, joins("bob", n))
		}
		records = append(records, message(fmt.Sprint(n), "alice", n))
	}
	records = append(records, importer.End{})
	w.move(records...)
	version := w.chat("g").MembersVersion
	counted := storagetest.Count(w.store)
	cfg := w.config()
	cfg.Store = counted
	for range 2 {
		report, err := w.run(cfg, records...)
		if err != nil || report.Unchanged != 1 || report.Chats != 0 || report.Before != 2_500 {
			t.Errorf("again: %v, %+v", err, report)
		}
	}
	calls := counted.Snapshot().Calls
	for _, write := range []string{
		"Append", "AddMembers", "RemoveMember", "UpdateMember", "Advance", "CreateChat", "Settle",
	} {
		if calls[write] != 0 {
			t.Errorf("%s was called %d times", write, calls[write])
		}
	}
	if c := w.chat("g"); c.MembersVersion != version || c.Head != 2_500 {
		t.Errorf("the chat is %+v", c)
	}
}

// TestImport_import_once_notices_differences between the source and what is stored.
func TestImport_import_once_notices_differences(t *testing.T) {
	for name, tc := range map[string]struct {
		second []importer.Record
		// live says that the first run has ended.
		live bool
		want string
	}{
		"another author": {
			[]importer.Record{message("1", "alice", 1), message("2", "bob", 2)}, false,
			`message 2 of the chat g: the source has "2:2" by bob`,
		},
		"another time": {
			[]importer.Record{message("1", "alice", 1), message("2", "alice", 3)}, false,
			"message 2 of the chat g",
		},
		"another id": {
			[]importer.Record{message("x", "alice", 1), message("2", "alice", 2)}, false,
			"message 1 of the chat g",
		},
		"one more before it": {
			[]importer.Record{
				message("0", "alice", 0), message("1", "alice", 1), message("2", "alice", 2),
			}, false, "message 1 of the chat g",
		},
		"fewer": {
			[]importer.Record{message("1", "alice", 1)}, false,
			"stored messages up to 2",
		},
		"another author, afterwards": {
			[]importer.Record{message("1", "bob", 1), message("2", "alice", 2)}, true,
			"message 1 of the chat g",
		},
		"more, afterwards": {
			[]importer.Record{
				message("1", "alice", 1), message("2", "alice", 2), message("3", "alice", 3),
			}, true, "has ended the chat without it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := []importer.Record{
				group("g", "alice", "bob"), message("1", "alice", 1), message("2", "alice", 2),
			}
			if tc.live {
				w.move(append(first, importer.End{})...)
			} else {
				w.broken("Advance", append(first, importer.End{})...)
			}
			second := append([]importer.Record{group("g", "alice", "bob")}, tc.second...)
			_, err := w.run(w.config(), append(second, importer.End{})...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if head := w.chat("g").Head; head != 2 {
				t.Errorf("the chat has %d messages, want 2", head)
			}
		})
	}
}

// broken runs an import in which a call of the store fails for ever.
func (w *world) broken(method string, records ...importer.Record) {
	w.t.Helper()
	faulty := storagetest.Fault(w.store)
	faulty.Before = func(called string) error {
		if called == method {
			return tidemark.Errorf(tidemark.Unavailable, "the test says so")
		}
		return nil
	}
	cfg := w.config()
	cfg.Store = faulty
	if _, err := w.run(cfg, records...); tidemark.CodeOf(err) != tidemark.Unavailable {
		w.t.Fatalf("with a failing %s, got %v", method, err)
	}
}

// TestImport_import_once_closes_the_chat: until the end, nobody else sends.
func TestImport_import_once_closes_the_chat(t *testing.T) {
	w := newWorld(t)
	w.broken("Advance", group("g", "alice"), message("1", "alice", 1), importer.End{})
	if c := w.chat("g"); c.State != tidemark.ChatImporting || c.Head != 1 {
		t.Errorf("the chat is %+v", c)
	}
	_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
		ChatID: "g", SenderID: "alice", ClientMessageID: "live", Content: "now",
		ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
		MessageID: "live", CreatedAt: time.Now(),
	})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("a send gets %v, want Unavailable", err)
	}
	report := w.move(group("g", "alice"), message("1", "alice", 1), importer.End{})
	if report.Chats != 1 || report.Before != 1 || w.chat("g").State != tidemark.ChatLive {
		t.Errorf("again: %+v, %+v", report, w.chat("g"))
	}
}

// TestImport_import_once_of_what_has_expired: old messages may expire before the import is run
// again.
func TestImport_import_once_of_what_has_expired(t *testing.T) {
	w := newWorld(t)
	records := []importer.Record{
		group("g", "alice"), message("1", "alice", 1), message("2", "alice", 2), importer.End{},
	}
	w.broken("Advance", records...)
	for floor := range 3 {
		if floor > 0 {
			_, err := w.store.Expire(w.ctx, "g", time.Now().Add(-storage.MinAge-time.Hour), 1)
			w.ok(err)
		}
		w.broken("Advance", records...)
	}
	w.move(records...)
	if c := w.chat("g"); c.Head != 2 || c.Floor != 3 {
		t.Errorf("the chat is %+v", c)
	}
}

// TestImport_import_once_knows_authors: those whom the source does not mention join, and somebody
// stands for those whom it does not know.
func TestImport_import_once_knows_authors(t *testing.T) {
	w := newWorld(t)
	line := importer.Message{At: at(2), Says: tidemark.Draft{
		Kind: tidemark.KindSystem, Content: "alice has joined",
	}}
	report := w.move(
		group("empty"), importer.Message{ID: "0", At: at(1), Lack: importer.Deleted},
		message("1", "alice", 2), line, leaves("alice", 3), importer.End{},
	)
	var got []string
	for _, m := range w.messages("empty") {
		got = append(got, string(m.SenderID))
	}
	if want := "tidemark.import alice alice"; strings.Join(got, " ") != want {
		t.Errorf("the authors are %q, want %q", got, want)
	}
	if report.Senders != 2 || report.Left != 2 || w.chat("empty").MemberCount != 0 {
		t.Errorf("got %+v, and %d members", report, w.chat("empty").MemberCount)
	}
	unknown := importer.Message{ID: "1", At: at(1), Says: tidemark.Draft{Content: "x"}}
	if _, err := w.run(w.config(), group("h"), unknown, importer.End{}); err == nil {
		t.Error("a message of nobody was stored")
	}
}

// TestImport_import_once_readers_have_written: a user who may only read now wrote before. So roles
// come at the end.
func TestImport_import_once_readers_have_written(t *testing.T) {
	w := newWorld(t)
	reader, admin, owner := joins("bob", 0), joins("carol", 0), joins("alice", 0)
	reader.Role, admin.Role, owner.Role = tidemark.Reader, tidemark.Admin, tidemark.Owner
	records := []importer.Record{
		group("g"), owner, reader, admin, message("1", "bob", 1), leaves("carol", 2),
		importer.End{},
	}
	w.broken("Advance", records...)
	w.move(records...)
	for user, want := range map[tidemark.UserID]tidemark.Role{
		"alice": tidemark.Owner, "bob": tidemark.Reader,
	} {
		if m, _ := w.roster("g").Member(user); m.Role != want {
			t.Errorf("%s is %q, want %q", user, m.Role, want)
		}
	}
}

// TestImport_import_once_refuses_what_does_not_fit, with the position. On request it stores a stub.
func TestImport_import_once_refuses_what_does_not_fit(t *testing.T) {
	w := newWorld(t)
	says := func(d tidemark.Draft) importer.Record {
		return importer.Message{ID: "2", Author: "alice", At: at(2), Says: d}
	}
	long := strings.Repeat("x", tidemark.MaxContent+1)
	deep := json.RawMessage(`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`)
	future := importer.Message{
		ID: "2", Author: "alice", At: time.Now().Add(48 * time.Hour),
		Says: tidemark.Draft{Content: "x"},
	}
	for name, tc := range map[string]struct {
		record importer.Record
		code   tidemark.Code
	}{
		"content": {says(tidemark.Draft{Content: long}), tidemark.TooLarge},
		"metadata": {
			says(tidemark.Draft{Content: "x", Metadata: object("a", long)}), tidemark.TooLarge,
		},
		"attachments": {
			says(tidemark.Draft{Attachments: json.RawMessage(
				"[{}" + strings.Repeat(",{}", 10) + "]")}), tidemark.TooLarge,
		},
		"nothing": {says(tidemark.Draft{}), tidemark.Invalid},
		"depth":   {says(tidemark.Draft{Content: "x", Metadata: deep}), tidemark.Invalid},
		"an edit": {says(tidemark.Draft{Content: "x", Kind: tidemark.KindEdit}), tidemark.Invalid},
		"a file": {
			says(tidemark.Draft{Attachments: json.RawMessage(`[{"s3_ref":"a"}]`)}),
			tidemark.Invalid,
		},
		"a hidden file": {
			says(tidemark.Draft{Attachments: json.RawMessage(`[{"s3\u005fref":"a"}]`)}),
			tidemark.Invalid,
		},
		"a number": {
			says(tidemark.Draft{Content: "x", Metadata: json.RawMessage(`{"a":1e999}`)}),
			tidemark.Invalid,
		},
		"no object": {
			says(tidemark.Draft{Attachments: json.RawMessage(`[null]`)}), tidemark.Invalid,
		},
		"the future": {future, tidemark.Invalid},
		"no time":    {importer.Message{ID: "2", Author: "alice"}, tidemark.Invalid},
		"a read mark": {
			importer.Read{User: "alice", Position: 9}, tidemark.InvalidSequence,
		},
		"a read mark of nothing": {
			importer.Read{User: "alice", Message: "nothing"}, tidemark.Invalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := "g-" + strings.ReplaceAll(name, " ", "-")
			records := []importer.Record{
				group(id, "alice"), message("1", "alice", 1), tc.record, importer.End{},
			}
			report, err := w.run(w.config(), records...)
			if err == nil || len(report.Refused) != 1 || report.Refused[0].Code != tc.code ||
				!strings.Contains(report.Refused[0].Reason, " of the chat "+id) {
				t.Fatalf("got %v, %+v, want %s", err, report.Refused, tc.code)
			}
			dry := w.config()
			dry.Store = nil
			if again, err := w.run(dry, records...); err == nil ||
				fmt.Sprint(again.Refused) != fmt.Sprint(report.Refused) {
				t.Errorf("a dry run says %+v, %v", again.Refused, err)
			}
			skips := w.config()
			skips.SkipOversize = true
			report, err = w.run(skips, records...)
			if skipped := tc.code == tidemark.TooLarge; (err == nil) != skipped {
				t.Fatalf("with stubs, got %v", err)
			} else if !skipped {
				return
			}
			m := w.messages(tidemark.ChatID(id))[1]
			if m.Kind != tidemark.KindSystem || m.Content != "(oversize)" || report.Stubs != 1 {
				t.Errorf("the stub is %+v, and the report %+v", m, report)
			}
		})
	}
}

// TestImport_import_once_is_interrupted: what is under way is stored, and the next run goes on.
func TestImport_import_once_is_interrupted(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(w.ctx)
	var records []importer.Record
	records = append(records, group("g", "alice"))
	for n := range 1_200 {
		records = append(records, message(fmt.Sprint(n), "alice", n))
	}
	records = append(records, importer.End{})
	counted := storagetest.Fault(w.store)
	counted.After = func(method string) error {
		if method == "Append" {
			cancel()
		}
		return nil
	}
	cfg := w.config()
	cfg.Store = counted
	i := importer.New(cfg)
	if err := i.Run(ctx, source(records...)); !errors.Is(err, importer.ErrInterrupted) {
		t.Errorf("got %v", err)
	}
	if n := i.Report().Messages; n != 500 || w.chat("g").Head != 500 {
		t.Errorf("%d messages were stored, and the chat has %d", n, w.chat("g").Head)
	}
	if report := w.move(records...); report.Messages != 700 || report.Before != 500 {
		t.Errorf("again: %+v", report)
	}
}

// TestImport_import_once_goes_on_after_a_refusal if it is asked to. Otherwise it ends.
func TestImport_import_once_goes_on_after_a_refusal(t *testing.T) {
	w := newWorld(t)
	records := []importer.Record{
		group("a", "alice"), message("1", "alice", 1),
		importer.Message{ID: "2", Author: "alice", At: at(2)}, // It says nothing.
		message("3", "alice", 3), importer.End{},
		group("b", "alice"), message("1", "alice", 1), importer.End{},
	}
	report, err := w.run(w.config(), records...)
	if err == nil || report.Chats != 0 || report.RefusedChats != 1 {
		t.Errorf("got %v, %+v", err, report)
	}
	goesOn := w.config()
	goesOn.Continue = true
	report, err = w.run(goesOn, records...)
	if err == nil || report.Chats != 1 || report.RefusedChats != 1 || w.chat("b").Head != 1 {
		t.Errorf("with Continue, got %v, %+v", err, report)
	}
}

// TestImport_import_once_of_an_incomplete_chat: without an end, a chat stays closed.
func TestImport_import_once_of_an_incomplete_chat(t *testing.T) {
	w := newWorld(t)
	_, err := w.run(w.config(), group("g", "alice"), message("1", "alice", 1))
	if tidemark.CodeOf(err) != tidemark.Invalid || w.chat("g").State != tidemark.ChatImporting {
		t.Errorf("got %v, and the chat is %+v", err, w.chat("g"))
	}
	report, err := w.run(w.config(), group("h", "alice"), message("1", "alice", 1),
		group("i", "alice"), importer.End{})
	if tidemark.CodeOf(err) != tidemark.Internal || report.Chats != 0 {
		t.Errorf("of a source that leaves out an end, got %v, %+v", err, report)
	}
}
