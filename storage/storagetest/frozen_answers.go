package storagetest

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// frozenAnswers is the file with the answers of every store about the frozen data of version 1. The
// path begins at the folder of a store.
const frozenAnswers = "../storagetest/testdata/v1.json"

// Rewrite reports whether the tests write the frozen data and the answers anew (make frozen). It
// fails if the program needs another version than 1: the data of that version need their own files.
func Rewrite(t *testing.T, needed uint) bool {
	t.Helper()
	if os.Getenv("TIDEMARK_UPDATE") != "frozen" {
		return false
	}
	if needed != 1 {
		t.Fatalf("the data of version 1 are frozen, and this program writes version %d", needed)
	}
	return true
}

// FrozenLives are the lives in the frozen data.
var FrozenLives = []tidemark.Incarnation{"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"}

// RunFrozen asks a store about the data of WriteFrozen, works with them, and asks again. It
// compares all answers with the expected ones.
func RunFrozen(t *testing.T, s storage.Store, lives []tidemark.Incarnation) {
	t.Helper()
	f := &fixture{tb: t, ctx: t.Context(), store: s}
	var got answers
	f.askFrozen(&got, "upgraded", lives)
	got = append(got, f.useFrozen()...)
	f.askFrozen(&got, "used", lives)
	text, err := json.MarshalIndent(got, "", " ")
	f.ok(err)
	// Memory is the executable specification. The others are compared with it.
	if _, specification := s.(*memory.Store); specification && Rewrite(t, 1) {
		f.ok(os.WriteFile(frozenAnswers, append(text, '\n'), 0o600))
	}
	raw, err := os.ReadFile(frozenAnswers)
	f.ok(err)
	var want answers
	f.ok(json.Unmarshal(raw, &want))
	if len(got) != len(want) {
		t.Errorf("there are %d answers, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i].To != want[i].To {
			t.Fatalf("answer %d is to %q, want one to %q", i, got[i].To, want[i].To)
		}
		var is any
		raw, err := json.Marshal(got[i].Is)
		f.ok(err)
		f.ok(json.Unmarshal(raw, &is))
		if diff := cmp.Diff(want[i].Is, is); diff != "" {
			t.Errorf("%s (-want +got):\n%s", got[i].To, diff)
		}
	}
}

// answers are what a store answered to calls, in their order.
type answers []answer

type answer struct {
	To string
	Is any
}

// add adds the answer to a call. An error counts by its code.
func (a *answers) add(to string, value any, err error) {
	if err != nil {
		value = "error " + string(tidemark.CodeOf(err))
	}
	*a = append(*a, answer{to, plain(reflect.ValueOf(value))})
}

// askFrozen asks for all that the store says about the frozen data.
func (f *fixture) askFrozen(said *answers, when string, lives []tidemark.Incarnation) {
	for _, chat := range frozenChats {
		f.askChat(said, when+", "+string(chat)+": ", chat, lives)
	}
	for _, user := range frozenUsers {
		f.askUser(said, when+", "+string(user)+": ", user)
	}
	for n := range 60 {
		for _, key := range []storage.SendKey{
			{Chat: "direct", Sender: "anna"}, {Chat: "direct", Sender: "ben"},
			{Chat: "group", Sender: "ben"}, {Chat: "joined", Sender: "cleo"},
		} {
			key.ClientMessageID = frozenKey(n)
			appended, found, err := f.store.Sent(f.ctx, key)
			if found || err != nil {
				said.add(fmt.Sprintf("%s, sent %v", when, key), appended.Message.Sequence, err)
			}
		}
	}
}

// frozenPage is how many rows of a list are asked for.
const frozenPage = 4

func (f *fixture) askChat(
	said *answers, to string, chat tidemark.ChatID, lives []tidemark.Incarnation,
) {
	found, err := f.store.Chat(f.ctx, chat)
	said.add(to+"chat", found, err)
	heads, err := f.store.Heads(f.ctx, []tidemark.ChatID{chat})
	said.add(to+"head", heads, err)
	rosters, err := f.store.Rosters(f.ctx, []tidemark.ChatID{chat})
	if err == nil && rosters[0] != nil && len(rosters[0].Members) > frozenPage {
		few := *rosters[0]
		few.Members = append(few.Members[:frozenPage:frozenPage],
			few.Members[len(few.Members)-2:]...)
		rosters[0] = &few
	}
	said.add(to+"roster", rosters, err)
	pages, err := f.store.Ranges(f.ctx, []storage.Range{
		{Chat: chat, Limit: 100}, {Chat: chat, Before: 3, Limit: 1},
	})
	said.add(to+"messages", pages, err)
	states, more, err := f.store.StatesIn(f.ctx, chat, "a", frozenPage)
	said.add(fmt.Sprint(to, "states, more ", more), states, err)
	for sequence := tidemark.Sequence(1); sequence <= found.Head; sequence += 2 {
		summary, err := f.store.Summary(f.ctx, chat, sequence, "anna")
		said.add(fmt.Sprint(to, "summary of ", sequence), summary, err)
	}
	for n, life := range lives {
		shared, err := f.store.Shared(f.ctx, []storage.Claim{
			{Chat: chat, Incarnation: life, Sequence: 2},
			{Chat: chat, Incarnation: life, Sequence: 99},
			{Chat: chat, Incarnation: "unknown", Sequence: 2},
		})
		said.add(fmt.Sprint(to, "shared of life ", n+1), shared, err)
	}
}

func (f *fixture) askUser(said *answers, to string, user tidemark.UserID) {
	list, more, err := f.store.ChatsOf(f.ctx, user, storage.ChatsPage{Limit: frozenPage})
	said.add(fmt.Sprint(to, "chats, more ", more), list, err)
	total, err := f.store.UnreadOf(f.ctx, user)
	said.add(to+"unread", total, err)
	var keys []storage.StateKey
	for _, chat := range frozenChats {
		keys = append(keys, storage.StateKey{User: user, Chat: chat})
	}
	states, err := f.store.States(f.ctx, keys)
	said.add(to+"states", states, err)
	unread, err := f.store.Unread(f.ctx, keys)
	said.add(to+"unread in each chat", unread, err)
	current, more, err := f.store.StatesOf(f.ctx, user, "", frozenPage)
	said.add(fmt.Sprint(to, "states of current chats, more ", more), current, err)
	pending, more, err := f.store.PendingOf(f.ctx, user, "", frozenPage)
	said.add(fmt.Sprint(to, "pending rows, more ", more), pending, err)
	for _, large := range []bool{false, true} {
		var all []storage.Lag
		for after, more := tidemark.ChatID(""), true; more && err == nil; {
			var lags []storage.Lag
			lags, after, more, err = f.store.Behind(f.ctx, user, storage.BehindQuery{
				LargeOnly: large, After: after, Limit: frozenPage,
			})
			all = append(all, lags...)
		}
		said.add(fmt.Sprint(to, "behind, only large ", large), all, err)
	}
}

// plain returns a value as JSON can hold it. It leaves out what is zero, so that a new field does
// not change the answers. Bytes stay as they are, and times are in UTC.
func plain(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return value.UTC().Format(time.RFC3339Nano)
	case json.RawMessage:
		return string(value)
	case error:
		return "error " + string(tidemark.CodeOf(value))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return plain(v.Elem())
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	case reflect.Struct:
		fields := map[string]any{}
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && !v.Field(i).IsZero() &&
				(v.Field(i).Kind() != reflect.Slice || v.Field(i).Len() > 0) {
				fields[field.Name] = plain(v.Field(i))
			}
		}
		return fields
	}
	return v.Interface()
}
