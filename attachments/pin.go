package attachments

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Pin implements server.Attachments.
func (a *Attachments) Pin(
	ctx context.Context, send storage.SendKey, files, seen []string,
) error {
	records, err := a.records(ctx, files)
	if err != nil {
		return err
	}
	for i, r := range records {
		//rule:no_file_outside_membership.own-or-seen-files
		if r == nil || r.Owner != send.Sender && !slices.Contains(seen, files[i]) {
			return tidemark.BadParam(tidemark.Denied, "attachments", "names the file %s, which is "+
				"neither yours nor in a message of attachment_sources; upload it first", files[i])
		}
	}
	errs := make([]error, len(records))
	var pinning sync.WaitGroup
	for i, r := range records {
		if _, changed := r.pinnedBy(&send, a.now()); changed {
			pinning.Go(func() { errs[i] = a.pin(ctx, r, &send) })
		}
	}
	pinning.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// records returns what is stored of files, nil for those that do not exist.
func (a *Attachments) records(ctx context.Context, files []string) ([]*record, error) {
	keys := make([]storage.DocumentKey, len(files))
	for i, id := range files {
		keys[i] = keyOf(id)
		if !ValidID(id) {
			// Such an id might be too long for a key. No file has the id "".
			keys[i] = keyOf("")
		}
	}
	found, err := a.store.DocumentsOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	records := make([]*record, len(files))
	for i, d := range found {
		if d.Value == nil {
			continue
		}
		if records[i], err = decode(d.Value); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// pinnedBy returns the record after a send has pinned the file, and whether it changes. The first
// send is noted, since it may fail: its message then keeps nothing. If another send names the file,
// too, the file is kept for ever.
func (r *record) pinnedBy(send *storage.SendKey, now time.Time) (record, bool) {
	next := *r
	switch {
	case r.State != pinned:
		next.State, next.Send, next.Pinned = pinned, send, now.UTC().Truncate(time.Millisecond)
	case r.Send == nil:
	//rule:R_PIN.another-send-keeps-the-file
	case *r.Send != *send:
		next.Send = nil
	//rule:R_PIN.repeated-send-pins-again
	case now.Sub(r.Pinned) > repinAfter:
		next.Pinned = now.UTC().Truncate(time.Millisecond)
	}
	return next, next != *r
}

// repinAfter is the age from which a repetition of the send notes when it came. It is well below
// OrphanAfter, so no sweep removes what the repetition is about to name.
const repinAfter = time.Hour

// pin pins a file whose bytes are there. Another call may pin it, or the sweep begin to remove it,
// meanwhile.
func (a *Attachments) pin(ctx context.Context, r *record, send *storage.SendKey) error {
	//rule:R_PIN.bytes-are-there
	switch there, err := a.bytes.Stored(ctx, &r.File); {
	case err != nil:
		return err
	case !there:
		return tidemark.BadParam(tidemark.Invalid, "attachments",
			"names the file %s, whose bytes are not there; upload them before you send", r.ID)
	}
	did := false
	edit := func(value []byte) ([]byte, error) {
		did = false
		if value == nil {
			return nil, gone(r.ID)
		}
		now, err := decode(value)
		switch {
		case err != nil:
			return nil, err
		//rule:R_PIN.not-while-it-is-removed
		case now.State == removing:
			return nil, gone(r.ID)
		}
		next, changed := now.pinnedBy(send, a.now())
		if !changed {
			return value, nil
		}
		did = now.State != pinned
		return next.encode()
	}
	_, _, err := storage.EditDocument(ctx, a.store, keyOf(r.ID), edit)
	if err == nil && did {
		a.pinned.Add(1)
	}
	return err
}

func gone(id string) error {
	return tidemark.BadParam(tidemark.Invalid, "attachments", "names the file %s, which was "+
		"removed because no message named it within %v; upload it again", id, OrphanAfter)
}

// Open returns a file with a URL by which a user gets its bytes. The caller has checked that a
// message which the user may see names it.
//
// Errors: NotFound, Unavailable.
func (a *Attachments) Open(
	ctx context.Context, user tidemark.UserID, id string,
) (Signed, error) {
	records, err := a.records(ctx, []string{id})
	if err != nil {
		return Signed{}, err
	}
	r := records[0]
	if r == nil || r.State != pinned {
		return Signed{}, tidemark.Errorf(tidemark.NotFound, "there is no file %.40q", id)
	}
	until := a.now().UTC().Add(DownloadWithin)
	url, err := a.bytes.SignDownload(ctx, user, &r.File, r.disposition(), until)
	if err != nil {
		return Signed{}, err
	}
	return Signed{
		File: r.File, Request: Request{Method: "GET", URL: url}, Expires: until,
	}, nil
}
