package simulationtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// gatedStore is the store for one node: every call waits at the gate.
type gatedStore struct {
	n *node
}

// through passes a call through the gate.
func through[A any](
	ctx context.Context, n *node, kind, args string, call func(ctx context.Context) (A, error),
) (A, error) {
	var a A
	w := n.simulation
	err := w.gate.pass(ctx, n, newCall(ctx, n, kind, args), func(verdict) (err error) {
		a, err = call(context.WithoutCancel(ctx))
		return err
	})
	if err != nil {
		var none A
		return none, err
	}
	return a, nil
}

// opKey is the context key of the label of the client's act to which a call belongs.
type opKey struct{}

func newCall(ctx context.Context, n *node, kind, args string) call {
	label, _ := ctx.Value(opKey{}).(string)
	return call{kind: kind, what: string(n.id) + " " + kind + " " + args + label}
}

type pair[A, B any] struct {
	a A
	b B
}

func join[T ~string](ids []T) string {
	if len(ids) > 8 {
		return fmt.Sprintf("%s…(%d)", ids[0], len(ids))
	}
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(string(id))
		b.WriteByte(' ')
	}
	return b.String()
}

func (s gatedStore) CreateChat(
	ctx context.Context, new storage.NewChat,
) (tidemark.Chat, bool, error) {
	p, err := through(ctx, s.n, "CreateChat",
		string(new.ID), func(ctx context.Context) (p pair[tidemark.Chat, bool], err error) {
			p.a, p.b, err = s.n.simulation.raw.CreateChat(ctx, new)
			if err == nil && p.b {
				s.n.simulation.truth.created(new)
			}
			return p, err
		})
	return p.a, p.b, err
}

func (s gatedStore) Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error) {
	return through(ctx, s.n, "Chat", string(chat),
		func(ctx context.Context) (tidemark.Chat, error) {
			return s.n.simulation.raw.Chat(ctx, chat)
		})
}

func (s gatedStore) UpdateChat(
	ctx context.Context, chat tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	return through(ctx, s.n, "UpdateChat",
		string(chat), func(ctx context.Context) (tidemark.Chat, error) {
			return s.n.simulation.raw.UpdateChat(ctx, chat, change)
		})
}

func (s gatedStore) ChatsOf(
	ctx context.Context, user tidemark.UserID, page storage.ChatsPage,
) ([]storage.ChatListItem, bool, error) {
	p, err := through(ctx, s.n, "ChatsOf",
		string(user), func(ctx context.Context) (p pair[[]storage.ChatListItem, bool], err error) {
			p.a, p.b, err = s.n.simulation.raw.ChatsOf(ctx, user, page)
			return p, err
		})
	return p.a, p.b, err
}

func (s gatedStore) Heads(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Sequence, error) {
	return through(ctx, s.n, "Heads", join(chats),
		func(ctx context.Context) ([]tidemark.Sequence,
			error) {
			return s.n.simulation.raw.Heads(ctx, chats)
		})
}

func (s gatedStore) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, now time.Time,
) (storage.Added, error) {
	return through(ctx, s.n, "AddMembers",
		string(chat)+" "+join(users), func(ctx context.Context) (storage.Added, error) {
			added, err := s.n.simulation.raw.AddMembers(ctx, chat, users, role, now)
			if err == nil {
				s.n.simulation.truth.added(chat, added)
			}
			return added, err
		})
}

func (s gatedStore) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	return through(ctx, s.n, "RemoveMember",
		string(chat)+" "+string(user), func(ctx context.Context) (storage.Removed, error) {
			removed, err := s.n.simulation.raw.RemoveMember(ctx, chat, user, now)
			if err == nil {
				s.n.simulation.truth.removed(chat, user, removed.Head)
			}
			return removed, err
		})
}

func (s gatedStore) DeleteChat(
	ctx context.Context, chat tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	return through(ctx, s.n, "DeleteChat", string(chat),
		func(ctx context.Context) (storage.Deleted, error) {
			tr := s.n.simulation.truth
			before := tr.pictures()
			deleted, err := s.n.simulation.raw.DeleteChat(ctx, chat, now)
			if err == nil {
				tr.vanished(chat, before)
			}
			return deleted, err
		})
}

func (s gatedStore) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	return through(ctx, s.n, "UpdateMember", string(chat)+" "+string(user)+" "+string(change.Role),
		func(ctx context.Context) (storage.UpdatedMember, error) {
			return s.n.simulation.raw.UpdateMember(ctx, chat, user, change)
		})
}

func (s gatedStore) Rosters(
	ctx context.Context, chats []tidemark.ChatID,
) ([]*tidemark.Roster, error) {
	return through(ctx, s.n, "Rosters", join(chats),
		func(ctx context.Context) ([]*tidemark.Roster,
			error) {
			return s.n.simulation.raw.Rosters(ctx, chats)
		})
}

func (s gatedStore) Append(
	ctx context.Context, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
	var args strings.Builder
	for _, d := range drafts {
		fmt.Fprintf(&args, "%s %s %s ", d.ChatID, d.SenderID, d.ClientMessageID)
	}
	return through(ctx, s.n, "Append",
		args.String(), func(ctx context.Context) ([]storage.Appended, error) {
			appended, err := s.n.simulation.raw.Append(ctx, drafts)
			if err == nil {
				s.n.simulation.truth.appended(drafts, appended)
			}
			return appended, err
		})
}

func (s gatedStore) Sent(
	ctx context.Context, key storage.SendKey,
) (storage.Appended, bool, error) {
	p, err := through(ctx, s.n, "Sent", string(key.Chat)+" "+string(key.Sender)+" "+
		key.ClientMessageID,
		func(ctx context.Context) (p pair[storage.Appended, bool], err error) {
			p.a, p.b, err = s.n.simulation.raw.Sent(ctx, key)
			return p, err
		})
	return p.a, p.b, err
}

func (s gatedStore) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	var args strings.Builder
	for _, r := range ranges {
		fmt.Fprintf(&args, "%s>%d ", r.Chat, r.After)
	}
	return through(ctx, s.n, "Ranges", args.String(),
		func(ctx context.Context) ([][]tidemark.Message,
			error) {
			return s.n.simulation.raw.Ranges(ctx, ranges)
		})
}

// Observe takes no time, so no gate is before it.
func (s gatedStore) Observe(m *tidemark.Message) { s.n.simulation.truth.observed(m) }

func (s gatedStore) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	var args strings.Builder
	for _, a := range advances {
		fmt.Fprintf(&args, "%s %s %d-%d r%d ", a.User, a.Chat, a.AckedFrom, a.Acked, a.Read)
	}
	return through(ctx, s.n, "Advance",
		args.String(), func(ctx context.Context) ([]storage.Advanced, error) {
			advanced, err := s.n.simulation.raw.Advance(ctx, advances)
			if err == nil {
				s.n.simulation.truth.advanced(advances)
			}
			return advanced, err
		})
}

func (s gatedStore) States(
	ctx context.Context, keys []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	args := ""
	for _, k := range keys[:min(len(keys), 8)] {
		args += string(k.User) + "/" + string(k.Chat) + " "
	}
	return through(ctx, s.n, "States", args,
		func(ctx context.Context) ([]tidemark.DeliveryState,
			error) {
			return s.n.simulation.raw.States(ctx, keys)
		})
}

func (s gatedStore) StatesOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	p, err := through(ctx, s.n, "StatesOf", string(user),
		func(ctx context.Context) (p pair[[]tidemark.DeliveryState, bool], err error) {
			p.a, p.b, err = s.n.simulation.raw.StatesOf(ctx, user, after, limit)
			return p, err
		})
	return p.a, p.b, err
}

func (s gatedStore) StatesIn(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	p, err := through(ctx, s.n, "StatesIn", string(chat),
		func(ctx context.Context) (p pair[[]tidemark.DeliveryState, bool], err error) {
			p.a, p.b, err = s.n.simulation.raw.StatesIn(ctx, chat, after, limit)
			return p, err
		})
	return p.a, p.b, err
}

func (s gatedStore) Summary(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
	author tidemark.UserID,
) (storage.Summary, error) {
	if sequence == 0 && author == "" {
		s.n.simulation.aggregates(s.n, chat)
	}
	return through(ctx, s.n, "Summary",
		string(chat), func(ctx context.Context) (storage.Summary, error) {
			return s.n.simulation.raw.Summary(ctx, chat, sequence, author)
		})
}

func (s gatedStore) Unread(
	ctx context.Context, keys []storage.StateKey,
) ([]storage.Unread, error) {
	return through(ctx, s.n, "Unread", fmt.Sprint(keys),
		func(ctx context.Context) ([]storage.Unread, error) {
			return s.n.simulation.raw.Unread(ctx, keys)
		})
}

func (s gatedStore) Incarnation() tidemark.Incarnation { return s.n.simulation.raw.Incarnation() }

func (s gatedStore) Shared(
	ctx context.Context, claims []storage.Claim,
) ([]tidemark.Sequence, error) {
	return through(ctx, s.n, "Shared", fmt.Sprint(claims),
		func(ctx context.Context) ([]tidemark.Sequence, error) {
			return s.n.simulation.raw.Shared(ctx, claims)
		})
}

func (s gatedStore) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (storage.UnreadTotal, error) {
	return through(ctx, s.n, "UnreadOf", string(user),
		func(ctx context.Context) (storage.UnreadTotal, error) {
			return s.n.simulation.raw.UnreadOf(ctx, user)
		})
}

func (s gatedStore) SetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) error {
	_, err := through(ctx, s.n, "SetReceipts", fmt.Sprint(user, chat, setting),
		func(ctx context.Context) (bool, error) {
			return true, s.n.simulation.raw.SetReceipts(ctx, user, chat, setting)
		})
	return err
}

func (s gatedStore) ReceiptsOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (inChat, inAll tidemark.ReceiptsSetting, err error) {
	type both = pair[tidemark.ReceiptsSetting, tidemark.ReceiptsSetting]
	found, err := through(ctx, s.n, "ReceiptsOf", fmt.Sprint(user, chat),
		func(ctx context.Context) (both, error) {
			inChat, inAll, err := s.n.simulation.raw.ReceiptsOf(ctx, user, chat)
			return both{inChat, inAll}, err
		})
	return found.a, found.b, err
}

func (s gatedStore) MarkUnread(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from tidemark.Sequence,
) (tidemark.DeliveryState, error) {
	return through(ctx, s.n, "MarkUnread", fmt.Sprint(user, chat, from),
		func(ctx context.Context) (tidemark.DeliveryState, error) {
			return s.n.simulation.raw.MarkUnread(ctx, user, chat, from)
		})
}

func (s gatedStore) Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error) {
	var args strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&args, "%s %s %d ", r.UserID, r.ChatID, r.FirstUndelivered)
	}
	return through(ctx, s.n, "Mark", args.String(),
		func(ctx context.Context) ([]bool, error) { return s.n.simulation.raw.Mark(ctx, rows) })
}

func (s gatedStore) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	var args strings.Builder
	for _, c := range items {
		fmt.Fprintf(&args, "%s %s %d ", c.User, c.Chat, c.Through)
	}
	return through(ctx, s.n, "Clear", args.String(),
		func(ctx context.Context) ([]bool, error) { return s.n.simulation.raw.Clear(ctx, items) })
}

func (s gatedStore) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	p, err := through(ctx, s.n, "PendingOf",
		string(user), func(ctx context.Context) (p pair[[]storage.PendingRow, bool], err error) {
			p.a, p.b, err = s.n.simulation.raw.PendingOf(ctx, user, after, limit)
			return p, err
		})
	return p.a, p.b, err
}

// behind has the three results of Behind.
type behind struct {
	lags []storage.Lag
	next tidemark.ChatID
	more bool
}

func (s gatedStore) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	b, err := through(ctx, s.n, "Behind",
		string(user), func(ctx context.Context) (b behind, err error) {
			b.lags, b.next, b.more, err = s.n.simulation.raw.Behind(ctx, user, q)
			return b, err
		})
	return b.lags, b.next, b.more, err
}

func (s gatedStore) Reactions(
	ctx context.Context, q storage.ReactionsQuery,
) ([]storage.ReactionCount, tidemark.Sequence, error) {
	type result = pair[[]storage.ReactionCount, tidemark.Sequence]
	p, err := through(ctx, s.n, "Reactions", fmt.Sprint(q.Chat, " ", q.From),
		func(ctx context.Context) (p result, err error) {
			p.a, p.b, err = s.n.simulation.raw.Reactions(ctx, q)
			return p, err
		})
	return p.a, p.b, err
}

func (s gatedStore) Reactors(
	ctx context.Context, chat tidemark.ChatID, target, after tidemark.Sequence, limit int,
) ([]storage.Reaction, bool, error) {
	p, err := through(ctx, s.n, "Reactors", fmt.Sprint(chat, " ", target),
		func(ctx context.Context) (p pair[[]storage.Reaction, bool], err error) {
			p.a, p.b, err = s.n.simulation.raw.Reactors(ctx, chat, target, after, limit)
			return p, err
		})
	return p.a, p.b, err
}

func (s gatedStore) Pins(ctx context.Context, chat tidemark.ChatID) ([]storage.Pin, error) {
	return through(ctx, s.n, "Pins", string(chat),
		func(ctx context.Context) ([]storage.Pin, error) {
			return s.n.simulation.raw.Pins(ctx, chat)
		})
}

func (s gatedStore) Expire(
	ctx context.Context, chat tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	return through(ctx, s.n, "Expire", string(chat),
		func(ctx context.Context) (storage.Expired, error) {
			tr := s.n.simulation.truth
			pictures := tr.pictures()
			done, err := s.n.simulation.raw.Expire(ctx, chat, before, limit)
			if err == nil {
				tr.expired(chat, before, limit, done, pictures)
			}
			return done, err
		})
}

func (s gatedStore) PurgeChat(
	ctx context.Context, chat tidemark.ChatID, limit int, members bool,
) (done bool, err error) {
	return through(ctx, s.n, "PurgeChat", string(chat),
		func(ctx context.Context) (done bool, err error) {
			tr := s.n.simulation.truth
			pictures := tr.pictures()
			_, done, err = s.n.simulation.raw.PurgeChat(ctx, chat, limit, members)
			if err == nil {
				tr.purged(chat, members, pictures)
			}
			return done, err
		})
}
