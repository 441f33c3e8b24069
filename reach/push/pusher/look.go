package pusher

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/storage"
)

// look brings a notification that has waited up to date, and reports whether it is still needed
// (queue.Look). It reads the same as the first time: the user's registration and settings, their
// state in the chat, the members, and the unread count. It stops at the first reason to drop it.
func (p *Pusher) look(
	ctx context.Context, to push.Target, n push.Notification,
) (now push.Notification, needed bool, err error) {
	if needed, err = p.needed(ctx, to, &n); !needed || err != nil {
		return n, false, err
	}
	unread, err := p.cfg.Store.UnreadOf(ctx, to.User)
	n.Badge = int(min(unread.Messages, push.MaxBadge))
	return n, n.Kind != push.Summary || n.Badge > 0, err
}

// needed reports whether a user still is to be told what a notification says.
func (p *Pusher) needed(
	ctx context.Context, to push.Target, n *push.Notification,
) (needed bool, err error) {
	found, err := p.cfg.Devices.Of(ctx, []tidemark.UserID{to.User})
	if err != nil {
		return false, err
	}
	//rule:no_push_outside_membership.only-to-this-registration
	if registered(found[0].Devices, to.Device, to.Registration) == nil {
		return false, nil
	}
	if n.Kind != push.Banner {
		return true, nil
	}
	if found[0].Settings.Silent(n.Chat, time.Now()) {
		n.Kind, n.Title, n.Body, n.Token = push.Badge, "", "", ""
	}
	states, err := p.cfg.Store.States(ctx, []storage.StateKey{{User: to.User, Chat: n.Chat}})
	//rule:push_is_needed.not-what-was-read
	if err != nil || states[0].Read >= n.To {
		return false, err
	}
	rosters, err := p.cfg.Store.Rosters(ctx, []tidemark.ChatID{n.Chat})
	if err != nil || rosters[0] == nil {
		return false, err
	}
	members := rosters[0].Members
	i := slices.IndexFunc(members, func(m tidemark.Member) bool { return m.UserID == to.User })
	//rule:no_push_outside_membership.look-at-the-members-again
	return i >= 0 && members[i].Intervals.Contains(n.To), nil
}
