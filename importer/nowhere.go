package importer

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// nowhere is the store of a dry run. It has no chats, and knows only the head of the last one.
type nowhere struct{ head tidemark.Sequence }

var _ Store = (*nowhere)(nil)

// Chat returns NotFound.
func (*nowhere) Chat(_ context.Context, chat tidemark.ChatID) (tidemark.Chat, error) {
	return tidemark.Chat{}, tidemark.Errorf(tidemark.NotFound, "there is no chat %s", chat)
}

// CreateChat returns the chat, without its members.
func (n *nowhere) CreateChat(
	_ context.Context, new storage.NewChat,
) (tidemark.Chat, bool, error) {
	n.head = 0
	return tidemark.Chat{
		ID: new.ID, Type: new.Type, History: new.History, Creation: new.Creation,
		State: new.State, Floor: 1,
	}, true, nil
}

// AddMembers returns all users as new ones.
func (n *nowhere) AddMembers(
	_ context.Context, _ tidemark.ChatID, users []tidemark.UserID, _ tidemark.Role, _ time.Time,
) (storage.Added, error) {
	return storage.Added{Head: n.head, New: users}, nil
}

// RemoveMember does nothing.
func (n *nowhere) RemoveMember(
	context.Context, tidemark.ChatID, tidemark.UserID, time.Time,
) (storage.Removed, error) {
	return storage.Removed{Head: n.head}, nil
}

// UpdateMember does nothing.
func (*nowhere) UpdateMember(
	context.Context, tidemark.ChatID, tidemark.UserID, storage.MemberChange,
) (storage.UpdatedMember, error) {
	return storage.UpdatedMember{}, nil
}

// Rosters returns none. A dry run asks for none, since it continues no chat.
func (*nowhere) Rosters(_ context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	return make([]*tidemark.Roster, len(chats)), nil
}

// Append counts the drafts.
func (n *nowhere) Append(
	_ context.Context, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
	appended := make([]storage.Appended, len(drafts))
	for i := range drafts {
		n.head++
		appended[i].Message = drafts[i].Message(n.head, 1)
	}
	return appended, nil
}

// Ranges returns no messages.
func (*nowhere) Ranges(
	_ context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	return make([][]tidemark.Message, len(ranges)), nil
}

// Advance does nothing.
func (*nowhere) Advance(
	_ context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	return make([]storage.Advanced, len(advances)), nil
}

// Backlogs returns none.
func (*nowhere) Backlogs(
	context.Context, storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	return nil, false, nil
}

// Settle does nothing.
func (*nowhere) Settle(_ context.Context, items []storage.Settlement) ([]bool, error) {
	return make([]bool, len(items)), nil
}

// FinishImport does nothing.
func (*nowhere) FinishImport(context.Context, tidemark.ChatID, time.Time) error { return nil }
