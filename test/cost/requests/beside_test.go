package requests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// A line is a row of the table of what the core reads beside messages.
type line struct {
	name string
	cost spent
}

// TestBeside_table meters what the core reads on DynamoDB beside messages and acknowledgements, and
// compares with the table of request-costs.md. docs/cost.md uses these figures.
func TestBeside_table(t *testing.T) {
	b := openDynamoDB(t)
	all := append(seenLines(t, b), aggregateLines(t, b)...)
	all = append(all, snapshotLines(t, b)...)
	lines := []string{
		"| what the core reads | calls | read units | write units |", "|---|---|---|---|",
	}
	for _, l := range all {
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |",
			l.name, l.cost.kinds(), figure(l.cost.reads), figure(l.cost.writes)))
	}
	compare(t, "beside", lines)
}

// seenLines meters a reply with seen_sequence, less one without it. The author has received all
// that was sent before. Their read watermark goes to the head, or to a message before one of their
// own.
func seenLines(t *testing.T, b backend) []line {
	plain := replies(t, b, tidemark.Seen{}, tidemark.Seen{}, true)
	head := replies(t, b, tidemark.Seen{}, tidemark.SeenThrough(4), true)
	missed := replies(t, b, tidemark.Seen{}, tidemark.SeenThrough(4), false)
	behind := replies(t, b, tidemark.SeenThrough(0), tidemark.SeenThrough(2), true)
	return []line{
		{"`seen_sequence` of a reply to the last message", head.minus(plain)},
		{"… on a node that did not get that message", missed.minus(plain)},
		{"… to one before an own message that was not read", behind.minus(plain)},
	}
}

// replies returns what a message costs with its author's watermark, in a chat that the node knows.
// The author has sent message 3 with first, and sends message 5 with then. Message 4 is of the
// other user, and got reports that it came through the same node.
func replies(t *testing.T, b backend, first, then tidemark.Seen, got bool) (cost spent) {
	const chats = 10
	author := userNo("author", 0)
	t.Run("seen", func(t *testing.T) {
		s := transporttest.New(t, transporttest.Options{Storage: b}).Server
		name := fmt.Sprintf("other-%d-%d", then.Through, first.Through)
		if first.Stated {
			name += "-0"
		}
		if !got {
			name += "-m"
		}
		chat := func(i int) tidemark.ChatID {
			return tidemark.ChatID(long(fmt.Sprintf("%s-%d", name, i)))
		}
		received := func(user tidemark.UserID, through tidemark.Sequence, i int) {
			_, err := b.Advance(t.Context(), []storage.Advance{{
				User: user, Chat: chat(i), Now: time.UnixMilli(4),
				Raise: tidemark.Raise{Acked: through},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		var sent int64
		send := func(n int, seen tidemark.Seen) {
			for i := range chats {
				d := draft(chat(i), author, n)
				d.Seen = seen
				user := author
				if n == 4 {
					user = userNo(name, i)
				}
				if _, err := s.Send(t.Context(), user, d); err != nil {
					t.Fatal(err)
				}
				sent++
			}
			wait.Until(t, "watermarks of authors and pending rows of others follow", func() bool {
				now := s.Counters()
				return min(now["advances_moved_total"], now["marks_total"]) >= sent
			})
		}
		for i := range chats {
			if err := create(t, b, chat(i), tidemark.Direct,
				[]tidemark.UserID{userNo(name, i), author}); err != nil {
				t.Fatal(err)
			}
			received(author, 2, i)
		}
		send(3, first)
		for i := range chats {
			received(userNo(name, i), 3, i)
			if got {
				continue
			}
			_, err := storage.AppendOne(t.Context(), b, draft(chat(i), userNo(name, i), 4))
			if err != nil {
				t.Fatal(err)
			}
		}
		if got {
			send(4, tidemark.Seen{})
		}
		for i := range chats {
			received(author, 4, i)
		}
		b.take()
		send(5, then)
	})
	cost = b.take() // The server has stopped, so all is done.
	for kind := range cost.calls {
		cost.calls[kind] /= chats
	}
	cost.reads, cost.writes = cost.reads/chats, cost.writes/chats
	t.Logf("%s, %v read and %v write units", cost.kinds(), cost.reads, cost.writes)
	return cost
}

// aggregateLines meters the aggregate of a group above 50 members: an acknowledgement that leads to
// one, less acknowledgements that do not. Within Config.AggregateInterval there is no second one,
// for sessions that open neither.
func aggregateLines(t *testing.T, b backend) (lines []line) {
	for _, n := range []int{100, 1000} {
		id := tidemark.ChatID(long(fmt.Sprintf("aggregate-%d", n)))
		var members []tidemark.UserID
		var advances []storage.Advance
		for i := range n {
			members = append(members, userNo("member", i))
			if i > 0 {
				advances = append(advances, storage.Advance{
					User: members[i], Chat: id, Now: time.UnixMilli(4),
					Raise: tidemark.Raise{Acked: 2},
				})
			}
		}
		err := create(t, b, id, tidemark.Group, members)
		if err == nil {
			_, err = b.Advance(t.Context(), advances)
		}
		if err != nil {
			t.Fatal(err)
		}
		var one, none, with, without spent
		t.Run(fmt.Sprint("aggregate of ", n), func(t *testing.T) {
			core := server.Config{AggregateInterval: time.Hour}
			s := transporttest.New(t, transporttest.Options{Storage: b, Core: core}).Server
			online := opened(t, s, members[n-1], false, 0)
			acknowledge := func(user tidemark.UserID, through tidemark.Sequence) {
				results, err := s.Acknowledge(t.Context(), user,
					[]server.Ack{{Chat: id, Acked: through}})
				if err != nil || results[0].Err != nil {
					t.Fatalf("%v, %v", results, err)
				}
			}
			acknowledge(members[1], 2) // nothing moves, and the node knows the members
			b.take()
			acknowledge(members[0], 2)
			events(t, online, map[tidemark.EventType]int{tidemark.EventStatus: 1})
			one = b.take()
			if _, err := storage.AppendOne(t.Context(), b, draft(id, members[0], 3)); err != nil {
				t.Fatal(err)
			}
			b.take()
			for i := 1; i <= 20; i++ {
				acknowledge(members[i], 3)
				if i == 1 {
					none = b.take()
				}
			}
			if more := b.take(); more.calls["Query"] > 0 {
				t.Errorf("20 more acknowledgements took %s: want no aggregate", more.kinds())
			}
			open := func(statuses int) spent {
				c := opened(t, s, members[1], statuses > 0, statuses)
				if err := c.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				return b.take()
			}
			open(0) // it learns what the node does not know
			without, with = open(0), open(1)
		})
		b.take()
		lines = append(lines, line{"the aggregate of a group of " + figure(float64(n)),
			one.minus(none)})
		if n == 100 { // an open stream of a group of 1,000 has more to read
			lines = append(lines, line{"… in an open stream, within a second", with.minus(without)})
		}
	}
	return lines
}

// snapshotLines meters an open stream with the snapshot of statuses, less one without it: first on
// a node that does not know the members of the chats, and then again.
func snapshotLines(t *testing.T, b backend) (lines []line) {
	bea, cara := userNo("bea", 0), userNo("cara", 0)
	received := func(user tidemark.UserID, chat tidemark.ChatID) storage.Advance {
		return storage.Advance{
			User: user, Chat: chat, Now: time.UnixMilli(4), Raise: tidemark.Raise{Acked: 2},
		}
	}
	var advances []storage.Advance
	for i := range 100 {
		other := userNo("friend", i)
		err := create(t, b, tidemark.ChatID(long(fmt.Sprintf("snap-%d", i))), tidemark.Direct,
			[]tidemark.UserID{other, bea})
		if err == nil && i < 50 {
			members := []tidemark.UserID{other, cara}
			for n := range 8 {
				members = append(members, userNo("mate", n))
			}
			id := tidemark.ChatID(long(fmt.Sprintf("snap-group-%d", i)))
			err = create(t, b, id, tidemark.Group, members)
			advances = append(advances, received(cara, id))
		}
		advances = append(advances, received(bea, tidemark.ChatID(long(fmt.Sprintf("snap-%d", i)))))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Advance(t.Context(), advances); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		user       tidemark.UserID
		boundaries int
	}{
		{"50 of 100 direct chats", bea, 100}, {"50 groups of 10", cara, 500},
	} {
		cost := map[string]spent{}
		t.Run(c.name, func(t *testing.T) {
			s := transporttest.New(t, transporttest.Options{
				Storage: b, Registry: amongOthers,
			}).Server
			for _, how := range []string{"first", "cold", "warm", "without"} {
				b.take()
				n := 0
				if how == "cold" || how == "warm" {
					n = c.boundaries
				}
				if err := opened(t, s, c.user, n > 0, n).Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				cost[how] = b.take()
			}
		})
		lines = append(lines,
			line{"the snapshot of an open stream, " + c.name, cost["warm"].minus(cost["without"])},
			line{"… on a node that does not know them", cost["cold"].minus(cost["without"])})
	}
	return lines
}

// opened opens a stream of a user who has caught up, and reads so many statuses of the snapshot.
func opened(
	t *testing.T, s *server.Server, user tidemark.UserID, snapshot bool, n int,
) *server.Connection {
	t.Helper()
	c, err := s.Open(t.Context(), server.OpenRequest{User: user, Statuses: snapshot})
	if err != nil {
		t.Fatal(err)
	}
	events(t, c, map[tidemark.EventType]int{tidemark.EventCaughtUp: 1, tidemark.EventStatus: n})
	return c
}

// events reads until at least so many events of each type have come.
func events(t *testing.T, c *server.Connection, want map[tidemark.EventType]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Hang)
	defer cancel()
	got := map[tidemark.EventType]int{}
	missing := func() bool {
		for kind, n := range want {
			if got[kind] < n {
				return true
			}
		}
		return false
	}
	for missing() {
		some, err := c.Next(ctx, nil, true)
		if err != nil {
			t.Fatalf("%v came, want %v: %v", got, want, err)
		}
		for _, e := range some {
			got[e.Type]++
		}
	}
}
