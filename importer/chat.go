package importer

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// batchMessages and batchBytes bound what is appended in one call, and so the memory, and what
	// is sent again after a kill. A backend may store a beginning of it in steps.
	batchMessages = 500
	batchBytes    = 1 << 20
)

// move is the import of one chat.
//
//	stored                            then
//	no such chat                      it is created as importing
//	importing, of the same format     it continues: messages up to its head are compared
//	live, of the same format          an earlier run has ended it: all messages are compared
//	any other                         it is refused
type move struct {
	i      *Importer
	id     tidemark.ChatID
	direct bool
	// done says that an earlier run has ended the import. again says that an earlier run has begun
	// it, and that the members may not yet be as they must be before the next message (restore).
	done, again bool
	// head is that of the stored chat. at is how many messages the source has had so far. From head
	// on, these are in drafts.
	head, at tidemark.Sequence
	drafts   []tidemark.Draft
	bytes    int
	roll     roll
	compared compared
	// wanted has the users who have read up to a message, by its id.
	wanted map[string][]*person
}

// begin begins or continues the import of a chat.
func (i *Importer) begin(ctx context.Context, c *Chat) (*move, error) {
	new, err := i.newChat(c)
	if err != nil {
		return nil, err
	}
	chat, created, err := i.stored(ctx, &new)
	if err != nil {
		return nil, err
	}
	m := &move{
		i: i, id: new.ID, direct: new.Type == tidemark.Direct,
		done: chat.State != tidemark.ChatImporting, again: !created, head: chat.Head,
		roll: newRoll(), wanted: map[string][]*person{},
	}
	for _, user := range new.Members {
		m.roll.begin(user, new.CreatedAt)
	}
	for _, name := range c.Members {
		if m.direct {
			break
		}
		if err := m.member(&Member{User: name, At: c.CreatedAt}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// newChat returns the chat to create. Its members are those of a direct chat.
func (i *Importer) newChat(c *Chat) (storage.NewChat, error) {
	new := storage.NewChat{
		Type: c.Type, Name: cut(c.Name, tidemark.MaxChatName), Metadata: object(c.Metadata),
		History: c.History, CreatedAt: c.CreatedAt, Creation: tidemark.ImportedBy + i.cfg.Format,
		//rule:import_once.nobody-else-sends-meanwhile
		State: tidemark.ChatImporting,
	}
	if new.History == "" {
		new.History = tidemark.HistoryFull
	}
	var err error
	if new.ID, err = ID[tidemark.ChatID](c.ID); err != nil {
		return new, err
	}
	if err := i.checkTime("created_at", c.CreatedAt); err != nil {
		return new, err
	}
	if err := checkValue("metadata", new.Metadata); err != nil {
		return new, err
	}
	if new.Type == tidemark.Direct {
		for _, name := range c.Members {
			user, err := i.user(name)
			if err != nil {
				return new, err
			}
			new.Members = append(new.Members, user)
		}
		if len(new.Members) == 2 && new.Members[0] == new.Members[1] {
			return new, tidemark.BadParam(tidemark.Invalid, "member_ids", "names one user twice")
		}
	}
	return new, new.Check()
}

// stored returns the chat as it is stored, and creates it if there is none. Conflict: it is not
// this import's.
func (i *Importer) stored(
	ctx context.Context, new *storage.NewChat,
) (chat tidemark.Chat, created bool, err error) {
	ctx, cancel := call(ctx)
	defer cancel()
	chat, err = i.store.Chat(ctx, new.ID)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		chat, created, err = i.store.CreateChat(ctx, *new)
		if tidemark.CodeOf(err) == tidemark.Conflict {
			chat, err = i.store.Chat(ctx, new.ID) // Another run has created it meanwhile.
		}
	}
	switch {
	case err != nil:
		return chat, false, err
	case chat.ID != new.ID:
		return chat, false, tidemark.Errorf(tidemark.Conflict,
			"its two users have the direct chat %s already", chat.ID)
	case chat.State == tidemark.ChatDeleted:
		return chat, false, tidemark.Errorf(tidemark.Conflict,
			"there was a chat %s, which was deleted; its id is not used again", new.ID)
	//rule:import_once.new-chats-only
	case chat.Creation != new.Creation || chat.Type != new.Type || chat.History != new.History:
		return chat, false, tidemark.Errorf(tidemark.Conflict,
			"there is a chat %s already, which this import did not begin", new.ID)
	}
	return chat, created, nil
}

// take takes a record of the chat.
func (m *move) take(ctx context.Context, r Record) error {
	switch r := r.(type) {
	case Member:
		return m.member(&r)
	case Message:
		return m.message(ctx, &r)
	case Read:
		return m.read(&r)
	default:
		return m.end(ctx)
	}
}

// member notes a change of a member. It is made before the next message.
func (m *move) member(r *Member) error {
	if m.direct {
		return m.wrong(m.at, tidemark.Errorf(tidemark.Invalid,
			"the members of a direct chat do not change"))
	}
	if r.Role != "" {
		if err := tidemark.CheckRole(r.Role); err != nil {
			return m.wrong(m.at, err)
		}
	}
	if err := m.i.checkTime("at", r.At); err != nil {
		return m.wrong(m.at, err)
	}
	user, err := m.i.user(r.User)
	if err != nil {
		return m.wrong(m.at, err)
	}
	if p := m.roll.guest; p != nil && p.user == user {
		m.roll.guest = nil // They return, or leave anyway.
	}
	m.roll.change(user, r)
	return nil
}

// message takes the next message. It is appended if it is above the head.
func (m *move) message(ctx context.Context, r *Message) error {
	author, _ := ID[tidemark.UserID](r.Author) // draft refuses it.
	m.roll.dismiss(author)
	d, stub, err := m.draft(r)
	if err != nil {
		return m.wrong(m.at+1, err)
	}
	if p := m.roll.person(d.SenderID); !p.member {
		if m.direct {
			return m.wrong(m.at+1, tidemark.Errorf(tidemark.NotMember,
				"its author %s is none of the two members of the direct chat", d.SenderID))
		}
		//rule:import_once.senders-are-members
		m.roll.admit(p, r.At)
	}
	if err := m.apply(ctx); err != nil {
		return err
	}
	m.at++
	m.roll.person(d.SenderID).wrote(m.at)
	for _, p := range m.wanted[r.ID] {
		p.hasRead(m.at)
	}
	delete(m.wanted, r.ID)
	if stub {
		m.i.count(func(r *Report) { r.Stubs++ })
	}
	//rule:import_once.append-above-the-head-only
	if m.at <= m.head {
		m.i.count(func(r *Report) { r.Before++ })
		return m.compare(ctx, &d)
	}
	if m.done {
		return m.wrong(m.at, tidemark.Errorf(tidemark.Conflict,
			"an earlier import has ended the chat without it"))
	}
	if err := m.restore(ctx); err != nil {
		return err
	}
	m.drafts, m.bytes = append(m.drafts, d), m.bytes+d.Size()
	if len(m.drafts) == batchMessages || m.bytes >= batchBytes {
		return m.flush(ctx)
	}
	return nil
}

// read notes up to where a user has read.
func (m *move) read(r *Read) error {
	user, err := m.i.user(r.User)
	if err != nil {
		return m.wrong(m.at, err)
	}
	p := m.roll.person(user)
	p.marked = true
	if r.Message != "" {
		m.wanted[r.Message] = append(m.wanted[r.Message], p)
		return nil
	}
	if r.Position > uint64(tidemark.MaxSequence) {
		return m.wrong(m.at, tidemark.BadParam(tidemark.InvalidSequence, "position",
			"must be from 0 to %d", tidemark.MaxSequence))
	}
	p.hasRead(tidemark.Sequence(r.Position))
	return nil
}

// flush appends the drafts. A store stores nothing behind a draft that it refuses. So the chat can
// be continued when the cause is corrected. What another program has appended moves the drafts to a
// wrong place, for good, and flush says so.
func (m *move) flush(ctx context.Context) error {
	if len(m.drafts) == 0 {
		return nil
	}
	ctx, cancel := call(ctx)
	defer cancel()
	appended, err := m.i.store.Append(ctx, m.drafts)
	if err != nil {
		return err
	}
	var refusal error
	for k := range appended {
		a, position := &appended[k], m.head+1+tidemark.Sequence(k)
		switch {
		case a.Err != nil && refusal != nil:
		case a.Err != nil && refuses(a.Err):
			refusal = m.wrong(position, a.Err)
		case a.Err != nil:
			refusal = a.Err
		//rule:import_once.position-is-the-sequence
		case a.Message.Sequence != position:
			return m.wrong(position, tidemark.Errorf(tidemark.Conflict, "the store has it as "+
				"message %d; delete the chat, and import it again under another id",
				a.Message.Sequence))
		}
	}
	if refusal != nil {
		return refusal
	}
	n := len(m.drafts)
	m.head += tidemark.Sequence(n)
	m.drafts, m.bytes = nil, 0
	m.i.count(func(r *Report) { r.Messages += int64(n) })
	return nil
}

// wrong returns an error about a message, with its position.
func (m *move) wrong(position tidemark.Sequence, err error) error {
	return &tidemark.Error{
		Code: tidemark.CodeOf(err), Param: tidemark.ParamOf(err), Err: err,
		Detail: place(m.id, position) + tidemark.DetailOf(err),
	}
}

// latest is how far a time may be ahead of the clock.
const latest = 24 * time.Hour

// checkTime returns Invalid for a time that cannot be right.
func (i *Importer) checkTime(field string, at time.Time) error {
	switch {
	case at.IsZero():
		return tidemark.BadParam(tidemark.Invalid, field, "is missing")
	case at.UnixMilli() < 0:
		return tidemark.BadParam(tidemark.Invalid, field, "is before 1970: %s",
			at.Format(time.RFC3339))
	case at.After(i.cfg.Clock().Add(latest)):
		return tidemark.BadParam(tidemark.Invalid, field, "is in the future: %s",
			at.Format(time.RFC3339))
	}
	return nil
}
