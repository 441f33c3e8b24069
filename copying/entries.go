package copying

import (
	"bytes"
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// kinds are the kinds of entries, in the order in which they are compared.
var kinds = []storage.EntryKind{
	storage.EntryBlock, storage.EntryReceipts, storage.EntryBacklog, storage.EntryDocument,
}

// entries calls do for each entry of a kind that is not of the copy itself.
func entries(
	ctx context.Context, s storage.CopySource, kind storage.EntryKind,
	do func(*storage.Entry) error,
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
		for i := range found {
			d := &found[i].Document
			if d.Kind == stateKey.Kind {
				continue
			}
			if err := do(&found[i]); err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// eachEntry writes the source's entries of a kind.
func (c *Copier) eachEntry(
	ctx context.Context, kind storage.EntryKind, put func(context.Context, *storage.Entry) error,
) error {
	return entries(ctx, c.cfg.From, kind, func(e *storage.Entry) error { return put(ctx, e) })
}

func (c *Copier) putBlock(ctx context.Context, e *storage.Entry) error {
	_, err := c.cfg.To.PutBlock(ctx, e.User, e.Blocked.User, e.Blocked.At)
	return err
}

// kept reports whether a setting says something: that of a chat that exists, or one for all chats
// that is not the default.
func kept(ctx context.Context, s storage.Chats, e *storage.Entry) (bool, error) {
	if e.Chat == "" {
		return e.Receipts == tidemark.ReceiptsOff, nil
	}
	chat, err := s.Chat(ctx, e.Chat)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return false, nil
	}
	return chat.State != tidemark.ChatDeleted, err
}

func (c *Copier) putReceipts(ctx context.Context, e *storage.Entry) error {
	keep, err := kept(ctx, c.cfg.From, e)
	if err != nil || !keep {
		return err
	}
	//rule:copy_equal.settings-after-the-members
	return c.cfg.To.SetReceipts(ctx, e.User, e.Chat, e.Receipts)
}

func (c *Copier) putBacklog(ctx context.Context, e *storage.Entry) error {
	return c.cfg.To.Rewind(ctx, []storage.Backlog{e.Backlog})
}

func (c *Copier) putDocument(ctx context.Context, e *storage.Entry) error {
	key := storage.DocumentKey{Kind: e.Document.Kind, Name: e.Document.Name}
	_, _, err := storage.EditDocument(ctx, c.cfg.To, key, func([]byte) ([]byte, error) {
		return bytes.Clone(e.Document.Value), nil
	})
	return err
}
