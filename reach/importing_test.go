package reach

import (
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
		w.importOne(id, i)
	}
	for _, p := range to {
		p.Hint(id)
	}
	return id
}

// importOne imports a message.
func (w *world) importOne(id tidemark.ChatID, i int) {
	w.Helper()
	key := fmt.Sprint("old", i)
	_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
		ChatID: id, SenderID: "alice", ClientMessageID: key, Content: key,
		ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
		MessageID: tidemark.MessageID(key), CreatedAt: time.Now(), Importing: true,
	})
	w.ok(err)
}

// settled settles the backlog of an import, as the importer does before the end. It must begin at a
// position.
func (w *world) settled(id tidemark.ChatID, from storage.Position) {
	w.Helper()
	open, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{Chats: []tidemark.ChatID{id}})
	w.ok(err)
	if len(open) != 1 || open[0].From != from {
		w.Fatalf("the backlog of an import is %+v, want one that begins at %+v", open, from)
	}
	settled, err := w.store.Settle(w.ctx, []storage.Settlement{
		{Backlog: open[0], To: open[0].End},
	})
	w.ok(err)
	if !settled[0] {
		w.Error("the backlog is not settled")
	}
}

// ended ends an import.
func (w *world) ended(id tidemark.ChatID) {
	w.Helper()
	w.settled(id, storage.Position{})
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
		if begun := p.claim(open); len(begun) != 0 {
			t.Errorf("the worker begins with %+v", begun)
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

// TestEngine_import_once_of_a_longer_export: an importer is killed when it has settled the backlog,
// and before it has finished the import. The next run has more messages, and no other news.
func TestEngine_import_once_of_a_longer_export(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		id := w.imported(5, p)
		time.Sleep(time.Minute)
		w.settled(id, storage.Position{})
		before, err := w.store.Chat(w.ctx, id)
		w.ok(err)
		w.importOne(id, 5)
		w.importOne(id, 6)
		p.Hint(id)
		time.Sleep(time.Minute)
		if got := w.inbox(home).messagesIn(id); len(got) != 0 {
			t.Errorf("during the import, the messages %v came", got)
		}
		w.settled(id, storage.PositionOf(&before))
		w.ok(w.store.FinishImport(w.ctx, id, time.Now()))
		p.Hint(id)
		time.Sleep(time.Minute)
		w.send(id, p)
		time.Sleep(time.Minute)
		if got := w.inbox(home).messagesIn(id); len(got) != 1 || got[0] != 8 {
			t.Errorf("after the import, the messages %v came, want 8", got)
		}
		if n := w.backlogs(storage.AllOutlets); n != 0 {
			t.Errorf("%d backlogs are left", n)
		}
	})
}
