package pusher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// clearDelay is how long reads are collected. So a user who reads several chats gets one badge.
	clearDelay = time.Second
	// maxReads is how many reads wait to be looked at. Further ones are lost.
	maxReads = 10_000
	// readsAtOnce is how many are looked at together.
	readsAtOnce = 50
)

// reads are the pairs of a user and a chat that the user has read, and when to handle each.
type reads struct {
	mu  sync.Mutex
	due map[pair]look
}

// look says when to handle a pair. last says that it is the second time, so devices with a session
// are not checked again.
type look struct {
	at   time.Time
	last bool
}

// later handles what a user has read of a chat after a time, if this process has notified a device
// of it.
func (p *Pusher) later(of pair, after time.Duration, last bool) {
	if !p.working.Load() || !p.memory.shows(of) {
		return
	}
	p.reads.add(of, look{time.Now().Add(after), last})
	p.wake.Set()
}

func (r *reads) add(of pair, l look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due == nil {
		r.due = map[pair]look{}
	}
	before, there := r.due[of]
	if there && before.at.Before(l.at) || !there && len(r.due) >= maxReads {
		return
	}
	r.due[of] = l
}

// take removes the reads that are due, readsAtOnce at most. next is when the next ones are due.
func (r *reads) take(now time.Time) (due map[pair]look, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	due, next = map[pair]look{}, now.Add(time.Hour)
	for of, l := range r.due {
		switch {
		case !l.at.After(now) && len(due) < readsAtOnce:
			due[of] = l
			delete(r.due, of)
		case l.at.Before(next):
			next = l.at
		}
	}
	return due, next
}

// clearing removes what was read elsewhere, until ctx ends.
func (p *Pusher) clearing(ctx context.Context) {
	for ctx.Err() == nil {
		due, next := p.reads.take(time.Now())
		if len(due) == 0 {
			p.wake.WaitUntil(ctx, next)
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, callTime)
		err := p.clear(bounded, due)
		cancel()
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("banners that were read elsewhere stay until the next one",
				"error", err)
		}
	}
}

// gone is what a user has read: up to which message of each chat.
type gone struct {
	read map[tidemark.ChatID]tidemark.Sequence
	last bool
}

// clear removes the banners of chats from the devices of users, and sets the badges.
func (p *Pusher) clear(ctx context.Context, due map[pair]look) error {
	of, err := p.gone(ctx, due)
	if err != nil {
		return err
	}
	users := slices.Sorted(maps.Keys(of))
	found, err := p.cfg.Devices.Of(ctx, users)
	if err != nil {
		return err
	}
	online, err := p.cfg.Online(ctx, users)
	if err != nil {
		online = make([][]tidemark.DeviceID, len(users)) // They get what they know already.
	}
	for i, user := range users {
		err := p.clearUser(ctx, user, found[i].Devices, online[i], of[user])
		if err != nil {
			return err
		}
	}
	return nil
}

// gone returns what users have read. A chat that a user has left is read.
func (p *Pusher) gone(
	ctx context.Context, due map[pair]look,
) (map[tidemark.UserID]gone, error) {
	var keys []storage.StateKey
	for of := range due {
		keys = append(keys, storage.StateKey{User: of.user, Chat: of.chat})
	}
	states, err := p.cfg.Store.States(ctx, keys)
	if err != nil {
		return nil, err
	}
	read := map[pair]tidemark.Sequence{}
	var showing []pair
	for i, key := range keys {
		of := pair{key.User, key.Chat}
		if read[of] = states[i].Read; p.memory.showsAfter(of, read[of]) {
			showing = append(showing, of)
		}
	}
	left, err := p.left(ctx, showing)
	if err != nil {
		return nil, err
	}
	for _, of := range left {
		read[of] = tidemark.MaxSequence
	}
	all := map[tidemark.UserID]gone{}
	for of, through := range read {
		g, there := all[of.user]
		if !there {
			g = gone{map[tidemark.ChatID]tidemark.Sequence{}, true}
		}
		g.read[of.chat] = through
		all[of.user] = gone{g.read, g.last && due[of].last}
	}
	return all, nil
}

// left returns those pairs whose user is no member of the chat. A chat that does not exist has
// none of them.
func (p *Pusher) left(ctx context.Context, all []pair) (left []pair, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	chats := make([]tidemark.ChatID, len(all))
	for i, of := range all {
		chats[i] = of.chat
	}
	slices.Sort(chats)
	chats = slices.Compact(chats)
	rosters, err := p.cfg.Store.Rosters(ctx, chats)
	if err != nil {
		return nil, err
	}
	for _, of := range all {
		at, _ := slices.BinarySearch(chats, of.chat)
		if rosters[at] == nil || !slices.ContainsFunc(rosters[at].Members,
			func(m tidemark.Member) bool { return m.UserID == of.user }) {
			left = append(left, of)
		}
	}
	return left, nil
}

// clearUser clears what a user has read from their devices. A device with a session knows what was
// read. Its connection may have ended, so it is looked at once more when its session has.
func (p *Pusher) clearUser(
	ctx context.Context, user tidemark.UserID, all []devices.Device, online []tidemark.DeviceID,
	g gone,
) error {
	var badge *int
	for i := range all {
		d := &all[i]
		at := receiver{user, d.ID}
		connected := slices.Contains(online, d.ID)
		if p.cfg.Queues[d.Platform] == nil || connected && !g.last {
			continue
		}
		banners := p.memory.take(at, d.Registration, g.read)
		if len(banners) == 0 || connected {
			continue
		}
		if badge == nil {
			unread, err := p.cfg.Store.UnreadOf(ctx, user)
			if err != nil {
				return err
			}
			n := int(min(unread.Messages, push.MaxBadge))
			badge = &n
		}
		p.clearDevice(at, d, banners, *badge)
	}
	if !g.last {
		for chat := range g.read {
			if of := (pair{user, chat}); !p.memory.showsAfter(of, g.read[chat]) {
				p.later(of, p.cfg.Resume, true)
			}
		}
	}
	return nil
}

// clearDevice clears chats from a device. Nothing that waits is dropped for it.
func (p *Pusher) clearDevice(at receiver, d *devices.Device, banners []shown, badge int) {
	q, habit := p.cfg.Queues[d.Platform], p.cfg.Habits[d.Platform].Clears
	to := d.Target(at.user)
	n := push.Notification{Badge: badge, Urgency: push.Normal, Sealed: d.P256dh != nil}
	told := habit == nil
	tell := func(kind push.Kind) {
		told = true
		if n.Kind = kind; q.Room() > 0 {
			q.Enqueue(to, n)
		}
	}
	for _, b := range banners {
		if !b.banner {
			continue
		}
		n.Name = push.CollapseName(p.names, at.user, d.ID, b.chat)
		//rule:clear_hides_no_unread.up-to-what-was-shown
		n.Chat, n.From, n.To = b.chat, 1, b.through
		cleared := push.Cleared{Name: n.Name, To: n.To}
		kinds := p.memory.clear(at, cleared, q.Room() > 0, habit)
		for _, kind := range kinds {
			if kind == push.Clear || !told {
				tell(kind)
			}
		}
		if slices.Contains(kinds, push.Clear) {
			p.cleared.Add(1)
		} else {
			p.uncleared.Add(1)
		}
	}
	if !told {
		tell(push.Badge)
	}
}

// remember records a notification, so that its banner can be removed later. It adds to n the
// banners that the device should remove.
func (p *Pusher) remember(one *person, d *devices.Device, n *push.Notification) {
	at, chat := receiver{one.user, d.ID}, one.message.ChatID
	if n.Kind.Silent() && p.cfg.Habits[d.Platform].Clears == nil {
		return // The provider carries no such notification.
	}
	to := shown{chat, one.message.Sequence, n.Kind == push.Banner}
	n.Clears = p.memory.note(at, d.Registration, n, to)
	p.noteShown(at, chat, to.through)
}
