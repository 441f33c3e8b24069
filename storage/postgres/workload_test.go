package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// perChat is the number of messages in a chat of the fixture, members the number of its members.
const (
	perChat = 100
	members = 10
)

// crowds are two chats with a hundred and a thousand members.
const crowds = `INSERT INTO chats (id, type, history, name, created_at, activity_at, head,
	uncounted, last_uncounted, member_count, large, creation) VALUES
	('hundred', 'group', 'full', 'a hundred', 1, 0, $n, 2, $n, 100, false, ''),
	('thousand', 'group', 'full', 'a thousand', 1, 0, $n, 2, $n, 1000, true, '')`

// An operation is a method of the contract in a typical shape. In each round it does its full work,
// with other names.
type operation struct {
	name   string
	before func(round int) error // prepares a round; nil for the fixture
	run    func(round int) error
}

// workload runs on a store with the fixture.
type workload struct {
	t *testing.T
	s *Store
}

func (w *workload) append(drafts []tidemark.Draft) error {
	appended, err := w.s.Append(w.t.Context(), drafts)
	for _, a := range appended {
		err = errors.Join(err, a.Err)
	}
	return err
}

// advance raises a user's watermarks in chats.
func (w *workload) advance(
	to tidemark.Sequence, user tidemark.UserID, chats ...tidemark.ChatID,
) error {
	return w.raise(tidemark.Raise{Acked: to}, user, chats...)
}

func (w *workload) raise(
	raise tidemark.Raise, user tidemark.UserID, chats ...tidemark.ChatID,
) error {
	var advances []storage.Advance
	for _, chat := range chats {
		advances = append(advances, storage.Advance{
			User:  user,
			Chat:  chat,
			Raise: raise,
			Now:   time.UnixMilli(6),
		})
	}
	advanced, err := w.s.Advance(w.t.Context(), advances)
	for _, a := range advanced {
		err = errors.Join(err, a.Err)
	}
	return err
}

func (w *workload) mark(
	first tidemark.Sequence, chat tidemark.ChatID, users ...tidemark.UserID,
) error {
	var rows []tidemark.PendingDelivery
	for _, user := range users {
		rows = append(rows, tidemark.PendingDelivery{
			UserID:           user,
			ChatID:           chat,
			FirstUndelivered: first,
		})
	}
	_, err := w.s.Mark(w.t.Context(), rows)
	return err
}

func (w *workload) clear(
	through tidemark.Sequence, chat tidemark.ChatID, users ...tidemark.UserID,
) error {
	var items []storage.Clear
	for _, user := range users {
		items = append(items, storage.Clear{User: user, Chat: chat, Through: through})
	}
	_, err := w.s.Clear(w.t.Context(), items)
	return err
}

func (w *workload) create(
	id tidemark.ChatID, kind tidemark.ChatType, history tidemark.HistoryMode,
	users []tidemark.UserID,
) error {
	_, _, err := w.s.CreateChat(w.t.Context(), storage.NewChat{
		ID:        id,
		Type:      kind,
		History:   history,
		CreatedAt: time.UnixMilli(7),
		Creator:   users[0],
		Members:   users,
	})
	return err
}

func (w *workload) add(chat tidemark.ChatID, users ...tidemark.UserID) error {
	_, err := w.s.AddMembers(w.t.Context(), chat, users, tidemark.Ordinary, time.UnixMilli(8))
	return err
}

func (w *workload) ranges(n int, r storage.Range) error {
	var ranges []storage.Range
	for i := range n {
		ranges = append(ranges, r)
		ranges[i].Chat = chatNo(101 + i)
	}
	pages, err := w.s.Ranges(w.t.Context(), ranges)
	for _, page := range pages {
		if len(page) != r.Limit {
			err = errors.Join(err, fmt.Errorf("a page has %d messages", len(page)))
		}
	}
	return err
}

func all(n int) tidemark.Sequence { return tidemark.Sequence(n) }

// writes returns the operations that write. Chats have at least a hundred messages, those from 101
// on exactly a hundred.
func (w *workload) writes() []operation {
	const full, joined = tidemark.HistoryFull, tidemark.HistorySinceJoin
	name := func(what string, round int) string { return fmt.Sprintf("%s-%d", what, round) }
	id := func(what string, round int) tidemark.ChatID { return tidemark.ChatID(name(what, round)) }
	user := func(what string, round int) tidemark.UserID {
		return tidemark.UserID(name(what, round))
	}
	group := func(what string, history tidemark.HistoryMode, n int) func(int) error {
		return func(r int) error {
			return errors.Join(w.create(id(what, r), tidemark.Group, history,
				append(named(name(what, r), n-1), "writer")),
				w.append(drafts(name(what, r), id(what, r))))
		}
	}
	pair := func(r int) error {
		return w.create(id("direct", r), tidemark.Direct, full,
			[]tidemark.UserID{user("ann", r), "writer"})
	}
	one := make([]tidemark.ChatID, 64)
	for i := range one {
		one[i] = chatNo(90)
	}
	return []operation{
		{
			"`Append`",
			nil, func(r int) error { return w.append(drafts(name("alone", r), chatNo(1))) },
		},
		{
			"`Append` of a sender who is not cached",
			func(int) error { w.s.appends.senders.forget(chatNo(1)); return nil },
			func(r int) error { return w.append(drafts(name("first", r), chatNo(1))) },
		},
		{
			"`Append` of 64 to 64 chats",
			nil,
			func(r int) error { return w.append(drafts(name("spread", r), chatNos(1, 64)...)) },
		},
		{
			"`Append` of 64 to one chat",
			nil, func(r int) error { return w.append(drafts(name("hot", r), one...)) },
		},
		{
			"`Append` of a known key",
			func(r int) error { return w.append(drafts(name("twice", r), chatNo(2))) },
			func(r int) error { return w.append(drafts(name("twice", r), chatNo(2))) },
		},
		{
			"`Append` of one that names 3 users, and one of the system", nil,
			func(r int) error { return w.append(noted(name("noted", r), 90)) },
		},
		{"`Advance`", nil, func(r int) error { return w.advance(all(60+r), "crowd1", "hundred") }},
		{
			"`Advance`, read as well, between own messages", nil,
			func(r int) error {
				return w.raise(tidemark.Raise{Acked: all(60 + r), Read: all(60 + r)}, "writer",
					chatNo(90))
			},
		},
		{
			"`MarkUnread`", nil,
			func(r int) error {
				_, err := w.s.MarkUnread(w.t.Context(), "writer", chatNo(90), all(40-r))
				return err
			},
		},
		{
			"`SetReceipts` of a chat", nil,
			func(int) error {
				return w.s.SetReceipts(w.t.Context(), "writer", chatNo(90), tidemark.ReceiptsOn)
			},
		},
		{
			"`SetReceipts`, back to the default", nil,
			func(int) error {
				return w.s.SetReceipts(w.t.Context(), "writer", chatNo(90),
					tidemark.ReceiptsDefault)
			},
		},
		{
			"`ReceiptsOf`", nil,
			func(int) error {
				_, _, err := w.s.ReceiptsOf(w.t.Context(), "writer", chatNo(90))
				return err
			},
		},
		{
			"`Advance`, the first of a user and chat",
			nil, func(r int) error { return w.advance(1, user("first", r), chatNo(1)) },
		},
		{
			"`Advance` of 64",
			nil, func(r int) error { return w.advance(all(60+r), "writer", chatNos(1, 64)...) },
		},
		{"`Advance`, stale", nil, func(int) error { return w.advance(1, "crowd1", "hundred") }},
		{
			"`Mark` of 64",
			nil, func(r int) error { return w.mark(5, chatNo(3), named(name("new", r), 64)...) },
		},
		{
			"`Mark` of 64 that stand",
			nil, func(r int) error { return w.mark(6, chatNo(3), named(name("new", r), 64)...) },
		},
		{
			"`Clear` of 64, through the head",
			func(r int) error { return w.mark(1, chatNo(110), named(name("all", r), 64)...) },
			func(r int) error {
				return w.clear(perChat, chatNo(110), named(name("all", r), 64)...)
			},
		},
		{
			"`Clear` of 64, through a part",
			func(r int) error { return w.mark(1, chatNo(110), named(name("part", r), 64)...) },
			func(r int) error { return w.clear(50, chatNo(110), named(name("part", r), 64)...) },
		},
		{
			"`Clear` of 64, nothing is there",
			nil, func(int) error { return w.clear(50, chatNo(110), named("nobody", 64)...) },
		},
		{
			"`CreateChat`, a group of 2",
			nil,
			func(r int) error {
				return w.create(id("two", r), tidemark.Group, full, named(name("two", r), 2))
			},
		},
		{
			"`CreateChat`, a group of 600",
			nil,
			func(r int) error {
				return w.create(id("many", r), tidemark.Group, full, named(name("many", r), 600))
			},
		},
		{"`CreateChat`, a new direct chat", nil, pair},
		{"`CreateChat`, a direct chat that exists", nil, pair},
		{"`UpdateChat`", nil, func(r int) error {
			name := name("name", r)
			change := storage.ChatChange{Name: &name, Metadata: []byte(`{"a":"` + name + `"}`)}
			_, err := w.s.UpdateChat(w.t.Context(), chatNo(4), change)
			return err
		}},
		{
			"`AddMembers` of 1",
			group("add", full, 10),
			func(r int) error { return w.add(id("add", r), user("joins", r)) },
		},
		{
			"`AddMembers` of 1, history from the join",
			group("late", joined, 10),
			func(r int) error { return w.add(id("late", r), user("joins", r)) },
		},
		{
			"`AddMembers` of 1, to a large chat",
			nil, func(r int) error { return w.add("thousand", user("joins", r)) },
		},
		{
			"`AddMembers` of 600, with which the chat is large",
			group("grow", full, 10),
			func(r int) error { return w.add(id("grow", r), named(name("grown", r), 600)...) },
		},
		{"`Sent`", func(r int) error {
			return w.append(drafts(name("sent", r), chatNo(2)))
		}, func(r int) error {
			draft := drafts(name("sent", r), chatNo(2))[0]
			_, found, err := w.s.Sent(w.t.Context(), storage.SendKeyOf(&draft))
			if err == nil && !found {
				err = errors.New("nothing was found")
			}
			return err
		}},
		{"`UpdateMember`", group("role", full, 10), func(r int) error {
			_, err := w.s.UpdateMember(w.t.Context(), id("role", r), "writer",
				storage.MemberChange{Role: tidemark.Reader})
			return err
		}},
		{"`UpdateMember` of the last owner", group("heir", full, 10), func(r int) error {
			_, err := w.s.UpdateMember(w.t.Context(), id("heir", r), named(name("heir", r), 1)[0],
				storage.MemberChange{Role: tidemark.Reader})
			return err
		}},
		{"`RemoveMember`", group("remove", full, 10), func(r int) error {
			_, err := w.s.RemoveMember(w.t.Context(), id("remove", r), "writer", time.UnixMilli(9))
			return err
		}},
	}
}

// reads returns the operations that read.
func (w *workload) reads() []operation {
	ctx := w.t.Context()
	read := func(name string, do func() (got, want int, err error)) operation {
		return operation{name: name, run: func(int) error {
			got, want, err := do()
			if err == nil && got < want {
				err = fmt.Errorf("it returned %d, want %d", got, want)
			}
			return err
		}}
	}
	page := func(brief bool) func() (int, int, error) {
		return func() (int, int, error) {
			found, _, err := w.s.ChatsOf(ctx, "reader", storage.ChatsPage{Limit: 20, Brief: brief})
			return len(found), 20, err
		}
	}
	summary := func(chat tidemark.ChatID, want int) func() (int, int, error) {
		return func() (int, int, error) {
			found, err := w.s.Summary(ctx, chat, 50, "")
			return found.Members, want, err
		}
	}
	states, unread := make([]storage.StateKey, 50), make([]storage.StateKey, 50)
	for i := range states {
		states[i] = storage.StateKey{User: "reader", Chat: chatNo(101 + i)}
		unread[i] = storage.StateKey{User: "writer", Chat: chatNo(90 - i)}
	}
	return []operation{
		{
			"`Ranges`, 50 messages",
			nil, func(int) error { return w.ranges(1, storage.Range{After: 20, Limit: 50}) },
		},
		{
			"`Ranges`, 50 messages of 20 chats",
			nil,
			func(int) error {
				return w.ranges(20, storage.Range{After: 20, Limit: 50, MaxBytes: 1 << 20})
			},
		},
		{
			"`Ranges`, the last 50 messages",
			nil,
			func(int) error { return w.ranges(1, storage.Range{Before: perChat + 1, Limit: 50}) },
		},
		read("`PendingOf`, 20 rows", func() (int, int, error) {
			rows, _, err := w.s.PendingOf(ctx, "reader", "", 20)
			return len(rows), 20, err
		}),
		read("`Behind`, in 50 of 100 chats", func() (int, int, error) {
			lags, _, _, err := w.s.Behind(ctx, "reader", storage.BehindQuery{Limit: 200})
			return len(lags), 50, err
		}),
		read("`Heads` of 50", func() (int, int, error) {
			heads, err := w.s.Heads(ctx, chatNos(101, 50))
			return int(heads[49]) + len(heads), 150, err
		}),
		read("`States` of 50", func() (int, int, error) {
			found, err := w.s.States(ctx, states)
			return len(found), 50, err
		}),
		read("`StatesOf`", func() (int, int, error) {
			found, _, err := w.s.StatesOf(ctx, "reader", "", 200)
			return len(found), 50, err
		}),
		read("`StatesIn`, 100 members", func() (int, int, error) {
			found, _, err := w.s.StatesIn(ctx, "hundred", "", 200)
			return len(found), 100, err
		}),
		read("`Summary`, 100 members", summary("hundred", 100)),
		read("`Summary`, 1,000 members", summary("thousand", 1000)),
		read("`Rosters` of 20 chats of 10", func() (int, int, error) {
			found, err := w.s.Rosters(ctx, chatNos(101, 20))
			return len(found[0].Members) + len(found[19].Members), 20, err
		}),
		read("`Unread` of 50", func() (int, int, error) {
			found, err := w.s.Unread(ctx, unread)
			return int(found[0].Messages), 30, err
		}),
		w.shared(),
		read("`UnreadOf`, 100 chats", func() (int, int, error) {
			found, err := w.s.UnreadOf(ctx, "reader")
			return int(found.Chats), 100, err
		}),
		{"`UnreadOf`, 1,000 chats", nil, func(int) error {
			got, err := w.s.UnreadOf(ctx, "collector")
			want := storage.UnreadTotal{Chats: 500}
			want.Messages, want.Mentions = 2000, 50
			if err == nil && got != want {
				err = fmt.Errorf("got %+v, want %+v", got, want)
			}
			return err
		}},
		read("`ChatsOf`, 20 of 100", page(false)),
		read("`ChatsOf`, 20 of 100, brief", page(true)),
		read("`Chat`", func() (int, int, error) {
			found, err := w.s.Chat(ctx, chatNo(105))
			return found.MemberCount, 11, err
		}),
		{"`Check`", nil, func(int) error { return w.s.Check(ctx) }},
	}
}

// shared asks about an incarnation that the store gets to know for this. So it looks at messages.
func (w *workload) shared() operation {
	w.s.lives = append([]lives.Life{{Number: 9, ID: "other"}}, w.s.lives...)
	return operation{"`Shared` of 50, of another incarnation", nil, func(int) error {
		claims := make([]storage.Claim, 50)
		for i := range claims {
			claims[i] = storage.Claim{Chat: chatNo(101 + i), Incarnation: "other", Sequence: 40}
		}
		found, err := w.s.Shared(w.t.Context(), claims)
		if err == nil && found[49] != 40 {
			err = fmt.Errorf("up to %d is shared, want 40", found[49])
		}
		return err
	}}
}
