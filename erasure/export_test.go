package erasure_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/storage"
)

// exported returns the lines of an export of zoe, by their type.
func (w *world) exported(parts ...erasure.Part) map[string][]string {
	w.t.Helper()
	lines := map[string][]string{}
	x := erasure.Exporter{Store: w.store, Parts: parts, Clock: time.Now}
	w.ok(x.Export(w.ctx, zoe, "", func(line []byte) error {
		var l struct{ Type string }
		err := json.Unmarshal(line, &l)
		lines[l.Type] = append(lines[l.Type], string(line))
		return err
	}))
	return lines
}

// TestExport_has_each_kind: each kind of what is stored of a user is in one line of its type, and
// nothing of others is.
func TestExport_has_each_kind(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	const when = `"2023-11-14T22:13:20.123Z"`
	group := func(w *world, id tidemark.ChatID, users ...tidemark.UserID) {
		_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
			ID: id, Type: tidemark.Group, Members: users, Creator: users[0],
			History: tidemark.HistoryFull, CreatedAt: at,
		})
		w.ok(err)
	}
	send := func(w *world, by tidemark.UserID, d tidemark.Draft) {
		d.ChatID, d.SenderID, d.ClientMessageID, d.CreatedAt = "canary-chat", by, "k", at
		d.Kind, d.ContentType = tidemark.KindMessage, tidemark.DefaultContentType
		_, err := storage.AppendOne(w.ctx, w.store, d)
		w.ok(err)
	}
	for what, tt := range map[string]struct {
		store func(w *world)
		// line is the type of the line, and want what it has.
		line string
		want []string
	}{
		"a block": {func(w *world) {
			_, err := w.store.PutBlock(w.ctx, zoe, "canary", at)
			w.ok(err)
		}, "block", []string{`"user_id":"canary"`, `"blocked_at":` + when}},
		"the setting of receipts for all chats": {func(w *world) {
			w.ok(w.store.SetReceipts(w.ctx, zoe, "", tidemark.ReceiptsOff))
		}, "receipts", []string{`"read_receipts":"off"`}},
		"that for a chat": {func(w *world) {
			group(w, "canary-chat", zoe, "bob")
			w.ok(w.store.SetReceipts(w.ctx, zoe, "canary-chat", tidemark.ReceiptsOn))
		}, "membership", []string{`"canary-chat"`, `"read_receipts":"on"`, `"banned_at":null`}},
		"a ban": {func(w *world) {
			group(w, "canary-chat", "bob")
			_, err := w.store.Ban(w.ctx, "canary-chat", zoe, at)
			w.ok(err)
		}, "membership", []string{`"canary-chat"`, `"banned_at":` + when, `"member":false`}},
		"a mention by another": {func(w *world) {
			group(w, "canary-chat", "bob")
			send(w, "bob", tidemark.Draft{Content: "of bob",
				Mentions: tidemark.NewMentions(false, []tidemark.UserID{zoe, "carol"})})
		}, "mention", []string{`"canary-chat"`, `"sequence":1`, `"sender_id":"bob"`, when}},
		"a message": {func(w *world) {
			group(w, "canary-chat", zoe)
			send(w, zoe, tidemark.Draft{Content: "canary"})
		}, "message", []string{`"canary"`, when}},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			_, err := w.store.PutBlock(w.ctx, "bob", zoe, at)
			w.ok(err)
			_, err = w.store.PutBlock(w.ctx, "bob", "dave", at)
			w.ok(err)
			w.ok(w.store.SetReceipts(w.ctx, "bob", "", tidemark.ReceiptsOff))
			tt.store(w)
			got := w.exported()
			if len(got[tt.line]) != 1 {
				t.Fatalf("%d lines of the type %s: %v", len(got[tt.line]), tt.line, got)
			}
			for _, want := range tt.want {
				if !strings.Contains(got[tt.line][0], want) {
					t.Errorf("got %s, want %s in it", got[tt.line][0], want)
				}
			}
			for kind, lines := range got {
				for _, other := range []string{"dave", "carol", "of bob"} {
					if strings.Contains(strings.Join(lines, ""), other) {
						t.Errorf("a line %s has %s of others", kind, other)
					}
				}
			}
		})
	}
}

// TestExport_reads_parts_first: what fails before the first line leaves no answer behind.
func TestExport_reads_parts_first(t *testing.T) {
	w := newWorld(t)
	fails := func(context.Context, tidemark.UserID) (any, error) { return nil, errKilled }
	failing := erasure.Part{Type: "push", Read: fails}
	x := erasure.Exporter{Store: w.store, Parts: []erasure.Part{failing}, Clock: time.Now}
	n := 0
	err := x.Export(w.ctx, zoe, "", func([]byte) error { n++; return nil })
	if err == nil || n != 0 {
		t.Errorf("got %v after %d lines, want an error and no line", err, n)
	}
	reads := func(context.Context, tidemark.UserID) (any, error) { return "canary", nil }
	got := w.exported(erasure.Part{Type: "push", Read: reads})["push"]
	if len(got) != 1 || !strings.Contains(got[0], "canary") {
		t.Errorf("the part is %v", got)
	}
}
