package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// sorting are the statements that sort.
var sorting = []string{chatsByActivity, membersSince, countReactions, reactionsTo, pinsOf}

// TestPlans_every_statement_uses_an_index calls every method. Then it asks SQLite for the plan of
// each statement that the methods prepared.
func TestPlans_every_statement_uses_an_index(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tidemark.db")
	s, err := Open(t.Context(), Config{Path: path, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	everyMethod(t, s)
	reader := <-s.readers
	defer func() { s.readers <- reader }()
	texts := map[string]bool{}
	for _, c := range []*conn{s.writer.c, reader} {
		for text := range c.stmts {
			texts[text] = true
		}
	}
	if len(texts) < 30 {
		t.Fatalf("%d statements were prepared, want all of them, at least 30", len(texts))
	}
	for text := range texts {
		if strings.HasPrefix(text, "PRAGMA") {
			continue
		}
		plan, err := reader.prepare("EXPLAIN QUERY PLAN " + text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		err = plan.each(func(row *stmt) bool {
			detail := row.stringAt(3)
			if strings.HasPrefix(detail, "SCAN") &&
				!strings.HasPrefix(detail, "SCAN j VIRTUAL TABLE") &&
				(detail != "SCAN p" || text != chatsByActivity) && // a page of chats
				!strings.Contains(text, "SELECT 1 FROM chats LIMIT 1") {
				t.Errorf("%s\n  has the step: %s", text, detail)
			}
			if strings.Contains(detail, "TEMP B-TREE") && !slices.Contains(sorting, text) {
				t.Errorf("%s\n  sorts: %s", text, detail)
			}
			return true
		})
		plan.Finalize()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// TestPlans_are_kept binds other values to each statement many times. SQLite must not plan the
// statement again for that.
func TestPlans_are_kept(t *testing.T) {
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "tidemark.db"), Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	everyMethod(t, s)
	for n := range 20 {
		user := tidemark.UserID(fmt.Sprintf("user%d", n))
		chat := tidemark.ChatID(fmt.Sprintf("chat%d", n))
		if _, _, err := s.ChatsOf(t.Context(), user, storage.ChatsPage{Limit: 10 + n}); err != nil {
			t.Fatal(err)
		}
		query := storage.BehindQuery{After: chat, Limit: 10 + n}
		if _, _, _, err := s.Behind(t.Context(), user, query); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.PendingOf(t.Context(), user, chat, 10+n); err != nil {
			t.Fatal(err)
		}
	}
	reader := <-s.readers
	defer func() { s.readers <- reader }()
	for _, c := range []*conn{s.writer.c, reader} {
		for text, q := range c.stmts {
			if n := q.Replans(); n > 0 {
				t.Errorf("planned again %d times: %s", n, text)
			}
		}
	}
}

// everyMethod calls each method of the store so that all its statements run.
func everyMethod(t *testing.T, s *Store) {
	t.Helper()
	ctx, now := t.Context(), time.UnixMilli(1_000)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []tidemark.ChatType{tidemark.Group, tidemark.Direct} {
		_, _, err := s.CreateChat(ctx, storage.NewChat{
			ID:        tidemark.ChatID(kind),
			Type:      kind,
			History:   tidemark.HistorySinceJoin,
			CreatedAt: now,
			Creator:   "anna",
			Members:   []tidemark.UserID{"anna", "ben"},
		})
		ok(err)
	}
	crowd := []tidemark.UserID{"anna"}
	for i := range tidemark.PendingFanoutLimit - 1 {
		crowd = append(crowd, tidemark.UserID(fmt.Sprintf("u%d", i)))
	}
	_, _, err := s.CreateChat(ctx, storage.NewChat{
		ID:        "crowd",
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: now,
		Creator:   "anna",
		Members:   crowd,
	})
	ok(err)
	for _, user := range []tidemark.UserID{"becomes large", "is large"} {
		_, err = s.AddMembers(ctx, "crowd", []tidemark.UserID{user}, tidemark.Ordinary, now)
		ok(err)
	}
	_, err = s.RemoveMember(ctx, "crowd", "anna", now)
	ok(err)
	const chat tidemark.ChatID = "group"
	d := tidemark.Draft{
		Kind:            tidemark.KindMessage,
		ChatID:          chat,
		SenderID:        "anna",
		ClientMessageID: "1",
		Content:         "hello",
		ContentType:     "text/plain",
		MessageID:       "m",
		CreatedAt:       now,
	}
	for range 2 {
		_, err := storage.AppendOne(ctx, s, d)
		ok(err)
	}
	d.ClientMessageID, d.Mentions = "2", tidemark.Mentions{All: true}
	_, err = storage.AppendOne(ctx, s, d)
	ok(err)
	d.ClientMessageID, d.Kind = "3", tidemark.KindSystem
	_, err = storage.AppendOne(ctx, s, d)
	ok(err)
	_, _, err = s.Sent(ctx, storage.SendKeyOf(&d))
	ok(err)
	d.ClientMessageID, d.Kind = "4", tidemark.KindEdit
	d.Relation = &tidemark.Relation{Sequence: 1}
	_, err = storage.AppendOne(ctx, s, d)
	ok(err)
	everyMethodOfAnnotations(t, s, d)
	_, err = s.AddMembers(ctx, chat, []tidemark.UserID{"carla"}, tidemark.Ordinary, now)
	ok(err)
	_, err = s.UpdateMember(ctx, chat, "anna", storage.MemberChange{Role: tidemark.Reader})
	ok(err)
	_, err = s.RemoveMember(ctx, chat, "carla", now)
	ok(err)
	_, err = s.UpdateChat(ctx, chat, storage.ChatChange{
		Metadata: []byte(`{"a":1}`),
	})
	ok(err)
	for _, n := range []tidemark.Sequence{0, 1, 1} {
		_, err = s.Advance(ctx, []storage.Advance{
			{User: "ben", Chat: chat, Raise: tidemark.Raise{Acked: n}, Now: now},
		})
		ok(err)
		_, err = s.Advance(ctx, []storage.Advance{
			{User: "ben", Chat: chat, Raise: tidemark.Raise{Read: n}, Now: now},
		})
		ok(err)
		_, err = s.Mark(ctx, []tidemark.PendingDelivery{
			{UserID: "ben", ChatID: chat, FirstUndelivered: 1},
		})
		ok(err)
		_, err = s.Clear(ctx, []storage.Clear{{User: "ben", Chat: chat, Through: n}})
		ok(err)
	}
	_, err = s.Chat(ctx, chat)
	ok(err)
	_, _, err = s.ChatsOf(ctx, "ben", storage.ChatsPage{Limit: 10})
	ok(err)
	_, err = s.Heads(ctx, []tidemark.ChatID{chat})
	ok(err)
	_, err = s.Rosters(ctx, []tidemark.ChatID{chat})
	ok(err)
	_, err = s.Unread(ctx, []storage.StateKey{{User: "ben", Chat: chat}})
	ok(err)
	_, err = s.UnreadOf(ctx, "ben")
	ok(err)
	for _, user := range []tidemark.UserID{"ben", "anna"} {
		_, err = s.Advance(ctx, []storage.Advance{
			{User: user, Chat: chat, Raise: tidemark.Raise{Read: 1}, Now: now},
		})
		ok(err)
		_, err = s.MarkUnread(ctx, user, chat, 1)
		ok(err)
	}
	for _, setting := range []tidemark.ReceiptsSetting{
		tidemark.ReceiptsOff, tidemark.ReceiptsDefault,
	} {
		ok(s.SetReceipts(ctx, "ben", chat, setting))
	}
	_, _, err = s.ReceiptsOf(ctx, "ben", chat)
	ok(err)
	for _, before := range []tidemark.Sequence{0, 2} {
		_, err = s.Ranges(ctx, []storage.Range{{Chat: chat, Before: before, Limit: 10}})
		ok(err)
	}
	_, err = s.States(ctx, []storage.StateKey{{User: "ben", Chat: chat}})
	ok(err)
	_, _, err = s.StatesOf(ctx, "ben", "", 10)
	ok(err)
	_, _, err = s.StatesIn(ctx, chat, "", 10)
	ok(err)
	_, err = s.Summary(ctx, chat, 1, "ben")
	ok(err)
	_, _, err = s.PendingOf(ctx, "ben", "", 10)
	ok(err)
	_, _, _, err = s.Behind(ctx, "ben", storage.BehindQuery{Limit: 10})
	ok(err)
	everyMethodOfOutlets(t, s, chat)
	everyMethodOfStates(t, s)
	ok(s.Check(ctx))
}

// everyMethodOfAnnotations reacts to a message that a draft changes, pins it, and undoes both.
func everyMethodOfAnnotations(t *testing.T, s *Store, d tidemark.Draft) {
	t.Helper()
	ctx, target := t.Context(), d.Relation.Sequence
	d.Content = ""
	for i, annotates := range []struct {
		kind  tidemark.Kind
		emoji string
	}{{tidemark.KindReact, "👍"}, {tidemark.KindPin, ""}} {
		d.ClientMessageID = fmt.Sprint("annotation ", i)
		d.Kind = annotates.kind
		d.Relation = &tidemark.Relation{Sequence: target, Emoji: annotates.emoji}
		stored, err := storage.AppendOne(ctx, s, d)
		if err != nil {
			t.Fatal(err)
		}
		d.ClientMessageID = fmt.Sprint("redaction ", i)
		d.Kind = tidemark.KindRedact
		d.Relation = &tidemark.Relation{Sequence: stored.Message.Sequence}
		if _, err := storage.AppendOne(ctx, s, d); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.Reactions(ctx, storage.ReactionsQuery{Chat: d.ChatID, From: 1, To: 9})
	if err == nil {
		_, _, err = s.Reactors(ctx, d.ChatID, target, 0, 10)
	}
	if err == nil {
		_, err = s.Pins(ctx, d.ChatID)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// everyMethodOfStates calls the methods that change what can be done with a chat.
func everyMethodOfStates(t *testing.T, s *Store) {
	t.Helper()
	ctx, now := t.Context(), time.UnixMilli(2_000)
	const chat tidemark.ChatID = "moved"
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.CreateChat(ctx, storage.NewChat{
		ID: chat, State: tidemark.ChatImporting, Type: tidemark.Group,
		History: tidemark.HistoryFull, CreatedAt: now, Members: []tidemark.UserID{"anna"},
	})
	ok(err)
	ok(s.FinishImport(ctx, chat, now))
	_, err = s.Policies(ctx, []tidemark.ChatID{chat})
	ok(err)
	_, err = s.Expire(ctx, chat, time.Now().Add(-storage.MinAge), 1)
	ok(err)
	_, err = s.DeleteChat(ctx, chat, now)
	ok(err)
	for _, members := range []bool{false, true} {
		_, _, err = s.PurgeChat(ctx, chat, 10, members)
		ok(err)
	}
}

// everyMethodOfOutlets calls the methods that only outlets and erasures use.
func everyMethodOfOutlets(t *testing.T, s *Store, chat tidemark.ChatID) {
	t.Helper()
	ctx, shards := t.Context(), []int{storage.ShardOf(chat)}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.Rewind(ctx, []storage.Backlog{{Outlet: "hook", Chat: chat}}))
	for range 2 { // first a part, then the rest
		for _, outlet := range []storage.OutletID{storage.AllOutlets, "hook"} {
			found, _, err := s.Backlogs(ctx, storage.BacklogQuery{
				Outlet: outlet, Shards: shards, Limit: 10,
			})
			ok(err)
			_, _, err = s.Backlogs(ctx, storage.BacklogQuery{
				Outlet: outlet, Chats: []tidemark.ChatID{chat},
			})
			ok(err)
			for _, b := range found {
				to := b.From
				if to.Sequence++; to.Sequence > 1 {
					c, err := s.Chat(ctx, b.Chat)
					ok(err)
					to = storage.PositionOf(&c)
				}
				_, err = s.Settle(ctx, []storage.Settlement{{Backlog: b, To: to}})
				ok(err)
			}
		}
	}
	for since := range uint64(2) {
		_, _, err := s.MembersSince(ctx, storage.MembersQuery{Chat: chat, Since: since, Limit: 10})
		ok(err)
	}
	_, _, _, err := s.EachChat(ctx, "", 10)
	ok(err)
	for table := range traces {
		_, _, _, err := s.UsersNamed(ctx, tracePlace{table: table}.text(), 10)
		ok(err)
	}
	for version := range uint64(3) {
		d := storage.Document{Kind: "kind", Name: "name", Version: version, Value: []byte(`{}`)}
		if version == 2 {
			d.Value = nil
		}
		_, err = s.PutDocument(ctx, d)
		ok(err)
	}
	_, err = s.PutDocument(ctx, storage.Document{Kind: "kind", Name: "name"})
	ok(err)
	_, _, err = s.Documents(ctx, "kind", "", 10)
	ok(err)
	_, err = s.DocumentsOf(ctx, []storage.DocumentKey{{Kind: "kind", Name: "name"}})
	ok(err)
	entry := storage.AuditEntry{ID: storage.NewAuditID(time.Now()), State: storage.AuditBegun}
	ok(s.RecordAudit(ctx, entry))
	ok(s.FinishAudit(ctx, entry.ID, storage.AuditEnd{State: storage.AuditDone}))
	ok(s.FinishAudit(ctx, entry.ID, storage.AuditEnd{State: storage.AuditWithdrawn}))
	ok(s.RenameAudit(ctx, entry.ID, "a", "b"))
	_, _, err = s.ListAudit(ctx, storage.AuditPage{Limit: 10})
	ok(err)
	_, _, err = s.TrimAudit(ctx, entry.ID, 10)
	ok(err)
	_, _, err = s.Entries(ctx, storage.EntryAudit, "", 10)
	ok(err)
}
