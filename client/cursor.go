package client

import (
	"context"

	"github.com/tidemark-im/tidemark"
)

// Cursor says how far a chat was handled: everything up to Sequence was, in the life of the
// server's data that Incarnation names.
type Cursor struct {
	Sequence    tidemark.Sequence
	Incarnation tidemark.Incarnation
}

// CursorStore keeps the cursors of one user and device. With it, a new process goes on exactly
// after what was handled, even if an acknowledgement was lost, or another device of the user has
// acknowledged more. Its methods are called from several goroutines.
type CursorStore interface {
	// Load returns the cursors of all chats. It is called once at the start of Run. A chat that it
	// does not name begins after what the user has acknowledged, on any device. To handle all of a
	// chat, name it with the zero Cursor.
	Load(ctx context.Context) (map[tidemark.ChatID]Cursor, error)
	// Save stores the cursor of a chat, durably before it returns. An error is repeated after a
	// pause. Calls for one chat come one after the other.
	//
	// The sequence grows, with one exception: the server's data were restored from a backup, which
	// lacks something that was handled. Then Save gets a lower sequence. A store that also keeps
	// messages must drop those of the chat above it, in the same step: the server gives out their
	// sequences again.
	Save(ctx context.Context, chat tidemark.ChatID, cursor Cursor) error
}
