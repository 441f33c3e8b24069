package attachments

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Remove removes those files of a user that the attachments of a message name, also if messages of
// others name them, too. It may be repeated.
//
// Errors: Unavailable.
func (a *Attachments) Remove(
	ctx context.Context, user tidemark.UserID, attachments json.RawMessage,
) error {
	named, err := tidemark.FilesOf(attachments)
	if err != nil {
		return nil // They name no file.
	}
	records, err := a.records(ctx, named)
	if err != nil {
		return err
	}
	for _, r := range records {
		//rule:erased_nowhere.files
		if r == nil || r.Owner != user {
			continue
		}
		entries, err := a.store.DocumentsOf(ctx,
			[]storage.DocumentKey{{Kind: ownedBy(user), Name: r.ID}})
		if err != nil {
			return err
		}
		if err := a.remove(ctx, entries[0]); err != nil {
			return err
		}
	}
	return nil
}

// removedAtOnce is how many files RemoveAll removes in a call.
const removedAtOnce = 100

// RemoveAll removes the next files of a user, in whatever state, and whatever messages name them.
// done reports that none is left. It may be repeated.
//
// The user has been refused for so long that no announcement of theirs is under way. Files that
// were announced before there were entries (ownedBy) are not found.
//
// Errors: Unavailable.
func (a *Attachments) RemoveAll(
	ctx context.Context, user tidemark.UserID,
) (done bool, err error) {
	entries, more, err := a.store.Documents(ctx, ownedBy(user), "", removedAtOnce)
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		if err := a.remove(ctx, entry); err != nil {
			return false, err
		}
	}
	return !more, nil
}

// remove removes a file and at last its entry, so that a file without an entry is never left. First
// it marks the file, so that no send can pin it. There may be no file.
func (a *Attachments) remove(ctx context.Context, entry storage.Document) error {
	//rule:erased_nowhere.entry-at-last
	id := entry.Name
	d, _, err := storage.EditDocument(ctx, a.store, keyOf(id),
		func(value []byte) ([]byte, error) {
			if value == nil {
				return nil, nil
			}
			r, err := decode(value)
			if err != nil {
				return nil, err
			}
			r.State = removing
			return r.encode()
		})
	if err != nil {
		return err
	}
	if d.Value != nil {
		//rule:erased_nowhere.bytes-before-the-record
		if err := a.bytes.Remove(ctx, id); err != nil {
			return err
		}
		if err := a.drop(ctx, d); err != nil {
			return err
		}
	}
	return a.drop(ctx, entry)
}

// Forget removes how many bytes a user has announced on the days that are kept. RemoveAll removes
// their files. It may be repeated.
//
// Errors: Unavailable.
func (a *Attachments) Forget(ctx context.Context, user tidemark.UserID) error {
	now := a.now().UTC()
	for days := range usedDays {
		day := now.Add(time.Duration(1-days) * 24 * time.Hour)
		key := storage.DocumentKey{Kind: usedKind + day.Format(dayFormat), Name: string(user)}
		_, _, err := storage.EditDocument(ctx, a.store, key,
			func([]byte) ([]byte, error) { return nil, nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// usedDays is how many days may have a document of the bytes that a user announced. They begin
// with tomorrow, because clocks differ, and go back.
const usedDays = 6

// Kinds returns nil: no kind of documents is named by users for long.
func (a *Attachments) Kinds() []string { return nil }
