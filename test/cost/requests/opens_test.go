package requests

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// shared is a registry that other nodes may share, so that a node cannot know all that happens.
type shared struct{ registry.Registry }

func amongOthers(r registry.Registry) registry.Registry { return shared{r} }

// TestOpens_cost_nothing_for_silent_chats meters an open with its snapshot of statuses, of users
// with few and many silent chats. On a node alone the second open of a user reads no list of chats:
// it costs the same for both. A node among others lists the chats of each open.
func TestOpens_cost_nothing_for_silent_chats(t *testing.T) {
	const few, many = 60, 180
	for name, open := range map[string]func(*testing.T) backend{
		"sqlite": openSQLite, "postgres": openPostgres, "dynamodb": openDynamoDB,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			for _, n := range []int{few, many} {
				silentChats(t, b, n)
			}
			cost := map[string]spent{}
			for kind, wrap := range map[string]func(registry.Registry) registry.Registry{
				"alone": nil, "among others": amongOthers,
			} {
				t.Run(kind, func(t *testing.T) {
					o := transporttest.Options{Storage: b, Registry: wrap}
					s := transporttest.New(t, o).Server
					for _, n := range []int{few, many} {
						for range 2 {
							b.take()
							c := opened(t, s, silentUser(n), true, 2*50)
							if err := c.Close(t.Context()); err != nil {
								t.Fatal(err)
							}
							cost[fmt.Sprint(kind, n)] = b.take()
						}
					}
				})
			}
			for key, c := range cost {
				t.Logf("%s: %d statements, %s, %v read units",
					key, c.statements, c.kinds(), c.reads)
			}
			small, large := cost[fmt.Sprint("alone", few)], cost[fmt.Sprint("alone", many)]
			if small.statements != large.statements || small.kinds() != large.kinds() ||
				small.reads != large.reads {
				t.Errorf("an open costs %+v with %d chats, and %+v with %d",
					small, few, large, many)
			}
			listed := cost[fmt.Sprint("among others", many)]
			if listed.statements+len(listed.calls) <= large.statements+len(large.calls) &&
				listed.reads <= large.reads {
				t.Errorf("a node among others costs %+v, one alone %+v: want less", listed, large)
			}
		})
	}
}

func silentUser(n int) tidemark.UserID { return userNo("silent", n) }

// silentChats creates n direct chats of a user, in which both members have what was sent.
func silentChats(t *testing.T, b backend, n int) {
	t.Helper()
	var advances []storage.Advance
	for i := range n {
		other := userNo("friend", i)
		id := tidemark.ChatID(long(fmt.Sprintf("silent-%d-%d", n, i)))
		err := create(t, b, id, tidemark.Direct, []tidemark.UserID{other, silentUser(n)})
		if err != nil {
			t.Fatal(err)
		}
		for _, user := range []tidemark.UserID{other, silentUser(n)} {
			advances = append(advances, storage.Advance{
				User: user, Chat: id, Now: time.UnixMilli(4), Raise: tidemark.Raise{Acked: 2},
			})
		}
	}
	if _, err := b.Advance(t.Context(), advances); err != nil {
		t.Fatal(err)
	}
}
