package dynamodb

import (
	"context"
	"crypto/rand"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// UpdateMember implements storage.Members.
func (s *Store) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	c, ctx, leave, err := s.enter(ctx, "update_member", 0)
	if err != nil {
		return storage.UpdatedMember{}, err
	}
	defer leave()
	done, err := s.appends.Turn(ctx, chat)
	if err != nil {
		return storage.UpdatedMember{}, call.Public(err)
	}
	defer done()
	u := &updating{caller: c, chat: chat, user: user, change: change, token: rand.Text()}
	for again := 0; ; again++ {
		updated, err := u.attempt(ctx)
		if err != nil {
			return storage.UpdatedMember{}, call.Public(err)
		}
		if updated != nil {
			return *updated, nil
		}
		if err := call.Yield(ctx, again); err != nil {
			return storage.UpdatedMember{}, call.Public(err)
		}
	}
}

// An updating executes UpdateMember.
type updating struct {
	caller
	chat   tidemark.ChatID
	user   tidemark.UserID
	change storage.MemberChange
	token  string
	// doubtful is the result of an attempt whose outcome is unknown.
	doubtful *storage.UpdatedMember
}

// attempt changes the member in one transaction. It returns nil if another write was in the way.
func (u *updating) attempt(ctx context.Context) (*storage.UpdatedMember, error) {
	now, err := u.Look(ctx, u.chat, []tidemark.UserID{u.user})
	if err != nil {
		return nil, err
	}
	if now.Changed != "" {
		return nil, u.settle(ctx, now.Counter)
	}
	row := now.Rows[u.user]
	switch {
	case u.doubtful != nil && row.ChangedBy == u.token:
		return u.doubtful, nil
	case !row.Intervals.Open():
		return nil, record.NotMember(u.chat, u.user)
	case now.Type == tidemark.Direct:
		return nil, tidemark.Errorf(tidemark.Denied, "the chat %s is direct; its members are fixed",
			u.chat)
	}
	updated := &storage.UpdatedMember{Version: now.MembersVersion}
	after, changed := u.change.Apply(row.Member)
	updated.Member = after
	if !changed {
		return updated, nil
	}
	updated.Version++
	actions := []types.TransactWriteItem{
		u.Action(counted(now.Counter, 0)), u.put(now, updated.Member, u.token),
	}
	if u.change.StopsOwning(row.Member) {
		roster, err := u.RosterAt(ctx, now.Counter)
		if err != nil || roster.Version != now.MembersVersion {
			return nil, err
		}
		heir, err := storage.Heir(roster, u.user)
		if err != nil {
			return nil, err
		}
		//rule:owner_always.succeed-at-demotion-in-dynamodb
		if heir != nil {
			updated.Successor = heir.UserID
			actions = append(actions, u.promote(now, *heir, u.token))
		}
	}
	refused, doubtful, err := u.Transact(ctx, actions)
	if err != nil {
		return nil, err
	}
	if refused == nil {
		return updated, nil
	}
	if doubtful {
		u.doubtful = updated
	}
	return nil, nil
}

// put writes a membership of the next version.
func (c caller) put(
	now record.Seen, m tidemark.Member, token string,
) types.TransactWriteItem {
	next := record.Membership{Member: m, Version: now.MembersVersion + 1, ChangedBy: token}
	return types.TransactWriteItem{
		Put: &types.Put{TableName: c.Table(record.Memberships), Item: next.Item(now.ID)},
	}
}

// promote makes a member an owner.
func (c caller) promote(
	now record.Seen, heir tidemark.Member, token string,
) types.TransactWriteItem {
	heir.Role = tidemark.Owner
	return c.put(now, heir, token)
}
