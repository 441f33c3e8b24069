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

// testModel makes random sequences of operations on the store under test and on storage/memory.
// After each step it compares the results and everything that can be read. If reopen is not nil,
// one of the steps closes the store and opens it again, and so does the end of each sequence.
func testModel(t *testing.T, s suite, reopen func(t *testing.T, s storage.Store) storage.Store) {
	rapid.Check(t, func(rt *rapid.T) {
		f := s.fixture(rt)
		f.tb = unprefixed{rt, f.prefix}
		m := &model{
			fixture: f,
			spec:    &fixture{tb: f.tb, ctx: f.ctx, store: memory.New(), prefix: f.prefix},
			gone:    map[tidemark.ChatID]bool{},
		}
		m.everyone = m.users("A", "a", "b", "c", "d")
		for _, name := range []string{"C", "c", "c.1", "d", "d.1", "e"} {
			m.rooms = append(m.rooms, m.chat(name))
		}
		actions := map[string]func(*rapid.T){
			"":            func(*rapid.T) { m.compareStates() },
			"create":      m.createChat,
			"rename":      m.rename,
			"append":      m.appendNew,
			"append more": m.appendNew,
			"relate":      m.relate,
			"relate more": m.relate,
			"resend":      m.resend,
			"add":         m.addMembers,
			"remove":      m.removeMember,
			"role":        m.updateMember,
			"advance":     m.advance,
			"mark unread": m.markUnread,
			"hide reads":  m.setReceipts,
			"own run":     m.ownRun,
			"mark":        m.markRows,
			"clear":       m.clearRows,
			"expire":      m.expire,
			"policy":      m.changePolicy,
			"finish":      m.finishImport,
			"delete":      m.deleteChat,
			"purge":       m.purgeChat,
			"block":       m.changeBlock,
			"ban":         m.changeBan,
			"audit":       m.audit,
			"range":       m.readRange,
			"annotations": m.readAnnotations,
			"lists":       m.readLists,
			"statuses":    m.readStatuses,
		}
		openAgain := func(*rapid.T) {
			s.store = reopen(t, s.store)
			m.store = s.store
			for chat := range m.gone {
				m.know(chat)
			}
		}
		if reopen != nil {
			actions["reopen"] = openAgain
		}
		m.createChat(rt)
		rt.Repeat(actions)
		if reopen != nil {
			openAgain(rt)
			m.compareStates()
		}
		m.compareMessages()
		m.eraseOne(rt)
	})
}

// unprefixed removes the prefix of the ids from failures. rapid minimizes a run only if its failure
// repeats with the same text.
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

// model is a fixture on the store under test, and the same fixture on the specification.
type model struct {
	*fixture
	spec *fixture
	// everyone and rooms are all users and chats.
	everyone []tidemark.UserID
	rooms    []tidemark.ChatID
	// gone has the deleted chats. A store may have states and pending rows of them for a while, and
	// those of users who were no members for good.
	gone   map[tidemark.ChatID]bool
	drafts []tidemark.Draft
	now    int
}

// both makes the same call on both stores, and compares the codes and results.
func (m *model) both(what string, call func(f *fixture) (any, error)) {
	m.Helper()
	got, err := call(m.fixture)
	want, wantErr := call(m.spec)
	if tidemark.CodeOf(err) != tidemark.CodeOf(wantErr) {
		m.Fatalf("%s: got error %v, want %v", what, err, wantErr)
	}
	if wantErr == nil {
		m.equal(what, got, want)
	}
}

// bothEventually compares the results of an eventual method.
func (m *model) bothEventually(what string, read func(f *fixture) any) {
	m.Helper()
	m.eventually(what, func() any { return read(m.fixture) }, read(m.spec))
}

func (m *model) drawUser(rt *rapid.T) tidemark.UserID {
	return rapid.SampledFrom(m.everyone).Draw(rt, "user")
}

func (m *model) drawChat(rt *rapid.T) tidemark.ChatID {
	return rapid.SampledFrom(m.rooms).Draw(rt, "chat")
}

// drawSequence draws a sequence of a chat, from 0 to one beyond the head.
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

// stateOf returns the state of a chat, live if there is none.
func (m *model) stateOf(chat tidemark.ChatID) tidemark.ChatState {
	found, _ := m.spec.store.Chat(m.ctx, chat)
	return found.State
}

// drawImporting draws whether a draft for a chat is of an importer. Usually the chat takes it.
func (m *model) drawImporting(rt *rapid.T, chat tidemark.ChatID) bool {
	importing := m.stateOf(chat) == tidemark.ChatImporting
	return importing != (rapid.IntRange(0, 5).Draw(rt, "other importer") == 0)
}

func (m *model) tick() int {
	m.now++
	return m.now
}

func (m *model) createChat(rt *rapid.T) {
	types := []tidemark.ChatType{tidemark.Group, tidemark.Group, tidemark.Direct}
	histories := []tidemark.HistoryMode{tidemark.HistoryFull, tidemark.HistorySinceJoin}
	new := storage.NewChat{
		ID:        m.drawChat(rt),
		Name:      "first",
		CreatedAt: at(m.tick()),
		Type:      rapid.SampledFrom(types).Draw(rt, "type"),
		History:   rapid.SampledFrom(histories).Draw(rt, "history"),
	}
	if rapid.Bool().Draw(rt, "described") {
		new.Metadata = json.RawMessage(`{"n":1}`)
	}
	members := rapid.Permutation(m.everyone).Draw(rt, "members")
	n := 2
	if new.Type == tidemark.Group {
		n = rapid.IntRange(1, 4).Draw(rt, "number")
	}
	new.Members = members[:n]
	if rapid.Bool().Draw(rt, "owned") {
		new.Creator = members[0]
	}
	if rapid.IntRange(0, 4).Draw(rt, "imported") == 0 {
		new.State = tidemark.ChatImporting
	}
	m.both("CreateChat", func(f *fixture) (any, error) {
		chat, created, err := f.store.CreateChat(f.ctx, new)
		return []any{chat, created}, err
	})
}

func (m *model) rename(rt *rapid.T) {
	chat := m.drawChat(rt)
	change := renamed(rapid.SampledFrom([]string{"", "x", "ÿ😀'"}).Draw(rt, "name"))
	if rapid.Bool().Draw(rt, "describes") {
		texts := []string{"", `{"a":"ÿ😀'"}`, `{ "b" : 1 }`}
		change.Metadata = json.RawMessage(rapid.SampledFrom(texts).Draw(rt, "metadata"))
	}
	m.both("UpdateChat",
		func(f *fixture) (any, error) { return f.store.UpdateChat(f.ctx, chat, change) })
}

func (m *model) appendNew(rt *rapid.T) {
	runes := rapid.Rune().Filter(func(r rune) bool { return r != 0 })
	content := rapid.StringOfN(runes, 1, 20, 40)
	draft := m.draft(m.drawChat(rt), m.drawUser(rt), content.Draw(rt, "content"))
	draft.CreatedAt = at(m.tick() / 3)
	draft.Importing = m.drawImporting(rt, draft.ChatID)
	if rapid.Bool().Draw(rt, "attach") {
		draft.Attachments = json.RawMessage(`[{"n":` + fmt.Sprint(m.now) + `}]`)
		draft.Metadata = json.RawMessage(`{"n":` + fmt.Sprint(m.now) + `}`)
	}
	switch rapid.IntRange(0, 5).Draw(rt, "kind") {
	case 0:
		draft.Kind = tidemark.KindSystem
	case 1:
		draft.Kind = tidemark.KindControl
	}
	if rapid.Bool().Draw(rt, "mention") {
		draft.Mentions = tidemark.NewMentions(rapid.Bool().Draw(rt, "all"),
			rapid.SliceOfN(rapid.SampledFrom(m.everyone), 0, 3).Draw(rt, "mentions"))
	}
	m.drafts = append(m.drafts, draft)
	m.both("Append",
		func(f *fixture) (any, error) { return f.tryAppend(draft) })
}

// relate edits, redacts or annotates a message, which may be another user's, a relation, or not
// there. Half of the senders are backends, which may change all messages.
func (m *model) relate(rt *rapid.T) {
	chat := m.drawChat(rt)
	target := max(1, m.drawSequence(rt, chat))
	draft := m.edit(chat, m.drawUser(rt), target, fmt.Sprint("edit ", m.tick()))
	draft.CreatedAt = at(m.now / 3)
	draft.ByBackend = rapid.Bool().Draw(rt, "backend")
	draft.Importing = m.drawImporting(rt, chat)
	switch rapid.IntRange(0, 5).Draw(rt, "what") {
	case 0:
		draft.Kind, draft.Content = tidemark.KindRedact, ""
	case 4:
		draft.Kind, draft.Content = tidemark.KindRedact, ""
		draft.Relation = &tidemark.Relation{Sequences: m.drawList(rt, chat)}
	case 2:
		draft.Kind, draft.Content = tidemark.KindReact, ""
		draft.Relation.Emoji = rapid.SampledFrom([]string{"a", "A", "👍"}).Draw(rt, "emoji")
	case 3:
		draft.Kind, draft.Content = tidemark.KindPin, ""
	case 1:
		draft.ContentType = "text/markdown"
		draft.Attachments = json.RawMessage(`[{"n":` + fmt.Sprint(m.now) + `}]`)
		draft.Metadata = json.RawMessage(`{"n":` + fmt.Sprint(m.now) + `}`)
		draft.Mentions = tidemark.NewMentions(rapid.Bool().Draw(rt, "all"),
			rapid.SliceOfN(rapid.SampledFrom(m.everyone), 0, 3).Draw(rt, "mentions"))
	}
	m.drafts = append(m.drafts, draft)
	m.both("Append a relation",
		func(f *fixture) (any, error) { return f.tryAppend(draft) })
}

// drawList draws the messages of a redaction that names a list. Most of them are there.
func (m *model) drawList(rt *rapid.T, chat tidemark.ChatID) []tidemark.Sequence {
	var all []tidemark.Sequence
	for range rapid.IntRange(1, 4).Draw(rt, "length") {
		all = append(all, max(1, m.drawSequence(rt, chat)))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// resend sends an earlier draft again. It may change the content, the attachment or the chat.
func (m *model) resend(rt *rapid.T) {
	if len(m.drafts) == 0 {
		return
	}
	draft := rapid.SampledFrom(m.drafts).Draw(rt, "draft")
	draft.MessageID += "again"
	says := draft.Relation == nil || draft.Kind == tidemark.KindEdit
	switch change := rapid.IntRange(0, 6).Draw(rt, "change"); {
	case change == 0 && says:
		draft.Content += "!"
	case change == 1 && says:
		draft.Attachments = json.RawMessage(`[{}]`)
	case change == 2:
		draft.ChatID = m.drawChat(rt)
	case change == 3 && draft.Relation == nil:
		draft.Kind = tidemark.KindSystem
	case change == 3:
		other := *draft.Relation
		if other.Sequences == nil {
			other.Sequence++
		} else {
			other.Sequences = append(slices.Clone(other.Sequences), tidemark.MaxSequence)
		}
		draft.Relation = &other
	case change == 4 && says:
		draft.Mentions.All = !draft.Mentions.All
	}
	m.both("Sent", func(f *fixture) (any, error) {
		sent, found, err := f.store.Sent(f.ctx, storage.SendKeyOf(&draft))
		return sentMessage{sent, found}, err
	})
	m.both("Append again",
		func(f *fixture) (any, error) { return f.tryAppend(draft) })
}

// tryAppend returns the result of an append without its RowsVersion, which is the store's own.
func (f *fixture) tryAppend(draft tidemark.Draft) (storage.Appended, error) {
	appended, err := storage.AppendOne(f.ctx, f.store, draft)
	appended.RowsVersion = 0
	return appended, err
}

// sentMessage is the result of Sent.
type sentMessage struct {
	Appended storage.Appended
	Found    bool
}

func (m *model) addMembers(rt *rapid.T) {
	chat, now := m.drawChat(rt), at(m.tick())
	users := rapid.SliceOfNDistinct(rapid.SampledFrom(m.everyone), 1, 3,
		rapid.ID[tidemark.UserID]).Draw(rt, "users")
	role := rapid.SampledFrom([]tidemark.Role{
		tidemark.Ordinary, tidemark.Owner, tidemark.Admin, tidemark.Reader,
	}).Draw(rt, "role")
	m.both("AddMembers",
		func(f *fixture) (any, error) {
			return f.store.AddMembers(f.ctx, chat, users, role, now)
		})
}

func (m *model) removeMember(rt *rapid.T) {
	chat, user, now := m.drawChat(rt), m.drawUser(rt), at(m.tick())
	rosters, err := m.spec.store.Rosters(m.ctx, []tidemark.ChatID{chat})
	m.ok(err)
	if r := rosters[0]; r != nil && r.Type == tidemark.Direct && len(r.Members) > 0 {
		// The contract does not say which error the removal of a stranger from a direct chat has.
		user = r.Members[0].UserID
	}
	m.both("RemoveMember",
		func(f *fixture) (any, error) { return f.store.RemoveMember(f.ctx, chat, user, now) })
}

func (m *model) updateMember(rt *rapid.T) {
	chat, user := m.drawChat(rt), m.drawUser(rt)
	rosters, err := m.spec.store.Rosters(m.ctx, []tidemark.ChatID{chat})
	m.ok(err)
	if r := rosters[0]; r != nil && r.Type == tidemark.Direct && len(r.Members) > 0 {
		user = r.Members[0].UserID
	}
	change := role(rapid.SampledFrom([]tidemark.Role{
		"", tidemark.Owner, tidemark.Admin, tidemark.Ordinary, tidemark.Reader,
	}).Draw(rt, "role"))
	if rapid.Bool().Draw(rt, "describes") {
		texts := []string{"", `{"a":"ÿ😀'"}`, `{ "b" : 1 }`}
		change.Metadata = json.RawMessage(rapid.SampledFrom(texts).Draw(rt, "metadata"))
	}
	m.both("UpdateMember",
		func(f *fixture) (any, error) { return f.store.UpdateMember(f.ctx, chat, user, change) })
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
	m.both("Advance", func(f *fixture) (any, error) {
		advanced, err := f.store.Advance(f.ctx, advances)
		codes := make([]tidemark.Code, len(advanced))
		advanced = slices.Clone(advanced)
		for i, a := range advanced {
			codes[i], advanced[i].Err = tidemark.CodeOf(a.Err), nil
		}
		return []any{advanced, codes}, err
	})
}

func (m *model) markUnread(rt *rapid.T) {
	user, chat := m.drawUser(rt), m.drawChat(rt)
	from := m.drawSequence(rt, chat)
	m.both("MarkUnread",
		func(f *fixture) (any, error) { return f.store.MarkUnread(f.ctx, user, chat, from) })
}

// setReceipts sets the setting for one chat. One for all chats may have no effect in chats of which
// the user was never a member.
func (m *model) setReceipts(rt *rapid.T) {
	user, chat := m.drawUser(rt), m.drawChat(rt)
	setting := rapid.SampledFrom([]tidemark.ReceiptsSetting{
		tidemark.ReceiptsOn, tidemark.ReceiptsOff, tidemark.ReceiptsDefault,
	}).Draw(rt, "setting")
	m.both("SetReceipts", func(f *fixture) (any, error) {
		return true, f.store.SetReceipts(f.ctx, user, chat, setting)
	})
	if m.gone[chat] {
		return // A store may still have its settings.
	}
	m.both("ReceiptsOf", func(f *fixture) (any, error) {
		inChat, inAll, err := f.store.ReceiptsOf(f.ctx, user, chat)
		return []tidemark.ReceiptsSetting{inChat, inAll}, err
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
		if m.specHead(key.Chat) == 0 || m.gone[key.Chat] {
			rows = rows[:len(rows)-1] // there is nothing to mark
		}
	}
	m.both("Mark", func(f *fixture) (any, error) { return f.store.Mark(f.ctx, rows) })
}

func (m *model) clearRows(rt *rapid.T) {
	var items []storage.Clear
	for _, key := range m.drawKeys(rt) {
		if m.gone[key.Chat] {
			continue // A store may still have its rows.
		}
		items = append(items, storage.Clear{
			User:    key.User,
			Chat:    key.Chat,
			Through: m.drawSequence(rt, key.Chat),
		})
	}
	m.both("Clear", func(f *fixture) (any, error) { return f.store.Clear(f.ctx, items) })
}

// expire lets some of the first messages of a chat expire.
func (m *model) expire(rt *rapid.T) {
	chat, limit := m.drawChat(rt), rapid.IntRange(1, 5).Draw(rt, "limit")
	before := at(rapid.IntRange(0, m.now/3+1).Draw(rt, "before"))
	m.both("Expire",
		func(f *fixture) (any, error) { return f.store.Expire(f.ctx, chat, before, limit) })
}

func (m *model) changePolicy(rt *rapid.T) {
	chat := m.drawChat(rt)
	change := keeping(rapid.SampledFrom([]int{0, 8, 30}).Draw(rt, "days"))
	if rapid.Bool().Draw(rt, "hold") {
		change = holding(rapid.IntRange(0, 2).Draw(rt, "on hold") == 0)
	}
	if rapid.IntRange(0, 2).Draw(rt, "receipts") > 0 && m.gathers(chat) {
		change = showing(rapid.SampledFrom([]tidemark.ReceiptsPolicy{
			tidemark.ReceiptsOptional, tidemark.ReceiptsRequired, tidemark.ReceiptsNever,
		}).Draw(rt, "shown"))
	}
	m.both("UpdateChat",
		func(f *fixture) (any, error) { return f.store.UpdateChat(f.ctx, chat, change) })
}

// gathers makes everyone a member of a chat. It returns false if they cannot be. A policy about
// receipts may have no effect for users who were never a member.
func (m *model) gathers(chat tidemark.ChatID) bool {
	now := at(m.tick())
	m.both("AddMembers", func(f *fixture) (any, error) {
		return f.store.AddMembers(f.ctx, chat, m.everyone, tidemark.Ordinary, now)
	})
	rosters, err := m.spec.store.Rosters(m.ctx, []tidemark.ChatID{chat})
	m.ok(err)
	return rosters[0] != nil && len(rosters[0].Members) == len(m.everyone)
}

func (m *model) finishImport(rt *rapid.T) {
	chat, now := m.drawChat(rt), at(m.tick())
	m.both("FinishImport",
		func(f *fixture) (any, error) { return true, f.store.FinishImport(f.ctx, chat, now) })
}

// deleteChat deletes a chat, but not often: a run would soon have none.
func (m *model) deleteChat(rt *rapid.T) {
	chat, now := m.drawChat(rt), at(m.tick())
	if rapid.IntRange(0, 2).Draw(rt, "rarely") != 0 {
		return
	}
	m.both("DeleteChat",
		func(f *fixture) (any, error) { return f.store.DeleteChat(f.ctx, chat, now) })
	if m.stateOf(chat) == tidemark.ChatDeleted {
		m.gone[chat] = true
		m.know(chat)
	}
}

// purgeChat purges a chat. How much one call removes is a store's own.
func (m *model) purgeChat(rt *rapid.T) {
	chat, members := m.drawChat(rt), rapid.Bool().Draw(rt, "members")
	limit := rapid.IntRange(1, 8).Draw(rt, "limit")
	m.both("PurgeChat", func(f *fixture) (any, error) {
		_, _, err := f.store.PurgeChat(f.ctx, chat, limit, members)
		return true, err
	})
	if !m.gone[chat] || rapid.Bool().Draw(rt, "once") {
		return
	}
	for _, f := range []*fixture{m.fixture, m.spec} {
		f.purges(chat, limit, members)
	}
}
