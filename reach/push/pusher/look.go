package pusher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/internal/reread"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/storage"
)

// look brings a notification that has waited up to date, and reports whether it is still needed
// (queue.Look). It reads the same as the first time: the user's registration and settings, their
// state in the chat, the members, the message, and the unread count. It stops at the first reason
// to drop it.
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
	d := registered(found[0].Devices, to.Device, to.Registration)
	//rule:no_push_outside_membership.only-to-this-registration
	if d == nil {
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
	if i < 0 || !members[i].Intervals.Contains(n.To) {
		return false, nil
	}
	one := person{user: to.User, settings: found[0].Settings}
	return true, p.reword(ctx, n, &one, d)
}

// reword lets a banner say what its message says now, if the message was edited or redacted. Of a
// redacted one it says only that there is a message: the banner may be in place of an earlier one,
// whose message is unread.
func (p *Pusher) reword(
	ctx context.Context, n *push.Notification, one *person, d *devices.Device,
) error {
	if n.Kind != push.Banner {
		return nil
	}
	found := reread.Messages(ctx, p.cfg.Store, []storage.MessageKey{{Chat: n.Chat, Sequence: n.To}})
	//rule:redacted_stays.push-says-what-stands
	if found[0].Err != nil || found[0].Message.Revision == nil {
		return found[0].Err
	}
	one.message = found[0].Message
	chat, err := p.cfg.Store.Chat(ctx, n.Chat)
	if err != nil {
		return err
	}
	sender, err := p.cfg.Devices.Of(ctx, []tidemark.UserID{one.message.SenderID})
	if err != nil {
		return err
	}
	one.sender = cmp.Or(sender[0].Settings.DisplayName, string(one.message.SenderID))
	return p.word(n, &chat, one, d, time.Now())
}
