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
		if err := a.remove(ctx, r.ID); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file. First it marks the file, so that no send can pin it.
func (a *Attachments) remove(ctx context.Context, id string) error {
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
	if err != nil || d.Value == nil {
		return err
	}
	if err := a.bytes.Remove(ctx, id); err != nil {
		return err
	}
	return a.drop(ctx, d)
}

// Forget removes how many bytes a user has announced on the days that are kept. The sweep removes
// the files that no message names, within some days. It may be repeated.
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
