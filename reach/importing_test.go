package reach

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// imported creates a chat that is being imported, with two members and n messages. The processes
// get a hint.
func (w *world) imported(n int, to ...*process) tidemark.ChatID {
	w.Helper()
	const id tidemark.ChatID = "moved"
	_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
		ID: id, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: time.Now(),
		State: tidemark.ChatImporting, Creation: tidemark.ImportedBy + "test",
	})
	w.ok(err)
	members := []tidemark.UserID{"alice", "bob"}
	_, err = w.store.AddMembers(w.ctx, id, members, tidemark.Ordinary, time.Now())
	w.ok(err)
	for i := range n {
		key := fmt.Sprint("old", i)
		_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
			ChatID: id, SenderID: "alice", ClientMessageID: key, Content: key,
			ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
			MessageID: tidemark.MessageID(key), CreatedAt: time.Now(), Importing: true,
		})
		w.ok(err)
	}
	for _, p := range to {
		p.Hint(id)
	}
	return id
}

// ended ends an import. Before, it settles the backlog, as the importer does.
func (w *world) ended(id tidemark.ChatID) {
	w.Helper()
	open, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{Chats: []tidemark.ChatID{id}})
	w.ok(err)
	if len(open) != 1 || open[0].From != (storage.Position{}) {
		w.Fatalf("the backlog of an import is %+v, want one that begins at nothing", open)
	}
	settled, err := w.store.Settle(w.ctx, []storage.Settlement{
		{Backlog: open[0], To: open[0].End},
	})
	w.ok(err)
	if !settled[0] {
		w.Error("the backlog is not settled")
	}
	w.ok(w.store.FinishImport(w.ctx, id, time.Now()))
}

// messagesIn returns the sequences of the messages of a chat that a receiver has accepted.
func (i *inbox) messagesIn(chat tidemark.ChatID) (all []tidemark.Sequence) {
	for _, e := range i.events() {
		if e.Type == outlet.MessagePersisted && e.Chat == chat {
			all = append(all, sequenceOf(e))
		}
	}
	return all
}

// TestEngine_import_once_is_no_news: while a chat is imported, its news waits. The importer settles
// it. What comes afterwards is told.
func TestEngine_import_once_is_no_news(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		chat := w.imported(5, p)
		other := w.group()
		w.send(other, p)
		time.Sleep(time.Minute)
		if got := w.inbox(home).messagesIn(other); len(got) != 1 {
			t.Errorf("of another chat, %v came, want one message", got)
		}
		for _, e := range w.inbox(home).events() {
			if e.Chat == chat {
				t.Errorf("during the import, %s came", e.Type)
			}
		}
		w.ended(chat)
		p.Hint(chat)
		time.Sleep(time.Minute)
		w.send(chat, p)
		time.Sleep(time.Minute)
		if got := w.inbox(home).messagesIn(chat); len(got) != 1 || got[0] != 6 {
			t.Errorf("after the import, the messages %v came, want 6", got)
		}
		if n := w.backlogs(storage.AllOutlets); n != 0 {
			t.Errorf("%d backlogs are left", n)
		}
	})
}

// TestEngine_import_once_ends_meanwhile: the import ends between the moment in which a worker reads
// the backlog, and the one in which it reads the chat. The worker leaves it alone.
func TestEngine_import_once_ends_meanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		chat := w.imported(5)
		open, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{
			Chats: []tidemark.ChatID{chat},
		})
		w.ok(err)
		w.ended(chat)
		p.mu.Lock()
		list := p.list
		p.mu.Unlock()
		_, _, err = p.deliver(w.ctx, &task{backlog: open[0], to: open[0].From, list: list})
		if !errors.Is(err, errImporting) {
			t.Errorf("got %v, want %v", err, errImporting)
		}
		time.Sleep(time.Minute)
		for _, e := range w.inbox(home).events() {
			if e.Chat == chat {
				t.Errorf("after the import, %s came", e.Type)
			}
		}
	})
}

// TestEngine_import_once_lets_a_replay_wait: an operator asks for everything again while a chat is
// imported. It comes when the import has ended.
func TestEngine_import_once_lets_a_replay_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{})
		chat := w.imported(5)
		w.ok(w.store.Rewind(w.ctx, []storage.Backlog{{Outlet: id, Chat: chat}}))
		time.Sleep(time.Minute)
		if got := w.inbox(home).messagesIn(chat); len(got) != 0 {
			t.Errorf("during the import, the messages %v came", got)
		}
		w.ended(chat)
		time.Sleep(time.Minute)
		if got := w.inbox(home).messagesIn(chat); len(got) != 5 {
			t.Errorf("after the import, the messages %v came, want all", got)
		}
		if n := w.backlogs(id); n != 0 {
			t.Errorf("%d backlogs of the outlet are left", n)
		}
	})
}
