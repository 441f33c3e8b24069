package postgres

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// relation returns a draft of a user that changes a message.
func relation(
	chat tidemark.ChatID, sender tidemark.UserID, key string, target tidemark.Sequence,
	content string,
) tidemark.Draft {
	d := message(chat, sender, key, content)
	d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: target}
	if content == "" {
		d.Kind = tidemark.KindRedact
	}
	return d
}

// appendOne appends a draft that must be stored.
func appendOne(t *testing.T, s *Store, d tidemark.Draft) {
	t.Helper()
	if _, err := storage.AppendOne(t.Context(), s, d); err != nil {
		t.Fatal(err)
	}
}

// first returns the first message of the chat c.
func first(t *testing.T, s *Store) tidemark.Message {
	t.Helper()
	pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: "c", Limit: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return pages[0][0]
}

// TestAppend_redacted_stays_redacted_beside_another_node: an edit looks at its target only when no
// other node can change it.
func TestAppend_redacted_stays_redacted_beside_another_node(t *testing.T) {
	s, r := withRival(t, patient)
	appendOne(t, s, message("c", "anna", "1", "hello"))
	r.lockChat()
	edit := sent(s, relation("c", "anna", "2", 1, "edited"))
	r.waitedFor()
	r.do(`UPDATE messages SET content = '', revision = $1`,
		`{"sequence":2,"kind":"redact","by":"ben","at":1,"edits":0}`)
	r.do("COMMIT")
	if got := <-edit; tidemark.CodeOf(got.err) != tidemark.Conflict {
		t.Errorf("got %+v, want Conflict", got)
	}
	if m := first(t, s); !m.Redacted() || m.Content != "" {
		t.Errorf("the message is %+v, want it redacted", m)
	}
}

// TestAppend_relation_changes_one_row_of_partitions: rows of different partitions may have the same
// place in their tables. A relation changes only the rows of its chat. The partitions are those of
// docs/postgres.md.
func TestAppend_relation_changes_one_row_of_partitions(t *testing.T) {
	s, r := withRival(t, "")
	r.do(`ALTER TABLE messages RENAME TO messages_before`)
	r.do(`CREATE TABLE messages (LIKE messages_before) PARTITION BY HASH (chat)`)
	for n := range 16 {
		r.do(fmt.Sprintf(`CREATE TABLE messages_%d PARTITION OF messages
			FOR VALUES WITH (MODULUS 16, REMAINDER %d)`, n, n))
	}
	r.do(`ALTER TABLE messages ADD PRIMARY KEY (chat, sequence)`)
	r.do(`CREATE UNIQUE INDEX ON messages (client_message_id, sender_id, chat)`)
	r.do("COMMIT")
	// The chats c and d are in different partitions, so their rows have the same places.
	for _, chat := range []tidemark.ChatID{"c", "d"} {
		appendOne(t, s, message(chat, "anna", "1", "hello"))
	}
	appendOne(t, s, relation("c", "anna", "2", 1, "edited"))
	appendOne(t, s, relation("c", "anna", "3", 1, ""))
	if m := first(t, s); !m.Redacted() || m.Content != "" {
		t.Errorf("the message is %+v, want it redacted", m)
	}
	pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: "d", Limit: 1}})
	if err != nil || len(pages[0]) != 1 || pages[0][0].Content != "hello" {
		t.Errorf("the other chat has %+v, %v, want its message", pages, err)
	}
	var parts int
	err = r.conn.QueryRow(t.Context(),
		"SELECT count(DISTINCT tableoid) FROM messages").Scan(&parts)
	if err != nil || parts != 2 {
		t.Errorf("the messages are in %d partitions, %v, want 2", parts, err)
	}
}

// TestAppend_relation_and_its_target_are_one_step: when the backend dies between the two, neither
// is stored. The store repeats both.
func TestAppend_relation_and_its_target_are_one_step(t *testing.T) {
	s, r := withRival(t, patient)
	appendOne(t, s, message("c", "anna", "1", "hello"))
	r.do("SELECT FROM messages FOR UPDATE")
	redaction := sent(s, relation("c", "anna", "2", 1, ""))
	for range 2 {
		r.terminate()
		var messages int
		err := r.conn.QueryRow(t.Context(), "SELECT count(*) FROM messages").Scan(&messages)
		if err != nil || messages != 1 {
			t.Errorf("there are %d messages, %v, want 1", messages, err)
		}
	}
	r.commit()
	if got := <-redaction; got.err != nil || got.Duplicate || got.Message.Sequence != 2 ||
		!got.Message.Relation.Target.Redacted() {
		t.Errorf("got %+v, want the redaction", got)
	}
	if m := first(t, s); !m.Redacted() || m.Revision.Sequence != 2 {
		t.Errorf("the message is %+v, want it redacted", m)
	}
	wantMessages(t, s, "1", "2")
}

// TestAppend_relation_that_the_database_refuses_fails_alone: neither the relation nor the change of
// its target is stored.
func TestAppend_relation_that_the_database_refuses_fails_alone(t *testing.T) {
	s, _ := withRival(t, patient)
	appended, err := s.Append(t.Context(), []tidemark.Draft{
		message("c", "anna", "1", "hello"),
		relation("c", "anna", "bad", 1, "\x00"),
		message("c", "anna", "2", "hello"),
		relation("c", "anna", "3", 1, "edited"),
	})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, appended[1].Err, tidemark.Internal, "refused")
	for i, want := range []tidemark.Sequence{1, 0, 2, 3} {
		if got := appended[i].Message.Sequence; got != want {
			t.Errorf("draft %d has the sequence %d, want %d", i, got, want)
		}
	}
	wantMessages(t, s, "1", "2", "3")
	if m := first(t, s); m.Content != "edited" || m.Revision.Edits != 1 {
		t.Errorf("the message is %+v, want one edit", m)
	}
}

// TestAppend_relation_in_a_locked_chat_fails_alone: as a message there, it does not keep the others
// from their chats.
func TestAppend_relation_in_a_locked_chat_fails_alone(t *testing.T) {
	s, r := withRival(t, "&lock_timeout=200ms")
	appendOne(t, s, message("c", "anna", "1", "hello"))
	appendOne(t, s, message("d", "anna", "1", "hello"))
	drafts := []tidemark.Draft{
		relation("c", "anna", "2", 1, ""), message("c", "anna", "3", "hello"),
		relation("d", "anna", "2", 1, ""), message("d", "anna", "3", "hello"),
	}
	r.lockChat()
	for _, failed := range []int{2, 0} {
		appended, err := s.Append(t.Context(), drafts)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range appended {
			if i < failed {
				wantError(t, a.Err, tidemark.Unavailable, "holds a lock")
			} else if a.Err != nil || a.Message.Sequence != tidemark.Sequence(i%2+2) ||
				a.Duplicate != (failed == 0 && i >= 2) {
				t.Errorf("draft %d: %+v", i, a)
			}
		}
		if failed > 0 {
			r.do("COMMIT")
		}
	}
	wantMessages(t, s, "1", "2", "3")
}

// TestAppend_relations_and_equal_keys_of_one_batch: a repeated draft gets what is stored when its
// turn comes, and not what its leader stored.
func TestAppend_relations_and_equal_keys_of_one_batch(t *testing.T) {
	s, _ := withRival(t, patient)
	hello, edit := message("c", "anna", "1", "hello"), relation("c", "anna", "2", 1, "edited")
	other, redact := relation("c", "anna", "2", 1, "other"), relation("c", "anna", "3", 1, "")
	appended, err := s.Append(t.Context(), []tidemark.Draft{
		hello, hello, edit, hello, edit, other, redact, edit, hello,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range appended {
		m := a.Message
		if m.Relation != nil {
			m.Content = "of " + m.Relation.Target.Content
		}
		got = append(got, fmt.Sprint(m.Sequence, " ", m.Content, " ", a.Duplicate, " ",
			tidemark.CodeOf(a.Err)))
	}
	want := []string{
		"1 hello false ", "1 hello true ", "2 of edited false ", "1 edited true ",
		"2 of edited true ", "0  false CONFLICT", "3 of  false ", "2 of  true ", "1  true ",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	wantMessages(t, s, "1", "2", "3")
}

// TestAppend_many_relations_of_a_chat_end_in_time: each of them needs a transaction of its own.
// Those for which there is no time fail alone, and nothing else does.
func TestAppend_many_relations_of_a_chat_end_in_time(t *testing.T) {
	s, r := withRival(t, "")
	r.do("COMMIT")
	appendOne(t, s, message("c", "anna", "1", "hello"))
	drafts := []tidemark.Draft{message("d", "anna", "other", "hello")}
	for n := range 5_000 {
		drafts = append(drafts, relation("c", "anna", fmt.Sprint("r", n), 1, ""))
	}
	results, err := s.Append(t.Context(), drafts)
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for i, result := range results {
		switch {
		case result.Err == nil && stored == i:
			stored++
		case tidemark.CodeOf(result.Err) != tidemark.Unavailable:
			t.Fatalf("draft %d of %d after %d: %+v", i, len(drafts), stored, result)
		}
	}
	if stored < 2 || stored == len(drafts) {
		t.Errorf("%d of %d drafts are stored, want the first of them", stored, len(drafts))
	}
	appendOne(t, s, relation("c", "anna", "last", 1, ""))
}
