package storagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// callOne makes one random call.
func (c *client) callOne() error {
	chat, who := c.rooms[c.random.IntN(len(c.rooms))], c.random.IntN(len(c.people))
	switch lot := c.random.IntN(100); {
	case lot < 34:
		return c.send()
	case lot < 52:
		return c.advance()
	case lot < 60:
		return c.mark(chat, who/2, c.sequence(chat)/2+1)
	case lot < 69:
		return c.clear(chat, who/2, c.sequence(chat))
	case lot < 75:
		return c.add(chat, who)
	case lot < 80:
		return c.remove(chat, who)
	case lot < 85:
		return c.readRange(c.span(chat))
	case lot < 88:
		return c.readHeads()
	case lot < 91:
		return c.readRosters()
	case lot < 94:
		return c.readStates(chat, who)
	case lot < 98:
		return c.readPending(who / 2)
	default:
		return c.readBehind(who)
	}
}

// readAll reads everything. Its results restrict the possible orders of all earlier operations.
func (c *client) readAll() error {
	for _, chat := range c.rooms {
		if err := c.readRange(storage.Range{Chat: chat, Limit: 1_000}); err != nil {
			return err
		}
	}
	for who := range c.people {
		for _, read := range []func(int) error{c.readPending, c.readBehind} {
			if err := read(who); err != nil {
				return err
			}
		}
		for _, chat := range c.rooms {
			if err := c.readStates(chat, who); err != nil {
				return err
			}
		}
	}
	if err := c.readHeads(); err != nil {
		return err
	}
	return c.readRosters()
}

// sequence draws a sequence from 1 on. Most are near the head, where the order of operations
// matters.
func (c *client) sequence(chat tidemark.ChatID) tidemark.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := int(c.top[chat])
	if c.random.IntN(4) == 0 {
		return tidemark.Sequence(1 + c.random.IntN(head+1))
	}
	return tidemark.Sequence(max(1, head+2-c.random.IntN(5)))
}

// name returns the short name of a user. A store that lies may return a user whom nobody knows.
func (c *client) name(user tidemark.UserID) string {
	if i := slices.Index(c.people, user); i >= 0 {
		return seatNames[i]
	}
	return fmt.Sprintf("%q", user)
}

// send appends one to three drafts to one or two chats. There are few keys, so many drafts are
// repeated. Some of these have another text.
func (c *client) send() error {
	var drafts []tidemark.Draft
	asked := map[tidemark.ChatID][]sent{}
	for range 1 + c.random.IntN(3) {
		d := c.draft(c.rooms[c.random.IntN(len(c.rooms))], c.people[c.random.IntN(len(c.people))],
			"text")
		d.ClientMessageID = fmt.Sprint("k", c.random.IntN(historyKeys))
		d.CreatedAt = c.now()
		if c.random.IntN(6) == 0 {
			d.Attachments = json.RawMessage(`[{"a":1}]`)
			d.Metadata = json.RawMessage(`{"b":1}`)
		}
		drafts = append(drafts, d)
		asked[d.ChatID] = append(asked[d.ChatID], sent{
			c.name(d.SenderID), d.ClientMessageID, text(d.Content, d.Attachments, d.Metadata),
			c.short(d.MessageID),
		})
	}
	var appended []storage.Appended
	s, err := c.do(true, func(ctx context.Context) (err error) {
		appended, err = c.store.Append(ctx, drafts)
		return err
	})
	if err != nil {
		return err
	}
	answers, stored := map[tidemark.ChatID][]string{}, map[tidemark.ChatID]bool{}
	refused := map[tidemark.ChatID][]bool{}
	for i, a := range appended {
		chat := drafts[i].ChatID
		answers[chat] = append(answers[chat], c.appendedText(a))
		stored[chat] = stored[chat] || a.Err == nil && !a.Duplicate
		//rule:send_idempotent.know-refused-drafts
		refused[chat] = append(refused[chat], tidemark.CodeOf(a.Err) == tidemark.Unavailable)
		if a.Duplicate {
			// The version is that of some moment of the call.
			c.recordRead(s, chat, "version beside a duplicate", fmt.Sprint(a.Version),
				func(r room) string { return fmt.Sprint(r.version) })
		} else if a.Err == nil && a.Version != a.Message.MembersVersion {
			return fmt.Errorf("message %+v was answered with version %d", a.Message, a.Version)
		}
	}
	for chat, drafts := range asked {
		if !s.unknown {
			c.record(operation{
				span: s, client: c.n, chat: chat, what: fmt.Sprint("append ", drafts),
				got: strings.Join(answers[chat], "; "), reads: !stored[chat], writes: true,
				refused: slices.Contains(refused[chat], true),
				apply:   func(r room) (room, string) { return r.append(drafts, refused[chat]) },
			})
			continue
		}
		for _, d := range drafts { // each may have been stored
			c.recordWrite(s, chat, fmt.Sprint("append ", d), "", true,
				func(r room) (room, string) { return r.appendOne(d) })
		}
	}
	return nil
}

func (c *client) appendedText(a storage.Appended) string {
	switch {
	case a.Err != nil:
		return string(tidemark.CodeOf(a.Err))
	case a.Duplicate:
		return c.stored(a.Message) + " again"
	default:
		return c.stored(a.Message)
	}
}

func (c *client) stored(m tidemark.Message) string {
	c.mu.Lock()
	c.top[m.ChatID] = max(c.top[m.ChatID], m.Sequence)
	c.mu.Unlock()
	d := sent{
		c.name(m.SenderID), m.ClientMessageID, text(m.Content, m.Attachments, m.Metadata),
		c.short(m.MessageID),
	}
	return messageText(m.Sequence, d.line(m.MembersVersion))
}

// short removes the prefix of the fixture from an id.
func (c *client) short(id tidemark.MessageID) string {
	return strings.TrimPrefix(string(id), c.prefix+"message-")
}

func text(content string, attachments, metadata json.RawMessage) string {
	return content + string(attachments) + string(metadata)
}

// advance raises the watermarks of one or two users.
func (c *client) advance() error {
	var advances []storage.Advance
	for i, who := range c.random.Perm(len(c.people))[:1+c.random.IntN(2)] {
		a := storage.Advance{User: c.people[who], Chat: c.rooms[(i+who)%len(c.rooms)], Now: c.now()}
		switch one, other := c.sequence(a.Chat), c.sequence(a.Chat); c.random.IntN(4) {
		case 0:
			a.Acked, a.AckedFrom = one, 1+tidemark.Sequence(c.random.IntN(int(one)))
		case 1:
			a.Read, a.ReadWithinAcked = one, true
		case 2:
			a.Acked, a.Read = one, other
		default:
			a.Acked = one
		}
		advances = append(advances, a)
	}
	var advanced []storage.Advanced
	s, err := c.do(true, func(ctx context.Context) (err error) {
		advanced, err = c.store.Advance(ctx, advances)
		return err
	})
	if err != nil {
		return err
	}
	for i, a := range advances {
		got, moved := "", false
		if !s.unknown {
			got, moved = string(tidemark.CodeOf(advanced[i].Err)), advanced[i].Moved
			if got == "" {
				got = advancedText(advanced[i].State, advanced[i].Moved)
				c.observed(s, false, advanced[i].State)
			}
		}
		who := slices.Index(c.people, a.User)
		c.recordWrite(s, a.Chat,
			fmt.Sprintf("advance %s %+v at %v", seatNames[who], a.Raise, a.Now.Sub(at(0))), got,
			moved, func(r room) (room, string) { return r.advance(who, a.Raise, a.Now) })
	}
	return nil
}

func (c *client) mark(chat tidemark.ChatID, who int, first tidemark.Sequence) error {
	got := ""
	s, err := c.do(true, func(ctx context.Context) error {
		written, err := c.store.Mark(ctx, []tidemark.PendingDelivery{
			{UserID: c.people[who], ChatID: chat, FirstUndelivered: first},
		})
		if err == nil {
			got = map[bool]string{true: "written", false: "stands"}[written[0]]
		}
		return err
	})
	if err == nil {
		c.recordWrite(s, chat, fmt.Sprintf("mark %s from %d", seatNames[who], first), got,
			got == "written", func(r room) (room, string) { return r.mark(who, first) })
	}
	return err
}

func (c *client) clear(chat tidemark.ChatID, who int, through tidemark.Sequence) error {
	got := ""
	s, err := c.do(true, func(ctx context.Context) error {
		cleared, err := c.store.Clear(ctx, []storage.Clear{
			{User: c.people[who], Chat: chat, Through: through},
		})
		if err == nil {
			got = map[bool]string{true: "cleared", false: "left"}[cleared[0]]
		}
		return err
	})
	if err == nil {
		c.recordWrite(s, chat, fmt.Sprintf("clear %s through %d", seatNames[who], through), got,
			got == "cleared", func(r room) (room, string) { return r.clear(who, through) })
	}
	return err
}

// add adds one person, or two.
func (c *client) add(chat tidemark.ChatID, who int) error {
	people := []int{who}
	if who+1 < len(c.people) && c.random.IntN(2) == 0 {
		people = append(people, who+1)
	}
	var users []tidemark.UserID
	var names []string
	for _, who := range people {
		users, names = append(users, c.people[who]), append(names, seatNames[who])
	}
	now, got, changed := c.now(), "", false
	var states []tidemark.DeliveryState
	s, err := c.do(true, func(ctx context.Context) error {
		added, err := c.store.AddMembers(ctx, chat, users, tidemark.Ordinary, now)
		if err != nil {
			return err
		}
		var joined []string
		for _, user := range added.New {
			joined = append(joined, c.name(user))
		}
		got, states = addedText(added.Version, added.Head, joined), added.States
		changed = len(joined) > 0
		return nil
	})
	if err != nil {
		return err
	}
	for _, state := range states { // each is the state at some moment of the call
		who := slices.Index(c.people, state.UserID)
		c.observed(s, false, state)
		c.recordRead(s, chat, "state beside the addition of "+seatNames[who], stateText(state),
			func(r room) string { return stateText(r.seats[who].state()) })
	}
	what := fmt.Sprintf("add %s at %v", strings.Join(names, " "), now.Sub(at(0)))
	c.recordWrite(s, chat, what, got, changed,
		func(r room) (room, string) { return r.add(people, now) })
	return nil
}

func (c *client) remove(chat tidemark.ChatID, who int) error {
	got := ""
	s, err := c.do(true, func(ctx context.Context) error {
		removed, err := c.store.RemoveMember(ctx, chat, c.people[who], c.now())
		if tidemark.CodeOf(err) == tidemark.NotMember {
			got, err = string(tidemark.NotMember), nil
		} else if err == nil {
			got = removedText(removed.Version, removed.Head)
		}
		return err
	})
	if err == nil {
		c.recordWrite(s, chat, "remove "+seatNames[who], got, got != string(tidemark.NotMember),
			func(r room) (room, string) { return r.remove(who) })
	}
	return err
}

// span draws a range that is read upwards or downwards.
func (c *client) span(chat tidemark.ChatID) storage.Range {
	r := storage.Range{Chat: chat, After: c.sequence(chat) / 2, Limit: 1 + c.random.IntN(20)}
	if c.random.IntN(2) == 0 {
		r.Before = r.After + c.sequence(chat)
	}
	return r
}

func (c *client) readRange(asked storage.Range) error {
	var got []string
	s, err := c.do(false, func(ctx context.Context) error {
		pages, err := c.store.Ranges(ctx, []storage.Range{asked})
		if err == nil {
			for _, m := range pages[0] {
				got = append(got, c.stored(m))
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("range after %d before %d limit %d", asked.After, asked.Before, asked.Limit)
	c.recordRead(s, asked.Chat, what, strings.Join(got, "; "), func(r room) string {
		from, to := asked.After+1, r.head
		if limit := tidemark.Sequence(asked.Limit); asked.Before == 0 {
			to = min(to, asked.After+limit)
		} else if to = min(to, asked.Before-1); to > limit {
			from = max(from, to-limit+1)
		}
		return r.page(from, to)
	})
	return nil
}

func (c *client) readHeads() error {
	var heads []tidemark.Sequence
	s, err := c.do(false, func(ctx context.Context) (err error) {
		heads, err = c.store.Heads(ctx, c.rooms)
		return err
	})
	if err != nil {
		return err
	}
	for i, chat := range c.rooms {
		c.recordRead(s, chat, "head", fmt.Sprint(heads[i]),
			func(r room) string { return fmt.Sprint(r.head) })
		var info tidemark.Chat
		s, err := c.do(false, func(ctx context.Context) (err error) {
			info, err = c.store.Chat(ctx, chat)
			return err
		})
		if err != nil {
			return err
		}
		c.recordRead(s, chat, "chat", infoText(info), room.info)
	}
	return nil
}

func (c *client) readRosters() error {
	var rosters []*tidemark.Roster
	s, err := c.do(false, func(ctx context.Context) (err error) {
		rosters, err = c.store.Rosters(ctx, c.rooms)
		return err
	})
	if err != nil {
		return err
	}
	for i, chat := range c.rooms {
		var members []string
		for _, m := range rosters[i].Members {
			members = append(members, c.name(m.UserID)+" "+m.Intervals.Text())
		}
		c.recordRead(s, chat, "roster", rosterText(rosters[i].Version, members), room.members)
	}
	return nil
}

// readStates is an operation of the history only if there is one store. Other stores may return a
// watermark later.
func (c *client) readStates(chat tidemark.ChatID, who int) error {
	var states []tidemark.DeliveryState
	s, err := c.do(false, func(ctx context.Context) (err error) {
		states, err = c.store.States(ctx, []storage.StateKey{{User: c.people[who], Chat: chat}})
		return err
	})
	if err != nil {
		return err
	}
	c.observed(s, true, states[0])
	if len(c.stores) == 1 {
		c.recordRead(s, chat, "state of "+seatNames[who], stateText(states[0]),
			func(r room) string { return stateText(r.seats[who].state()) })
	}
	return nil
}

func (c *client) readPending(who int) error {
	var rows []storage.PendingRow
	s, err := c.do(false, func(ctx context.Context) (err error) {
		rows, _, err = c.store.PendingOf(ctx, c.people[who], "", 10)
		return err
	})
	if err != nil {
		return err
	}
	for _, chat := range c.rooms {
		got := "none"
		for _, row := range rows {
			if row.ChatID == chat {
				got = pendingText(row.FirstUndelivered, row.Acked)
			}
		}
		c.recordRead(s, chat, "pending of "+seatNames[who], got,
			func(r room) string { return r.pending(who) })
	}
	return nil
}

// readBehind ignores the watermarks, because they may be too low.
func (c *client) readBehind(who int) error {
	var lags []storage.Lag
	s, err := c.do(false, func(ctx context.Context) (err error) {
		lags, _, _, err = c.store.Behind(ctx, c.people[who], storage.BehindQuery{Limit: 10})
		return err
	})
	if err != nil {
		return err
	}
	for _, chat := range c.rooms {
		got := "no"
		for _, lag := range lags {
			if lag.Chat == chat {
				got = fmt.Sprintf("head %d", lag.Head)
			}
		}
		c.recordRead(s, chat, "is "+seatNames[who]+" behind", got,
			func(r room) string { return r.behind(who) })
	}
	return nil
}
