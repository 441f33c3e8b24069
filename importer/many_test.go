package importer_test

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestImport_import_once_of_many_members: they join in few calls, and nothing is pending.
func TestImport_import_once_of_many_members(t *testing.T) {
	w := newWorld(t)
	c := group("large", "owner")
	for n := range 1_500 {
		c.Members = append(c.Members, fmt.Sprint("u", n))
	}
	counted := storagetest.Count(w.store)
	cfg := w.config()
	cfg.Store = counted
	_, err := w.run(cfg, c, message("1", "owner", 1), importer.End{})
	w.ok(err)
	if n := counted.Snapshot().Calls["AddMembers"]; n != 2 {
		t.Errorf("AddMembers was called %d times, want 2", n)
	}
	if c := w.chat("large"); c.MemberCount != 1_501 || !c.Large {
		t.Errorf("the chat is %+v", c)
	}
	if s, _ := w.state("large", "u7"); s.Acked != 1 {
		t.Errorf("a member has acknowledged %d, want 1", s.Acked)
	}
}

// TestImport_import_once_of_who_writes_after_they_left: bob left, and writes between the messages
// of the owner all the same. They join and leave for each of their messages, 49 times, and then
// stay. An import that was killed in between ends as one run does.
func TestImport_import_once_of_who_writes_after_they_left(t *testing.T) {
	w := newWorld(t)
	const pairs, visits = 55, 49
	export := func(prefix string) []importer.Record {
		begin := group(prefix+"g", prefix+"owner", prefix+"bob")
		begin.History = tidemark.HistorySinceJoin
		records := []importer.Record{
			begin, message("first", prefix+"bob", 0), leaves(prefix+"bob", 1),
		}
		for n := range pairs {
			records = append(records, message(fmt.Sprint("o", n), prefix+"owner", 2+2*n),
				message(fmt.Sprint("b", n), prefix+"bob", 3+2*n))
		}
		return append(records, importer.End{})
	}
	dump := func(prefix string) string {
		return w.dump(prefix, []tidemark.ChatID{tidemark.ChatID(prefix + "g")}, []tidemark.UserID{
			tidemark.UserID(prefix + "owner"), tidemark.UserID(prefix + "bob"),
		})
	}
	report := w.move(export("whole-")...)
	if report.Messages != 1+2*pairs || report.Left != 1+visits || report.Senders != visits+1 {
		t.Errorf("the report is %+v", report)
	}
	all, _, err := w.store.MembersSince(w.ctx, storage.MembersQuery{Chat: "whole-g", Limit: 9})
	w.ok(err)
	for _, m := range all {
		want := 1
		if m.UserID == "whole-bob" {
			want = 1 + visits + 1
		}
		if n := len(m.Intervals); n != want || !m.Intervals.Open() {
			t.Errorf("%s sees %s: %d intervals, want %d, and a member", m.UserID,
				m.Intervals.Text(), n, want)
		}
	}
	want := dump("whole-")
	for _, lost := range []bool{false, true} {
		prefix := fmt.Sprintf("killed-%t-", lost)
		for _, calls := range []int{40, 45, 50} {
			if !w.kill(calls, lost, export(prefix)) {
				t.Fatal("the import ended before it was killed")
			}
		}
		w.move(export(prefix)...)
		if got := dump(prefix); got != want {
			t.Errorf("after kills (lost answer: %t), got\n%s\nwant\n%s", lost, got, want)
		}
	}
}
