package files

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/internal/input"
)

// Room is what is known of a chat besides its messages.
type Room struct {
	importer.Chat
	// Changes are the members of a group. All says that they are all there are: other authors
	// have left.
	Changes []importer.Member
	All     bool
	// Reads has what users have read: everything up to an order (Export.Add). If it is nil, all
	// members have read everything.
	Reads map[string]int64

	messages []entry
	sorted   bool
	// authors are those of the messages. first and last are the times of these.
	authors     map[string]bool
	first, last time.Time
}

// entry is a message in a file. Messages are sorted by their orders, and equal ones by ties. If the
// ties are equal, too, files have the message twice.
type entry struct {
	order, tie int64
	at         span
}

// Export is an export that was read once. Its zero value is empty.
type Export struct {
	Paths []string
	rooms map[string]*Room
	names []string
}

// Room returns the chat with an id.
func (e *Export) Room(id string) *Room {
	r := e.rooms[id]
	if r == nil {
		if e.rooms == nil {
			e.rooms = map[string]*Room{}
		}
		r = &Room{authors: map[string]bool{}}
		r.ID, r.Type = id, tidemark.Group
		e.rooms[id], e.names = r, append(e.names, id)
	}
	return r
}

// check returns Invalid if the files have no chat: they are not what they were said to be.
func (e *Export) check() error {
	if len(e.names) == 0 {
		return tidemark.Errorf(tidemark.Invalid, "no chat was found in %s",
			strings.Join(e.Paths, ", "))
	}
	return nil
}

// Add notes where a message is. Of messages with one order and tie, the first one counts: exports
// may overlap.
func (r *Room) Add(item *Item, m *importer.Message, order, tie int64) {
	r.messages, r.sorted = append(r.messages, entry{order, tie, item.at}), false
	if m.Author != "" {
		r.authors[m.Author] = true
	}
	if r.first.IsZero() || m.At.Before(r.first) {
		r.first = m.At
	}
	if m.At.After(r.last) {
		r.last = m.At
	}
}

// sort sorts the messages, each of them once.
func (r *Room) sort() {
	if r.sorted {
		return
	}
	slices.SortStableFunc(r.messages, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.tie, b.tie))
	})
	r.messages = slices.CompactFunc(r.messages, func(a, b entry) bool {
		return a.order == b.order && a.tie == b.tie
	})
	r.sorted = true
}

// through returns how many messages have at most an order.
func (r *Room) through(order int64) uint64 {
	n, _ := slices.BinarySearchFunc(r.messages, order, func(e entry, order int64) int {
		if e.order <= order {
			return -1
		}
		return 1
	})
	return uint64(n)
}

// direct makes the chat direct if it has two members, and nobody else has written.
func (r *Room) direct() {
	r.Members = nil
	users := map[string]bool{}
	for _, c := range r.Changes {
		if !c.Left {
			users[c.User] = true
		}
	}
	for user := range r.authors {
		if !users[user] {
			return
		}
	}
	if len(users) != 2 {
		return
	}
	for user := range users {
		r.Members = append(r.Members, user)
	}
	slices.Sort(r.Members)
	r.Type, r.Changes, r.Name = tidemark.Direct, nil, ""
}

// Pair asks for a direct chat: the other system has one for its two members.
func (r *Room) Pair() { r.Type = tidemark.Direct }

// Source is a format of exports.
type Source struct {
	Layout Layout
	// Index returns a function that gets each value of the files, and notes all but the texts of
	// messages in the export.
	Index func(*Export) func(Item) error
	// Parse returns a message by its value.
	Parse func(json.RawMessage) (importer.Message, error)
}

// Records returns the records of files. It reads them twice: first for what is where, and then the
// messages in their order.
func (s Source) Records(
	ctx context.Context, paths []string,
) iter.Seq2[importer.Record, error] {
	return func(yield func(importer.Record, error) bool) {
		export := &Export{Paths: paths}
		err := Walk(ctx, paths, s.Layout, s.Index(export))
		if err == nil {
			err = export.check()
		}
		if err != nil {
			yield(nil, err)
			return
		}
		export.records(ctx, s.Parse)(yield)
	}
}

// Decode decodes a value of an export. Invalid: it is not as the system of this name writes it.
func Decode(system string, raw json.RawMessage, to any) error {
	err := input.Decode(raw, to)
	if err == nil {
		return nil
	}
	return tidemark.Wrap(tidemark.Invalid, err,
		"it is none of "+system+": "+tidemark.DetailOf(err))
}

// records returns the records of all chats. parse returns a message by its value.
func (e *Export) records(
	ctx context.Context, parse func(json.RawMessage) (importer.Message, error),
) iter.Seq2[importer.Record, error] {
	return func(yield func(importer.Record, error) bool) {
		open := make([]*os.File, len(e.Paths))
		for i, path := range e.Paths {
			f, err := input.Open(path)
			if err != nil {
				yield(nil, err)
				return
			}
			defer f.Close()
			open[i] = f
		}
		w := writer{files: open, parse: parse, yield: yield}
		for _, name := range e.names {
			err := w.room(ctx, e.rooms[name])
			if err != nil && !w.ended {
				yield(nil, err)
			}
			if err != nil || w.ended || ctx.Err() != nil {
				return
			}
		}
	}
}

// writer yields records.
type writer struct {
	files []*os.File
	parse func(json.RawMessage) (importer.Message, error)
	yield func(importer.Record, error) bool
	ended bool
}

// put yields a record, unless the consumer has had enough.
func (w *writer) put(r importer.Record) {
	w.ended = w.ended || !w.yield(r, nil)
}

// room yields the records of a chat.
func (w *writer) room(ctx context.Context, r *Room) error {
	if r.sort(); r.Type == tidemark.Direct {
		r.Type = tidemark.Group
		r.direct()
	}
	if r.CreatedAt.IsZero() || !r.first.IsZero() && r.first.Before(r.CreatedAt) {
		r.CreatedAt = r.first
	}
	if r.CreatedAt.IsZero() {
		return nil // Nothing is known of the chat, and it has no messages.
	}
	for i := range r.Changes {
		if r.Changes[i].At.IsZero() {
			r.Changes[i].At = r.CreatedAt
		}
	}
	w.put(r.Chat)
	changes := r.Changes
	schedule := importer.NewSchedule(r.Members, changes)
	for i := range r.messages {
		m, err := w.message(&r.messages[i])
		if err != nil {
			return err
		}
		w.changes(schedule.Before(&m))
		if w.put(m); w.ended || ctx.Err() != nil {
			return nil
		}
	}
	if r.Type == tidemark.Group {
		w.changes(schedule.Rest(r.All, latest(r.CreatedAt, r.last)))
	}
	w.reads(r)
	w.put(importer.End{})
	return nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (w *writer) changes(changes []importer.Member) {
	for _, c := range changes {
		w.put(c)
	}
}

// reads yields what users have read.
func (w *writer) reads(r *Room) {
	users := map[string]bool{}
	for _, user := range r.Members {
		users[user] = true
	}
	for _, c := range r.Changes {
		users[c.User] = true
	}
	for user := range r.authors {
		users[user] = true
	}
	for user := range users {
		position := uint64(len(r.messages))
		if r.Reads != nil {
			order, known := r.Reads[user]
			if !known {
				continue
			}
			position = r.through(order)
		}
		w.put(importer.Read{User: user, Position: position})
	}
}

// message reads a message again.
func (w *writer) message(e *entry) (importer.Message, error) {
	raw := make([]byte, e.at.length)
	f := w.files[e.at.file]
	if _, err := f.ReadAt(raw, e.at.offset); err != nil {
		err = input.Unreadable(f.Name(), err)
		return importer.Message{}, tidemark.Wrap(tidemark.Invalid, err,
			tidemark.DetailOf(err)+"; it must not change during the import")
	}
	return w.parse(raw)
}
