package copying_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/copying"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stores.Main(m)) }

// began is when everything in the tests began. Messages of then are old enough to expire.
var began = time.Now().UTC().Add(-20 * 24 * time.Hour).Truncate(time.Millisecond)

// A world is a store with data of all kinds, which random actions change.
type world struct {
	t     *testing.T
	ctx   context.Context
	store copying.Store
	*rand.Rand
	// last counts actions, and gives each its time and its keys.
	last  int
	users []tidemark.UserID
	chats []tidemark.ChatID
}

// newWorld returns an empty world in a store. Worlds with the same seed take the same actions.
func newWorld(t *testing.T, s storage.Store, seed uint64) *world {
	w := &world{
		t: t, ctx: t.Context(), store: s.(copying.Store), Rand: rand.New(rand.NewPCG(seed, 1)),
	}
	for i := range 8 {
		w.users = append(w.users, tidemark.UserID(fmt.Sprint("u", i)))
	}
	return w
}

// on returns the world in another store, as it is now. Both take the same actions from now on.
func (w *world) on(s copying.Store, seed uint64) *world {
	other := *w
	other.store, other.Rand = s, rand.New(rand.NewPCG(seed, 2))
	return &other
}

// at is the time of the present action. Most are long ago.
func (w *world) at() time.Time {
	if w.last%3 == 0 {
		return began.Add(19*24*time.Hour + time.Duration(w.last)*time.Second)
	}
	return began.Add(time.Duration(w.last) * time.Second)
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// may fails the test for errors that no action may have.
func (w *world) may(err error) {
	w.t.Helper()
	switch tidemark.CodeOf(err) {
	case tidemark.Unavailable, tidemark.Internal:
		w.t.Fatal(err)
	}
}

func (w *world) user() tidemark.UserID { return w.users[w.IntN(len(w.users))] }
func (w *world) chat() tidemark.ChatID { return w.chats[w.IntN(len(w.chats))] }

// create creates a chat.
func (w *world) create(new storage.NewChat) {
	w.t.Helper()
	new.CreatedAt, new.Creation = began, "made for a test"
	if new.History == "" {
		new.History = tidemark.HistoryFull
	}
	_, _, err := w.store.CreateChat(w.ctx, new)
	w.ok(err)
	w.chats = append(w.chats, new.ID)
}

// begin creates chats of all kinds.
func (w *world) begin() {
	w.t.Helper()
	u := w.users
	direct := func(id tidemark.ChatID, a, b tidemark.UserID) {
		w.create(storage.NewChat{
			ID: id, Type: tidemark.Direct, Members: []tidemark.UserID{a, b}, Creator: a,
		})
	}
	direct("direct", u[0], u[1])
	direct("second", u[2], u[3])
	w.create(storage.NewChat{
		ID: "group", Type: tidemark.Group, Members: u[:6], Creator: u[0], Name: "a name",
		Metadata: json.RawMessage(`{"topic": "fish",  "n":1.0}`),
	})
	w.create(storage.NewChat{
		ID: "since", Type: tidemark.Group, Members: u[2:5], Creator: u[2],
		History: tidemark.HistorySinceJoin,
	})
	w.create(storage.NewChat{ID: "empty", Type: tidemark.Group, Members: u[:1], Creator: u[0]})
}

// rare adds a Large chat, one that is imported, and deleted ones.
func (w *world) rare() {
	w.t.Helper()
	var many []tidemark.UserID
	for i := range tidemark.PendingFanoutLimit + 1 {
		many = append(many, tidemark.UserID(fmt.Sprintf("many%03d", i)))
	}
	w.create(storage.NewChat{ID: "large", Type: tidemark.Group, Members: many, Creator: many[0]})
	w.create(storage.NewChat{
		ID: "moving", Type: tidemark.Group, Members: w.users[:2], State: tidemark.ChatImporting,
	})
	for i := range 3 {
		d := w.draft("moving", w.users[i%2])
		d.Importing = true
		_, err := storage.AppendOne(w.ctx, w.store, d)
		w.ok(err)
	}
	for _, id := range []tidemark.ChatID{"deleted", "purged"} {
		w.create(storage.NewChat{
			ID: id, Type: tidemark.Group, Members: w.users, Creator: w.users[0],
		})
		_, err := storage.AppendOne(w.ctx, w.store, w.draft(id, w.users[1]))
		w.ok(err)
		_, err = w.store.DeleteChat(w.ctx, id, w.at())
		w.ok(err)
	}
	_, _, err := w.store.PurgeChat(w.ctx, "purged", storage.MaxExpired, true)
	w.ok(err)
	_, err = storage.AppendOne(w.ctx, w.store, w.draft("large", many[3]))
	w.ok(err)
}

// draft returns a message of the present action.
func (w *world) draft(chat tidemark.ChatID, sender tidemark.UserID) tidemark.Draft {
	w.last++
	return tidemark.Draft{
		ChatID: chat, SenderID: sender, ClientMessageID: fmt.Sprint("key-", w.last),
		Content:     fmt.Sprintf("It's \"new\":\n\t\\ ☃ 🌊 %%s $1 ;-- %d", w.last),
		ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
		MessageID: tidemark.MessageID(fmt.Sprint("message-", w.last)), CreatedAt: w.at(),
	}
}

// act takes n random actions.
func (w *world) act(n int) {
	w.t.Helper()
	actions := []func(){
		w.says, w.says, w.says, w.says, w.says, w.relates, w.relates, w.reads, w.reads, w.reads,
		w.joins, w.decides, w.hides, w.bans, w.expires, w.renames, w.tells, w.notes, w.audits,
	}
	for range n {
		w.last++
		actions[w.IntN(len(actions))]()
	}
}

func (w *world) says() {
	d := w.draft(w.chat(), w.user())
	switch w.IntN(6) {
	case 0:
		d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{w.user(), w.user(), "stranger"})
	case 1:
		d.Mentions = tidemark.NewMentions(true, nil)
	case 2:
		d.Kind = tidemark.KindSystem
	case 3:
		d.Attachments = json.RawMessage(`[{"name": "fish.png"}]`)
		d.Metadata = json.RawMessage(`{"a":[1, 2]}`)
		d.ContentType = "text/markdown"
	}
	_, err := storage.AppendOne(w.ctx, w.store, d)
	w.may(err)
}

func (w *world) relates() {
	id := w.chat()
	chat, err := w.store.Chat(w.ctx, id)
	w.ok(err)
	d := w.draft(id, w.user())
	d.Relation = &tidemark.Relation{Sequence: 1 + tidemark.Sequence(w.IntN(int(chat.Head)+1))}
	switch w.IntN(5) {
	case 0, 1:
		d.Kind, d.ByBackend = tidemark.KindEdit, true
		d.Mentions = tidemark.NewMentions(w.IntN(3) == 0, []tidemark.UserID{w.user()})
	case 2:
		d.Kind, d.ByBackend = tidemark.KindRedact, w.IntN(2) == 0
	case 3:
		d.Kind, d.Relation.Emoji = tidemark.KindReact, []string{"👍", "🌊"}[w.IntN(2)]
	case 4:
		d.Kind, d.ByBackend = tidemark.KindPin, true
	}
	if d.Kind != tidemark.KindEdit {
		d.Content = ""
	}
	_, err = storage.AppendOne(w.ctx, w.store, d)
	w.may(err)
}

func (w *world) reads() {
	id, user := w.chat(), w.user()
	chat, err := w.store.Chat(w.ctx, id)
	w.ok(err)
	to := tidemark.Sequence(w.IntN(int(chat.Head) + 1))
	if w.IntN(4) == 0 {
		_, err := w.store.MarkUnread(w.ctx, user, id, to)
		w.may(err)
		return
	}
	raise := tidemark.Raise{Acked: to}
	if w.IntN(2) == 0 {
		raise.Read = to
	}
	members, _, err := w.store.MembersSince(w.ctx, storage.MembersQuery{Chat: id, Limit: 1_000})
	w.ok(err)
	for i := range members { // Servers raise only watermarks of members.
		if members[i].UserID == user {
			_, err = w.store.Advance(w.ctx, []storage.Advance{
				{User: user, Chat: id, Raise: raise, Now: w.at()},
			})
			w.ok(err)
		}
	}
}

func (w *world) joins() {
	id := w.chat()
	if w.IntN(2) == 0 {
		_, err := w.store.RemoveMember(w.ctx, id, w.user(), w.at())
		w.may(err)
		return
	}
	_, err := w.store.AddMembers(w.ctx, id, []tidemark.UserID{w.user()}, tidemark.Ordinary, w.at())
	w.may(err)
}

func (w *world) decides() {
	_, err := w.store.UpdateMember(w.ctx, w.chat(), w.user(), storage.MemberChange{
		Role:     []tidemark.Role{tidemark.Admin, tidemark.Ordinary}[w.IntN(2)],
		Metadata: json.RawMessage(fmt.Sprintf(`{"nick": "n%d"}`, w.last)),
	})
	w.may(err)
}

func (w *world) hides() {
	id, user := w.chat(), w.user()
	settings := []tidemark.ReceiptsSetting{
		tidemark.ReceiptsOff, tidemark.ReceiptsOn, tidemark.ReceiptsDefault,
	}
	setting := settings[w.IntN(3)]
	if setting != tidemark.ReceiptsDefault && w.IntN(3) == 0 {
		id = ""
	}
	w.may(w.store.SetReceipts(w.ctx, user, id, setting))
}

func (w *world) bans() {
	a, b := w.user(), w.user()
	switch w.IntN(4) {
	case 0:
		_, err := w.store.Ban(w.ctx, w.chat(), a, w.at())
		w.may(err)
	case 1:
		w.may(w.store.Unban(w.ctx, w.chat(), a))
	case 2:
		if a != b {
			_, err := w.store.PutBlock(w.ctx, a, b, w.at())
			w.may(err)
		}
	case 3:
		_, err := w.store.RemoveBlock(w.ctx, a, b)
		w.may(err)
	}
}

func (w *world) expires() {
	_, err := w.store.Expire(w.ctx, w.chat(), began.Add(time.Hour), 1+w.IntN(3))
	w.may(err)
}

func (w *world) renames() {
	name, days, hold := fmt.Sprint("name ", w.last), 30*w.IntN(2), w.IntN(4) == 0
	receipts := []tidemark.ReceiptsPolicy{
		tidemark.ReceiptsOptional, tidemark.ReceiptsRequired, tidemark.ReceiptsNever,
	}[w.IntN(3)]
	_, err := w.store.UpdateChat(w.ctx, w.chat(), storage.ChatChange{
		Name: &name, KeepDays: &days, Hold: &hold, Receipts: &receipts,
		Metadata: json.RawMessage(fmt.Sprintf(`{"n": %d}`, w.last)),
	})
	w.may(err)
}

// tells settles backlogs of all outlets, and opens one of a single outlet.
func (w *world) tells() {
	id := w.chat()
	found, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{
		Outlet: storage.AllOutlets, Chats: []tidemark.ChatID{id}, Limit: 1,
	})
	w.ok(err)
	for _, b := range found {
		_, err := w.store.Settle(w.ctx, []storage.Settlement{
			{Backlog: b, To: b.End, NowSplit: w.IntN(2) == 0},
		})
		w.ok(err)
	}
	w.ok(w.store.Rewind(w.ctx, []storage.Backlog{
		{Outlet: "webhook/news", Chat: id, From: storage.Position{Sequence: 1, Members: 1}},
	}))
}

func (w *world) notes() {
	key := storage.DocumentKey{
		Kind: fmt.Sprint("kind", w.IntN(3)), Name: fmt.Sprint("name", w.IntN(3)),
	}
	next := []byte(fmt.Sprintf(`{"n":%d}`, w.last))
	if w.IntN(4) == 0 {
		next = nil
	}
	_, _, err := storage.EditDocument(w.ctx, w.store, key,
		func([]byte) ([]byte, error) { return next, nil })
	w.may(err)
}

// audits records a call, and mostly its end.
func (w *world) audits() {
	e := storage.AuditEntry{
		ID: storage.NewAuditID(w.at()), Actor: w.user(), Operation: "updateMember",
		Target: storage.AuditTarget{User: w.user(), Chat: w.chat()}, State: storage.AuditBegun,
	}
	if w.IntN(2) == 0 {
		e.Key, e.Request, e.Operation = "back", fmt.Sprint("request-", w.last), "deleteOutlet"
		e.Target = storage.AuditTarget{Outlet: "news", Sequence: tidemark.Sequence(w.last)}
	}
	w.ok(w.store.RecordAudit(w.ctx, e))
	if state := []storage.AuditState{
		storage.AuditBegun, storage.AuditDone, storage.AuditRefused,
	}[w.IntN(3)]; state != storage.AuditBegun {
		end := storage.AuditEnd{State: state, At: w.at()}
		if state == storage.AuditRefused {
			end.Code = tidemark.Denied
		}
		w.ok(w.store.FinishAudit(w.ctx, e.ID, end))
	}
}

// copier returns a Copier from this world to another store.
func (w *world) copier(to storage.Store) *copying.Copier {
	return copying.New(copying.Config{From: w.store, To: to.(copying.Store), Clock: time.Now})
}

// move copies the world to another store.
func (w *world) move(to storage.Store) {
	w.t.Helper()
	w.ok(w.copier(to).Run(w.ctx))
}

// differences returns how another store differs from this world.
func (w *world) differences(to storage.Store) []string {
	w.t.Helper()
	c := w.copier(to)
	w.ok(c.Verify(w.ctx))
	return c.Report().Differences
}

// same fails the test if another store differs.
func (w *world) same(what string, to storage.Store) {
	w.t.Helper()
	for _, one := range w.differences(to) {
		w.t.Errorf("%s: %s", what, one)
	}
}

// seen is what users and servers see of a store, without what differs between two lives of data.
func (w *world) seen() string {
	w.t.Helper()
	var said []any
	for _, id := range w.chats {
		chat, err := w.store.Chat(w.ctx, id)
		w.ok(err)
		pages, err := w.store.Ranges(w.ctx, []storage.Range{{Chat: id, Limit: storage.MaxBatch}})
		w.ok(err)
		rosters, err := w.store.Rosters(w.ctx, []tidemark.ChatID{id})
		w.ok(err)
		pins, err := w.store.Pins(w.ctx, id)
		w.ok(err)
		reactions, _, err := w.store.Reactions(w.ctx,
			storage.ReactionsQuery{Chat: id, From: 1, To: 200, User: w.users[0]})
		w.ok(err)
		members, _, err := w.store.MembersSince(w.ctx,
			storage.MembersQuery{Chat: id, Limit: 1_000})
		w.ok(err)
		keys := make([]storage.StateKey, len(members))
		for i := range members {
			keys[i] = storage.StateKey{User: members[i].UserID, Chat: id}
		}
		states, err := w.store.States(w.ctx, keys)
		w.ok(err)
		unread, err := w.store.Unread(w.ctx, keys)
		w.ok(err)
		backlogs, _, err := w.store.Backlogs(w.ctx, storage.BacklogQuery{
			Outlet: storage.AllOutlets, Chats: []tidemark.ChatID{id}, Limit: 1,
		})
		w.ok(err)
		for i := range backlogs {
			backlogs[i].Split = false // A copy looks for backlogs of single outlets once more.
		}
		said = append(said, "\n", backlogs, chat, pages, rosters, pins, reactions, members, states,
			unread)
	}
	for _, user := range w.users {
		list, _, err := w.store.ChatsOf(w.ctx, user, storage.ChatsPage{Limit: 100})
		w.ok(err)
		total, err := w.store.UnreadOf(w.ctx, user)
		w.ok(err)
		said = append(said, "\n", list, total)
	}
	b, err := json.Marshal(said)
	w.ok(err)
	return strings.ReplaceAll(string(b), "[]", "null")
}

// sees fails the test if users and servers see something else of another world.
func (w *world) sees(what string, other *world) {
	w.t.Helper()
	got, want := other.seen(), w.seen()
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	part := func(s string) string { return s[max(0, at-300):min(len(s), at+100)] }
	w.t.Fatalf("%s: at %d, got\n%s\nwant\n%s", what, at, part(got), part(want))
}

// pending fails the test if a member is behind and has no pending row.
func (w *world) pending() {
	w.t.Helper()
	for _, user := range append(slices.Clone(w.users), "many007") {
		rows, _, err := w.store.PendingOf(w.ctx, user, "", 1_000)
		w.ok(err)
		first := map[tidemark.ChatID]tidemark.Sequence{}
		for _, row := range rows {
			first[row.ChatID] = row.FirstUndelivered
		}
		behind, _, _, err := w.store.Behind(w.ctx, user, storage.BehindQuery{Limit: 1_000})
		w.ok(err)
		for _, lag := range behind {
			if from, stands := first[lag.Chat]; lag.Chat != "moving" &&
				(!stands || from > lag.Acked+1 || lag.Chat == "large" && from != 0) {
				w.t.Errorf("%s is behind in %s from %d on, and the pending row is %d, %t", user,
					lag.Chat, lag.Acked+1, from, stands)
			}
		}
	}
}

// memories opens a store in memory.
func memories() copying.Store { return memory.New() }
