package pusher

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/internal/acktoken"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/storage"
)

// audience has the members who may be notified of messages of a chat.
type audience struct {
	chat   tidemark.Chat
	people []person
	// wait is how long it is too early to notify anybody.
	wait time.Duration
	// read is when the messages, or the states of the people, were read: the earlier of the two.
	read time.Time
}

// person is a member with devices who has not read a message.
type person struct {
	user    tidemark.UserID
	devices []devices.Device
	// settings are those of the person. sender is the display name of the message's sender.
	settings devices.Settings
	sender   string
	// message is the last message to notify of. since is when the first one was sent.
	message tidemark.Message
	since   time.Time
	state   tidemark.DeliveryState
	online  []tidemark.DeviceID
	// badge is the unread count of all chats, nil until it was read.
	badge *int
}

// fewMembers is the size of chats whose members' devices are read at once, before the delay. If no
// member has a device, the messages need not wait in the store. In larger chats, assume that one
// has.
const fewMembers = 16

// audience returns who may be told of messages. Members and devices are read each time.
func (p *Pusher) audience(
	ctx context.Context, id tidemark.ChatID, messages []tidemark.Message, now time.Time,
) (a audience, err error) {
	if a.chat, err = p.cfg.Store.Chat(ctx, id); err != nil {
		return audience{}, err
	}
	wait := messages[0].CreatedAt.Add(delay).Sub(now)
	switch {
	case a.chat.Large && !anyNamed(messages):
		return a, nil
	case wait > 0 && a.chat.MemberCount > fewMembers:
		a.wait = wait
		return a, nil
	}
	newest, err := p.newest(ctx, &a.chat, messages)
	if err != nil {
		return a, err
	}
	people, err := p.people(ctx, &a.chat, messages, newest)
	switch {
	case err != nil || len(people) == 0:
		return a, err
	case wait > 0:
		a.wait = wait // What they have read is looked up then.
		return a, nil
	}
	a.read = time.Now()
	a.people, err = p.unread(ctx, a.chat.ID, people)
	return a, err
}

// newest returns the latest messages after a full page, if there are any. A member who is to be
// notified of one of these needs no notification of the page.
func (p *Pusher) newest(
	ctx context.Context, chat *tidemark.Chat, page []tidemark.Message,
) ([]tidemark.Message, error) {
	after := page[len(page)-1].Sequence
	if len(page) < perCall || chat.Head <= after {
		return nil, nil
	}
	if chat.Head > after+perCall {
		after = chat.Head - perCall
	}
	found, err := p.cfg.Store.Ranges(ctx,
		[]storage.Range{{Chat: chat.ID, After: after, Limit: perCall, Bare: true}})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// people returns the members of a chat who have devices, and may be notified of messages. It leaves
// out those who are to be notified of newer ones.
func (p *Pusher) people(
	ctx context.Context, chat *tidemark.Chat, messages, newer []tidemark.Message,
) ([]person, error) {
	rosters, err := p.cfg.Store.Rosters(ctx, []tidemark.ChatID{chat.ID})
	if err != nil || rosters[0] == nil {
		return nil, err
	}
	var people []person
	for i := range rosters[0].Members {
		m := &rosters[0].Members[i]
		//rule:push_is_owed_until_sent.unless-a-newer-one-is-owed
		if _, any := concerned(m, chat.Large, newer); any {
			continue
		}
		if one, any := concerned(m, chat.Large, messages); any {
			people = append(people, one)
		}
	}
	return p.withDevices(ctx, people)
}

// anyNamed reports whether a message names a user.
func anyNamed(messages []tidemark.Message) bool {
	return slices.ContainsFunc(messages, func(m tidemark.Message) bool {
		return !m.Mentions.All && !m.Mentions.None()
	})
}

// concerned returns a member with the last message of which they are to be told, if there is one.
// Nobody is told of a redacted one. In a large chat, only those are told whom a message names.
func concerned(
	m *tidemark.Member, large bool, messages []tidemark.Message,
) (one person, any bool) {
	one.user = m.UserID
	for i := range messages {
		of := &messages[i]
		//rule:redacted_stays.no-push-of-redacted
		if of.Redacted() {
			continue
		}
		//rule:no_push_outside_membership.only-what-they-may-see
		if of.SenderID == m.UserID || !of.Kind.Counts() || !m.Intervals.Contains(of.Sequence) {
			continue
		}
		if large && (of.Mentions.All || !of.Mentions.Name(m.UserID)) {
			continue
		}
		if !any {
			one.since = of.CreatedAt
		}
		one.message, any = *of, true
	}
	return one, any
}

// withDevices returns those who have devices that can be told.
func (p *Pusher) withDevices(ctx context.Context, people []person) ([]person, error) {
	if len(people) == 0 {
		return nil, nil
	}
	users := make([]tidemark.UserID, 0, len(people)+4)
	for i := range people {
		users = append(users, people[i].user)
	}
	senders := map[tidemark.UserID]string{}
	for i := range people {
		if sender := people[i].message.SenderID; senders[sender] == "" {
			senders[sender] = string(sender)
			users = append(users, sender)
		}
	}
	found, err := p.cfg.Devices.Of(ctx, users)
	if err != nil {
		return nil, err
	}
	for i, user := range users[len(people):] {
		if name := found[len(people)+i].Settings.DisplayName; name != "" {
			senders[user] = name
		}
	}
	var reachable []person
	for i, one := range people {
		for _, d := range found[i].Devices {
			if p.cfg.Queues[d.Platform] != nil {
				one.devices = append(one.devices, d)
			}
		}
		if len(one.devices) > 0 {
			one.settings, one.sender = found[i].Settings, senders[one.message.SenderID]
			reachable = append(reachable, one)
		}
	}
	return reachable, nil
}

// unread returns those who have not read their message, with what they have received.
func (p *Pusher) unread(
	ctx context.Context, chat tidemark.ChatID, people []person,
) ([]person, error) {
	keys := make([]storage.StateKey, len(people))
	for i := range people {
		keys[i] = storage.StateKey{User: people[i].user, Chat: chat}
	}
	states, err := p.cfg.Store.States(ctx, keys)
	if err != nil {
		return nil, err
	}
	var left []person
	var users []tidemark.UserID
	for i, one := range people {
		one.state = states[i]
		//rule:no_push_outside_membership.nothing-of-what-was-read
		if one.state.Read < one.message.Sequence {
			left, users = append(left, one), append(users, one.user)
		}
	}
	if left, users, err = p.unsuspended(ctx, left, users); err != nil || len(left) == 0 {
		return nil, err
	}
	online, err := p.cfg.Online(ctx, users)
	if err != nil {
		// Somebody who is told twice loses nothing.
		return left, nil //nolint:nilerr // see above
	}
	for i := range left {
		left[i].online = online[i]
	}
	return left, nil
}

// unsuspended returns those who are not suspended, and their ids.
func (p *Pusher) unsuspended(
	ctx context.Context, people []person, users []tidemark.UserID,
) (left []person, ids []tidemark.UserID, err error) {
	if p.cfg.Suspended == nil || len(people) == 0 {
		return people, users, nil
	}
	suspended, err := p.cfg.Suspended(ctx, users)
	if err != nil {
		return nil, nil, err
	}
	for i := range people {
		//rule:suspended_does_nothing.no-push
		if !suspended[i] {
			left, ids = append(left, people[i]), append(ids, users[i])
		}
	}
	return left, ids, nil
}

// lifetime is how long a provider keeps a banner for a device that is away.
const lifetime = 7 * 24 * time.Hour

// notification returns what a device is told.
func (p *Pusher) notification(
	ctx context.Context, chat tidemark.Chat, one *person, d *devices.Device, now time.Time,
) (push.Notification, error) {
	badge, err := p.badge(ctx, one)
	if err != nil {
		return push.Notification{}, err
	}
	n := push.Notification{
		Kind: push.Banner, Name: push.CollapseName(p.names, one.user, d.ID, chat.ID),
		Chat: chat.ID, To: one.message.Sequence,
		From:  min(one.state.Acked+1, one.message.Sequence),
		Badge: badge,
		TTL:   lifetime, Urgency: push.High, Sealed: d.P256dh != nil,
	}
	if one.settings.Silent(chat.ID, now) {
		n.Kind = push.Badge
		return n, nil
	}
	err = p.word(&n, &chat, one, d, now)
	return n, err
}

// word sets what a banner says of a message, and its token if it holds the whole message.
func (p *Pusher) word(
	n *push.Notification, chat *tidemark.Chat, one *person, d *devices.Device, now time.Time,
) error {
	preview := one.settings.Preview
	switch {
	case preview == "":
		preview = push.PreviewFull
	//rule:sealed_opaque.no-text-without-a-key
	case preview == push.PreviewSealed && !n.Sealed:
		preview = push.PreviewNone
	}
	group := ""
	if chat.Type == tidemark.Group {
		group = chat.Name
	}
	shown, err := preview.Show(one.message, one.sender, group)
	if err != nil {
		return err
	}
	n.Title, n.Body, n.Token = shown.Title, shown.Body, ""
	//rule:ack_token_honest.only-what-is-whole
	if n.From == n.To && whole(&one.message, preview) {
		n.Token, err = p.tokens.Sign(acktoken.Claim{
			User: one.user, Device: d.ID, Registration: d.Registration, Chat: chat.ID,
			From: n.From, To: n.To,
		}, now, now.Add(acktoken.MaxLife))
	}
	return err
}

// manyMessages is the text of a summary.
const manyMessages = "New messages"

// form turns a banner into a summary if the provider may keep too many banners for the device, and
// could drop all of them (Habits.Form).
func (p *Pusher) form(one *person, d *devices.Device, n *push.Notification) {
	at, form := receiver{one.user, d.ID}, p.cfg.Habits[d.Platform].Form
	if form == nil || n.Kind != push.Banner {
		return
	}
	if slices.Contains(one.online, d.ID) {
		p.memory.seen(at)
	}
	//rule:push_latest_replaces.summary-counts-the-unconfirmed
	if n.Kind = form(p.memory.unconfirmed(at, d.Registration)); n.Kind == push.Summary {
		*n = push.Notification{
			Kind: n.Kind, Name: push.CollapseName(p.names, one.user, d.ID, ""),
			Body: manyMessages, Badge: n.Badge, TTL: n.TTL, Urgency: n.Urgency, Sealed: n.Sealed,
		}
	}
}

// badge returns what is unread for a person in all chats.
func (p *Pusher) badge(ctx context.Context, one *person) (int, error) {
	if one.badge == nil {
		unread, err := p.cfg.Store.UnreadOf(ctx, one.user)
		if err != nil {
			return 0, err
		}
		badge := int(min(unread.Messages, push.MaxBadge))
		one.badge = &badge
	}
	return *one.badge, nil
}

// whole reports whether a banner holds all of a message (rule R_WHOLE).
func whole(m *tidemark.Message, preview push.Preview) bool {
	return (preview == push.PreviewFull || preview == push.PreviewSealed) && push.Readable(m) &&
		m.Attachments == nil && m.Metadata == nil
}
