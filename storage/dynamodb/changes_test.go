package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// errGone is the error of every call of a process that has ended.
var errGone = errors.New("the process has ended")

// A mortal carries calls until its process ends. That happens at the first call that last selects.
// It carries neither that call nor any later one.
type mortal struct {
	http.RoundTripper
	last func(operation, body string) bool
	// end is called when the process ends.
	end context.CancelFunc

	mu   sync.Mutex
	dead bool
}

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	m.mu.Lock()
	m.dead = m.dead || m.last(operation, string(body))
	dead := m.dead
	m.mu.Unlock()
	if dead {
		m.end()
		return nil, errGone
	}
	return m.RoundTripper.RoundTrip(r)
}

// dying opens a store of a process that ends at the first call that last selects. ctx ends then.
func dying(
	t *testing.T, url string, last func(operation, body string) bool,
) (context.Context, *Store) {
	t.Helper()
	carrier := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(carrier.CloseIdleConnections)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := Open(ctx, Config{
		URL:       url,
		Transport: &mortal{RoundTripper: carrier, last: last, end: cancel},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return ctx, s
}

// If the author of a chat with many members dies before it takes effect, the chat does not exist.
// Its id is free for every kind of chat.
func TestCreateChat_id_of_a_chat_that_was_only_prepared(t *testing.T) {
	url := newTables(t)
	openTest(t, url) // It stores the first life of the data.
	for _, tc := range []struct {
		name    string
		kind    tidemark.ChatType
		members []tidemark.UserID
	}{
		{"group", tidemark.Group, usersFrom(3, "u")},
		{"direct", tidemark.Direct, []tidemark.UserID{"u00000", "anna"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chat := tidemark.ChatID(tc.name)
			new := storage.NewChat{
				ID:        chat,
				Type:      tidemark.Group,
				History:   tidemark.HistoryFull,
				Creator:   "u00000",
				Members:   usersFrom(60, "u"),
				CreatedAt: time.UnixMilli(1),
			}
			ctx, dies := dying(t, url,
				func(operation, _ string) bool { return operation == "PutItem" })
			_, _, err := dies.CreateChat(ctx, new)
			if tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Fatalf("CreateChat of the process that died: %v", err)
			}
			s := openTest(t, url)
			if _, err := s.Chat(t.Context(), chat); tidemark.CodeOf(err) != tidemark.NotFound {
				t.Fatalf("Chat: error %v, want NotFound", err)
			}
			new.Type, new.Members = tc.kind, tc.members
			if got, created, err := s.CreateChat(t.Context(), new); err != nil || !created ||
				got.ID != chat {
				t.Fatalf("CreateChat: %v, created %v, error %v", got.ID, created, err)
			}
			rosters, err := s.Rosters(t.Context(), []tidemark.ChatID{chat})
			if err != nil || len(rosters[0].Members) != len(tc.members) {
				t.Errorf("%d members, error %v, want %d",
					len(rosters[0].Members), err, len(tc.members))
			}
			list, _, err := s.ChatsOf(t.Context(), "u00050", storage.ChatsPage{Limit: 10})
			if err != nil || len(list) != 0 {
				t.Errorf("the user who was not added has %d chats, error %v", len(list), err)
			}
		})
	}
}

// unsettled creates a chat that shows new members only what follows, with five messages that anna
// has. Then a process adds 120 members, and dies when that has taken effect and nothing is settled.
func unsettled(t *testing.T, s *Store, url string) {
	t.Helper()
	new := storage.NewChat{
		ID:        "c",
		Type:      tidemark.Group,
		History:   tidemark.HistorySinceJoin,
		Creator:   "anna",
		Members:   []tidemark.UserID{"anna"},
		CreatedAt: time.UnixMilli(1),
	}
	if _, _, err := s.CreateChat(t.Context(), new); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), drafts("c", "anna", 5, "a")); err != nil {
		t.Fatal(err)
	}
	_, err := s.Advance(t.Context(), []storage.Advance{{
		User:  "anna",
		Chat:  "c",
		Raise: tidemark.Raise{Acked: 5, Read: 5},
		Now:   time.UnixMilli(2),
	}})
	if err != nil {
		t.Fatal(err)
	}
	effect := false
	ctx, dies := dying(t, url, func(operation, body string) bool {
		gone := effect
		effect = effect || operation == "UpdateItem" && strings.Contains(body, "change_head = head")
		return gone
	})
	_, err = dies.AddMembers(ctx, "c", usersFrom(120, "u"), tidemark.Ordinary, time.UnixMilli(3))
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Fatalf("AddMembers of the process that died: %v", err)
	}
}

// A user who joins a chat that shows only what follows begins at its head. That holds if the author
// of the change died before settling it. It also holds if the user is then removed and returns.
func TestAddMembers_since_join_by_an_author_who_died(t *testing.T) {
	url := newTables(t)
	s := openTest(t, url)
	unsettled(t, s, url)
	summary, err := s.Summary(t.Context(), "c", 5, "")
	if err != nil || summary.Members != 121 || summary.Delivered != 121 ||
		summary.Least.Acked != 5 {
		t.Errorf("Summary: %+v, error %v, want 121 members who have 5", summary, err)
	}
}

func TestRemoveMember_since_join_of_a_change_that_is_not_settled(t *testing.T) {
	url := newTables(t)
	s := openTest(t, url)
	unsettled(t, s, url)
	if _, err := s.RemoveMember(t.Context(), "c", "u00001", time.UnixMilli(4)); err != nil {
		t.Fatal(err)
	}
	added, err := s.AddMembers(t.Context(), "c", []tidemark.UserID{"u00001"}, tidemark.Ordinary,
		time.UnixMilli(5))
	if err != nil || added.States[0].Acked != 5 {
		t.Fatalf("AddMembers: %+v, error %v, want the watermark 5", added, err)
	}
}

// began makes a counter look as if a process had begun a change that long ago.
func began(t *testing.T, s *Store, chat tidemark.ChatID, ago time.Duration) {
	t.Helper()
	_, done, _, err := s.caller("test").Update(t.Context(), call.Update{
		Table:     record.Counters,
		Key:       record.ChatKey(chat),
		Change:    "SET changing_at = :at",
		Condition: "attribute_exists(changing)",
		Values:    call.Item{":at": call.Number(time.Now().Add(-ago).UnixMilli())},
	})
	if err != nil || !done {
		t.Fatalf("the change of %s: done %v, error %v", chat, done, err)
	}
}

// A repeated call of a dead process succeeds within the time limit of a request, 10 s. Until then,
// its error says that another change is under way.
func TestAddMembers_behind_a_change_of_a_process_that_died(t *testing.T) {
	url := newTables(t)
	s := openTest(t, url)
	createGroup(t, s, "c", "anna")
	ctx, dies := dying(t, url,
		func(_, body string) bool { return strings.Contains(body, "change_head = head") })
	_, err := dies.AddMembers(ctx, "c", usersFrom(60, "u"), tidemark.Ordinary, time.UnixMilli(3))
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Fatalf("AddMembers of the process that died: %v", err)
	}
	began(t, s, "c", 0)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = s.AddMembers(short, "c", usersFrom(60, "u"), tidemark.Ordinary, time.UnixMilli(3))
	wantRefused(t, "at once",
		err, tidemark.Unavailable, "another change of the members of the chat c is under way")
	began(t, s, "c", 5*time.Second)
	long, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if _, err := s.AddMembers(long, "c", usersFrom(60, "u"), tidemark.Ordinary,
		time.UnixMilli(3)); err != nil {
		t.Errorf("after 5 s: %v", err)
	}
}

// A pausing carries calls. It stops at the first call that wanted selects, until it is released.
type pausing struct {
	http.RoundTripper
	wanted        func(operation, body string) bool
	once          sync.Once
	there, goesOn chan struct{}
}

func (p *pausing) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if p.wanted(operation, string(body)) {
		p.once.Do(func() {
			close(p.there)
			<-p.goesOn
		})
	}
	r = r.WithContext(context.WithoutCancel(r.Context())) // The call has left the process.
	r.Body = io.NopCloser(bytes.NewReader(body))
	return p.RoundTripper.RoundTrip(r)
}

// A process whose change was taken over cannot remove a chat from the list of a user whom the other
// change has added.
func TestAddMembers_prepared_late_by_a_process_that_was_overtaken(t *testing.T) {
	url := newTables(t)
	s := openTest(t, url)
	createGroup(t, s, "c", "anna")
	carrier := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(carrier.CloseIdleConnections)
	p := &pausing{
		RoundTripper: carrier, there: make(chan struct{}), goesOn: make(chan struct{}),
		wanted: func(_, body string) bool {
			return strings.Contains(body, "SET member_change") && strings.Contains(body, "u00005")
		},
	}
	slow, err := Open(t.Context(), Config{URL: url, Transport: p})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var overtaken sync.WaitGroup
	overtaken.Go(func() {
		_, _ = slow.AddMembers(ctx, "c", usersFrom(60, "u"), tidemark.Ordinary,
			time.UnixMilli(3))
	})
	<-p.there
	began(t, s, "c", time.Minute)

	effect := false
	last, dies := dying(t, url, func(_, body string) bool {
		gone := effect
		effect = effect || strings.Contains(body, "change_head = head")
		return gone
	})
	_, err = dies.AddMembers(last, "c", usersFrom(60, "u"), tidemark.Ordinary, time.UnixMilli(3))
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Fatalf("AddMembers of the process that died: %v", err)
	}
	cancel()
	close(p.goesOn)
	overtaken.Wait()
	if err := slow.Close(); err != nil {
		t.Error(err)
	}
	for _, user := range usersFrom(60, "u") {
		if list, _, err := s.ChatsOf(t.Context(), user, storage.ChatsPage{Limit: 10}); err != nil ||
			len(list) != 1 {
			t.Errorf("%s has %d chats, error %v, want 1", user, len(list), err)
		}
	}
}
