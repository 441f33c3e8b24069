package appends

import (
	"context"
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// admitted separates the drafts of members from the others. It sets the results of the others, of
// those that the state of the chat refuses, and of all if the chat does not exist. Drafts of an
// importer behind a refused one are among the others.
func (a *appending) admitted(ctx context.Context, todo []int) (members, others []int, err error) {
	for again := 0; ; again++ {
		if a.view.Counter == nil || a.view.stale {
			found, err := a.Counter(ctx, a.chat)
			if tidemark.CodeOf(err) == tidemark.NotFound {
				for _, i := range todo {
					a.results[i] = storage.Appended{Err: err}
				}
				return nil, nil, nil
			}
			if err != nil {
				return nil, nil, err
			}
			a.view.see(found)
		}
		if todo, err = a.taken(ctx, todo); err != nil || len(todo) == 0 {
			return nil, nil, err
		}
		strangers, newer, err := a.lookUp(ctx, todo)
		if err != nil {
			return nil, nil, err
		}
		if newer {
			a.view.stale = true
			if err := call.Yield(ctx, again); err != nil {
				return nil, nil, err
			}
			continue
		}
		closed := a.view.State.Closed()
		if closed {
			//rule:blocked_is_closed.refuse-by-the-stored-counter
			if newer, err = a.confirm(ctx); err != nil {
				return nil, nil, err
			}
		}
		if newer {
			a.view.stale = true
			if err := call.Yield(ctx, again); err != nil {
				return nil, nil, err
			}
			continue
		}
		if len(strangers) == 0 && a.behind == nil && !closed {
			return todo, nil, nil
		}
		return a.separated(ctx, todo, strangers)
	}
}

// separated separates the drafts of strangers, and those held back, from the others, and sets their
// results.
func (a *appending) separated(
	ctx context.Context, todo []int, strangers map[tidemark.UserID]error,
) (members, others []int, err error) {
	behind := maps.Clone(a.behind)
	var held []int
	for _, i := range todo {
		d := &a.drafts[i]
		//rule:import_once.nothing-behind-a-refusal-in-dynamodb
		if behind.Judge(d, nil) != nil {
			held = append(held, i)
			continue
		}
		refusal := strangers[d.SenderID]
		//rule:blocked_is_closed.refuse-after-the-key-in-dynamodb
		if refusal == nil {
			refusal = storage.MayWrite(a.view.State, d)
		}
		if refusal == nil {
			members = append(members, i)
			continue
		}
		others = append(others, i)
		if err := a.refuse(ctx, i, refusal); err != nil {
			return nil, nil, err
		}
		a.note(&behind, i)
	}
	err = call.Together(ctx, len(held), func(ctx context.Context, n int) error {
		return a.refuse(ctx, held[n], behind[a.chat])
	})
	if err != nil {
		return nil, nil, err
	}
	return members, append(others, held...), nil
}

// note notes the refusal of a draft for those behind it, unless its key is known.
func (a *appending) note(behind *storage.HeldBack, i int) {
	if err := a.results[i].Err; err != nil && a.first[i].message == nil {
		_ = behind.Judge(&a.drafts[i], err)
	}
}

// decided notes the refusals among drafts whose results stay.
func (a *appending) decided(some []int) {
	for _, i := range some {
		a.note(&a.behind, i)
	}
}

// taken returns the drafts that the state of the chat takes, and sets the results of the others.
// A view may be old, and an import may have ended since. So only the stored counter decides a
// refusal.
func (a *appending) taken(ctx context.Context, todo []int) (left []int, err error) {
	refuses := func(i int) bool { return storage.MayAppend(a.view.State, &a.drafts[i]) != nil }
	if !slices.ContainsFunc(todo, refuses) {
		return todo, nil
	}
	//rule:importing_is_closed.refuse-by-the-stored-counter
	if _, err := a.confirm(ctx); err != nil {
		return nil, err
	}
	for _, i := range todo {
		//rule:importing_is_closed.ask-the-state-first-in-dynamodb
		if err := storage.MayAppend(a.view.State, &a.drafts[i]); err != nil {
			a.results[i] = storage.Appended{Err: err}
			continue
		}
		left = append(left, i)
	}
	return left, nil
}

// lookUp returns the senders who may not send, each with the reason: they are not members, or they
// are readers. newer reports that a membership has a later version than the view.
func (a *appending) lookUp(
	ctx context.Context, todo []int,
) (strangers map[tidemark.UserID]error, newer bool, err error) {
	var unknown []tidemark.UserID
	for _, i := range todo {
		sender := a.drafts[i].SenderID
		//rule:erasure_is_announced.sender-is-no-member-in-dynamodb
		if _, member := a.view.members[sender]; !member && !a.drafts[i].ByServer {
			unknown = append(unknown, sender)
		}
	}
	if len(unknown) == 0 {
		return nil, false, nil
	}
	rows, err := a.Memberships(ctx, a.chat, unknown)
	if err != nil {
		return nil, false, err
	}
	strangers = map[tidemark.UserID]error{}
	for _, user := range unknown {
		row := rows[user]
		if row.Version > a.view.MembersVersion {
			return nil, true, nil
		}
		m := row.At(a.view.Counter)
		current := m.Intervals.Open()
		//rule:caller_does_only_what_they_may.readers-never-append-in-dynamodb
		if current && m.Role.MaySend() {
			a.view.addMember(user, m.Role)
		} else {
			strangers[user] = storage.NotSender(a.chat, user, current)
		}
	}
	if len(strangers) == 0 {
		return strangers, false, nil
	}
	newer, err = a.confirm(ctx)
	return strangers, newer, err
}

// confirm reads the counter before a refusal. newer reports that the members have changed since the
// view. A view may be old, and no other check would find that. So only the stored counter decides a
// refusal.
func (a *appending) confirm(ctx context.Context) (newer bool, err error) {
	found, err := a.Counter(ctx, a.chat)
	if err != nil {
		return false, err
	}
	//rule:nothing_outside_membership.notice-newer-members
	newer = found.MembersVersion != a.view.MembersVersion || found.Changed != a.view.Changed
	a.view.see(found)
	return newer, nil
}

// refuse sets the result of a draft whose sender may not send it. If the message is stored already,
// the draft is a duplicate, else it gets the refusal.
func (a *appending) refuse(ctx context.Context, i int, refusal error) error {
	key, err := known(ctx, a.Access, storage.SendKeyOf(&a.drafts[i]))
	if err != nil || key == nil {
		a.results[i] = storage.Appended{Err: refusal}
		return err
	}
	//rule:send_idempotent.stranger-gets-own-duplicate
	forgotten, err := a.duplicate(ctx, i, key)
	if forgotten {
		a.results[i] = storage.Appended{Err: refusal}
	}
	return err
}
