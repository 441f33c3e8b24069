package storage

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Imports ends the import of a chat. An import begins with NewChat.State. While it lasts, members
// join and leave, watermarks rise, and Append takes messages with Draft.Importing only.
type Imports interface {
	// FinishImport makes a chat live that is being imported. The membership version grows by one,
	// so that processes notice the new state. If the chat is live, nothing changes.
	//
	// NotFound: no such chat. Conflict: it was deleted.
	FinishImport(ctx context.Context, chat tidemark.ChatID, now time.Time) error
}

// MayAppend returns nil if a chat of a state takes a draft. Every backend calls it in the step of
// Append. Its answer comes before that about the key: nothing of a deleted chat is returned.
//
// NotFound: the chat was deleted. Unavailable: it is being imported, and the draft is not of the
// importer. Conflict: the draft is of an importer, and the chat is live.
func MayAppend(state tidemark.ChatState, d *tidemark.Draft) error {
	switch {
	case state == tidemark.ChatDeleted:
		return WasDeleted(d.ChatID)
	case state == tidemark.ChatImporting && !d.Importing:
		return BeingImported(d.ChatID)
	case state != tidemark.ChatImporting && d.Importing:
		return tidemark.Errorf(tidemark.Conflict,
			"the chat %s is not being imported; import it under another id", d.ChatID)
	}
	return nil
}

// Finishes reports whether FinishImport changes a chat of a state.
//
// Conflict: the chat was deleted.
func Finishes(chat tidemark.ChatID, state tidemark.ChatState) (bool, error) {
	if state == tidemark.ChatDeleted {
		return false, tidemark.Errorf(tidemark.Conflict,
			"the chat %s was deleted while it was imported", chat)
	}
	return state == tidemark.ChatImporting, nil
}

// errDeleted is the cause of WasDeleted.
var errDeleted = errors.New("the chat was deleted")

// WasDeleted returns the NotFound of a chat that was deleted.
func WasDeleted(chat tidemark.ChatID) error {
	return tidemark.Wrap(tidemark.NotFound, errDeleted, "the chat "+string(chat)+" was deleted")
}

// IsDeletion reports whether an error says that a chat was deleted.
func IsDeletion(err error) bool { return errors.Is(err, errDeleted) }

// BeingImported returns the Unavailable of a chat that is being imported.
func BeingImported(chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.Unavailable,
		"the chat %s is being imported; try again later", chat)
}

// Deletions deletes chats. What is left of a deleted chat is its id, which is never used again.
//
// From the step of DeleteChat on, Chat returns the chat with tidemark.ChatDeleted, and Rosters a
// roster of the new version without members. UpdateChat, AddMembers, RemoveMember, UpdateMember,
// Append, Sent, Advance and MarkUnread return NotFound (WasDeleted), CreateChat with the id
// Conflict, and FinishImport too. Ranges, Unread, MembersSince and StatesIn return nothing of it,
// and the lists and sums of its former members leave it out. Heads and EachChat go on.
//
// Two things may lag behind. PendingOf, StatesOf and States may have the chat until PurgeChat has
// removed its members. Ranges, Advance and MarkUnread of another process's store may not notice the
// step. They notice it once that store has read the chat since, by any method.
type Deletions interface {
	// DeleteChat deletes a chat, in one step. The state becomes tidemark.ChatDeleted, all messages
	// are below the floor, and all memberships end. Version and MembersVersion grow by one. Name,
	// Metadata, Creation and Policy become empty. The pair of a direct chat may have another one. A
	// repeated call changes nothing, and returns the same.
	//
	// NotFound: no such chat. Conflict: it is on hold.
	DeleteChat(ctx context.Context, chat tidemark.ChatID, now time.Time) (Deleted, error)

	// PurgeChat removes some of what is left of a deleted chat: its messages, and what is stored
	// beside them. With members, it also removes the members, their states and pending rows. As
	// long as the members are there, a later call also finds what other processes wrote meanwhile
	// from what they had in memory.
	//
	// A call removes at most limit of each kind, which is from 1 to MaxExpired. removed is how much
	// it removed in all. If done is true, nothing is left. After an error, or a crash, the next
	// call continues.
	//
	// NotFound: no such chat. Conflict: it is not deleted. Invalid: limit.
	PurgeChat(ctx context.Context, chat tidemark.ChatID, limit int, members bool) (removed int,
		done bool, err error)
}

// Deleted is the result of DeleteChat.
type Deleted struct {
	// Head is the last sequence of the chat, and Version its membership version after the step.
	Head    tidemark.Sequence
	Version uint64
	// At is when the chat was deleted.
	At time.Time
}

// DeletedOf returns the result of DeleteChat for a chat that is deleted.
func DeletedOf(c *tidemark.Chat) Deleted {
	return Deleted{Head: c.Head, Version: c.MembersVersion, At: c.DeletedAt}
}

// Delete returns a chat after the step of DeleteChat. now is in the precision of the store.
func Delete(c tidemark.Chat, now time.Time) tidemark.Chat {
	c.State, c.DeletedAt = tidemark.ChatDeleted, now
	//rule:deleted_is_gone.all-is-below-the-floor
	c.Floor = c.Head + 1
	c.Version++
	c.MembersVersion++
	c.MemberCount = 0
	c.Name, c.Metadata, c.Creation, c.Policy = "", nil, "", tidemark.Policy{}
	return c
}

// CheckPurge returns an error if PurgeChat must not be called so, or not for a chat of a state.
func CheckPurge(chat tidemark.ChatID, state tidemark.ChatState, limit int) error {
	if limit < 1 || limit > MaxExpired {
		return tidemark.Errorf(tidemark.Invalid,
			"%d messages cannot be removed in one step, only 1 to %d", limit, MaxExpired)
	}
	//rule:deleted_is_gone.purge-only-what-is-deleted
	if state != tidemark.ChatDeleted {
		return tidemark.Errorf(tidemark.Conflict, "the chat %s is not deleted", chat)
	}
	return nil
}
