package erasure_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// scanned counts the reads of what names users.
type scanned struct {
	*memory.Store
	n int
}

func (s *scanned) UsersNamed(
	ctx context.Context, after string, limit int,
) ([]tidemark.UserID, string, bool, error) {
	s.n++
	return s.Store.UsersNamed(ctx, after, limit)
}

// TestReplay_erased_nowhere_in_no_chat: a backup names an erased user only where they were a member
// of no chat. All
// names are read only after a restore.
func TestReplay_erased_nowhere_in_no_chat(t *testing.T) {
	for what, store := range map[string]func(w *world) error{
		"who has blocked another": func(w *world) error {
			_, err := w.store.PutBlock(w.ctx, zoe, "bob", time.Now())
			return err
		},
		"who is blocked": func(w *world) error {
			_, err := w.store.PutBlock(w.ctx, "bob", zoe, time.Now())
			return err
		},
		"who is banned": func(w *world) error {
			_, err := w.store.Ban(w.ctx, "g", zoe, time.Now())
			return err
		},
		"who hides what they read": func(w *world) error {
			return w.store.SetReceipts(w.ctx, zoe, "", tidemark.ReceiptsOff)
		},
		"who is mentioned": func(w *world) error {
			_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
				ChatID: "g", SenderID: "bob", ClientMessageID: "k", Content: "x",
				Kind: tidemark.KindMessage, ContentType: tidemark.DefaultContentType,
				Mentions:  tidemark.NewMentions(false, []tidemark.UserID{zoe}),
				CreatedAt: time.Now(),
			})
			return err
		},
		"who is in the audit log": func(w *world) error {
			return w.store.RecordAudit(w.ctx, storage.AuditEntry{
				ID: storage.NewAuditID(time.Now()), Operation: "exportUser",
				Target: storage.AuditTarget{User: zoe}, State: storage.AuditBegun,
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
					ID: "g", Type: tidemark.Group, History: tidemark.HistoryFull,
					CreatedAt: time.Now(), Creator: "bob", Members: []tidemark.UserID{"bob"},
				})
				w.ok(err)
				w.ok(store(w))
				backup := w.store.Copy()
				ledger, err := erasure.OpenLedger(filepath.Join(t.TempDir(), "ledger"),
					bytes.Repeat([]byte("k"), 32))
				w.ok(err)
				r := w.register(ledger)
				stop := w.work(w.worker(r, w.store))
				_, err = r.Begin(w.ctx, zoe)
				w.ok(err)
				later(5 * time.Minute)
				stop()
				before := &scanned{Store: w.store}
				if w.ok(w.worker(r, w.store).Replay(w.ctx, before)); before.n != 0 {
					t.Error("a start without a restore has read all names")
				}
				w.store, w.core.store = backup, backup
				s := &scanned{Store: backup}
				r = w.register(ledger)
				for range 2 {
					w.ok(w.worker(r, w.store).Replay(w.ctx, s))
				}
				if s.n != 1 {
					t.Errorf("two starts have read all names %d times, want once", s.n)
				}
				left, _, _, err := backup.UsersNamed(w.ctx, "", 500)
				w.ok(err)
				for _, user := range left {
					if user == zoe {
						t.Errorf("after the replay, zoe is among %v", left)
					}
				}
				w.work(w.worker(r, w.store))
				later(10 * time.Minute)
				w.nothingLeft("at the end")
			})
		})
	}
}

// TestReplay_erased_nowhere_with_another_ledger: a database has not been looked through for the
// ledger, which has another user. An erasure does not hide that.
func TestReplay_erased_nowhere_with_another_ledger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger")
		open := func() *erasure.Ledger {
			ledger, err := erasure.OpenLedger(path, bytes.Repeat([]byte("k"), 32))
			if err != nil {
				t.Fatal(err)
			}
			return ledger
		}
		erase := func(w *world, user tidemark.UserID) {
			r := w.register(open())
			stop := w.work(w.worker(r, w.store))
			_, err := r.Begin(w.ctx, user)
			w.ok(err)
			later(5 * time.Minute)
			stop()
		}
		erase(newWorld(t), zoe)
		w := newWorld(t)
		_, err := w.store.PutBlock(w.ctx, zoe, "bob", time.Now())
		w.ok(err)
		erase(w, "dave")
		s := &scanned{Store: w.store}
		w.ok(w.worker(w.register(open()), w.store).Replay(w.ctx, s))
		if s.n == 0 {
			t.Error("the start has not read all names")
		}
		left, _, _, err := w.store.UsersNamed(w.ctx, "", 500)
		if w.ok(err); len(left) != 0 {
			t.Errorf("the database still names %v", left)
		}
	})
}
