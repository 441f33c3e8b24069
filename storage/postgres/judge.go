package postgres

import (
	"context"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// judgeDrafts returns what appendDrafts must know of each draft, from one snapshot: the key of its
// chat, the version of the chat's members, and the seat of the sender in this version. It also
// returns the message that has the draft's idempotency key, and the state of the chat. A look-up is
// a sub-select by the whole key, so the planner has no choice.
//
//rule:nothing_outside_membership.judge-statement
const judgeDrafts = `SELECT coalesce(c.key, 0), coalesce(c.members_version, 0),
		coalesce((SELECT CASE WHEN NOT m.current THEN -2 WHEN m.role = 'reader' THEN -1
				ELSE m.seat END
			FROM members AS m WHERE m.chat = c.key AND m.user_id = d.sender_id LIMIT 1), -2),
		coalesce((SELECT m.sequence FROM messages AS m
			WHERE m.client_message_id = d.client_message_id AND m.sender_id = d.sender_id
				AND m.chat = c.key LIMIT 1), 0),
		coalesce(c.state, '')
	FROM unnest($1::text[], $2::text[], $3::text[])
		WITH ORDINALITY AS d (chat_id, sender_id, client_message_id, no)
	LEFT JOIN LATERAL (SELECT key, members_version, state FROM chats
		WHERE id = d.chat_id LIMIT 1) AS c ON true
	ORDER BY d.no`

// The seats of users who may not send. Others have seat 1 or 2 in a direct chat, or 0. A member of
// a closed chat is shut out of what storage.MayWrite refuses.
const (
	reader   = -1
	stranger = -2
	shutOut  = -3
)

// A verdict is what is known of a draft.
type verdict struct {
	// chat is the key of the draft's chat, and version that of its members. Both are 0 if there is
	// no such chat.
	chat, version int64
	// seat is that of the sender in this version.
	seat int64
	// known is the sequence of the message that already has the key, or 0. If the verdict comes
	// from the cache, known is 0, and appendDrafts looks the key up.
	known int64
	// sequence is that of the stored message. It is 0 if the draft is not stored.
	sequence int64
	// rows is chats.rows_version in the step that stored the draft.
	rows int64
	// refusal is why the state of the chat refuses the draft, or nil. A state changes with the
	// version.
	refusal error
	// held is why a draft of an importer is refused that comes behind a refused one, or nil.
	held error
}

// accepted reports whether the draft becomes a message, unless the verdict is outdated.
func (v *verdict) accepted() bool {
	return v.chat != 0 && v.known == 0 && v.seat >= 0 && v.refusal == nil && v.held == nil
}

// unsent returns why the sender of a draft may not send it.
func (v *verdict) unsent(d *tidemark.Draft) error {
	if v.seat == shutOut {
		return storage.Closed()
	}
	return storage.NotSender(d.ChatID, d.SenderID, v.seat == reader)
}

// hold holds back the drafts of importers that come behind one whose sender may not send, or behind
// one that was refused. If the members of their chat change before the drafts are stored, all of
// them are judged again.
func (a *appending) hold(todo []int, verdicts []verdict) {
	behind := maps.Clone(a.behind)
	for n, i := range todo {
		d, v := &a.drafts[i], &verdicts[n]
		if !d.Importing || v.chat == 0 || v.refusal != nil || v.known > 0 {
			continue
		}
		//rule:import_once.nothing-behind-a-refusal-in-postgres
		if v.held = behind.Judge(d, nil); v.held == nil && v.seat < 0 {
			_ = behind.Judge(d, v.unsent(d))
		}
	}
}

// judge returns a verdict on each draft. It asks the database about the drafts of a chat if one of
// their senders is not cached. So the verdicts on drafts of a chat are of one version.
func (a *appending) judge(ctx context.Context, c *conn, todo []int) ([]verdict, error) {
	verdicts := make([]verdict, len(todo))
	var unknown map[tidemark.ChatID]bool
	for n, i := range todo {
		d := &a.drafts[i]
		v, known := a.senders.verdict(d)
		if verdicts[n] = v; !known {
			if unknown == nil {
				unknown = make(map[tidemark.ChatID]bool)
			}
			unknown[d.ChatID] = true
		}
	}
	if unknown == nil {
		return verdicts, nil
	}
	var asked []int // indexes of verdicts
	for n, i := range todo {
		if unknown[a.drafts[i].ChatID] {
			asked = append(asked, n)
		}
	}
	return verdicts, a.ask(ctx, c, todo, verdicts, asked)
}

// ask sets some of the verdicts on drafts by asking the database. asked are their indexes.
func (a *appending) ask(
	ctx context.Context, c *conn, todo []int, verdicts []verdict, asked []int,
) error {
	var text [3][]string
	for _, n := range asked {
		d := &a.drafts[todo[n]]
		text[0] = append(text[0], string(d.ChatID))
		text[1] = append(text[1], string(d.SenderID))
		text[2] = append(text[2], d.ClientMessageID)
	}
	row := 0
	return c.each(ctx, judgeDrafts, []any{text[0], text[1], text[2]}, func(rows pgx.Rows) error {
		v := &verdicts[asked[row]]
		d := &a.drafts[todo[asked[row]]]
		row++
		var state tidemark.ChatState
		err := rows.Scan(&v.chat, &v.version, &v.seat, &v.known, &state)
		if err == nil {
			//rule:importing_is_closed.ask-the-state-first-in-postgres
			v.refusal = storage.MayAppend(state, d)
			//rule:blocked_is_closed.refuse-after-the-key-in-postgres
			if v.seat >= 0 && storage.MayWrite(state, d) != nil {
				v.seat = shutOut
			}
			//rule:erasure_is_announced.sender-is-no-member-in-postgres
			if d.ByServer {
				v.seat = 0
				return nil
			}
			a.senders.learn(d, v, state)
		}
		return err
	})
}

// maxSenders is the number of senders that a store caches: at most 20 MB with ids of usual length.
const maxSenders = 50_000

// senders caches who may send. Only the goroutine of Store.appends uses it.
//
// The users who may send change only with the version of a chat's members, and appendDrafts stores
// nothing in a chat that has another version. So a chat that is outdated here costs a statement,
// and nothing else. Nobody is cached who may not send, and no chat that is not live. A store never
// continues in another database (see package place), where a version could have other members.
type senders struct {
	chats map[tidemark.ChatID]*cachedChat
	users int // of all chats
}

// A cachedChat has some of the users who may send in a version of a chat's members, and their
// seats.
type cachedChat struct {
	key, version int64
	seats        map[tidemark.UserID]int64
}

// verdict returns the verdict on a draft if its sender is cached. Its key may be known. There is no
// verdict on drafts of an importer. Only live chats are cached, so the database decides on those.
func (s *senders) verdict(d *tidemark.Draft) (v verdict, known bool) {
	//rule:importing_is_closed.ask-about-importers-in-postgres
	if c := s.chats[d.ChatID]; c != nil && !d.Importing && !d.ByServer {
		v.chat, v.version = c.key, c.version
		v.seat, known = c.seats[d.SenderID]
	}
	return v, known
}

// learn caches what the database has returned for a draft's chat, if its state is live, and sender.
func (s *senders) learn(d *tidemark.Draft, v *verdict, state tidemark.ChatState) {
	if c := s.chats[d.ChatID]; c != nil && c.version != v.version {
		s.forget(d.ChatID)
	}
	//rule:nothing_outside_membership.cache-only-who-may-send
	if v.chat == 0 || v.seat < 0 || state != tidemark.ChatLive {
		return
	}
	//rule:bounded_use.limit-cached-senders
	if s.users >= maxSenders {
		*s = senders{}
	}
	if s.chats == nil {
		s.chats = make(map[tidemark.ChatID]*cachedChat)
	}
	c := s.chats[d.ChatID]
	if c == nil {
		c = &cachedChat{key: v.chat, version: v.version, seats: make(map[tidemark.UserID]int64, 1)}
		s.chats[d.ChatID] = c
	}
	if _, known := c.seats[d.SenderID]; !known {
		c.seats[d.SenderID] = v.seat
		s.users++
	}
}

// forget removes a chat, because its version is outdated or a key of its drafts is known.
func (s *senders) forget(chat tidemark.ChatID) {
	if c := s.chats[chat]; c != nil {
		s.users -= len(c.seats)
		delete(s.chats, chat)
	}
}
