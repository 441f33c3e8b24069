package storagetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// testModel applies random sequences of all operations to the store under test and to storage/memory, and compares every
// result, and everything that can be read, after each step. If reopen is given, closing and opening again is one of the steps.
func testModel(t *testing.T, s suite, reopen func(t *testing.T, s storage.Store) storage.Store) {
	rapid.Check(t, func(rt *rapid.T) {
		w := s.world(rt)
		w.tb = unprefixed{rt, w.prefix}
		m := &model{
			world: w,
			spec:  &world{tb: w.tb, ctx: w.ctx, store: memory.New(), prefix: w.prefix},
		}
		m.everyone = m.users("A", "a", "b", "c", "d")
		for _, name := range []string{"C", "c", "c.1", "d"} {
			m.rooms = append(m.rooms, m.chat(name))
		}
		actions := map[string]func(*rapid.T){
			"":            func(*rapid.T) { m.compareStates() },
			"create":      m.createChat,
			"rename":      m.rename,
			"append":      m.appendNew,
			"append more": m.appendNew,
			"resend":      m.resend,
			"add":         m.addMembers,
			"remove":      m.removeMember,
			"advance":     m.advance,
			"own run":     m.ownRun,
			"mark":        m.markRows,
			"clear":       m.clearRows,
			"range":       m.readRange,
			"lists":       m.readLists,
			"statuses":    m.readStatuses,
		}
		if reopen != nil {
			actions["reopen"] = func(*rapid.T) {
				s.store = reopen(t, s.store)
				m.store = s.store
			}
		}
		m.createChat(rt)
		rt.Repeat(actions)
		m.compareMessages()
	})
}

// unprefixed leaves the prefix of the ids out of failures, because rapid minimizes a run only if it fails in the same words again.
type unprefixed struct {
	*rapid.T
	prefix string
}

func (u unprefixed) Errorf(format string, args ...any) {
	u.Helper()
	u.Error(strings.ReplaceAll(fmt.Sprintf(format, args...), u.prefix, ""))
}

func (u unprefixed) Fatalf(format string, args ...any) {
	u.Helper()
	u.Fatal(strings.ReplaceAll(fmt.Sprintf(format, args...), u.prefix, ""))
}

// model is a world of the store under test beside the same world of the specification.
type model struct {
	*world
	spec *world
	// everyone and rooms are all the users and chats there are.
	everyone []tidemark.UserID
	rooms    []tidemark.ChatID
	drafts   []tidemark.Draft
	now      int
}

// both does the same on both sides and compares the codes and results.
func (m *model) both(what string, call func(w *world) (any, error)) {
	m.Helper()
	got, err := call(m.world)
	want, wantErr := call(m.spec)
	if tidemark.CodeOf(err) != tidemark.CodeOf(wantErr) {
		m.Fatalf("%s: got error %v, want %v", what, err, wantErr)
	}
	if wantErr == nil {
		m.equal(what, got, want)
	}
}

// settles compares what an eventual method tells.
func (m *model) settles(what string, read func(w *world) any) {
	m.Helper()
	m.eventually(what, func() any { return read(m.world) }, read(m.spec))
}

func (m *model) drawUser(rt *rapid.T) tidemark.UserID {
	return rapid.SampledFrom(m.everyone).Draw(rt, "user")
}

func (m *model) drawChat(rt *rapid.T) tidemark.ChatID {
	return rapid.SampledFrom(m.rooms).Draw(rt, "chat")
}

// drawSequence draws a sequence of a chat, 0 and one beyond the head included.
func (m *model) drawSequence(rt *rapid.T, chat tidemark.ChatID) tidemark.Sequence {
	return tidemark.Sequence(rapid.Uint64Range(0, uint64(m.specHead(chat))+1).Draw(rt, "sequence"))
}

func (m *model) specHead(chat tidemark.ChatID) tidemark.Sequence {
	heads, err := m.spec.store.Heads(m.ctx, []tidemark.ChatID{chat})
	m.ok(err)
	return heads[0]
}

// drawKeys draws one to four distinct pairs of a user and a chat.
func (m *model) drawKeys(rt *rapid.T) []storage.StateKey {
	pair := rapid.Custom(func(rt *rapid.T) storage.StateKey {
		return storage.StateKey{User: m.drawUser(rt), Chat: m.drawChat(rt)}
	})
	return rapid.SliceOfNDistinct(pair, 1, 4, rapid.ID[storage.StateKey]).Draw(rt, "keys")
}

func (m *model) tick() int {
	m.now++
	return m.now
}

func (m *model) createChat(rt *rapid.T) {
	new := storage.NewChat{
		ID:        m.drawChat(rt),
		Name:      "first",
		CreatedAt: at(m.tick()),
		Type:      rapid.SampledFrom([]tidemark.ChatType{tidemark.Group, tidemark.Group, tidemark.Direct}).Draw(rt, "type"),
		History:   rapid.SampledFrom([]tidemark.HistoryMode{tidemark.HistoryFull, tidemark.HistorySinceJoin}).Draw(rt, "history"),
	}
	members := rapid.Permutation(m.everyone).Draw(rt, "members")
	n := 2
	if new.Type == tidemark.Group {
		n = rapid.IntRange(1, 4).Draw(rt, "number")
	}
	new.Members, new.Creator = members[:n], members[0]
	m.both("CreateChat", func(w *world) (any, error) {
		chat, created, err := w.store.CreateChat(w.ctx, new)
		return []any{chat, created}, err
	})
}

func (m *model) rename(rt *rapid.T) {
	chat, name := m.drawChat(rt), rapid.SampledFrom([]string{"", "x", "ÿ😀'"}).Draw(rt, "name")
	m.both("RenameChat",
		func(w *world) (any, error) { return w.store.RenameChat(w.ctx, chat, name) })
}

func (m *model) appendNew(rt *rapid.T) {
	draft := m.draft(m.drawChat(rt), m.drawUser(rt),
		rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool { return r != 0 }), 1, 20,
			40).Draw(rt, "content"))
	draft.CreatedAt = at(m.tick() / 3)
	if rapid.Bool().Draw(rt, "attach") {
		draft.Attachment = json.RawMessage(`{"n":` + fmt.Sprint(m.now) + `}`)
	}
	m.drafts = append(m.drafts, draft)
	m.both("Append",
		func(w *world) (any, error) { return storage.AppendOne(w.ctx, w.store, draft) })
}

// resend sends an earlier draft again, perhaps with another content or to another chat.
func (m *model) resend(rt *rapid.T) {
	if len(m.drafts) == 0 {
		return
	}
	draft := rapid.SampledFrom(m.drafts).Draw(rt, "draft")
	draft.MessageID += "again"
	switch rapid.IntRange(0, 4).Draw(rt, "change") {
	case 0:
		draft.Content += "!"
	case 1:
		draft.Attachment = json.RawMessage(`{}`)
	case 2:
		draft.ChatID = m.drawChat(rt)
	}
	m.both("Append again",
		func(w *world) (any, error) { return storage.AppendOne(w.ctx, w.store, draft) })
}

func (m *model) addMembers(rt *rapid.T) {
	chat, now := m.drawChat(rt), at(m.tick())
	users := rapid.SliceOfNDistinct(rapid.SampledFrom(m.everyone), 1, 3,
		rapid.ID[tidemark.UserID]).Draw(rt, "users")
	m.both("AddMembers",
		func(w *world) (any, error) { return w.store.AddMembers(w.ctx, chat, users, now) })
}

func (m *model) removeMember(rt *rapid.T) {
	chat, user, now := m.drawChat(rt), m.drawUser(rt), at(m.tick())
	rosters, err := m.spec.store.Rosters(m.ctx, []tidemark.ChatID{chat})
	m.ok(err)
	if r := rosters[0]; r != nil && r.Type == tidemark.Direct {
		user = r.Members[0].UserID // The contract does not say which error a stranger to a direct chat meets.
	}
	m.both("RemoveMember",
		func(w *world) (any, error) { return w.store.RemoveMember(w.ctx, chat, user, now) })
}

func (m *model) advance(rt *rapid.T) {
	var advances []storage.Advance
	for _, key := range m.drawKeys(rt) {
		advances = append(advances,
			storage.Advance{User: key.User, Chat: key.Chat, Now: at(m.tick()),
				Raise: tidemark.Raise{
					Acked:           m.drawSequence(rt, key.Chat),
					Read:            m.drawSequence(rt, key.Chat),
					ReadWithinAcked: rapid.Bool().Draw(rt, "within"),
				}})
	}
	m.advanceBoth(advances)
}

func (m *model) ownRun(rt *rapid.T) {
	chat := m.drawChat(rt)
	to := m.drawSequence(rt, chat)
	from := tidemark.Sequence(rapid.Uint64Range(0, uint64(to)).Draw(rt, "from"))
	m.advanceBoth([]storage.Advance{{
		User:  m.drawUser(rt),
		Chat:  chat,
		Now:   at(m.tick()),
		Raise: tidemark.Raise{AckedFrom: from, Acked: to},
	}})
}

func (m *model) advanceBoth(advances []storage.Advance) {
	m.both("Advance", func(w *world) (any, error) {
		advanced, err := w.store.Advance(w.ctx, advances)
		codes := make([]tidemark.Code, len(advanced))
		advanced = slices.Clone(advanced)
		for i, a := range advanced {
			codes[i], advanced[i].Err = tidemark.CodeOf(a.Err), nil
		}
		return []any{advanced, codes}, err
	})
}

func (m *model) markRows(rt *rapid.T) {
	var rows []tidemark.PendingDelivery
	for _, key := range m.drawKeys(rt) {
		rows = append(rows, tidemark.PendingDelivery{
			UserID:           key.User,
			ChatID:           key.Chat,
			FirstUndelivered: max(1, m.drawSequence(rt, key.Chat)),
		})
		if m.specHead(key.Chat) == 0 {
			rows = rows[:len(rows)-1] // There is nothing to mark in an empty chat.
		}
	}
	m.both("Mark", func(w *world) (any, error) { return w.store.Mark(w.ctx, rows) })
}

func (m *model) clearRows(rt *rapid.T) {
	var items []storage.Clear
	for _, key := range m.drawKeys(rt) {
		items = append(items, storage.Clear{
			User:    key.User,
			Chat:    key.Chat,
			Through: m.drawSequence(rt, key.Chat),
		})
	}
	m.both("Clear", func(w *world) (any, error) { return w.store.Clear(w.ctx, items) })
}

func (m *model) readRange(rt *rapid.T) {
	chat := m.drawChat(rt)
	r := storage.Range{
		Chat:     chat,
		After:    m.drawSequence(rt, chat),
		Before:   m.drawSequence(rt, chat),
		Limit:    rapid.IntRange(1, 6).Draw(rt, "limit"),
		MaxBytes: rapid.IntRange(0, 60).Draw(rt, "bytes"),
	}
	m.both(fmt.Sprintf("Range %+v", r), func(w *world) (any, error) { return w.read(r) })
}

func (m *model) readLists(rt *rapid.T) {
	user, limit := m.drawUser(rt), rapid.IntRange(1, 3).Draw(rt, "limit")
	large := rapid.Bool().Draw(rt, "large")
	m.settles("ChatsOf", func(w *world) any { return w.chatsOf(user, limit) })
	m.settles("Behind", func(w *world) any { return w.behind(user, limit, large) })
	m.settles("StatesOf", func(w *world) any {
		return pages(w, limit, "",
			func(after tidemark.ChatID) ([]tidemark.DeliveryState, bool, error) {
				return w.store.StatesOf(w.ctx, user, after, limit)
			}, func(s tidemark.DeliveryState) tidemark.ChatID { return s.ChatID })
	})
	after := m.drawChat(rt)
	m.both("PendingOf", func(w *world) (any, error) {
		rows, more, err := w.store.PendingOf(w.ctx, user, after, limit)
		return []any{rows, more}, err
	})
}

func (m *model) readStatuses(rt *rapid.T) {
	chat, limit := m.drawChat(rt), rapid.IntRange(1, 3).Draw(rt, "limit")
	sequence := m.drawSequence(rt, chat)
	m.settles("StatesIn", func(w *world) any {
		return pages(w, limit, "",
			func(after tidemark.UserID) ([]tidemark.DeliveryState, bool, error) {
				return w.store.StatesIn(w.ctx, chat, after, limit)
			}, func(s tidemark.DeliveryState) tidemark.UserID { return s.UserID })
	})
	m.settles("Summary", func(w *world) any {
		summary, err := w.store.Summary(w.ctx, chat, sequence)
		return []any{summary, tidemark.CodeOf(err)}
	})
	m.both("Chat", func(w *world) (any, error) { return w.store.Chat(w.ctx, chat) })
}

// compareStates compares all rosters, heads, watermarks and pending rows.
func (m *model) compareStates() {
	m.both("Rosters", func(w *world) (any, error) { return w.store.Rosters(w.ctx, m.rooms) })
	m.both("Heads", func(w *world) (any, error) { return w.store.Heads(w.ctx, m.rooms) })
	var keys []storage.StateKey
	for _, user := range m.everyone {
		for _, chat := range m.rooms {
			keys = append(keys, storage.StateKey{User: user, Chat: chat})
		}
		m.both("PendingOf", func(w *world) (any, error) { return w.pending(user), nil })
	}
	m.settles("States", func(w *world) any {
		states, err := w.store.States(w.ctx, keys)
		w.ok(err)
		return states
	})
}

// compareMessages compares all messages.
func (m *model) compareMessages() {
	for _, chat := range m.rooms {
		m.both("Range",
			func(w *world) (any, error) { return w.messages(storage.Range{Chat: chat}), nil })
		if head := m.specHead(chat); head > 0 {
			m.gapless(chat, int(head))
		}
	}
}
