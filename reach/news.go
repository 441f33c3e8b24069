package reach

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// pageMessages and pageBytes bound what is read of a chat at once.
	pageMessages = 100
	pageBytes    = 1 << 20
	pageMembers  = 500
)

// step is an event, with the position of the chat after it.
type step struct {
	outlet.Event
	after storage.Position
}

// reader reads the news of a chat from a position on, up to the end that the chat had when the
// reader was made. Changes of the chat and its members come before the messages: so an outlet knows
// a member before their first message. Without such changes, only the chat's id and its position
// are needed. Of a deleted chat the only news is the deletion.
type reader struct {
	store Store
	chat  tidemark.Chat
	at    storage.Position
	// page has the first messages after at, if they were read before, and asOf is when.
	page []tidemark.Message
	asOf time.Time
	// member is the last member of the previous page.
	member tidemark.UserID
}

// done reports whether all was read.
func (r *reader) done() bool { return r.at.Covers(storage.PositionOf(&r.chat)) }

// next returns the next events. They end at r.at, also if there are none. It may be called while
// done is false.
func (r *reader) next(ctx context.Context) ([]step, error) {
	switch {
	//rule:deleted_is_gone.tell-the-deletion-only
	case r.chat.State == tidemark.ChatDeleted:
		r.at = storage.PositionOf(&r.chat)
		return []step{{chatDeleted(&r.chat), r.at}}, nil
	case r.at.Version < r.chat.Version:
		r.at.Version = r.chat.Version
		return []step{{chatUpdated(&r.chat), r.at}}, nil
	case r.at.Members < r.chat.MembersVersion:
		return r.members(ctx)
	}
	return r.messages(ctx)
}

// members returns a page of the members that changed. The position rises after the last page only.
func (r *reader) members(ctx context.Context) ([]step, error) {
	found, more, err := r.store.MembersSince(ctx, storage.MembersQuery{
		Chat: r.chat.ID, Since: r.at.Members, After: r.member, Limit: pageMembers,
	})
	if err != nil {
		return nil, err
	}
	steps := make([]step, len(found))
	for i := range found {
		steps[i] = step{memberChanged(&r.chat, &found[i]), r.at}
		r.member = found[i].UserID
	}
	if !more {
		r.at.Members = r.chat.MembersVersion
		if len(steps) > 0 {
			steps[len(steps)-1].after = r.at
		}
	}
	return steps, nil
}

// messages returns a page of the messages. Those that have expired have no events.
func (r *reader) messages(ctx context.Context) ([]step, error) {
	page, asOf := r.page, r.asOf
	if r.page = nil; len(page) == 0 {
		asOf = time.Now()
		limit := min(pageMessages, int(r.chat.Head-r.at.Sequence))
		pages, err := r.store.Ranges(ctx, []storage.Range{{
			Chat: r.chat.ID, After: r.at.Sequence, Limit: limit, MaxBytes: pageBytes,
		}})
		if err != nil {
			return nil, err
		}
		page = pages[0]
	}
	// A page that begins at the floor may go beyond the end that the chat had.
	//rule:told_in_order.nothing-beyond-the-end
	for len(page) > 0 && page[len(page)-1].Sequence > r.chat.Head {
		page = page[:len(page)-1]
	}
	if len(page) == 0 {
		return nil, r.skipExpired(ctx)
	}
	steps := make([]step, len(page))
	for i := range page {
		r.at.Sequence = page[i].Sequence
		steps[i] = step{messagePersisted(&page[i], asOf), r.at}
	}
	return steps, nil
}

// skipExpired goes on behind messages that have expired. Unavailable: the next message has not.
func (r *reader) skipExpired(ctx context.Context) error {
	chat, err := r.store.Chat(ctx, r.chat.ID)
	if err != nil {
		return err
	}
	//rule:told_or_owed.nothing-of-what-has-expired
	if next := r.at.Sequence + 1; next >= chat.Floor {
		return tidemark.Errorf(tidemark.Unavailable,
			"message %d of the chat %s cannot be read", next, r.chat.ID)
	}
	r.at.Sequence = min(chat.Floor-1, r.chat.Head)
	return nil
}

// messagePersisted returns the event of a stored message that was read at a time.
func messagePersisted(m *tidemark.Message, asOf time.Time) outlet.Event {
	return outlet.Event{
		ID: outlet.EventID(outlet.MessagePersisted, string(m.ChatID),
			strconv.FormatUint(uint64(m.Sequence), 10), string(m.MessageID)),
		Type: outlet.MessagePersisted, Chat: m.ChatID, Sequence: uint64(m.Sequence),
		Time: m.CreatedAt, Data: m.AppendJSON(nil), AsOf: asOf,
	}
}

// memberChanged returns the event of the last change of a member. Earlier changes of the member
// have no event.
func memberChanged(c *tidemark.Chat, m *storage.ChangedMember) outlet.Event {
	data, err := json.Marshal(struct {
		Chat     tidemark.ChatID `json:"chat_id"`
		User     tidemark.UserID `json:"user_id"`
		Member   bool            `json:"member"`
		Role     tidemark.Role   `json:"role"`
		Joined   string          `json:"joined_at"`
		Metadata json.RawMessage `json:"metadata"`
		Version  uint64          `json:"members_version"`
	}{
		c.ID, m.UserID, m.Intervals.Open(), m.Role, m.JoinedAt.Format(tidemark.TimeLayout),
		orNull(m.Metadata), m.Version,
	})
	e := stateEvent(outlet.MemberChanged, c, data, err)
	e.User, e.Sequence = m.UserID, m.Version
	return e
}

// chatUpdated returns the event of the present state of a chat. A new chat has the same event.
func chatUpdated(c *tidemark.Chat) outlet.Event {
	data, err := json.Marshal(struct {
		Chat     tidemark.ChatID      `json:"chat_id"`
		Type     tidemark.ChatType    `json:"type"`
		Name     string               `json:"name"`
		Metadata json.RawMessage      `json:"metadata"`
		History  tidemark.HistoryMode `json:"history"`
		Created  string               `json:"created_at"`
		Version  uint64               `json:"version"`
	}{
		c.ID, c.Type, c.Name, orNull(c.Metadata), c.History,
		c.CreatedAt.Format(tidemark.TimeLayout), c.Version,
	})
	e := stateEvent(outlet.ChatUpdated, c, data, err)
	e.Sequence = c.Version
	return e
}

// chatDeleted returns the event of the deletion of a chat.
func chatDeleted(c *tidemark.Chat) outlet.Event {
	data, err := json.Marshal(struct {
		Chat    tidemark.ChatID `json:"chat_id"`
		Deleted string          `json:"deleted_at"`
	}{c.ID, c.DeletedAt.Format(tidemark.TimeLayout)})
	e := stateEvent(outlet.ChatDeleted, c, data, err)
	e.Sequence, e.Time = c.Version, c.DeletedAt.UTC().Truncate(time.Millisecond)
	return e
}

// stateEvent returns the event of a state of a chat. Its id follows from the state, and its time is
// that of the chat's creation: a state has no time of its own, and repetitions must be equal.
func stateEvent(t outlet.Type, c *tidemark.Chat, data []byte, err error) outlet.Event {
	if err != nil {
		// Metadata is checked when it is stored.
		data = []byte(`{"chat_id":` + strconv.Quote(string(c.ID)) + `,"damaged":true}`)
	}
	return outlet.Event{
		ID: outlet.EventID(t, string(c.ID), string(data)), Type: t, Chat: c.ID,
		Time: c.CreatedAt.UTC().Truncate(time.Millisecond), Data: data,
	}
}

func orNull(object json.RawMessage) json.RawMessage {
	if object == nil {
		return json.RawMessage("null")
	}
	return object
}
