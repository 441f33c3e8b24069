// Package tinode maps the topics of a Tinode server to the records of an import. The package
// postgres below it reads them from the database.
//
// Message n of a topic becomes message n of the chat: those that are missing become stubs. So what
// messages and marks say of numbers stays true.
package tinode

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
)

// Topic is a row of the table topics, with what other tables say of it besides its messages.
type Topic struct {
	Name    string
	Created time.Time
	// Public is JSON, or nil.
	Public        json.RawMessage
	Subscriptions []Subscription
	// Edits are the messages that replace another one, ascending.
	Edits []Message
}

// Subscription is a row of the table subscriptions.
type Subscription struct {
	User int64
	// Channel says that the user reads a channel, and takes no part in it.
	Channel bool
	Created time.Time
	// Updated is when the row changed last. Deleted is when the user left, or zero.
	Updated, Deleted time.Time
	ReadSeq          int64
	// Want and Given are access modes, such as JRWPS.
	Want, Given string
}

// Message is a row of the table messages.
type Message struct {
	Seq int64
	// From is 0 if the message was deleted for everyone.
	From    int64
	Created time.Time
	Deleted bool
	// Head and Content are JSON, or nil.
	Head, Content json.RawMessage
}

// Records returns the records of a topic. messages ascend.
func (k Key) Records(
	t *Topic, messages iter.Seq2[Message, error],
) iter.Seq2[importer.Record, error] {
	return func(yield func(importer.Record, error) bool) {
		w := writer{key: k, topic: t, yield: yield, at: t.Created}
		if err := w.write(messages); err != nil && !w.ended {
			yield(nil, err)
		}
	}
}

// writer yields the records of a topic.
type writer struct {
	key      Key
	topic    *Topic
	yield    func(importer.Record, error) bool
	schedule *importer.Schedule
	edits    edits
	// last is the number of the last message, and at its time.
	last  int64
	at    time.Time
	ended bool
}

// put yields a record, unless the consumer has had enough.
func (w *writer) put(r importer.Record) {
	w.ended = w.ended || !w.yield(r, nil)
}

// write yields all records.
func (w *writer) write(messages iter.Seq2[Message, error]) error {
	chat, err := w.chat()
	if err != nil {
		return err
	}
	w.put(chat)
	w.edits = editsOf(w.topic.Edits)
	for m, err := range messages {
		if err != nil {
			return err
		}
		if w.message(&m); w.ended {
			return nil
		}
	}
	w.rest()
	return nil
}

// chat returns the chat, and schedules the changes of its members.
func (w *writer) chat() (importer.Chat, error) {
	t := w.topic
	chat := importer.Chat{
		ID: t.Name, Type: tidemark.Group, Name: nameOf(t.Public), CreatedAt: t.Created,
	}
	if !strings.HasPrefix(t.Name, "p2p") {
		w.schedule = importer.NewSchedule(nil, w.changes())
		return chat, nil
	}
	pair, err := pairOf(t.Name)
	if err != nil {
		return chat, err
	}
	for i := range t.Subscriptions {
		user := w.key.User(t.Subscriptions[i].User)
		if !slices.Contains(pair, user) {
			return chat, tidemark.BadParam(tidemark.Denied, "uid_key", "is not that of this "+
				"database: it makes %s of a user of the topic %s, and these are %s",
				user, t.Name, strings.Join(pair, " and "))
		}
	}
	chat.Type, chat.Name, chat.Members = tidemark.Direct, "", pair
	w.schedule = importer.NewSchedule(pair, nil)
	return chat, nil
}

// nameOf returns the name in what everyone sees of a topic.
func nameOf(public json.RawMessage) string {
	var card struct {
		Name string `json:"fn"`
	}
	_ = json.Unmarshal(public, &card) // Another format has no name.
	return card.Name
}

// changes returns when members join and leave a group.
func (w *writer) changes() (all []importer.Member) {
	for i := range w.topic.Subscriptions {
		s := &w.topic.Subscriptions[i]
		user := w.key.User(s.User)
		role, joined := s.role()
		all = append(all, importer.Member{User: user, Role: role, At: s.Created})
		left := s.Deleted
		if left.IsZero() && !joined {
			left = s.Updated
		}
		if !left.IsZero() {
			all = append(all, importer.Member{User: user, Left: true, At: left})
		}
	}
	return all
}

// role returns the role of a user in a group. joined is false if they may not take part: they were
// banned, or have not accepted.
func (s *Subscription) role() (role tidemark.Role, joined bool) {
	may := func(mode string) bool {
		return strings.Contains(s.Want, mode) && strings.Contains(s.Given, mode)
	}
	joined = may("J")
	switch {
	case s.Channel:
		return tidemark.Reader, joined
	case may("O"):
		return tidemark.Owner, true
	case may("A"):
		return tidemark.Admin, joined
	case may("W"):
		return tidemark.Ordinary, joined
	}
	return tidemark.Reader, joined
}

// edited is a message that a user has edited. Only its author may: an edit by another user counts
// as a message.
type edited struct{ seq, by int64 }

// edits are the edits of a topic.
type edits struct {
	// last has the last edit of each message. of has the message that an edit changes, by its
	// number. An edit of an edit changes the same one.
	last map[edited]*Message
	of   map[int64]edited
	// done are the messages that were yielded as their last edits say.
	done map[edited]bool
}

func editsOf(all []Message) edits {
	e := edits{map[edited]*Message{}, map[int64]edited{}, map[edited]bool{}}
	for i := range all {
		m := &all[i]
		target := edited{replaced(m), m.From}
		if target.seq == 0 || m.Deleted {
			continue
		}
		if first, is := e.of[target.seq]; is && first.by == m.From {
			target = first
		}
		e.of[m.Seq], e.last[target] = target, m
	}
	return e
}

// replaced returns the number of the message that a message replaces, or 0.
func replaced(m *Message) int64 {
	n, err := strconv.ParseInt(strings.TrimPrefix(headOf(m.Head).Replace, ":"), 10, 64)
	if err != nil || n < 1 || n >= m.Seq {
		return 0
	}
	return n
}

// message yields a message, and stubs for those that are missing before it.
func (w *writer) message(m *Message) {
	for missing := w.last + 1; missing < m.Seq && !w.ended; missing++ {
		w.stub(missing)
	}
	if m.Created.After(w.at) {
		w.at = m.Created
	}
	if w.last = m.Seq; m.Deleted || m.From == 0 {
		w.stub(m.Seq)
		return
	}
	r := importer.Message{ID: seqID(m.Seq), Author: w.key.User(m.From), At: m.Created}
	says(&r, m.Head, m.Content)
	self := edited{m.Seq, m.From}
	if e := w.edits.last[self]; e != nil {
		r.Says, r.Lack = tidemark.Draft{}, ""
		says(&r, e.Head, e.Content)
		w.edits.done[self] = true
	}
	if target, is := w.edits.of[m.Seq]; is && w.edits.done[target] {
		r.Lack = importer.Edit
	}
	w.members(w.schedule.Before(&r))
	w.put(r)
}

// stub yields a message of which nothing is left.
func (w *writer) stub(seq int64) {
	r := importer.Message{ID: seqID(seq), At: w.at, Lack: importer.Deleted}
	w.members(w.schedule.Before(&r))
	w.put(r)
}

func (w *writer) members(changes []importer.Member) {
	for _, c := range changes {
		w.put(c)
	}
}

// rest yields what follows the last message.
func (w *writer) rest() {
	if w.topic.Name[0] != 'p' {
		w.members(w.schedule.Rest(true, w.at))
	}
	for i := range w.topic.Subscriptions {
		s := &w.topic.Subscriptions[i]
		w.put(importer.Read{
			User: w.key.User(s.User), Position: uint64(max(0, min(s.ReadSeq, w.last))),
		})
	}
	w.put(importer.End{})
}

func seqID(seq int64) string { return strconv.FormatInt(seq, 10) }
