package storage

import (
	"context"

	"github.com/tidemark-im/tidemark"
)

// Receipts stores who hides from others what they have read. A user has a setting for all chats,
// and may have one for a single chat, which comes before it. Without any, they show it. Before both
// comes the policy of the chat, if it has one: Policy.Receipts, which UpdateChat changes.
//
// A setting, or a policy, decides about the raises of Read that follow it. A raise that begins
// after SetReceipts or UpdateChat returned never shows what is hidden then, by whichever process it
// is written. What was hidden stays hidden until the user reads further while it is shown. Settings
// and policies may have no effect for users who were never a member of a chat.
type Receipts interface {
	// SetReceipts stores a user's setting, for one chat or, if chat is "", for all chats. It may be
	// repeated. It does not check the membership, and the setting for a chat stays when the user
	// leaves it. After an error, the setting may hold in some chats: the caller repeats the call.
	//
	// NotFound: no such chat, or it was deleted. Invalid: the setting is ReceiptsDefault for all
	// chats.
	SetReceipts(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
		setting tidemark.ReceiptsSetting) error

	// ReceiptsOf returns a user's setting for a chat, and that for all chats. The setting for a
	// chat that has none of its own, that does not exist, or that is "", is ReceiptsDefault. It
	// sees every SetReceipts that returned before the call.
	ReceiptsOf(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID) (
		inChat, inAll tidemark.ReceiptsSetting, err error)
}

// CheckReceipts returns an Invalid error if SetReceipts must not be called so. Every backend calls
// it at the start of SetReceipts.
func CheckReceipts(chat tidemark.ChatID, setting tidemark.ReceiptsSetting) error {
	if !setting.Valid() || chat == "" && setting == tidemark.ReceiptsDefault {
		return tidemark.BadParam(tidemark.Invalid, "read_receipts", "cannot be %q here", setting)
	}
	return nil
}
