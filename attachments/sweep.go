package attachments

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// sweepEvery is how often Run looks for an hour whose files are old enough. Each pause is up to
	// half as long or as long again, so that several nodes seldom do the same.
	sweepEvery = 10 * time.Minute
	// sweepPage is how many entries are read at a time.
	sweepPage = 100
	// sweepFailures is how many files a sweep may fail to remove. Then the place of the bytes is
	// probably away, and the sweep ends.
	sweepFailures = 20
)

// Run removes the orphans until ctx ends. Each node runs it. Two nodes may remove the same file
// without harm.
func (a *Attachments) Run(ctx context.Context) {
	// The first sweep notes where later ones begin.
	for again := true; again; again = signal.Pause(ctx, sweepEvery/2+rand.N(sweepEvery)) {
		if err := a.Sweep(ctx); err != nil && ctx.Err() == nil {
			a.sweepErrors.Add(1)
			a.log.Warn("files that no message names could not be removed; they are tried again",
				"error", err)
		}
	}
}

// cursor is the hour that the sweep comes to next.
type cursor struct {
	Hour time.Time `json:"hour"`
}

// Sweep removes the files that were announced more than OrphanAfter ago and that no message names.
// It works hour by hour, and notes how far it came. A file that cannot be removed does not keep the
// others: it is tried again a day later, and Sweep returns the error of the first one at its end.
func (a *Attachments) Sweep(ctx context.Context) error {
	var failed []error
	remove := func(d storage.Document) error {
		err := a.removeOrphan(ctx, d.Name)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if failed = append(failed, err); len(failed) > sweepFailures {
			return err
		}
		return a.askAgain(ctx, d.Name)
	}
	if err := a.sweep(ctx, remove); err != nil {
		return err
	}
	if len(failed) > 0 {
		return tidemark.Wrap(tidemark.CodeOf(failed[0]), failed[0],
			fmt.Sprintf("%d files could not be removed; they are tried again a day later",
				len(failed)))
	}
	return nil
}

// sweep has remove called for each file of the hours that are old enough.
func (a *Attachments) sweep(ctx context.Context, remove func(storage.Document) error) error {
	key := storage.DocumentKey{Kind: cursorKind, Name: cursorName}
	for ctx.Err() == nil {
		// The last file of an hour is announced at its end, by a clock that may differ by an hour.
		last := a.now().UTC().Add(-OrphanAfter - 2*time.Hour).Truncate(time.Hour)
		found, err := a.store.DocumentsOf(ctx, []storage.DocumentKey{key})
		if err != nil {
			return err
		}
		// Before the first sweep, files can only have been announced within these hours.
		at, d := cursor{Hour: last.Add(-OrphanAfter)}, found[0]
		if d.Value != nil {
			if err := json.Unmarshal(d.Value, &at); err != nil {
				return tidemark.Wrap(tidemark.Internal, err, "the position of the sweep is damaged")
			}
		}
		if at.Hour.After(last) {
			return nil
		}
		if err := a.sweepHour(ctx, at.Hour, remove); err != nil {
			return err
		}
		if d.Value, err = json.Marshal(cursor{Hour: at.Hour.Add(time.Hour)}); err != nil {
			return err
		}
		_, err = a.store.PutDocument(ctx, d)
		// Conflict: another node has swept the hour, too.
		if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
			return err
		}
	}
	return ctx.Err()
}

// sweepHour removes the orphans among the files that were announced in an hour, the entries of that
// hour, and what users had announced on the day before.
func (a *Attachments) sweepHour(
	ctx context.Context, hour time.Time, remove func(storage.Document) error,
) error {
	if err := a.each(ctx, uploadKind+hour.Format(hourFormat), remove); err != nil {
		return err
	}
	day := hour.AddDate(0, 0, -1).Format(dayFormat)
	return a.each(ctx, usedKind+day, func(storage.Document) error { return nil })
}

// each handles the documents of a kind, and removes each one that was handled.
func (a *Attachments) each(
	ctx context.Context, kind string, handle func(storage.Document) error,
) error {
	for more, after := true, ""; more; {
		var found []storage.Document
		var err error
		if found, more, err = a.store.Documents(ctx, kind, after, sweepPage); err != nil {
			return err
		}
		for _, d := range found {
			after = d.Name
			if err := handle(d); err != nil {
				return err
			}
			if err := a.drop(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop removes a document. Another node may have removed it.
func (a *Attachments) drop(ctx context.Context, d storage.Document) error {
	d.Value = nil
	_, err := a.store.PutDocument(ctx, d)
	if tidemark.CodeOf(err) == tidemark.Conflict {
		return nil
	}
	return err
}

// removeOrphan removes a file that no message names. First it marks the file, so that no send can
// pin it. If the server crashes in between, the next sweep continues.
func (a *Attachments) removeOrphan(ctx context.Context, id string) error {
	records, err := a.records(ctx, []string{id})
	if err != nil {
		return err
	}
	seen := records[0]
	if seen == nil {
		// The owner was erased, and may have uploaded the bytes later, by a URL of before.
		//rule:erased_nowhere.late-uploads
		return a.bytes.Remove(ctx, id)
	}
	if seen.State == pinned {
		if named, err := a.named(ctx, seen); err != nil || named {
			return err
		}
	}
	orphan, again := false, false
	edit := func(value []byte) ([]byte, error) {
		orphan, again = false, false
		if value == nil {
			return nil, nil
		}
		r, err := decode(value)
		//rule:R_PIN.keep-pinned-files
		if err != nil || r.State == pinned && !r.pinnedAs(seen) {
			again = true
			return value, err
		}
		orphan, r.State = true, removing
		return r.encode()
	}
	_, _, err = storage.EditDocument(ctx, a.store, keyOf(id), edit)
	if err == nil && again {
		return a.askAgain(ctx, id)
	}
	if err != nil || !orphan {
		return err
	}
	if err := a.bytes.Remove(ctx, id); err != nil {
		return err
	}
	found, err := a.store.DocumentsOf(ctx, []storage.DocumentKey{
		keyOf(id), {Kind: ownedBy(seen.Owner), Name: id},
	})
	if err != nil {
		return err
	}
	a.swept.Add(1)
	// If the server ends in between, the entry stays until the owner is erased. A record without
	// an entry would stay then.
	//rule:erased_nowhere.entry-of-an-orphan-at-last
	for _, d := range found {
		if err := a.drop(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// named reports whether a message may name a pinned file. While that is uncertain, the sweep checks
// again a day later.
func (a *Attachments) named(ctx context.Context, r *record) (bool, error) {
	if r.Send == nil {
		return true, nil
	}
	//rule:R_PIN.wait-for-the-send
	if a.now().Sub(r.Pinned) < OrphanAfter {
		return true, a.askAgain(ctx, r.ID)
	}
	//rule:R_PIN.keep-what-is-sent
	_, found, err := a.store.Sent(ctx, *r.Send)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return false, nil
	}
	return found, err
}

// askAgain makes the sweep check a file again a day later.
func (a *Attachments) askAgain(ctx context.Context, id string) error {
	_, err := a.store.PutDocument(ctx, storage.Document{
		Kind: uploadKind + a.now().UTC().Format(hourFormat), Name: id, Value: []byte(`{}`),
	})
	if tidemark.CodeOf(err) == tidemark.Conflict {
		return nil // Another node has entered it.
	}
	return err
}

// pinnedAs reports whether a file is pinned as it was in an earlier record.
func (r *record) pinnedAs(earlier *record) bool {
	return earlier.State == pinned && earlier.Send != nil && r.Send != nil &&
		*r.Send == *earlier.Send && r.Pinned.Equal(earlier.Pinned)
}
