package storage

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Imports ends the import of a chat. An import begins with NewChat.State. While it lasts, members
// join and leave, watermarks rise, and Append takes messages with Draft.Importing only.
type Imports interface {
	// FinishImport makes a chat live that is being imported. The membership version grows by one,
	// so that no process goes by the state of before. If the chat is live, nothing changes.
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

// WasDeleted returns the NotFound of a chat that was deleted.
func WasDeleted(chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotFound, "the chat %s was deleted", chat)
}

// BeingImported returns the Unavailable of a chat that is being imported.
func BeingImported(chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.Unavailable,
		"the chat %s is being imported; try again later", chat)
}
