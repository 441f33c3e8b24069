package appends

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// next returns the counter after the drafts are stored, and the senders that have to be written to
// their delivery states. A sender leaves the counter only after that. So those who are not in the
// counter are there.
func (a *appending) next(
	ctx context.Context, todo []int,
) (next *record.Counter, moving record.Senders, err error) {
	copied := *a.view.Counter
	next = &copied
	var unlisted []tidemark.UserID
	for _, i := range todo {
		sender := a.drafts[i].SenderID
		if _, listed := a.view.Senders.Of(sender); !listed && !slices.Contains(unlisted, sender) {
			unlisted = append(unlisted, sender)
		}
	}
	sends := func(s record.Sender) bool {
		return slices.ContainsFunc(todo,
			func(i int) bool { return a.drafts[i].SenderID == s.User })
	}
	stay, surplus := next.Senders.Split(len(next.Name))
	next.Senders = slices.Clone(stay)
	for _, one := range surplus {
		if sends(one) {
			next.Senders = append(next.Senders, one)
			continue
		}
		//rule:unread_exact.move-senders-first
		if a.view.moved[one.User] != one.Last {
			next.Senders = append(next.Senders, one)
			moving = append(moving, one)
			continue
		}
		next.LastMoved = max(next.LastMoved, one.Last)
	}
	if len(moving) > mostMoving {
		if err := a.moveOut(ctx, moving); err != nil {
			return nil, nil, err
		}
		return a.next(ctx, todo)
	}
	known, err := a.movedOut(ctx, unlisted)
	if err != nil {
		return nil, nil, err
	}
	next.Senders = append(next.Senders, known...)
	for _, i := range todo {
		d := &a.drafts[i]
		next.Head++
		switch one, _ := next.Senders.Of(d.SenderID); {
		case !d.Kind.Counts():
			next.Uncounted, next.LastUncounted = next.Uncounted+1, next.Head
			continue
		default:
			one.Sent, one.Last = one.Sent+1, next.Head
			next.Senders = next.Senders.With(one)
		}
		if !d.Mentions.None() {
			next.LastMention = next.Head
		}
	}
	next.Senders = slices.DeleteFunc(slices.Clone(next.Senders),
		func(s record.Sender) bool { return s.Sent == 0 })
	return next, moving, nil
}

// mostMoving is how many senders wait in the counter, beyond those that belong there, until this
// process has written them to their delivery states. They are written beside a transaction, which
// does not wait for them: the longer an attempt takes, the more attempts are lost to other
// processes.
const mostMoving = 24

// moveOut writes senders to their delivery states, unless a later count is there.
func (a *appending) moveOut(ctx context.Context, leave record.Senders) error {
	err := call.Together(ctx, len(leave), func(ctx context.Context, i int) error {
		_, _, _, err := a.Update(ctx, call.Update{
			Table:     record.States,
			Key:       record.StateKey(leave[i].User, a.chat),
			Change:    "SET sent = :sent, last_sent = :last",
			Condition: "attribute_not_exists(last_sent) OR last_sent < :last",
			Values: call.Item{
				":sent": call.Number(leave[i].Sent), ":last": call.Number(leave[i].Last),
			},
		})
		return err
	})
	if err == nil {
		a.view.move(leave)
	}
	return err
}

// movedOut returns what the delivery states of users say about the messages that they sent. The
// users are not in the counter. If an attempt is lost, the next one need not read them again.
func (a *appending) movedOut(
	ctx context.Context, users []tidemark.UserID,
) (record.Senders, error) {
	var found record.Senders
	var unknown []tidemark.UserID
	var wanted []call.Item
	for _, user := range users {
		known, there := a.view.unlisted[user]
		if there {
			//rule:unread_exact.read-again-after-move
			if a.view.LastMoved <= known.head {
				found = append(found, known.Sender)
				continue
			}
		}
		unknown = append(unknown, user)
		wanted = append(wanted, record.StateKey(user, a.chat))
	}
	if len(wanted) == 0 {
		return found, nil
	}
	items, err := a.GetAll(ctx, call.Read{
		Table: record.States, Only: []string{"user_id", "sent", "last_sent"},
	}, wanted)
	if err != nil {
		return nil, err
	}
	if a.view.unlisted == nil || len(a.view.unlisted)+len(wanted) > mostMembers {
		a.view.unlisted = make(map[tidemark.UserID]unlisted)
	}
	for _, user := range unknown {
		a.view.unlisted[user] = unlisted{record.Sender{User: user}, a.view.Head}
	}
	for _, it := range items {
		one, err := record.SenderOf(it)
		if err != nil {
			return nil, err
		}
		a.view.unlisted[one.User] = unlisted{one, a.view.Head}
		found = append(found, one)
	}
	return found, nil
}
