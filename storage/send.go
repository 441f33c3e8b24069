package storage

import (
	"context"

	"github.com/tidemark-im/tidemark"
)

// Appended is the result of Append for one draft.
type Appended struct {
	// Message is the stored message. For a duplicate, it is the message of the first send.
	Message   tidemark.Message
	Duplicate bool
	// Version is the chat's membership version in this step. For a duplicate, it is not older than
	// the call.
	Version uint64
	// RowsVersion is that of the chat's pending rows in this step. It grows with each Clear that
	// removes a row of the chat, and may grow at other times. So a row that stood after a step, and
	// was not removed with its member, still stands in a later step of the same RowsVersion. It is
	// comparable within a process only. It is 0 for a duplicate, and in a store that has none.
	RowsVersion uint64
	// Err is why the draft was not stored (see Append). The other fields are empty then.
	Err error
}

// HeldBack has why drafts of an importer are refused in a call of Append because of an earlier one:
// by chat, the first refusal. Its zero value has none. It is not safe for concurrent use.
type HeldBack map[tidemark.ChatID]error

// Judge returns why a draft with a key that is not known must not be stored: an earlier draft of
// its chat was refused, or else err. It notes err for the later ones. The drafts come in order.
// Only those with Draft.Importing count.
func (b *HeldBack) Judge(d *tidemark.Draft, err error) error {
	if !d.Importing {
		return err
	}
	//rule:import_once.nothing-behind-a-refusal
	if first := (*b)[d.ChatID]; first != nil {
		return first
	}
	if err != nil {
		if *b == nil {
			*b = HeldBack{}
		}
		(*b)[d.ChatID] = tidemark.Wrap(tidemark.CodeOf(err), err,
			"an earlier message was refused: "+tidemark.DetailOf(err))
	}
	return err
}

// SendKey is the idempotency key of a message.
type SendKey struct {
	Chat            tidemark.ChatID
	Sender          tidemark.UserID
	ClientMessageID string
}

// SendKeyOf returns the key of a draft.
func SendKeyOf(d *tidemark.Draft) SendKey {
	return SendKey{d.ChatID, d.SenderID, d.ClientMessageID}
}

// Appender is the part of Messages that stores messages.
type Appender interface {
	// Append is Messages.Append.
	Append(ctx context.Context, drafts []tidemark.Draft) ([]Appended, error)
}

// AppendOne calls Append with one draft. Its error is that of the call or of the draft.
func AppendOne(ctx context.Context, m Appender, draft tidemark.Draft) (Appended, error) {
	appended, err := m.Append(ctx, []tidemark.Draft{draft})
	if err == nil {
		err = appended[0].Err
	}
	if err != nil {
		return Appended{}, err
	}
	return appended[0], nil
}
