package erasure_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/storage"
)

// filing is a world whose users have files.
type filing struct {
	*world
	kept *attachments.Attachments
	dir  *dir.Dir
}

func newFiling(t *testing.T) *filing {
	t.Helper()
	files, err := dir.New(t.TempDir(), attachmentstest.Base)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	return &filing{
		world: w, dir: files,
		kept: attachments.New(attachments.Config{Store: w.store, Bytes: files, Log: w.log()}),
	}
}

func (f *filing) erase(r *erasure.Register) {
	f.t.Helper()
	f.work(erasure.New(erasure.Config{
		Register: r, Store: f.store, Core: f.core, Log: f.log(),
		Keepers: []erasure.Keeper{f.kept}, Files: f.kept,
	}))
	_, err := r.Begin(f.ctx, zoe)
	f.ok(err)
}

// append stores a message that names a file, or one with a relation.
func (f *filing) append(d tidemark.Draft, file string) tidemark.Sequence {
	f.t.Helper()
	d.ClientMessageID = fmt.Sprint(d.ChatID, d.SenderID, d.Kind, file)
	d.MessageID = tidemark.MessageID(fmt.Sprint(d.ChatID, len(d.SenderID), d.Kind, file))
	d.ContentType, d.CreatedAt = tidemark.DefaultContentType, time.Now()
	if file != "" {
		d.Content = "a file"
		d.Attachments = json.RawMessage(fmt.Sprintf(`[{"s3_ref":%q}]`, file))
		send := storage.SendKey{
			Chat: d.ChatID, Sender: d.SenderID, ClientMessageID: d.ClientMessageID,
		}
		f.ok(f.kept.Pin(f.ctx, send, []string{file}, nil))
	}
	stored, err := storage.AppendOne(f.ctx, f.store, d)
	f.ok(err)
	return stored.Message.Sequence
}

// sent uploads a file of a user, and sends it in a chat.
func (f *filing) sent(user tidemark.UserID, chat tidemark.ChatID) (string, tidemark.Sequence) {
	f.t.Helper()
	file := attachmentstest.Put(f.t, f.kept, f.dir, user)
	return file, f.append(tidemark.Draft{
		ChatID: chat, SenderID: user, Kind: tidemark.KindMessage,
	}, file)
}

// redacted sends a file of zoe, and redacts the message.
func (f *filing) redacted(chat tidemark.ChatID) string {
	f.t.Helper()
	file, at := f.sent(zoe, chat)
	f.append(tidemark.Draft{
		ChatID: chat, SenderID: zoe, Kind: tidemark.KindRedact,
		Relation: &tidemark.Relation{Sequence: at},
	}, "")
	return file
}

// left returns what is left of a file: its record, and its bytes.
func (f *filing) left(user tidemark.UserID, id string) (record, bytes bool) {
	f.t.Helper()
	found, err := f.store.DocumentsOf(f.ctx, []storage.DocumentKey{
		{Kind: "attachment:" + id, Name: "file"},
	})
	f.ok(err)
	size := int64(len("a file of " + string(user)))
	there, err := f.dir.Stored(f.ctx, &attachments.File{ID: id, Size: size})
	f.ok(err)
	return found[0].Value != nil, there
}

// TestWorker_erased_nowhere_in_files: the files of the user go, whatever became of the messages
// that named them. A file of another user in the same chat stays.
func TestWorker_erased_nowhere_in_files(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiling(t)
		group, deleted := f.chat("group", tidemark.Group, 1), f.chat("deleted", tidemark.Group, 1)
		files := map[string]string{
			"of a redacted message": f.redacted(group),
			"never sent":            attachmentstest.Put(t, f.kept, f.dir, zoe),
		}
		files["of a message"], _ = f.sent(zoe, group)
		files["of a deleted chat"], _ = f.sent(zoe, deleted)
		announced, err := f.kept.Announce(f.ctx, zoe, attachments.File{
			Name: "a", Type: "a/b", Size: 1,
		})
		f.ok(err)
		files["never uploaded"] = announced.ID
		other, _ := f.sent("bob", group)
		_, err = f.store.DeleteChat(f.ctx, deleted, time.Now())
		f.ok(err)
		_, done, err := f.store.PurgeChat(f.ctx, deleted, 100, true)
		if f.ok(err); !done {
			t.Fatal("something of the deleted chat is left")
		}
		r := f.register(nil)
		f.erase(r)
		later(10 * time.Minute)
		for name, id := range files {
			if record, bytes := f.left(zoe, id); record || bytes {
				t.Errorf("the file %s: the record is left: %t, the bytes: %t", name, record, bytes)
			}
		}
		if record, bytes := f.left("bob", other); !record || !bytes {
			t.Errorf("of bob's file, the record is there: %t, the bytes: %t", record, bytes)
		}
		if status, err := r.Status(f.ctx, zoe); err != nil || status.State != "erased" {
			t.Errorf("it ends as %+v, %v", status, err)
		}
		f.nothingLeft("at the end")
	})
}

// TestWorker_held_is_kept_with_files: while a chat is on hold, no file goes that its messages have
// named.
func TestWorker_held_is_kept_with_files(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiling(t)
		held, other := f.chat("held", tidemark.Group, 1), f.chat("other", tidemark.Group, 1)
		named, _ := f.sent(zoe, held)
		elsewhere, _ := f.sent(zoe, other)
		redacted := f.redacted(held)
		hold, free := true, false
		_, err := f.store.UpdateChat(f.ctx, held, storage.ChatChange{Hold: &hold})
		f.ok(err)
		f.erase(f.register(nil))
		check := func(what string, want bool, ids ...string) {
			t.Helper()
			for i, id := range ids {
				if record, bytes := f.left(zoe, id); record != want || bytes != want {
					t.Errorf("%s, of file %d the record is left: %t, the bytes: %t; want %t", what,
						i, record, bytes, want)
				}
			}
		}
		later(time.Hour)
		check("on hold", true, named, redacted)
		check("on hold", false, elsewhere)
		_, err = f.store.UpdateChat(f.ctx, held, storage.ChatChange{Hold: &free})
		f.ok(err)
		later(30 * time.Minute)
		check("at the end", false, named, redacted, elsewhere)
	})
}
