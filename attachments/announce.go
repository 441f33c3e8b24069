package attachments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// The kinds and names of the documents (doc.go).
const (
	recordName = "file"
	cursorKind = "attachments"
	cursorName = "swept"
	hourFormat = "2006-01-02T15"
	dayFormat  = "2006-01-02"
	uploadKind = "uploads:"
	usedKind   = "uploaded:"
	recordKind = "attachment:"
	ownedKind  = "attachments-of:"
)

func keyOf(id string) storage.DocumentKey {
	return storage.DocumentKey{Kind: recordKind + id, Name: recordName}
}

// ownedBy returns the kind of the entries of a user's files. It has a hash of the user's id,
// because a kind is no longer than an id.
func ownedBy(user tidemark.UserID) string {
	sum := sha256.Sum256([]byte(user))
	return ownedKind + hex.EncodeToString(sum[:])
}

// Signed is a file, and a request that uploads or downloads its bytes.
type Signed struct {
	File
	Request
	// Expires is when the URL ends.
	Expires time.Time
}

// Announce prepares the upload of a file. It sets the ID of f.
//
// Errors: Invalid and TooLarge (the field is named), Exhausted (the user has announced MaxUserDay
// today), Unavailable.
func (a *Attachments) Announce(
	ctx context.Context, user tidemark.UserID, f File,
) (Signed, error) {
	if err := f.check(); err != nil {
		return Signed{}, err
	}
	f.ID = newID()
	now := a.now().UTC()
	until := now.Add(UploadWithin).Truncate(time.Second)
	request, err := a.bytes.SignUpload(ctx, user, &f, until)
	if err != nil {
		return Signed{}, err
	}
	if err := a.charge(ctx, user, max(f.Size, leastCharge), now); err != nil {
		return Signed{}, err
	}
	r := record{File: f, Owner: user, At: now.Truncate(time.Millisecond), State: announced}
	value, err := r.encode()
	if err != nil {
		return Signed{}, err
	}
	// The entries come first. If the server ends in between, the sweep and an erasure find an entry
	// without a file, and not a file without an entry.
	documents := []storage.Document{
		{Kind: ownedBy(user), Name: f.ID, Value: []byte(`{}`)},
		{Kind: uploadKind + now.Format(hourFormat), Name: f.ID, Value: []byte(`{}`)},
		{Kind: recordKind + f.ID, Name: recordName, Value: value},
	}
	//rule:erased_nowhere.list-files-first
	for _, d := range documents {
		if _, err := a.store.PutDocument(ctx, d); err != nil {
			return Signed{}, uncertain(err)
		}
	}
	a.announced.Add(1)
	return Signed{File: f, Request: request, Expires: until}, nil
}

// uncertain turns the Conflict of a document whose name is new into Unavailable: an attempt of the
// store got no answer.
func uncertain(err error) error {
	if tidemark.CodeOf(err) == tidemark.Conflict {
		return tidemark.Wrap(tidemark.Unavailable, err, "the store did not answer; try again")
	}
	return err
}

// used is how many bytes of files a user has announced on a day.
type used struct {
	Bytes int64 `json:"bytes"`
}

// charge counts bytes against what a user may announce in a day.
func (a *Attachments) charge(
	ctx context.Context, user tidemark.UserID, bytes int64, now time.Time,
) error {
	key := storage.DocumentKey{Kind: usedKind + now.Format(dayFormat), Name: string(user)}
	_, _, err := storage.EditDocument(ctx, a.store, key, func(value []byte) ([]byte, error) {
		var u used
		if value != nil {
			if err := json.Unmarshal(value, &u); err != nil {
				return nil, tidemark.Wrap(tidemark.Internal, err, "what a user used is damaged")
			}
		}
		//rule:bounded_use.bound-bytes-of-a-day
		if u.Bytes += bytes; u.Bytes > MaxUserDay {
			return nil, tidemark.BadParam(tidemark.Exhausted, "size",
				"is more than what is left of today's %d bytes, which end at midnight UTC",
				MaxUserDay)
		}
		return []byte(`{"bytes":` + strconv.FormatInt(u.Bytes, 10) + `}`), nil
	})
	return err
}
