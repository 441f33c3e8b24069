package dynamodb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// perChat is the number of messages of 200 bytes in each of the first twenty chats of the fixture.
// The other chats have one.
const perChat = 100

// An operation is a method of the contract in a typical shape. In each round it does its full work,
// with other names.
type operation struct {
	name   string
	before func(round int) error // prepares a round; nil for the fixture
	run    func(round int) error
	// most is the most it may cost, in calls and units. Zero values set no bound.
	most bound
}

// A bound comes from targets.md. Where targets.md has none, it is a value that would be a surprise.
type bound struct {
	reads, writes float64
	calls         string
}

// workload runs on a store with the fixture.
type workload struct {
	t *testing.T
	s *Store
	// other opens a store of another, new process.
	other func() *Store
}

// long returns an id as long as a UUID, since the cost of an item depends on its size.
func long(text string) string {
	return (text + "-0192f0c1-7e00-7000-8000-000000000000")[:max(36, len(text))]
}

func chatNo(n int) tidemark.ChatID { return tidemark.ChatID(long(fmt.Sprintf("chat-%06d", n))) }

func chatNos(from, n int) (chats []tidemark.ChatID) {
	for i := range n {
		chats = append(chats, chatNo(from+i))
	}
	return chats
}

func named(prefix string, n int) (users []tidemark.UserID) {
	for i := range n {
		users = append(users, tidemark.UserID(long(fmt.Sprintf("%s-%d", prefix, i))))
	}
	return users
}

func repeated(chat tidemark.ChatID, n int) []tidemark.ChatID {
	return slices.Repeat([]tidemark.ChatID{chat}, n)
}

// textsOf returns one message of writer for each chat, with keys that begin with prefix.
func textsOf(prefix string, size int, chats ...tidemark.ChatID) (drafts []tidemark.Draft) {
	for i, chat := range chats {
		key := fmt.Sprintf("%s-%d", prefix, i)
		drafts = append(drafts, tidemark.Draft{
			Kind:            tidemark.KindMessage,
			ChatID:          chat,
			SenderID:        "writer",
			ClientMessageID: long(key),
			MessageID:       tidemark.MessageID(long("m-" + key)),
			CreatedAt:       time.Now(),
			ContentType:     tidemark.DefaultContentType,
			Content:         strings.Repeat("y", size),
		})
	}
	return drafts
}

// textBy returns one message of a user for a chat.
func textBy(user tidemark.UserID, chat tidemark.ChatID) []tidemark.Draft {
	drafts := textsOf("by", 200, chat)
	drafts[0].SenderID = user
	return drafts
}

func appendAll(t *testing.T, s *Store, drafts []tidemark.Draft) error {
	appended, err := s.Append(t.Context(), drafts)
	for _, a := range appended {
		err = errors.Join(err, a.Err)
	}
	return err
}

func (w *workload) append(drafts []tidemark.Draft) error { return appendAll(w.t, w.s, drafts) }

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

func (w *workload) clear(through tidemark.Sequence, user tidemark.UserID, want bool) error {
	cleared, err := w.s.Clear(w.t.Context(), []storage.Clear{
		{User: user, Chat: chatNo(11), Through: through},
	})
	if err == nil && cleared[0] != want {
		err = fmt.Errorf("cleared: %v, want %v", cleared[0], want)
	}
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

// fixture creates 250 chats of reader, writer and a third user. casual is a member of fifty of
// them. Two more chats have a hundred and a thousand members. Half of those have acknowledged
// something. Reader is behind in every second chat, and has a pending row in twenty.
func (w *workload) fixture() {
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for i := 1; i <= 250; i++ {
		third := tidemark.UserID(fmt.Sprintf("third-%d", i))
		members := []tidemark.UserID{"writer", "reader", third}
		if i > 200 {
			members = append(members, "casual")
		}
		must(w.create(chatNo(i), tidemark.Group, tidemark.HistoryFull, members))
		messages := 1
		if i <= 20 {
			messages = perChat
		}
		must(w.append(textsOf("first", 200, repeated(chatNo(i), messages)...)))
	}
	for chat, n := range map[tidemark.ChatID]int{"hundred": 100, "thousand": 1000} {
		users := append(named(string(chat), n-1), "writer")
		must(w.create(chat, tidemark.Group, tidemark.HistoryFull, users))
		must(w.append(textsOf("first", 200, repeated(chat, 2)...)))
		for _, user := range users[:n/2] {
			must(w.raise(tidemark.Raise{Acked: 1}, user, chat))
		}
	}
	for i := 1; i <= 250; i += 2 {
		must(w.raise(tidemark.Raise{Acked: 1}, "reader", chatNo(i)))
	}
	for i := 1; i <= 20; i++ {
		must(w.mark(1, chatNo(i), "reader"))
	}
}

// writes returns the operations that write.
func (w *workload) writes() []operation {
	name := func(what string, round int) string { return fmt.Sprintf("%s-%d", what, round) }
	id := func(what string, round int) tidemark.ChatID { return tidemark.ChatID(name(what, round)) }
	user := func(what string, round int) tidemark.UserID {
		return tidemark.UserID(name(what, round))
	}
	const full, joined = tidemark.HistoryFull, tidemark.HistorySinceJoin
	group := func(what string, history tidemark.HistoryMode, n int) func(int) error {
		return func(r int) error {
			return errors.Join(w.create(id(what, r), tidemark.Group, history,
				append(named(name(what, r), n-1), "writer")),
				w.append(textsOf(name(what, r), 200, id(what, r))))
		}
	}
	pair := func(r int) error {
		return w.create(id("direct", r), tidemark.Direct, full,
			[]tidemark.UserID{user("ann", r), "writer"})
	}
	many := func(what string, size int, chats ...tidemark.ChatID) func(int) error {
		return func(r int) error { return w.append(textsOf(name(what, r), size, chats...)) }
	}
	moved := func(r int) error { // by two rounds of messages
		return w.append(textsOf(name("moved", r), 200, chatNo(12), chatNo(12)))
	}
	pending := func(what string) func(int) error {
		return func(r int) error { return w.mark(1, chatNo(11), user(what, r)) }
	}
	var other *Store
	return []operation{
		{
			"`Append`",
			nil, many("alone", 200, chatNo(1)), bound{calls: "TransactWriteItems", writes: 6},
		},
		{
			"`Append` of 5,000 bytes",
			nil, many("long", 5000, chatNo(1)), bound{calls: "TransactWriteItems"},
		},
		{
			"`Append` of 10 to one chat",
			nil, many("ten", 200, repeated(chatNo(2), 10)...),
			bound{calls: "TransactWriteItems", writes: 42},
		},
		{
			"`Append` of 49 to one chat",
			nil, many("most", 200, repeated(chatNo(2), 49)...),
			bound{calls: "TransactWriteItems", writes: 4.3 * 49},
		},
		{
			"`Append` of 49 to 49 chats",
			nil, many("spread", 200, chatNos(21, 49)...), bound{writes: 6 * 49},
		},
		{
			"`Append`, the first of a process to a chat",
			func(int) error { other = w.other(); return nil },
			func(r int) error {
				return appendAll(w.t, other, textsOf(name("cold", r), 200, chatNo(3)))
			},
			bound{reads: 2, writes: 6},
		},
		{"`Append` after one of another process, not the first time", func(r int) error {
			return errors.Join(w.append(textsOf(name("warm", r), 200, chatNo(4))),
				appendAll(w.t, w.other(), textsOf(name("between", r), 200, chatNo(4))))
		}, many("after", 200, chatNo(4)), bound{reads: 1, writes: 12}},
		{
			"`Append` of a known key",
			many("twice", 200, chatNo(5)), many("twice", 200, chatNo(5)), bound{},
		},
		{"`Append` of one that names 3 users", nil, func(r int) error {
			named := textsOf(name("named", r), 200, chatNo(6))
			named[0].Mentions = tidemark.NewMentions(false, []tidemark.UserID{"a", "b", "reader"})
			return w.append(named)
		}, bound{calls: "TransactWriteItems", writes: 12}},
		{"`Append` of a line of the system", nil, func(r int) error {
			line := textsOf(name("line", r), 200, chatNo(6))
			line[0].Kind = tidemark.KindSystem
			return w.append(line)
		}, bound{calls: "TransactWriteItems", writes: 8}},
		{"`Append` of one of the last 12 senders of a chat", func(r int) error {
			users := named(name("twelve", r), 12)
			err := w.create(id("twelve", r), tidemark.Group, full, users)
			for _, user := range users {
				err = errors.Join(err, w.append(textBy(user, id("twelve", r))))
			}
			return err
		}, func(r int) error {
			return w.append(textBy(named(name("twelve", r), 12)[0], id("twelve", r)))
		}, bound{writes: 6}},
		{"`Append` of the 14th sender of a chat, and later", func(r int) error {
			users := named(name("senders", r), 20)
			err := w.create(id("senders", r), tidemark.Group, full, users)
			for _, user := range users[:13] {
				err = errors.Join(err, w.append(textBy(user, id("senders", r))))
			}
			return err
		}, func(r int) error {
			return w.append(textBy(named(name("senders", r), 20)[13], id("senders", r)))
		}, bound{writes: 7}},
		{"`Advance`, the first of a user and chat", nil, func(r int) error {
			return w.raise(tidemark.Raise{Acked: 1}, tidemark.UserID(long(name("hundred", 50+r))),
				"hundred")
		}, bound{writes: 1}},
		{"`Advance`", moved, func(r int) error {
			return w.raise(tidemark.Raise{Acked: tidemark.Sequence(perChat + 2*r)}, "reader",
				chatNo(12))
		}, bound{calls: "UpdateItem", writes: 1}},
		{"`Advance`, read as well", moved, func(r int) error {
			to := tidemark.Sequence(perChat + 2*r + 2)
			return w.raise(tidemark.Raise{Acked: to, Read: to}, "third-12", chatNo(12))
		}, bound{calls: "UpdateItem", writes: 1}},
		{"`Advance`, of the author", moved, func(r int) error {
			to := tidemark.Sequence(perChat + 2*r + 2)
			return w.raise(tidemark.Raise{Acked: to, AckedFrom: 1}, "writer", chatNo(12))
		}, bound{writes: 1}},
		{
			"`Advance`, stale",
			nil, func(int) error { return w.raise(tidemark.Raise{Acked: 1}, "reader", chatNo(12)) },
			bound{reads: 1},
		},
		{"`MarkUnread`", func(r int) error {
			return errors.Join(moved(r), w.raise(
				tidemark.Raise{Read: tidemark.Sequence(perChat + r)}, "reader", chatNo(12)))
		}, func(int) error {
			_, err := w.s.MarkUnread(w.t.Context(), "reader", chatNo(12), 50)
			return err
		}, bound{writes: 1}},
		{
			"`Mark`",
			nil, func(r int) error { return w.mark(5, chatNo(11), user("new", r)) },
			bound{writes: 1},
		},
		{
			"`Mark` of one that stands",
			nil, func(r int) error { return w.mark(6, chatNo(11), user("new", r)) },
			bound{calls: "BatchGetItem"},
		},
		{
			"`Mark` of 100",
			nil, func(r int) error { return w.mark(5, chatNo(11), named(name("new", r), 100)...) },
			bound{writes: 100},
		},
		{
			"`Mark` of 100 that stand",
			nil, func(r int) error { return w.mark(5, chatNo(11), named(name("new", r), 100)...) },
			bound{calls: "BatchGetItem"},
		},
		{
			"`Clear`, through the head",
			pending("head"), func(r int) error { return w.clear(perChat, user("head", r), true) },
			bound{writes: 4},
		},
		{
			"`Clear`, through a part",
			pending("part"), func(r int) error { return w.clear(50, user("part", r), true) },
			bound{writes: 1},
		},
		{
			"`Clear`, nothing is there",
			nil, func(int) error { return w.clear(50, "nobody", false) },
			bound{calls: "BatchGetItem"},
		},
		{"`CreateChat`, a direct chat", nil, pair, bound{}},
		{"`CreateChat`, a direct chat that exists", nil, pair, bound{}},
		{
			"`CreateChat`, a group of 2",
			nil,
			func(r int) error {
				return w.create(id("two", r), tidemark.Group, full, named(name("two", r), 2))
			},
			bound{calls: "3 BatchGetItem, TransactWriteItems", reads: 6, writes: 11},
		},
		{
			"`CreateChat`, a group of 40",
			nil,
			func(r int) error {
				return w.create(id("forty", r), tidemark.Group, full, named(name("forty", r), 40))
			},
			bound{calls: "3 BatchGetItem, TransactWriteItems", reads: 120, writes: 163},
		},
		{
			"`CreateChat`, a group of 600",
			nil,
			func(r int) error {
				return w.create(id("many", r), tidemark.Group, full, named(name("many", r), 600))
			},
			bound{},
		},
		{"`UpdateChat`, of a name", nil, func(r int) error {
			name := name("name", r)
			_, err := w.s.UpdateChat(w.t.Context(), chatNo(6), storage.ChatChange{Name: &name})
			return err
		}, bound{reads: 1, writes: 1}},
		{"`UpdateChat`, of metadata", nil, func(r int) error {
			_, err := w.s.UpdateChat(w.t.Context(), chatNo(8), storage.ChatChange{
				Metadata: []byte(`{"a":"` + name("name", r) + `"}`),
			})
			return err
		}, bound{reads: 2, writes: 6}},
		{
			"`AddMembers` of 1",
			group("add", full, 10),
			func(r int) error { return w.add(id("add", r), user("joins", r)) }, bound{},
		},
		{
			"`AddMembers` of 1, history from the join",
			group("late", joined, 10),
			func(r int) error { return w.add(id("late", r), user("joins", r)) }, bound{},
		},
		{
			"`AddMembers` of 40",
			group("forty-more", full, 10),
			func(r int) error { return w.add(id("forty-more", r), named(name("more", r), 40)...) },
			bound{},
		},
		{
			"`AddMembers` of 1,000, with which the chat is large",
			group("grow", full, 10),
			func(r int) error { return w.add(id("grow", r), named(name("grown", r), 1000)...) },
			bound{},
		},
		{"`Sent`", many("sent", 200, chatNo(5)), func(r int) error {
			draft := textsOf(name("sent", r), 200, chatNo(5))[0]
			_, found, err := w.s.Sent(w.t.Context(), storage.SendKeyOf(&draft))
			if err == nil && !found {
				err = errors.New("nothing was found")
			}
			return err
		}, bound{}},
		{"`UpdateMember`", group("role", full, 10), func(r int) error {
			_, err := w.s.UpdateMember(w.t.Context(), id("role", r), "writer",
				storage.MemberChange{Role: tidemark.Reader})
			return err
		}, bound{}},
		{"`UpdateMember` of the last owner", group("heir", full, 10), func(r int) error {
			_, err := w.s.UpdateMember(w.t.Context(), id("heir", r), named(name("heir", r), 1)[0],
				storage.MemberChange{Role: tidemark.Reader})
			return err
		}, bound{}},
		{"`RemoveMember`", group("remove", full, 10), func(r int) error {
			_, err := w.s.RemoveMember(w.t.Context(), id("remove", r), "writer", time.UnixMilli(9))
			return err
		}, bound{}},
	}
}

// reads returns the operations that read.
func (w *workload) reads() []operation {
	ctx := w.t.Context()
	read := func(name string, most bound, do func() (got, want int, err error)) operation {
		return operation{name: name, most: most, run: func(int) error {
			got, want, err := do()
			if err == nil && got < want {
				err = fmt.Errorf("it returned %d, want %d", got, want)
			}
			return err
		}}
	}
	pages := func(r storage.Range, n int) func() (int, int, error) {
		return func() (got, want int, err error) {
			var ranges []storage.Range
			for i := range n {
				ranges = append(ranges, r)
				ranges[i].Chat = chatNo(1 + i)
			}
			found, err := w.s.Ranges(ctx, ranges)
			for _, page := range found {
				got += len(page)
			}
			return got, n * r.Limit, err
		}
	}
	behind := func(limit, want int) func() (int, int, error) {
		return func() (got, _ int, err error) {
			// The query skips the first chats, up to the one after which it begins, so that 250
			// remain.
			lags, _, _, err := w.s.Behind(ctx, "reader", storage.BehindQuery{
				Limit: limit,
				After: chatNo(250 - 2*want),
			})
			return len(lags), want, err
		}
	}
	list := func(user tidemark.UserID, brief bool) func() (int, int, error) {
		return func() (int, int, error) {
			found, _, err := w.s.ChatsOf(ctx, user, storage.ChatsPage{Limit: 20, Brief: brief})
			return len(found), 20, err
		}
	}
	summary := func(chat tidemark.ChatID, want int) func() (int, int, error) {
		return func() (int, int, error) {
			found, err := w.s.Summary(ctx, chat, 1, "")
			return found.Members, want, err
		}
	}
	var states []storage.StateKey
	for _, chat := range chatNos(1, 50) {
		states = append(states, storage.StateKey{User: "reader", Chat: chat})
	}
	return []operation{
		read("`Ranges`, 50 messages", bound{calls: "Query"},
			pages(storage.Range{After: 20, Limit: 50}, 1)),
		read("`Ranges`, the last 50 messages", bound{calls: "Query"},
			pages(storage.Range{Before: perChat + 1, Limit: 50}, 1)),
		read("`Ranges`, 1 message of 20 chats", bound{calls: "20 Query", reads: 20},
			pages(storage.Range{After: 20, Limit: 1}, 20)),
		read("`Ranges`, 50 messages of 20 chats", bound{calls: "20 Query"},
			pages(storage.Range{After: 20, Limit: 50, MaxBytes: 1 << 20}, 20)),
		read("`PendingOf`, none", bound{calls: "Query", reads: 1}, func() (int, int, error) {
			_, _, err := w.s.PendingOf(ctx, "nobody", "", 200)
			return 0, 0, err
		}),
		read("`PendingOf`, 20 rows", bound{calls: "BatchGetItem, Query"}, func() (int, int, error) {
			rows, _, err := w.s.PendingOf(ctx, "reader", "", 200)
			return len(rows), 20, err
		}),
		read("`PendingOf`, 20 rows, and `Ranges`: a device comes back",
			bound{calls: "BatchGetItem, 21 Query"}, func() (int, int, error) {
				if _, _, err := w.s.PendingOf(ctx, "reader", "", 200); err != nil {
					return 0, 0, err
				}
				return pages(storage.Range{Limit: 5}, 20)()
			}),
		read("`Behind`, in 50 of 100 chats", bound{calls: "BatchGetItem, Query"}, behind(200, 50)),
		read("`Behind`, in 125 of 250 chats", bound{calls: "3 BatchGetItem, Query"},
			behind(200, 125)),
		read("`Heads` of 50", bound{calls: "BatchGetItem", reads: 50}, func() (int, int, error) {
			heads, err := w.s.Heads(ctx, chatNos(1, 50))
			return int(heads[49]) + len(heads), 51, err
		}),
		read("`States` of 50", bound{calls: "BatchGetItem", reads: 50}, func() (int, int, error) {
			found, err := w.s.States(ctx, states)
			return len(found), 50, err
		}),
		read("`StatesOf`, 200 of 250", bound{}, func() (int, int, error) {
			found, _, err := w.s.StatesOf(ctx, "reader", "", 200)
			return len(found), 125, err
		}),
		read("`StatesIn`, 100 members", bound{}, func() (int, int, error) {
			found, _, err := w.s.StatesIn(ctx, "hundred", "", 200)
			return len(found), 100, err
		}),
		read("`Summary`, 100 members", bound{}, summary("hundred", 100)),
		read("`Summary`, 1,000 members", bound{}, summary("thousand", 1000)),
		read("`Rosters` of 20 chats of 3", bound{}, func() (int, int, error) {
			found, err := w.s.Rosters(ctx, chatNos(30, 20))
			return len(found[0].Members) + len(found[19].Members), 6, err
		}),
		read("`Rosters` of a chat of 1,000", bound{}, func() (int, int, error) {
			found, err := w.s.Rosters(ctx, []tidemark.ChatID{"thousand"})
			return len(found[0].Members), 1000, err
		}),
		read("`Unread` of 50", bound{}, func() (int, int, error) {
			found, err := w.s.Unread(ctx, states)
			return int(found[0].Messages), perChat, err
		}),
		read("`UnreadOf`, 250 chats with something unread", bound{}, func() (int, int, error) {
			found, err := w.s.UnreadOf(ctx, "reader")
			return int(found.Chats), 250, err
		}),
		read("`ChatsOf`, 20 of 50", bound{}, list("casual", false)),
		read("`ChatsOf`, 20 of 250", bound{}, list("reader", false)),
		read("`ChatsOf`, 20 of 250, brief", bound{}, list("reader", true)),
		read("`Chat`", bound{calls: "GetItem", reads: 1}, func() (int, int, error) {
			found, err := w.s.Chat(ctx, chatNo(105))
			return found.MemberCount, 3, err
		}),
		{
			name: "`Check`",
			run:  func(int) error { return w.s.Check(ctx) },
			most: bound{calls: "GetItem", reads: 1},
		},
	}
}
