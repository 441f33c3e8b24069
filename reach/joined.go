package reach

import (
	"context"
	"errors"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/storage"
)

// joined makes calls of the store for many chats at once. The work on a chat asks for one thing,
// and waits for it. What other chats ask for meanwhile is in the next call. Run starts and stops
// it.
type joined struct {
	rosters *join[tidemark.ChatID, *tidemark.Roster]
	// waiting reports whether backlogs of single outlets are open.
	waiting *join[backlogName, bool]
	rewind  *join[storage.Backlog, struct{}]
	settle  *join[storage.Settlement, bool]
}

// backlogName names the backlog of a single outlet.
type backlogName struct {
	outlet storage.OutletID
	chat   tidemark.ChatID
}

func nameOf(b *storage.Backlog) backlogName { return backlogName{b.Outlet, b.Chat} }

func newJoined(s Store) joined {
	return joined{
		rosters: newJoin(s.Rosters, func(chat *tidemark.ChatID) backlogName {
			return backlogName{chat: *chat}
		}),
		waiting: newJoin(func(ctx context.Context, of []backlogName) ([]bool, error) {
			return waiting(ctx, s, of)
		}, func(of *backlogName) backlogName { return *of }),
		rewind: newJoin(func(ctx context.Context, open []storage.Backlog) ([]struct{}, error) {
			return make([]struct{}, len(open)), s.Rewind(ctx, open)
		}, nameOf),
		settle: newJoin(s.Settle, func(item *storage.Settlement) backlogName {
			return nameOf(&item.Backlog)
		}),
	}
}

func (j *joined) start() {
	j.rosters.Start()
	j.waiting.Start()
	j.rewind.Start()
	j.settle.Start()
}

func (j *joined) stop() {
	j.rosters.Stop()
	j.waiting.Stop()
	j.rewind.Stop()
	j.settle.Stop()
}

// waiting reports which backlogs of single outlets are open, in one call for each outlet.
func waiting(ctx context.Context, s Store, of []backlogName) ([]bool, error) {
	chats := map[storage.OutletID][]tidemark.ChatID{}
	for _, name := range of {
		chats[name.outlet] = append(chats[name.outlet], name.chat)
	}
	found := map[backlogName]bool{}
	for outlet, some := range chats {
		backlogs, _, err := s.Backlogs(ctx, storage.BacklogQuery{Outlet: outlet, Chats: some})
		if err != nil {
			return nil, err
		}
		for i := range backlogs {
			found[nameOf(&backlogs[i])] = true
		}
	}
	open := make([]bool, len(of))
	for i, name := range of {
		open[i] = found[name]
	}
	return open, nil
}

// join is one kind of call.
type join[Q, A any] struct {
	*batch.Batcher[Q, joinedAnswer[A]]
}

// joinedAnswer is what one item gets.
type joinedAnswer[A any] struct {
	value A
	err   error
}

const (
	// joinedWorkers is how many calls of a kind run at once, and joinedMost for how many chats.
	joinedWorkers, joinedMost = 2, 500
)

// newJoin returns a kind of call. A call names everything once: what is named again is in a call of
// its own. An error may be that of one item. Unless the store is away, each item gets a call of its
// own then.
func newJoin[Q, A any](
	call func(context.Context, []Q) ([]A, error), name func(*Q) backlogName,
) *join[Q, A] {
	cfg := batch.Config{Name: "the store", Workers: joinedWorkers, Most: joinedMost}
	return &join[Q, A]{batch.New(cfg, func(
		ctx context.Context, collect func() []Q,
	) ([]joinedAnswer[A], error) {
		items := collect()
		answers := make([]joinedAnswer[A], len(items))
		var first, again []int
		named := make(map[backlogName]bool, len(items))
		for i := range items {
			if n := name(&items[i]); named[n] {
				again = append(again, i)
			} else {
				named[n], first = true, append(first, i)
			}
		}
		some := func(of []int) error {
			asked := make([]Q, len(of))
			for k, i := range of {
				asked[k] = items[i]
			}
			values, err := call(ctx, asked)
			for k, i := range of {
				if answers[i].err = err; err == nil {
					answers[i].value = values[k]
				}
			}
			return err
		}
		err := some(first)
		if err != nil && tidemark.CodeOf(err) != tidemark.Unavailable && len(first) > 1 {
			again = append(first, again...)
		}
		for _, i := range again {
			_ = some([]int{i}) // The item has the error.
		}
		return answers, nil
	})}
}

// all asks for several things that need no answer.
func (j *join[Q, A]) all(ctx context.Context, items []Q) error {
	answers, err := j.Do(ctx, items)
	for i := range answers {
		err = errors.Join(err, answers[i].err)
	}
	return err
}

// one asks for one thing.
func (j *join[Q, A]) one(ctx context.Context, item Q) (value A, err error) {
	a, err := j.DoOne(ctx, item)
	if err != nil {
		return value, err
	}
	return a.value, a.err
}
