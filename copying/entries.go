package copying

import (
	"bytes"
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// kinds are the kinds of entries, in the order in which they are compared.
var kinds = []storage.EntryKind{
	storage.EntryBlock, storage.EntryReceipts, storage.EntryBacklog, storage.EntryDocument,
	storage.EntryAudit,
}

// entries calls do for pages of the entries of a kind, without those of the copy itself.
func entries(
	ctx context.Context, s storage.CopySource, kind storage.EntryKind,
	do func([]storage.Entry) error,
) error {
	limit := entriesAtOnce
	if kind == storage.EntryDocument {
		limit = documentsAtOnce
	}
	for after := ""; ; {
		found, next, err := s.Entries(ctx, kind, after, limit)
		if err != nil {
			return err
		}
		if err := do(slices.DeleteFunc(found, ofACopy)); err != nil {
			return err
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// ofACopy reports whether an entry is the state of a copy.
func ofACopy(e storage.Entry) bool { return e.Document.Kind == stateKey.Kind }

// eachEntry writes the source's entries of a kind, several at once.
func (c *Copier) eachEntry(
	ctx context.Context, kind storage.EntryKind, put func(context.Context, storage.Entry) error,
) error {
	return entries(ctx, c.cfg.From, kind, func(some []storage.Entry) error {
		return together(ctx, c.cfg.Workers, some, put)
	})
}

func (c *Copier) putBlock(ctx context.Context, e storage.Entry) error {
	_, err := c.cfg.To.PutBlock(ctx, e.User, e.Blocked.User, e.Blocked.At)
	return err
}

// kept reports whether a setting says something: that of a chat that exists, or one for all chats
// that is not the default.
func kept(ctx context.Context, s storage.Chats, e storage.Entry) (bool, error) {
	if e.Chat == "" {
		return e.Receipts == tidemark.ReceiptsOff, nil
	}
	chat, err := s.Chat(ctx, e.Chat)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return false, nil
	}
	return chat.State != tidemark.ChatDeleted, err
}

func (c *Copier) putReceipts(ctx context.Context, e storage.Entry) error {
	keep, err := kept(ctx, c.cfg.From, e)
	if err != nil || !keep {
		return err
	}
	//rule:copy_equal.settings-after-the-members
	return c.cfg.To.SetReceipts(ctx, e.User, e.Chat, e.Receipts)
}

func (c *Copier) putBacklog(ctx context.Context, e storage.Entry) error {
	return c.cfg.To.Rewind(ctx, []storage.Backlog{e.Backlog})
}

// putAudit writes an entry of the audit log. One that is there stays: an earlier run has copied it.
func (c *Copier) putAudit(ctx context.Context, e storage.Entry) error {
	//rule:copy_equal.the-audit-log
	return c.cfg.To.RecordAudit(ctx, e.Audit)
}

func (c *Copier) putDocument(ctx context.Context, e storage.Entry) error {
	key := storage.DocumentKey{Kind: e.Document.Kind, Name: e.Document.Name}
	_, _, err := storage.EditDocument(ctx, c.cfg.To, key, func([]byte) ([]byte, error) {
		return bytes.Clone(e.Document.Value), nil
	})
	return err
}
