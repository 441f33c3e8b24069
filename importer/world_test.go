package importer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stores.Main(m)) }

// began is when everything in the tests began.
var began = time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)

// at returns a time so many minutes later.
func at(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }

// world is a store into which sources are imported.
type world struct {
	t     *testing.T
	ctx   context.Context
	store storage.Store
}

func newWorld(t *testing.T) *world {
	return &world{t: t, ctx: context.Background(), store: stores.Open(t)}
}

// source returns records as a source yields them.
func source(records ...importer.Record) iter.Seq2[importer.Record, error] {
	return func(yield func(importer.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// config is the configuration of most tests.
func (w *world) config() importer.Config {
	return importer.Config{Store: w.store, Format: "test", Clock: time.Now}
}

// run imports records, and returns the report and the error.
func (w *world) run(cfg importer.Config, records ...importer.Record) (importer.Report, error) {
	i := importer.New(cfg)
	err := i.Run(w.ctx, source(records...))
	return i.Report(), err
}

// move imports records, which must succeed.
func (w *world) move(records ...importer.Record) importer.Report {
	w.t.Helper()
	report, err := w.run(w.config(), records...)
	w.ok(err)
	return report
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// group begins a group.
func group(id string, members ...string) importer.Chat {
	return importer.Chat{
		ID: id, Type: tidemark.Group, Name: "Name of " + id, CreatedAt: began, Members: members,
	}
}

// message returns a message, with its id as what it says.
func message(id, author string, minutes int) importer.Message {
	return importer.Message{
		ID: id, Author: author, At: at(minutes), Says: tidemark.Draft{Content: "says " + id},
	}
}

func joins(user string, minutes int) importer.Member {
	return importer.Member{User: user, At: at(minutes)}
}

func leaves(user string, minutes int) importer.Member {
	return importer.Member{User: user, Left: true, At: at(minutes)}
}

// chat returns a stored chat.
func (w *world) chat(id tidemark.ChatID) tidemark.Chat {
	w.t.Helper()
	chat, err := w.store.Chat(w.ctx, id)
	w.ok(err)
	return chat
}

// messages returns all stored messages of a chat.
func (w *world) messages(id tidemark.ChatID) []tidemark.Message {
	w.t.Helper()
	pages, err := w.store.Ranges(w.ctx, []storage.Range{{Chat: id, Limit: storage.MaxBatch}})
	w.ok(err)
	return pages[0]
}

// roster returns the members of a chat.
func (w *world) roster(id tidemark.ChatID) *tidemark.Roster {
	w.t.Helper()
	rosters, err := w.store.Rosters(w.ctx, []tidemark.ChatID{id})
	w.ok(err)
	return rosters[0]
}

// state returns the watermarks of a user, and what is unread.
func (w *world) state(
	id tidemark.ChatID, user tidemark.UserID,
) (tidemark.DeliveryState, storage.Unread) {
	w.t.Helper()
	keys := []storage.StateKey{{User: user, Chat: id}}
	states, err := w.store.States(w.ctx, keys)
	w.ok(err)
	unread, err := w.store.Unread(w.ctx, keys)
	w.ok(err)
	return states[0], unread[0]
}

// dump returns all that is stored of chats and users, but what differs between two runs: versions,
// and the times of watermarks. prefix is left out of all ids.
func (w *world) dump(prefix string, chats []tidemark.ChatID, users []tidemark.UserID) string {
	w.t.Helper()
	var b strings.Builder
	for _, id := range chats {
		c := w.chat(id)
		fmt.Fprintf(&b, "chat %s %s %q %s state %q head %d floor %d, %d members, large %t\n",
			c.ID, c.Type, c.Name, c.History, c.State, c.Head, c.Floor, c.MemberCount, c.Large)
		changed, _, err := w.store.MembersSince(w.ctx, storage.MembersQuery{
			Chat: id, Limit: storage.MaxBatch,
		})
		w.ok(err)
		for _, m := range changed {
			fmt.Fprintf(&b, "  member %s %s %s %s\n", m.UserID, m.Role, m.Intervals.Text(),
				m.JoinedAt.Format(time.RFC3339))
		}
		for _, m := range w.messages(id) {
			fmt.Fprintf(&b, "  message %d %s %s %s %q %s %s %s %q %s\n", m.Sequence, m.SenderID,
				m.ClientMessageID, m.Kind, m.Content, m.ContentType, m.Attachments, m.Metadata,
				m.Mentions.Text(), m.CreatedAt.Format(time.RFC3339))
		}
		open, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{Chats: []tidemark.ChatID{id}})
		w.ok(err)
		for _, b := range open {
			if b.From.Sequence != b.End.Sequence {
				w.t.Errorf("outlets get the messages of %s after %d", id, b.From.Sequence)
			}
		}
		for _, user := range users {
			s, unread := w.state(id, user)
			fmt.Fprintf(&b, "  state %s acked %d read %d unread %d %d\n", user, s.Acked, s.Read,
				unread.Messages, unread.Mentions)
		}
	}
	for _, user := range users {
		rows, _, err := w.store.PendingOf(w.ctx, user, "", 1_000)
		w.ok(err)
		fmt.Fprintf(&b, "%s has %d pending rows\n", user, len(rows))
	}
	return strings.ReplaceAll(b.String(), prefix, "")
}

// object returns a JSON object with one field.
func object(key string, value any) json.RawMessage {
	raw, err := json.Marshal(map[string]any{key: value})
	if err != nil {
		panic(err)
	}
	return raw
}
